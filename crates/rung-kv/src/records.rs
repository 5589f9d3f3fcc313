//! Small named records, such as tokens and tasks. All processes on the data folder share them.

use std::sync::Arc;

use crate::store::Table;
use crate::{Result, Store};

/// Records of one kind, each with an optional expiry. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RecordTable {
    store: Arc<Store>,
    table: Table,
}

/// The expiry of a record that does not expire.
const NEVER_EXPIRES: u64 = u64::MAX;

/// The name of a record, and the record.
type NamedRecord = (String, Vec<u8>);

impl RecordTable {
    /// Opens the records of tokens.
    pub fn tokens(store: Arc<Store>) -> Self {
        let table = store.tables.tokens;
        Self { store, table }
    }

    /// Opens the records of tasks.
    pub fn tasks(store: Arc<Store>) -> Self {
        let table = store.tables.tasks;
        Self { store, table }
    }

    /// Opens the records of the catalog of downstream servers.
    pub fn catalog(store: Arc<Store>) -> Self {
        let table = store.tables.catalogue;
        Self { store, table }
    }

    /// Writes a record. It is on disk when this returns.
    pub fn put(&self, key: &str, record: &[u8], expires_ms: Option<u64>) -> Result<()> {
        let row = encode_row(record, expires_ms);
        self.store
            .write(|txn| Ok(self.table.put(txn, key.as_bytes(), &row)?))
    }

    /// Deletes expired records.
    pub fn sweep(&self, now_ms: u64) -> Result<()> {
        self.store.write(|txn| {
            let mut over = Vec::new();
            for entry in self.table.iter(txn)? {
                let (key, row) = entry?;
                if row_expiry_ms(row) <= now_ms {
                    over.push(key.to_vec());
                }
            }
            for key in over {
                self.table.delete(txn, &key)?;
            }
            Ok(())
        })
    }

    /// Writes a record unless there is one of that name. Returns true if it was written.
    pub fn add(
        &self,
        key: &str,
        record: &[u8],
        now_ms: u64,
        expires_ms: Option<u64>,
    ) -> Result<bool> {
        let row = encode_row(record, expires_ms);
        self.store.write(|txn| {
            let taken = self.table.get(txn, key.as_bytes())?;
            if taken.is_some_and(|row| row_expiry_ms(row) > now_ms) {
                return Ok(false);
            }
            self.table.put(txn, key.as_bytes(), &row)?;
            Ok(true)
        })
    }

    /// Reads a record.
    pub fn get(&self, key: &str, now_ms: u64) -> Result<Option<Vec<u8>>> {
        self.store.read(|txn| {
            let row = self.table.get(txn, key.as_bytes())?;
            let row = row.filter(|row| row_expiry_ms(row) > now_ms);
            Ok(row.map(|row| row[8..].to_vec()))
        })
    }

    /// Returns all records, in order of their names.
    pub fn list(&self, now_ms: u64) -> Result<Vec<NamedRecord>> {
        Ok(self.list_at_version(now_ms)?.1)
    }

    /// Returns all records, in order of their names, and their version. It may be older than [`Self::version`], which changes
    /// shortly before the write can be read.
    pub fn list_at_version(&self, now_ms: u64) -> Result<(usize, Vec<NamedRecord>)> {
        let mut all = Vec::new();
        let version = self.visit(now_ms, |key, record| {
            let key = String::from_utf8_lossy(key).into_owned();
            all.push((key, record.to_vec()));
        })?;
        Ok((version, all))
    }

    /// Calls `visit` with every record, in order of their names.
    pub fn for_each(&self, now_ms: u64, visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.visit(now_ms, visit)?;
        Ok(())
    }

    fn visit(&self, now_ms: u64, mut visit: impl FnMut(&[u8], &[u8])) -> Result<usize> {
        self.store.read(|txn| {
            for entry in self.table.iter(txn)? {
                let (key, row) = entry?;
                if row_expiry_ms(row) > now_ms {
                    visit(key, &row[8..]);
                }
            }
            Ok(txn.id())
        })
    }

    /// Returns a number that changes with every write of any process.
    pub fn version(&self) -> usize {
        self.store.version()
    }

    /// Deletes a record. Returns true if it existed.
    pub fn remove(&self, key: &str) -> Result<bool> {
        self.store
            .write(|txn| Ok(self.table.delete(txn, key.as_bytes())?))
    }
}

/// Encodes a row: the expiry, then the record.
fn encode_row(record: &[u8], expires_ms: Option<u64>) -> Vec<u8> {
    let mut row = expires_ms.unwrap_or(NEVER_EXPIRES).to_be_bytes().to_vec();
    row.extend_from_slice(record);
    row
}

/// Returns the expiry of a row. A truncated row counts as expired.
fn row_expiry_ms(row: &[u8]) -> u64 {
    row.first_chunk()
        .map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    #[test]
    fn a_record_is_there_until_its_time_and_its_name_is_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(dir.path(), Options::default()).unwrap());
        let (tokens, tasks) = (
            RecordTable::tokens(store.clone()),
            RecordTable::tasks(store),
        );
        let version = tokens.version();
        assert!(tokens.add("a", b"1", 0, None).unwrap());
        assert_ne!(tokens.version(), version);
        assert_eq!(tokens.list_at_version(0).unwrap().0, tokens.version());
        assert!(!tokens.add("a", b"2", 0, None).unwrap());
        tokens.put("b", b"3", Some(10)).unwrap();
        assert_eq!(tokens.get("b", 9).unwrap(), Some(b"3".to_vec()));
        assert_eq!(tokens.get("b", 10).unwrap(), None);
        assert!(tokens.add("b", b"4", 10, None).unwrap(), "its time is over");
        assert_eq!(tokens.list(0).unwrap().len(), 2);
        assert!(
            tasks.list(0).unwrap().is_empty(),
            "one sort does not see the other"
        );
        assert!(tokens.remove("a").unwrap());
        assert!(!tokens.remove("a").unwrap());
        tokens.put("c", b"", Some(6)).unwrap();
        tokens.put("d", b"", None).unwrap();
        tokens.sweep(7).unwrap();
        let names: Vec<String> = tokens
            .list(0)
            .unwrap()
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        assert_eq!(names, ["b", "d"]);
    }
}

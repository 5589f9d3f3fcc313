//! Small records by name: who may come in, which tasks are under way. Every process on the folder sees them.

use std::sync::Arc;

use crate::store::Table;
use crate::{Result, Store};

/// Records of one sort, each gone after its time. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Records {
    store: Arc<Store>,
    table: Table,
}

/// A record that stays.
const FOR_EVER: u64 = u64::MAX;

/// A record, and its name.
type Named = (String, Vec<u8>);

impl Records {
    /// The tokens on record.
    pub fn tokens(store: Arc<Store>) -> Self {
        let table = store.tables.tokens;
        Self { store, table }
    }

    /// The tasks on record.
    pub fn tasks(store: Arc<Store>) -> Self {
        let table = store.tables.tasks;
        Self { store, table }
    }

    /// What other servers were seen to offer.
    pub fn catalogue(store: Arc<Store>) -> Self {
        let table = store.tables.catalogue;
        Self { store, table }
    }

    /// Writes a record. It is on disk when this returns.
    pub fn put(&self, key: &str, record: &[u8], expires_ms: Option<u64>) -> Result<()> {
        let row = row(record, expires_ms);
        self.store
            .write(|txn| Ok(self.table.put(txn, key.as_bytes(), &row)?))
    }

    /// Clears away the records whose time is over.
    pub fn sweep(&self, now_ms: u64) -> Result<()> {
        self.store.write(|txn| {
            let mut over = Vec::new();
            for entry in self.table.iter(txn)? {
                let (key, row) = entry?;
                if expires(row) <= now_ms {
                    over.push(key.to_vec());
                }
            }
            for key in over {
                self.table.delete(txn, &key)?;
            }
            Ok(())
        })
    }

    /// Writes a record unless there is one of that name. Whether it was written.
    pub fn add(
        &self,
        key: &str,
        record: &[u8],
        now_ms: u64,
        expires_ms: Option<u64>,
    ) -> Result<bool> {
        let row = row(record, expires_ms);
        self.store.write(|txn| {
            let taken = self.table.get(txn, key.as_bytes())?;
            if taken.is_some_and(|row| expires(row) > now_ms) {
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
            let row = row.filter(|row| expires(row) > now_ms);
            Ok(row.map(|row| row[8..].to_vec()))
        })
    }

    /// Reads every record, by name.
    pub fn list(&self, now_ms: u64) -> Result<Vec<Named>> {
        Ok(self.list_at_version(now_ms)?.1)
    }

    /// Reads every record, by name, and says of which version they are: of none later than [`Self::version`] is now, since
    /// that is told a moment before it can be read.
    pub fn list_at_version(&self, now_ms: u64) -> Result<(usize, Vec<Named>)> {
        let mut all = Vec::new();
        let version = self.visit(now_ms, |key, record| {
            let key = String::from_utf8_lossy(key).into_owned();
            all.push((key, record.to_vec()));
        })?;
        Ok((version, all))
    }

    /// Shows every record, by name, to `visit`.
    pub fn each(&self, now_ms: u64, visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.visit(now_ms, visit)?;
        Ok(())
    }

    fn visit(&self, now_ms: u64, mut visit: impl FnMut(&[u8], &[u8])) -> Result<usize> {
        self.store.read(|txn| {
            for entry in self.table.iter(txn)? {
                let (key, row) = entry?;
                if expires(row) > now_ms {
                    visit(key, &row[8..]);
                }
            }
            Ok(txn.id())
        })
    }

    /// A number that is another one whenever something was written, by whatever process.
    pub fn version(&self) -> usize {
        self.store.version()
    }

    /// Forgets a record. Whether there was one.
    pub fn remove(&self, key: &str) -> Result<bool> {
        self.store
            .write(|txn| Ok(self.table.delete(txn, key.as_bytes())?))
    }
}

/// When it ends, then the record.
fn row(record: &[u8], expires_ms: Option<u64>) -> Vec<u8> {
    let mut row = expires_ms.unwrap_or(FOR_EVER).to_be_bytes().to_vec();
    row.extend_from_slice(record);
    row
}

/// A row that is cut short has expired.
fn expires(row: &[u8]) -> u64 {
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
        let (tokens, tasks) = (Records::tokens(store.clone()), Records::tasks(store));
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

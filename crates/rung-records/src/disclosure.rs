//! The disclosure log: each disclosure is journaled before the response is sent, and moved into the store in batches.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::records::generate_id;
use crate::scope::Bearer;
use crate::store::{BulkInsert, SqlRow, Value, params};
use crate::{Error, Records, Result};

/// A disclosure of records to a client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Disclosure {
    pub subject: i64,
    /// In milliseconds since 1970.
    pub at_ms: i64,
    pub id: String,
    pub client: String,
    pub grant_id: Option<String>,
    /// The request that was answered.
    pub request: String,
    pub stream: Option<String>,
    /// Number of records disclosed.
    pub records: i64,
    /// Digest of the response.
    pub digest: String,
}

const INSERT_DISCLOSURES: BulkInsert = BulkInsert {
    into: "INSERT INTO disclosure (subject, at_ms, id, client, grant_id, request, stream, records, digest)",
    width: 9,
    conflict: "ON CONFLICT DO NOTHING",
};

/// The journal: a file with one line per response, appended before the response is sent. Lines survive a killed
/// process.
pub struct DisclosureJournal {
    file: Mutex<File>,
}

impl DisclosureJournal {
    /// Opens the journal, including the lines that an earlier process left.
    pub fn open(path: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).read(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path);
        let file = file.map_err(|error| Error::Disk(error.to_string()))?;
        Ok(Self {
            file: Mutex::new(file),
        })
    }

    /// Appends a disclosure. Call before sending the response.
    pub fn append(
        &self,
        records: &Records,
        bearer: &Bearer,
        request: &str,
        stream: Option<&str>,
        count: usize,
        answer: &[u8],
    ) -> Result<()> {
        let line = Disclosure {
            subject: bearer.subject,
            at_ms: records.now_ms(),
            id: generate_id("dis")?,
            client: bearer.permit.caller().to_string(),
            grant_id: bearer.grant().map(|grant| grant.grant_id.clone()),
            request: request.to_owned(),
            stream: stream.map(str::to_owned),
            records: i64::try_from(count).unwrap_or(i64::MAX),
            digest: crate::document::digest_bytes(answer),
        };
        let mut line = serde_json::to_vec(&line)?;
        line.push(b'\n');
        let mut file = self.file.lock();
        // A shared lock: another process may be moving lines into the store.
        let written = file.lock_shared().and_then(|()| file.write_all(&line));
        let _unlocked = file.unlock();
        written.map_err(|error| match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Error::StoreFull,
            _ => Error::Disk(error.to_string()),
        })
    }

    /// Moves the journaled lines into the store and returns their number.
    ///
    /// Reads, inserts, then truncates; the journal is not locked during the insert, so responses do not wait for the
    /// store.
    pub fn flush(&self, records: &Records) -> Result<usize> {
        let text = self.with_lock(|file| {
            let mut text = String::new();
            file.seek(SeekFrom::Start(0))?;
            file.read_to_string(&mut text)?;
            Ok(text)
        })?;
        if text.is_empty() {
            return Ok(0);
        }
        // A line torn by a crash belongs to a response that was never sent.
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Disclosure>(line).ok());
        let lines: Vec<Disclosure> = lines.collect();
        let values: Vec<Value<'_>> = lines
            .iter()
            .flat_map(|line| {
                [
                    Value::Int(line.subject),
                    Value::Int(line.at_ms),
                    Value::Text(&line.id),
                    Value::Text(&line.client),
                    line.grant_id.as_ref().into(),
                    Value::Text(&line.request),
                    line.stream.as_ref().into(),
                    Value::Int(line.records),
                    Value::Text(&line.digest),
                ]
            })
            .collect();
        records
            .store
            .write_tx(|tx| tx.insert(INSERT_DISCLOSURES, &values))?;
        // The lines are durable in the store. Another process may have moved the same lines.
        self.with_lock(|file| {
            let mut now = String::new();
            file.seek(SeekFrom::Start(0))?;
            file.read_to_string(&mut now)?;
            if let Some(rest) = now.strip_prefix(&text) {
                file.set_len(0)?;
                file.write_all(rest.as_bytes())?;
            }
            Ok(())
        })?;
        Ok(lines.len())
    }

    /// Runs `work` under an exclusive lock on the file.
    fn with_lock<T>(&self, work: impl FnOnce(&mut File) -> std::io::Result<T>) -> Result<T> {
        let mut file = self.file.lock();
        let done = file.lock().and_then(|()| work(&mut file));
        let _unlocked = file.unlock();
        done.map_err(|error| Error::Disk(error.to_string()))
    }
}

const COLUMNS: &str = "subject, at_ms, id, client, grant_id, request, stream, records, digest";

impl Disclosure {
    fn from_row(row: &dyn SqlRow) -> Result<Self> {
        Ok(Self {
            subject: row.int(0)?,
            at_ms: row.int(1)?,
            id: row.text(2)?.to_owned(),
            client: row.text(3)?.to_owned(),
            grant_id: row.maybe_text(4)?.map(str::to_owned),
            request: row.text(5)?.to_owned(),
            stream: row.maybe_text(6)?.map(str::to_owned),
            records: row.int(7)?,
            digest: row.text(8)?.to_owned(),
        })
    }
}

impl Records {
    /// Returns the latest disclosures, newest first.
    pub fn disclosures(&self, bearer: &Bearer, limit: i64) -> Result<Vec<Disclosure>> {
        bearer.require_owner()?;
        let sql = format!(
            "SELECT {COLUMNS} FROM disclosure WHERE subject = ?1 ORDER BY at_ms DESC, id LIMIT ?2"
        );
        self.store
            .read_tx(|tx| tx.query_all(&sql, params![bearer.subject, limit], Disclosure::from_row))
    }

    /// Returns the latest disclosures under one grant, newest first.
    pub fn disclosures_of_grant(
        &self,
        bearer: &Bearer,
        grant_id: &str,
        limit: i64,
    ) -> Result<Vec<Disclosure>> {
        bearer.require_owner()?;
        let sql = format!(
            "SELECT {COLUMNS} FROM disclosure WHERE subject = ?1 AND grant_id = ?2 ORDER BY at_ms DESC, id LIMIT ?3"
        );
        let params = params![bearer.subject, grant_id, limit];
        self.store
            .read_tx(|tx| tx.query_all(&sql, params, Disclosure::from_row))
    }
}

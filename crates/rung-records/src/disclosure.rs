//! Who was shown what: written down before the answer is out, brought into the store a batch at a time.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::records::fresh_id;
use crate::scope::Bearer;
use crate::store::{Insert, Row, Value, params};
use crate::{Error, Records, Result};

/// Something that was shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Disclosure {
    /// Whose.
    pub subject: i64,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// Its own name.
    pub id: String,
    /// To whom.
    pub client: String,
    /// Under which grant.
    pub grant_id: Option<String>,
    /// In answer to what.
    pub request: String,
    /// Of which stream.
    pub stream: Option<String>,
    /// How many records.
    pub records: i64,
    /// The digest of the answer.
    pub digest: String,
}

const ROWS: Insert = Insert {
    into: "INSERT INTO disclosure (subject, at_ms, id, client, grant_id, request, stream, records, digest)",
    width: 9,
    conflict: "ON CONFLICT DO NOTHING",
};

/// A file that takes a line for each answer before it goes out. A killed process loses none of them.
pub struct Journal {
    file: Mutex<File>,
}

impl Journal {
    /// Opens the journal. What an earlier process left in it is still there.
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

    /// Writes down that something is about to be shown.
    pub fn note(
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
            id: fresh_id("dis")?,
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
        // Another process may be taking out what is in it.
        let written = file.lock_shared().and_then(|()| file.write_all(&line));
        let _unlocked = file.unlock();
        written.map_err(|error| match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Error::Full,
            _ => Error::Disk(error.to_string()),
        })
    }

    /// Brings what was written down into the store. Says how much.
    ///
    /// Nobody who shows something waits for the store meanwhile: it is read, then brought over, then taken out.
    pub fn settle(&self, records: &Records) -> Result<usize> {
        let text = self.locked(|file| {
            let mut text = String::new();
            file.seek(SeekFrom::Start(0))?;
            file.read_to_string(&mut text)?;
            Ok(text)
        })?;
        if text.is_empty() {
            return Ok(0);
        }
        // A line that was torn by a crash was of an answer that never went out.
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
        records.store.writing(|tx| tx.insert(ROWS, &values))?;
        // In the store and on disk: only now may they go from here. Another process may have done the same.
        self.locked(|file| {
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

    /// Does something with the file that no other process does meanwhile.
    fn locked<T>(&self, work: impl FnOnce(&mut File) -> std::io::Result<T>) -> Result<T> {
        let mut file = self.file.lock();
        let done = file.lock().and_then(|()| work(&mut file));
        let _unlocked = file.unlock();
        done.map_err(|error| Error::Disk(error.to_string()))
    }
}

const COLUMNS: &str = "subject, at_ms, id, client, grant_id, request, stream, records, digest";

impl Disclosure {
    fn read(row: &dyn Row) -> Result<Self> {
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
    /// What was shown, the latest first.
    pub fn disclosures(&self, bearer: &Bearer, limit: i64) -> Result<Vec<Disclosure>> {
        bearer.require_owner()?;
        let sql = format!(
            "SELECT {COLUMNS} FROM disclosure WHERE subject = ?1 ORDER BY at_ms DESC, id LIMIT ?2"
        );
        self.store
            .reading(|tx| tx.all(&sql, params![bearer.subject, limit], Disclosure::read))
    }

    /// What was shown under one grant, the latest first.
    pub fn disclosures_of(
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
            .reading(|tx| tx.all(&sql, params, Disclosure::read))
    }
}

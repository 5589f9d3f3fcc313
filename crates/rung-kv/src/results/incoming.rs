//! A result on its way in, with memory that does not grow with it.

use rung_ladder::{Handle, Mark};
use sha2::{Digest, Sha256};

use super::record::{CHUNK_BYTES, CHUNK_HEADER_BYTES, Key, Owner, Record, chunk_key, number};
use super::{Kept, PENDING_MS, ResultStore};
use crate::{Error, Result};

/// What is held in memory before it is written. A smaller result costs one transaction in all.
const BATCH_BYTES: usize = 4 << 20;
const NEXT_BODY_KEY: &[u8] = b"next_body";

/// A result that is coming in. Dropped before it is finished, it leaves nothing behind.
#[derive(Debug)]
pub struct Incoming<'s> {
    results: &'s ResultStore,
    owner: Owner,
    content_type: String,
    /// Whether something of it was lost on the way, so that it can never be finished.
    spoiled: bool,
    /// Its number, once something of it is on disk.
    body: Option<u64>,
    /// Chunks on disk.
    written: u32,
    /// Bytes that are not on disk yet; a whole number of chunks lies before them.
    batch: Vec<u8>,
    bytes: u64,
    digest: Sha256,
    text: Text,
    /// Where `batch` begins.
    before: Mark,
    /// When we last said that we are alive.
    heard_ms: u64,
}

impl<'s> Incoming<'s> {
    pub(super) fn new(results: &'s ResultStore, owner: Owner, content_type: String) -> Self {
        let text = Text {
            valid: !is_binary_type(&content_type),
            tail: Vec::new(),
        };
        Self {
            results,
            owner,
            content_type,
            spoiled: false,
            body: None,
            written: 0,
            batch: Vec::new(),
            bytes: 0,
            digest: Sha256::new(),
            text,
            before: Mark::default(),
            heard_ms: 0,
        }
    }

    /// Adds to the result. Once this has failed, the result cannot be finished.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let taken = self.take(bytes);
        self.spoiled |= taken.is_err();
        taken
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        let max_bytes = self.results.limits.max_bytes;
        if self.bytes > max_bytes {
            return Err(Error::ResultTooLarge { max_bytes });
        }
        self.digest.update(bytes);
        self.text.check(bytes);
        self.stay_alive()?;
        while !bytes.is_empty() {
            let room = BATCH_CHUNKS * CHUNK_BYTES - self.batch.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.batch.extend_from_slice(now);
            bytes = later;
            if self.batch.len() == BATCH_CHUNKS * CHUNK_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Makes the result visible. When this returns, it is on disk and its handle may be given out.
    pub fn finish(mut self) -> Result<Kept> {
        if self.spoiled {
            return Err(Error::ResultAbandoned);
        }
        let created_ms = (self.results.now_ms)();
        let ttl_ms = u64::try_from(self.results.limits.ttl.as_millis()).unwrap_or(u64::MAX);
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(|_| Error::NoRandomness)?;
        let handle = Handle::from_bits(bits);
        let key: Key = self.owner.key(&handle);
        let (rows, after) = self.rows();
        let text = self.text.valid && self.text.tail.is_empty();
        let mut record = Record {
            body: 0,
            content_type: std::mem::take(&mut self.content_type),
            bytes: self.bytes,
            chars: text.then_some(after.chars),
            digest: format!(
                "sha256:{}",
                data_encoding::HEXLOWER.encode(&self.digest.clone().finalize())
            ),
            created_ms,
            expires_ms: created_ms.saturating_add(ttl_ms),
        };
        let results = self.results;
        results.store.write(|txn| {
            record.body = self.write_rows(txn, &rows)?;
            results.insert(txn, &key, &record)
        })?;
        // It is no longer ours to clear away.
        self.body = None;
        Ok(Kept {
            handle,
            summary: record.summary(),
        })
    }

    /// Says that we are alive, where what comes in is too slow to show it.
    fn stay_alive(&mut self) -> Result<()> {
        let now_ms = (self.results.now_ms)();
        if self.body.is_some() && now_ms.saturating_sub(self.heard_ms) > PENDING_MS / 4 {
            self.results.store.write(|txn| self.write_rows(txn, &[]))?;
            self.heard_ms = now_ms;
        }
        Ok(())
    }

    /// Writes what is in memory.
    fn flush(&mut self) -> Result<()> {
        let (rows, after) = self.rows();
        let body = self
            .results
            .store
            .write(|txn| self.write_rows(txn, &rows))?;
        self.body = Some(body);
        self.heard_ms = (self.results.now_ms)();
        self.written += u32::try_from(rows.len()).expect("a batch has few chunks");
        self.before = after;
        self.batch.clear();
        Ok(())
    }

    /// The rows of the batch, and where it ends.
    fn rows(&self) -> (Vec<Vec<u8>>, Mark) {
        let mut mark = self.before;
        let rows = self.batch.chunks(CHUNK_BYTES).map(|chunk| {
            let mut row = Vec::with_capacity(CHUNK_HEADER_BYTES + chunk.len());
            row.extend(mark.chars.to_be_bytes());
            row.extend(mark.lines.to_be_bytes());
            row.extend(chunk);
            mark = mark.behind(chunk);
            row
        });
        let rows = rows.collect();
        (rows, mark)
    }

    /// Puts rows behind those on disk, under a number of their own, and says that we are alive.
    fn write_rows(&self, txn: &mut heed::RwTxn<'_>, rows: &[Vec<u8>]) -> Result<u64> {
        let tables = self.results.store.tables;
        let body = match self.body {
            // Whoever was silent for too long has been swept away, and must not go on.
            Some(body) if tables.pending.get(txn, &body.to_be_bytes())?.is_none() => {
                return Err(Error::ResultAbandoned);
            }
            Some(body) => body,
            None => {
                let next = match tables.meta.get(txn, NEXT_BODY_KEY)? {
                    Some(row) => number(row)?,
                    None => 0,
                };
                tables
                    .meta
                    .put(txn, NEXT_BODY_KEY, &(next + 1).to_be_bytes())?;
                next
            }
        };
        let now_ms = (self.results.now_ms)();
        tables
            .pending
            .put(txn, &body.to_be_bytes(), &now_ms.to_be_bytes())?;
        for (at, row) in (self.written..).zip(rows) {
            tables.chunks.put(txn, &chunk_key(body, at), row)?;
        }
        Ok(body)
    }
}

const BATCH_CHUNKS: usize = BATCH_BYTES / CHUNK_BYTES;

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        if let Some(body) = self.body {
            // Should this fail too, the sweep does it later.
            let results = self.results;
            let _ = results.store.write(|txn| results.delete_body(txn, body));
        }
    }
}

/// Whether what has come in so far is UTF-8.
#[derive(Debug)]
struct Text {
    valid: bool,
    /// The beginning of a code point whose end has not come yet.
    tail: Vec<u8>,
}

impl Text {
    fn check(&mut self, mut bytes: &[u8]) {
        while self.valid && !self.tail.is_empty() && !bytes.is_empty() {
            self.tail.push(bytes[0]);
            bytes = &bytes[1..];
            match std::str::from_utf8(&self.tail) {
                Ok(_) => self.tail.clear(),
                Err(error) if error.error_len().is_none() => {}
                Err(_) => self.valid = false,
            }
        }
        if !self.valid {
            return;
        }
        match std::str::from_utf8(bytes) {
            Ok(_) => {}
            Err(error) if error.error_len().is_none() => {
                self.tail.extend_from_slice(&bytes[error.valid_up_to()..]);
            }
            Err(_) => self.valid = false,
        }
    }
}

/// Types whose bytes are not text even where they happen to be valid UTF-8.
fn is_binary_type(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    let essence = essence.as_str();
    let (kind, subtype) = essence.split_once('/').unwrap_or((essence, ""));
    match kind {
        "image" | "audio" | "video" | "font" => !subtype.ends_with("+xml"),
        "application" => ["octet-stream", "pdf", "zip", "gzip", "wasm"].contains(&subtype),
        _ => false,
    }
}

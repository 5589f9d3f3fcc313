//! A result on its way in, with memory that does not grow with it.

use rung_ladder::{Handle, Intake, Kept};

use super::record::{CHUNK_BYTES, CHUNK_HEADER_BYTES, Key, Owner, Record, chunk_key, number};
use super::{PENDING_MS, ResultStore};
use crate::{Error, Result};

/// What is held in memory before it is written. A smaller result costs one transaction in all.
const BATCH_BYTES: usize = BATCH_CHUNKS * CHUNK_BYTES;
const BATCH_CHUNKS: usize = (4 << 20) / CHUNK_BYTES;
const NEXT_BODY_KEY: &[u8] = b"next_body";

/// A result that is coming in. Dropped before it is finished, it leaves nothing behind.
#[derive(Debug)]
pub struct Incoming<'s> {
    results: &'s ResultStore,
    owner: Owner,
    /// What came; the part that is not on disk yet is held there.
    intake: Intake,
    /// Whether something of it was lost on the way, so that it can never be finished.
    spoiled: bool,
    /// Its number, once something of it is on disk.
    body: Option<u64>,
    /// Chunks on disk.
    written: u32,
    /// When we last said that we are alive.
    heard_ms: u64,
}

impl<'s> Incoming<'s> {
    pub(super) fn new(results: &'s ResultStore, owner: Owner, content_type: String) -> Self {
        Self {
            results,
            owner,
            intake: Intake::new(content_type, CHUNK_BYTES),
            spoiled: false,
            body: None,
            written: 0,
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
        let max_bytes = self.results.keeping.max_bytes;
        if self.intake.bytes() + bytes.len() as u64 > max_bytes {
            return Err(Error::ResultTooLarge { max_bytes });
        }
        self.stay_alive()?;
        while !bytes.is_empty() {
            let room = BATCH_BYTES - self.intake.held_bytes();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.intake.take(now);
            bytes = later;
            if self.intake.held_bytes() == BATCH_BYTES {
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
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(|_| Error::NoRandomness)?;
        let handle = Handle::from_bits(bits);
        let key: Key = self.owner.key(&handle);
        let results = self.results;
        let summary = self.intake.summary((results.now_ms)(), results.keeping.ttl);
        results.store.write(|txn| {
            let body = self.write_rows(txn, &self.rows())?;
            results.insert(txn, &key, &Record::new(body, &summary))
        })?;
        // It is no longer ours to clear away.
        self.body = None;
        Ok(Kept { handle, summary })
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
        let rows = self.rows();
        let body = self
            .results
            .store
            .write(|txn| self.write_rows(txn, &rows))?;
        self.body = Some(body);
        self.heard_ms = (self.results.now_ms)();
        self.written += u32::try_from(rows.len()).expect("a batch has few chunks");
        self.intake.let_go();
        Ok(())
    }

    /// The rows of what is held.
    fn rows(&self) -> Vec<Vec<u8>> {
        let row = |(mark, chunk): (rung_ladder::Mark, &[u8])| {
            let mut row = Vec::with_capacity(CHUNK_HEADER_BYTES + chunk.len());
            row.extend(mark.chars.to_be_bytes());
            row.extend(mark.lines.to_be_bytes());
            row.extend(chunk);
            row
        };
        self.intake.pieces().map(row).collect()
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

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        if let Some(body) = self.body {
            // Should this fail too, the sweep does it later.
            let results = self.results;
            let _ = results.store.write(|txn| results.delete_body(txn, body));
        }
    }
}

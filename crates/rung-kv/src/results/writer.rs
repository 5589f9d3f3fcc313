//! Writes an incoming result in constant memory.

use rung_ladder::{Handle, ResultChunker, ResultEntry};

use super::record::{
    CHUNK_BYTES, CHUNK_HEADER_BYTES, ResultKey, ResultOwner, ResultRecord, chunk_key, decode_number,
};
use super::{PENDING_MS, ResultStore};
use crate::{Error, Result};

/// Bytes held in memory before they are written. A smaller result costs a single transaction.
const BATCH_BYTES: usize = BATCH_CHUNKS * CHUNK_BYTES;
const BATCH_CHUNKS: usize = (4 << 20) / CHUNK_BYTES;
const NEXT_BODY_KEY: &[u8] = b"next_body";

/// The writer of a result. If it is dropped before it is finished, nothing of the result remains.
#[derive(Debug)]
pub struct ResultWriter<'s> {
    results: &'s ResultStore,
    owner: ResultOwner,
    /// Cuts the result; holds the part that is not on disk yet.
    chunker: ResultChunker,
    /// True if a write failed, so that the result can never be finished.
    failed: bool,
    /// The number of the body, once a part of it is on disk.
    body: Option<u64>,
    /// Chunks on disk.
    written_chunks: u32,
    /// Time of the last write to `pending`.
    last_seen_ms: u64,
}

impl<'s> ResultWriter<'s> {
    pub(super) fn new(results: &'s ResultStore, owner: ResultOwner, content_type: String) -> Self {
        Self {
            results,
            owner,
            chunker: ResultChunker::new(content_type, CHUNK_BYTES),
            failed: false,
            body: None,
            written_chunks: 0,
            last_seen_ms: 0,
        }
    }

    /// Appends to the result. Once this has failed, the result cannot be finished.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let taken = self.push(bytes);
        self.failed |= taken.is_err();
        taken
    }

    fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        let max_bytes = self.results.retention.max_bytes;
        if self.chunker.bytes() + bytes.len() as u64 > max_bytes {
            return Err(Error::ResultTooLarge { max_bytes });
        }
        self.renew_pending()?;
        while !bytes.is_empty() {
            let room = BATCH_BYTES - self.chunker.held_bytes();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.chunker.push(now);
            bytes = later;
            if self.chunker.held_bytes() == BATCH_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Makes the result visible. When this returns, the result is on disk and its handle may be returned to the caller.
    pub fn finish(mut self) -> Result<ResultEntry> {
        if self.failed {
            return Err(Error::ResultAbandoned);
        }
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(|_| Error::NoRandomness)?;
        let handle = Handle::from_bits(bits);
        let key: ResultKey = self.owner.key(&handle);
        let results = self.results;
        let summary = self
            .chunker
            .summary((results.now_ms)(), results.retention.ttl);
        results.store.write(|txn| {
            let body = self.write_rows(txn, &self.rows())?;
            results.insert(txn, &key, &ResultRecord::new(body, &summary))
        })?;
        // The body must not be deleted on drop.
        self.body = None;
        Ok(ResultEntry { handle, summary })
    }

    /// Renews the row in `pending` if the result comes in too slowly to do so by its writes.
    fn renew_pending(&mut self) -> Result<()> {
        let now_ms = (self.results.now_ms)();
        if self.body.is_some() && now_ms.saturating_sub(self.last_seen_ms) > PENDING_MS / 4 {
            self.results.store.write(|txn| self.write_rows(txn, &[]))?;
            self.last_seen_ms = now_ms;
        }
        Ok(())
    }

    /// Writes the chunks in memory.
    fn flush(&mut self) -> Result<()> {
        let rows = self.rows();
        let body = self
            .results
            .store
            .write(|txn| self.write_rows(txn, &rows))?;
        self.body = Some(body);
        self.last_seen_ms = (self.results.now_ms)();
        self.written_chunks += u32::try_from(rows.len()).expect("a batch has few chunks");
        self.chunker.discard_held();
        Ok(())
    }

    /// Encodes the chunks in memory as rows.
    fn rows(&self) -> Vec<Vec<u8>> {
        let row = |(mark, chunk): (rung_ladder::Mark, &[u8])| {
            let mut row = Vec::with_capacity(CHUNK_HEADER_BYTES + chunk.len());
            row.extend(mark.chars.to_be_bytes());
            row.extend(mark.lines.to_be_bytes());
            row.extend(chunk);
            row
        };
        self.chunker.pieces().map(row).collect()
    }

    /// Writes rows after those on disk, assigns the body a number if it has none, and renews the row in `pending`.
    fn write_rows(&self, txn: &mut heed::RwTxn<'_>, rows: &[Vec<u8>]) -> Result<u64> {
        let tables = self.results.store.tables;
        let body = match self.body {
            // A body that was idle for too long has been swept, and cannot be continued.
            Some(body) if tables.pending.get(txn, &body.to_be_bytes())?.is_none() => {
                return Err(Error::ResultAbandoned);
            }
            Some(body) => body,
            None => {
                let next = match tables.meta.get(txn, NEXT_BODY_KEY)? {
                    Some(row) => decode_number(row)?,
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
        for (at, row) in (self.written_chunks..).zip(rows) {
            tables.chunks.put(txn, &chunk_key(body, at), row)?;
        }
        Ok(body)
    }
}

impl Drop for ResultWriter<'_> {
    fn drop(&mut self) {
        if let Some(body) = self.body {
            // If this fails too, the sweep deletes the body later.
            let results = self.results;
            let _ = results.store.write(|txn| results.delete_body(txn, body));
        }
    }
}

//! Reads a stored result a window at a time.

use std::sync::Arc;

use parking_lot::Mutex;
use rung_ladder::{Document, Mark, Piece, ResultSummary};

use super::record::{CHUNK_BYTES, CHUNK_HEADER_BYTES, ResultRecord, chunk_key, decode_number};
use crate::{Error, Result, Store};

/// A stored result, as a document.
///
/// Each piece is fetched by a short transaction of its own, so that a slow reader does not pin old pages. If
/// the result expires meanwhile, reading the next piece fails.
#[derive(Debug)]
pub struct ResultReader {
    store: Arc<Store>,
    record: ResultRecord,
    /// The chunk that was read last, since reading goes forward in small steps.
    last_chunk: Mutex<Option<(u32, Arc<[u8]>)>>,
}

impl ResultReader {
    pub(super) fn new(store: Arc<Store>, record: ResultRecord) -> Self {
        Self {
            store,
            record,
            last_chunk: Mutex::new(None),
        }
    }

    /// Returns the metadata of the result.
    pub fn summary(&self) -> ResultSummary {
        self.record.summary()
    }

    fn chunk(&self, at: u32) -> Result<Arc<[u8]>> {
        if let Some((last, chunk)) = &*self.last_chunk.lock()
            && *last == at
        {
            return Ok(chunk.clone());
        }
        let key = chunk_key(self.record.body, at);
        let chunk: Arc<[u8]> = self.store.read(|txn| {
            let row = self.store.tables.chunks.get(txn, &key)?;
            Ok(row.ok_or(Error::ResultAbsent)?.into())
        })?;
        if chunk.len() < CHUNK_HEADER_BYTES {
            return Err(Error::Corrupt("chunk"));
        }
        *self.last_chunk.lock() = Some((at, chunk.clone()));
        Ok(chunk)
    }

    fn chunks(&self) -> u32 {
        let chunks = self.record.bytes.div_ceil(CHUNK_BYTES as u64);
        u32::try_from(chunks).unwrap_or(u32::MAX)
    }

    /// Returns the start of the last chunk for which `passed` is true.
    fn find_chunk_start(&self, passed: impl Fn(&Mark) -> bool) -> Result<Mark> {
        self.store.read(|txn| {
            let mut found = Mark::default();
            let (mut low, mut high) = (1, self.chunks());
            while low < high {
                let middle = low + (high - low) / 2;
                let key = chunk_key(self.record.body, middle);
                let row = self.store.tables.chunks.get(txn, &key)?;
                let row = row.ok_or(Error::ResultAbsent)?;
                let header = row
                    .get(..CHUNK_HEADER_BYTES)
                    .ok_or(Error::Corrupt("chunk"))?;
                let mark = Mark {
                    bytes: u64::from(middle) * CHUNK_BYTES as u64,
                    chars: decode_number(&header[..8])?,
                    lines: decode_number(&header[8..])?,
                };
                if passed(&mark) {
                    found = mark;
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            Ok(found)
        })
    }
}

impl Document for ResultReader {
    type Error = Error;

    fn len_bytes(&self) -> u64 {
        self.record.bytes
    }

    fn len_chars(&self) -> Option<u64> {
        self.record.chars
    }

    fn piece(&self, offset: u64) -> Result<Piece<'_>> {
        if offset >= self.record.bytes {
            return Ok(Piece::Borrowed(&[]));
        }
        let at = u32::try_from(offset / CHUNK_BYTES as u64).map_err(|_| Error::Corrupt("chunk"))?;
        let chunk = self.chunk(at)?;
        let inside = usize::try_from(offset % CHUNK_BYTES as u64).expect("less than a chunk");
        let start = CHUNK_HEADER_BYTES + inside;
        if start >= chunk.len() {
            return Err(Error::Corrupt("chunk"));
        }
        let range = start..chunk.len();
        Ok(Piece::Shared(chunk, range))
    }

    fn near_char(&self, chars: u64) -> Result<Mark> {
        self.find_chunk_start(|mark| mark.chars <= chars)
    }

    fn near_line(&self, lines: u64) -> Result<Mark> {
        // A chunk may begin in the middle of the line; the line's start must lie at or after the mark.
        self.find_chunk_start(|mark| mark.lines < lines)
    }
}

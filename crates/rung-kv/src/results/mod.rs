//! The result store: results that were too large for a reply, stored for their caller.
//!
//! A result comes in as a stream ([`ResultWriter`]) and is cut into chunks of equal size; each chunk records how
//! many code points and line breaks lie before it, so a window is found by a binary search and read
//! without the rest ([`ResultReader`]). The result becomes visible, whole, in the transaction that also stores
//! its handle; until then its chunks have no owner, and are swept if the result is not finished.
//!
//! A result is bound to the caller and the grant it was stored under. For any other caller it is
//! absent, by the same look-up that finds nothing for a handle that never existed.

mod reader;
mod record;
mod writer;

use std::ops::Bound::Included;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use heed::{RoTxn, RwTxn};
use rung_auth::Permit;
use rung_ladder::{Handle, ResultEntry, RetentionLimits};

use crate::{Error, Result, Store};
use record::{ResultKey, ResultOwner, ResultRecord, chunk_key, decode_number};

pub use reader::ResultReader;
pub use writer::ResultWriter;

/// The result store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ResultStore {
    store: Arc<Store>,
    retention: RetentionLimits,
    now_ms: fn() -> u64,
}

/// Milliseconds without a write after which an unfinished body is abandoned.
const PENDING_MS: u64 = 60 * 60 * 1_000;
/// Expired results, and abandoned bodies, that one write deletes at most.
const MAX_SWEPT: usize = 8;

impl ResultStore {
    /// Creates the result store of `store`.
    pub fn new(store: Arc<Store>, retention: RetentionLimits) -> Self {
        Self {
            store,
            retention,
            now_ms: system_now_ms,
        }
    }

    /// Replaces the clock.
    #[cfg(test)]
    fn with_clock(mut self, now_ms: fn() -> u64) -> Self {
        self.now_ms = now_ms;
        self
    }

    /// Returns a writer for a result of the bearer of `permit`.
    pub fn writer(&self, permit: &Permit, content_type: impl Into<String>) -> ResultWriter<'_> {
        ResultWriter::new(self, ResultOwner::from_permit(permit), content_type.into())
    }

    /// Stores all of `source`.
    pub fn put(
        &self,
        permit: &Permit,
        content_type: impl Into<String>,
        mut source: impl std::io::Read,
    ) -> Result<ResultEntry> {
        let mut incoming = self.writer(permit, content_type);
        let mut buffer = vec![0; 64 << 10];
        loop {
            match source.read(&mut buffer) {
                Ok(0) => return incoming.finish(),
                Ok(read) => incoming.append(&buffer[..read])?,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Source(error)),
            }
        }
    }

    /// Opens the result that the bearer of `permit` stored under `handle`.
    pub fn open(&self, permit: &Permit, handle: &Handle) -> Result<ResultReader> {
        let key = ResultOwner::from_permit(permit).key(handle);
        let record = self
            .store
            .read(|txn| self.find(txn, &key))?
            .filter(|record| record.expires_ms > (self.now_ms)())
            .ok_or(Error::ResultAbsent)?;
        Ok(ResultReader::new(self.store.clone(), record))
    }

    /// Lists the results of the bearer of `permit`, in the order in which they were stored.
    pub fn list(&self, permit: &Permit) -> Result<Vec<ResultEntry>> {
        let owner = ResultOwner::from_permit(permit);
        let now_ms = (self.now_ms)();
        self.store.read(|txn| {
            let mut kept = Vec::new();
            for row in self.store.tables.queue.prefix_iter(txn, owner.caller())? {
                let key = ResultKey::from_queue_row(row?.1)?;
                if !key.belongs_to(&owner) {
                    continue;
                }
                let record = self.find(txn, &key)?.ok_or(Error::Corrupt("queue"))?;
                if record.expires_ms > now_ms {
                    kept.push(ResultEntry {
                        handle: key.handle(),
                        summary: record.summary(),
                    });
                }
            }
            Ok(kept)
        })
    }

    /// Deletes a result.
    pub fn remove(&self, permit: &Permit, handle: &Handle) -> Result<()> {
        let key = ResultOwner::from_permit(permit).key(handle);
        self.store.write(|txn| match self.find(txn, &key)? {
            Some(record) => self.delete(txn, &key, &record),
            None => Err(Error::ResultAbsent),
        })
    }

    /// Deletes all expired results and abandoned bodies.
    pub fn sweep(&self) -> Result<()> {
        // Usually there is nothing to do, and a read transaction is cheap.
        while self.store.read(|txn| self.has_due(txn))? {
            self.store.write(|txn| self.sweep_some(txn))?;
        }
        Ok(())
    }

    fn find(&self, txn: &RoTxn<'_>, key: &ResultKey) -> Result<Option<ResultRecord>> {
        match self.store.tables.results.get(txn, key.as_bytes())? {
            Some(row) => ResultRecord::from_row(row).map(Some),
            None => Ok(None),
        }
    }

    /// Makes a finished body visible under `key`. Deletes the caller's oldest results if there is not enough space.
    fn insert(&self, txn: &mut RwTxn<'_>, key: &ResultKey, record: &ResultRecord) -> Result<()> {
        let tables = self.store.tables;
        self.sweep_some(txn)?;
        let mut used = self.used_bytes(txn, key.caller())?;
        while used + record.bytes > self.retention.max_bytes {
            let oldest = tables.queue.prefix_iter(txn, key.caller())?.next();
            let oldest = match oldest {
                Some(row) => ResultKey::from_queue_row(row?.1)?,
                None => break,
            };
            let record = self.find(txn, &oldest)?.ok_or(Error::Corrupt("queue"))?;
            self.delete(txn, &oldest, &record)?;
            used = self.used_bytes(txn, key.caller())?;
        }
        tables.results.put(txn, key.as_bytes(), &record.to_row()?)?;
        tables
            .expiry
            .put(txn, &key.expiry_row(record.expires_ms), &[])?;
        tables
            .queue
            .put(txn, &key.queue_row(record.body), key.as_bytes())?;
        let used = used + record.bytes;
        tables.usage.put(txn, key.caller(), &used.to_be_bytes())?;
        tables.pending.delete(txn, &record.body.to_be_bytes())?;
        Ok(())
    }

    fn delete(&self, txn: &mut RwTxn<'_>, key: &ResultKey, record: &ResultRecord) -> Result<()> {
        let tables = self.store.tables;
        tables.results.delete(txn, key.as_bytes())?;
        tables
            .expiry
            .delete(txn, &key.expiry_row(record.expires_ms))?;
        tables.queue.delete(txn, &key.queue_row(record.body))?;
        let used = self
            .used_bytes(txn, key.caller())?
            .saturating_sub(record.bytes);
        tables.usage.put(txn, key.caller(), &used.to_be_bytes())?;
        self.delete_body(txn, record.body)
    }

    fn delete_body(&self, txn: &mut RwTxn<'_>, body: u64) -> Result<()> {
        let (first, last) = (chunk_key(body, 0), chunk_key(body, u32::MAX));
        let all = (Included(first.as_slice()), Included(last.as_slice()));
        self.store.tables.chunks.delete_range(txn, &all)?;
        self.store.tables.pending.delete(txn, &body.to_be_bytes())?;
        Ok(())
    }

    fn used_bytes(&self, txn: &RoTxn<'_>, caller: &[u8]) -> Result<u64> {
        match self.store.tables.usage.get(txn, caller)? {
            Some(row) => decode_number(row),
            None => Ok(0),
        }
    }

    fn has_due(&self, txn: &RoTxn<'_>) -> Result<bool> {
        let (expired, given_up) = self.due(txn)?;
        Ok(!expired.is_empty() || !given_up.is_empty())
    }

    /// Deletes a few expired results and abandoned bodies.
    fn sweep_some(&self, txn: &mut RwTxn<'_>) -> Result<()> {
        let (expired, given_up) = self.due(txn)?;
        for key in &expired {
            let record = self.find(txn, key)?.ok_or(Error::Corrupt("expiry"))?;
            self.delete(txn, key, &record)?;
        }
        for body in &given_up {
            self.delete_body(txn, *body)?;
        }
        Ok(())
    }

    /// Returns a few expired results and abandoned bodies.
    fn due(&self, txn: &RoTxn<'_>) -> Result<(Vec<ResultKey>, Vec<u64>)> {
        let tables = self.store.tables;
        let now_ms = (self.now_ms)();
        let mut expired = Vec::new();
        for row in tables.expiry.iter(txn)?.take(MAX_SWEPT) {
            let (expires_ms, key) = ResultKey::from_expiry_row(row?.0)?;
            if expires_ms > now_ms {
                break;
            }
            expired.push(key);
        }
        let mut given_up = Vec::new();
        for row in tables.pending.iter(txn)? {
            let (body, heard_ms) = row?;
            if decode_number(heard_ms)?.saturating_add(PENDING_MS) < now_ms
                && given_up.len() < MAX_SWEPT
            {
                given_up.push(decode_number(body)?);
            }
        }
        Ok((expired, given_up))
    }
}

fn system_now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| u64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;

//! The result store: what was too large for a reply, kept for whoever asked.
//!
//! A result comes in as a stream ([`Incoming`]) and is cut into chunks of equal size; each chunk knows how
//! many code points and line breaks lie before it, so a window is found by a binary search and read
//! without touching the rest ([`Stored`]). It becomes visible, whole, in the transaction that also makes
//! its handle known; until then its chunks belong to nobody, and are swept away if nobody finishes them.
//!
//! A result is bound to the caller and the grant it was stored under. Asked by anybody else it is
//! absent, by the same look-up that finds nothing for a handle that never was.

mod incoming;
mod record;
mod stored;

use std::ops::Bound::Included;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use heed::{RoTxn, RwTxn};
use rung_auth::Permit;
use rung_ladder::{Handle, Keeping, Kept};

use crate::{Error, Result, Store};
use record::{Key, Owner, Record, chunk_key, number};

pub use incoming::Incoming;
pub use stored::Stored;

/// Keeps results. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ResultStore {
    store: Arc<Store>,
    keeping: Keeping,
    now_ms: fn() -> u64,
}

/// A body that nobody added to for this long is given up.
const PENDING_MS: u64 = 60 * 60 * 1_000;
/// Expired results, and bodies given up, that one write clears away.
const SWEEP: usize = 8;

impl ResultStore {
    /// The results of `store`.
    pub fn new(store: Arc<Store>, keeping: Keeping) -> Self {
        Self {
            store,
            keeping,
            now_ms: system_now_ms,
        }
    }

    /// The same results by another clock.
    #[cfg(test)]
    fn with_clock(mut self, now_ms: fn() -> u64) -> Self {
        self.now_ms = now_ms;
        self
    }

    /// Begins to store a result for the bearer of `permit`.
    pub fn incoming(&self, permit: &Permit, content_type: impl Into<String>) -> Incoming<'_> {
        Incoming::new(self, Owner::of(permit), content_type.into())
    }

    /// Stores all of `source`.
    pub fn put(
        &self,
        permit: &Permit,
        content_type: impl Into<String>,
        mut source: impl std::io::Read,
    ) -> Result<Kept> {
        let mut incoming = self.incoming(permit, content_type);
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

    /// The result that the bearer of `permit` stored under `handle`.
    pub fn open(&self, permit: &Permit, handle: &Handle) -> Result<Stored> {
        let key = Owner::of(permit).key(handle);
        let record = self
            .store
            .read(|txn| self.find(txn, &key))?
            .filter(|record| record.expires_ms > (self.now_ms)())
            .ok_or(Error::ResultAbsent)?;
        Ok(Stored::new(self.store.clone(), record))
    }

    /// The results of the bearer of `permit`, in the order in which they came.
    pub fn list(&self, permit: &Permit) -> Result<Vec<Kept>> {
        let owner = Owner::of(permit);
        let now_ms = (self.now_ms)();
        self.store.read(|txn| {
            let mut kept = Vec::new();
            for row in self.store.tables.queue.prefix_iter(txn, owner.caller())? {
                let key = Key::queued(row?.1)?;
                if !key.belongs_to(&owner) {
                    continue;
                }
                let record = self.find(txn, &key)?.ok_or(Error::Corrupt("queue"))?;
                if record.expires_ms > now_ms {
                    kept.push(Kept {
                        handle: key.handle(),
                        summary: record.summary(),
                    });
                }
            }
            Ok(kept)
        })
    }

    /// Forgets a result.
    pub fn remove(&self, permit: &Permit, handle: &Handle) -> Result<()> {
        let key = Owner::of(permit).key(handle);
        self.store.write(|txn| match self.find(txn, &key)? {
            Some(record) => self.delete(txn, &key, &record),
            None => Err(Error::ResultAbsent),
        })
    }

    /// Clears away everything that has expired or was given up.
    pub fn sweep(&self) -> Result<()> {
        // Most of the time there is nothing to do, and looking is free.
        while self.store.read(|txn| self.anything_due(txn))? {
            self.store.write(|txn| self.sweep_some(txn))?;
        }
        Ok(())
    }

    fn find(&self, txn: &RoTxn<'_>, key: &Key) -> Result<Option<Record>> {
        match self.store.tables.results.get(txn, key.as_bytes())? {
            Some(row) => Record::from_row(row).map(Some),
            None => Ok(None),
        }
    }

    /// Makes a finished body visible under `key`, and room for it.
    fn insert(&self, txn: &mut RwTxn<'_>, key: &Key, record: &Record) -> Result<()> {
        let tables = self.store.tables;
        self.sweep_some(txn)?;
        let mut used = self.used(txn, key.caller())?;
        while used + record.bytes > self.keeping.max_bytes {
            let oldest = tables.queue.prefix_iter(txn, key.caller())?.next();
            let oldest = match oldest {
                Some(row) => Key::queued(row?.1)?,
                None => break,
            };
            let record = self.find(txn, &oldest)?.ok_or(Error::Corrupt("queue"))?;
            self.delete(txn, &oldest, &record)?;
            used = self.used(txn, key.caller())?;
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

    fn delete(&self, txn: &mut RwTxn<'_>, key: &Key, record: &Record) -> Result<()> {
        let tables = self.store.tables;
        tables.results.delete(txn, key.as_bytes())?;
        tables
            .expiry
            .delete(txn, &key.expiry_row(record.expires_ms))?;
        tables.queue.delete(txn, &key.queue_row(record.body))?;
        let used = self.used(txn, key.caller())?.saturating_sub(record.bytes);
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

    fn used(&self, txn: &RoTxn<'_>, caller: &[u8]) -> Result<u64> {
        match self.store.tables.usage.get(txn, caller)? {
            Some(row) => number(row),
            None => Ok(0),
        }
    }

    fn anything_due(&self, txn: &RoTxn<'_>) -> Result<bool> {
        let (expired, given_up) = self.due(txn)?;
        Ok(!expired.is_empty() || !given_up.is_empty())
    }

    /// Clears away a few of the things that have expired or were given up.
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

    /// A few results that have expired, and bodies that were given up.
    fn due(&self, txn: &RoTxn<'_>) -> Result<(Vec<Key>, Vec<u64>)> {
        let tables = self.store.tables;
        let now_ms = (self.now_ms)();
        let mut expired = Vec::new();
        for row in tables.expiry.iter(txn)?.take(SWEEP) {
            let (expires_ms, key) = Key::expiring(row?.0)?;
            if expires_ms > now_ms {
                break;
            }
            expired.push(key);
        }
        let mut given_up = Vec::new();
        for row in tables.pending.iter(txn)? {
            let (body, heard_ms) = row?;
            if number(heard_ms)?.saturating_add(PENDING_MS) < now_ms && given_up.len() < SWEEP {
                given_up.push(number(body)?);
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

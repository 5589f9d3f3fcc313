//! The service: one store, and everything that is done with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use parking_lot::RwLock;
use rung_auth::Permit;

use crate::bookmark::Seal;
use crate::declaration::Declaration;
use crate::scope::Bearer;
use crate::store::{Store, Tx, params};
use crate::{Error, Result};

/// Whose data it is where nobody else is named.
const OWNER: &str = "owner_local";

/// What time it is, in milliseconds since 1970.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl Clock {
    /// The time that `now` tells.
    pub fn new(now: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(|| Timestamp::now().as_millisecond())
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Clock").field(&self.0()).finish()
    }
}

/// How records are kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// What time it is.
    pub clock: Clock,
    /// Whether data must be as its schema says, and streams that only grow only grow.
    pub strict: bool,
    /// Bytes of one line of records.
    pub max_line_bytes: usize,
    /// Changes of a stream that are remembered. 0 for all.
    pub history: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Clock::default(),
            strict: false,
            max_line_bytes: 50 * 1024 * 1024,
            history: 0,
        }
    }
}

/// Somebody's records.
pub struct Records {
    pub(crate) store: Box<dyn Store>,
    pub(crate) options: Options,
    pub(crate) seal: Seal,
    pub(crate) declarations: RwLock<HashMap<String, (i64, Arc<Declaration>)>>,
    latest_ms: AtomicI64,
    swept_ms: AtomicI64,
}

impl Records {
    /// The records in a store.
    pub fn open(store: impl Store + 'static, options: Options) -> Result<Self> {
        let store: Box<dyn Store> = Box::new(store);
        let key = store.writing(|tx| {
            subject(tx, OWNER)?;
            secret(tx, "cursor")
        })?;
        Ok(Self {
            store,
            options,
            seal: Seal::new(key),
            declarations: RwLock::default(),
            latest_ms: AtomicI64::new(0),
            swept_ms: AtomicI64::new(0),
        })
    }

    /// The owner, who runs this process and can read the store anyway.
    pub fn local_owner(&self, permit: Permit) -> Result<Bearer> {
        let subject = self.store.reading(|tx| subject_no(tx, OWNER))?;
        Ok(Bearer {
            permit,
            subject: subject.ok_or_else(|| Error::Broken("the owner is gone".to_owned()))?,
            subject_id: OWNER.to_owned(),
            grant: None,
        })
    }

    /// Whether there is anybody's data here.
    pub fn is_used(&self) -> Result<bool> {
        let found = self
            .store
            .reading(|tx| tx.one("SELECT 1 FROM connection LIMIT 1", &[], |_| Ok(())))?;
        Ok(found.is_some())
    }

    /// Whose data it is where nobody else is named.
    pub fn owner_id(&self) -> &'static str {
        OWNER
    }

    /// Milliseconds since 1970. They never go back while this runs, whatever the clock does.
    pub(crate) fn now_ms(&self) -> i64 {
        let now = self.options.clock.0();
        self.latest_ms.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// Whether an hour has passed since this was last so.
    pub(crate) fn swept(&self, now_ms: i64) -> bool {
        const HOUR_MS: i64 = 60 * 60 * 1_000;
        let last = self.swept_ms.load(Ordering::Relaxed);
        let due = now_ms - last >= HOUR_MS;
        if due {
            self.swept_ms.store(now_ms, Ordering::Relaxed);
        }
        due
    }

    /// The engine underneath.
    pub fn engine(&self) -> &'static str {
        self.store.engine()
    }

    /// A copy of everything at this moment, in a new file.
    pub fn copy_to(&self, path: &std::path::Path) -> Result<()> {
        self.store.copy_to(path)
    }
}

/// A moment as answers have it.
pub(crate) fn moment(ms: i64) -> String {
    let moment = crate::key::Moment::from_millisecond(ms).to_civil(&TimeZone::UTC);
    format!("{moment:.3}Z")
}

pub(crate) fn subject_no(tx: &mut dyn Tx, id: &str) -> Result<Option<i64>> {
    tx.one("SELECT no FROM subject WHERE id = ?1", params![id], |row| {
        row.int(0)
    })
}

/// The number of a subject, who is taken in if new.
pub(crate) fn subject(tx: &mut dyn Tx, id: &str) -> Result<i64> {
    if let Some(no) = subject_no(tx, id)? {
        return Ok(no);
    }
    tx.execute(
        "INSERT INTO subject (no, id, version) SELECT coalesce(max(no), 0) + 1, ?1, 0 FROM subject WHERE true ON CONFLICT DO NOTHING",
        params![id],
    )?;
    subject_no(tx, id)?.ok_or_else(|| Error::Broken("the subject could not be taken in".to_owned()))
}

/// A secret of the store, made on first use: every process on it has the same.
pub(crate) fn secret(tx: &mut dyn Tx, name: &str) -> Result<[u8; 32]> {
    let mut fresh = [0; 32];
    getrandom::fill(&mut fresh).map_err(|error| Error::corrupt("randomness", error))?;
    tx.execute(
        "INSERT INTO secret (name, bytes) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        params![name, &fresh[..]],
    )?;
    let known = tx.one(
        "SELECT bytes FROM secret WHERE name = ?1",
        params![name],
        |row| <[u8; 32]>::try_from(row.bytes(0)?).map_err(|error| Error::corrupt("secret", error)),
    )?;
    known.ok_or_else(|| Error::Broken("the secret is gone".to_owned()))
}

/// A new name that nobody can guess.
pub(crate) fn fresh_id(prefix: &str) -> Result<String> {
    let mut bits = [0; 15];
    getrandom::fill(&mut bits).map_err(|error| Error::corrupt("randomness", error))?;
    let text = data_encoding::BASE32_NOPAD
        .encode(&bits)
        .to_ascii_lowercase();
    Ok(format!("{prefix}_{text}"))
}

impl Records {
    /// A name for a request that came without one.
    pub fn request_id() -> String {
        fresh_id("req").unwrap_or_else(|_| "req_unknown".to_owned())
    }
}

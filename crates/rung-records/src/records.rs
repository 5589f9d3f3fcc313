//! The service over one store.

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
use crate::store::{SqlStore, Tx, params};
use crate::{Error, Result};

/// The id of the default subject.
const OWNER_ID: &str = "owner_local";

/// A source of the current time, in milliseconds since 1970.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl Clock {
    /// Creates a clock that returns `now()`.
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

/// The options of the service.
#[derive(Debug, Clone)]
pub struct RecordsOptions {
    pub clock: Clock,
    /// True to validate data against the schema and to reject changes to append-only streams.
    pub strict: bool,
    /// Maximum length of an ingested line in bytes.
    pub max_line_bytes: usize,
    /// Number of versions kept per stream for the change history. 0: all.
    pub history: u64,
}

impl Default for RecordsOptions {
    fn default() -> Self {
        Self {
            clock: Clock::default(),
            strict: false,
            max_line_bytes: 50 * 1024 * 1024,
            history: 0,
        }
    }
}

/// The service: all operations on one store.
pub struct Records {
    pub(crate) store: Box<dyn SqlStore>,
    pub(crate) options: RecordsOptions,
    pub(crate) seal: Seal,
    pub(crate) declarations: RwLock<HashMap<String, (i64, Arc<Declaration>)>>,
    latest_ms: AtomicI64,
    last_sweep_ms: AtomicI64,
}

impl Records {
    /// Opens the records in a store.
    pub fn open(store: impl SqlStore + 'static, options: RecordsOptions) -> Result<Self> {
        let store: Box<dyn SqlStore> = Box::new(store);
        let key = store.write_tx(|tx| {
            ensure_subject(tx, OWNER_ID)?;
            ensure_secret(tx, "cursor")
        })?;
        Ok(Self {
            store,
            options,
            seal: Seal::new(key),
            declarations: RwLock::default(),
            latest_ms: AtomicI64::new(0),
            last_sweep_ms: AtomicI64::new(0),
        })
    }

    /// Returns the owner as the caller. For the local process, which can read the store anyway.
    pub fn local_owner(&self, permit: Permit) -> Result<Bearer> {
        let subject = self.store.read_tx(|tx| subject_no(tx, OWNER_ID))?;
        Ok(Bearer {
            permit,
            subject: subject.ok_or_else(|| Error::Broken("the owner is missing".to_owned()))?,
            subject_id: OWNER_ID.to_owned(),
            grant: None,
        })
    }

    /// Returns true if there is any connection.
    pub fn has_connections(&self) -> Result<bool> {
        let found = self
            .store
            .read_tx(|tx| tx.query_one("SELECT 1 FROM connection LIMIT 1", &[], |_| Ok(())))?;
        Ok(found.is_some())
    }

    /// Returns the id of the default subject.
    pub fn owner_id(&self) -> &'static str {
        OWNER_ID
    }

    /// Returns milliseconds since 1970. Never decreases within a process, even if the clock does.
    pub(crate) fn now_ms(&self) -> i64 {
        let now = self.options.clock.0();
        self.latest_ms.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// Returns true at most once an hour.
    pub(crate) fn is_sweep_due(&self, now_ms: i64) -> bool {
        const HOUR_MS: i64 = 60 * 60 * 1_000;
        let last = self.last_sweep_ms.load(Ordering::Relaxed);
        let due = now_ms - last >= HOUR_MS;
        if due {
            self.last_sweep_ms.store(now_ms, Ordering::Relaxed);
        }
        due
    }

    /// Returns the name of the store's engine.
    pub fn engine(&self) -> &'static str {
        self.store.engine()
    }

    /// Copies a snapshot of the store to a new file.
    pub fn copy_to(&self, path: &std::path::Path) -> Result<()> {
        self.store.copy_to(path)
    }
}

/// Formats a time for a response.
pub(crate) fn format_moment(ms: i64) -> String {
    let moment = crate::key::CalendarTime::from_millisecond(ms).to_civil(&TimeZone::UTC);
    format!("{moment:.3}Z")
}

pub(crate) fn subject_no(tx: &mut dyn Tx, id: &str) -> Result<Option<i64>> {
    tx.query_one("SELECT no FROM subject WHERE id = ?1", params![id], |row| {
        row.int(0)
    })
}

/// Returns the row number of a subject, inserting the subject if it is new.
pub(crate) fn ensure_subject(tx: &mut dyn Tx, id: &str) -> Result<i64> {
    if let Some(no) = subject_no(tx, id)? {
        return Ok(no);
    }
    tx.execute(
        "INSERT INTO subject (no, id, version) SELECT coalesce(max(no), 0) + 1, ?1, 0 FROM subject WHERE true ON CONFLICT DO NOTHING",
        params![id],
    )?;
    subject_no(tx, id)?.ok_or_else(|| Error::Broken("the subject could not be created".to_owned()))
}

/// Returns a named secret of the store, creating it on first use. All processes on the store share it.
pub(crate) fn ensure_secret(tx: &mut dyn Tx, name: &str) -> Result<[u8; 32]> {
    let mut fresh = [0; 32];
    getrandom::fill(&mut fresh).map_err(|error| Error::corrupt("randomness", error))?;
    tx.execute(
        "INSERT INTO secret (name, bytes) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        params![name, &fresh[..]],
    )?;
    let known = tx.query_one(
        "SELECT bytes FROM secret WHERE name = ?1",
        params![name],
        |row| <[u8; 32]>::try_from(row.bytes(0)?).map_err(|error| Error::corrupt("secret", error)),
    )?;
    known.ok_or_else(|| Error::Broken("the secret is missing".to_owned()))
}

/// Generates an unguessable id.
pub(crate) fn generate_id(prefix: &str) -> Result<String> {
    let mut bits = [0; 15];
    getrandom::fill(&mut bits).map_err(|error| Error::corrupt("randomness", error))?;
    let text = data_encoding::BASE32_NOPAD
        .encode(&bits)
        .to_ascii_lowercase();
    Ok(format!("{prefix}_{text}"))
}

impl Records {
    /// Generates an id for a request that has none.
    pub fn generate_request_id() -> String {
        generate_id("req").unwrap_or_else(|_| "req_unknown".to_owned())
    }
}

//! State shared by all processes on one database besides the records: stored results, bearer tokens and named keys. Not
//! used with a data folder, whose processes share its files.

use std::io::Read;
use std::sync::Arc;

use parking_lot::Mutex;
use rung_auth::Permit;
use rung_ladder::{
    Document, Handle, Mark, Piece, ResultChunker, ResultEntry, ResultSummary, RetentionLimits,
};
use sha2::{Digest as _, Sha256};

use crate::records::ensure_secret;
use crate::store::{BulkInsert, SqlRow, Tx, Value, params};
use crate::{Error, Records, Result};

/// Size of a part.
const PART_BYTES: usize = 64 << 10;
/// Bytes buffered in memory before they are written.
const MAX_BUFFERED_BYTES: usize = 16 * PART_BYTES;
/// Time without progress after which an incomplete result is deleted.
const PENDING_MS: i64 = 60 * 60 * 1_000;
/// Results deleted per transaction.
const SWEEP_BATCH: i64 = 8;

const INSERT_PARTS: BulkInsert = BulkInsert {
    into: "INSERT INTO result_part (caller, handle, start, chars, lines, bytes)",
    width: 6,
    conflict: "",
};

const KNOWN: &str = "content_type, bytes, chars, digest, created_ms, expires_ms";

/// The stored results shared by all processes on a database. Cheap to clone.
#[derive(Clone)]
pub struct SharedResults {
    records: Arc<Records>,
    keeping: RetentionLimits,
}

/// Hashes of the caller and the grant that own a result. Names are not stored, so that a leaked table discloses none.
struct ResultOwner {
    caller: [u8; 16],
    grant: [u8; 8],
}

impl ResultOwner {
    fn from_permit(permit: &Permit) -> Self {
        let hash = |name: &str| Sha256::digest(name.as_bytes());
        let (caller, under) = (
            hash(permit.caller().as_str()),
            hash(permit.grant().as_str()),
        );
        Self {
            caller: *caller.first_chunk().expect("a hash is longer"),
            grant: *under.first_chunk().expect("a hash is longer"),
        }
    }
}

impl SharedResults {
    /// Opens the results in the database of `records`.
    pub fn new(records: Arc<Records>, keeping: RetentionLimits) -> Self {
        Self { records, keeping }
    }

    /// Stores the whole `source` and returns its handle. The result is complete when this returns.
    pub fn put(
        &self,
        permit: &Permit,
        content_type: impl Into<String>,
        source: &mut dyn Read,
    ) -> Result<ResultEntry> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(|error| Error::corrupt("randomness", error))?;
        let handle = Handle::from_bits(bits);
        let owner = ResultOwner::from_permit(permit);
        let taken = self.store_parts(&owner, &handle, content_type.into(), source);
        match taken {
            Ok(summary) => Ok(ResultEntry { handle, summary }),
            Err(error) => {
                // If the deletion fails, a later sweep deletes the result.
                let _cleared = self
                    .records
                    .store
                    .write_tx(|tx| delete(tx, &owner.caller, handle.bits()));
                Err(error)
            }
        }
    }

    fn store_parts(
        &self,
        owner: &ResultOwner,
        handle: &Handle,
        content_type: String,
        source: &mut dyn Read,
    ) -> Result<ResultSummary> {
        let mut intake = ResultChunker::new(content_type, PART_BYTES);
        let mut buffer = vec![0; PART_BYTES];
        let mut begun = false;
        loop {
            // Only whole parts are flushed.
            let room = (MAX_BUFFERED_BYTES - intake.held_bytes()).min(PART_BYTES);
            let got = match source.read(&mut buffer[..room]) {
                Ok(got) => got,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Error::InputFailed(error.to_string())),
            };
            intake.push(&buffer[..got]);
            if intake.bytes() > self.keeping.max_bytes {
                return Err(Error::TooLarge {
                    what: "a stored result",
                    limit: self.keeping.max_bytes,
                });
            }
            let now_ms = self.records.now_ms();
            if got == 0 {
                let created_ms = u64::try_from(now_ms).unwrap_or(0);
                let summary = intake.summary(created_ms, self.keeping.ttl);
                self.records.store.write_tx(|tx| {
                    put_parts(tx, owner, handle, &intake)?;
                    self.complete(tx, owner, handle, begun, &summary)
                })?;
                return Ok(summary);
            }
            if intake.held_bytes() == MAX_BUFFERED_BYTES {
                self.records.store.write_tx(|tx| {
                    extend_deadline(tx, owner, handle, begun, now_ms)?;
                    put_parts(tx, owner, handle, &intake)
                })?;
                begun = true;
                intake.discard_held();
            }
        }
    }

    /// Marks a result as complete, after deleting the caller's oldest results until it fits.
    fn complete(
        &self,
        tx: &mut dyn Tx,
        owner: &ResultOwner,
        handle: &Handle,
        begun: bool,
        summary: &ResultSummary,
    ) -> Result<()> {
        let created_ms = to_i64(summary.created_ms);
        if begun {
            extend_deadline(tx, owner, handle, true, created_ms)?;
        }
        delete_expired(tx, created_ms)?;
        let mut used = tx
            .query_one(
                "SELECT coalesce(sum(bytes), 0)::BIGINT FROM result WHERE caller = ?1 AND complete = 1",
                params![&owner.caller[..]],
                |row| row.int(0),
            )?
            .unwrap_or(0);
        let most = to_i64(self.keeping.max_bytes);
        while used.saturating_add(to_i64(summary.bytes)) > most {
            let oldest = tx.query_one(
                "SELECT handle, bytes FROM result WHERE caller = ?1 AND complete = 1 ORDER BY created_ms, handle LIMIT 1",
                params![&owner.caller[..]],
                |row| Ok((row.bytes(0)?.to_vec(), row.int(1)?)),
            )?;
            let Some((oldest, bytes)) = oldest else {
                break;
            };
            delete(tx, &owner.caller, &oldest)?;
            used -= bytes;
        }
        tx.execute(
            "INSERT INTO result (caller, handle, under, complete, content_type, bytes, chars, digest, created_ms, expires_ms)
             VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (caller, handle) DO UPDATE SET complete = 1, content_type = excluded.content_type,
                 bytes = excluded.bytes, chars = excluded.chars, digest = excluded.digest,
                 created_ms = excluded.created_ms, expires_ms = excluded.expires_ms",
            params![
                &owner.caller[..],
                &handle.bits()[..],
                &owner.grant[..],
                &summary.content_type,
                to_i64(summary.bytes),
                summary.chars.map(to_i64),
                &summary.digest,
                created_ms,
                to_i64(summary.expires_ms),
            ],
        )?;
        Ok(())
    }

    /// Returns the complete result that the bearer of `permit` stored under `handle`.
    pub fn open(&self, permit: &Permit, handle: &Handle) -> Result<Option<SharedResult>> {
        let owner = ResultOwner::from_permit(permit);
        let sql = format!(
            "SELECT {KNOWN} FROM result WHERE caller = ?1 AND handle = ?2 AND under = ?3 AND complete = 1 AND expires_ms > ?4"
        );
        let params = params![
            &owner.caller[..],
            &handle.bits()[..],
            &owner.grant[..],
            self.records.now_ms()
        ];
        let found = self
            .records
            .store
            .read_tx(|tx| tx.query_one(&sql, params, |row| read_summary(row, 0)))?;
        Ok(found.map(|summary| SharedResult {
            records: self.records.clone(),
            caller: owner.caller,
            handle: *handle,
            summary,
            last: Mutex::default(),
        }))
    }

    /// Returns the complete results of the bearer of `permit`, oldest first.
    pub fn list(&self, permit: &Permit) -> Result<Vec<ResultEntry>> {
        let owner = ResultOwner::from_permit(permit);
        let sql = format!(
            "SELECT handle, {KNOWN} FROM result WHERE caller = ?1 AND under = ?2 AND complete = 1 AND expires_ms > ?3
             ORDER BY created_ms, handle"
        );
        let params = params![&owner.caller[..], &owner.grant[..], self.records.now_ms()];
        self.records.store.read_tx(|tx| {
            tx.query_all(&sql, params, |row| {
                let bits = <[u8; 16]>::try_from(row.bytes(0)?);
                let bits = bits.map_err(|error| Error::corrupt("handle", error))?;
                Ok(ResultEntry {
                    handle: Handle::from_bits(bits),
                    summary: read_summary(row, 1)?,
                })
            })
        })
    }

    /// Deletes a result. Returns true if it existed.
    pub fn remove(&self, permit: &Permit, handle: &Handle) -> Result<bool> {
        let owner = ResultOwner::from_permit(permit);
        self.records.store.write_tx(|tx| {
            let mine = tx.query_one(
                "SELECT 1 FROM result WHERE caller = ?1 AND handle = ?2 AND under = ?3 AND complete = 1",
                params![&owner.caller[..], &handle.bits()[..], &owner.grant[..]],
                |_| Ok(()),
            )?;
            if mine.is_some() {
                delete(tx, &owner.caller, handle.bits())?;
            }
            Ok(mine.is_some())
        })
    }

    /// Deletes all expired and abandoned results.
    pub fn sweep(&self) -> Result<()> {
        let now_ms = self.records.now_ms();
        while self
            .records
            .store
            .write_tx(|tx| delete_expired(tx, now_ms))?
            > 0
        {}
        Ok(())
    }
}

/// Extends the deadline of an incomplete result. Fails if it has been swept, because its parts are gone.
fn extend_deadline(
    tx: &mut dyn Tx,
    owner: &ResultOwner,
    handle: &Handle,
    begun: bool,
    now_ms: i64,
) -> Result<()> {
    let until = now_ms.saturating_add(PENDING_MS);
    let heard = if begun {
        tx.execute(
            "UPDATE result SET expires_ms = ?3 WHERE caller = ?1 AND handle = ?2",
            params![&owner.caller[..], &handle.bits()[..], until],
        )?
    } else {
        tx.execute(
            "INSERT INTO result (caller, handle, under, complete, content_type, bytes, chars, digest, created_ms, expires_ms)
             VALUES (?1, ?2, ?3, 0, '', 0, NULL, '', ?4, ?5)",
            params![&owner.caller[..], &handle.bits()[..], &owner.grant[..], now_ms, until],
        )?
    };
    match heard {
        1 => Ok(()),
        _ => Err(Error::InputFailed("it arrived too slowly".to_owned())),
    }
}

fn put_parts(
    tx: &mut dyn Tx,
    owner: &ResultOwner,
    handle: &Handle,
    intake: &ResultChunker,
) -> Result<()> {
    let mut values = Vec::new();
    for (mark, bytes) in intake.pieces() {
        values.extend([
            Value::Bytes(&owner.caller),
            Value::Bytes(handle.bits()),
            Value::Int(to_i64(mark.bytes)),
            Value::Int(to_i64(mark.chars)),
            Value::Int(to_i64(mark.lines)),
            Value::Bytes(bytes),
        ]);
    }
    tx.insert(INSERT_PARTS, &values)
}

fn delete(tx: &mut dyn Tx, caller: &[u8], handle: &[u8]) -> Result<()> {
    for table in ["result", "result_part"] {
        let sql = format!("DELETE FROM {table} WHERE caller = ?1 AND handle = ?2");
        tx.execute(&sql, params![caller, handle])?;
    }
    Ok(())
}

/// Deletes some expired results. Returns their number.
fn delete_expired(tx: &mut dyn Tx, now_ms: i64) -> Result<usize> {
    let due = tx.query_all(
        "SELECT caller, handle FROM result WHERE expires_ms <= ?1 ORDER BY expires_ms, handle LIMIT ?2",
        params![now_ms, SWEEP_BATCH],
        |row| Ok((row.bytes(0)?.to_vec(), row.bytes(1)?.to_vec())),
    )?;
    for (caller, handle) in &due {
        delete(tx, caller, handle)?;
    }
    Ok(due.len())
}

fn read_summary(row: &dyn SqlRow, from: usize) -> Result<ResultSummary> {
    let count = |at: usize| row.int(from + at).map(|n| u64::try_from(n).unwrap_or(0));
    Ok(ResultSummary {
        content_type: row.text(from)?.to_owned(),
        bytes: count(1)?,
        chars: row
            .maybe_int(from + 2)?
            .map(|chars| u64::try_from(chars).unwrap_or(0)),
        digest: row.text(from + 3)?.to_owned(),
        created_ms: count(4)?,
        expires_ms: count(5)?,
    })
}

fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A stored result in the database, as a document.
///
/// Each part is fetched in its own transaction, so that a slow reader blocks nothing. If the result expires while it is
/// read, the next part is absent.
pub struct SharedResult {
    records: Arc<Records>,
    caller: [u8; 16],
    handle: Handle,
    summary: ResultSummary,
    /// Cache of the last part, because reads are small and sequential.
    last: Mutex<Option<(u64, Arc<[u8]>)>>,
}

impl SharedResult {
    pub fn summary(&self) -> &ResultSummary {
        &self.summary
    }

    fn part(&self, start: u64) -> Result<Arc<[u8]>> {
        if let Some((last, part)) = &*self.last.lock()
            && *last == start
        {
            return Ok(part.clone());
        }
        let part: Option<Arc<[u8]>> = self.records.store.read_tx(|tx| {
            tx.query_one(
                "SELECT bytes FROM result_part WHERE caller = ?1 AND handle = ?2 AND start = ?3",
                params![&self.caller[..], &self.handle.bits()[..], to_i64(start)],
                |row| Ok(row.bytes(0)?.into()),
            )
        })?;
        let part =
            part.ok_or_else(|| Error::NotFound("the result is no longer stored".to_owned()))?;
        *self.last.lock() = Some((start, part.clone()));
        Ok(part)
    }

    /// Returns the start of the last part that meets `condition`.
    fn last_part_before(&self, condition: &str, place: u64) -> Result<Mark> {
        let sql = format!(
            "SELECT start, chars, lines FROM result_part WHERE caller = ?1 AND handle = ?2 AND {condition}
             ORDER BY start DESC LIMIT 1"
        );
        let params = params![&self.caller[..], &self.handle.bits()[..], to_i64(place)];
        let found = self.records.store.read_tx(|tx| {
            tx.query_one(&sql, params, |row| {
                let count = |at| row.int(at).map(|n| u64::try_from(n).unwrap_or(0));
                Ok(Mark {
                    bytes: count(0)?,
                    chars: count(1)?,
                    lines: count(2)?,
                })
            })
        })?;
        Ok(found.unwrap_or_default())
    }
}

impl Document for SharedResult {
    type Error = Error;

    fn len_bytes(&self) -> u64 {
        self.summary.bytes
    }

    fn len_chars(&self) -> Option<u64> {
        self.summary.chars
    }

    fn piece(&self, offset: u64) -> Result<Piece<'_>> {
        if offset >= self.summary.bytes {
            return Ok(Piece::Borrowed(&[]));
        }
        let inside = offset % PART_BYTES as u64;
        let part = self.part(offset - inside)?;
        let inside = usize::try_from(inside).expect("less than a part");
        if inside >= part.len() {
            return Err(Error::Broken("a part of a result is too short".to_owned()));
        }
        let range = inside..part.len();
        Ok(Piece::Shared(part, range))
    }

    fn near_char(&self, chars: u64) -> Result<Mark> {
        self.last_part_before("chars <= ?3", chars)
    }

    fn near_line(&self, lines: u64) -> Result<Mark> {
        // A part may begin in the middle of a line; the line must start at or after the mark.
        self.last_part_before("lines < ?3", lines)
    }
}

impl Records {
    /// Returns a named key, created on first use and shared by all processes on the store.
    pub fn shared_key(&self, name: &str) -> Result<[u8; 32]> {
        self.store.write_tx(|tx| ensure_secret(tx, name))
    }

    /// Stores a bearer token record under an unused name. Returns false if the name is taken.
    pub fn add_bearer_token(&self, name: &str, body: &str) -> Result<bool> {
        let added = self.store.write_tx(|tx| {
            tx.execute(
                "INSERT INTO guest (name, body) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                params![name, body],
            )
        })?;
        Ok(added == 1)
    }

    /// Returns the bearer token records, by name.
    pub fn bearer_tokens(&self) -> Result<Vec<String>> {
        self.store.read_tx(|tx| {
            tx.query_all("SELECT body FROM guest ORDER BY name", &[], |row| {
                Ok(row.text(0)?.to_owned())
            })
        })
    }

    /// Deletes a bearer token record. Returns true if it existed.
    pub fn remove_bearer_token(&self, name: &str) -> Result<bool> {
        let removed = self
            .store
            .write_tx(|tx| tx.execute("DELETE FROM guest WHERE name = ?1", params![name]))?;
        Ok(removed == 1)
    }
}

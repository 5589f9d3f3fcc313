//! What every process on one database shares besides the records: results that were too long for a reply, who may come
//! through the door, and the keys that make cursors theirs. A data folder has its own place for them; its processes
//! are on one machine.

use std::io::Read;
use std::sync::Arc;

use parking_lot::Mutex;
use rung_auth::Permit;
use rung_ladder::{Document, Handle, Intake, Keeping, Kept, Mark, Piece, Summary};
use sha2::{Digest as _, Sha256};

use crate::records::secret;
use crate::store::{Insert, Row, Tx, Value, params};
use crate::{Error, Records, Result};

/// Bytes of a part.
const PART_BYTES: usize = 64 << 10;
/// What is held in memory before it is written.
const HELD_BYTES: usize = 16 * PART_BYTES;
/// A result that nobody added to for this long is given up.
const PENDING_MS: i64 = 60 * 60 * 1_000;
/// Results that are cleared away by one transaction.
const SWEEP: i64 = 8;

const PARTS: Insert = Insert {
    into: "INSERT INTO result_part (caller, handle, start, chars, lines, bytes)",
    width: 6,
    conflict: "",
};

const KNOWN: &str = "content_type, bytes, chars, digest, created_ms, expires_ms";

/// The results that processes on one database share. Cheap to clone.
#[derive(Clone)]
pub struct SharedResults {
    records: Arc<Records>,
    keeping: Keeping,
}

/// Whose: hashes, so that a stolen table names nobody.
struct Owner {
    caller: [u8; 16],
    under: [u8; 8],
}

impl Owner {
    fn of(permit: &Permit) -> Self {
        let hash = |name: &str| Sha256::digest(name.as_bytes());
        let (caller, under) = (
            hash(permit.caller().as_str()),
            hash(permit.grant().as_str()),
        );
        Self {
            caller: *caller.first_chunk().expect("a hash is longer"),
            under: *under.first_chunk().expect("a hash is longer"),
        }
    }
}

impl SharedResults {
    /// The results in the database of `records`.
    pub fn new(records: Arc<Records>, keeping: Keeping) -> Self {
        Self { records, keeping }
    }

    /// Stores all of `source`. When this returns, its handle may be given out.
    pub fn put(
        &self,
        permit: &Permit,
        content_type: impl Into<String>,
        source: &mut dyn Read,
    ) -> Result<Kept> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(|error| Error::corrupt("randomness", error))?;
        let handle = Handle::from_bits(bits);
        let owner = Owner::of(permit);
        let taken = self.take(&owner, &handle, content_type.into(), source);
        match taken {
            Ok(summary) => Ok(Kept { handle, summary }),
            Err(error) => {
                // Should this fail too, it is cleared away when it was silent for too long.
                let _cleared = self
                    .records
                    .store
                    .writing(|tx| delete(tx, &owner.caller, handle.bits()));
                Err(error)
            }
        }
    }

    fn take(
        &self,
        owner: &Owner,
        handle: &Handle,
        content_type: String,
        source: &mut dyn Read,
    ) -> Result<Summary> {
        let mut intake = Intake::new(content_type, PART_BYTES);
        let mut buffer = vec![0; PART_BYTES];
        let mut begun = false;
        loop {
            // What is let go is a whole number of parts.
            let room = (HELD_BYTES - intake.held_bytes()).min(PART_BYTES);
            let got = match source.read(&mut buffer[..room]) {
                Ok(got) => got,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Error::Source(error.to_string())),
            };
            intake.take(&buffer[..got]);
            if intake.bytes() > self.keeping.max_bytes {
                return Err(Error::TooLarge {
                    what: "a kept result",
                    limit: self.keeping.max_bytes,
                });
            }
            let now_ms = self.records.now_ms();
            if got == 0 {
                let created_ms = u64::try_from(now_ms).unwrap_or(0);
                let summary = intake.summary(created_ms, self.keeping.ttl);
                self.records.store.writing(|tx| {
                    put_parts(tx, owner, handle, &intake)?;
                    self.complete(tx, owner, handle, begun, &summary)
                })?;
                return Ok(summary);
            }
            if intake.held_bytes() == HELD_BYTES {
                self.records.store.writing(|tx| {
                    hear(tx, owner, handle, begun, now_ms)?;
                    put_parts(tx, owner, handle, &intake)
                })?;
                begun = true;
                intake.let_go();
            }
        }
    }

    /// Makes a result visible, and room for it.
    fn complete(
        &self,
        tx: &mut dyn Tx,
        owner: &Owner,
        handle: &Handle,
        begun: bool,
        summary: &Summary,
    ) -> Result<()> {
        let created_ms = int(summary.created_ms);
        if begun {
            hear(tx, owner, handle, true, created_ms)?;
        }
        sweep(tx, created_ms)?;
        let mut used = tx
            .one(
                "SELECT coalesce(sum(bytes), 0)::BIGINT FROM result WHERE caller = ?1 AND complete = 1",
                params![&owner.caller[..]],
                |row| row.int(0),
            )?
            .unwrap_or(0);
        let most = int(self.keeping.max_bytes);
        while used.saturating_add(int(summary.bytes)) > most {
            let oldest = tx.one(
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
                &owner.under[..],
                &summary.content_type,
                int(summary.bytes),
                summary.chars.map(int),
                &summary.digest,
                created_ms,
                int(summary.expires_ms),
            ],
        )?;
        Ok(())
    }

    /// The result that the bearer of `permit` stored under `handle`, if there is one.
    pub fn open(&self, permit: &Permit, handle: &Handle) -> Result<Option<SharedResult>> {
        let owner = Owner::of(permit);
        let sql = format!(
            "SELECT {KNOWN} FROM result WHERE caller = ?1 AND handle = ?2 AND under = ?3 AND complete = 1 AND expires_ms > ?4"
        );
        let params = params![
            &owner.caller[..],
            &handle.bits()[..],
            &owner.under[..],
            self.records.now_ms()
        ];
        let found = self
            .records
            .store
            .reading(|tx| tx.one(&sql, params, |row| known(row, 0)))?;
        Ok(found.map(|summary| SharedResult {
            records: self.records.clone(),
            caller: owner.caller,
            handle: *handle,
            summary,
            last: Mutex::default(),
        }))
    }

    /// The results of the bearer of `permit`, in the order in which they came.
    pub fn list(&self, permit: &Permit) -> Result<Vec<Kept>> {
        let owner = Owner::of(permit);
        let sql = format!(
            "SELECT handle, {KNOWN} FROM result WHERE caller = ?1 AND under = ?2 AND complete = 1 AND expires_ms > ?3
             ORDER BY created_ms, handle"
        );
        let params = params![&owner.caller[..], &owner.under[..], self.records.now_ms()];
        self.records.store.reading(|tx| {
            tx.all(&sql, params, |row| {
                let bits = <[u8; 16]>::try_from(row.bytes(0)?);
                let bits = bits.map_err(|error| Error::corrupt("handle", error))?;
                Ok(Kept {
                    handle: Handle::from_bits(bits),
                    summary: known(row, 1)?,
                })
            })
        })
    }

    /// Forgets a result. Whether there was one.
    pub fn remove(&self, permit: &Permit, handle: &Handle) -> Result<bool> {
        let owner = Owner::of(permit);
        self.records.store.writing(|tx| {
            let mine = tx.one(
                "SELECT 1 FROM result WHERE caller = ?1 AND handle = ?2 AND under = ?3 AND complete = 1",
                params![&owner.caller[..], &handle.bits()[..], &owner.under[..]],
                |_| Ok(()),
            )?;
            if mine.is_some() {
                delete(tx, &owner.caller, handle.bits())?;
            }
            Ok(mine.is_some())
        })
    }

    /// Clears away everything that has expired or was given up.
    pub fn sweep(&self) -> Result<()> {
        let now_ms = self.records.now_ms();
        while self.records.store.writing(|tx| sweep(tx, now_ms))? > 0 {}
        Ok(())
    }
}

/// Says that a result is still coming in. Whoever was silent for too long has been swept away, and must not go on.
fn hear(tx: &mut dyn Tx, owner: &Owner, handle: &Handle, begun: bool, now_ms: i64) -> Result<()> {
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
            params![&owner.caller[..], &handle.bits()[..], &owner.under[..], now_ms, until],
        )?
    };
    match heard {
        1 => Ok(()),
        _ => Err(Error::Source("it came in too slowly".to_owned())),
    }
}

fn put_parts(tx: &mut dyn Tx, owner: &Owner, handle: &Handle, intake: &Intake) -> Result<()> {
    let mut values = Vec::new();
    for (mark, bytes) in intake.pieces() {
        values.extend([
            Value::Bytes(&owner.caller),
            Value::Bytes(handle.bits()),
            Value::Int(int(mark.bytes)),
            Value::Int(int(mark.chars)),
            Value::Int(int(mark.lines)),
            Value::Bytes(bytes),
        ]);
    }
    tx.insert(PARTS, &values)
}

fn delete(tx: &mut dyn Tx, caller: &[u8], handle: &[u8]) -> Result<()> {
    for table in ["result", "result_part"] {
        let sql = format!("DELETE FROM {table} WHERE caller = ?1 AND handle = ?2");
        tx.execute(&sql, params![caller, handle])?;
    }
    Ok(())
}

/// Clears away a few results whose time is over. How many.
fn sweep(tx: &mut dyn Tx, now_ms: i64) -> Result<usize> {
    let due = tx.all(
        "SELECT caller, handle FROM result WHERE expires_ms <= ?1 ORDER BY expires_ms, handle LIMIT ?2",
        params![now_ms, SWEEP],
        |row| Ok((row.bytes(0)?.to_vec(), row.bytes(1)?.to_vec())),
    )?;
    for (caller, handle) in &due {
        delete(tx, caller, handle)?;
    }
    Ok(due.len())
}

fn known(row: &dyn Row, from: usize) -> Result<Summary> {
    let count = |at: usize| row.int(from + at).map(|n| u64::try_from(n).unwrap_or(0));
    Ok(Summary {
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

fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A result in the database, as a document.
///
/// Each part is fetched by itself, so that a slow reader holds nothing back. If the result expires meanwhile, the next
/// part is absent.
pub struct SharedResult {
    records: Arc<Records>,
    caller: [u8; 16],
    handle: Handle,
    summary: Summary,
    /// The part that was read last: reading goes forward, a little at a time.
    last: Mutex<Option<(u64, Arc<[u8]>)>>,
}

impl SharedResult {
    /// What is known of it.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    fn part(&self, start: u64) -> Result<Arc<[u8]>> {
        if let Some((last, part)) = &*self.last.lock()
            && *last == start
        {
            return Ok(part.clone());
        }
        let part: Option<Arc<[u8]>> = self.records.store.reading(|tx| {
            tx.one(
                "SELECT bytes FROM result_part WHERE caller = ?1 AND handle = ?2 AND start = ?3",
                params![&self.caller[..], &self.handle.bits()[..], int(start)],
                |row| Ok(row.bytes(0)?.into()),
            )
        })?;
        let part = part.ok_or_else(|| Error::NotFound("the result is gone".to_owned()))?;
        *self.last.lock() = Some((start, part.clone()));
        Ok(part)
    }

    /// The last part that begins at or before a place.
    fn near(&self, condition: &str, place: u64) -> Result<Mark> {
        let sql = format!(
            "SELECT start, chars, lines FROM result_part WHERE caller = ?1 AND handle = ?2 AND {condition}
             ORDER BY start DESC LIMIT 1"
        );
        let params = params![&self.caller[..], &self.handle.bits()[..], int(place)];
        let found = self.records.store.reading(|tx| {
            tx.one(&sql, params, |row| {
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
            return Err(Error::Broken("a part of a result is short".to_owned()));
        }
        let range = inside..part.len();
        Ok(Piece::Shared(part, range))
    }

    fn near_char(&self, chars: u64) -> Result<Mark> {
        self.near("chars <= ?3", chars)
    }

    fn near_line(&self, lines: u64) -> Result<Mark> {
        // A part may begin in the middle of the line; the line's start must lie at or behind the mark.
        self.near("lines < ?3", lines)
    }
}

impl Records {
    /// A key that all processes on this store have, made on first use.
    pub fn key(&self, name: &str) -> Result<[u8; 32]> {
        self.store.writing(|tx| secret(tx, name))
    }

    /// Lets somebody in by a name that nobody has yet. Whether that was so.
    pub fn add_guest(&self, name: &str, body: &str) -> Result<bool> {
        let added = self.store.writing(|tx| {
            tx.execute(
                "INSERT INTO guest (name, body) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                params![name, body],
            )
        })?;
        Ok(added == 1)
    }

    /// Who may come in, by name.
    pub fn guests(&self) -> Result<Vec<String>> {
        self.store.reading(|tx| {
            tx.all("SELECT body FROM guest ORDER BY name", &[], |row| {
                Ok(row.text(0)?.to_owned())
            })
        })
    }

    /// Lets somebody in no more. Whether they were.
    pub fn remove_guest(&self, name: &str) -> Result<bool> {
        let removed = self
            .store
            .writing(|tx| tx.execute("DELETE FROM guest WHERE name = ?1", params![name]))?;
        Ok(removed == 1)
    }
}

//! Upkeep, a little at a time, beside whoever reads and writes: what a later declaration needs is built, what is over
//! is let go, and words of what is gone are taken out of the index.

use std::collections::HashSet;

use crate::declaration::{Shape, Stream};
use crate::document::{self, Document};
use crate::key;
use crate::records::moment;
use crate::scope::{Collection, connections};
use crate::search::{self, LexicalIndex as _, Postings};
use crate::store::{Insert, Tx, Value, params};
use crate::write::{self, Change, NEVER};
use crate::{Error, Records, Result};

/// How far something is that takes long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Of which connection.
    pub connection: String,
    /// Of which stream.
    pub stream: String,
    /// Versions that are done.
    pub done: i64,
    /// Of how many.
    pub of: i64,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tended {
    /// Collections that were built anew.
    pub built: usize,
    /// Records that were over.
    pub expired: usize,
    /// Collections whose words were cleaned.
    pub cleaned: usize,
}

/// Rows that are moved by one transaction: others write in between.
const ROWS: i64 = 500;
/// Blocks of words that are looked through by one transaction.
const BLOCKS: i64 = 500;
/// So many versions may be dead before their words are taken out.
const MAX_DEAD: i64 = 1_000;

const COPIES: Insert = Insert {
    into: "INSERT INTO record (subject, collection, version, until, key, ord, deleted, written_ms, emitted_at, data, lifted)",
    width: 11,
    conflict: "",
};

/// A version on its way to another collection.
struct Moved {
    version: i64,
    until: i64,
    key: String,
    ord: Vec<u8>,
    deleted: i64,
    written_ms: i64,
    emitted_at: String,
    data: String,
    lifted: Option<String>,
}

impl Records {
    /// Does what is due. `told` hears of what takes long.
    pub fn tend(&self, told: &dyn Fn(&Progress)) -> Result<Tended> {
        let subjects = self
            .store
            .reading(|tx| tx.all("SELECT no FROM subject ORDER BY no", &[], |row| row.int(0)))?;
        self.drop_petitions()?;
        let mut done = Tended::default();
        for subject in subjects {
            self.tend_subject(subject, told, &mut done)?;
        }
        Ok(done)
    }

    fn tend_subject(
        &self,
        subject: i64,
        told: &dyn Fn(&Progress),
        done: &mut Tended,
    ) -> Result<()> {
        let all = self.store.reading(|tx| {
            let mut all = Vec::new();
            for connection in connections(tx, subject)? {
                let declaration = self.declaration(tx, &connection.connector)?;
                for collection in Collection::all(tx, subject, &connection.id)? {
                    let stream = declaration
                        .as_ref()
                        .and_then(|own| own.stream(&collection.stream));
                    all.extend(stream.cloned().map(|stream| (collection, stream)));
                }
            }
            Ok(all)
        })?;
        for (mut collection, stream) in all {
            let shape = stream.shape();
            if *collection.shape != shape {
                self.build(&collection, &shape, told)?;
                done.built += 1;
                let now = self.store.reading(|tx| {
                    Collection::find(tx, subject, &collection.connection, &collection.stream)
                })?;
                collection = now.ok_or(Error::ConnectionNotFound)?;
            }
            let expired = self.expire(&collection, &stream)?;
            done.expired += expired;
            self.trim(&collection)?;
            if self.clean(&collection, expired > 0)? {
                done.cleaned += 1;
            }
        }
        self.drop_uploads(subject)?;
        self.drop_left(subject)
    }

    /// Builds a collection anew in another shape, beside the one that is in use, and puts it in its place.
    fn build(&self, old: &Collection, shape: &Shape, told: &dyn Fn(&Progress)) -> Result<()> {
        let json = serde_json::to_string(shape)?;
        let (subject, from) = (old.subject, old.no);
        let (new, of) = self.store.writing(|tx| {
            write::lock(tx, subject)?;
            // What an earlier attempt left is of no use: writes have happened since.
            tx.execute(
                "UPDATE collection SET current = -no WHERE subject = ?1 AND connection = ?2 AND stream = ?3 AND current = 0",
                params![subject, &old.connection, &old.stream],
            )?;
            tx.execute(
                "INSERT INTO collection (subject, no, connection, stream, current, shape, records, floor, updated_ms, emitted_at, keep_s)
                 SELECT ?1, coalesce(max(no), 0) + 1, ?2, ?3, 0, ?4, 0, 0, NULL, NULL, NULL FROM collection WHERE subject = ?1",
                params![subject, &old.connection, &old.stream, &json],
            )?;
            let new = Collection::building(tx, subject, &old.connection, &old.stream)?;
            let new = new.ok_or_else(|| Error::Broken("the new collection is gone".to_owned()))?;
            let of = tx.one(
                "SELECT count(*) FROM record WHERE subject = ?1 AND collection = ?2",
                params![subject, from],
                |row| row.int(0),
            )?;
            Ok((new, of.unwrap_or(0)))
        })?;
        let mut moving = Moving {
            old,
            new: &new,
            at: 0,
            seen: 0,
            done: 0,
        };
        loop {
            let caught_up = self.store.writing(|tx| moving.step(tx))?;
            told(&Progress {
                connection: old.connection.clone(),
                stream: old.stream.clone(),
                done: moving.done,
                of: of.max(moving.done),
            });
            if caught_up {
                return Ok(());
            }
        }
    }

    /// Deletes what was to be kept for so long and no longer, and blanks what it was before.
    fn expire(&self, collection: &Collection, stream: &Stream) -> Result<usize> {
        let Some(keep_s) = collection.keep_s else {
            return Ok(0);
        };
        let now_ms = self.now_ms();
        let oldest_ms = now_ms.saturating_sub(keep_s.saturating_mul(1000));
        let at = moment(now_ms);
        let mut expired = 0;
        loop {
            let some = self.store.writing(|tx| {
                write::lock(tx, collection.subject)?;
                let found = Collection::find(tx, collection.subject, &collection.connection, &collection.stream)?;
                let Some(mut collection) = found else {
                    return Ok(0);
                };
                let keys = due(tx, &collection, stream, oldest_ms)?;
                let changes: Vec<Change<'_>> = keys
                    .iter()
                    .map(|key| Change {
                        key,
                        emitted_at: &at,
                        document: None,
                    })
                    .collect();
                write::apply(
                    tx,
                    &mut collection,
                    &changes,
                    write::Rule::Changes,
                    now_ms,
                )?;
                for key in &keys {
                    tx.execute(
                        "DELETE FROM chunk WHERE subject = ?1 AND collection = ?2 AND version IN (
                            SELECT version FROM record WHERE subject = ?1 AND collection = ?2 AND key = ?3)",
                        params![collection.subject, collection.no, key],
                    )?;
                    blank(tx, &collection, stream, key)?;
                    tx.execute(
                        "DELETE FROM blob_binding WHERE subject = ?1 AND collection = ?2 AND key = ?3",
                        params![collection.subject, collection.no, key],
                    )?;
                }
                if !keys.is_empty() {
                    drop_unbound(tx, collection.subject)?;
                }
                Ok(keys.len())
            })?;
            if some == 0 {
                return Ok(expired);
            }
            expired += some;
        }
    }

    /// Forgets changes beyond those that are to be remembered.
    fn trim(&self, collection: &Collection) -> Result<()> {
        let Some(history) = i64::try_from(self.options.history)
            .ok()
            .filter(|history| *history > 0)
        else {
            return Ok(());
        };
        let (subject, no) = (collection.subject, collection.no);
        self.store.writing(|tx| {
            let cut = tx.one(
                "SELECT version FROM record WHERE subject = ?1 AND collection = ?2 ORDER BY version DESC LIMIT 1 OFFSET ?3",
                params![subject, no, history],
                |row| row.int(0),
            )?;
            let Some(cut) = cut.filter(|cut| *cut > collection.floor) else {
                return Ok(());
            };
            write::lock(tx, subject)?;
            let gone = "SELECT version FROM record WHERE subject = ?1 AND collection = ?2 AND (until <= ?3 OR deleted = 1 AND version <= ?3)";
            let sql = format!("DELETE FROM chunk WHERE subject = ?1 AND collection = ?2 AND version IN ({gone})");
            tx.execute(&sql, params![subject, no, cut])?;
            tx.execute(
                "DELETE FROM record WHERE subject = ?1 AND collection = ?2 AND (until <= ?3 OR deleted = 1 AND version <= ?3)",
                params![subject, no, cut],
            )?;
            tx.execute("UPDATE collection SET floor = ?3 WHERE subject = ?1 AND no = ?2", params![subject, no, cut])?;
            Ok(())
        })
    }

    /// Takes the words of what is gone out of the index, if they are many or must not stay.
    fn clean(&self, collection: &Collection, must: bool) -> Result<bool> {
        let (subject, no) = (collection.subject, collection.no);
        let dead: HashSet<i64> = self.store.reading(|tx| {
            let all = tx.all(
                "SELECT version FROM dead WHERE subject = ?1 AND collection = ?2",
                params![subject, no],
                |row| row.int(0),
            )?;
            Ok(all.into_iter().collect())
        })?;
        let few =
            i64::try_from(dead.len()).unwrap_or(i64::MAX) < MAX_DEAD.max(collection.records / 5);
        if dead.is_empty() || few && !must {
            return Ok(false);
        }
        // What is still filled comes first: when it is full it is behind us, and clean.
        let mut place = Some((-1, String::new()));
        while let Some(from) = place {
            place = self.store.writing(|tx| {
                write::lock(tx, subject)?;
                search::clean_tails(tx, collection, &dead, &from, BLOCKS)
            })?;
        }
        let mut place = Some((-1, String::new(), -1));
        while let Some(from) = place {
            place = self.store.writing(|tx| {
                write::lock(tx, subject)?;
                search::clean_blocks(tx, collection, &dead, &from, BLOCKS)
            })?;
        }
        self.store.writing(|tx| {
            for version in &dead {
                tx.execute(
                    "DELETE FROM dead WHERE subject = ?1 AND collection = ?2 AND version = ?3",
                    params![subject, no, *version],
                )?;
            }
            Ok(())
        })?;
        Ok(true)
    }

    /// Drops collections that others have taken the place of.
    fn drop_left(&self, subject: i64) -> Result<()> {
        let left = self.store.reading(|tx| {
            tx.all(
                "SELECT no FROM collection WHERE subject = ?1 AND current < 0",
                params![subject],
                |row| row.int(0),
            )
        })?;
        for no in left {
            for table in crate::erase::TABLES {
                let sql = format!("DELETE FROM {table} WHERE subject = ?1 AND collection = ?2");
                self.store
                    .writing(|tx| tx.execute(&sql, params![subject, no]))?;
            }
            let sql = "DELETE FROM collection WHERE subject = ?1 AND no = ?2";
            self.store
                .writing(|tx| tx.execute(sql, params![subject, no]))?;
        }
        Ok(())
    }
}

/// Takes everything out of what a record was, but when it was: by that it is known who may hear that it is gone.
fn blank(tx: &mut dyn Tx, collection: &Collection, stream: &Stream, key: &str) -> Result<()> {
    let versions = tx.all(
        "SELECT version, data FROM record WHERE subject = ?1 AND collection = ?2 AND key = ?3",
        params![collection.subject, collection.no, key],
        |row| Ok((row.int(0)?, row.text(1)?.to_owned())),
    )?;
    for (version, data) in versions {
        let mut left = serde_json::Map::new();
        let members = document::members(&data).unwrap_or_default();
        for (name, value) in members {
            if stream.consent_time_field.as_deref() == Some(&*name) {
                left.extend(document::scalar(value).map(|value| (name.into_owned(), value)));
            }
        }
        let left = serde_json::to_string(&left)?;
        tx.execute(
            "UPDATE record SET data = ?4, lifted = NULL WHERE subject = ?1 AND collection = ?2 AND version = ?3",
            params![collection.subject, collection.no, version, &left],
        )?;
    }
    Ok(())
}

/// Drops blobs that belong to no record.
fn drop_unbound(tx: &mut dyn Tx, subject: i64) -> Result<()> {
    for (table, name) in [("blob_part", "blob"), ("blob", "id")] {
        let sql = format!(
            "DELETE FROM {table} WHERE subject = ?1 AND {name} LIKE 'blob_%'
             AND {name} NOT IN (SELECT blob FROM blob_binding WHERE subject = ?1)"
        );
        tx.execute(&sql, params![subject])?;
    }
    Ok(())
}

/// Keys of records that are over.
fn due(
    tx: &mut dyn Tx,
    collection: &Collection,
    stream: &Stream,
    oldest_ms: i64,
) -> Result<Vec<String>> {
    let (subject, no) = (collection.subject, collection.no);
    let timed = stream
        .consent_time_field
        .as_ref()
        .and_then(|field| collection.shape.fact(field));
    let Some((field, _)) = timed else {
        return tx.all(
            "SELECT key FROM record WHERE subject = ?1 AND collection = ?2 AND until = 9223372036854775807 AND deleted = 0
             AND written_ms < ?3 LIMIT ?4",
            params![subject, no, oldest_ms, ROWS],
            |row| Ok(row.text(0)?.to_owned()),
        );
    };
    let before = key::moment_key(key::Moment::from_millisecond(oldest_ms));
    tx.all(
        "SELECT r.key FROM fact f JOIN record r ON r.subject = f.subject AND r.collection = f.collection AND r.version = f.version
         WHERE f.subject = ?1 AND f.collection = ?2 AND f.field = ?3 AND f.value >= ?4 AND f.value < ?5 LIMIT ?6",
        params![subject, no, field, key::TIMES.0, &before, ROWS],
        |row| Ok(row.text(0)?.to_owned()),
    )
}

/// A collection on its way into another shape.
struct Moving<'a> {
    old: &'a Collection,
    new: &'a Collection,
    /// The last version that was moved.
    at: i64,
    /// The last change of the subject that was looked at.
    seen: i64,
    done: i64,
}

impl Moving<'_> {
    /// Moves some versions. Says whether all are, and then the new collection is in place.
    fn step(&mut self, tx: &mut dyn Tx) -> Result<bool> {
        let (subject, from, to) = (self.old.subject, self.old.no, self.new.no);
        let now = write::lock(tx, subject)?;
        // Another process may have begun anew, and set this one aside.
        let ours = Collection::building(tx, subject, &self.old.connection, &self.old.stream)?;
        if ours.is_none_or(|ours| ours.no != to) {
            return Err(Error::Busy("another process is building this collection"));
        }
        // What was moved as holding, and has been followed by another version since.
        let ended = tx.all(
            "SELECT version, until FROM record WHERE subject = ?1 AND collection = ?2 AND until > ?3
             AND until < 9223372036854775807 AND version <= ?4",
            params![subject, from, self.seen, self.at],
            |row| Ok((row.int(0)?, row.int(1)?)),
        )?;
        for (version, until) in ended {
            write::end(tx, self.new, version, until)?;
        }
        let rows = tx.all(
            "SELECT version, until, key, ord, deleted, written_ms, emitted_at, data, lifted FROM record
             WHERE subject = ?1 AND collection = ?2 AND version > ?3 ORDER BY version LIMIT ?4",
            params![subject, from, self.at, ROWS],
            |row| {
                Ok(Moved {
                    version: row.int(0)?,
                    until: row.int(1)?,
                    key: row.text(2)?.to_owned(),
                    ord: row.bytes(3)?.to_owned(),
                    deleted: row.int(4)?,
                    written_ms: row.int(5)?,
                    emitted_at: row.text(6)?.to_owned(),
                    data: document::mended(row.text(7)?).into_owned(),
                    lifted: row.maybe_text(8)?.map(str::to_owned),
                })
            },
        )?;
        self.copy(tx, rows)?;
        self.seen = now;
        let left = tx.one(
            "SELECT version FROM record WHERE subject = ?1 AND collection = ?2 AND version > ?3 LIMIT 1",
            params![subject, from, self.at],
            |row| row.int(0),
        )?;
        if left.is_some() {
            return Ok(false);
        }
        tx.execute(
            "UPDATE collection SET current = -no WHERE subject = ?1 AND no = ?2",
            params![subject, from],
        )?;
        tx.execute(
            "UPDATE collection SET current = 1,
                records = (SELECT records FROM collection WHERE subject = ?1 AND no = ?3),
                floor = (SELECT floor FROM collection WHERE subject = ?1 AND no = ?3),
                updated_ms = (SELECT updated_ms FROM collection WHERE subject = ?1 AND no = ?3),
                emitted_at = (SELECT emitted_at FROM collection WHERE subject = ?1 AND no = ?3),
                keep_s = (SELECT keep_s FROM collection WHERE subject = ?1 AND no = ?3)
             WHERE subject = ?1 AND no = ?2",
            params![subject, to, from],
        )?;
        tx.execute(
            "UPDATE blob_binding SET collection = ?2 WHERE subject = ?1 AND collection = ?3",
            params![subject, to, from],
        )?;
        Ok(true)
    }

    fn copy(&mut self, tx: &mut dyn Tx, mut rows: Vec<Moved>) -> Result<()> {
        let (subject, from, to) = (self.old.subject, self.old.no, self.new.no);
        let shape = &self.new.shape;
        let mut facts = write::Facts::default();
        let mut index = Postings::new(self.new);
        for row in &mut rows {
            let long = row.lifted.is_some();
            if long {
                tx.execute(
                    "INSERT INTO chunk (subject, collection, version, field, start, text)
                     SELECT subject, ?4, version, field, start, text FROM chunk WHERE subject = ?1 AND collection = ?2 AND version = ?3",
                    params![subject, from, row.version, to],
                )?;
            }
            if row.deleted == 1 {
                continue;
            }
            let document = Document::read(&row.data)
                .ok_or_else(|| Error::Broken("a record is no object".to_owned()))?;
            row.ord = write::place(shape, &document, &row.key);
            if row.until != NEVER {
                continue;
            }
            let lifted = document::lifted(row.lifted.as_deref())?;
            facts.add(shape, &document, &lifted, &row.ord, row.version);
            for (field, name) in (0..).zip(&shape.lexical) {
                if lifted.iter().any(|own| own.field == *name) {
                    let text = document::whole(tx, self.old, row.version, name)?;
                    index.add(field, row.version, &text);
                } else if let Some(text) = document.text(name) {
                    index.add(field, row.version, &text);
                }
            }
        }
        let values: Vec<Value<'_>> = rows
            .iter()
            .flat_map(|row| {
                [
                    Value::Int(subject),
                    Value::Int(to),
                    Value::Int(row.version),
                    Value::Int(row.until),
                    Value::Text(&row.key),
                    Value::Bytes(&row.ord),
                    Value::Int(row.deleted),
                    Value::Int(row.written_ms),
                    Value::Text(&row.emitted_at),
                    Value::Text(&row.data),
                    row.lifted.as_ref().into(),
                ]
            })
            .collect();
        tx.insert(COPIES, &values)?;
        facts.flush(tx, self.new)?;
        index.flush(tx)?;
        if let Some(last) = rows.last() {
            self.at = last.version;
        }
        self.done += i64::try_from(rows.len()).unwrap_or(0);
        Ok(())
    }
}

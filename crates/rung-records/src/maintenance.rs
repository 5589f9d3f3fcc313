//! Background maintenance, in small transactions alongside readers and writers: rebuilds collections whose index shape
//! changed, deletes expired data, and removes dead versions from the word index.

use std::collections::HashSet;

use crate::declaration::{IndexShape, StreamDeclaration};
use crate::document::{self, RecordDocument};
use crate::key;
use crate::records::format_moment;
use crate::scope::{Collection, connections};
use crate::search::{self, PostingIndex, WordIndex as _};
use crate::store::{BulkInsert, Tx, Value, params};
use crate::write::{self, RecordChange, UNTIL_CURRENT};
use crate::{Error, Records, Result};

/// The progress of a rebuild.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildProgress {
    pub connection: String,
    pub stream: String,
    /// Number of versions copied.
    pub done: i64,
    /// Number of versions to copy.
    pub total: i64,
}

/// What a maintenance run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MaintenanceReport {
    /// Number of collections rebuilt.
    pub built: usize,
    /// Number of records expired.
    pub expired: usize,
    /// Number of collections whose word index was cleaned.
    pub cleaned: usize,
}

/// Rows per transaction, so that writers are not blocked for long.
const ROWS: i64 = 500;
/// Posting blocks per transaction.
const BLOCKS: i64 = 500;
/// Number of dead versions from which on the word index is cleaned.
const MIN_DEAD_TO_CLEAN: i64 = 1_000;

const INSERT_COPIES: BulkInsert = BulkInsert {
    into: "INSERT INTO record (subject, collection, version, until, key, ord, deleted, written_ms, emitted_at, data, lifted)",
    width: 11,
    conflict: "",
};

/// A version being copied to the new collection.
struct MovedVersion {
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
    /// Runs the due maintenance. Calls `told` with the progress of rebuilds.
    pub fn maintenance(&self, told: &dyn Fn(&BuildProgress)) -> Result<MaintenanceReport> {
        let subjects = self.store.read_tx(|tx| {
            tx.query_all("SELECT no FROM subject ORDER BY no", &[], |row| row.int(0))
        })?;
        self.delete_expired_authorizations()?;
        let mut done = MaintenanceReport::default();
        for subject in subjects {
            self.maintain_subject(subject, told, &mut done)?;
        }
        Ok(done)
    }

    fn maintain_subject(
        &self,
        subject: i64,
        told: &dyn Fn(&BuildProgress),
        done: &mut MaintenanceReport,
    ) -> Result<()> {
        let all = self.store.read_tx(|tx| {
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
            let shape = stream.index_shape();
            if *collection.shape != shape {
                self.rebuild(&collection, &shape, told)?;
                done.built += 1;
                let now = self.store.read_tx(|tx| {
                    Collection::find(tx, subject, &collection.connection, &collection.stream)
                })?;
                collection = now.ok_or(Error::ConnectionNotFound)?;
            }
            let expired = self.delete_expired_records(&collection, &stream)?;
            done.expired += expired;
            self.trim_history(&collection)?;
            if self.clean_index(&collection, expired > 0)? {
                done.cleaned += 1;
            }
        }
        self.delete_abandoned_uploads(subject)?;
        self.delete_replaced_collections(subject)
    }

    /// Rebuilds a collection in a new index shape while the old one stays in use, then replaces it.
    fn rebuild(
        &self,
        old: &Collection,
        shape: &IndexShape,
        told: &dyn Fn(&BuildProgress),
    ) -> Result<()> {
        let json = serde_json::to_string(shape)?;
        let (subject, from) = (old.subject, old.no);
        let (new, of) = self.store.write_tx(|tx| {
            write::lock_subject(tx, subject)?;
            // Discard an earlier attempt, because records were written since.
            tx.execute(
                "UPDATE collection SET current = -no WHERE subject = ?1 AND connection = ?2 AND stream = ?3 AND current = 0",
                params![subject, &old.connection, &old.stream],
            )?;
            tx.execute(
                "INSERT INTO collection (subject, no, connection, stream, current, shape, records, floor, updated_ms, emitted_at, keep_s)
                 SELECT ?1, coalesce(max(no), 0) + 1, ?2, ?3, 0, ?4, 0, 0, NULL, NULL, NULL FROM collection WHERE subject = ?1",
                params![subject, &old.connection, &old.stream, &json],
            )?;
            let new = Collection::find_rebuild(tx, subject, &old.connection, &old.stream)?;
            let new = new.ok_or_else(|| Error::Broken("the new collection is missing".to_owned()))?;
            let of = tx.query_one(
                "SELECT count(*) FROM record WHERE subject = ?1 AND collection = ?2",
                params![subject, from],
                |row| row.int(0),
            )?;
            Ok((new, of.unwrap_or(0)))
        })?;
        let mut moving = CollectionRebuild {
            old,
            new: &new,
            last_copied: 0,
            last_version: 0,
            done: 0,
        };
        loop {
            let caught_up = self.store.write_tx(|tx| moving.copy_step(tx))?;
            told(&BuildProgress {
                connection: old.connection.clone(),
                stream: old.stream.clone(),
                done: moving.done,
                total: of.max(moving.done),
            });
            if caught_up {
                return Ok(());
            }
        }
    }

    /// Deletes records past their retention, and blanks their earlier versions.
    fn delete_expired_records(
        &self,
        collection: &Collection,
        stream: &StreamDeclaration,
    ) -> Result<usize> {
        let Some(keep_s) = collection.keep_s else {
            return Ok(0);
        };
        let now_ms = self.now_ms();
        let oldest_ms = now_ms.saturating_sub(keep_s.saturating_mul(1000));
        let at = format_moment(now_ms);
        let mut expired = 0;
        loop {
            let some = self.store.write_tx(|tx| {
                write::lock_subject(tx, collection.subject)?;
                let found = Collection::find(tx, collection.subject, &collection.connection, &collection.stream)?;
                let Some(mut collection) = found else {
                    return Ok(0);
                };
                let keys = expired_keys(tx, &collection, stream, oldest_ms)?;
                let changes: Vec<RecordChange<'_>> = keys
                    .iter()
                    .map(|key| RecordChange {
                        key,
                        emitted_at: &at,
                        document: None,
                    })
                    .collect();
                write::apply_changes(
                    tx,
                    &mut collection,
                    &changes,
                    write::ChangeRule::AllowChanges,
                    now_ms,
                )?;
                for key in &keys {
                    tx.execute(
                        "DELETE FROM chunk WHERE subject = ?1 AND collection = ?2 AND version IN (
                            SELECT version FROM record WHERE subject = ?1 AND collection = ?2 AND key = ?3)",
                        params![collection.subject, collection.no, key],
                    )?;
                    blank_versions(tx, &collection, stream, key)?;
                    tx.execute(
                        "DELETE FROM blob_binding WHERE subject = ?1 AND collection = ?2 AND key = ?3",
                        params![collection.subject, collection.no, key],
                    )?;
                }
                if !keys.is_empty() {
                    delete_unbound_blobs(tx, collection.subject)?;
                }
                Ok(keys.len())
            })?;
            if some == 0 {
                return Ok(expired);
            }
            expired += some;
        }
    }

    /// Deletes versions beyond the configured history.
    fn trim_history(&self, collection: &Collection) -> Result<()> {
        let Some(history) = i64::try_from(self.options.history)
            .ok()
            .filter(|history| *history > 0)
        else {
            return Ok(());
        };
        let (subject, no) = (collection.subject, collection.no);
        self.store.write_tx(|tx| {
            let cut = tx.query_one(
                "SELECT version FROM record WHERE subject = ?1 AND collection = ?2 ORDER BY version DESC LIMIT 1 OFFSET ?3",
                params![subject, no, history],
                |row| row.int(0),
            )?;
            let Some(cut) = cut.filter(|cut| *cut > collection.floor) else {
                return Ok(());
            };
            write::lock_subject(tx, subject)?;
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

    /// Removes dead versions from the word index, if there are many or `must` is true.
    fn clean_index(&self, collection: &Collection, must: bool) -> Result<bool> {
        let (subject, no) = (collection.subject, collection.no);
        let dead: HashSet<i64> = self.store.read_tx(|tx| {
            let all = tx.query_all(
                "SELECT version FROM dead WHERE subject = ?1 AND collection = ?2",
                params![subject, no],
                |row| row.int(0),
            )?;
            Ok(all.into_iter().collect())
        })?;
        let few = i64::try_from(dead.len()).unwrap_or(i64::MAX)
            < MIN_DEAD_TO_CLEAN.max(collection.records / 5);
        if dead.is_empty() || few && !must {
            return Ok(false);
        }
        // Tails first: a tail that is closed meanwhile becomes a block, and is clean by then.
        let mut place = Some((-1, String::new()));
        while let Some(from) = place {
            place = self.store.write_tx(|tx| {
                write::lock_subject(tx, subject)?;
                search::clean_tails(tx, collection, &dead, &from, BLOCKS)
            })?;
        }
        let mut place = Some((-1, String::new(), -1));
        while let Some(from) = place {
            place = self.store.write_tx(|tx| {
                write::lock_subject(tx, subject)?;
                search::clean_blocks(tx, collection, &dead, &from, BLOCKS)
            })?;
        }
        self.store.write_tx(|tx| {
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

    /// Deletes collections that were replaced.
    fn delete_replaced_collections(&self, subject: i64) -> Result<()> {
        let left = self.store.read_tx(|tx| {
            tx.query_all(
                "SELECT no FROM collection WHERE subject = ?1 AND current < 0",
                params![subject],
                |row| row.int(0),
            )
        })?;
        for no in left {
            for table in crate::erase::COLLECTION_TABLES {
                let sql = format!("DELETE FROM {table} WHERE subject = ?1 AND collection = ?2");
                self.store
                    .write_tx(|tx| tx.execute(&sql, params![subject, no]))?;
            }
            let sql = "DELETE FROM collection WHERE subject = ?1 AND no = ?2";
            self.store
                .write_tx(|tx| tx.execute(sql, params![subject, no]))?;
        }
        Ok(())
    }
}

/// Blanks all versions of a record except for the time, which decides who is notified of the deletion.
fn blank_versions(
    tx: &mut dyn Tx,
    collection: &Collection,
    stream: &StreamDeclaration,
    key: &str,
) -> Result<()> {
    let versions = tx.query_all(
        "SELECT version, data FROM record WHERE subject = ?1 AND collection = ?2 AND key = ?3",
        params![collection.subject, collection.no, key],
        |row| Ok((row.int(0)?, row.text(1)?.to_owned())),
    )?;
    for (version, data) in versions {
        let mut left = serde_json::Map::new();
        let members = document::members(&data).unwrap_or_default();
        for (name, value) in members {
            if stream.consent_time_field.as_deref() == Some(&*name) {
                left.extend(document::scalar_value(value).map(|value| (name.into_owned(), value)));
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

/// Deletes blobs without a record.
fn delete_unbound_blobs(tx: &mut dyn Tx, subject: i64) -> Result<()> {
    for (table, name) in [("blob_part", "blob"), ("blob", "id")] {
        let sql = format!(
            "DELETE FROM {table} WHERE subject = ?1 AND {name} LIKE 'blob_%'
             AND {name} NOT IN (SELECT blob FROM blob_binding WHERE subject = ?1)"
        );
        tx.execute(&sql, params![subject])?;
    }
    Ok(())
}

/// Returns the keys of records past their retention.
fn expired_keys(
    tx: &mut dyn Tx,
    collection: &Collection,
    stream: &StreamDeclaration,
    oldest_ms: i64,
) -> Result<Vec<String>> {
    let (subject, no) = (collection.subject, collection.no);
    let timed = stream
        .consent_time_field
        .as_ref()
        .and_then(|field| collection.shape.fact(field));
    let Some((field, _)) = timed else {
        return tx.query_all(
            "SELECT key FROM record WHERE subject = ?1 AND collection = ?2 AND until = 9223372036854775807 AND deleted = 0
             AND written_ms < ?3 LIMIT ?4",
            params![subject, no, oldest_ms, ROWS],
            |row| Ok(row.text(0)?.to_owned()),
        );
    };
    let before = key::moment_key(key::CalendarTime::from_millisecond(oldest_ms));
    tx.query_all(
        "SELECT r.key FROM fact f JOIN record r ON r.subject = f.subject AND r.collection = f.collection AND r.version = f.version
         WHERE f.subject = ?1 AND f.collection = ?2 AND f.field = ?3 AND f.value >= ?4 AND f.value < ?5 LIMIT ?6",
        params![subject, no, field, key::TIME_KEYS.0, &before, ROWS],
        |row| Ok(row.text(0)?.to_owned()),
    )
}

/// A rebuild of a collection in progress.
struct CollectionRebuild<'a> {
    old: &'a Collection,
    new: &'a Collection,
    /// The last version copied.
    last_copied: i64,
    /// The version of the subject at the last step.
    last_version: i64,
    done: i64,
}

impl CollectionRebuild<'_> {
    /// Copies some versions. Returns true once all are copied and the new collection has replaced the old one.
    fn copy_step(&mut self, tx: &mut dyn Tx) -> Result<bool> {
        let (subject, from, to) = (self.old.subject, self.old.no, self.new.no);
        let now = write::lock_subject(tx, subject)?;
        // Another process may have started its own rebuild, which discards this one.
        let ours = Collection::find_rebuild(tx, subject, &self.old.connection, &self.old.stream)?;
        if ours.is_none_or(|ours| ours.no != to) {
            return Err(Error::Busy("another process is building this collection"));
        }
        // Versions copied as current that were superseded since the last step.
        let ended = tx.query_all(
            "SELECT version, until FROM record WHERE subject = ?1 AND collection = ?2 AND until > ?3
             AND until < 9223372036854775807 AND version <= ?4",
            params![subject, from, self.last_version, self.last_copied],
            |row| Ok((row.int(0)?, row.int(1)?)),
        )?;
        for (version, until) in ended {
            write::end_version(tx, self.new, version, until)?;
        }
        let rows = tx.query_all(
            "SELECT version, until, key, ord, deleted, written_ms, emitted_at, data, lifted FROM record
             WHERE subject = ?1 AND collection = ?2 AND version > ?3 ORDER BY version LIMIT ?4",
            params![subject, from, self.last_copied, ROWS],
            |row| {
                Ok(MovedVersion {
                    version: row.int(0)?,
                    until: row.int(1)?,
                    key: row.text(2)?.to_owned(),
                    ord: row.bytes(3)?.to_owned(),
                    deleted: row.int(4)?,
                    written_ms: row.int(5)?,
                    emitted_at: row.text(6)?.to_owned(),
                    data: document::replace_lone_surrogates(row.text(7)?).into_owned(),
                    lifted: row.maybe_text(8)?.map(str::to_owned),
                })
            },
        )?;
        self.copy_rows(tx, rows)?;
        self.last_version = now;
        let left = tx.query_one(
            "SELECT version FROM record WHERE subject = ?1 AND collection = ?2 AND version > ?3 LIMIT 1",
            params![subject, from, self.last_copied],
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

    fn copy_rows(&mut self, tx: &mut dyn Tx, mut rows: Vec<MovedVersion>) -> Result<()> {
        let (subject, from, to) = (self.old.subject, self.old.no, self.new.no);
        let shape = &self.new.shape;
        let mut facts = write::FactBatch::default();
        let mut index = PostingIndex::new(self.new);
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
            let document = RecordDocument::parse(&row.data)
                .ok_or_else(|| Error::Broken("a record is not an object".to_owned()))?;
            row.ord = write::record_position(shape, &document, &row.key);
            if row.until != UNTIL_CURRENT {
                continue;
            }
            let lifted = document::parse_lifted(row.lifted.as_deref())?;
            facts.add(shape, &document, &lifted, &row.ord, row.version);
            for (field, name) in (0..).zip(&shape.lexical) {
                if lifted.iter().any(|own| own.field == *name) {
                    let text = document::read_lifted_text(tx, self.old, row.version, name)?;
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
        tx.insert(INSERT_COPIES, &values)?;
        facts.flush(tx, self.new)?;
        index.flush(tx)?;
        if let Some(last) = rows.last() {
            self.last_copied = last.version;
        }
        self.done += i64::try_from(rows.len()).unwrap_or(0);
        Ok(())
    }
}

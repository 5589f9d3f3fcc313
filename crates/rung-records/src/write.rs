//! Writing records. Each change creates a version and updates the indexes with it.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::declaration::{IndexKind, IndexShape, IndexedField};
use crate::document::{self, LiftedText, RecordDocument};
use crate::scope::Collection;
use crate::search::{PostingIndex, WordIndex};
use crate::store::{BulkInsert, Tx, Value, params};
use crate::{Error, Result, key};

/// The `until` of a current version.
pub(crate) const UNTIL_CURRENT: i64 = i64::MAX;

/// A change to one record.
#[derive(Debug)]
pub(crate) struct RecordChange<'a> {
    pub(crate) key: &'a str,
    pub(crate) emitted_at: &'a str,
    /// `None` deletes the record.
    pub(crate) document: Option<RecordDocument<'a>>,
}

/// The result of applying changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ChangeCounts {
    /// Number of records created, changed or deleted.
    pub(crate) changed: u64,
    /// Number of changes without effect.
    pub(crate) same: u64,
    /// Indexes of the changes that the rule refused.
    pub(crate) refused: Vec<usize>,
}

/// Whether existing records may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeRule {
    AllowChanges,
    /// Append-only.
    AppendOnly,
}

/// Number of keys per query.
const KEYS_PER_QUERY: usize = 100;

const INSERT_RECORDS: BulkInsert = BulkInsert {
    into: "INSERT INTO record (subject, collection, version, until, key, ord, deleted, written_ms, emitted_at, data, lifted)",
    width: 11,
    conflict: "",
};
const INSERT_FACTS: BulkInsert = BulkInsert {
    into: "INSERT INTO fact (subject, collection, field, value, ord, version)",
    width: 6,
    conflict: "",
};
const INSERT_CHUNKS: BulkInsert = BulkInsert {
    into: "INSERT INTO chunk (subject, collection, version, field, start, text)",
    width: 6,
    conflict: "",
};
const INSERT_DEAD: BulkInsert = BulkInsert {
    into: "INSERT INTO dead (subject, collection, version)",
    width: 3,
    conflict: "ON CONFLICT DO NOTHING",
};

/// The current version of a record.
struct CurrentVersion {
    version: i64,
    ord: Vec<u8>,
    deleted: bool,
    data: String,
    lifted: Vec<LiftedText>,
}

/// Locks a subject until the transaction ends and returns its version. Later writers get later versions.
pub(crate) fn lock_subject(tx: &mut dyn Tx, subject: i64) -> Result<i64> {
    tx.execute(
        "UPDATE subject SET version = version WHERE no = ?1",
        params![subject],
    )?;
    let version = tx.query_one(
        "SELECT version FROM subject WHERE no = ?1",
        params![subject],
        |row| row.int(0),
    )?;
    version.ok_or_else(|| Error::Broken("the subject is missing".to_owned()))
}

/// Applies changes in order. Keys must be distinct.
pub(crate) fn apply_changes(
    tx: &mut dyn Tx,
    collection: &mut Collection,
    changes: &[RecordChange<'_>],
    rule: ChangeRule,
    now_ms: i64,
) -> Result<ChangeCounts> {
    debug_assert!(
        changes
            .iter()
            .map(|change| change.key)
            .collect::<HashSet<_>>()
            .len()
            == changes.len()
    );
    let mut version = lock_subject(tx, collection.subject)?;
    let current = load_current(tx, collection, changes)?;
    let mut batch = WriteBatch {
        collection: &*collection,
        now_ms,
        rows: Vec::with_capacity(changes.len()),
        facts: FactBatch::default(),
        index: PostingIndex::new(collection),
    };
    let mut done = ChangeCounts::default();
    let (mut records, mut latest) = (0, None::<&str>);
    for (at, change) in changes.iter().enumerate() {
        let old = current.get(change.key);
        let lives = old.is_some_and(|old| !old.deleted);
        let unchanged = match (&change.document, old) {
            (None, _) => !lives,
            (Some(document), Some(old)) => lives && is_unchanged(document, old),
            (Some(_), None) => false,
        };
        if unchanged {
            done.same += 1;
            continue;
        }
        if lives && rule == ChangeRule::AppendOnly {
            done.refused.push(at);
            continue;
        }
        version += 1;
        done.changed += 1;
        records += i64::from(change.document.is_some()) - i64::from(lives);
        if let Some(old) = old {
            supersede(tx, batch.collection, old, version)?;
        }
        batch.add(version, change, old);
        latest = latest.max(Some(change.emitted_at));
    }
    if done.changed == 0 {
        return Ok(done);
    }
    batch.flush(tx)?;
    tx.execute(
        "UPDATE subject SET version = ?2 WHERE no = ?1",
        params![collection.subject, version],
    )?;
    collection.records += records;
    collection.updated_ms = Some(now_ms);
    if latest > collection.emitted_at.as_deref() {
        collection.emitted_at = latest.map(str::to_owned);
    }
    tx.execute(
        "UPDATE collection SET records = records + ?3, updated_ms = ?4, emitted_at = ?5 WHERE subject = ?1 AND no = ?2",
        params![collection.subject, collection.no, records, now_ms, collection.emitted_at.as_deref()],
    )?;
    Ok(done)
}

fn is_unchanged(document: &RecordDocument<'_>, old: &CurrentVersion) -> bool {
    let lifted = document.lifted.iter().map(|(known, _)| known);
    lifted.eq(&old.lifted) && document::is_same_json(&document.stored, &old.data)
}

fn load_current(
    tx: &mut dyn Tx,
    collection: &Collection,
    changes: &[RecordChange<'_>],
) -> Result<HashMap<String, CurrentVersion>> {
    let mut found = HashMap::new();
    let mut sql = "SELECT key, version, ord, deleted, data, lifted FROM record
        WHERE subject = ?1 AND collection = ?2 AND until = 9223372036854775807 AND key IN (?3"
        .to_owned();
    for at in 1..KEYS_PER_QUERY {
        let _never_fails = write!(sql, ", ?{}", at + 3);
    }
    sql.push(')');
    for some in changes.chunks(KEYS_PER_QUERY) {
        let mut params = vec![Value::Int(collection.subject), Value::Int(collection.no)];
        // One statement for any number of keys: the last one is repeated.
        let last = some.last().map_or("", |change| change.key);
        let keys = some
            .iter()
            .map(|change| change.key)
            .chain(std::iter::repeat(last));
        params.extend(keys.take(KEYS_PER_QUERY).map(Value::Text));
        tx.query(&sql, &params, &mut |row| {
            found.insert(
                row.text(0)?.to_owned(),
                CurrentVersion {
                    version: row.int(1)?,
                    ord: row.bytes(2)?.to_owned(),
                    deleted: row.int(3)? == 1,
                    data: row.text(4)?.to_owned(),
                    lifted: document::parse_lifted(row.maybe_text(5)?)?,
                },
            );
            Ok(true)
        })?;
    }
    Ok(found)
}

/// Returns the position of a record in its stream.
pub(crate) fn record_position(
    shape: &IndexShape,
    document: &RecordDocument<'_>,
    key: &str,
) -> Vec<u8> {
    match &shape.order {
        Some((field, kind)) => key::order_key(document.scalar(field).as_ref(), *kind),
        // Without an order field, records are ordered by key.
        None => key::value_key(&key.into(), key::ValueKind::Text).unwrap_or_default(),
    }
}

/// Ends a current version and deletes its index rows.
fn supersede(
    tx: &mut dyn Tx,
    collection: &Collection,
    old: &CurrentVersion,
    until: i64,
) -> Result<()> {
    let (subject, no) = (collection.subject, collection.no);
    tx.execute(
        "UPDATE record SET until = ?4 WHERE subject = ?1 AND collection = ?2 AND version = ?3",
        params![subject, no, old.version, until],
    )?;
    if old.deleted {
        return Ok(());
    }
    let members = document::members(&old.data);
    let members = members.ok_or_else(|| Error::Broken("a record is not an object".to_owned()))?;
    for (field, fact) in (0..).zip(&collection.shape.facts) {
        let mut keys = Vec::new();
        if let Some(long) = old.lifted.iter().find(|long| long.field == fact.field) {
            keys.extend(lifted_key(long, fact));
        } else if let Some((_, value)) = members.iter().find(|(name, _)| *name == fact.field)
            && let Some(value) = document::scalar_value(value)
        {
            keys.extend(fact_key(&value, fact));
            keys.extend(key::legacy_moment_key(&value, fact.kind));
        }
        for value in keys {
            tx.execute(
                "DELETE FROM fact WHERE subject = ?1 AND collection = ?2 AND field = ?3 AND value = ?4 AND ord = ?5 AND version = ?6",
                params![subject, no, field, &value, index_position(fact, &old.ord), old.version],
            )?;
        }
    }
    if !collection.shape.lexical.is_empty() {
        tx.insert(INSERT_DEAD, params![subject, no, old.version])?;
    }
    Ok(())
}

/// Ends a version that was copied while it was current.
pub(crate) fn end_version(
    tx: &mut dyn Tx,
    collection: &Collection,
    version: i64,
    until: i64,
) -> Result<()> {
    let old = tx.query_one(
        "SELECT version, ord, deleted, data, lifted FROM record WHERE subject = ?1 AND collection = ?2 AND version = ?3
         AND until = 9223372036854775807",
        params![collection.subject, collection.no, version],
        |row| {
            Ok(CurrentVersion {
                version: row.int(0)?,
                ord: row.bytes(1)?.to_owned(),
                deleted: row.int(2)? == 1,
                data: row.text(3)?.to_owned(),
                lifted: document::parse_lifted(row.maybe_text(4)?)?,
            })
        },
    )?;
    match old {
        Some(old) => supersede(tx, collection, &old, until),
        None => Ok(()),
    }
}

/// Index rows of a batch of records, before they are written.
#[derive(Default)]
pub(crate) struct FactBatch {
    /// The position and version of each record.
    records: Vec<(Vec<u8>, i64)>,
    /// The field, the value and the index of the record.
    facts: Vec<(i64, Vec<u8>, usize)>,
}

impl FactBatch {
    /// Adds the index rows of a record. `lifted` describes texts that were lifted out of `document`.
    pub(crate) fn add(
        &mut self,
        shape: &IndexShape,
        document: &RecordDocument<'_>,
        lifted: &[LiftedText],
        ord: &[u8],
        version: i64,
    ) {
        let record = self.records.len();
        for (field, fact) in (0..).zip(&shape.facts) {
            let value = match lifted.iter().find(|long| long.field == fact.field) {
                Some(long) => lifted_key(long, fact),
                None => document
                    .scalar(&fact.field)
                    .and_then(|value| fact_key(&value, fact)),
            };
            self.facts.extend(value.map(|value| (field, value, record)));
        }
        self.records.push((ord.to_vec(), version));
    }

    /// Writes the rows in key order, so that adjacent rows are written together.
    pub(crate) fn flush(mut self, tx: &mut dyn Tx, collection: &Collection) -> Result<()> {
        self.facts
            .sort_unstable_by(|a, b| (a.0, &a.1, a.2).cmp(&(b.0, &b.1, b.2)));
        let mut values = Vec::with_capacity(self.facts.len() * INSERT_FACTS.width);
        let shape = &collection.shape.facts;
        for (field, value, record) in &self.facts {
            let (ord, version) = &self.records[*record];
            let fact = usize::try_from(*field).ok().and_then(|at| shape.get(at));
            let ord = fact.map_or(ord.as_slice(), |fact| index_position(fact, ord));
            values.extend([
                Value::Int(collection.subject),
                Value::Int(collection.no),
                Value::Int(*field),
                Value::Bytes(value),
                Value::Bytes(ord),
                Value::Int(*version),
            ]);
        }
        tx.insert(INSERT_FACTS, &values)
    }
}

/// The rows that one write inserts.
struct WriteBatch<'a, 'd> {
    collection: &'a Collection,
    now_ms: i64,
    rows: Vec<NewVersion<'a, 'd>>,
    facts: FactBatch,
    index: PostingIndex,
}

struct NewVersion<'a, 'd> {
    version: i64,
    ord: Vec<u8>,
    change: &'a RecordChange<'d>,
    lifted: Option<String>,
}

impl<'a, 'd> WriteBatch<'a, 'd> {
    fn add(&mut self, version: i64, change: &'a RecordChange<'d>, old: Option<&CurrentVersion>) {
        let Some(document) = &change.document else {
            // A deletion keeps the position, for readers of an earlier version.
            let ord = old.map_or_else(Vec::new, |old| old.ord.clone());
            self.rows.push(NewVersion {
                version,
                ord,
                change,
                lifted: None,
            });
            return;
        };
        let shape = &self.collection.shape;
        let ord = record_position(shape, document, change.key);
        self.facts.add(shape, document, &[], &ord, version);
        for (field, name) in (0..).zip(&shape.lexical) {
            if let Some(text) = document.text(name) {
                self.index.add(field, version, &text);
            }
        }
        self.rows.push(NewVersion {
            version,
            ord,
            change,
            lifted: document.lifted_json(),
        });
    }

    fn flush(mut self, tx: &mut dyn Tx) -> Result<()> {
        let (subject, no) = (
            Value::Int(self.collection.subject),
            Value::Int(self.collection.no),
        );
        let mut values = Vec::with_capacity(self.rows.len() * INSERT_RECORDS.width);
        for row in &self.rows {
            let document = row.change.document.as_ref();
            values.extend([
                subject,
                no,
                Value::Int(row.version),
                Value::Int(UNTIL_CURRENT),
                Value::Text(row.change.key),
                Value::Bytes(&row.ord),
                Value::Int(i64::from(document.is_none())),
                Value::Int(self.now_ms),
                Value::Text(row.change.emitted_at),
                Value::Text(document.map_or("{}", |document| document.stored.as_ref())),
                row.lifted.as_ref().into(),
            ]);
        }
        tx.insert(INSERT_RECORDS, &values)?;
        for row in self.rows.iter().filter(|row| row.lifted.is_some()) {
            let lifted = row
                .change
                .document
                .iter()
                .flat_map(|document| &document.lifted);
            for (known, text) in lifted {
                let mut values = Vec::new();
                for (start, piece) in document::chunks(text) {
                    values.extend([
                        subject,
                        no,
                        Value::Int(row.version),
                        Value::Text(&known.field),
                        Value::Int(i64::try_from(start).unwrap_or(i64::MAX)),
                        Value::Bytes(piece.as_bytes()),
                    ]);
                }
                // In groups, so that a long text is not sent as one statement.
                for some in values.chunks(100 * INSERT_CHUNKS.width) {
                    tx.insert(INSERT_CHUNKS, some)?;
                }
            }
        }
        self.facts.flush(tx, self.collection)?;
        self.index.flush(tx)
    }
}

/// Returns the index key of a value.
pub(crate) fn fact_key(value: &serde_json::Value, fact: &IndexedField) -> Option<Vec<u8>> {
    match fact.ways {
        IndexKind::All => key::value_key(value, fact.kind),
        IndexKind::Equal => match value {
            serde_json::Value::String(text) => Some(equal_key(text)),
            other => Some(equal_key(&other.to_string())),
        },
    }
}

/// Length of the digest in an equality key. Kept small, because these rows are scattered and each byte costs writes.
const EQUAL_BYTES: usize = 8;

/// Returns the position stored in an index row. Equality indexes store none: few records share a value, and they are
/// sorted when read.
fn index_position<'o>(fact: &IndexedField, ord: &'o [u8]) -> &'o [u8] {
    match fact.ways {
        IndexKind::All => ord,
        IndexKind::Equal => &[],
    }
}

/// Returns the key of a text in an equality index.
pub(crate) fn equal_key(text: &str) -> Vec<u8> {
    Sha256::digest(text.as_bytes())[..EQUAL_BYTES].to_vec()
}

/// Returns the index key of a lifted text.
pub(crate) fn lifted_key(long: &LiftedText, fact: &IndexedField) -> Option<Vec<u8>> {
    let digest = long.sha256.strip_prefix("sha256:")?;
    let digest = data_encoding::HEXLOWER.decode(digest.as_bytes()).ok()?;
    match fact.ways {
        IndexKind::All => Some(key::long_text_key(&long.head, &digest)),
        IndexKind::Equal => digest.get(..EQUAL_BYTES).map(<[u8]>::to_vec),
    }
}

//! Changing records: each change is a version of its own, and what it was found by is changed with it.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::declaration::{Fact, Shape, Ways};
use crate::document::{self, Document, Lifted};
use crate::scope::Collection;
use crate::search::{LexicalIndex, Postings};
use crate::store::{Insert, Tx, Value, params};
use crate::{Error, Result, key};

/// A version that holds ends never.
pub(crate) const NEVER: i64 = i64::MAX;

/// What is to be changed.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    pub(crate) key: &'a str,
    pub(crate) emitted_at: &'a str,
    /// `None` to delete.
    pub(crate) document: Option<Document<'a>>,
}

/// What came of changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Changed {
    /// Records that are new, other than they were, or gone.
    pub(crate) changed: u64,
    /// Records that were so already.
    pub(crate) same: u64,
    /// Records that are there and must not change, by their place among the changes.
    pub(crate) refused: Vec<usize>,
}

/// Whether what is there may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// It may.
    Changes,
    /// It may not: records only come.
    Grows,
}

/// Keys that are looked up at once.
const KEYS: usize = 100;

const RECORDS: Insert = Insert {
    into: "INSERT INTO record (subject, collection, version, until, key, ord, deleted, written_ms, emitted_at, data, lifted)",
    width: 11,
    conflict: "",
};
const FACTS: Insert = Insert {
    into: "INSERT INTO fact (subject, collection, field, value, ord, version)",
    width: 6,
    conflict: "",
};
const CHUNKS: Insert = Insert {
    into: "INSERT INTO chunk (subject, collection, version, field, start, text)",
    width: 6,
    conflict: "",
};
const DEAD: Insert = Insert {
    into: "INSERT INTO dead (subject, collection, version)",
    width: 3,
    conflict: "ON CONFLICT DO NOTHING",
};

/// The record that holds.
struct Current {
    version: i64,
    ord: Vec<u8>,
    deleted: bool,
    data: String,
    lifted: Vec<Lifted>,
}

/// The lock on a subject's versions, held until the transaction ends: who comes later sees later versions.
pub(crate) fn lock(tx: &mut dyn Tx, subject: i64) -> Result<i64> {
    tx.execute(
        "UPDATE subject SET version = version WHERE no = ?1",
        params![subject],
    )?;
    let version = tx.one(
        "SELECT version FROM subject WHERE no = ?1",
        params![subject],
        |row| row.int(0),
    )?;
    version.ok_or_else(|| Error::Broken("the subject is gone".to_owned()))
}

/// Applies changes in their order. No key stands twice among them.
pub(crate) fn apply(
    tx: &mut dyn Tx,
    collection: &mut Collection,
    changes: &[Change<'_>],
    rule: Rule,
    now_ms: i64,
) -> Result<Changed> {
    debug_assert!(
        changes
            .iter()
            .map(|change| change.key)
            .collect::<HashSet<_>>()
            .len()
            == changes.len()
    );
    let mut version = lock(tx, collection.subject)?;
    let current = current(tx, collection, changes)?;
    let mut batch = Batch {
        collection: &*collection,
        now_ms,
        rows: Vec::with_capacity(changes.len()),
        facts: Facts::default(),
        index: Postings::new(collection),
    };
    let mut done = Changed::default();
    let (mut records, mut latest) = (0, None::<&str>);
    for (at, change) in changes.iter().enumerate() {
        let old = current.get(change.key);
        let lives = old.is_some_and(|old| !old.deleted);
        let unchanged = match (&change.document, old) {
            (None, _) => !lives,
            (Some(document), Some(old)) => lives && is_same(document, old),
            (Some(_), None) => false,
        };
        if unchanged {
            done.same += 1;
            continue;
        }
        if lives && rule == Rule::Grows {
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

fn is_same(document: &Document<'_>, old: &Current) -> bool {
    let lifted = document.lifted.iter().map(|(known, _)| known);
    lifted.eq(&old.lifted) && document::same(&document.stored, &old.data)
}

fn current(
    tx: &mut dyn Tx,
    collection: &Collection,
    changes: &[Change<'_>],
) -> Result<HashMap<String, Current>> {
    let mut found = HashMap::new();
    let mut sql = "SELECT key, version, ord, deleted, data, lifted FROM record
        WHERE subject = ?1 AND collection = ?2 AND until = 9223372036854775807 AND key IN (?3"
        .to_owned();
    for at in 1..KEYS {
        let _never_fails = write!(sql, ", ?{}", at + 3);
    }
    sql.push(')');
    for some in changes.chunks(KEYS) {
        let mut params = vec![Value::Int(collection.subject), Value::Int(collection.no)];
        // One statement for any number: what is missing is the last one again.
        let last = some.last().map_or("", |change| change.key);
        let keys = some
            .iter()
            .map(|change| change.key)
            .chain(std::iter::repeat(last));
        params.extend(keys.take(KEYS).map(Value::Text));
        tx.query(&sql, &params, &mut |row| {
            found.insert(
                row.text(0)?.to_owned(),
                Current {
                    version: row.int(1)?,
                    ord: row.bytes(2)?.to_owned(),
                    deleted: row.int(3)? == 1,
                    data: row.text(4)?.to_owned(),
                    lifted: document::lifted(row.maybe_text(5)?)?,
                },
            );
            Ok(true)
        })?;
    }
    Ok(found)
}

/// Where a record stands in its stream.
pub(crate) fn place(shape: &Shape, document: &Document<'_>, key: &str) -> Vec<u8> {
    match &shape.order {
        Some((field, kind)) => key::order(document.scalar(field).as_ref(), *kind),
        // Then the key is all there is to order by.
        None => key::of(&key.into(), key::Kind::Text).unwrap_or_default(),
    }
}

/// Ends a version that held until now: it is found no more.
fn supersede(tx: &mut dyn Tx, collection: &Collection, old: &Current, until: i64) -> Result<()> {
    let (subject, no) = (collection.subject, collection.no);
    tx.execute(
        "UPDATE record SET until = ?4 WHERE subject = ?1 AND collection = ?2 AND version = ?3",
        params![subject, no, old.version, until],
    )?;
    if old.deleted {
        return Ok(());
    }
    let members = document::members(&old.data);
    let members = members.ok_or_else(|| Error::Broken("a record is no object".to_owned()))?;
    for (field, fact) in (0..).zip(&collection.shape.facts) {
        let mut keys = Vec::new();
        if let Some(long) = old.lifted.iter().find(|long| long.field == fact.field) {
            keys.extend(lifted_key(long, fact));
        } else if let Some((_, value)) = members.iter().find(|(name, _)| *name == fact.field)
            && let Some(value) = document::scalar(value)
        {
            keys.extend(fact_key(&value, fact));
            keys.extend(key::earlier(&value, fact.kind));
        }
        for value in keys {
            tx.execute(
                "DELETE FROM fact WHERE subject = ?1 AND collection = ?2 AND field = ?3 AND value = ?4 AND ord = ?5 AND version = ?6",
                params![subject, no, field, &value, ord_in(fact, &old.ord), old.version],
            )?;
        }
    }
    if !collection.shape.lexical.is_empty() {
        tx.insert(DEAD, params![subject, no, old.version])?;
    }
    Ok(())
}

/// Ends a version that was moved here while it held.
pub(crate) fn end(
    tx: &mut dyn Tx,
    collection: &Collection,
    version: i64,
    until: i64,
) -> Result<()> {
    let old = tx.one(
        "SELECT version, ord, deleted, data, lifted FROM record WHERE subject = ?1 AND collection = ?2 AND version = ?3
         AND until = 9223372036854775807",
        params![collection.subject, collection.no, version],
        |row| {
            Ok(Current {
                version: row.int(0)?,
                ord: row.bytes(1)?.to_owned(),
                deleted: row.int(2)? == 1,
                data: row.text(3)?.to_owned(),
                lifted: document::lifted(row.maybe_text(4)?)?,
            })
        },
    )?;
    match old {
        Some(old) => supersede(tx, collection, &old, until),
        None => Ok(()),
    }
}

/// What records are found by, before it is written.
#[derive(Default)]
pub(crate) struct Facts {
    /// Where each record stands, and its version.
    records: Vec<(Vec<u8>, i64)>,
    /// Fields, values, and whose they are.
    facts: Vec<(i64, Vec<u8>, usize)>,
}

impl Facts {
    /// Takes in a record. Of texts that lie elsewhere it is told in `lifted`.
    pub(crate) fn add(
        &mut self,
        shape: &Shape,
        document: &Document<'_>,
        lifted: &[Lifted],
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

    /// Writes them in the order in which they lie: neighbours are written together.
    pub(crate) fn flush(mut self, tx: &mut dyn Tx, collection: &Collection) -> Result<()> {
        self.facts
            .sort_unstable_by(|a, b| (a.0, &a.1, a.2).cmp(&(b.0, &b.1, b.2)));
        let mut values = Vec::with_capacity(self.facts.len() * FACTS.width);
        let shape = &collection.shape.facts;
        for (field, value, record) in &self.facts {
            let (ord, version) = &self.records[*record];
            let fact = usize::try_from(*field).ok().and_then(|at| shape.get(at));
            let ord = fact.map_or(ord.as_slice(), |fact| ord_in(fact, ord));
            values.extend([
                Value::Int(collection.subject),
                Value::Int(collection.no),
                Value::Int(*field),
                Value::Bytes(value),
                Value::Bytes(ord),
                Value::Int(*version),
            ]);
        }
        tx.insert(FACTS, &values)
    }
}

/// Rows that go in together.
struct Batch<'a, 'd> {
    collection: &'a Collection,
    now_ms: i64,
    rows: Vec<NewRow<'a, 'd>>,
    facts: Facts,
    index: Postings,
}

struct NewRow<'a, 'd> {
    version: i64,
    ord: Vec<u8>,
    change: &'a Change<'d>,
    lifted: Option<String>,
}

impl<'a, 'd> Batch<'a, 'd> {
    fn add(&mut self, version: i64, change: &'a Change<'d>, old: Option<&Current>) {
        let Some(document) = &change.document else {
            // It keeps its place: a moment before this one may still be read.
            let ord = old.map_or_else(Vec::new, |old| old.ord.clone());
            self.rows.push(NewRow {
                version,
                ord,
                change,
                lifted: None,
            });
            return;
        };
        let shape = &self.collection.shape;
        let ord = place(shape, document, change.key);
        self.facts.add(shape, document, &[], &ord, version);
        for (field, name) in (0..).zip(&shape.lexical) {
            if let Some(text) = document.text(name) {
                self.index.add(field, version, &text);
            }
        }
        self.rows.push(NewRow {
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
        let mut values = Vec::with_capacity(self.rows.len() * RECORDS.width);
        for row in &self.rows {
            let document = row.change.document.as_ref();
            values.extend([
                subject,
                no,
                Value::Int(row.version),
                Value::Int(NEVER),
                Value::Text(row.change.key),
                Value::Bytes(&row.ord),
                Value::Int(i64::from(document.is_none())),
                Value::Int(self.now_ms),
                Value::Text(row.change.emitted_at),
                Value::Text(document.map_or("{}", |document| document.stored.as_ref())),
                row.lifted.as_ref().into(),
            ]);
        }
        tx.insert(RECORDS, &values)?;
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
                // Pieces go in some at a time: a long text is not sent as one statement.
                for some in values.chunks(100 * CHUNKS.width) {
                    tx.insert(CHUNKS, some)?;
                }
            }
        }
        self.facts.flush(tx, self.collection)?;
        self.index.flush(tx)
    }
}

/// The key by which a record is found by this value of a field.
pub(crate) fn fact_key(value: &serde_json::Value, fact: &Fact) -> Option<Vec<u8>> {
    match fact.ways {
        Ways::All => key::of(value, fact.kind),
        Ways::Equal => match value {
            serde_json::Value::String(text) => Some(equal_key(text)),
            other => Some(equal_key(&other.to_string())),
        },
    }
}

/// Bytes of a digest that tell texts apart. These rows lie scattered: the smaller they are, the cheaper to write.
const EQUAL_BYTES: usize = 8;

/// The place of a record among those with the same value of a field. Where only the same value is asked for there are
/// few of them, and their order is found when they are.
fn ord_in<'o>(fact: &Fact, ord: &'o [u8]) -> &'o [u8] {
    match fact.ways {
        Ways::All => ord,
        Ways::Equal => &[],
    }
}

/// A key by which only the same text is found.
pub(crate) fn equal_key(text: &str) -> Vec<u8> {
    Sha256::digest(text.as_bytes())[..EQUAL_BYTES].to_vec()
}

/// The same key, of a text that lies elsewhere.
pub(crate) fn lifted_key(long: &Lifted, fact: &Fact) -> Option<Vec<u8>> {
    let digest = long.sha256.strip_prefix("sha256:")?;
    let digest = data_encoding::HEXLOWER.decode(digest.as_bytes()).ok()?;
    match fact.ways {
        Ways::All => Some(key::long_text(&long.head, &digest)),
        Ways::Equal => digest.get(..EQUAL_BYTES).map(<[u8]>::to_vec),
    }
}

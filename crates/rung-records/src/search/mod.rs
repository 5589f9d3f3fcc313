//! Finding records by the words in them.

mod find;
mod postings;
pub(crate) mod words;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use crate::Result;
use crate::scope::Collection;
use crate::store::{Insert, Tx, Value, params};
pub(crate) use find::encoded;
pub use find::{Found, SearchQuery};
use postings::{Block, step};
pub(crate) use postings::{Posting, words as words_in};

/// An index of words that is written with the records it finds, in one transaction.
pub(crate) trait LexicalIndex {
    /// Takes in the words of a field.
    fn add(&mut self, field: i64, version: i64, text: &str);

    /// Writes what was taken in.
    fn flush(&mut self, tx: &mut dyn Tx) -> Result<()>;

    /// Where a word occurs in a field, in the order of versions.
    fn find(&self, tx: &mut dyn Tx, field: i64, word: &str) -> Result<Vec<Posting>>;
}

/// Blocks of postings in the same store as the records.
pub(crate) struct Postings {
    subject: i64,
    collection: i64,
    /// By field: the words, and where they occur.
    added: HashMap<i64, HashMap<Box<str>, Block>>,
    /// Words of the text at hand, and how often they occur.
    counts: HashMap<Box<str>, u32>,
}

const BLOCKS: Insert = Insert {
    into: "INSERT INTO posting (subject, collection, field, term, first, docs)",
    width: 6,
    conflict: "ON CONFLICT (subject, collection, field, term, first) DO UPDATE SET docs = excluded.docs",
};
const TAILS: Insert = Insert {
    into: "INSERT INTO tail (subject, collection, field, term, docs)",
    width: 5,
    conflict: "ON CONFLICT (subject, collection, field, term) DO UPDATE SET docs = excluded.docs",
};

/// Words whose blocks are looked up at once.
const TERMS: usize = 200;

/// A block of postings: of which field, of which word, and its first version.
pub(crate) type BlockPlace = (i64, String, i64);

/// Takes dead versions out of some blocks, from a place on. Says where to go on.
pub(crate) fn clean_blocks(
    tx: &mut dyn Tx,
    collection: &Collection,
    dead: &HashSet<i64>,
    from: &BlockPlace,
    blocks: i64,
) -> Result<Option<BlockPlace>> {
    let (subject, no) = (collection.subject, collection.no);
    let rows = tx.all(
        "SELECT field, term, first, docs FROM posting WHERE subject = ?1 AND collection = ?2
         AND (field, term, first) > (?3, ?4, ?5) ORDER BY field, term, first LIMIT ?6",
        params![subject, no, from.0, &from.1, from.2, blocks],
        |row| {
            Ok((
                row.int(0)?,
                row.text(1)?.to_owned(),
                row.int(2)?,
                row.bytes(3)?.to_owned(),
            ))
        },
    )?;
    for (field, term, first, docs) in &rows {
        let place = params![subject, no, *field, term, *first];
        match without(docs, dead)? {
            None => {}
            Some(left) if left.is_empty() => {
                tx.execute(
                    "DELETE FROM posting WHERE subject = ?1 AND collection = ?2 AND field = ?3 AND term = ?4 AND first = ?5",
                    place,
                )?;
            }
            Some(left) => tx.insert(BLOCKS, &[&place[..], &[Value::Bytes(&left)]].concat())?,
        }
    }
    let full = i64::try_from(rows.len()).unwrap_or(0) == blocks;
    let last = rows.into_iter().next_back().filter(|_| full);
    Ok(last.map(|(field, term, first, _)| (field, term, first)))
}

/// The same for blocks that are still filled.
pub(crate) fn clean_tails(
    tx: &mut dyn Tx,
    collection: &Collection,
    dead: &HashSet<i64>,
    from: &(i64, String),
    tails: i64,
) -> Result<Option<(i64, String)>> {
    let (subject, no) = (collection.subject, collection.no);
    let rows = tx.all(
        "SELECT field, term, docs FROM tail WHERE subject = ?1 AND collection = ?2
         AND (field, term) > (?3, ?4) ORDER BY field, term LIMIT ?5",
        params![subject, no, from.0, &from.1, tails],
        |row| {
            Ok((
                row.int(0)?,
                row.text(1)?.to_owned(),
                row.bytes(2)?.to_owned(),
            ))
        },
    )?;
    for (field, term, docs) in &rows {
        let place = params![subject, no, *field, term];
        match without(docs, dead)? {
            None => {}
            Some(left) if left.is_empty() => {
                tx.execute(
                    "DELETE FROM tail WHERE subject = ?1 AND collection = ?2 AND field = ?3 AND term = ?4",
                    place,
                )?;
            }
            Some(left) => tx.insert(TAILS, &[&place[..], &[Value::Bytes(&left)]].concat())?,
        }
    }
    let full = i64::try_from(rows.len()).unwrap_or(0) == tails;
    let last = rows.into_iter().next_back().filter(|_| full);
    Ok(last.map(|(field, term, _)| (field, term)))
}

/// A block without dead versions. `None` if there are none in it.
fn without(docs: &[u8], dead: &HashSet<i64>) -> Result<Option<Vec<u8>>> {
    let mut all = Vec::new();
    Block::read(docs)?.postings(&mut all)?;
    let before = all.len();
    all.retain(|posting| !dead.contains(&posting.version));
    if all.len() == before {
        return Ok(None);
    }
    let mut left = Vec::new();
    let mut block = Block::default();
    for posting in all {
        block.push(posting);
    }
    if !block.is_empty() {
        block.write(&mut left);
    }
    Ok(Some(left))
}

impl Postings {
    pub(crate) fn new(collection: &Collection) -> Self {
        Self {
            subject: collection.subject,
            collection: collection.no,
            added: HashMap::new(),
            counts: HashMap::new(),
        }
    }

    /// Adds what was taken in to blocks that are still filled, and closes those that are full.
    fn append(&self, tx: &mut dyn Tx, field: i64, some: &[(Box<str>, Block)]) -> Result<()> {
        let (subject, collection) = (Value::Int(self.subject), Value::Int(self.collection));
        let mut params = vec![subject, collection, Value::Int(field)];
        let last = some.last().map_or("", |(term, _)| term);
        let names = some.iter().map(|(term, _)| term.as_ref());
        params.extend(
            names
                .chain(std::iter::repeat(last))
                .take(TERMS)
                .map(Value::Text),
        );
        let mut open: HashMap<String, Block> = HashMap::with_capacity(some.len());
        tx.query(&tails_sql(), &params, &mut |row| {
            open.insert(row.text(0)?.to_owned(), Block::read(row.bytes(1)?)?);
            Ok(true)
        })?;
        let (mut full, mut tails) = (Vec::new(), Vec::with_capacity(some.len()));
        for (term, added) in some {
            let mut block = open.remove(term.as_ref()).unwrap_or_default();
            block.append(added, |closed| {
                full.push((term.as_ref(), closed.first, closed.bytes()));
            })?;
            tails.push((term.as_ref(), block.bytes()));
        }
        let tails: Vec<Value<'_>> = tails
            .iter()
            .flat_map(|(term, docs)| {
                [
                    subject,
                    collection,
                    Value::Int(field),
                    Value::Text(term),
                    Value::Bytes(docs),
                ]
            })
            .collect();
        tx.insert(TAILS, &tails)?;
        let full: Vec<Value<'_>> = full
            .iter()
            .flat_map(|(term, first, docs)| {
                [
                    subject,
                    collection,
                    Value::Int(field),
                    Value::Text(term),
                    Value::Int(*first),
                    Value::Bytes(docs),
                ]
            })
            .collect();
        tx.insert(BLOCKS, &full)
    }
}

/// Asks for the blocks of some words that are still filled.
fn tails_sql() -> String {
    let mut sql = "SELECT term, docs FROM tail WHERE subject = ?1 AND collection = ?2 AND field = ?3 AND term IN (?4".to_owned();
    for at in 1..TERMS {
        let _never_fails = write!(sql, ", ?{}", at + 4);
    }
    sql.push(')');
    sql
}

impl LexicalIndex for Postings {
    fn add(&mut self, field: i64, version: i64, text: &str) {
        let mut length = 0;
        let counts = &mut self.counts;
        words::each(text, |word, _| {
            length += 1;
            match counts.get_mut(word) {
                Some(times) => *times += 1,
                None => {
                    counts.insert(word.into(), 1);
                }
            }
        });
        let length = step(length);
        let terms = self.added.entry(field).or_default();
        for (word, times) in counts.drain() {
            let posting = Posting {
                version,
                times,
                length,
            };
            terms.entry(word).or_default().push(posting);
        }
    }

    fn flush(&mut self, tx: &mut dyn Tx) -> Result<()> {
        for (field, terms) in std::mem::take(&mut self.added) {
            // In the order in which they lie: neighbours are read and written together.
            let mut terms: Vec<(Box<str>, Block)> = terms.into_iter().collect();
            terms.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            for some in terms.chunks(TERMS) {
                self.append(tx, field, some)?;
            }
        }
        Ok(())
    }

    fn find(&self, tx: &mut dyn Tx, field: i64, word: &str) -> Result<Vec<Posting>> {
        let mut found = Vec::new();
        for sql in [
            "SELECT docs FROM posting WHERE subject = ?1 AND collection = ?2 AND field = ?3 AND term = ?4 ORDER BY first",
            "SELECT docs FROM tail WHERE subject = ?1 AND collection = ?2 AND field = ?3 AND term = ?4",
        ] {
            tx.query(
                sql,
                params![self.subject, self.collection, field, word],
                &mut |row| {
                    Block::read(row.bytes(0)?)?.postings(&mut found)?;
                    Ok(true)
                },
            )?;
        }
        Ok(found)
    }
}

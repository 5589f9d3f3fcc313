//! Full-text search over records.

mod lexical_query;
mod postings;
pub(crate) mod tokenizer;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use crate::Result;
use crate::scope::Collection;
use crate::store::{BulkInsert, Tx, Value, params};
pub(crate) use lexical_query::percent_encode;
pub use lexical_query::{SearchPage, SearchQuery};
pub(crate) use postings::{Posting, words_of_step as words_in};
use postings::{PostingBlock, length_step};

/// A word index, written in the same transaction as the records.
pub(crate) trait WordIndex {
    /// Buffers the words of a field.
    fn add(&mut self, field: i64, version: i64, text: &str);

    /// Writes the buffered words.
    fn flush(&mut self, tx: &mut dyn Tx) -> Result<()>;

    /// Returns the occurrences of a word in a field, by version.
    fn find(&self, tx: &mut dyn Tx, field: i64, word: &str) -> Result<Vec<Posting>>;
}

/// The word index stored in the record store, as blocks of postings.
pub(crate) struct PostingIndex {
    subject: i64,
    collection: i64,
    /// The buffered postings, by field and word.
    added: HashMap<i64, HashMap<Box<str>, PostingBlock>>,
    /// Word counts of the text being added. Reused between texts.
    counts: HashMap<Box<str>, u32>,
}

const INSERT_BLOCKS: BulkInsert = BulkInsert {
    into: "INSERT INTO posting (subject, collection, field, term, first, docs)",
    width: 6,
    conflict: "ON CONFLICT (subject, collection, field, term, first) DO UPDATE SET docs = excluded.docs",
};
const INSERT_TAILS: BulkInsert = BulkInsert {
    into: "INSERT INTO tail (subject, collection, field, term, docs)",
    width: 5,
    conflict: "ON CONFLICT (subject, collection, field, term) DO UPDATE SET docs = excluded.docs",
};

/// Number of words per query.
const TERMS_PER_QUERY: usize = 200;

/// The position of a block: field, word and first version.
pub(crate) type BlockPosition = (i64, String, i64);

/// Removes dead versions from up to `blocks` blocks after a position. Returns the position to continue at.
pub(crate) fn clean_blocks(
    tx: &mut dyn Tx,
    collection: &Collection,
    dead: &HashSet<i64>,
    from: &BlockPosition,
    blocks: i64,
) -> Result<Option<BlockPosition>> {
    let (subject, no) = (collection.subject, collection.no);
    let rows = tx.query_all(
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
        match without_versions(docs, dead)? {
            None => {}
            Some(left) if left.is_empty() => {
                tx.execute(
                    "DELETE FROM posting WHERE subject = ?1 AND collection = ?2 AND field = ?3 AND term = ?4 AND first = ?5",
                    place,
                )?;
            }
            Some(left) => tx.insert(
                INSERT_BLOCKS,
                &[&place[..], &[Value::Bytes(&left)]].concat(),
            )?,
        }
    }
    let full = i64::try_from(rows.len()).unwrap_or(0) == blocks;
    let last = rows.into_iter().next_back().filter(|_| full);
    Ok(last.map(|(field, term, first, _)| (field, term, first)))
}

/// Removes dead versions from open blocks (tails), as [`clean_blocks`] does.
pub(crate) fn clean_tails(
    tx: &mut dyn Tx,
    collection: &Collection,
    dead: &HashSet<i64>,
    from: &(i64, String),
    tails: i64,
) -> Result<Option<(i64, String)>> {
    let (subject, no) = (collection.subject, collection.no);
    let rows = tx.query_all(
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
        match without_versions(docs, dead)? {
            None => {}
            Some(left) if left.is_empty() => {
                tx.execute(
                    "DELETE FROM tail WHERE subject = ?1 AND collection = ?2 AND field = ?3 AND term = ?4",
                    place,
                )?;
            }
            Some(left) => {
                tx.insert(INSERT_TAILS, &[&place[..], &[Value::Bytes(&left)]].concat())?;
            }
        }
    }
    let full = i64::try_from(rows.len()).unwrap_or(0) == tails;
    let last = rows.into_iter().next_back().filter(|_| full);
    Ok(last.map(|(field, term, _)| (field, term)))
}

/// Returns a block without dead versions, or `None` if it contains none.
fn without_versions(docs: &[u8], dead: &HashSet<i64>) -> Result<Option<Vec<u8>>> {
    let mut all = Vec::new();
    PostingBlock::decode(docs)?.decode_into(&mut all)?;
    let before = all.len();
    all.retain(|posting| !dead.contains(&posting.version));
    if all.len() == before {
        return Ok(None);
    }
    let mut left = Vec::new();
    let mut block = PostingBlock::default();
    for posting in all {
        block.push(posting);
    }
    if !block.is_empty() {
        block.encode(&mut left);
    }
    Ok(Some(left))
}

impl PostingIndex {
    pub(crate) fn new(collection: &Collection) -> Self {
        Self {
            subject: collection.subject,
            collection: collection.no,
            added: HashMap::new(),
            counts: HashMap::new(),
        }
    }

    /// Appends the buffered postings to the open blocks and closes the full ones.
    fn append_to_tails(
        &self,
        tx: &mut dyn Tx,
        field: i64,
        some: &[(Box<str>, PostingBlock)],
    ) -> Result<()> {
        let (subject, collection) = (Value::Int(self.subject), Value::Int(self.collection));
        let mut params = vec![subject, collection, Value::Int(field)];
        let last = some.last().map_or("", |(term, _)| term);
        let names = some.iter().map(|(term, _)| term.as_ref());
        params.extend(
            names
                .chain(std::iter::repeat(last))
                .take(TERMS_PER_QUERY)
                .map(Value::Text),
        );
        let mut open: HashMap<String, PostingBlock> = HashMap::with_capacity(some.len());
        tx.query(&tails_sql(), &params, &mut |row| {
            open.insert(
                row.text(0)?.to_owned(),
                PostingBlock::decode(row.bytes(1)?)?,
            );
            Ok(true)
        })?;
        let (mut full, mut tails) = (Vec::new(), Vec::with_capacity(some.len()));
        for (term, added) in some {
            let mut block = open.remove(term.as_ref()).unwrap_or_default();
            block.append(added, |closed| {
                full.push((term.as_ref(), closed.first, closed.to_bytes()));
            })?;
            tails.push((term.as_ref(), block.to_bytes()));
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
        tx.insert(INSERT_TAILS, &tails)?;
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
        tx.insert(INSERT_BLOCKS, &full)
    }
}

/// Builds the query for the open blocks of [`TERMS_PER_QUERY`] words.
fn tails_sql() -> String {
    let mut sql = "SELECT term, docs FROM tail WHERE subject = ?1 AND collection = ?2 AND field = ?3 AND term IN (?4".to_owned();
    for at in 1..TERMS_PER_QUERY {
        let _never_fails = write!(sql, ", ?{}", at + 4);
    }
    sql.push(')');
    sql
}

impl WordIndex for PostingIndex {
    fn add(&mut self, field: i64, version: i64, text: &str) {
        let mut length = 0;
        let counts = &mut self.counts;
        tokenizer::for_each_word(text, |word, _| {
            length += 1;
            match counts.get_mut(word) {
                Some(times) => *times += 1,
                None => {
                    counts.insert(word.into(), 1);
                }
            }
        });
        let length = length_step(length);
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
            // In key order, so that adjacent rows are accessed together.
            let mut terms: Vec<(Box<str>, PostingBlock)> = terms.into_iter().collect();
            terms.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            for some in terms.chunks(TERMS_PER_QUERY) {
                self.append_to_tails(tx, field, some)?;
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
                    PostingBlock::decode(row.bytes(0)?)?.decode_into(&mut found)?;
                    Ok(true)
                },
            )?;
        }
        Ok(found)
    }
}

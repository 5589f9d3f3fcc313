//! The documents that have a term, in the order of their numbers, in blocks.
//!
//! A block has up to [`BLOCK`] documents and lies under a bound that none of its numbers exceeds. The last one lies under
//! [`NO_DOC`], so that a document is added without a key being changed; full ones lie under their last number. A block begins with the
//! greatest weight in it, by which it can be passed over.

use std::sync::LazyLock;

use rung_kv::{Batch, Table, View};

use super::rows::{DocId, NO_DOC, TermId, block_key, last_number, put_number, take_number};
use crate::{Error, Result};

/// Documents of a block, at most.
const BLOCK: usize = 128;

/// A document that has a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Posting {
    pub(super) doc: DocId,
    /// How often it has it.
    pub(super) times: u32,
    /// How many terms it has.
    pub(super) unique: u32,
}

impl Posting {
    /// What the term is worth in the document, the rarity of the term left aside.
    pub(super) fn weight(self) -> f64 {
        weight_of_times(self.times) / f64::from(self.unique)
    }
}

/// What is said often is worth more, though not as often as it is said.
pub(super) fn weight_of_times(times: u32) -> f64 {
    static FEW: LazyLock<[f64; 64]> = LazyLock::new(|| {
        let mut times = 0.0;
        std::array::from_fn(|_| {
            times += 1.0;
            f64::log10(times) + 1.0
        })
    });
    // Once is the usual; not at all is not asked.
    let before = times.saturating_sub(1);
    match (before, FEW.get(before as usize)) {
        (0, _) => 1.0,
        (_, Some(weight)) => *weight,
        (_, None) => f64::from(times).log10() + 1.0,
    }
}

fn put_block(
    batch: &mut Batch<'_>,
    table: Table,
    term: TermId,
    bound: DocId,
    postings: &[Posting],
) -> Result<()> {
    let most = postings.iter().map(|one| one.weight()).fold(0.0, f64::max);
    let mut row = most.to_le_bytes().to_vec();
    let mut before = 0;
    for posting in postings {
        put_number(posting.doc - before, &mut row);
        put_number(posting.times, &mut row);
        put_number(posting.unique, &mut row);
        before = posting.doc;
    }
    Ok(batch.put(table, &block_key(term, bound), &row)?)
}

/// Reads a block into `postings`, and gives its greatest weight.
fn take_block(row: &[u8], postings: &mut Vec<Posting>) -> Result<f64> {
    postings.clear();
    let corrupt = || Error::corrupt("block of documents");
    let (most, mut rest) = row.split_first_chunk().ok_or_else(corrupt)?;
    let mut doc: DocId = 0;
    while !rest.is_empty() {
        let further = take_number(&mut rest)?;
        doc = doc.checked_add(further).ok_or_else(corrupt)?;
        postings.push(Posting {
            doc,
            times: take_number(&mut rest)?,
            unique: take_number(&mut rest)?,
        });
    }
    if postings.is_empty() {
        return Err(corrupt());
    }
    Ok(f64::from_le_bytes(*most))
}

/// The first block of a term that may have a document or one after it, with its bound.
fn block_from(
    view: View<'_>,
    table: Table,
    term: TermId,
    doc: DocId,
) -> Result<Option<(DocId, &[u8])>> {
    let key = block_key(term, doc);
    match view.first_from(table, &key)? {
        Some((found, row)) if found.starts_with(&key[..5]) => Ok(Some((last_number(found)?, row))),
        _ => Ok(None),
    }
}

/// Adds documents, all of them after those that are there.
pub(super) fn append(
    batch: &mut Batch<'_>,
    table: Table,
    term: TermId,
    added: &[Posting],
) -> Result<()> {
    let mut all = Vec::new();
    if let Some(row) = batch.view().get(table, &block_key(term, NO_DOC))? {
        take_block(row, &mut all)?;
    }
    all.extend_from_slice(added);
    let mut blocks = all.chunks(BLOCK).peekable();
    while let Some(block) = blocks.next() {
        let bound = match (blocks.peek(), block.last()) {
            (Some(_), Some(last)) => last.doc,
            _ => NO_DOC,
        };
        put_block(batch, table, term, bound, block)?;
    }
    Ok(())
}

/// Removes documents, which are given in order.
pub(super) fn remove(
    batch: &mut Batch<'_>,
    table: Table,
    term: TermId,
    mut removed: &[DocId],
) -> Result<()> {
    let mut postings = Vec::new();
    while let Some(&first) = removed.first() {
        let corrupt = || Error::corrupt("document of a term");
        let (bound, row) = block_from(batch.view(), table, term, first)?.ok_or_else(corrupt)?;
        take_block(row, &mut postings)?;
        let (here, further) = removed.split_at(removed.partition_point(|&doc| doc <= bound));
        let before = postings.len();
        postings.retain(|posting| here.binary_search(&posting.doc).is_err());
        if before - postings.len() != here.len() {
            return Err(corrupt());
        }
        if postings.is_empty() {
            batch.delete(table, &block_key(term, bound))?;
        } else {
            put_block(batch, table, term, bound, &postings)?;
        }
        removed = further;
    }
    Ok(())
}

/// A place among the documents of a term.
pub(super) struct Cursor<'t> {
    view: View<'t>,
    table: Table,
    term: TermId,
    block: Vec<Posting>,
    at: usize,
    /// The number of the document here.
    doc: DocId,
    /// The bound of the block.
    bound: DocId,
    /// The greatest weight in the block.
    most: f64,
}

impl<'t> Cursor<'t> {
    /// At the first document of a term.
    pub(super) fn new(view: View<'t>, table: Table, term: TermId) -> Result<Self> {
        let mut cursor = Self {
            view,
            table,
            term,
            block: Vec::new(),
            at: 0,
            doc: NO_DOC,
            bound: 0,
            most: 0.0,
        };
        // Numbers begin with one.
        cursor.seek(1)?;
        Ok(cursor)
    }

    fn load(&mut self, doc: DocId) -> Result<()> {
        self.at = 0;
        if let Some((bound, row)) = block_from(self.view, self.table, self.term, doc)? {
            self.most = take_block(row, &mut self.block)?;
            self.bound = bound;
        } else {
            self.block.clear();
            self.bound = NO_DOC;
        }
        Ok(())
    }

    /// The document here.
    pub(super) fn posting(&self) -> Option<Posting> {
        self.block.get(self.at).copied()
    }

    /// The number of the document here, or [`NO_DOC`] after the last.
    pub(super) fn doc(&self) -> DocId {
        self.doc
    }

    /// The greatest weight up to [`Cursor::bound`].
    pub(super) fn most(&self) -> f64 {
        self.most
    }

    /// The last number that the block can have.
    pub(super) fn bound(&self) -> DocId {
        self.bound
    }

    /// Goes on to a document or the first one after it.
    pub(super) fn seek(&mut self, doc: DocId) -> Result<()> {
        loop {
            if self.block.last().is_some_and(|last| last.doc >= doc) {
                // Mostly it is the next one.
                while self.block[self.at].doc < doc {
                    self.at += 1;
                }
                self.doc = self.block[self.at].doc;
                return Ok(());
            }
            if self.bound == NO_DOC {
                self.at = self.block.len();
                self.doc = NO_DOC;
                return Ok(());
            }
            self.load(doc.max(self.bound + 1))?;
        }
    }
}

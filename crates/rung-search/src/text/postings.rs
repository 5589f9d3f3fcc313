//! Posting lists: the documents that have a term, in blocks, in the order of their numbers.
//!
//! A block has up to [`BLOCK`] documents; its key is a bound that none of its numbers exceeds. The key of the last block is
//! [`NO_DOC`], so that adding a document changes no key; the key of a full one is its last number. A block begins with its
//! greatest weight, by which it can be skipped.

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
    /// Occurrences of the term in the document.
    pub(super) times: u32,
    /// Distinct terms of the document.
    pub(super) unique: u32,
}

impl Posting {
    /// Returns the weight of the term in the document, without the rarity of the term.
    pub(super) fn weight(self) -> f64 {
        weight_of_times(self.times) / f64::from(self.unique)
    }
}

/// Returns the weight of a term frequency, which grows logarithmically.
pub(super) fn weight_of_times(times: u32) -> f64 {
    static FEW: LazyLock<[f64; 64]> = LazyLock::new(|| {
        let mut times = 0.0;
        std::array::from_fn(|_| {
            times += 1.0;
            f64::log10(times) + 1.0
        })
    });
    // One is the usual frequency; zero does not occur.
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

/// Reads a block into `postings`. Returns its greatest weight.
fn read_block(row: &[u8], postings: &mut Vec<Posting>) -> Result<f64> {
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

/// Returns the first block of a term that may have `doc` or a later document, with its bound.
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

/// Appends documents, all with greater numbers than the existing ones.
pub(super) fn append(
    batch: &mut Batch<'_>,
    table: Table,
    term: TermId,
    added: &[Posting],
) -> Result<()> {
    let mut all = Vec::new();
    if let Some(row) = batch.view().get(table, &block_key(term, NO_DOC))? {
        read_block(row, &mut all)?;
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

/// Removes documents, given in order.
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
        read_block(row, &mut postings)?;
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

/// A cursor over the documents of a term.
pub(super) struct PostingCursor<'t> {
    view: View<'t>,
    table: Table,
    term: TermId,
    block: Vec<Posting>,
    at: usize,
    /// The number of the current document.
    doc: DocId,
    /// The bound of the block.
    bound: DocId,
    /// The greatest weight in the block.
    max_weight: f64,
}

impl<'t> PostingCursor<'t> {
    /// Creates a cursor at the first document of a term.
    pub(super) fn new(view: View<'t>, table: Table, term: TermId) -> Result<Self> {
        let mut cursor = Self {
            view,
            table,
            term,
            block: Vec::new(),
            at: 0,
            doc: NO_DOC,
            bound: 0,
            max_weight: 0.0,
        };
        // Numbers begin with one.
        cursor.seek(1)?;
        Ok(cursor)
    }

    fn load(&mut self, doc: DocId) -> Result<()> {
        self.at = 0;
        if let Some((bound, row)) = block_from(self.view, self.table, self.term, doc)? {
            self.max_weight = read_block(row, &mut self.block)?;
            self.bound = bound;
        } else {
            self.block.clear();
            self.bound = NO_DOC;
        }
        Ok(())
    }

    /// Returns the current posting.
    pub(super) fn posting(&self) -> Option<Posting> {
        self.block.get(self.at).copied()
    }

    /// Returns the number of the current document, or [`NO_DOC`] after the last.
    pub(super) fn doc(&self) -> DocId {
        self.doc
    }

    /// Returns the greatest weight up to [`PostingCursor::bound`].
    pub(super) fn max_weight(&self) -> f64 {
        self.max_weight
    }

    /// Returns the last number that the block can have.
    pub(super) fn bound(&self) -> DocId {
        self.bound
    }

    /// Advances to a document or the first one after it.
    pub(super) fn seek(&mut self, doc: DocId) -> Result<()> {
        loop {
            if self.block.last().is_some_and(|last| last.doc >= doc) {
                // Usually it is the next one.
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

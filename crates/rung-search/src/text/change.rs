//! Adding and removing documents.
//!
//! Changes of terms are collected and written once per term, in the order of keys. Rows of a single document are written at
//! once. Large collections are written in between, so that memory is bounded for any number of documents.

use std::collections::HashMap;

use rung_kv::{Batch, Table};
use rustc_hash::FxHashMap;

use super::analyze::Analyzer;
use super::forward;
use super::options::TextOptions;
use super::postings::{self, Posting};
use super::rows::{
    Counters, DocId, TermEntry, TermId, doc_key, doc_of, reference_key, term_key, term_text_key,
    text_key,
};
use crate::{Error, Result};

/// Postings that are collected before they are written.
const MAX_COLLECTED: usize = 2_000_000;

/// A change of a document in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentChange<R, T> {
    /// Adds a document, and replaces the one with the same reference.
    Add(R, T),
    /// Removes the document of a reference, if there is one.
    Remove(R),
}

/// The collected changes of a term.
#[derive(Debug, Default)]
struct TermChanges {
    added: Vec<Posting>,
    removed: Vec<DocId>,
}

/// Collects changes and writes them to an index.
pub(super) struct TextIndexWriter {
    table: Table,
    options: TextOptions,
    analyzer: Analyzer,
    counters: Counters,
    /// Numbers of terms that were looked up.
    term_ids: HashMap<Box<str>, TermId>,
    /// By number of the term.
    changes: FxHashMap<TermId, TermChanges>,
    collected: usize,
    /// The number of collected postings after which they are written.
    max_collected: usize,
}

impl TextIndexWriter {
    pub(super) fn new(batch: &Batch<'_>, table: Table, options: TextOptions) -> Result<Self> {
        Ok(Self {
            table,
            options,
            analyzer: Analyzer::new(options),
            counters: Counters::read(batch.view(), table)?,
            term_ids: HashMap::new(),
            changes: FxHashMap::default(),
            collected: 0,
            max_collected: MAX_COLLECTED,
        })
    }

    pub(super) fn add(
        &mut self,
        batch: &mut Batch<'_>,
        reference: &[u8],
        text: &str,
    ) -> Result<()> {
        self.remove(batch, reference)?;
        if text.trim().is_empty() {
            return Ok(());
        }
        let doc = self.counters.new_doc()?;
        let mut terms = Vec::new();
        let (known, counters) = (&mut self.term_ids, &mut self.counters);
        self.analyzer.terms(text, |term, place| {
            let id = if let Some(id) = known.get(term) {
                *id
            } else {
                let found = TermEntry::read(batch.view(), self.table, term)?;
                let id = match found {
                    Some(found) => found.id,
                    None => counters.new_term()?,
                };
                known.insert(term.into(), id);
                id
            };
            terms.push((id, place));
            Ok::<_, Error>(())
        })?;
        // By term; the occurrences of a term are in order already.
        terms.sort_by_key(|(term, _)| *term);
        forward::put(batch, self.table, doc, &terms, self.options.index_position)?;
        let groups = || terms.chunk_by(|one, other| one.0 == other.0);
        let unique = u32::try_from(groups().count()).map_err(|_| Error::Full)?;
        for group in groups() {
            let posting = Posting {
                doc,
                times: u32::try_from(group.len()).map_err(|_| Error::Full)?,
                unique,
            };
            let difference = self.changes.entry(group[0].0).or_default();
            difference.added.push(posting);
            self.collected += 1;
        }
        batch.put(self.table, &doc_key(doc), reference)?;
        batch.put(self.table, &reference_key(reference), &doc.to_be_bytes())?;
        if self.options.include_text {
            batch.put(self.table, &text_key(doc), text.as_bytes())?;
        }
        self.write_if_full(batch)
    }

    /// Removes a document. Returns true if it existed.
    pub(super) fn remove(&mut self, batch: &mut Batch<'_>, reference: &[u8]) -> Result<bool> {
        let Some(doc) = doc_of(batch.view(), self.table, reference)? else {
            return Ok(false);
        };
        for term in forward::remove(batch, self.table, doc, self.options.index_position)? {
            let difference = self.changes.entry(term).or_default();
            let added = &mut difference.added;
            if let Ok(at) = added.binary_search_by_key(&doc, |posting| posting.doc) {
                added.remove(at);
            } else {
                difference.removed.push(doc);
                self.collected += 1;
            }
        }
        batch.delete(self.table, &doc_key(doc))?;
        batch.delete(self.table, &reference_key(reference))?;
        batch.delete(self.table, &text_key(doc))?;
        self.counters.docs -= 1;
        self.write_if_full(batch)?;
        Ok(true)
    }

    fn write_if_full(&mut self, batch: &mut Batch<'_>) -> Result<()> {
        if self.collected >= self.max_collected {
            self.write(batch)?;
        }
        Ok(())
    }

    /// Writes the collected changes.
    pub(super) fn write(&mut self, batch: &mut Batch<'_>) -> Result<()> {
        let table = self.table;
        let known = std::mem::take(&mut self.term_ids);
        let letters: FxHashMap<TermId, Box<str>> =
            known.into_iter().map(|(term, id)| (id, term)).collect();
        let mut differences: Vec<_> = self.changes.drain().collect();
        differences.sort_unstable_by_key(|(id, _)| *id);
        for (id, mut difference) in differences {
            if difference.added.is_empty() && difference.removed.is_empty() {
                continue;
            }
            let term = match letters.get(&id) {
                Some(term) => term.clone(),
                None => read_term(batch, table, id)?,
            };
            let before = TermEntry::read(batch.view(), table, &term)?;
            difference.removed.sort_unstable();
            postings::remove(batch, table, id, &difference.removed)?;
            if !difference.added.is_empty() {
                postings::append(batch, table, id, &difference.added)?;
            }
            let count = |some: usize| u32::try_from(some).map_err(|_| Error::Full);
            let docs = before.map_or(0, |known| known.docs) + count(difference.added.len())?;
            let docs = docs
                .checked_sub(count(difference.removed.len())?)
                .ok_or_else(|| Error::corrupt("count of a term"))?;
            if docs == 0 {
                batch.delete(table, &term_key(&term))?;
                batch.delete(table, &term_text_key(id))?;
                continue;
            }
            TermEntry { id, docs }.write(batch, table, &term)?;
            if before.is_none() {
                batch.put(table, &term_text_key(id), term.as_bytes())?;
            }
        }
        self.collected = 0;
        self.counters.write(batch, table)
    }
}

fn read_term(batch: &Batch<'_>, table: Table, id: TermId) -> Result<Box<str>> {
    let row = batch.view().get(table, &term_text_key(id))?;
    let letters = row.and_then(|row| std::str::from_utf8(row).ok());
    Ok(letters.ok_or_else(|| Error::corrupt("term"))?.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rung_kv::{Kv, KvOptions};

    use super::super::postings::PostingCursor;
    use super::*;
    use crate::text::TextIndex;

    /// The postings of every term after the same changes, written whenever `most` were collected.
    fn terms(most: usize) -> BTreeMap<Vec<u8>, Vec<Posting>> {
        let folder = tempfile::tempdir().unwrap();
        let kv = Kv::open(folder.path(), KvOptions::default()).unwrap();
        let options = TextOptions::default();
        let table = TextIndex::create(&kv, "a", options).unwrap().table;
        kv.write(|batch| {
            let mut writer = TextIndexWriter::new(batch, table, options)?;
            writer.max_collected = most;
            for n in 0..400_u32 {
                let text = format!("all some{} other{} word{n}", n % 3, n % 50);
                writer.add(batch, &(n % 300).to_be_bytes(), &text)?;
                if n % 7 == 0 {
                    writer.remove(batch, &(n / 2).to_be_bytes())?;
                }
            }
            writer.write(batch)
        })
        .unwrap();
        kv.read(|view| {
            let mut terms = BTreeMap::new();
            for pair in view.prefix(table, b"t")? {
                let term = pair?.0;
                let known = TermEntry::read(view, table, std::str::from_utf8(&term[1..]).unwrap())?;
                let mut cursor = PostingCursor::new(view, table, known.unwrap().id)?;
                let mut postings = Vec::new();
                while let Some(posting) = cursor.posting() {
                    postings.push(posting);
                    cursor.seek(posting.doc + 1)?;
                }
                assert_eq!(postings.len(), known.unwrap().docs as usize);
                terms.insert(term.to_vec(), postings);
            }
            Ok::<_, Error>(terms)
        })
        .unwrap()
    }

    #[test]
    fn what_is_written_in_between_makes_no_difference() {
        let at_once = terms(MAX_COLLECTED);
        assert!(at_once[b"tall".as_slice()].len() > 200);
        for most in [1, 10, 333] {
            assert_eq!(terms(most), at_once);
        }
    }
}

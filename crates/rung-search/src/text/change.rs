//! How documents come in and go out.
//!
//! What a call changes is collected term by term and written once for each, in the order of keys. What belongs to one document is written at
//! once. Where much is collected it is written in between, so that memory is bounded however many documents there are.

use std::collections::HashMap;

use rung_kv::{Batch, Table};
use rustc_hash::FxHashMap;

use super::analyze::Analyzer;
use super::forward;
use super::options::TextOptions;
use super::postings::{self, Posting};
use super::rows::{
    Counters, DocId, Known, TermId, doc_key, doc_of, letters_key, reference_key, term_key, text_key,
};
use crate::{Error, Result};

/// Documents of terms that are collected before they are written.
const COLLECTED: usize = 2_000_000;

/// A change of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<R, T> {
    /// A document comes in, and takes the place of the one of its reference.
    Add(R, T),
    /// The document of a reference goes out, where there is one.
    Remove(R),
}

/// What becomes of a term.
#[derive(Debug, Default)]
struct Difference {
    added: Vec<Posting>,
    removed: Vec<DocId>,
}

/// Changes on their way into an index.
pub(super) struct Writer {
    table: Table,
    options: TextOptions,
    analyzer: Analyzer,
    counters: Counters,
    /// Numbers of terms that were asked for.
    known: HashMap<Box<str>, TermId>,
    /// By number.
    differences: FxHashMap<TermId, Difference>,
    collected: usize,
    /// How many are written in between.
    most: usize,
}

impl Writer {
    pub(super) fn new(batch: &Batch<'_>, table: Table, options: TextOptions) -> Result<Self> {
        Ok(Self {
            table,
            options,
            analyzer: Analyzer::new(options),
            counters: Counters::read(batch.view(), table)?,
            known: HashMap::new(),
            differences: FxHashMap::default(),
            collected: 0,
            most: COLLECTED,
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
        let (known, counters) = (&mut self.known, &mut self.counters);
        self.analyzer.terms(text, |term, place| {
            let id = if let Some(id) = known.get(term) {
                *id
            } else {
                let found = Known::read(batch.view(), self.table, term)?;
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
        // By term; those of one are in order already.
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
            let difference = self.differences.entry(group[0].0).or_default();
            difference.added.push(posting);
            self.collected += 1;
        }
        batch.put(self.table, &doc_key(doc), reference)?;
        batch.put(self.table, &reference_key(reference), &doc.to_be_bytes())?;
        if self.options.include_text {
            batch.put(self.table, &text_key(doc), text.as_bytes())?;
        }
        self.write_if_much(batch)
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, batch: &mut Batch<'_>, reference: &[u8]) -> Result<bool> {
        let Some(doc) = doc_of(batch.view(), self.table, reference)? else {
            return Ok(false);
        };
        for term in forward::remove(batch, self.table, doc, self.options.index_position)? {
            let difference = self.differences.entry(term).or_default();
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
        self.write_if_much(batch)?;
        Ok(true)
    }

    fn write_if_much(&mut self, batch: &mut Batch<'_>) -> Result<()> {
        if self.collected >= self.most {
            self.write(batch)?;
        }
        Ok(())
    }

    /// Writes what was collected.
    pub(super) fn write(&mut self, batch: &mut Batch<'_>) -> Result<()> {
        let table = self.table;
        let known = std::mem::take(&mut self.known);
        let letters: FxHashMap<TermId, Box<str>> =
            known.into_iter().map(|(term, id)| (id, term)).collect();
        let mut differences: Vec<_> = self.differences.drain().collect();
        differences.sort_unstable_by_key(|(id, _)| *id);
        for (id, mut difference) in differences {
            if difference.added.is_empty() && difference.removed.is_empty() {
                continue;
            }
            let term = match letters.get(&id) {
                Some(term) => term.clone(),
                None => read_letters(batch, table, id)?,
            };
            let before = Known::read(batch.view(), table, &term)?;
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
                batch.delete(table, &letters_key(id))?;
                continue;
            }
            Known { id, docs }.write(batch, table, &term)?;
            if before.is_none() {
                batch.put(table, &letters_key(id), term.as_bytes())?;
            }
        }
        self.collected = 0;
        self.counters.write(batch, table)
    }
}

fn read_letters(batch: &Batch<'_>, table: Table, id: TermId) -> Result<Box<str>> {
    let row = batch.view().get(table, &letters_key(id))?;
    let letters = row.and_then(|row| std::str::from_utf8(row).ok());
    Ok(letters.ok_or_else(|| Error::corrupt("term"))?.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rung_kv::{Kv, KvOptions};

    use super::super::postings::Cursor;
    use super::*;
    use crate::text::TextIndex;

    /// The documents of every term after the same changes, which were written whenever so many were collected.
    fn terms(most: usize) -> BTreeMap<Vec<u8>, Vec<Posting>> {
        let folder = tempfile::tempdir().unwrap();
        let kv = Kv::open(folder.path(), KvOptions::default()).unwrap();
        let options = TextOptions::default();
        let table = TextIndex::create(&kv, "a", options).unwrap().table;
        kv.write(|batch| {
            let mut writer = Writer::new(batch, table, options)?;
            writer.most = most;
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
                let known = Known::read(view, table, std::str::from_utf8(&term[1..]).unwrap())?;
                let mut cursor = Cursor::new(view, table, known.unwrap().id)?;
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
        let at_once = terms(COLLECTED);
        assert!(at_once[b"tall".as_slice()].len() > 200);
        for most in [1, 10, 333] {
            assert_eq!(terms(most), at_once);
        }
    }
}

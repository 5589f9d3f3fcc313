//! Full-text indexes.
//!
//! Owns: the analysis of texts into terms, the storage of terms and documents, queries, and ranking. Refuses
//! to know: what a reference refers to.
//!
//! An index is one table of a folder. Adding or removing a document costs its own terms, and a search reads the blocks of
//! its terms and skips those that cannot contain one of the best documents.

mod analyze;
mod change;
mod forward;
mod options;
mod postings;
mod proximity;
mod query;
mod rows;
mod search;

pub use change::DocumentChange;
pub use options::{Display, Language, SearchOptions, StopWords, TextOptions};
pub use query::Query;
pub use search::Filter;

use rung_kv::{Batch, Kv, Table, View};

use self::analyze::Analyzer;
use self::change::TextIndexWriter;
use self::query::QueryPlan;
use self::rows::{Counters, OPTIONS, doc_of, read_options};
use self::search::TextSearch;
use crate::{Error, Result};

/// A found document.
#[derive(Debug, Clone, PartialEq)]
pub struct TextHit {
    /// The reference that the document was added with.
    pub reference: Vec<u8>,
    /// The score among the documents that have as many of the terms.
    pub score: f64,
    /// The text, if requested and stored.
    pub text: Option<String>,
    /// The terms of the query in the document, each with its character offsets, if requested and stored.
    pub offsets: Vec<(String, Vec<usize>)>,
}

/// A full-text index.
#[derive(Debug, Clone)]
pub struct TextIndex {
    table: Table,
    options: TextOptions,
}

impl TextIndex {
    /// Opens the index of a domain, if there is one.
    pub fn open(kv: &Kv, domain: &str) -> Result<Option<Self>> {
        let Some(table) = kv.table(&table_name(domain))? else {
            return Ok(None);
        };
        kv.read(|view| {
            let Some(row) = view.get(table, OPTIONS)? else {
                return Ok(None);
            };
            let options = read_options(row)?;
            Ok(Some(Self { table, options }))
        })
    }

    /// Opens the index of a domain, or creates it with these options. An existing index keeps its own options.
    ///
    /// Must not be called within a transaction, since the index is created in a transaction of its own.
    pub fn create(kv: &Kv, domain: &str, options: TextOptions) -> Result<Self> {
        if let Some(index) = Self::open(kv, domain)? {
            return Ok(index);
        }
        let table = kv.create(&table_name(domain))?;
        kv.write(|batch| {
            if let Some(row) = batch.view().get(table, OPTIONS)? {
                let options = read_options(row)?;
                return Ok(Self { table, options });
            }
            batch.put(table, OPTIONS, options.to_edn().to_string().as_bytes())?;
            Ok(Self { table, options })
        })
    }

    /// Returns the options of the index.
    pub fn options(&self) -> TextOptions {
        self.options
    }

    /// Returns true if a document has this reference.
    pub fn contains(&self, view: View<'_>, reference: &[u8]) -> Result<bool> {
        Ok(doc_of(view, self.table, reference)?.is_some())
    }

    /// Returns the number of documents.
    pub fn count(&self, view: View<'_>) -> Result<u64> {
        Ok(Counters::read(view, self.table)?.docs.into())
    }

    /// Returns the best documents for a query, the best first. A filter restricts the result to references that it accepts.
    ///
    /// `step` is called regularly; the search ends if it fails.
    pub fn search<E: From<Error>>(
        &self,
        view: View<'_>,
        query: &Query,
        options: &SearchOptions,
        filter: Option<Filter<'_>>,
        step: &dyn Fn() -> Result<(), E>,
    ) -> Result<Vec<TextHit>, E> {
        let Some(plan) = QueryPlan::new(query, &Analyzer::new(self.options)) else {
            return Ok(Vec::new());
        };
        let near = self.options.index_position;
        if plan.has_phrases && !near {
            return Err(Error::NoPositions.into());
        }
        TextSearch::new(view, self.table, &plan, filter, step)?.run(options, near)
    }

    /// Adds a document, and replaces the one with the same reference. A text of whitespace alone is not added.
    pub fn add(&self, batch: &mut Batch<'_>, reference: &[u8], text: &str) -> Result<()> {
        self.apply(batch, [DocumentChange::Add(reference, text)])
    }

    /// Adds documents, at a fraction of the cost of adding them one by one.
    pub fn add_many<R: AsRef<[u8]>, T: AsRef<str>>(
        &self,
        batch: &mut Batch<'_>,
        documents: impl IntoIterator<Item = (R, T)>,
    ) -> Result<()> {
        let documents = documents.into_iter();
        self.apply(
            batch,
            documents.map(|(reference, text)| DocumentChange::Add(reference, text)),
        )
    }

    /// Removes the document of a reference. Returns true if there was one.
    pub fn remove(&self, batch: &mut Batch<'_>, reference: &[u8]) -> Result<bool> {
        let mut writer = TextIndexWriter::new(batch, self.table, self.options)?;
        let removed = writer.remove(batch, reference)?;
        writer.write(batch)?;
        Ok(removed)
    }

    /// Applies changes in order.
    pub fn apply<R: AsRef<[u8]>, T: AsRef<str>>(
        &self,
        batch: &mut Batch<'_>,
        changes: impl IntoIterator<Item = DocumentChange<R, T>>,
    ) -> Result<()> {
        let mut writer = TextIndexWriter::new(batch, self.table, self.options)?;
        for change in changes {
            match change {
                DocumentChange::Add(reference, text) => {
                    writer.add(batch, reference.as_ref(), text.as_ref())?;
                }
                DocumentChange::Remove(reference) => {
                    writer.remove(batch, reference.as_ref())?;
                }
            }
        }
        writer.write(batch)
    }

    /// Removes every document.
    pub fn clear(&self, batch: &mut Batch<'_>) -> Result<()> {
        batch.clear(self.table)?;
        Ok(batch.put(
            self.table,
            OPTIONS,
            self.options.to_edn().to_string().as_bytes(),
        )?)
    }
}

fn table_name(domain: &str) -> String {
    format!("{domain}/text")
}

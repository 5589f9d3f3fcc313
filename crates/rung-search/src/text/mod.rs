//! Texts that are found by their words.
//!
//! Owns: how a text becomes terms, where terms and documents are kept, what is searched for, and how what is found is ranked. Refuses
//! to know: what a reference refers to.
//!
//! An index lies in one table of a folder, and costs what is asked of it: a document is added or removed by way of its own
//! terms, and a search reads the blocks of its terms, of which it passes over what cannot be among the best.

mod analyze;
mod change;
mod forward;
mod options;
mod postings;
mod proximity;
mod query;
mod rows;
mod search;

pub use change::Change;
pub use options::{Display, Language, SearchOptions, StopWords, TextOptions};
pub use query::Query;
pub use search::Filter;

use rung_kv::{Batch, Kv, Table, View};

use self::analyze::Analyzer;
use self::change::Writer;
use self::query::Plan;
use self::rows::{Counters, OPTIONS, doc_of, read_options};
use self::search::Search;
use crate::{Error, Result};

/// A document that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// What it was added by.
    pub reference: Vec<u8>,
    /// How good it is among those that have as many of the terms.
    pub score: f64,
    /// Its text, where it was asked for and is kept.
    pub text: Option<String>,
    /// The terms of the query that it has, and before how many characters each of them stands, where that was asked for and is kept.
    pub offsets: Vec<(String, Vec<usize>)>,
}

/// An index of texts.
#[derive(Debug, Clone)]
pub struct TextIndex {
    table: Table,
    options: TextOptions,
}

impl TextIndex {
    /// The index of a domain, where there is one.
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

    /// The index of a domain, made with these options where it is not there. One that is there keeps its own.
    ///
    /// It is made in a transaction of its own, and so not within one.
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

    /// How it was made.
    pub fn options(&self) -> TextOptions {
        self.options
    }

    /// Whether a document has this reference.
    pub fn contains(&self, view: View<'_>, reference: &[u8]) -> Result<bool> {
        Ok(doc_of(view, self.table, reference)?.is_some())
    }

    /// How many documents there are.
    pub fn count(&self, view: View<'_>) -> Result<u64> {
        Ok(Counters::read(view, self.table)?.docs.into())
    }

    /// The best documents for a query, the best first. Where there is a filter, only those are meant whose references it lets through.
    ///
    /// `step` is called now and then, and ends the search where it fails.
    pub fn search<E: From<Error>>(
        &self,
        view: View<'_>,
        query: &Query,
        options: &SearchOptions,
        filter: Option<Filter<'_>>,
        step: &dyn Fn() -> Result<(), E>,
    ) -> Result<Vec<Hit>, E> {
        let Some(plan) = Plan::new(query, &Analyzer::new(self.options)) else {
            return Ok(Vec::new());
        };
        let near = self.options.index_position;
        if plan.has_phrases && !near {
            return Err(Error::NoPositions.into());
        }
        Search::new(view, self.table, &plan, filter, step)?.run(options, near)
    }

    /// Adds a document, in place of the one of its reference. A text of nothing but space is no document.
    pub fn add(&self, batch: &mut Batch<'_>, reference: &[u8], text: &str) -> Result<()> {
        self.apply(batch, [Change::Add(reference, text)])
    }

    /// Adds documents, at a fraction of what they cost one by one.
    pub fn add_many<R: AsRef<[u8]>, T: AsRef<str>>(
        &self,
        batch: &mut Batch<'_>,
        documents: impl IntoIterator<Item = (R, T)>,
    ) -> Result<()> {
        let documents = documents.into_iter();
        self.apply(
            batch,
            documents.map(|(reference, text)| Change::Add(reference, text)),
        )
    }

    /// Removes the document of a reference. Whether there was one.
    pub fn remove(&self, batch: &mut Batch<'_>, reference: &[u8]) -> Result<bool> {
        let mut writer = Writer::new(batch, self.table, self.options)?;
        let removed = writer.remove(batch, reference)?;
        writer.write(batch)?;
        Ok(removed)
    }

    /// Makes changes, one after the other.
    pub fn apply<R: AsRef<[u8]>, T: AsRef<str>>(
        &self,
        batch: &mut Batch<'_>,
        changes: impl IntoIterator<Item = Change<R, T>>,
    ) -> Result<()> {
        let mut writer = Writer::new(batch, self.table, self.options)?;
        for change in changes {
            match change {
                Change::Add(reference, text) => {
                    writer.add(batch, reference.as_ref(), text.as_ref())?;
                }
                Change::Remove(reference) => {
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

//! A full-text index, local or remote.

use std::sync::Arc;

use rung_dtlv::SearchEngine;
use rung_edn::{Map, Value as Edn};
use rung_fault::{Code, Detail, Fault};
use rung_kv::encode;
use rung_kv::typed::TypedTables;
use rung_search::text::{Display, Query, SearchOptions, TextHit, TextIndex};
use rung_tool::Cancellation;
use serde_json::{Value, json};

use crate::json::to_json;
use crate::row_sink::{RowSink, wait_limit};
use crate::stop::SearchStop;

#[derive(Clone)]
pub(crate) enum TextSearchIndex {
    /// In a folder of this machine.
    Local(Arc<TypedTables>, TextIndex),
    Remote(SearchEngine),
}

impl TextSearchIndex {
    /// Returns the index with the deadline and cancellation of a call.
    pub(crate) fn with_cancellation(&self, cancellation: &Cancellation) -> Self {
        match self {
            Self::Local(tables, index) => Self::Local(tables.clone(), index.clone()),
            Self::Remote(index) => Self::Remote(index.with_wait_limit(wait_limit(cancellation))),
        }
    }

    /// Adds a text, replacing the one with this reference.
    pub(crate) fn add(&self, reference: &Edn, text: &str) -> Result<(), Fault> {
        match self {
            Self::Local(tables, index) => {
                let reference = encode::encode(reference);
                Ok((tables.kv()).write(|batch| index.add(batch, &reference, text))?)
            }
            Self::Remote(index) => Ok(index.add(reference, text)?),
        }
    }

    /// Adds texts, each replacing the one with its reference. Locally, all or none are added.
    pub(crate) fn add_many(&self, texts: &[(Edn, String)]) -> Result<(), Fault> {
        match self {
            Self::Local(tables, index) => {
                let texts = texts.iter();
                let texts = texts.map(|(reference, text)| (encode::encode(reference), text));
                let texts: Vec<_> = texts.collect();
                Ok((tables.kv()).write(|batch| {
                    let texts = texts.iter().map(|(reference, text)| (reference, *text));
                    index.add_many(batch, texts)
                })?)
            }
            // A server accepts one text at a time.
            Self::Remote(index) => {
                for (reference, text) in texts {
                    index.add(reference, text)?;
                }
                Ok(())
            }
        }
    }

    /// Removes the text with this reference.
    pub(crate) fn remove(&self, reference: &Edn) -> Result<(), Fault> {
        let was_there = match self {
            Self::Local(tables, index) => {
                let reference = encode::encode(reference);
                (tables.kv()).write(|batch| index.remove(batch, &reference))?
            }
            Self::Remote(index) => {
                let is_there = index.has(reference)?;
                if is_there {
                    index.remove(reference)?;
                }
                is_there
            }
        };
        if was_there {
            return Ok(());
        }
        let why = format!(
            "the index has no document with the reference {}",
            rung_edn::shorten(&reference.to_string(), 120)
        );
        Err(Fault::new(Code::NotFound, why).with(Detail::Field, "docRef"))
    }

    /// Removes all texts.
    pub(crate) fn clear(&self) -> Result<(), Fault> {
        match self {
            Self::Local(tables, index) => Ok(tables.kv().write(|batch| index.clear(batch))?),
            Self::Remote(index) => Ok(index.clear()?),
        }
    }

    /// Returns true if a text has this reference.
    pub(crate) fn has(&self, reference: &Edn) -> Result<bool, Fault> {
        match self {
            Self::Local(tables, index) => {
                let reference = encode::encode(reference);
                Ok((tables.kv()).read(|view| index.contains(view, &reference))?)
            }
            Self::Remote(index) => Ok(index.has(reference)?),
        }
    }

    /// Returns the number of texts.
    pub(crate) fn count(&self) -> Result<u64, Fault> {
        match self {
            Self::Local(tables, index) => Ok(tables.kv().read(|view| index.count(view))?),
            Self::Remote(index) => Ok(index.count()?),
        }
    }

    /// Searches texts, best first.
    pub(crate) fn search(
        &self,
        query: &Edn,
        options: Map,
        sink: &mut RowSink<'_>,
    ) -> Result<(), Fault> {
        match self {
            Self::Local(tables, index) => {
                let options = SearchOptions::from_edn(&Edn::Map(options))?;
                let query = Query::from_edn(query)?;
                let look = || sink.look().map_err(SearchStop::Cancelled);
                let hits = tables
                    .kv()
                    .read(|view| index.search::<SearchStop>(view, &query, &options, None, &look))?;
                for hit in &hits {
                    let shown = hit_to_json(hit, options.display)?;
                    if !sink.take(|| shown) {
                        break;
                    }
                }
            }
            Self::Remote(index) => {
                let found = index.search(query, options)?;
                let found = found.as_sequence().unwrap_or_default();
                let _enough = found.iter().all(|found| sink.take(|| to_json(found)));
            }
        }
        Ok(())
    }
}

/// Converts a hit to JSON in the requested form.
fn hit_to_json(hit: &TextHit, display: Display) -> Result<Value, Fault> {
    let reference: Edn = encode::decode(&hit.reference)?;
    let reference = to_json(&reference);
    Ok(match display {
        Display::Refs => reference,
        Display::RefsScores => json!([reference, hit.score]),
        Display::Texts => json!([reference, hit.text]),
        Display::Offsets => json!([reference, hit.offsets]),
        Display::TextsOffsets => json!([reference, hit.text, hit.offsets]),
    })
}

//! An index of texts, wherever it is.

use std::sync::Arc;

use rung_dtlv::SearchEngine;
use rung_edn::{Map, Value as Edn};
use rung_fault::{Code, Detail, Fault};
use rung_kv::encode;
use rung_kv::typed::Tables;
use rung_search::text::{Display, Hit, Query, SearchOptions, TextIndex};
use serde_json::{Value, json};

use crate::json::to_json;
use crate::stop::Stop;
use crate::taker::{Taker, Watch};

/// An index of texts.
#[derive(Clone)]
pub(crate) enum Texts {
    /// In a folder.
    Here(Arc<Tables>, TextIndex),
    /// On a server.
    Elsewhere(SearchEngine),
}

impl Texts {
    /// The same, for somebody who waits no longer than that.
    pub(crate) fn within(&self, watch: &Watch) -> Self {
        match self {
            Self::Here(tables, index) => Self::Here(tables.clone(), index.clone()),
            Self::Elsewhere(index) => Self::Elsewhere(index.within(watch.patience())),
        }
    }

    /// Adds a text, in place of the one that has this reference.
    pub(crate) fn add(&self, reference: &Edn, text: &str) -> Result<(), Fault> {
        match self {
            Self::Here(tables, index) => {
                let reference = encode::encode(reference);
                Ok((tables.kv()).write(|batch| index.add(batch, &reference, text))?)
            }
            Self::Elsewhere(index) => Ok(index.add(reference, text)?),
        }
    }

    /// Adds texts, each in place of the one that has its reference; all of them or none.
    pub(crate) fn add_many(&self, texts: &[(Edn, String)]) -> Result<(), Fault> {
        match self {
            Self::Here(tables, index) => {
                let texts = texts.iter();
                let texts = texts.map(|(reference, text)| (encode::encode(reference), text));
                let texts: Vec<_> = texts.collect();
                Ok((tables.kv()).write(|batch| {
                    let texts = texts.iter().map(|(reference, text)| (reference, *text));
                    index.add_many(batch, texts)
                })?)
            }
            // A server takes one at a time.
            Self::Elsewhere(index) => {
                for (reference, text) in texts {
                    index.add(reference, text)?;
                }
                Ok(())
            }
        }
    }

    /// Takes out the text that has this reference.
    pub(crate) fn remove(&self, reference: &Edn) -> Result<(), Fault> {
        let was_there = match self {
            Self::Here(tables, index) => {
                let reference = encode::encode(reference);
                (tables.kv()).write(|batch| index.remove(batch, &reference))?
            }
            Self::Elsewhere(index) => {
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
        let why = format!("no document has the reference {reference}");
        Err(Fault::new(Code::NotFound, why).with(Detail::Field, "docRef"))
    }

    /// Takes all texts out.
    pub(crate) fn clear(&self) -> Result<(), Fault> {
        match self {
            Self::Here(tables, index) => Ok(tables.kv().write(|batch| index.clear(batch))?),
            Self::Elsewhere(index) => Ok(index.clear()?),
        }
    }

    /// Whether a text has this reference.
    pub(crate) fn has(&self, reference: &Edn) -> Result<bool, Fault> {
        match self {
            Self::Here(tables, index) => {
                let reference = encode::encode(reference);
                Ok((tables.kv()).read(|view| index.contains(view, &reference))?)
            }
            Self::Elsewhere(index) => Ok(index.has(reference)?),
        }
    }

    /// How many texts there are.
    pub(crate) fn count(&self) -> Result<u64, Fault> {
        match self {
            Self::Here(tables, index) => Ok(tables.kv().read(|view| index.count(view))?),
            Self::Elsewhere(index) => Ok(index.count()?),
        }
    }

    /// Texts by their words, the best first.
    pub(crate) fn search(
        &self,
        query: &Edn,
        options: Map,
        taker: &mut Taker<'_>,
    ) -> Result<(), Fault> {
        match self {
            Self::Here(tables, index) => {
                let options = SearchOptions::from_edn(&Edn::Map(options))?;
                let query = Query::from_edn(query)?;
                let look = || taker.look().map_err(Stop::Ended);
                let hits = tables
                    .kv()
                    .read(|view| index.search::<Stop>(view, &query, &options, None, &look))?;
                for hit in &hits {
                    let shown = shown(hit, options.display)?;
                    if !taker.take(|| shown) {
                        break;
                    }
                }
            }
            Self::Elsewhere(index) => {
                let found = index.search(query, options)?;
                let found = found.as_sequence().unwrap_or_default();
                let _enough = found.iter().all(|found| taker.take(|| to_json(found)));
            }
        }
        Ok(())
    }
}

/// A text that was found, as it was asked for.
fn shown(hit: &Hit, display: Display) -> Result<Value, Fault> {
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

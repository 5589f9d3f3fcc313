//! An index of vectors, wherever it is.

use std::sync::Arc;

use rung_edn::{Map, Value as Edn};
use rung_fault::Fault;
use rung_kv::encode;
use rung_kv::typed::Tables;
use rung_search::vectors::{Display, SearchOptions, VectorIndex};
use serde_json::{Value, json};

use crate::json::to_json;
use crate::stop::Stop;
use crate::taker::{Taker, Watch};

/// An index of vectors.
#[derive(Clone)]
pub(crate) enum Vectors {
    /// In a folder.
    Here(Arc<Tables>, VectorIndex),
    /// On a server.
    Elsewhere(rung_dtlv::VectorIndex),
}

/// Vectors here have numbers of 32 bits.
#[expect(
    clippy::cast_possible_truncation,
    reason = "vectors have numbers of 32 bits"
)]
fn short(vector: &[f64]) -> Vec<f32> {
    vector.iter().map(|number| *number as f32).collect()
}

impl Vectors {
    /// The same, for somebody who waits no longer than that.
    pub(crate) fn within(&self, watch: &Watch) -> Self {
        match self {
            Self::Here(tables, index) => Self::Here(tables.clone(), index.clone()),
            Self::Elsewhere(index) => Self::Elsewhere(index.within(watch.patience())),
        }
    }

    /// Adds a vector, beside those that have this reference.
    pub(crate) fn add(&self, reference: &Edn, vector: &[f64]) -> Result<(), Fault> {
        match self {
            Self::Here(tables, index) => {
                let (reference, vector) = (encode::encode(reference), short(vector));
                Ok((tables.kv()).write(|batch| index.add(batch, &reference, &vector))?)
            }
            Self::Elsewhere(index) => Ok(index.add(reference, vector)?),
        }
    }

    /// Adds vectors, each beside those that have its reference; all of them or none.
    pub(crate) fn add_many(&self, vectors: &[(Edn, Vec<f64>)]) -> Result<(), Fault> {
        match self {
            Self::Here(tables, index) => {
                let vectors = vectors.iter();
                let vectors =
                    vectors.map(|(reference, vector)| (encode::encode(reference), short(vector)));
                let vectors: Vec<_> = vectors.collect();
                Ok((tables.kv()).write(|batch| {
                    let vectors = vectors
                        .iter()
                        .map(|(reference, vector)| (reference, vector));
                    index.add_many(batch, vectors)
                })?)
            }
            // A server takes one at a time.
            Self::Elsewhere(index) => {
                for (reference, vector) in vectors {
                    index.add(reference, vector)?;
                }
                Ok(())
            }
        }
    }

    /// Takes out the vectors that have this reference.
    pub(crate) fn remove(&self, reference: &Edn) -> Result<(), Fault> {
        match self {
            Self::Here(tables, index) => {
                let reference = encode::encode(reference);
                let removed = (tables.kv()).write(|batch| index.remove(batch, &reference));
                Ok(removed.map(drop)?)
            }
            Self::Elsewhere(index) => Ok(index.remove(reference)?),
        }
    }

    /// Whether a vector has this reference.
    pub(crate) fn has(&self, reference: &Edn) -> Result<bool, Fault> {
        match self {
            Self::Here(tables, index) => {
                let reference = encode::encode(reference);
                Ok((tables.kv()).read(|view| index.contains(view, &reference))?)
            }
            Self::Elsewhere(index) => Ok(index.has(reference)?),
        }
    }

    /// What the index is, and how large.
    pub(crate) fn info(&self) -> Result<Edn, Fault> {
        match self {
            Self::Here(tables, index) => Ok(Edn::Map(tables.kv().read(|view| index.info(view))?)),
            Self::Elsewhere(index) => Ok(index.info()?),
        }
    }

    /// The nearest vectors.
    pub(crate) fn search(
        &self,
        vector: &[f64],
        options: Map,
        taker: &mut Taker<'_>,
    ) -> Result<(), Fault> {
        let found: Vec<Value> = match self {
            Self::Here(tables, index) => {
                let (vector, options) = (short(vector), Edn::Map(options));
                let options = SearchOptions::read(&options)?;
                let look = || taker.look().map_err(Stop::Ended);
                tables.kv().read(|view| {
                    let found = index.search::<Stop>(view, &vector, &options, &look)?;
                    let each = found.iter().map(|found| {
                        let reference = to_json(&encode::decode(found.reference)?);
                        Ok(match options.display {
                            Display::Refs => reference,
                            Display::RefsAndDistances => json!([reference, found.distance]),
                        })
                    });
                    each.collect::<Result<_, Stop>>()
                })?
            }
            Self::Elsewhere(index) => {
                let found = index.search(vector, options)?;
                let found = found.as_sequence().unwrap_or_default();
                found.iter().map(to_json).collect()
            }
        };
        let _enough = found.into_iter().all(|found| taker.take(|| found));
        Ok(())
    }
}

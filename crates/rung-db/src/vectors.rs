//! A vector index, local or remote.

use std::sync::Arc;

use rung_edn::{Map, Value as Edn};
use rung_fault::Fault;
use rung_kv::encode;
use rung_kv::typed::TypedTables;
use rung_search::vectors::{Display, SearchOptions, VectorIndex};
use rung_tool::Cancellation;
use serde_json::{Value, json};

use crate::json::to_json;
use crate::row_sink::{RowSink, wait_limit};
use crate::stop::SearchStop;

#[derive(Clone)]
pub(crate) enum VectorSearchIndex {
    /// In a folder of this machine.
    Local(Arc<TypedTables>, VectorIndex),
    Remote(rung_dtlv::VectorIndex),
}

/// Converts a vector to 32-bit numbers, which local indexes use.
#[expect(
    clippy::cast_possible_truncation,
    reason = "vectors have numbers of 32 bits"
)]
fn to_f32(vector: &[f64]) -> Vec<f32> {
    vector.iter().map(|number| *number as f32).collect()
}

impl VectorSearchIndex {
    /// Returns the index with the deadline and cancellation of a call.
    pub(crate) fn with_cancellation(&self, cancellation: &Cancellation) -> Self {
        match self {
            Self::Local(tables, index) => Self::Local(tables.clone(), index.clone()),
            Self::Remote(index) => Self::Remote(index.with_wait_limit(wait_limit(cancellation))),
        }
    }

    /// Adds a vector. Vectors with the same reference are kept.
    pub(crate) fn add(&self, reference: &Edn, vector: &[f64]) -> Result<(), Fault> {
        match self {
            Self::Local(tables, index) => {
                let (reference, vector) = (encode::encode(reference), to_f32(vector));
                Ok((tables.kv()).write(|batch| index.add(batch, &reference, &vector))?)
            }
            Self::Remote(index) => Ok(index.add(reference, vector)?),
        }
    }

    /// Adds vectors. Vectors with the same references are kept. Locally, all or none are added.
    pub(crate) fn add_many(&self, vectors: &[(Edn, Vec<f64>)]) -> Result<(), Fault> {
        match self {
            Self::Local(tables, index) => {
                let vectors = vectors.iter();
                let vectors =
                    vectors.map(|(reference, vector)| (encode::encode(reference), to_f32(vector)));
                let vectors: Vec<_> = vectors.collect();
                Ok((tables.kv()).write(|batch| {
                    let vectors = vectors
                        .iter()
                        .map(|(reference, vector)| (reference, vector));
                    index.add_many(batch, vectors)
                })?)
            }
            // A server accepts one vector at a time.
            Self::Remote(index) => {
                for (reference, vector) in vectors {
                    index.add(reference, vector)?;
                }
                Ok(())
            }
        }
    }

    /// Removes the vectors with this reference.
    pub(crate) fn remove(&self, reference: &Edn) -> Result<(), Fault> {
        match self {
            Self::Local(tables, index) => {
                let reference = encode::encode(reference);
                let removed = (tables.kv()).write(|batch| index.remove(batch, &reference));
                Ok(removed.map(drop)?)
            }
            Self::Remote(index) => Ok(index.remove(reference)?),
        }
    }

    /// Returns true if a vector has this reference.
    pub(crate) fn has(&self, reference: &Edn) -> Result<bool, Fault> {
        match self {
            Self::Local(tables, index) => {
                let reference = encode::encode(reference);
                Ok((tables.kv()).read(|view| index.contains(view, &reference))?)
            }
            Self::Remote(index) => Ok(index.has(reference)?),
        }
    }

    /// Returns the index's options and size.
    pub(crate) fn info(&self) -> Result<Edn, Fault> {
        match self {
            Self::Local(tables, index) => Ok(Edn::Map(tables.kv().read(|view| index.info(view))?)),
            Self::Remote(index) => Ok(index.info()?),
        }
    }

    /// Searches for the nearest vectors.
    pub(crate) fn search(
        &self,
        vector: &[f64],
        options: Map,
        sink: &mut RowSink<'_>,
    ) -> Result<(), Fault> {
        let found: Vec<Value> = match self {
            Self::Local(tables, index) => {
                let (vector, options) = (to_f32(vector), Edn::Map(options));
                let options = SearchOptions::read(&options)?;
                let look = || sink.look().map_err(SearchStop::Cancelled);
                tables.kv().read(|view| {
                    let found = index.search::<SearchStop>(view, &vector, &options, &look)?;
                    let each = found.iter().map(|found| {
                        let reference = to_json(&encode::decode(found.reference)?);
                        Ok(match options.display {
                            Display::Refs => reference,
                            Display::RefsAndDistances => json!([reference, found.distance]),
                        })
                    });
                    each.collect::<Result<_, SearchStop>>()
                })?
            }
            Self::Remote(index) => {
                let found = index.search(vector, options)?;
                let found = found.as_sequence().unwrap_or_default();
                found.iter().map(to_json).collect()
            }
        };
        let _enough = found.into_iter().all(|found| sink.take(|| found));
        Ok(())
    }
}

//! `datalevin_vector_search`: the nearest vectors.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, List, Text};
use super::{Definition, parameters, parse_input, parse_vector};
use crate::asking::{Asking, envelope, map_or_empty};
use crate::shape::Outcome;
use crate::taker::Wanted;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_vector_search",
    description: "The nearest vectors.",
    writes: false,
    arguments: &[
        ("vectorIndex", Text, true, parameters::VECTOR_INDEX),
        ("queryVector", List, true, parameters::VECTOR),
        ("opts", Any, false, parameters::SEARCH_OPTS),
    ],
    run,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    vector_index: String,
    query_vector: Vec<Value>,
    opts: Option<Value>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = parse_input(input)?;
    let vectors = asking.vectors(&input.vector_index)?;
    let options = map_or_empty(input.opts.as_ref())?;
    let vector = parse_vector(&input.query_vector, "queryVector")?;
    let beside = envelope("vectorIndex", &input.vector_index);
    asking.list(beside, Wanted::ALL, |taker| {
        vectors.search(&vector, options, taker)
    })
}

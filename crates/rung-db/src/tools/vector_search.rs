//! `datalevin_vector_search`: vectors by what is near.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, List, Text};
use super::{Definition, numbers, read};
use crate::asking::{Asking, head, options};
use crate::shape::Outcome;
use crate::taker::Wanted;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_vector_search",
    description: "The nearest vectors; opts :top, :display.",
    writes: false,
    arguments: &[
        ("vectorIndex", Text, true),
        ("queryVector", List, true),
        ("opts", Any, false),
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
    let input: Input = read(input)?;
    let vectors = asking.vectors(&input.vector_index)?;
    let options = options(input.opts.as_ref())?;
    let vector = numbers(&input.query_vector, "queryVector")?;
    let beside = head("vectorIndex", &input.vector_index);
    asking.list(beside, Wanted::ALL, |taker| {
        vectors.search(&vector, options, taker)
    })
}

//! `datalevin_vector_search`: the nearest vectors.

use rung_fault::Fault;
use rung_tool::ParameterType::{Any, List, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::Value;

use super::{Databases, parameters, parse_vector, reading_tool};
use crate::context::{DatabaseContext, envelope, map_or_empty};
use crate::row_sink::Slice;

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_vector_search",
    "The nearest vectors.",
    &[
        ("vectorIndex", Text, true, parameters::VECTOR_INDEX),
        ("queryVector", List, true, parameters::VECTOR),
        ("opts", Any, false, parameters::SEARCH_OPTS),
    ],
    run,
);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    vector_index: String,
    query_vector: Vec<Value>,
    opts: Option<Value>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let vectors = context.vectors(&input.vector_index)?;
    let options = map_or_empty(input.opts.as_ref())?;
    let vector = parse_vector(&input.query_vector, "queryVector")?;
    let beside = envelope("vectorIndex", &input.vector_index);
    context.list(beside, Slice::ALL, |sink| {
        vectors.search(&vector, options, sink)
    })
}

//! `datalevin_fulltext_datoms`: datoms by full-text search.

use rung_edn::Value as Edn;
use rung_fault::Fault;
use rung_tool::ParameterType::{Any, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::Value;

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope, map_or_empty};
use crate::row_sink::Slice;

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_fulltext_datoms",
    "Datoms by full-text search, best first.",
    &[
        ("database", Text, true, parameters::DATABASE),
        ("query", Text, true, parameters::WORDS),
        ("opts", Any, false, parameters::SEARCH_OPTS),
    ],
    run,
);

#[derive(Deserialize)]
pub(super) struct Input {
    database: String,
    query: String,
    opts: Option<Value>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let database = context.database(&input.database)?;
    let options = map_or_empty(input.opts.as_ref())?;
    let query = Edn::text(input.query);
    context.list(envelope("database", &input.database), Slice::ALL, |sink| {
        database.fulltext(&query, options, sink)
    })
}

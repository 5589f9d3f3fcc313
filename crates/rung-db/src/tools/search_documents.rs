//! `datalevin_search_documents`: searches a full-text index.

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
    "datalevin_search_documents",
    "Texts by full-text search, best first.",
    &[
        ("searchIndex", Text, true, parameters::SEARCH_INDEX),
        ("query", Text, true, parameters::WORDS),
        ("opts", Any, false, parameters::SEARCH_OPTS),
    ],
    run,
);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    search_index: String,
    query: String,
    opts: Option<Value>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let texts = context.texts(&input.search_index)?;
    let options = map_or_empty(input.opts.as_ref())?;
    let beside = envelope("searchIndex", &input.search_index);
    context.list(beside, Slice::ALL, |sink| {
        texts.search(&Edn::text(input.query), options, sink)
    })
}

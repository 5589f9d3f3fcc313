//! `datalevin_search_documents`: searches a full-text index.

use rung_edn::Value as Edn;
use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, Text};
use super::{Definition, parameters, parse_input};
use crate::asking::{Asking, envelope, map_or_empty};
use crate::shape::Outcome;
use crate::taker::Wanted;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_search_documents",
    description: "Texts by full-text search, best first.",
    writes: false,
    arguments: &[
        ("searchIndex", Text, true, parameters::SEARCH_INDEX),
        ("query", Text, true, parameters::WORDS),
        ("opts", Any, false, parameters::SEARCH_OPTS),
    ],
    run,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    search_index: String,
    query: String,
    opts: Option<Value>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = parse_input(input)?;
    let texts = asking.texts(&input.search_index)?;
    let options = map_or_empty(input.opts.as_ref())?;
    let beside = envelope("searchIndex", &input.search_index);
    asking.list(beside, Wanted::ALL, |taker| {
        texts.search(&Edn::text(input.query), options, taker)
    })
}

//! `datalevin_fulltext_datoms`: datoms by full-text search.

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
    name: "datalevin_fulltext_datoms",
    description: "Datoms by full-text search, best first.",
    writes: false,
    arguments: &[
        ("database", Text, true, parameters::DATABASE),
        ("query", Text, true, parameters::WORDS),
        ("opts", Any, false, parameters::SEARCH_OPTS),
    ],
    run,
};

#[derive(Deserialize)]
struct Input {
    database: String,
    query: String,
    opts: Option<Value>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = parse_input(input)?;
    let database = asking.database(&input.database)?;
    let options = map_or_empty(input.opts.as_ref())?;
    let query = Edn::text(input.query);
    asking.list(
        envelope("database", &input.database),
        Wanted::ALL,
        |taker| database.fulltext(&query, options, taker),
    )
}

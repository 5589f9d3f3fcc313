//! `datalevin_fulltext_datoms`: facts by the words of their texts.

use rung_edn::Value as Edn;
use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, Text};
use super::{Definition, read};
use crate::asking::{Asking, head, options};
use crate::shape::Outcome;
use crate::taker::Wanted;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_fulltext_datoms",
    description: "Datoms by the words of their texts, the best first.",
    writes: false,
    arguments: &[
        ("database", Text, true),
        ("query", Text, true),
        ("opts", Any, false),
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
    let input: Input = read(input)?;
    let database = asking.database(&input.database)?;
    let options = options(input.opts.as_ref())?;
    let query = Edn::text(input.query);
    asking.list(head("database", &input.database), Wanted::ALL, |taker| {
        database.fulltext(&query, options, taker)
    })
}

//! `datalevin_search_documents`: texts by their words.

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
    name: "datalevin_search_documents",
    description: "Texts by their words, the best first; opts :top, :display.",
    writes: false,
    arguments: &[
        ("searchIndex", Text, true),
        ("query", Text, true),
        ("opts", Any, false),
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
    let input: Input = read(input)?;
    let texts = asking.texts(&input.search_index)?;
    let options = options(input.opts.as_ref())?;
    let beside = head("searchIndex", &input.search_index);
    asking.list(beside, Wanted::ALL, |taker| {
        texts.search(&Edn::text(input.query), options, taker)
    })
}

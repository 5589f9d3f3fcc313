//! `datalevin_search_documents`: texts by their words.

use rung_edn::Value as Edn;
use rung_fault::Fault;
use rung_kv::encode;
use rung_search::text::{Display, Hit, Query, SearchOptions};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, Text};
use super::{Asking, Definition, head, options, read};
use crate::json::to_json;
use crate::shape::Outcome;

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
    let (tables, index) = asking.search_index(&input.search_index)?;
    let options = SearchOptions::from_edn(&options(input.opts.as_ref())?)?;
    let query = Query::text(input.query);
    let hits = tables.kv().read(|view| {
        index.search::<rung_search::Error>(view, &query, &options, None, &|| Ok(()))
    })?;
    asking.list(head("searchIndex", &input.search_index), false, |give| {
        for hit in &hits {
            if !give(shown(hit, options.display)?.to_string()) {
                break;
            }
        }
        Ok(())
    })
}

/// A text that was found, as it was asked for.
fn shown(hit: &Hit, display: Display) -> Result<Value, Fault> {
    let reference: Edn = encode::decode(&hit.reference)?;
    let reference = to_json(&reference);
    Ok(match display {
        Display::Refs => reference,
        Display::RefsScores => json!([reference, hit.score]),
        Display::Texts => json!([reference, hit.text]),
        Display::Offsets => json!([reference, hit.offsets]),
        Display::TextsOffsets => json!([reference, hit.text, hit.offsets]),
    })
}

//! `datalevin_vector_search`: vectors by what is near.

use rung_fault::Fault;
use rung_kv::encode;
use rung_search::vectors::{Display, SearchOptions};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, List, Text};
use super::{Asking, Definition, head, numbers, options, read};
use crate::json::to_json;
use crate::shape::Outcome;

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
    let (tables, index) = asking.vector_index(&input.vector_index)?;
    let options = options(input.opts.as_ref())?;
    let options = SearchOptions::read(&options)?;
    let vector = numbers(&input.query_vector, "queryVector")?;
    let found = tables.kv().read(|view| {
        let found = index.search::<rung_search::Error>(view, &vector, &options, &|| Ok(()))?;
        let each = found.iter().map(|found| {
            let reference = to_json(&encode::decode(found.reference)?);
            Ok(match options.display {
                Display::Refs => reference,
                Display::RefsAndDistances => json!([reference, found.distance]),
            })
        });
        each.collect::<Result<Vec<Value>, rung_search::Error>>()
    })?;
    asking.list(head("vectorIndex", &input.vector_index), false, |give| {
        for item in &found {
            if !give(item.to_string()) {
                break;
            }
        }
        Ok(())
    })
}

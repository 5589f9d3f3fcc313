//! `datalevin_fulltext_datoms`: facts by the words of their texts.

use rung_edn::Value as Edn;
use rung_fault::Fault;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, Text};
use super::{Asking, Definition, head, part, read};
use crate::json::to_json;
use crate::shape::Outcome;

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
    let db = asking.database(&input.database)?;
    let options = part(input.opts.as_ref())?.unwrap_or(Edn::Nil);
    let rows = db.fulltext(&Edn::text(input.query.as_str()), &options, &asking.bounds)?;
    asking.list(head("database", &input.database), false, |give| {
        for row in &rows {
            let item = match &row[..] {
                [e, a, v] => {
                    json!({"e": to_json(e), "a": to_json(a), "v": to_json(v), "tx": 1, "added": true})
                }
                more => more.iter().map(to_json).collect(),
            };
            if !give(item.to_string()) {
                break;
            }
        }
        Ok(())
    })
}

//! `datalevin_kv_range`: keys with their values, in order.

use rung_fault::Fault;
use rung_kv::typed::Span;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, List, Number, Text};
use super::kv_get::kind;
use super::{Asking, Definition, MAX_LIMIT, head, read};
use crate::json::{given, to_json};
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_kv_range",
    description: "Pairs within a range: [\":all\"], [\":closed\", 1, 9], [\":at-least\", 5], with -back twins.",
    writes: false,
    arguments: &[
        ("kv", Text, true),
        ("dbi", Text, true),
        ("keyRange", List, true),
        ("keyType", Any, false),
        ("valueType", Any, false),
        ("limit", Number, false),
        ("offset", Number, false),
    ],
    run,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    kv: String,
    dbi: String,
    key_range: Value,
    key_type: Option<Value>,
    value_type: Option<Value>,
    limit: Option<usize>,
    offset: Option<usize>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let tables = asking.state.handles.kv(asking.permit(), &input.kv)?;
    let span = Span::read(given(&input.key_range)?, &kind(input.key_type.as_ref())?)?;
    kind(input.value_type.as_ref())?;
    let (limit, offset) = (input.limit.unwrap_or(MAX_LIMIT), input.offset.unwrap_or(0));
    let mut told = head("kv", &input.kv);
    told.insert("dbi".to_owned(), json!(input.dbi));
    asking.list(told, false, |give| {
        let read = tables.read(|snapshot| {
            let Some(table) = snapshot.plain(&input.dbi)? else {
                return Ok(());
            };
            for entry in table.range(&span)?.skip(offset).take(limit) {
                let entry = entry?;
                if !give(json!([to_json(&entry.key()?), to_json(&entry.value()?)]).to_string()) {
                    break;
                }
            }
            Ok::<_, rung_kv::Error>(())
        });
        Ok(read?)
    })
}

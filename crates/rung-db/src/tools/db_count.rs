//! `rung.db_count`: how many keys lie in a range.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, List, Text};
use super::{Definition, read};
use crate::asking::{Asking, part, with_result};
use crate::json::given;
use crate::shape::Outcome;
use crate::store::Types;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_count",
    description: "How many entries a kv table has within a keyRange, as datalevin_kv_range takes it; all without one.",
    writes: false,
    arguments: &[
        ("kv", Text, true),
        ("dbi", Text, true),
        ("keyRange", List, false),
        ("keyType", Any, false),
    ],
    run,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    kv: String,
    dbi: String,
    key_range: Option<Value>,
    key_type: Option<Value>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let store = asking.kv(&input.kv)?;
    let range = input.key_range.unwrap_or_else(|| json!([":all"]));
    let types = Types::read(part(input.key_type.as_ref())?, None)?;
    let count = store.count(&input.dbi, given(&range)?, &types)?;
    Ok(with_result(
        super::of_table(&input.kv, &input.dbi),
        json!(count),
    ))
}

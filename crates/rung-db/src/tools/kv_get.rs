//! `datalevin_kv_get`: the value of a key.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, Text, Whether};
use super::{Definition, of_table, read};
use crate::asking::{Asking, part, with_result};
use crate::json::{given, to_json};
use crate::shape::Outcome;
use crate::store::Types;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_kv_get",
    description: "The value of a key in a table. Types: data, string, long, keyword, ...",
    writes: false,
    arguments: &[
        ("kv", Text, true),
        ("dbi", Text, true),
        ("key", Any, true),
        ("keyType", Any, false),
        ("valueType", Any, false),
        ("returnPair", Whether, false),
    ],
    run,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    kv: String,
    dbi: String,
    key: Value,
    key_type: Option<Value>,
    value_type: Option<Value>,
    #[serde(default)]
    return_pair: bool,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let store = asking.kv(&input.kv)?;
    let types = Types::read(
        part(input.key_type.as_ref())?,
        part(input.value_type.as_ref())?,
    )?;
    let found = store.get(&input.dbi, given(&input.key)?, &types)?;
    let result = match found {
        None => Value::Null,
        Some((key, value)) if input.return_pair => json!([to_json(&key), to_json(&value)]),
        Some((_, value)) => to_json(&value),
    };
    let told = of_table(&input.kv, &input.dbi);
    Ok(with_result(told, result))
}

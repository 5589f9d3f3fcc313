//! `datalevin_kv_get`: the value of a key.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, Text, Whether};
use super::{Definition, parameters, parse_input, table_envelope};
use crate::asking::{Asking, optional_edn, with_result};
use crate::json::{parse_argument, to_json};
use crate::shape::Outcome;
use crate::store::KeyValueTypes;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_kv_get",
    description: "The value of a key in a table.",
    writes: false,
    arguments: &[
        ("kv", Text, true, parameters::KV),
        ("dbi", Text, true, parameters::DBI),
        ("key", Any, true, "Key"),
        ("keyType", Any, false, parameters::KEY_TYPE),
        ("valueType", Any, false, parameters::VALUE_TYPE),
        ("returnPair", Whether, false, "Return [key, value]"),
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
    let input: Input = parse_input(input)?;
    let store = asking.kv(&input.kv)?;
    let types = KeyValueTypes::parse(
        optional_edn(input.key_type.as_ref())?,
        optional_edn(input.value_type.as_ref())?,
    )?;
    let found = store.get(&input.dbi, parse_argument(&input.key)?, &types)?;
    let result = match found {
        None => Value::Null,
        Some((key, value)) if input.return_pair => json!([to_json(&key), to_json(&value)]),
        Some((_, value)) => to_json(&value),
    };
    let told = table_envelope(&input.kv, &input.dbi);
    Ok(with_result(told, result))
}

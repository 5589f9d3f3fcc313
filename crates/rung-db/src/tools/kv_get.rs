//! `datalevin_kv_get`: the value of a key.

use rung_fault::Fault;
use rung_tool::ParameterType::{Any, Boolean, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Databases, parameters, reading_tool, table_envelope};
use crate::context::{DatabaseContext, optional_edn, with_result};
use crate::json::{parse_argument, to_json};
use crate::store::KeyValueTypes;

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_kv_get",
    "The value of a key in a table.",
    &[
        ("kv", Text, true, parameters::KV),
        ("dbi", Text, true, parameters::DBI),
        ("key", Any, true, "Key"),
        ("keyType", Any, false, parameters::KEY_TYPE),
        ("valueType", Any, false, parameters::VALUE_TYPE),
        ("returnPair", Boolean, false, "Return [key, value]"),
    ],
    run,
);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    kv: String,
    dbi: String,
    key: Value,
    key_type: Option<Value>,
    value_type: Option<Value>,
    #[serde(default)]
    return_pair: bool,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let store = context.kv(&input.kv)?;
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

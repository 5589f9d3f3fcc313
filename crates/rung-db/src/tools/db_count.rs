//! `rung.db_count`: counts the entries in a range of keys.

use rung_fault::Fault;
use rung_tool::ParameterType::{Any, List, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, optional_edn, with_result};
use crate::json::parse_argument;
use crate::store::KeyValueTypes;

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "rung.db_count",
    "Counts the entries of a table with keys in keyRange; all entries without it.",
    &[
        ("kv", Text, true, parameters::KV),
        ("dbi", Text, true, parameters::DBI),
        ("keyRange", List, false, parameters::KEY_RANGE),
        ("keyType", Any, false, parameters::KEY_TYPE),
    ],
    run,
);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    kv: String,
    dbi: String,
    key_range: Option<Value>,
    key_type: Option<Value>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let store = context.kv(&input.kv)?;
    let range = input.key_range.unwrap_or_else(|| json!([":all"]));
    let types = KeyValueTypes::parse(optional_edn(input.key_type.as_ref())?, None)?;
    let count = store.count(&input.dbi, parse_argument(&range)?, &types)?;
    Ok(with_result(
        super::table_envelope(&input.kv, &input.dbi),
        json!(count),
    ))
}

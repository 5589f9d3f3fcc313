//! `datalevin_kv_range`: the pairs in a range of keys, in order.

use rung_fault::Fault;
use rung_tool::ParameterType::{Any, Count, List, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::Value;

use super::{Databases, parameters, reading_tool, table_envelope};
use crate::context::{DatabaseContext, optional_edn};
use crate::json::parse_argument;
use crate::row_sink::Slice;
use crate::store::KeyValueTypes;

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_kv_range",
    "Pairs of a table with keys in a range.",
    &[
        ("kv", Text, true, parameters::KV),
        ("dbi", Text, true, parameters::DBI),
        ("keyRange", List, true, parameters::KEY_RANGE),
        ("keyType", Any, false, parameters::KEY_TYPE),
        ("valueType", Any, false, parameters::VALUE_TYPE),
        ("limit", Count, false, parameters::LIMIT),
        ("offset", Count, false, parameters::OFFSET),
    ],
    run,
);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    kv: String,
    dbi: String,
    key_range: Value,
    key_type: Option<Value>,
    value_type: Option<Value>,
    limit: Option<usize>,
    offset: Option<usize>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let store = context.kv(&input.kv)?;
    let types = KeyValueTypes::parse(
        optional_edn(input.key_type.as_ref())?,
        optional_edn(input.value_type.as_ref())?,
    )?;
    let range = parse_argument(&input.key_range)?;
    let told = table_envelope(&input.kv, &input.dbi);
    let wanted = Slice::of(input.limit, input.offset);
    context.list(told, wanted, |sink| {
        store.range(&input.dbi, &range, &types, sink)
    })
}

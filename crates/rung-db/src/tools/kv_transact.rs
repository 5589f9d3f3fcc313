//! `datalevin_kv_transact`: changes tables, all or nothing.

use rung_fault::Fault;
use rung_tool::ParameterType::{Any, List, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Databases, parameters, writing_tool};
use crate::context::{DatabaseContext, envelope, optional_edn, with_result};
use crate::json::parse_argument;
use crate::store::KeyValueTypes;

pub(super) const TOOL: Tool<Databases, Input> = writing_tool(
    "datalevin_kv_transact",
    "Changes tables, all or nothing.",
    &[
        ("kv", Text, true, parameters::KV),
        ("dbi", Text, false, "Table, then not in txs"),
        (
            "txs",
            List,
            true,
            "[\":put\", table, key, value], [\":del\", table, key]",
        ),
        ("keyType", Any, false, parameters::KEY_TYPE),
        ("valueType", Any, false, parameters::VALUE_TYPE),
    ],
    run,
);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    kv: String,
    dbi: Option<String>,
    txs: Vec<Value>,
    key_type: Option<Value>,
    value_type: Option<Value>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let store = context.kv(&input.kv)?;
    let types = KeyValueTypes::parse(
        optional_edn(input.key_type.as_ref())?,
        optional_edn(input.value_type.as_ref())?,
    )?;
    let changes = input
        .txs
        .iter()
        .map(parse_argument)
        .collect::<Result<_, _>>()?;
    store.transact(input.dbi.as_deref(), changes, &types)?;
    Ok(with_result(envelope("kv", &input.kv), json!(":transacted")))
}

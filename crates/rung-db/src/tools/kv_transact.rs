//! `datalevin_kv_transact`: changes tables, all or nothing.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, List, Text};
use super::{Definition, parameters, parse_input};
use crate::asking::{Asking, envelope, optional_edn, with_result};
use crate::json::parse_argument;
use crate::shape::Outcome;
use crate::store::KeyValueTypes;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_kv_transact",
    description: "Changes tables, all or nothing.",
    writes: true,
    arguments: &[
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
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    kv: String,
    dbi: Option<String>,
    txs: Vec<Value>,
    key_type: Option<Value>,
    value_type: Option<Value>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = parse_input(input)?;
    let store = asking.kv(&input.kv)?;
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

//! `datalevin_kv_transact`: changes of tables, all of them or none.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, List, Text};
use super::{Definition, read};
use crate::asking::{Asking, head, part, with_result};
use crate::json::given;
use crate::shape::Outcome;
use crate::store::Types;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_kv_transact",
    description: "Changes tables, all or nothing: [\":put\", table, key, value], [\":del\", table, key]; with dbi without table.",
    writes: true,
    arguments: &[
        ("kv", Text, true),
        ("dbi", Text, false),
        ("txs", List, true),
        ("keyType", Any, false),
        ("valueType", Any, false),
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
    let input: Input = read(input)?;
    let store = asking.kv(&input.kv)?;
    let types = Types::read(
        part(input.key_type.as_ref())?,
        part(input.value_type.as_ref())?,
    )?;
    let changes = input.txs.iter().map(given).collect::<Result<_, _>>()?;
    store.transact(input.dbi.as_deref(), changes, &types)?;
    Ok(with_result(head("kv", &input.kv), json!(":transacted")))
}

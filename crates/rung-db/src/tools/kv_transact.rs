//! `datalevin_kv_transact`: changes of tables, all of them or none.

use rung_fault::Fault;
use rung_kv::typed::Op;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, List, Text};
use super::kv_get::kind;
use super::{Asking, Definition, head, read, with_result};
use crate::json::given;
use crate::shape::Outcome;

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
    let tables = asking.state.handles.kv(asking.permit(), &input.kv)?;
    let (key_type, value_type) = (
        kind(input.key_type.as_ref())?,
        kind(input.value_type.as_ref())?,
    );
    let given = input.txs.iter().map(given).collect::<Result<_, _>>()?;
    let ops = Op::read_all(given, input.dbi.as_deref(), &key_type, &value_type)?;
    tables.transact(&ops)?;
    Ok(with_result(head("kv", &input.kv), json!(":transacted")))
}

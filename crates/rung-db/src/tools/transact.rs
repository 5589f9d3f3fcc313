//! `datalevin_transact`: changes, all of them or none.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, List, Text};
use super::{Asking, Definition, datom_json, head, read, with_result};
use crate::json::{given, to_json};
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_transact",
    description: "Changes a database, all or nothing: entity maps, [\":db/add\", e, a, v].",
    writes: true,
    arguments: &[
        ("database", Text, true),
        ("txData", List, true),
        ("txMeta", Any, false),
    ],
    run,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    database: String,
    tx_data: Vec<Value>,
    tx_meta: Option<Value>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let db = asking.database(&input.database)?;
    let report = db.transact(&rung_edn::Value::Vector(
        input.tx_data.iter().map(given).collect::<Result<_, _>>()?,
    ))?;
    // It is done: whatever is left out of the report, it is no failure.
    let limits = asking.state.options.limits;
    let shown = report.datoms.iter().take(limits.max_items);
    let datoms: Vec<Value> = shown
        .map(|datom| datom_json(datom, &report.schema, report.tx))
        .collect();
    let (returned, original) = (datoms.len(), report.datoms.len());
    let result = json!({
        "tx-data": datoms,
        "tempids": to_json(&rung_edn::Value::Map(report.tempids.clone())),
        "tx-id": report.tx,
        "tx-meta": input.tx_meta,
    });
    let mut told = head("database", &input.database);
    if returned < original {
        let cut = json!({"kind": "items", "path": "result.tx-data", "limit": limits.max_items, "returned": returned, "original": original});
        told.insert(
            "meta".to_owned(),
            json!({"truncated": true, "truncations": [cut]}),
        );
    }
    Ok(with_result(told, result))
}

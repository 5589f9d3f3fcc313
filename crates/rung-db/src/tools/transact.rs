//! `datalevin_transact`: changes a database, all or nothing.

use rung_edn::Value as Edn;
use rung_fault::Fault;
use rung_tool::ParameterType::{Any, List, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Databases, parameters, writing_tool};
use crate::context::{DatabaseContext, envelope};
use crate::database::OutputDatom;
use crate::json::{parse_argument, to_json};

pub(super) const TOOL: Tool<Databases, Input> = writing_tool(
    "datalevin_transact",
    "Changes a database, all or nothing.",
    &[
        ("database", Text, true, parameters::DATABASE),
        ("txData", List, true, "Entity maps, [\":db/add\", e, a, v]"),
        ("txMeta", Any, false, "Returned as it is"),
    ],
    run,
);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    database: String,
    tx_data: Vec<Value>,
    tx_meta: Option<Value>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let database = context.database(&input.database)?;
    let changes = input
        .tx_data
        .iter()
        .map(parse_argument)
        .collect::<Result<_, _>>()?;
    let report = database.transact(changes)?;
    let result = json!({
        "tx-data": report.facts.iter().map(OutputDatom::to_json).collect::<Vec<_>>(),
        "tempids": to_json(&Edn::Map(report.tempids)),
        "tx-id": report.tx,
        "tx-meta": input.tx_meta,
    });
    let mut members = envelope("database", &input.database);
    members.insert("result".to_owned(), result);
    Ok(Payload::Whole {
        members,
        max_items: Some(context.state.options.limits.max_items),
    })
}

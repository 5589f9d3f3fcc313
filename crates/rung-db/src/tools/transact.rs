//! `datalevin_transact`: changes, all of them or none.

use rung_edn::Value as Edn;
use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, List, Text};
use super::{Definition, read};
use crate::asking::{Asking, head};
use crate::database::Fact;
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
    let database = asking.database(&input.database)?;
    let changes = input.tx_data.iter().map(given).collect::<Result<_, _>>()?;
    let report = database.transact(changes)?;
    let facts: Vec<Value> = report.facts.iter().map(Fact::to_json).collect();
    let result = [
        ("tx-data", facts.into()),
        ("tempids", to_json(&Edn::Map(report.tempids))),
        ("tx-id", report.tx.into()),
        ("tx-meta", input.tx_meta.into()),
    ];
    // It is done: whatever is left out of the report, it is no failure.
    Ok(Outcome::Report {
        head: head("database", &input.database),
        result: result
            .map(|(name, value): (&str, Value)| (name.to_owned(), value))
            .into_iter()
            .collect(),
        list: "tx-data",
    })
}

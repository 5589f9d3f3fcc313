//! `datalevin_query`: a Datalog query.

use rung_edn::Value as Edn;
use rung_fault::{Code, Detail, Fault};
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{List, Text};
use super::{Asking, Definition, head, read, with_result};
use crate::json::{given, to_json};
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_query",
    description: "Answers a Datalog query (EDN text). Rules and symbols in inputs as {\"~edn\": \"...\"}.",
    writes: false,
    arguments: &[
        ("database", Text, true),
        ("query", Text, true),
        ("inputs", List, false),
    ],
    run,
};

#[derive(Deserialize)]
struct Input {
    database: String,
    query: String,
    #[serde(default)]
    inputs: Option<Vec<Value>>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let db = asking.database(&input.database)?;
    let query = rung_edn::read(&input.query).map_err(|error| {
        let why = format!("the query is no EDN: {error}");
        Fault::new(Code::InvalidEdn, why).with(Detail::Field, "query")
    })?;
    let inputs: Vec<Edn> = input
        .inputs
        .unwrap_or_default()
        .iter()
        .map(given)
        .collect::<Result<_, _>>()?;
    let beside = head("database", &input.database);
    let answered = db.head(&query)?;
    if answered.is_one() {
        let answer = db.query(&query, &inputs, &asking.bounds)?;
        return Ok(with_result(beside, to_json(&answer.into_value())));
    }
    asking.list(beside, answered.is_set(), |give| {
        let mut take = |head: &rung_datalog::Head, row: Vec<Edn>| {
            Ok(give(to_json(&head.row(row)).to_string()))
        };
        db.each_row(&query, &inputs, &asking.bounds, &mut take)?;
        Ok(())
    })
}

//! `datalevin_query`: a Datalog query.

use rung_edn::Value as Edn;
use rung_fault::{Code, Detail, Fault};
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{List, Text};
use super::{Definition, read};
use crate::asking::{Asking, head};
use crate::json::given;
use crate::shape::Outcome;
use crate::taker::Wanted;

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
    let database = asking.database(&input.database)?;
    let query = parsed(&input.query)?;
    let inputs: Vec<Edn> = input
        .inputs
        .unwrap_or_default()
        .iter()
        .map(given)
        .collect::<Result<_, _>>()?;
    asking.answer(head("database", &input.database), Wanted::ALL, |taker| {
        database.query(&query, &inputs, taker)
    })
}

/// A query as it is written.
pub(super) fn parsed(text: &str) -> Result<Edn, Fault> {
    rung_edn::read(text).map_err(|error| {
        let why = format!("the query is no EDN: {error}");
        Fault::new(Code::InvalidEdn, why).with(Detail::Field, "query")
    })
}

//! `rung.db_explain`: how a query is answered, step by step.

use rung_datalog::Step;
use rung_fault::Fault;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{List, Text};
use super::{Definition, read};
use crate::asking::{Asking, head, with_result};
use crate::json::given;
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_explain",
    description: "Answers a query, and says how instead of what: each step in the order in which it was done, with the rows expected and found.",
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
    inputs: Vec<Value>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let database = asking.database(&input.database)?;
    let query = super::query::parsed(&input.query)?;
    let inputs = input.inputs.iter().map(given);
    let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
    let (answer, steps) = database
        .here()?
        .explain(&query, &inputs, &asking.watch.bounds())?;
    let steps: Vec<Value> = steps.iter().map(told).collect();
    let result = json!({"rows": answer.rows.len(), "steps": steps});
    Ok(with_result(head("database", &input.database), result))
}

fn told(step: &Step) -> Value {
    json!({
        "depth": step.depth, "clause": step.clause, "way": step.way, "times": step.times,
        "expected": step.expected, "rows": step.rows, "us": step.us,
    })
}

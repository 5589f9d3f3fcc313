//! `rung.db_explain`: the steps in which a query is evaluated.

use rung_datalog::PlanStep;
use rung_fault::Fault;
use rung_tool::ParameterType::{List, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope, with_result};
use crate::json::parse_argument;

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "rung.db_explain",
    "Runs a query and returns its plan instead of its rows: each step in order, with the rows expected and found.",
    &[
        ("database", Text, true, parameters::DATABASE),
        ("query", Text, true, parameters::QUERY),
        ("inputs", List, false, parameters::INPUTS),
    ],
    run,
);

#[derive(Deserialize)]
pub(super) struct Input {
    database: String,
    query: String,
    #[serde(default)]
    inputs: Vec<Value>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let database = context.database(&input.database)?;
    let query = super::query::parse_query(&input.query)?;
    let inputs = input.inputs.iter().map(parse_argument);
    let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
    let (answer, steps) = database.local()?.explain(
        &query,
        &inputs,
        &crate::row_sink::query_bounds(context.cancellation),
    )?;
    let steps: Vec<Value> = steps.iter().map(step_json).collect();
    let result = json!({"rows": answer.rows.len(), "steps": steps});
    Ok(with_result(envelope("database", &input.database), result))
}

fn step_json(step: &PlanStep) -> Value {
    json!({
        "depth": step.depth, "clause": step.clause, "way": step.method, "times": step.times,
        "expected": step.expected, "rows": step.rows, "us": step.elapsed_us,
    })
}

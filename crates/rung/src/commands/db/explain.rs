//! `rung db explain`.

use std::io::Write as _;

use rung_datalog::PlanStep;
use rung_edn::{Map, Value};
use rung_fault::Fault;
use serde_json::json;

use super::DatabaseOpener;
use crate::cli::DbQueryArgs;
use crate::exit::{Result, output_error};
use crate::table::format_table;

pub(super) fn run(args: &DbQueryArgs, databases: &DatabaseOpener) -> Result {
    let db = databases.open_for_reading(&args.folder)?;
    let query = super::parse_query(&args.query)?;
    let inputs = args.inputs.iter().map(|said| super::parse_argument(said));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let explained = db.explain(&query, &inputs, &super::query_bounds(args.timeout));
    let (answer, steps) = explained.map_err(Fault::from)?;
    let mut out = std::io::stdout().lock();
    if args.form.json {
        let steps: Vec<serde_json::Value> = steps.iter().map(step_to_json).collect();
        let told = json!({"rows": answer.rows.len(), "steps": steps});
        return writeln!(out, "{told}").map_err(output_error);
    }
    if args.form.edn {
        let steps = Value::Vector(steps.iter().map(step_to_edn).collect());
        return writeln!(out, "{steps}").map_err(output_error);
    }
    let rows: Vec<Vec<String>> = steps.iter().map(step_row).collect();
    let heading = ["STEP", "METHOD", "TIMES", "EXPECTED", "ROWS", "US"];
    write!(out, "{}", format_table(&heading, &rows)).map_err(output_error)?;
    writeln!(out, "found: {}", answer.rows.len()).map_err(output_error)
}

fn step_row(step: &PlanStep) -> Vec<String> {
    vec![
        format!("{}{}", "  ".repeat(step.depth), step.clause),
        step.method.to_owned(),
        step.times.to_string(),
        step.expected
            .map(|rows| rows.to_string())
            .unwrap_or_default(),
        step.rows.to_string(),
        step.elapsed_us.to_string(),
    ]
}

fn step_to_json(step: &PlanStep) -> serde_json::Value {
    json!({
        "depth": step.depth, "clause": step.clause, "way": step.method, "times": step.times,
        "expected_rows": step.expected, "rows": step.rows, "us": step.elapsed_us,
    })
}

fn step_to_edn(step: &PlanStep) -> Value {
    let long = |number: usize| Value::Long(i64::try_from(number).unwrap_or(i64::MAX));
    let members: Map = [
        ("depth", long(step.depth)),
        ("clause", Value::text(step.clause.as_str())),
        ("way", Value::text(step.method)),
        ("times", long(step.times)),
        ("expected-rows", step.expected.map_or(Value::Nil, long)),
        ("rows", long(step.rows)),
        (
            "us",
            Value::Long(i64::try_from(step.elapsed_us).unwrap_or(i64::MAX)),
        ),
    ]
    .into_iter()
    .map(|(name, value)| (Value::keyword(name), value))
    .collect();
    Value::Map(members)
}

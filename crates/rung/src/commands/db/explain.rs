//! `rung db explain`

use std::io::Write as _;

use rung_datalog::Step;
use rung_edn::{Map, Value};
use rung_fault::Fault;
use serde_json::json;

use super::Databases;
use crate::cli::DbQueryArgs;
use crate::exit::{Result, output};
use crate::table::table;

pub(super) fn run(args: &DbQueryArgs, databases: &Databases) -> Result {
    let db = databases.to_read(&args.folder)?;
    let query = super::value(&args.query)?;
    let inputs = args.inputs.iter().map(|said| super::value(said));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let explained = db.explain(&query, &inputs, &super::bounds(args.timeout));
    let (answer, steps) = explained.map_err(Fault::from)?;
    let mut out = std::io::stdout().lock();
    if args.form.json {
        let steps: Vec<serde_json::Value> = steps.iter().map(of_json).collect();
        let told = json!({"rows": answer.rows.len(), "steps": steps});
        return writeln!(out, "{told}").map_err(output);
    }
    if args.form.edn {
        let steps = Value::Vector(steps.iter().map(of_edn).collect());
        return writeln!(out, "{steps}").map_err(output);
    }
    let rows: Vec<Vec<String>> = steps.iter().map(row).collect();
    let heading = ["step", "way", "times", "expected", "rows", "us"];
    write!(out, "{}", table(&heading, &rows)).map_err(output)?;
    writeln!(out, "found: {}", answer.rows.len()).map_err(output)
}

fn row(step: &Step) -> Vec<String> {
    vec![
        format!("{}{}", "  ".repeat(step.depth), step.clause),
        step.way.to_owned(),
        step.times.to_string(),
        step.expected
            .map(|rows| rows.to_string())
            .unwrap_or_default(),
        step.rows.to_string(),
        step.us.to_string(),
    ]
}

fn of_json(step: &Step) -> serde_json::Value {
    json!({
        "depth": step.depth, "clause": step.clause, "way": step.way, "times": step.times,
        "expected_rows": step.expected, "rows": step.rows, "us": step.us,
    })
}

fn of_edn(step: &Step) -> Value {
    let long = |number: usize| Value::Long(i64::try_from(number).unwrap_or(i64::MAX));
    let members: Map = [
        ("depth", long(step.depth)),
        ("clause", Value::text(step.clause.as_str())),
        ("way", Value::text(step.way)),
        ("times", long(step.times)),
        ("expected-rows", step.expected.map_or(Value::Nil, long)),
        ("rows", long(step.rows)),
        (
            "us",
            Value::Long(i64::try_from(step.us).unwrap_or(i64::MAX)),
        ),
    ]
    .into_iter()
    .map(|(name, value)| (Value::keyword(name), value))
    .collect();
    Value::Map(members)
}

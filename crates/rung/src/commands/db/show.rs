//! Answers: as tables for people, as EDN or JSON for programs.

use std::io::Write as _;

use rung_datalog::Answer;
use rung_db::json::to_json;
use rung_edn::Value;

use crate::cli::DbForm;
use crate::exit::{Result, output};
use crate::table::table;

pub(super) fn answer(answer: Answer, form: &DbForm) -> Result {
    if form.is_for_programs() {
        return value(&answer.into_value(), form);
    }
    let heading: Vec<&str> = answer.head.columns.iter().map(String::as_str).collect();
    let mut rows: Vec<Vec<String>> = answer
        .rows
        .iter()
        .map(|row| row.iter().map(cell).collect())
        .collect();
    if answer.head.is_set() {
        // What has no order is easier to find in one.
        let mut sorted: Vec<(&Vec<Value>, Vec<String>)> = answer.rows.iter().zip(rows).collect();
        sorted.sort_by(|one, other| one.0.cmp(other.0));
        rows = sorted.into_iter().map(|(_, cells)| cells).collect();
    }
    let mut out = std::io::stdout().lock();
    write!(out, "{}", table(&heading, &rows)).map_err(output)?;
    let (count, s) = (rows.len(), if rows.len() == 1 { "" } else { "s" });
    writeln!(out, "{count} row{s}").map_err(output)
}

pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        other => other.to_string(),
    }
}

pub(super) fn value(value: &Value, form: &DbForm) -> Result {
    let mut out = std::io::stdout().lock();
    if form.json {
        writeln!(out, "{}", to_json(value)).map_err(output)
    } else {
        writeln!(out, "{value}").map_err(output)
    }
}

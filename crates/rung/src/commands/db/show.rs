//! Prints results: as tables for people, as EDN or JSON for programs.

use std::io::Write as _;

use rung_datalog::QueryResult;
use rung_db::json::to_json;
use rung_edn::Value;

use crate::cli::DbOutputFormat;
use crate::exit::{Result, output_error};
use crate::table::format_data_table;

pub(super) fn print_answer(answer: QueryResult, form: &DbOutputFormat) -> Result {
    if form.is_for_programs() {
        return print_value(&answer.into_value(), form);
    }
    let heading: Vec<&str> = answer.head.columns.iter().map(String::as_str).collect();
    let mut rows: Vec<Vec<String>> = answer
        .rows
        .iter()
        .map(|row| row.iter().map(format_cell).collect())
        .collect();
    if answer.head.is_set() {
        // A set has no order: sort its rows for display.
        let mut sorted: Vec<(&Vec<Value>, Vec<String>)> = answer.rows.iter().zip(rows).collect();
        sorted.sort_by(|one, other| one.0.cmp(other.0));
        rows = sorted.into_iter().map(|(_, cells)| cells).collect();
    }
    let mut out = std::io::stdout().lock();
    write!(out, "{}", format_data_table(&heading, &rows)).map_err(output_error)?;
    let (count, s) = (rows.len(), if rows.len() == 1 { "" } else { "s" });
    writeln!(out, "{count} row{s}").map_err(output_error)
}

pub(super) fn format_cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        other => other.to_string(),
    }
}

pub(super) fn print_value(value: &Value, form: &DbOutputFormat) -> Result {
    let mut out = std::io::stdout().lock();
    if form.json {
        writeln!(out, "{}", to_json(value)).map_err(output_error)
    } else {
        writeln!(out, "{value}").map_err(output_error)
    }
}

//! Answers: as tables for people, as EDN or JSON for programs.

use std::io::Write as _;

use data_encoding::BASE64;
use rung_datalog::Answer;
use rung_edn::{Value, read};
use serde_json::{Map, json};

use crate::cli::DbForm;
use crate::exit::{Result, output};
use crate::table::table;

/// Whole numbers that every reader of JSON reads exactly.
const EXACT: i64 = (1 << 53) - 1;

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

/// A value as JSON; what JSON does not have is tagged.
pub(super) fn to_json(value: &Value) -> serde_json::Value {
    let tagged = |tag: &str, inner: serde_json::Value| {
        let mut members = Map::new();
        members.insert(tag.to_owned(), inner);
        serde_json::Value::Object(members)
    };
    match value {
        Value::Nil => serde_json::Value::Null,
        Value::Bool(value) => json!(value),
        Value::Long(number) if number.abs() > EXACT => tagged("~i64", json!(number.to_string())),
        Value::Long(number) => json!(number),
        Value::BigInt(number) => tagged("~bigint", json!(number.to_string())),
        Value::BigDec(_) => tagged("~bigdec", json!(value.to_string().trim_end_matches('M'))),
        Value::Float(number) if number.is_finite() => json!(number),
        Value::Double(number) if number.is_finite() => json!(number),
        Value::String(text) => json!(&**text),
        Value::Keyword(name) => json!(format!(":{name}")),
        Value::Instant(_) => {
            let written = value.to_string();
            let moment = written
                .trim_start_matches("#inst \"")
                .trim_end_matches("-00:00\"");
            tagged("~date", json!(format!("{moment}Z")))
        }
        Value::Uuid(_) => {
            let written = value.to_string();
            tagged(
                "~uuid",
                json!(written.trim_start_matches("#uuid \"").trim_end_matches('"')),
            )
        }
        Value::Bytes(bytes) => tagged("~bytes", json!(BASE64.encode(bytes))),
        Value::Vector(items) | Value::List(items) => items.iter().map(to_json).collect(),
        Value::Set(items) => tagged("~set", items.iter().map(to_json).collect()),
        Value::Map(members) => {
            let names: Option<Vec<String>> = members.keys().map(key).collect();
            if let Some(names) = names {
                let members = names.into_iter().zip(members.values().map(to_json));
                return serde_json::Value::Object(members.collect());
            }
            let pairs = members
                .iter()
                .map(|(key, value)| json!([to_json(key), to_json(value)]));
            tagged("~map", pairs.collect())
        }
        Value::Symbol(_)
        | Value::Char(_)
        | Value::Ratio(_)
        | Value::Float(_)
        | Value::Double(_)
        | Value::Tagged(..) => tagged("~edn", json!(value.to_string())),
    }
}

/// A key as JSON has keys, where it can.
fn key(key: &Value) -> Option<String> {
    match key {
        Value::String(text) => Some(text.to_string()),
        Value::Keyword(name) => Some(format!(":{name}")),
        _ => None,
    }
}

/// A value of JSON: what is tagged is what it was, and names that begin with a colon are keywords.
pub(super) fn of_json(value: &serde_json::Value) -> Value {
    let name = |text: &str| match text.strip_prefix(':') {
        Some(name) if !name.is_empty() => Value::keyword(name),
        _ => Value::text(text),
    };
    match value {
        serde_json::Value::Null => Value::Nil,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(number) => Value::Long(number),
            None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::text(text.as_str()),
        serde_json::Value::Array(items) => Value::Vector(items.iter().map(of_json).collect()),
        serde_json::Value::Object(members) => {
            if let (1, Some((tag, serde_json::Value::String(text)))) =
                (members.len(), members.iter().next())
            {
                let written = match tag.as_str() {
                    "~edn" | "~i64" => Some(text.clone()),
                    "~date" => Some(format!("#inst \"{text}\"")),
                    "~uuid" => Some(format!("#uuid \"{text}\"")),
                    "~bigint" => Some(format!("{text}N")),
                    "~bigdec" => Some(format!("{text}M")),
                    "~bytes" => Some(format!("#datalevin/bytes \"{text}\"")),
                    _ => None,
                };
                if let Some(value) = written.and_then(|written| read(&written).ok()) {
                    return value;
                }
            }
            Value::Map(
                members
                    .iter()
                    .map(|(key, value)| (name(key), of_json(value)))
                    .collect(),
            )
        }
    }
}

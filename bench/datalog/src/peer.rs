//! The published Datalevin engine on the same data and the same questions, in a process of its own.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::QUESTIONS;

/// The time and the number of rows of each question, by its name.
pub fn times(data: &Path, only: Option<&str>) -> Result<HashMap<String, (Duration, usize)>> {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peer.py");
    let questions = QUESTIONS.iter().filter(|question| only.is_none_or(|word| question.name.contains(word)));
    let questions: Vec<Value> = questions
        .map(|question| json!({"name": question.name, "data": question.data, "query": question.query, "inputs": format!("[{}]", question.given())}))
        .collect();
    let schemas = json!({"people": crate::data::schema("people"), "graph": crate::data::schema("graph")});
    let mut child = Command::new(python).arg(script).arg(data).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let asked = json!({"schemas": schemas, "questions": questions}).to_string();
    child.stdin.take().context("its input")?.write_all(asked.as_bytes())?;
    let output = child.wait_with_output()?;
    anyhow::ensure!(output.status.success(), "Python has no datalevin");
    let told: HashMap<String, (f64, usize)> = serde_json::from_slice(&output.stdout)?;
    Ok(told.into_iter().map(|(name, (ms, rows))| (name, (Duration::from_secs_f64(ms / 1_000.0), rows))).collect())
}

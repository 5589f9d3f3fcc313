//! `datalevin_open_kv`: a key-value store, under an id.

use rung_fault::Fault;
use rung_kv::KvOptions;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, Text};
use super::{Asking, Definition, head, read};
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_open_kv",
    description: "Opens a key-value store by dir or uri; gives its id.",
    writes: false,
    arguments: &[
        ("dir", Text, false),
        ("uri", Text, false),
        ("opts", Any, false),
        ("clientOpts", Any, false),
    ],
    run,
};

#[derive(Deserialize)]
struct Input {
    dir: Option<String>,
    uri: Option<String>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let folder = asking.target(input.dir.as_deref(), input.uri.as_deref())?;
    let writes = asking.state.options.allow_writes;
    let options = KvOptions {
        create: writes,
        writable: writes,
        ..KvOptions::default()
    };
    let id = asking
        .state
        .handles
        .open_kv(asking.permit(), &folder, options)?;
    let mut told = head("kv", &id);
    told.insert("target".to_owned(), json!(input.dir));
    told.insert("remote".to_owned(), json!(false));
    Ok(Outcome::Whole(told))
}

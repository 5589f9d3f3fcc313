//! `datalevin_open_database`: a database, under an id.

use rung_datalog::Options;
use rung_edn::Value as Edn;
use rung_fault::{Code, Detail, Fault};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, Text, Whether};
use super::{Asking, Definition, head, read};
use crate::json::given;
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_open_database",
    description: "Opens a Datalog database by dir or uri; gives its id.",
    writes: false,
    arguments: &[
        ("dir", Text, false),
        ("uri", Text, false),
        ("create", Whether, false),
        ("schema", Any, false),
        ("opts", Any, false),
        ("clientOpts", Any, false),
    ],
    run,
};

#[derive(Deserialize)]
struct Input {
    dir: Option<String>,
    uri: Option<String>,
    #[serde(default)]
    create: bool,
    schema: Option<Value>,
    opts: Option<Value>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let folder = asking.target(input.dir.as_deref(), input.uri.as_deref())?;
    let writes = asking.state.options.allow_writes;
    let said = |value: Option<Value>| value.filter(|value| !value.is_null());
    let (schema, opts) = (said(input.schema), said(input.opts));
    let changes = [
        ("create", input.create),
        ("schema", schema.is_some()),
        ("opts", opts.is_some()),
    ];
    if let Some((field, _)) = changes.iter().find(|(_, said)| *said && !writes) {
        let why = format!("{field} would change something, and nothing may be changed here");
        return Err(Fault::new(Code::WritesDisabled, why)
            .with_hint("leave it out to open what is there")
            .with(Detail::Field, *field));
    }
    let options = Options {
        create: writes,
        writable: writes,
    };
    let (id, db) =
        asking
            .state
            .handles
            .open_database(asking.permit(), &folder, &options, input.create)?;
    if let Some(Edn::Map(opts)) = opts.as_ref().map(given).transpose()? {
        db.set_options(&opts)?;
    }
    if let Some(schema) = schema {
        db.update_schema(&given(&schema)?)?;
    }
    let mut told = head("database", &id);
    told.insert("created".to_owned(), json!(input.create));
    told.insert("target".to_owned(), json!(input.dir));
    told.insert("remote".to_owned(), json!(false));
    Ok(Outcome::Whole(told))
}

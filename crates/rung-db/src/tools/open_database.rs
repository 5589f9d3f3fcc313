//! `datalevin_open_database`: a database, under an id.

use rung_auth::Access;
use rung_dtlv::Store;
use rung_fault::{Code, Detail, Fault};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, Text, Whether};
use super::{Definition, read};
use crate::asking::{Asking, Place, head, part, some_options};
use crate::open::Given;
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
#[serde(rename_all = "camelCase")]
struct Input {
    dir: Option<String>,
    uri: Option<String>,
    #[serde(default)]
    create: bool,
    schema: Option<Value>,
    opts: Option<Value>,
    client_opts: Option<Value>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let named = (input.dir.as_deref(), input.uri.as_deref());
    let place = asking.place(named, Store::Datalog, input.client_opts.as_ref())?;
    let given = Given {
        schema: part(input.schema.as_ref())?,
        opts: some_options(input.opts.as_ref())?,
    };
    let access = place.access(asking.most());
    let changes = [
        ("create", input.create),
        ("schema", given.schema.is_some()),
        ("opts", given.opts.is_some()),
    ];
    if let Some((field, _)) = changes
        .iter()
        .find(|(_, said)| *said && access < Access::Write)
    {
        let why = format!("{field} would change something, and nothing may be changed here");
        return Err(Fault::new(Code::WritesDisabled, why)
            .with_hint("leave it out to open what is there")
            .with(Detail::Field, *field));
    }
    let told = (place.shown(), place.is_elsewhere());
    let (handles, permit) = (&asking.state.handles, asking.permit());
    let id = match place {
        Place::Folder(folder) => handles.open_database(permit, &folder, &given, input.create)?,
        Place::Server(session) => {
            let given = (given, access);
            handles.open_elsewhere(permit, &session, given, &asking.watch, input.create)?
        }
    };
    let (target, is_elsewhere) = told;
    let mut told = head("database", &id);
    told.insert("created".to_owned(), json!(input.create));
    told.insert("target".to_owned(), target);
    told.insert("remote".to_owned(), json!(is_elsewhere));
    Ok(Outcome::Whole(told))
}

//! `datalevin_open_database`: opens a database and returns its id.

use rung_auth::Access;
use rung_dtlv::DtlvStoreKind;
use rung_fault::{Code, Detail, Fault};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, Text, Whether};
use super::{Definition, parameters, parse_input};
use crate::asking::{Asking, OpenTarget, envelope, optional_edn, optional_map};
use crate::handles::DatabaseSettings;
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_open_database",
    description: "Opens a Datalog database; returns its id.",
    writes: false,
    arguments: &[
        ("dir", Text, false, parameters::DIR),
        ("uri", Text, false, parameters::URI),
        ("create", Whether, false, "Return a new id"),
        ("schema", Any, false, "Map of attributes"),
        ("opts", Any, false, "Map of options"),
        ("clientOpts", Any, false, parameters::CLIENT_OPTS),
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
    let input: Input = parse_input(input)?;
    let named = (input.dir.as_deref(), input.uri.as_deref());
    let place = asking.place(named, DtlvStoreKind::Datalog, input.client_opts.as_ref())?;
    let given = DatabaseSettings {
        schema: optional_edn(input.schema.as_ref())?,
        opts: optional_map(input.opts.as_ref())?,
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
        let why = format!("{field} writes, and this database is open for reading only");
        return Err(Fault::new(Code::WritesDisabled, why)
            .with_hint("call datalevin_open_database without it to open an existing database")
            .with(Detail::Field, *field));
    }
    let told = (place.display_json(), place.is_remote());
    let created = match &place {
        OpenTarget::Folder(folder) => input.create || !folder.exists(),
        // A server does not report whether it creates the database.
        OpenTarget::Server(_) => input.create,
    };
    let (handles, permit) = (&asking.state.handles, asking.permit());
    let id = match place {
        OpenTarget::Folder(folder) => {
            handles.open_database(permit, &folder, &given, input.create)?
        }
        OpenTarget::Server(session) => {
            let given = (given, access);
            handles.open_remote_database(permit, &session, given, &asking.watch, input.create)?
        }
    };
    let (target, is_elsewhere) = told;
    let mut told = envelope("database", &id);
    told.insert("created".to_owned(), json!(created));
    told.insert("target".to_owned(), target);
    told.insert("remote".to_owned(), json!(is_elsewhere));
    Ok(Outcome::Whole(told))
}

//! `datalevin_open_database`: opens a database and returns its id.

use rung_auth::Access;
use rung_dtlv::DtlvStoreKind;
use rung_fault::{Code, Detail, Fault};
use rung_tool::ParameterType::{Any, Boolean, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, OpenTarget, envelope, optional_edn, optional_map};
use crate::handles::DatabaseSettings;

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_open_database",
    "Opens a Datalog database; returns its id.",
    &[
        ("dir", Text, false, parameters::DIR),
        ("uri", Text, false, parameters::URI),
        ("create", Boolean, false, "Return a new id"),
        ("schema", Any, false, "Map of attributes"),
        ("opts", Any, false, "Map of options"),
        ("clientOpts", Any, false, parameters::CLIENT_OPTS),
    ],
    run,
)
.as_entry();

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    dir: Option<String>,
    uri: Option<String>,
    #[serde(default)]
    create: bool,
    schema: Option<Value>,
    opts: Option<Value>,
    client_opts: Option<Value>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let named = (input.dir.as_deref(), input.uri.as_deref());
    let place = context.place(named, DtlvStoreKind::Datalog, input.client_opts.as_ref())?;
    let given = DatabaseSettings {
        schema: optional_edn(input.schema.as_ref())?,
        opts: optional_map(input.opts.as_ref())?,
    };
    let access = place.access(context.most());
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
    let (handles, permit) = (&context.state.handles, context.permit());
    let id = match place {
        OpenTarget::Folder(folder) => {
            handles.open_database(permit, &folder, &given, input.create)?
        }
        OpenTarget::Server(session) => {
            let given = (given, access);
            handles.open_remote_database(
                permit,
                &session,
                given,
                context.cancellation,
                input.create,
            )?
        }
    };
    let (target, is_elsewhere) = told;
    let mut told = envelope("database", &id);
    told.insert("created".to_owned(), json!(created));
    told.insert("target".to_owned(), target);
    told.insert("remote".to_owned(), json!(is_elsewhere));
    Ok(Payload::of(told))
}

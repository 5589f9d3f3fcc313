//! `datalevin_open_kv`: opens a key-value store and returns its id.

use rung_auth::Access;
use rung_dtlv::DtlvStoreKind;
use rung_fault::Fault;
use rung_tool::ParameterType::{Any, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, OpenTarget, envelope, optional_map};

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_open_kv",
    "Opens a key-value store; returns its id.",
    &[
        ("dir", Text, false, parameters::DIR),
        ("uri", Text, false, parameters::URI),
        ("opts", Any, false, "Map of options"),
        ("clientOpts", Any, false, parameters::CLIENT_OPTS),
    ],
    run,
);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    dir: Option<String>,
    uri: Option<String>,
    opts: Option<Value>,
    client_opts: Option<Value>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let named = (input.dir.as_deref(), input.uri.as_deref());
    let place = context.place(named, DtlvStoreKind::Kv, input.client_opts.as_ref())?;
    let opts = optional_map(input.opts.as_ref())?;
    let (handles, permit) = (&context.state.handles, context.permit());
    let id = match &place {
        OpenTarget::Folder(folder) => handles.open_kv(permit, folder)?,
        OpenTarget::Server(session) => {
            let access = context.most();
            // Store options of a server are ignored without write access.
            let opts = opts.filter(|_| access == Access::Write);
            handles.open_remote_kv(permit, session, (opts, access), context.cancellation)?
        }
    };
    let mut told = envelope("kv", &id);
    told.insert("target".to_owned(), place.display_json());
    told.insert("remote".to_owned(), json!(place.is_remote()));
    Ok(Payload::of(told))
}

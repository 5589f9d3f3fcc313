//! `datalevin_open_search_index`: opens a full-text index of a key-value store and returns its id.

use rung_fault::Fault;
use rung_tool::ParameterType::{Any, Text};
use rung_tool::{Payload, Tool};
use serde_json::json;

use super::{Databases, OpenIndexInput, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope, map_or_empty};

pub(super) const TOOL: Tool<Databases, OpenIndexInput> = reading_tool(
    "datalevin_open_search_index",
    "Opens a full-text index; returns its id.",
    &[
        ("kv", Text, true, parameters::KV),
        ("opts", Any, false, "Map, :domain"),
    ],
    run,
);

fn run(context: &DatabaseContext<'_>, input: OpenIndexInput) -> Result<Payload, Fault> {
    let store = context.kv(&input.kv)?;
    let index = store.texts(
        map_or_empty(input.opts.as_ref())?,
        context.may_change(&input.kv),
    )?;
    let handles = &context.state.handles;
    let id = handles.open_search(context.permit(), &input.kv, index)?;
    let mut told = envelope("searchIndex", &id);
    told.insert("kv".to_owned(), json!(input.kv));
    Ok(Payload::of(told))
}

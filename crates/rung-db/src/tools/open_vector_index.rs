//! `datalevin_open_vector_index`: opens a vector index of a key-value store and returns its id.

use rung_fault::Fault;
use serde_json::{Value, json};

use super::Kind::{Any, Text};
use super::{Definition, OpenIndexInput, parameters, parse_input};
use crate::asking::{Asking, envelope, map_or_empty};
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_open_vector_index",
    description: "Opens a vector index; returns its id.",
    writes: false,
    arguments: &[
        ("kv", Text, true, parameters::KV),
        ("opts", Any, true, "Map with :dimensions"),
    ],
    run,
};

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: OpenIndexInput = parse_input(input)?;
    let store = asking.kv(&input.kv)?;
    let index = store.vectors(
        map_or_empty(input.opts.as_ref())?,
        asking.may_change(&input.kv),
    )?;
    let handles = &asking.state.handles;
    let id = handles.open_vectors(asking.permit(), &input.kv, index)?;
    let mut told = envelope("vectorIndex", &id);
    told.insert("kv".to_owned(), json!(input.kv));
    Ok(Outcome::Whole(told))
}

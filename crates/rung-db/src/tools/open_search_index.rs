//! `datalevin_open_search_index`: an index of texts in a key-value store, under an id.

use rung_fault::Fault;
use serde_json::{Value, json};

use super::Kind::{Any, Text};
use super::{Definition, OfKv, read};
use crate::asking::{Asking, head, options};
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_open_search_index",
    description: "Opens a full-text index of a store; gives its id.",
    writes: false,
    arguments: &[("kv", Text, true), ("opts", Any, false)],
    run,
};

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: OfKv = read(input)?;
    let store = asking.kv(&input.kv)?;
    let index = store.texts(options(input.opts.as_ref())?, asking.may_change(&input.kv))?;
    let handles = &asking.state.handles;
    let id = handles.open_search(asking.permit(), &input.kv, index)?;
    let mut told = head("searchIndex", &id);
    told.insert("kv".to_owned(), json!(input.kv));
    Ok(Outcome::Whole(told))
}

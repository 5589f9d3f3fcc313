//! `datalevin_open_vector_index`: an index of vectors in a key-value store, under an id.

use rung_fault::{Code, Fault};
use rung_search::vectors::{VectorIndex, VectorOptions};
use serde_json::{Value, json};

use super::Kind::{Any, Text};
use super::{Asking, Definition, OfKv, domain_and_rest, head, read};
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_open_vector_index",
    description: "Opens a vector index of a store; opts has :dimensions. Gives its id.",
    writes: false,
    arguments: &[("kv", Text, true), ("opts", Any, true)],
    run,
};

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: OfKv = read(input)?;
    let tables = asking.state.handles.kv(asking.permit(), &input.kv)?;
    let (domain, options) = domain_and_rest(input.opts.as_ref())?;
    let options = VectorOptions::read(&options)?;
    let writes = asking.state.options.allow_writes;
    let index = VectorIndex::open(tables.kv(), &domain, Some(&options), writes)?;
    let index = index.ok_or_else(|| {
        let why = format!("there is no vector index {domain:?}");
        Fault::new(Code::NotFound, why).with_hint("writing must be allowed for one to be made")
    })?;
    let id = asking
        .state
        .handles
        .open_vectors(asking.permit(), &input.kv, tables, index)?;
    let mut told = head("vectorIndex", &id);
    told.insert("kv".to_owned(), json!(input.kv));
    Ok(Outcome::Whole(told))
}

//! `datalevin_open_search_index`: an index of texts in a key-value store, under an id.

use rung_fault::{Code, Fault};
use rung_search::text::{TextIndex, TextOptions};
use serde_json::{Value, json};

use super::Kind::{Any, Text};
use super::{Asking, Definition, OfKv, domain_and_rest, head, read};
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
    let tables = asking.state.handles.kv(asking.permit(), &input.kv)?;
    let (domain, options) = domain_and_rest(input.opts.as_ref())?;
    let index = if asking.state.options.allow_writes {
        TextIndex::create(tables.kv(), &domain, TextOptions::from_edn(&options)?)?
    } else {
        let found = TextIndex::open(tables.kv(), &domain)?;
        found.ok_or_else(|| {
            let why = format!("there is no search index {domain:?}");
            Fault::new(Code::NotFound, why).with_hint("writing must be allowed for one to be made")
        })?
    };
    let id = asking
        .state
        .handles
        .open_search(asking.permit(), &input.kv, tables, index)?;
    let mut told = head("searchIndex", &id);
    told.insert("kv".to_owned(), json!(input.kv));
    Ok(Outcome::Whole(told))
}

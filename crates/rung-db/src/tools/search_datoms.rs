//! `datalevin_search_datoms`: facts by whatever is known of them.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, Number, Text};
use super::{Definition, read};
use crate::asking::{Asking, head, part};
use crate::database::Known;
use crate::shape::Outcome;
use crate::taker::Wanted;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_search_datoms",
    description: "Datoms by entity, attribute and value.",
    writes: false,
    arguments: &[
        ("database", Text, true),
        ("e", Any, false),
        ("a", Any, false),
        ("v", Any, false),
        ("limit", Number, false),
        ("offset", Number, false),
    ],
    run,
};

#[derive(Deserialize)]
pub(super) struct Input {
    pub(super) database: String,
    e: Option<Value>,
    a: Option<Value>,
    v: Option<Value>,
    limit: Option<usize>,
    offset: Option<usize>,
}

impl Input {
    pub(super) fn known(&self) -> Result<Known, Fault> {
        Ok(Known {
            e: part(self.e.as_ref())?,
            a: part(self.a.as_ref())?,
            v: part(self.v.as_ref())?,
        })
    }
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let database = asking.database(&input.database)?;
    let known = input.known()?;
    let wanted = Wanted::of(input.limit, input.offset);
    asking.list(head("database", &input.database), wanted, |taker| {
        database.search(&known, taker)
    })
}

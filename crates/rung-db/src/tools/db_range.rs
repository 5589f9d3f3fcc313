//! `rung.db_range`: datoms of an attribute whose values lie between two.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, Number, Text};
use super::{Definition, read};
use crate::asking::{Asking, head, part};
use crate::json::given;
use crate::shape::Outcome;
use crate::taker::Wanted;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_range",
    description: "Datoms of an attribute by their values, from one to another, both included; without from or to, from the first or to the last.",
    writes: false,
    arguments: &[
        ("database", Text, true),
        ("attribute", Text, true),
        ("from", Any, false),
        ("to", Any, false),
        ("limit", Number, false),
        ("offset", Number, false),
    ],
    run,
};

#[derive(Deserialize)]
struct Input {
    database: String,
    attribute: Value,
    from: Option<Value>,
    to: Option<Value>,
    limit: Option<usize>,
    offset: Option<usize>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let database = asking.database(&input.database)?;
    let attribute = given(&input.attribute)?;
    let bounds = (part(input.from.as_ref())?, part(input.to.as_ref())?);
    let wanted = Wanted::of(input.limit, input.offset);
    asking.list(head("database", &input.database), wanted, |taker| {
        database.range(&attribute, &bounds, taker)
    })
}

//! `rung.db_range`: datoms of an attribute in a range of values.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, Number, Text};
use super::{Definition, parameters, parse_input};
use crate::asking::{Asking, envelope, optional_edn};
use crate::json::parse_argument;
use crate::shape::Outcome;
use crate::taker::Wanted;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_range",
    description: "Datoms of an attribute in the order of their values, in a range.",
    writes: false,
    arguments: &[
        ("database", Text, true, parameters::DATABASE),
        ("attribute", Text, true, parameters::ATTRIBUTE),
        ("from", Any, false, "First value; none: no bound"),
        ("to", Any, false, "Last value; none: no bound"),
        ("limit", Number, false, parameters::LIMIT),
        ("offset", Number, false, parameters::OFFSET),
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
    let input: Input = parse_input(input)?;
    let database = asking.database(&input.database)?;
    let attribute = parse_argument(&input.attribute)?;
    let bounds = (
        optional_edn(input.from.as_ref())?,
        optional_edn(input.to.as_ref())?,
    );
    let wanted = Wanted::of(input.limit, input.offset);
    asking.list(envelope("database", &input.database), wanted, |taker| {
        database.range(&attribute, &bounds, taker)
    })
}

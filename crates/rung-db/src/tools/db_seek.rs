//! `rung.db_seek`: datoms from a position on, or backwards from it.

use rung_datalog::IndexScan;
use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, Number, Text, Whether};
use super::datoms::{leading_parts, parse_order};
use super::{Definition, parameters, parse_input};
use crate::asking::{Asking, envelope};
use crate::shape::Outcome;
use crate::taker::Wanted;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_seek",
    description: "Datoms of an index from the position c1, c2, c3 to its end; with back, to its beginning.",
    writes: false,
    arguments: &[
        ("database", Text, true, parameters::DATABASE),
        ("index", Text, true, parameters::INDEX),
        ("c1", Any, false, parameters::PART),
        ("c2", Any, false, parameters::PART),
        ("c3", Any, false, parameters::PART),
        ("back", Whether, false, "Read backwards"),
        ("limit", Number, false, parameters::LIMIT),
        ("offset", Number, false, parameters::OFFSET),
    ],
    run,
};

#[derive(Deserialize)]
struct Input {
    database: String,
    index: String,
    c1: Option<Value>,
    c2: Option<Value>,
    c3: Option<Value>,
    #[serde(default)]
    back: bool,
    limit: Option<usize>,
    offset: Option<usize>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = parse_input(input)?;
    let database = asking.database(&input.database)?;
    let order = parse_order(&input.index)?;
    let parts = leading_parts([&input.c1, &input.c2, &input.c3])?;
    let reach = if input.back {
        IndexScan::Backward
    } else {
        IndexScan::Forward
    };
    let wanted = Wanted::of(input.limit, input.offset);
    asking.list(envelope("database", &input.database), wanted, |taker| {
        database.seek(order, reach, &parts, taker)
    })
}

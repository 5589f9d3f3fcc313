//! `rung.db_seek`: datoms from a place on, or back from it.

use rung_datalog::Reach;
use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, Number, Text, Whether};
use super::datoms::{order, parts};
use super::{Definition, read};
use crate::asking::{Asking, head};
use crate::shape::Outcome;
use crate::taker::Wanted;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_seek",
    description: "Datoms in the order of an index (eav or ave) from its parts c1, c2, c3 on, to the end of the index; with back, from there to its beginning.",
    writes: false,
    arguments: &[
        ("database", Text, true),
        ("index", Text, true),
        ("c1", Any, false),
        ("c2", Any, false),
        ("c3", Any, false),
        ("back", Whether, false),
        ("limit", Number, false),
        ("offset", Number, false),
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
    let input: Input = read(input)?;
    let database = asking.database(&input.database)?;
    let order = order(&input.index)?;
    let parts = parts([&input.c1, &input.c2, &input.c3])?;
    let reach = if input.back { Reach::Back } else { Reach::From };
    let wanted = Wanted::of(input.limit, input.offset);
    asking.list(head("database", &input.database), wanted, |taker| {
        database.seek(order, reach, &parts, taker)
    })
}

//! `rung.db_seek`: datoms from a position on, or backwards from it.

use rung_datalog::IndexScan;
use rung_fault::Fault;
use rung_tool::ParameterType::{Any, Boolean, Count, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::Value;

use super::datoms::{leading_parts, parse_order};
use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope};
use crate::row_sink::Slice;

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "rung.db_seek",
    "Datoms of an index from the position c1, c2, c3 to its end; with back, to its beginning.",
    &[
        ("database", Text, true, parameters::DATABASE),
        ("index", Text, true, parameters::INDEX),
        ("c1", Any, false, parameters::PART),
        ("c2", Any, false, parameters::PART),
        ("c3", Any, false, parameters::PART),
        ("back", Boolean, false, "Read backwards"),
        ("limit", Count, false, parameters::LIMIT),
        ("offset", Count, false, parameters::OFFSET),
    ],
    run,
);

#[derive(Deserialize)]
pub(super) struct Input {
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

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let database = context.database(&input.database)?;
    let order = parse_order(&input.index)?;
    let parts = leading_parts([&input.c1, &input.c2, &input.c3])?;
    let reach = if input.back {
        IndexScan::Backward
    } else {
        IndexScan::Forward
    };
    let wanted = Slice::of(input.limit, input.offset);
    context.list(envelope("database", &input.database), wanted, |sink| {
        database.seek(order, reach, &parts, sink)
    })
}

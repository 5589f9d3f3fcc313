//! `rung.db_range`: datoms of an attribute in a range of values.

use rung_fault::Fault;
use rung_tool::ParameterType::{Any, Count, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::Value;

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope, optional_edn};
use crate::json::parse_argument;
use crate::row_sink::Slice;

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "rung.db_range",
    "Datoms of an attribute in the order of their values, in a range.",
    &[
        ("database", Text, true, parameters::DATABASE),
        ("attribute", Text, true, parameters::ATTRIBUTE),
        ("from", Any, false, "First value; none: no bound"),
        ("to", Any, false, "Last value; none: no bound"),
        ("limit", Count, false, parameters::LIMIT),
        ("offset", Count, false, parameters::OFFSET),
    ],
    run,
);

#[derive(Deserialize)]
pub(super) struct Input {
    database: String,
    attribute: Value,
    from: Option<Value>,
    to: Option<Value>,
    limit: Option<usize>,
    offset: Option<usize>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let database = context.database(&input.database)?;
    let attribute = parse_argument(&input.attribute)?;
    let bounds = (
        optional_edn(input.from.as_ref())?,
        optional_edn(input.to.as_ref())?,
    );
    let wanted = Slice::of(input.limit, input.offset);
    context.list(envelope("database", &input.database), wanted, |sink| {
        database.range(&attribute, &bounds, sink)
    })
}

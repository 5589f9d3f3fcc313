//! `datalevin_datoms`: datoms in the order of an index.

use rung_datalog::IndexOrder;
use rung_edn::Value as Edn;
use rung_fault::{Code, Detail, Fault};
use rung_tool::ParameterType::{Any, Count, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::Value;

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope, optional_edn};
use crate::row_sink::Slice;

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_datoms",
    "Datoms of an index with these leading parts.",
    &[
        ("database", Text, true, parameters::DATABASE),
        ("index", Text, true, parameters::INDEX),
        ("c1", Any, false, parameters::PART),
        ("c2", Any, false, parameters::PART),
        ("c3", Any, false, parameters::PART),
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
    limit: Option<usize>,
    offset: Option<usize>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let order = parse_order(&input.index)?;
    let parts = leading_parts([&input.c1, &input.c2, &input.c3])?;
    let database = context.database(&input.database)?;
    let wanted = Slice::of(input.limit, input.offset);
    context.list(envelope("database", &input.database), wanted, |sink| {
        database.datoms(order, &parts, sink)
    })
}

/// Parses the name of an index.
pub(super) fn parse_order(index: &str) -> Result<IndexOrder, Fault> {
    match index.trim_start_matches(':') {
        "eav" => Ok(IndexOrder::Eav),
        "ave" => Ok(IndexOrder::Ave),
        other => {
            let why = format!("{other:?} is not an index; indexes are eav and ave");
            Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "index"))
        }
    }
}

/// Parses the leading components of datoms.
pub(super) fn leading_parts(given: [&Option<Value>; 3]) -> Result<Vec<Edn>, Fault> {
    let is_said = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    if given
        .windows(2)
        .any(|two| !is_said(two[0]) && is_said(two[1]))
    {
        let why = "a part of the datom is given without the part before it";
        return Err(Fault::new(Code::InvalidArguments, why)
            .with_hint("call datalevin_search_datoms, which takes any of the parts")
            .with(Detail::Field, "c1"));
    }
    let said = given.iter();
    said.map_while(|value| optional_edn(value.as_ref()).transpose())
        .collect()
}

//! `datalevin_search_datoms`: the datoms that match a pattern.

use rung_fault::Fault;
use rung_tool::ParameterType::{Any, Count, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::Value;

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope, optional_edn};
use crate::database::FactPattern;
use crate::row_sink::Slice;

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_search_datoms",
    "Datoms by entity, attribute and value.",
    &[
        ("database", Text, true, parameters::DATABASE),
        ("e", Any, false, parameters::ENTITY),
        ("a", Any, false, parameters::ATTRIBUTE),
        ("v", Any, false, parameters::VALUE),
        ("limit", Count, false, parameters::LIMIT),
        ("offset", Count, false, parameters::OFFSET),
    ],
    run,
);

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
    pub(super) fn pattern(&self) -> Result<FactPattern, Fault> {
        Ok(FactPattern {
            e: optional_edn(self.e.as_ref())?,
            a: optional_edn(self.a.as_ref())?,
            v: optional_edn(self.v.as_ref())?,
        })
    }
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let database = context.database(&input.database)?;
    let known = input.pattern()?;
    let wanted = Slice::of(input.limit, input.offset);
    context.list(envelope("database", &input.database), wanted, |sink| {
        database.search(&known, sink)
    })
}

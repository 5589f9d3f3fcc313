//! `datalevin_pull_many`: several entities as selected by a pull pattern.

use rung_edn::Value as Edn;
use rung_tool::ParameterType::{Any, List, Text};
use rung_tool::Tool;
use serde::Deserialize;
use serde_json::Value;

use super::pull::parse_selector;
use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope};
use crate::json::parse_argument;
use crate::row_sink::Slice;

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_pull_many",
    "Several entities as maps.",
    &[
        ("database", Text, true, parameters::DATABASE),
        ("selector", Any, true, parameters::SELECTOR),
        ("eids", List, true, "Entity ids or lookup refs"),
    ],
    |context: &DatabaseContext<'_>, input: Input| {
        let database = context.database(&input.database)?;
        let pattern = parse_selector(&input.selector)?;
        let entities: Vec<Edn> = input
            .eids
            .iter()
            .map(parse_argument)
            .collect::<Result<_, _>>()?;
        context.list(envelope("database", &input.database), Slice::ALL, |sink| {
            database.pull_many(&pattern, &entities, sink)
        })
    },
);

#[derive(Deserialize)]
pub(super) struct Input {
    database: String,
    selector: Value,
    eids: Vec<Value>,
}

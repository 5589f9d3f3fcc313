//! `datalevin_entity`: all attributes of an entity.

use rung_tool::ParameterType::{Any, Text};
use rung_tool::Tool;
use serde::Deserialize;
use serde_json::Value;

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope, with_result};
use crate::json::{parse_argument, to_json};

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_entity",
    "All attributes of an entity.",
    &[
        ("database", Text, true, parameters::DATABASE),
        ("eid", Any, true, parameters::EID),
    ],
    |context: &DatabaseContext<'_>, input: Input| {
        let database = context.database(&input.database)?;
        let entity = database.entity(&parse_argument(&input.eid)?)?;
        let told = entity.map_or(Value::Null, |members| {
            to_json(&rung_edn::Value::Map(members))
        });
        Ok(with_result(envelope("database", &input.database), told))
    },
);

#[derive(Deserialize)]
pub(super) struct Input {
    database: String,
    eid: Value,
}

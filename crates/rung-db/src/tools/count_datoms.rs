//! `datalevin_count_datoms`: counts the datoms that match a pattern.

use rung_tool::ParameterType::{Any, Text};
use rung_tool::Tool;
use serde_json::json;

use super::search_datoms::Input;
use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope, with_result};

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_count_datoms",
    "Counts datoms by entity, attribute and value.",
    &[
        ("database", Text, true, parameters::DATABASE),
        ("e", Any, false, parameters::ENTITY),
        ("a", Any, false, parameters::ATTRIBUTE),
        ("v", Any, false, parameters::VALUE),
    ],
    |context: &DatabaseContext<'_>, input: Input| {
        let count = context
            .database(&input.database)?
            .count(&input.pattern()?)?;
        Ok(with_result(
            envelope("database", &input.database),
            json!(count),
        ))
    },
);

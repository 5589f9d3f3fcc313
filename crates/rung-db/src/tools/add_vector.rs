//! `datalevin_add_vector`: adds a vector to a vector index.

use rung_tool::ParameterType::{Any, List, Text};
use rung_tool::Tool;
use serde::Deserialize;
use serde_json::Value;

use super::{Databases, parameters, parse_vector, writing_tool};
use crate::context::{DatabaseContext, confirmation};
use crate::json::parse_argument;

pub(super) const TOOL: Tool<Databases, Input> = writing_tool(
    "datalevin_add_vector",
    "Adds a vector under a reference.",
    &[
        ("vectorIndex", Text, true, parameters::VECTOR_INDEX),
        ("vectorRef", Any, true, parameters::REFERENCE),
        ("vectorData", List, true, parameters::VECTOR),
    ],
    |context: &DatabaseContext<'_>, input: Input| {
        let vectors = context.vectors(&input.vector_index)?;
        let vector = parse_vector(&input.vector_data, "vectorData")?;
        vectors.add(&parse_argument(&input.vector_ref)?, &vector)?;
        Ok(confirmation("vectorIndex", &input.vector_index, "added"))
    },
);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    vector_index: String,
    vector_ref: Value,
    vector_data: Vec<Value>,
}

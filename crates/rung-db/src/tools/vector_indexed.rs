//! `datalevin_vector_indexed`: tells if a vector index has a reference.

use rung_tool::ParameterType::{Any, Text};
use rung_tool::Tool;
use serde_json::json;

use super::{Databases, VectorInput, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope, with_result};
use crate::json::parse_argument;

pub(super) const TOOL: Tool<Databases, VectorInput> = reading_tool(
    "datalevin_vector_indexed",
    "Tells if a vector has this reference.",
    &[
        ("vectorIndex", Text, true, parameters::VECTOR_INDEX),
        ("vectorRef", Any, true, parameters::REFERENCE),
    ],
    |context: &DatabaseContext<'_>, input: VectorInput| {
        let vectors = context.vectors(&input.vector_index)?;
        let is_there = vectors.has(&parse_argument(&input.vector_ref)?)?;
        Ok(with_result(
            envelope("vectorIndex", &input.vector_index),
            json!(is_there),
        ))
    },
);

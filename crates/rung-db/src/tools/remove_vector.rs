//! `datalevin_remove_vector`: removes vectors from a vector index.

use super::{Databases, VectorInput, parameters, writing_tool};
use crate::context::{DatabaseContext, confirmation};
use crate::json::parse_argument;
use rung_tool::ParameterType::{Any, Text};
use rung_tool::Tool;

pub(super) const TOOL: Tool<Databases, VectorInput> = writing_tool(
    "datalevin_remove_vector",
    "Removes the vectors of a reference.",
    &[
        ("vectorIndex", Text, true, parameters::VECTOR_INDEX),
        ("vectorRef", Any, true, parameters::REFERENCE),
    ],
    |context: &DatabaseContext<'_>, input: VectorInput| {
        let vectors = context.vectors(&input.vector_index)?;
        vectors.remove(&parse_argument(&input.vector_ref)?)?;
        Ok(confirmation("vectorIndex", &input.vector_index, "removed"))
    },
);

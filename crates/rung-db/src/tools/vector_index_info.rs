//! `datalevin_vector_index_info`: the options and size of a vector index.

use super::{Databases, VectorIndexInput, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope, with_result};
use crate::json::to_json;
use rung_tool::ParameterType::Text;
use rung_tool::Tool;

pub(super) const TOOL: Tool<Databases, VectorIndexInput> = reading_tool(
    "datalevin_vector_index_info",
    "The options and size of a vector index.",
    &[("vectorIndex", Text, true, parameters::VECTOR_INDEX)],
    |context: &DatabaseContext<'_>, input: VectorIndexInput| {
        let info = context.vectors(&input.vector_index)?.info()?;
        let beside = envelope("vectorIndex", &input.vector_index);
        Ok(with_result(beside, to_json(&info)))
    },
);

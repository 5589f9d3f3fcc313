//! `datalevin_close_vector_index`: closes a vector index and invalidates its id.

use rung_tool::ParameterType::Text;
use rung_tool::Tool;
use serde::Deserialize;

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, confirmation};

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_close_vector_index",
    "Closes a vector index.",
    &[("vectorIndex", Text, true, parameters::VECTOR_INDEX)],
    |context: &DatabaseContext<'_>, input: Input| {
        context.vectors(&input.id)?;
        context.state.handles.close(&input.id);
        Ok(confirmation("vectorIndex", &input.id, "closed"))
    },
);

#[derive(Deserialize)]
pub(super) struct Input {
    #[serde(rename = "vectorIndex")]
    id: String,
}

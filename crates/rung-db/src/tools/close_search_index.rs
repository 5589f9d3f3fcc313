//! `datalevin_close_search_index`: closes a full-text index and invalidates its id.

use rung_tool::ParameterType::Text;
use rung_tool::Tool;
use serde::Deserialize;

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, confirmation};

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_close_search_index",
    "Closes a full-text index.",
    &[("searchIndex", Text, true, parameters::SEARCH_INDEX)],
    |context: &DatabaseContext<'_>, input: Input| {
        context.texts(&input.id)?;
        context.state.handles.close(&input.id);
        Ok(confirmation("searchIndex", &input.id, "closed"))
    },
);

#[derive(Deserialize)]
pub(super) struct Input {
    #[serde(rename = "searchIndex")]
    id: String,
}

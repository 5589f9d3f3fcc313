//! `datalevin_clear_documents`: removes all texts from a full-text index.

use super::{Databases, SearchIndexInput, parameters, writing_tool};
use crate::context::{DatabaseContext, confirmation};
use rung_tool::ParameterType::Text;
use rung_tool::Tool;

pub(super) const TOOL: Tool<Databases, SearchIndexInput> = writing_tool(
    "datalevin_clear_documents",
    "Removes every text from an index.",
    &[("searchIndex", Text, true, parameters::SEARCH_INDEX)],
    |context: &DatabaseContext<'_>, input: SearchIndexInput| {
        context.texts(&input.search_index)?.clear()?;
        Ok(confirmation("searchIndex", &input.search_index, "cleared"))
    },
);

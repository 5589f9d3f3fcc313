//! `datalevin_document_count`: the number of texts in a full-text index.

use rung_tool::ParameterType::Text;
use rung_tool::Tool;
use serde_json::json;

use super::{Databases, SearchIndexInput, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope, with_result};

pub(super) const TOOL: Tool<Databases, SearchIndexInput> = reading_tool(
    "datalevin_document_count",
    "Counts the texts of an index.",
    &[("searchIndex", Text, true, parameters::SEARCH_INDEX)],
    |context: &DatabaseContext<'_>, input: SearchIndexInput| {
        let count = context.texts(&input.search_index)?.count()?;
        Ok(with_result(
            envelope("searchIndex", &input.search_index),
            json!(count),
        ))
    },
);

//! `datalevin_add_document`: adds a text to a full-text index.

use rung_tool::ParameterType::{Any, Boolean, Text};
use rung_tool::Tool;
use serde::Deserialize;
use serde_json::Value;

use super::{Databases, parameters, writing_tool};
use crate::context::{DatabaseContext, confirmation};
use crate::json::parse_argument;

pub(super) const TOOL: Tool<Databases, Input> = writing_tool(
    "datalevin_add_document",
    "Adds a text, or replaces the one with its reference.",
    &[
        ("searchIndex", Text, true, parameters::SEARCH_INDEX),
        ("docRef", Any, true, parameters::REFERENCE),
        ("docText", Text, true, "The text"),
        ("checkExist", Boolean, false, "Ignored"),
    ],
    |context: &DatabaseContext<'_>, input: Input| {
        let texts = context.texts(&input.search_index)?;
        texts.add(&parse_argument(&input.doc_ref)?, &input.doc_text)?;
        Ok(confirmation("searchIndex", &input.search_index, "added"))
    },
);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    search_index: String,
    doc_ref: Value,
    doc_text: String,
}

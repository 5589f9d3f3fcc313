//! `datalevin_remove_document`: removes a text from a full-text index.

use super::{Databases, DocumentInput, parameters, writing_tool};
use crate::context::{DatabaseContext, confirmation};
use crate::json::parse_argument;
use rung_tool::ParameterType::{Any, Text};
use rung_tool::Tool;

pub(super) const TOOL: Tool<Databases, DocumentInput> = writing_tool(
    "datalevin_remove_document",
    "Removes the text of a reference.",
    &[
        ("searchIndex", Text, true, parameters::SEARCH_INDEX),
        ("docRef", Any, true, parameters::REFERENCE),
    ],
    |context: &DatabaseContext<'_>, input: DocumentInput| {
        let texts = context.texts(&input.search_index)?;
        texts.remove(&parse_argument(&input.doc_ref)?)?;
        Ok(confirmation("searchIndex", &input.search_index, "removed"))
    },
);

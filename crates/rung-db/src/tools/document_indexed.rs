//! `datalevin_document_indexed`: tells if a full-text index has a text.

use rung_tool::ParameterType::{Any, Text};
use rung_tool::Tool;
use serde_json::json;

use super::{Databases, DocumentInput, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope, with_result};
use crate::json::parse_argument;

pub(super) const TOOL: Tool<Databases, DocumentInput> = reading_tool(
    "datalevin_document_indexed",
    "Tells if a text has this reference.",
    &[
        ("searchIndex", Text, true, parameters::SEARCH_INDEX),
        ("docRef", Any, true, parameters::REFERENCE),
    ],
    |context: &DatabaseContext<'_>, input: DocumentInput| {
        let texts = context.texts(&input.search_index)?;
        let is_there = texts.has(&parse_argument(&input.doc_ref)?)?;
        Ok(with_result(
            envelope("searchIndex", &input.search_index),
            json!(is_there),
        ))
    },
);

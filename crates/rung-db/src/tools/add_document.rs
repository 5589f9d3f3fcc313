//! `datalevin_add_document`: adds a text to a full-text index.

use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, Text, Whether};
use super::{Definition, parameters, parse_input};
use crate::asking::confirmation;
use crate::json::parse_argument;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_add_document",
    description: "Adds a text, or replaces the one with its reference.",
    writes: true,
    arguments: &[
        ("searchIndex", Text, true, parameters::SEARCH_INDEX),
        ("docRef", Any, true, parameters::REFERENCE),
        ("docText", Text, true, "The text"),
        ("checkExist", Whether, false, "Ignored"),
    ],
    run: |asking, input| {
        let input: Input = parse_input(input)?;
        let texts = asking.texts(&input.search_index)?;
        texts.add(&parse_argument(&input.doc_ref)?, &input.doc_text)?;
        Ok(confirmation("searchIndex", &input.search_index, "added"))
    },
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    search_index: String,
    doc_ref: Value,
    doc_text: String,
}

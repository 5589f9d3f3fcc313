//! `datalevin_add_document`: a text, to be found by its words.

use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, Text, Whether};
use super::{Definition, read};
use crate::asking::done;
use crate::json::given;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_add_document",
    description: "Adds a text under a reference, in place of the one there.",
    writes: true,
    arguments: &[
        ("searchIndex", Text, true),
        ("docRef", Any, true),
        ("docText", Text, true),
        ("checkExist", Whether, false),
    ],
    run: |asking, input| {
        let input: Input = read(input)?;
        let texts = asking.texts(&input.search_index)?;
        texts.add(&given(&input.doc_ref)?, &input.doc_text)?;
        Ok(done("searchIndex", &input.search_index, "added"))
    },
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    search_index: String,
    doc_ref: Value,
    doc_text: String,
}

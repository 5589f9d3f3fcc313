//! `datalevin_add_document`: a text, to be found by its words.

use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, Text, Whether};
use super::{Definition, head, read, reference};
use crate::shape::Outcome;

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
        let (tables, index) = asking.search_index(&input.search_index)?;
        let reference = reference(&input.doc_ref)?;
        tables
            .kv()
            .write(|batch| index.add(batch, &reference, &input.doc_text))?;
        let mut told = head("searchIndex", &input.search_index);
        told.insert("added".to_owned(), json!(true));
        Ok(Outcome::Whole(told))
    },
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    search_index: String,
    doc_ref: Value,
    doc_text: String,
}

//! `datalevin_document_indexed`: whether a text is there.

use serde_json::json;

use super::Kind::{Any, Text};
use super::{Definition, OfDocument, head, read, reference, with_result};

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_document_indexed",
    description: "Whether a text has this reference.",
    writes: false,
    arguments: &[("searchIndex", Text, true), ("docRef", Any, true)],
    run: |asking, input| {
        let input: OfDocument = read(input)?;
        let (tables, index) = asking.search_index(&input.search_index)?;
        let reference = reference(&input.doc_ref)?;
        let is_there = tables.kv().read(|view| index.contains(view, &reference))?;
        Ok(with_result(
            head("searchIndex", &input.search_index),
            json!(is_there),
        ))
    },
};

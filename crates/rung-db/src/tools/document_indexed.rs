//! `datalevin_document_indexed`: whether a text is there.

use serde_json::json;

use super::Kind::{Any, Text};
use super::{Definition, OfDocument, read};
use crate::asking::{head, with_result};
use crate::json::given;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_document_indexed",
    description: "Whether a text has this reference.",
    writes: false,
    arguments: &[("searchIndex", Text, true), ("docRef", Any, true)],
    run: |asking, input| {
        let input: OfDocument = read(input)?;
        let texts = asking.texts(&input.search_index)?;
        let is_there = texts.has(&given(&input.doc_ref)?)?;
        Ok(with_result(
            head("searchIndex", &input.search_index),
            json!(is_there),
        ))
    },
};

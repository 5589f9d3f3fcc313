//! `datalevin_document_indexed`: tells if a full-text index has a text.

use serde_json::json;

use super::Kind::{Any, Text};
use super::{Definition, DocumentInput, parameters, parse_input};
use crate::asking::{envelope, with_result};
use crate::json::parse_argument;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_document_indexed",
    description: "Tells if a text has this reference.",
    writes: false,
    arguments: &[
        ("searchIndex", Text, true, parameters::SEARCH_INDEX),
        ("docRef", Any, true, parameters::REFERENCE),
    ],
    run: |asking, input| {
        let input: DocumentInput = parse_input(input)?;
        let texts = asking.texts(&input.search_index)?;
        let is_there = texts.has(&parse_argument(&input.doc_ref)?)?;
        Ok(with_result(
            envelope("searchIndex", &input.search_index),
            json!(is_there),
        ))
    },
};

//! `datalevin_remove_document`: removes a text from a full-text index.

use super::Kind::{Any, Text};
use super::{Definition, DocumentInput, parameters, parse_input};
use crate::asking::confirmation;
use crate::json::parse_argument;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_remove_document",
    description: "Removes the text of a reference.",
    writes: true,
    arguments: &[
        ("searchIndex", Text, true, parameters::SEARCH_INDEX),
        ("docRef", Any, true, parameters::REFERENCE),
    ],
    run: |asking, input| {
        let input: DocumentInput = parse_input(input)?;
        let texts = asking.texts(&input.search_index)?;
        texts.remove(&parse_argument(&input.doc_ref)?)?;
        Ok(confirmation("searchIndex", &input.search_index, "removed"))
    },
};

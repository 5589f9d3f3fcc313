//! `datalevin_remove_document`: a text that is found no longer.

use super::Kind::{Any, Text};
use super::{Definition, OfDocument, read};
use crate::asking::done;
use crate::json::given;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_remove_document",
    description: "Removes the text of a reference.",
    writes: true,
    arguments: &[("searchIndex", Text, true), ("docRef", Any, true)],
    run: |asking, input| {
        let input: OfDocument = read(input)?;
        let texts = asking.texts(&input.search_index)?;
        texts.remove(&given(&input.doc_ref)?)?;
        Ok(done("searchIndex", &input.search_index, "removed"))
    },
};

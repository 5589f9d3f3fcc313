//! `datalevin_document_count`: the number of texts in a full-text index.

use serde_json::json;

use super::Kind::Text;
use super::{Definition, SearchIndexInput, parameters, parse_input};
use crate::asking::{envelope, with_result};

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_document_count",
    description: "Counts the texts of an index.",
    writes: false,
    arguments: &[("searchIndex", Text, true, parameters::SEARCH_INDEX)],
    run: |asking, input| {
        let input: SearchIndexInput = parse_input(input)?;
        let count = asking.texts(&input.search_index)?.count()?;
        Ok(with_result(
            envelope("searchIndex", &input.search_index),
            json!(count),
        ))
    },
};

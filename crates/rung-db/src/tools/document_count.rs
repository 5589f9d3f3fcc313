//! `datalevin_document_count`: how many texts there are.

use serde_json::json;

use super::Kind::Text;
use super::{Definition, OfSearch, read};
use crate::asking::{head, with_result};

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_document_count",
    description: "How many texts an index has.",
    writes: false,
    arguments: &[("searchIndex", Text, true)],
    run: |asking, input| {
        let input: OfSearch = read(input)?;
        let count = asking.texts(&input.search_index)?.count()?;
        Ok(with_result(
            head("searchIndex", &input.search_index),
            json!(count),
        ))
    },
};

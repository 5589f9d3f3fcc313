//! `datalevin_document_count`: how many texts there are.

use serde_json::json;

use super::Kind::Text;
use super::{Definition, OfSearch, head, read, with_result};

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_document_count",
    description: "How many texts an index has.",
    writes: false,
    arguments: &[("searchIndex", Text, true)],
    run: |asking, input| {
        let input: OfSearch = read(input)?;
        let (tables, index) = asking.search_index(&input.search_index)?;
        let count = tables.kv().read(|view| index.count(view))?;
        Ok(with_result(
            head("searchIndex", &input.search_index),
            json!(count),
        ))
    },
};

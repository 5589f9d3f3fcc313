//! `datalevin_clear_documents`: removes all texts from a full-text index.

use super::Kind::Text;
use super::{Definition, SearchIndexInput, parameters, parse_input};
use crate::asking::confirmation;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_clear_documents",
    description: "Removes every text from an index.",
    writes: true,
    arguments: &[("searchIndex", Text, true, parameters::SEARCH_INDEX)],
    run: |asking, input| {
        let input: SearchIndexInput = parse_input(input)?;
        asking.texts(&input.search_index)?.clear()?;
        Ok(confirmation("searchIndex", &input.search_index, "cleared"))
    },
};

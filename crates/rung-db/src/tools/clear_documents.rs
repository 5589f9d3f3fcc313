//! `datalevin_clear_documents`: an index with nothing in it.

use serde_json::json;

use super::Kind::Text;
use super::{Definition, OfSearch, head, read};
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_clear_documents",
    description: "Removes every text from an index.",
    writes: true,
    arguments: &[("searchIndex", Text, true)],
    run: |asking, input| {
        let input: OfSearch = read(input)?;
        let (tables, index) = asking.search_index(&input.search_index)?;
        tables.kv().write(|batch| index.clear(batch))?;
        let mut told = head("searchIndex", &input.search_index);
        told.insert("cleared".to_owned(), json!(true));
        Ok(Outcome::Whole(told))
    },
};

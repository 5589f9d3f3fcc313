//! `datalevin_clear_documents`: an index with nothing in it.

use super::Kind::Text;
use super::{Definition, OfSearch, read};
use crate::asking::done;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_clear_documents",
    description: "Removes every text from an index.",
    writes: true,
    arguments: &[("searchIndex", Text, true)],
    run: |asking, input| {
        let input: OfSearch = read(input)?;
        asking.texts(&input.search_index)?.clear()?;
        Ok(done("searchIndex", &input.search_index, "cleared"))
    },
};

//! `datalevin_close_search_index`: closes a full-text index and invalidates its id.

use serde::Deserialize;

use super::Kind::Text;
use super::{Definition, parameters, parse_input};
use crate::asking::confirmation;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_close_search_index",
    description: "Closes a full-text index.",
    writes: false,
    arguments: &[("searchIndex", Text, true, parameters::SEARCH_INDEX)],
    run: |asking, input| {
        let input: Input = parse_input(input)?;
        asking.texts(&input.id)?;
        asking.state.handles.close(&input.id);
        Ok(confirmation("searchIndex", &input.id, "closed"))
    },
};

#[derive(Deserialize)]
struct Input {
    #[serde(rename = "searchIndex")]
    id: String,
}

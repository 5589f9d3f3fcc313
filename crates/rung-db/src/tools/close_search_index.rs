//! `datalevin_close_search_index`: its id is good no longer.

use serde::Deserialize;

use super::Kind::Text;
use super::{Definition, read};
use crate::asking::done;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_close_search_index",
    description: "Closes a full-text index.",
    writes: false,
    arguments: &[("searchIndex", Text, true)],
    run: |asking, input| {
        let input: Input = read(input)?;
        asking.texts(&input.id)?;
        asking.state.handles.close(&input.id);
        Ok(done("searchIndex", &input.id, "closed"))
    },
};

#[derive(Deserialize)]
struct Input {
    #[serde(rename = "searchIndex")]
    id: String,
}

//! `datalevin_close_search_index`: its id is good no longer.

use serde::Deserialize;
use serde_json::json;

use super::Kind::Text;
use super::{Definition, head, read};
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_close_search_index",
    description: "Closes a full-text index.",
    writes: false,
    arguments: &[("searchIndex", Text, true)],
    run: |asking, input| {
        let input: Input = read(input)?;
        asking.search_index(&input.id)?;
        asking.state.handles.close(&input.id);
        let mut told = head("searchIndex", &input.id);
        told.insert("closed".to_owned(), json!(true));
        Ok(Outcome::Whole(told))
    },
};

#[derive(Deserialize)]
struct Input {
    #[serde(rename = "searchIndex")]
    id: String,
}

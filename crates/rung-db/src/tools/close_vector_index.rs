//! `datalevin_close_vector_index`: its id is good no longer.

use serde::Deserialize;
use serde_json::json;

use super::Kind::Text;
use super::{Definition, head, read};
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_close_vector_index",
    description: "Closes a vector index.",
    writes: false,
    arguments: &[("vectorIndex", Text, true)],
    run: |asking, input| {
        let input: Input = read(input)?;
        asking.vector_index(&input.id)?;
        asking.state.handles.close(&input.id);
        let mut told = head("vectorIndex", &input.id);
        told.insert("closed".to_owned(), json!(true));
        Ok(Outcome::Whole(told))
    },
};

#[derive(Deserialize)]
struct Input {
    #[serde(rename = "vectorIndex")]
    id: String,
}

//! `datalevin_close_vector_index`: its id is good no longer.

use serde::Deserialize;

use super::Kind::Text;
use super::{Definition, read};
use crate::asking::done;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_close_vector_index",
    description: "Closes a vector index.",
    writes: false,
    arguments: &[("vectorIndex", Text, true)],
    run: |asking, input| {
        let input: Input = read(input)?;
        asking.vectors(&input.id)?;
        asking.state.handles.close(&input.id);
        Ok(done("vectorIndex", &input.id, "closed"))
    },
};

#[derive(Deserialize)]
struct Input {
    #[serde(rename = "vectorIndex")]
    id: String,
}

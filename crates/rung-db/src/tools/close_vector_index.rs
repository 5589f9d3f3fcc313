//! `datalevin_close_vector_index`: closes a vector index and invalidates its id.

use serde::Deserialize;

use super::Kind::Text;
use super::{Definition, parameters, parse_input};
use crate::asking::confirmation;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_close_vector_index",
    description: "Closes a vector index.",
    writes: false,
    arguments: &[("vectorIndex", Text, true, parameters::VECTOR_INDEX)],
    run: |asking, input| {
        let input: Input = parse_input(input)?;
        asking.vectors(&input.id)?;
        asking.state.handles.close(&input.id);
        Ok(confirmation("vectorIndex", &input.id, "closed"))
    },
};

#[derive(Deserialize)]
struct Input {
    #[serde(rename = "vectorIndex")]
    id: String,
}

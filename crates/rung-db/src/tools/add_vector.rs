//! `datalevin_add_vector`: a vector, to be found by what is near.

use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, List, Text};
use super::{Definition, numbers, read};
use crate::asking::done;
use crate::json::given;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_add_vector",
    description: "Adds a vector under a reference.",
    writes: true,
    arguments: &[
        ("vectorIndex", Text, true),
        ("vectorRef", Any, true),
        ("vectorData", List, true),
    ],
    run: |asking, input| {
        let input: Input = read(input)?;
        let vectors = asking.vectors(&input.vector_index)?;
        let vector = numbers(&input.vector_data, "vectorData")?;
        vectors.add(&given(&input.vector_ref)?, &vector)?;
        Ok(done("vectorIndex", &input.vector_index, "added"))
    },
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    vector_index: String,
    vector_ref: Value,
    vector_data: Vec<Value>,
}

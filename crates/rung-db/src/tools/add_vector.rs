//! `datalevin_add_vector`: adds a vector to a vector index.

use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, List, Text};
use super::{Definition, parameters, parse_input, parse_vector};
use crate::asking::confirmation;
use crate::json::parse_argument;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_add_vector",
    description: "Adds a vector under a reference.",
    writes: true,
    arguments: &[
        ("vectorIndex", Text, true, parameters::VECTOR_INDEX),
        ("vectorRef", Any, true, parameters::REFERENCE),
        ("vectorData", List, true, parameters::VECTOR),
    ],
    run: |asking, input| {
        let input: Input = parse_input(input)?;
        let vectors = asking.vectors(&input.vector_index)?;
        let vector = parse_vector(&input.vector_data, "vectorData")?;
        vectors.add(&parse_argument(&input.vector_ref)?, &vector)?;
        Ok(confirmation("vectorIndex", &input.vector_index, "added"))
    },
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    vector_index: String,
    vector_ref: Value,
    vector_data: Vec<Value>,
}

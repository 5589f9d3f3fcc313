//! `datalevin_add_vector`: a vector, to be found by what is near.

use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, List, Text};
use super::{Definition, head, numbers, read, reference};
use crate::shape::Outcome;

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
        let (tables, index) = asking.vector_index(&input.vector_index)?;
        let vector = numbers(&input.vector_data, "vectorData")?;
        let reference = reference(&input.vector_ref)?;
        tables
            .kv()
            .write(|batch| index.add(batch, &reference, &vector))?;
        let mut told = head("vectorIndex", &input.vector_index);
        told.insert("added".to_owned(), json!(true));
        Ok(Outcome::Whole(told))
    },
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    vector_index: String,
    vector_ref: Value,
    vector_data: Vec<Value>,
}

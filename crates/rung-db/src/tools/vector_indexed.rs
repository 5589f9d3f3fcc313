//! `datalevin_vector_indexed`: tells if a vector index has a reference.

use serde_json::json;

use super::Kind::{Any, Text};
use super::{Definition, VectorInput, parameters, parse_input};
use crate::asking::{envelope, with_result};
use crate::json::parse_argument;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_vector_indexed",
    description: "Tells if a vector has this reference.",
    writes: false,
    arguments: &[
        ("vectorIndex", Text, true, parameters::VECTOR_INDEX),
        ("vectorRef", Any, true, parameters::REFERENCE),
    ],
    run: |asking, input| {
        let input: VectorInput = parse_input(input)?;
        let vectors = asking.vectors(&input.vector_index)?;
        let is_there = vectors.has(&parse_argument(&input.vector_ref)?)?;
        Ok(with_result(
            envelope("vectorIndex", &input.vector_index),
            json!(is_there),
        ))
    },
};

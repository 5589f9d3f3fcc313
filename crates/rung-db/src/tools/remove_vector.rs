//! `datalevin_remove_vector`: removes vectors from a vector index.

use super::Kind::{Any, Text};
use super::{Definition, VectorInput, parameters, parse_input};
use crate::asking::confirmation;
use crate::json::parse_argument;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_remove_vector",
    description: "Removes the vectors of a reference.",
    writes: true,
    arguments: &[
        ("vectorIndex", Text, true, parameters::VECTOR_INDEX),
        ("vectorRef", Any, true, parameters::REFERENCE),
    ],
    run: |asking, input| {
        let input: VectorInput = parse_input(input)?;
        let vectors = asking.vectors(&input.vector_index)?;
        vectors.remove(&parse_argument(&input.vector_ref)?)?;
        Ok(confirmation("vectorIndex", &input.vector_index, "removed"))
    },
};

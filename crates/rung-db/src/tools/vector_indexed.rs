//! `datalevin_vector_indexed`: whether a vector is there.

use serde_json::json;

use super::Kind::{Any, Text};
use super::{Definition, OfVector, read};
use crate::asking::{head, with_result};
use crate::json::given;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_vector_indexed",
    description: "Whether a vector has this reference.",
    writes: false,
    arguments: &[("vectorIndex", Text, true), ("vectorRef", Any, true)],
    run: |asking, input| {
        let input: OfVector = read(input)?;
        let vectors = asking.vectors(&input.vector_index)?;
        let is_there = vectors.has(&given(&input.vector_ref)?)?;
        Ok(with_result(
            head("vectorIndex", &input.vector_index),
            json!(is_there),
        ))
    },
};

//! `datalevin_vector_indexed`: whether a vector is there.

use serde_json::json;

use super::Kind::{Any, Text};
use super::{Definition, OfVector, head, read, reference, with_result};

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_vector_indexed",
    description: "Whether a vector has this reference.",
    writes: false,
    arguments: &[("vectorIndex", Text, true), ("vectorRef", Any, true)],
    run: |asking, input| {
        let input: OfVector = read(input)?;
        let (tables, index) = asking.vector_index(&input.vector_index)?;
        let reference = reference(&input.vector_ref)?;
        let is_there = tables.kv().read(|view| index.contains(view, &reference))?;
        Ok(with_result(
            head("vectorIndex", &input.vector_index),
            json!(is_there),
        ))
    },
};

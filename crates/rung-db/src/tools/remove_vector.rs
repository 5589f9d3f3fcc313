//! `datalevin_remove_vector`: vectors that are found no longer.

use super::Kind::{Any, Text};
use super::{Definition, OfVector, read};
use crate::asking::done;
use crate::json::given;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_remove_vector",
    description: "Removes the vectors of a reference.",
    writes: true,
    arguments: &[("vectorIndex", Text, true), ("vectorRef", Any, true)],
    run: |asking, input| {
        let input: OfVector = read(input)?;
        let vectors = asking.vectors(&input.vector_index)?;
        vectors.remove(&given(&input.vector_ref)?)?;
        Ok(done("vectorIndex", &input.vector_index, "removed"))
    },
};

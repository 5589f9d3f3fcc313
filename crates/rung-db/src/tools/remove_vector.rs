//! `datalevin_remove_vector`: vectors that are found no longer.

use serde_json::json;

use super::Kind::{Any, Text};
use super::{Definition, OfVector, head, read, reference};
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_remove_vector",
    description: "Removes the vectors of a reference.",
    writes: true,
    arguments: &[("vectorIndex", Text, true), ("vectorRef", Any, true)],
    run: |asking, input| {
        let input: OfVector = read(input)?;
        let (tables, index) = asking.vector_index(&input.vector_index)?;
        let reference = reference(&input.vector_ref)?;
        tables.kv().write(|batch| index.remove(batch, &reference))?;
        let mut told = head("vectorIndex", &input.vector_index);
        told.insert("removed".to_owned(), json!(true));
        Ok(Outcome::Whole(told))
    },
};

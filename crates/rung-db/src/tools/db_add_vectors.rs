//! `rung.db_add_vectors`: vectors that are put into an index together.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{List, Text};
use super::{Definition, numbers, read};
use crate::asking::{Asking, head, with_result};
use crate::json::given;
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_add_vectors",
    description: "Adds [{ref, vector}, …] to a vector index in one transaction. result is how many.",
    writes: true,
    arguments: &[("vectorIndex", Text, true), ("vectors", List, true)],
    run,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    vector_index: String,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    r#ref: Value,
    vector: Vec<Value>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let vectors = asking.vectors(&input.vector_index)?;
    let given = input.vectors.iter().map(|vector| {
        let numbers = numbers(&vector.vector, "vectors")?;
        Ok((given(&vector.r#ref)?, numbers))
    });
    let given = given.collect::<Result<Vec<_>, Fault>>()?;
    let added = given.len();
    vectors.add_many(&given)?;
    Ok(with_result(
        head("vectorIndex", &input.vector_index),
        added.into(),
    ))
}

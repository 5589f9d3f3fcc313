//! `rung.db_add_vectors`: adds several vectors to a vector index in one transaction.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{List, Text};
use super::{Definition, parameters, parse_input, parse_vector};
use crate::asking::{Asking, envelope, with_result};
use crate::json::parse_argument;
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "rung.db_add_vectors",
    description: "Adds vectors to a vector index in one transaction. Returns their number.",
    writes: true,
    arguments: &[
        ("vectorIndex", Text, true, parameters::VECTOR_INDEX),
        ("vectors", List, true, "[{ref, vector}, …]"),
    ],
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
    let input: Input = parse_input(input)?;
    let vectors = asking.vectors(&input.vector_index)?;
    let given = input.vectors.iter().map(|vector| {
        let numbers = parse_vector(&vector.vector, "vectors")?;
        Ok((parse_argument(&vector.r#ref)?, numbers))
    });
    let given = given.collect::<Result<Vec<_>, Fault>>()?;
    let added = given.len();
    vectors.add_many(&given)?;
    Ok(with_result(
        envelope("vectorIndex", &input.vector_index),
        added.into(),
    ))
}

//! `rung.db_add_vectors`: adds several vectors to a vector index in one transaction.

use rung_fault::Fault;
use rung_tool::ParameterType::{List, Text};
use rung_tool::{Payload, Tool};
use serde::Deserialize;
use serde_json::Value;

use super::{Databases, parameters, parse_vector, writing_tool};
use crate::context::{DatabaseContext, envelope, with_result};
use crate::json::parse_argument;

pub(super) const TOOL: Tool<Databases, Input> = writing_tool(
    "rung.db_add_vectors",
    "Adds vectors to a vector index in one transaction. Returns their number.",
    &[
        ("vectorIndex", Text, true, parameters::VECTOR_INDEX),
        ("vectors", List, true, "[{ref, vector}, …]"),
    ],
    run,
);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    vector_index: String,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    r#ref: Value,
    vector: Vec<Value>,
}

fn run(context: &DatabaseContext<'_>, input: Input) -> Result<Payload, Fault> {
    let vectors = context.vectors(&input.vector_index)?;
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

//! `datalevin_entity`: all attributes of an entity.

use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, Text};
use super::{Definition, parameters, parse_input};
use crate::asking::{envelope, with_result};
use crate::json::{parse_argument, to_json};

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_entity",
    description: "All attributes of an entity.",
    writes: false,
    arguments: &[
        ("database", Text, true, parameters::DATABASE),
        ("eid", Any, true, parameters::EID),
    ],
    run: |asking, input| {
        let input: Input = parse_input(input)?;
        let database = asking.database(&input.database)?;
        let entity = database.entity(&parse_argument(&input.eid)?)?;
        let told = entity.map_or(Value::Null, |members| {
            to_json(&rung_edn::Value::Map(members))
        });
        Ok(with_result(envelope("database", &input.database), told))
    },
};

#[derive(Deserialize)]
struct Input {
    database: String,
    eid: Value,
}

//! `datalevin_entity`: everything of an entity.

use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, Text};
use super::{Definition, read};
use crate::asking::{head, with_result};
use crate::json::{given, to_json};

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_entity",
    description: "Everything of an entity.",
    writes: false,
    arguments: &[("database", Text, true), ("eid", Any, true)],
    run: |asking, input| {
        let input: Input = read(input)?;
        let database = asking.database(&input.database)?;
        let entity = database.entity(&given(&input.eid)?)?;
        let told = entity.map_or(Value::Null, |members| {
            to_json(&rung_edn::Value::Map(members))
        });
        Ok(with_result(head("database", &input.database), told))
    },
};

#[derive(Deserialize)]
struct Input {
    database: String,
    eid: Value,
}

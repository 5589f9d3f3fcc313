//! `datalevin_count_datoms`: counts the datoms that match a pattern.

use serde_json::json;

use super::Kind::{Any, Text};
use super::search_datoms::Input;
use super::{Definition, parameters, parse_input};
use crate::asking::{envelope, with_result};

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_count_datoms",
    description: "Counts datoms by entity, attribute and value.",
    writes: false,
    arguments: &[
        ("database", Text, true, parameters::DATABASE),
        ("e", Any, false, parameters::ENTITY),
        ("a", Any, false, parameters::ATTRIBUTE),
        ("v", Any, false, parameters::VALUE),
    ],
    run: |asking, input| {
        let input: Input = parse_input(input)?;
        let count = asking.database(&input.database)?.count(&input.pattern()?)?;
        Ok(with_result(
            envelope("database", &input.database),
            json!(count),
        ))
    },
};

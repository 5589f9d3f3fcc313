//! `datalevin_count_datoms`: how many facts there are.

use serde_json::json;

use super::Kind::{Any, Text};
use super::search_datoms::Input;
use super::{Definition, read};
use crate::asking::{head, with_result};

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_count_datoms",
    description: "Counts datoms by entity, attribute and value.",
    writes: false,
    arguments: &[
        ("database", Text, true),
        ("e", Any, false),
        ("a", Any, false),
        ("v", Any, false),
    ],
    run: |asking, input| {
        let input: Input = read(input)?;
        let count = asking.database(&input.database)?.count(&input.known()?)?;
        Ok(with_result(head("database", &input.database), json!(count)))
    },
};

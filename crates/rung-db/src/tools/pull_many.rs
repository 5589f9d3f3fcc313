//! `datalevin_pull_many`: several entities, as far as a pattern goes.

use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, List, Text};
use super::pull::selector;
use super::{Definition, head, read};
use crate::json::{given, to_json};

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_pull_many",
    description: "Several entities as maps.",
    writes: false,
    arguments: &[
        ("database", Text, true),
        ("selector", Any, true),
        ("eids", List, true),
    ],
    run: |asking, input| {
        let input: Input = read(input)?;
        let db = asking.database(&input.database)?;
        let pattern = selector(&input.selector)?;
        asking.list(head("database", &input.database), false, |give| {
            for entity in &input.eids {
                let pulled = db.pull(&pattern, &given(entity)?)?;
                if !give(to_json(&pulled).to_string()) {
                    break;
                }
            }
            Ok(())
        })
    },
};

#[derive(Deserialize)]
struct Input {
    database: String,
    selector: Value,
    eids: Vec<Value>,
}

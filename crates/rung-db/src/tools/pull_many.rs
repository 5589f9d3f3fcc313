//! `datalevin_pull_many`: several entities, as far as a pattern goes.

use rung_edn::Value as Edn;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, List, Text};
use super::pull::selector;
use super::{Definition, read};
use crate::asking::head;
use crate::json::given;
use crate::taker::Wanted;

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
        let database = asking.database(&input.database)?;
        let pattern = selector(&input.selector)?;
        let entities: Vec<Edn> = input.eids.iter().map(given).collect::<Result<_, _>>()?;
        asking.list(head("database", &input.database), Wanted::ALL, |taker| {
            database.pull_many(&pattern, &entities, taker)
        })
    },
};

#[derive(Deserialize)]
struct Input {
    database: String,
    selector: Value,
    eids: Vec<Value>,
}

//! `datalevin_pull_many`: several entities as selected by a pull pattern.

use rung_edn::Value as Edn;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, List, Text};
use super::pull::parse_selector;
use super::{Definition, parameters, parse_input};
use crate::asking::envelope;
use crate::json::parse_argument;
use crate::taker::Wanted;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_pull_many",
    description: "Several entities as maps.",
    writes: false,
    arguments: &[
        ("database", Text, true, parameters::DATABASE),
        ("selector", Any, true, parameters::SELECTOR),
        ("eids", List, true, "Entity ids or lookup refs"),
    ],
    run: |asking, input| {
        let input: Input = parse_input(input)?;
        let database = asking.database(&input.database)?;
        let pattern = parse_selector(&input.selector)?;
        let entities: Vec<Edn> = input
            .eids
            .iter()
            .map(parse_argument)
            .collect::<Result<_, _>>()?;
        asking.list(
            envelope("database", &input.database),
            Wanted::ALL,
            |taker| database.pull_many(&pattern, &entities, taker),
        )
    },
};

#[derive(Deserialize)]
struct Input {
    database: String,
    selector: Value,
    eids: Vec<Value>,
}

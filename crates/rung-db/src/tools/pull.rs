//! `datalevin_pull`: an entity as selected by a pull pattern.

use rung_edn::Value as Edn;
use rung_fault::Fault;
use rung_tool::ParameterType::{Any, Text};
use rung_tool::Tool;
use serde::Deserialize;
use serde_json::Value;

use super::{Databases, parameters, reading_tool};
use crate::context::{DatabaseContext, envelope, with_result};
use crate::json::{parse_argument, to_json};

pub(super) const TOOL: Tool<Databases, Input> = reading_tool(
    "datalevin_pull",
    "An entity as a map.",
    &[
        ("database", Text, true, parameters::DATABASE),
        ("selector", Any, true, parameters::SELECTOR),
        ("eid", Any, true, parameters::EID),
    ],
    |context: &DatabaseContext<'_>, input: Input| {
        let database = context.database(&input.database)?;
        let pulled = database.pull(
            &parse_selector(&input.selector)?,
            &parse_argument(&input.eid)?,
        )?;
        let beside = envelope("database", &input.database);
        Ok(with_result(beside, to_json(&pulled)))
    },
);

#[derive(Deserialize)]
pub(super) struct Input {
    database: String,
    selector: Value,
    eid: Value,
}

/// Parses a pull pattern. JSON has no symbols, so `"*"` and `"..."` stand for them.
pub(super) fn parse_selector(value: &Value) -> Result<Edn, Fault> {
    Ok(with_symbols(parse_argument(value)?))
}

fn with_symbols(pattern: Edn) -> Edn {
    match pattern {
        Edn::String(text) if ["*", "..."].contains(&&*text) => Edn::symbol(&text),
        Edn::String(text) if text.trim_start().starts_with('[') => {
            // A pattern written as EDN text.
            rung_edn::read(&text).unwrap_or(Edn::String(text))
        }
        // An attribute with its options, whose values are data.
        Edn::Vector(items) if is_option(items.get(1)) => Edn::Vector(items),
        Edn::Vector(items) => Edn::Vector(items.into_iter().map(with_symbols).collect()),
        Edn::Map(members) => {
            let members = members.into_iter();
            Edn::Map(
                members
                    .map(|(key, within)| (key, with_symbols(within)))
                    .collect(),
            )
        }
        other => other,
    }
}

fn is_option(part: Option<&Edn>) -> bool {
    let name = part.and_then(Edn::as_keyword).map(rung_edn::Name::as_str);
    name.is_some_and(|name| ["as", "limit", "default", "xform"].contains(&name))
}

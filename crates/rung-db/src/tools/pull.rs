//! `datalevin_pull`: an entity, as far as a pattern goes.

use rung_fault::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::Kind::{Any, Text};
use super::{Definition, head, read, with_result};
use crate::json::{given, to_json};

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_pull",
    description: "An entity as a map, as far as the selector goes: [\"*\"], [\":name\"].",
    writes: false,
    arguments: &[
        ("database", Text, true),
        ("selector", Any, true),
        ("eid", Any, true),
    ],
    run: |asking, input| {
        let input: Input = read(input)?;
        let db = asking.database(&input.database)?;
        let pulled = db.pull(&selector(&input.selector)?, &given(&input.eid)?)?;
        Ok(with_result(
            head("database", &input.database),
            to_json(&pulled),
        ))
    },
};

#[derive(Deserialize)]
struct Input {
    database: String,
    selector: Value,
    eid: Value,
}

/// A selector as it is meant: its options may be given by name.
pub(super) fn selector(value: &Value) -> Result<rung_edn::Value, Fault> {
    Ok(match value {
        Value::Object(members) if members.len() == 1 && members.contains_key("~pull") => {
            let spec = &members["~pull"];
            let attribute = &spec["attr"];
            let mut parts = vec![given(&attribute["attr"])?];
            for (name, option) in [("as", "as"), ("limit", "limit"), ("default", "default")] {
                if let Some(value) = attribute.get(name) {
                    parts.push(rung_edn::Value::keyword(option));
                    parts.push(given(value)?);
                }
            }
            let attribute = rung_edn::Value::Vector(parts);
            match spec.get("pattern").filter(|pattern| !pattern.is_null()) {
                Some(pattern) => {
                    let members = [(attribute, selector(pattern)?)];
                    rung_edn::Value::Map(members.into_iter().collect())
                }
                None => attribute,
            }
        }
        Value::Array(items) => {
            rung_edn::Value::Vector(items.iter().map(selector).collect::<Result<_, _>>()?)
        }
        Value::Object(members) if !members.keys().any(|key| key.starts_with('~')) => {
            let each = members
                .iter()
                .map(|(key, value)| Ok((given(&Value::from(key.as_str()))?, selector(value)?)));
            rung_edn::Value::Map(each.collect::<Result<_, Fault>>()?)
        }
        other => given(other)?,
    })
}

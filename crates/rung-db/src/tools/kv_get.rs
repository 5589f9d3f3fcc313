//! `datalevin_kv_get`: the value of a key.

use rung_fault::Fault;
use rung_kv::typed::Type;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, Text, Whether};
use super::{Asking, Definition, head, read, with_result};
use crate::json::{given, to_json};
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_kv_get",
    description: "The value of a key in a table. Types: data, string, long, keyword, ...",
    writes: false,
    arguments: &[
        ("kv", Text, true),
        ("dbi", Text, true),
        ("key", Any, true),
        ("keyType", Any, false),
        ("valueType", Any, false),
        ("returnPair", Whether, false),
    ],
    run,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    kv: String,
    dbi: String,
    key: Value,
    key_type: Option<Value>,
    value_type: Option<Value>,
    #[serde(default)]
    return_pair: bool,
}

/// A type that is given, or any.
pub(super) fn kind(given: Option<&Value>) -> Result<Type, Fault> {
    match super::part(given)? {
        Some(given) => Ok(Type::read(&given)?),
        None => Ok(Type::Data),
    }
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let tables = asking.state.handles.kv(asking.permit(), &input.kv)?;
    let key = kind(input.key_type.as_ref())?.fit(given(&input.key)?)?;
    kind(input.value_type.as_ref())?;
    let value = tables.read(|snapshot| match snapshot.plain(&input.dbi)? {
        Some(table) => table.get(&key),
        None => Ok(None),
    });
    let value = value.map_err(Fault::from)?;
    let result = match value {
        None => Value::Null,
        Some(value) if input.return_pair => json!([to_json(&key), to_json(&value)]),
        Some(value) => to_json(&value),
    };
    let mut told = head("kv", &input.kv);
    told.insert("dbi".to_owned(), json!(input.dbi));
    Ok(with_result(told, result))
}

//! Documents: maps and vectors within each other, as the value of an attribute.
//!
//! Owns: what may be in a document ([`taken`]), how one is read from text, the index of its [`paths`], what a [`Condition`] says of
//! one, what is [`got`] from one, and how one is [`patch`](patch::patched)ed. Refuses to know: entities, transactions, queries.
//!
//! A null within a document is kept as a word of its own, [`NULL`]: nothing is never a value here, and whoever asks for what is not
//! there must be told something else.

mod condition;
mod markdown;
mod patch;
pub(crate) mod paths;

use std::sync::Arc;

use rung_edn::{Map, Name, Value};

use crate::schema::{Attribute, Type};
use crate::{Error, Result};

pub(crate) use condition::Condition;
pub(crate) use patch::patched;

/// What stands for a null within a document.
pub(crate) const NULL: &str = "json/null";

/// Documents within documents, at most.
const MAX_DEPTH: usize = 256;

/// What the text of a document is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Edn,
    Json,
    Markdown,
}

impl Format {
    /// The format of an attribute's documents.
    pub(crate) fn of(attribute: &Attribute) -> Self {
        let said = attribute.further.get(&Value::keyword("db/idocFormat"));
        said.and_then(Self::read).unwrap_or(Self::Edn)
    }

    pub(crate) fn read(value: &Value) -> Option<Self> {
        match value.as_keyword()?.as_str() {
            "edn" => Some(Self::Edn),
            "json" => Some(Self::Json),
            "markdown" => Some(Self::Markdown),
            _ => None,
        }
    }
}

/// Whether the values of an attribute are documents.
pub(crate) fn has_documents(attribute: &Attribute) -> bool {
    attribute.kind == Some(Type::Idoc)
}

/// The name under which the documents of an attribute are found together with those of others.
pub(crate) fn domain(attribute: &Attribute) -> String {
    match attribute.further.get(&Value::keyword("db/domain")) {
        Some(Value::String(name)) => name.to_string(),
        _ => attribute.name.to_string(),
    }
}

fn wrong<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Transaction(why.into()))
}

pub(crate) fn null() -> Value {
    Value::keyword(NULL)
}

pub(crate) fn is_null(value: &Value) -> bool {
    value.as_keyword().is_some_and(|name| name.as_str() == NULL)
}

/// A value as a document of an attribute. A text is read in the attribute's format.
pub(crate) fn taken(attribute: &Attribute, value: &Value) -> Result<Value> {
    let read = match (value, Format::of(attribute)) {
        (Value::String(text), Format::Edn) => rung_edn::read(text).or_else(|error| {
            wrong(format!(
                "the document of :{} is no EDN: {error}",
                attribute.name
            ))
        })?,
        (Value::String(text), Format::Json) => {
            let json: serde_json::Value = serde_json::from_str(text).or_else(|error| {
                wrong(format!(
                    "the document of :{} is no JSON: {error}",
                    attribute.name
                ))
            })?;
            of_json(&json)
        }
        (Value::String(text), Format::Markdown) => markdown::read(text)?,
        (value, _) => value.clone(),
    };
    match read {
        Value::Map(_) | Value::Vector(_) => checked(read, 0),
        other => wrong(format!(
            "a document is a map or a vector, and {} of :{} is a {}",
            shown(&other),
            attribute.name,
            other.kind()
        )),
    }
}

/// How a value begins, within a message.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    let end = text.floor_char_boundary(60);
    if end == text.len() {
        return text;
    }
    format!("{}…", &text[..end])
}

/// A part of a document, with a word for what is null.
fn checked(value: Value, depth: usize) -> Result<Value> {
    if depth > MAX_DEPTH {
        return wrong(format!("a document is nested deeper than {MAX_DEPTH}"));
    }
    match value {
        Value::Nil => Ok(null()),
        Value::Map(members) => {
            let members = members.into_iter().map(|(key, value)| {
                if !matches!(key, Value::Keyword(_) | Value::String(_)) {
                    let key = shown(&key);
                    return wrong(format!(
                        "the keys of a document are keywords and strings, and {key} is neither"
                    ));
                }
                Ok((key, checked(value, depth + 1)?))
            });
            Ok(Value::Map(members.collect::<Result<Map>>()?))
        }
        Value::Vector(items) => {
            let items = items.into_iter().map(|item| checked(item, depth + 1));
            Ok(Value::Vector(items.collect::<Result<_>>()?))
        }
        Value::List(_) => wrong("a document has vectors, and no lists"),
        other => Ok(other),
    }
}

/// JSON as it is written: its keys are strings, whatever they begin with.
fn of_json(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Nil,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::Long(number),
            (None, Some(number)) => Value::BigInt(Arc::new(number.into())),
            (None, None) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::text(text.as_str()),
        serde_json::Value::Array(items) => Value::Vector(items.iter().map(of_json).collect()),
        serde_json::Value::Object(members) => {
            let members = members.iter();
            Value::Map(
                members
                    .map(|(key, value)| (Value::text(key.as_str()), of_json(value)))
                    .collect(),
            )
        }
    }
}

/// What is reached by keys and positions, one after the other. A key reaches into every element of a vector.
pub(crate) fn got(value: &Value, path: &[Value]) -> Option<Value> {
    let Some((step, rest)) = path.split_first() else {
        return Some(value.clone());
    };
    match (value, step) {
        (Value::Map(members), key) => got(members.get(key)?, rest),
        (Value::Vector(items), Value::Long(at)) => {
            got(items.get(usize::try_from(*at).ok()?)?, rest)
        }
        (Value::Vector(items), _) => {
            let found: Vec<Value> = items.iter().filter_map(|item| got(item, path)).collect();
            (!found.is_empty()).then_some(Value::Vector(found))
        }
        _ => None,
    }
}

/// The key that a heading becomes: its letters and digits, with dashes between words.
fn key_of_heading(text: &str) -> Result<Value> {
    markdown::key(text).map(|key| Value::Keyword(Name::new(key)))
}

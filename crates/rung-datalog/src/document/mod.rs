//! Documents: maps and vectors within each other, as the value of an attribute.
//!
//! Owns: parsing and validation of documents ([`parse_document`]), the index of their [`paths`], conditions on them
//! ([`Condition`]), access by path ([`get_path`]) and patches ([`apply_patch`]). Refuses to know: entities, transactions,
//! queries.
//!
//! A null within a document is stored as a keyword of its own, [`NULL`]. So nil always means that a value is missing.

mod condition;
mod markdown;
mod patch;
pub(crate) mod paths;

use std::sync::Arc;

use rung_edn::{Map, Name, Value};

use crate::schema::{Attribute, Type};
use crate::{Error, Result};

pub(crate) use condition::Condition;
pub(crate) use patch::apply_patch;

/// The keyword that represents a null within a document.
pub(crate) const NULL: &str = "json/null";

/// Depth of nested maps and vectors, at most.
const MAX_DEPTH: usize = 256;

/// The format of a document's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DocumentFormat {
    Edn,
    Json,
    Markdown,
}

impl DocumentFormat {
    /// Returns the format of an attribute's documents. The default is EDN.
    pub(crate) fn from_attribute(attribute: &Attribute) -> Self {
        let said = attribute.extra.get(&Value::keyword("db/idocFormat"));
        said.and_then(Self::parse).unwrap_or(Self::Edn)
    }

    pub(crate) fn parse(value: &Value) -> Option<Self> {
        match value.as_keyword()?.as_str() {
            "edn" => Some(Self::Edn),
            "json" => Some(Self::Json),
            "markdown" => Some(Self::Markdown),
            _ => None,
        }
    }
}

/// Returns true if the values of an attribute are documents.
pub(crate) fn has_documents(attribute: &Attribute) -> bool {
    attribute.kind == Some(Type::Idoc)
}

/// Returns the domain of an attribute's documents. Attributes of the same domain are searched together.
pub(crate) fn domain(attribute: &Attribute) -> String {
    match attribute.extra.get(&Value::keyword("db/domain")) {
        Some(Value::String(name)) => name.to_string(),
        _ => attribute.name.to_string(),
    }
}

fn invalid_document<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Transaction(why.into()))
}

pub(crate) fn null() -> Value {
    Value::keyword(NULL)
}

pub(crate) fn is_null(value: &Value) -> bool {
    value.as_keyword().is_some_and(|name| name.as_str() == NULL)
}

/// Converts a value to a document of an attribute. A string is parsed in the attribute's format.
pub(crate) fn parse_document(attribute: &Attribute, value: &Value) -> Result<Value> {
    let read = match (value, DocumentFormat::from_attribute(attribute)) {
        (Value::String(text), DocumentFormat::Edn) => rung_edn::read(text).or_else(|error| {
            invalid_document(format!(
                "the document of :{} is not valid EDN: {error}",
                attribute.name
            ))
        })?,
        (Value::String(text), DocumentFormat::Json) => {
            let json: serde_json::Value = serde_json::from_str(text).or_else(|error| {
                invalid_document(format!(
                    "the document of :{} is not valid JSON: {error}",
                    attribute.name
                ))
            })?;
            from_json(&json)
        }
        (Value::String(text), DocumentFormat::Markdown) => markdown::parse(text)?,
        (value, _) => value.clone(),
    };
    match read {
        Value::Map(_) | Value::Vector(_) => validate(read, 0),
        other => invalid_document(format!(
            "a document is a map or a vector; {} of :{} is a {}",
            abbreviate(&other),
            attribute.name,
            other.kind()
        )),
    }
}

/// Returns the beginning of a value as text, for error messages.
fn abbreviate(value: &Value) -> String {
    let text = value.to_string();
    let end = text.floor_char_boundary(60);
    if end == text.len() {
        return text;
    }
    format!("{}…", &text[..end])
}

/// Validates a part of a document, and replaces nil by [`NULL`].
fn validate(value: Value, depth: usize) -> Result<Value> {
    if depth > MAX_DEPTH {
        return invalid_document(format!(
            "a document is nested deeper than {MAX_DEPTH} levels"
        ));
    }
    match value {
        Value::Nil => Ok(null()),
        Value::Map(members) => {
            let members = members.into_iter().map(|(key, value)| {
                if !matches!(key, Value::Keyword(_) | Value::String(_)) {
                    let key = abbreviate(&key);
                    return invalid_document(format!(
                        "the keys of a document are keywords or strings; {key} is neither"
                    ));
                }
                Ok((key, validate(value, depth + 1)?))
            });
            Ok(Value::Map(members.collect::<Result<Map>>()?))
        }
        Value::Vector(items) => {
            let items = items.into_iter().map(|item| validate(item, depth + 1));
            Ok(Value::Vector(items.collect::<Result<_>>()?))
        }
        Value::List(_) => invalid_document("a document has a list; use a vector"),
        other => Ok(other),
    }
}

/// Converts JSON. All keys become strings, also those that look like keywords.
fn from_json(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Nil,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::Long(number),
            (None, Some(number)) => Value::BigInt(Arc::new(number.into())),
            (None, None) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::text(text.as_str()),
        serde_json::Value::Array(items) => Value::Vector(items.iter().map(from_json).collect()),
        serde_json::Value::Object(members) => {
            let members = members.iter();
            Value::Map(
                members
                    .map(|(key, value)| (Value::text(key.as_str()), from_json(value)))
                    .collect(),
            )
        }
    }
}

/// Returns the value at a path of keys and positions. A key applies to every element of a vector.
pub(crate) fn get_path(value: &Value, path: &[Value]) -> Option<Value> {
    let Some((step, rest)) = path.split_first() else {
        return Some(value.clone());
    };
    match (value, step) {
        (Value::Map(members), key) => get_path(members.get(key)?, rest),
        (Value::Vector(items), Value::Long(at)) => {
            get_path(items.get(usize::try_from(*at).ok()?)?, rest)
        }
        (Value::Vector(items), _) => {
            let found: Vec<Value> = items
                .iter()
                .filter_map(|item| get_path(item, path))
                .collect();
            (!found.is_empty()).then_some(Value::Vector(found))
        }
        _ => None,
    }
}

/// Returns the key of a heading: its letters and digits, with dashes between words.
fn heading_keyword(text: &str) -> Result<Value> {
    markdown::heading_key(text).map(|key| Value::Keyword(Name::new(key)))
}

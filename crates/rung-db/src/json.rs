//! Values as JSON: what JSON does not have is tagged.

use data_encoding::BASE64;
use rung_edn::{Value, read};
use rung_fault::{Code, Fault};
use serde_json::{Map, json};

/// Whole numbers that every reader of JSON reads exactly.
const EXACT: i64 = (1 << 53) - 1;

/// A value as JSON; what JSON does not have is tagged.
pub fn to_json(value: &Value) -> serde_json::Value {
    let tagged = |tag: &str, inner: serde_json::Value| {
        let mut members = Map::new();
        members.insert(tag.to_owned(), inner);
        serde_json::Value::Object(members)
    };
    match value {
        Value::Nil => serde_json::Value::Null,
        Value::Bool(value) => json!(value),
        Value::Long(number) if number.unsigned_abs() > EXACT.unsigned_abs() => {
            tagged("~i64", json!(number.to_string()))
        }
        Value::Long(number) => json!(number),
        Value::BigInt(number) => tagged("~bigint", json!(number.to_string())),
        Value::BigDec(_) => tagged("~bigdec", json!(value.to_string().trim_end_matches('M'))),
        Value::Float(number) if number.is_finite() => json!(number),
        Value::Double(number) if number.is_finite() => json!(number),
        Value::String(text) => json!(&**text),
        Value::Keyword(name) => json!(format!(":{name}")),
        Value::Instant(_) => {
            let written = value.to_string();
            let moment = written
                .trim_start_matches("#inst \"")
                .trim_end_matches("-00:00\"");
            tagged("~date", json!(format!("{moment}Z")))
        }
        Value::Uuid(_) => {
            let written = value.to_string();
            tagged(
                "~uuid",
                json!(written.trim_start_matches("#uuid \"").trim_end_matches('"')),
            )
        }
        Value::Bytes(bytes) => tagged("~bytes", json!(BASE64.encode(bytes))),
        Value::Vector(items) | Value::List(items) => items.iter().map(to_json).collect(),
        Value::Set(items) => tagged("~set", items.iter().map(to_json).collect()),
        Value::Map(members) => {
            let names: Option<Vec<String>> = members.keys().map(key).collect();
            if let Some(names) = names {
                let members = names.into_iter().zip(members.values().map(to_json));
                return serde_json::Value::Object(members.collect());
            }
            let pairs = members
                .iter()
                .map(|(key, value)| json!([to_json(key), to_json(value)]));
            tagged("~map", pairs.collect())
        }
        Value::Symbol(_)
        | Value::Char(_)
        | Value::Ratio(_)
        | Value::Float(_)
        | Value::Double(_)
        | Value::Tagged(..) => tagged("~edn", json!(value.to_string())),
    }
}

/// A key as JSON has keys, where it can.
fn key(key: &Value) -> Option<String> {
    match key {
        Value::String(text) => Some(text.to_string()),
        Value::Keyword(name) => Some(format!(":{name}")),
        _ => None,
    }
}

/// A value of JSON: what is tagged is what it was, and names that begin with a colon are keywords.
pub fn of_json(value: &serde_json::Value) -> Value {
    let name = |text: &str| match text.strip_prefix(':') {
        Some(name) if !name.is_empty() => Value::keyword(name),
        _ => Value::text(text),
    };
    match value {
        serde_json::Value::Null => Value::Nil,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(number) => Value::Long(number),
            None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::text(text.as_str()),
        serde_json::Value::Array(items) => Value::Vector(items.iter().map(of_json).collect()),
        serde_json::Value::Object(members) => {
            if let (1, Some((tag, serde_json::Value::String(text)))) =
                (members.len(), members.iter().next())
            {
                let written = match tag.as_str() {
                    "~edn" | "~i64" => Some(text.clone()),
                    "~date" => Some(format!("#inst \"{text}\"")),
                    "~uuid" => Some(format!("#uuid \"{text}\"")),
                    "~bigint" => Some(format!("{text}N")),
                    "~bigdec" => Some(format!("{text}M")),
                    "~bytes" => Some(format!("#datalevin/bytes \"{text}\"")),
                    _ => None,
                };
                if let Some(value) = written.and_then(|written| read(&written).ok()) {
                    return value;
                }
            }
            Value::Map(
                members
                    .iter()
                    .map(|(key, value)| (name(key), of_json(value)))
                    .collect(),
            )
        }
    }
}

/// A value that an agent gives: as [`of_json`], and a text that begins with a colon is a keyword. `{"~str": ":x"}` is a text all the same.
/// What is tagged and is not what its tag says is refused.
pub fn given(value: &serde_json::Value) -> Result<Value, Fault> {
    let name = |text: &str| match text.strip_prefix(':') {
        Some(name) if !name.is_empty() => Value::keyword(name),
        _ => Value::text(text),
    };
    let serde_json::Value::Object(members) = value else {
        return Ok(match value {
            serde_json::Value::String(text) => name(text),
            serde_json::Value::Array(items) => {
                Value::Vector(items.iter().map(given).collect::<Result<_, _>>()?)
            }
            other => of_json(other),
        });
    };
    let only = members.iter().next().filter(|_| members.len() == 1);
    let Some((tag, inner)) = only.filter(|(tag, _)| TAGS.contains(&tag.as_str())) else {
        let members = members
            .iter()
            .map(|(key, value)| Ok((name(key), given(value)?)));
        return Ok(Value::Map(members.collect::<Result<_, Fault>>()?));
    };
    let wrong = || {
        let why = format!("{value} is not what {tag} says");
        Fault::new(Code::InvalidArguments, why)
    };
    match (tag.as_str(), inner) {
        ("~str", serde_json::Value::String(text)) => Ok(Value::text(text.as_str())),
        ("~set", serde_json::Value::Array(items)) => Ok(Value::Set(
            items.iter().map(given).collect::<Result<_, _>>()?,
        )),
        ("~map", serde_json::Value::Array(pairs)) => {
            let pairs = pairs
                .iter()
                .map(|pair| match pair.as_array().map(Vec::as_slice) {
                    Some([key, value]) => Ok((given(key)?, given(value)?)),
                    _ => Err(wrong()),
                });
            Ok(Value::Map(pairs.collect::<Result<_, Fault>>()?))
        }
        ("~str" | "~set" | "~map", _) => Err(wrong()),
        _ => match of_json(value) {
            Value::Map(_) if tag != "~edn" => Err(wrong()),
            // Where EDN cannot be read, it is left as it came.
            Value::Map(read) if read.contains_key(&Value::text(tag.as_str())) => Err(wrong()),
            read => Ok(read),
        },
    }
}

/// What a value that is not JSON's own is marked by.
const TAGS: [&str; 10] = [
    "~str", "~i64", "~bigint", "~bigdec", "~date", "~uuid", "~bytes", "~set", "~map", "~edn",
];

//! Values as JSON: what JSON does not have is tagged.
//!
//! The law it keeps: what [`to_json`] writes, [`given`] reads as the same value. So a text that begins with a colon, which would be
//! taken for a keyword, is tagged too, and a map whose keys could be taken for something else is a list of pairs.

use std::sync::Arc;

use data_encoding::BASE64;
use rung_edn::{BigInt, Value, read};
use rung_fault::{Code, Fault};
use serde_json::{Map, Value as Json, json};

/// Whole numbers that every reader of JSON reads exactly.
const EXACT: i64 = (1 << 53) - 1;

/// What a value that is not JSON's own is marked by.
const TAGS: [&str; 12] = [
    "~str", "~i64", "~bigint", "~bigdec", "~date", "~uuid", "~bytes", "~set", "~map", "~edn",
    "~pull", "~handle",
];

fn tagged(tag: &str, inner: Json) -> Json {
    let mut members = Map::new();
    members.insert(tag.to_owned(), inner);
    Json::Object(members)
}

/// A value as JSON; what JSON does not have is tagged.
pub fn to_json(value: &Value) -> Json {
    match value {
        Value::Nil => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Long(number) if number.unsigned_abs() > EXACT.unsigned_abs() => {
            tagged("~i64", json!(number.to_string()))
        }
        Value::Long(number) => json!(number),
        Value::BigInt(number) => tagged("~bigint", json!(number.to_string())),
        Value::BigDec(_) => tagged("~bigdec", json!(value.to_string().trim_end_matches('M'))),
        Value::Float(number) if number.is_finite() => json!(value.as_f64()),
        Value::Double(number) if number.is_finite() => json!(number),
        Value::String(text) if text.starts_with(':') => tagged("~str", json!(&**text)),
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
            // One that has nothing but a tag would be taken for what is tagged.
            let names = names.filter(|names| names.len() != 1 || !TAGS.contains(&&*names[0]));
            if let Some(names) = names {
                let members = names.into_iter().zip(members.values().map(to_json));
                return Json::Object(members.collect());
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
        Value::String(text) if !text.starts_with(':') => Some(text.to_string()),
        Value::Keyword(name) => Some(format!(":{name}")),
        _ => None,
    }
}

/// A text that begins with a colon as the keyword that it is, where it is one.
fn name(text: &str) -> Value {
    // Not a keyword with something after it, a comment for instance.
    match text.strip_prefix(':').and_then(|_| read(text).ok()) {
        Some(Value::Keyword(name)) if name.as_str() == &text[1..] => Value::Keyword(name),
        _ => Value::text(text),
    }
}

fn number(number: &serde_json::Number) -> Value {
    match (number.as_i64(), number.as_u64()) {
        (Some(number), _) => Value::Long(number),
        (None, Some(number)) => Value::BigInt(Arc::new(BigInt::from(number))),
        (None, None) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
    }
}

/// What a tag and a text say together.
fn untagged(tag: &str, text: &str) -> Option<Value> {
    let written = match tag {
        "~str" => return Some(Value::text(text)),
        "~edn" => return read(text).ok(),
        "~i64" => text.to_owned(),
        "~date" => format!("#inst \"{text}\""),
        "~uuid" => format!("#uuid \"{text}\""),
        "~bigint" => format!("{text}N"),
        "~bigdec" => format!("{text}M"),
        "~bytes" => format!("#datalevin/bytes \"{text}\""),
        _ => return None,
    };
    let value = read(&written).ok()?;
    let fits = match tag {
        "~i64" => matches!(value, Value::Long(_)),
        "~date" => matches!(value, Value::Instant(_)),
        "~uuid" => matches!(value, Value::Uuid(_)),
        "~bigint" => matches!(value, Value::BigInt(_)),
        "~bigdec" => matches!(value, Value::BigDec(_)),
        _ => matches!(value, Value::Bytes(_)),
    };
    fits.then_some(value)
}

/// A value of JSON that is data: what is tagged is what it was, and names that begin with a colon are keywords; texts are texts.
pub fn of_json(value: &Json) -> Value {
    match value {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(given) => number(given),
        Json::String(text) => Value::text(text.as_str()),
        Json::Array(items) => Value::Vector(items.iter().map(of_json).collect()),
        Json::Object(members) => {
            if let (1, Some((tag, Json::String(text)))) = (members.len(), members.iter().next())
                && let Some(value) = untagged(tag, text)
            {
                return value;
            }
            let members = members
                .iter()
                .map(|(key, value)| (name(key), of_json(value)));
            Value::Map(members.collect())
        }
    }
}

/// A value that an agent gives: as [`of_json`], and a text that is written as a keyword is one. `{"~str": ":x"}` is a text all the
/// same, and so is `":a b"`, which no keyword is written as. What is tagged and is not what its tag says is refused.
pub fn given(value: &Json) -> Result<Value, Fault> {
    let members = match value {
        Json::String(text) => return Ok(name(text)),
        Json::Array(items) => {
            return Ok(Value::Vector(
                items.iter().map(given).collect::<Result<_, _>>()?,
            ));
        }
        Json::Object(members) => members,
        other => return Ok(of_json(other)),
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
        ("~set", Json::Array(items)) => Ok(Value::Set(
            items.iter().map(given).collect::<Result<_, _>>()?,
        )),
        ("~map", Json::Array(pairs)) => {
            let pairs = pairs
                .iter()
                .map(|pair| match pair.as_array().map(Vec::as_slice) {
                    Some([key, value]) => Ok((given(key)?, given(value)?)),
                    _ => Err(wrong()),
                });
            Ok(Value::Map(pairs.collect::<Result<_, Fault>>()?))
        }
        ("~pull", Json::Object(spec)) => pull(spec).unwrap_or_else(|| Err(wrong())),
        ("~handle", _) => {
            let why = "~handle names nothing here: give values themselves";
            Err(Fault::new(Code::InvalidHandle, why))
        }
        (tag, Json::String(text)) => untagged(tag, text).ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

/// An attribute with its options, as a pattern has it: `{"attr": {"attr": ":name", "as": "n"}, "pattern": [":age"]}`.
fn pull(spec: &Map<String, Json>) -> Option<Result<Value, Fault>> {
    let attribute = spec.get("attr")?.as_object()?;
    let known = ["attr", "as", "limit", "default", "xform"];
    if !attribute.keys().all(|key| known.contains(&&**key)) || !attribute.contains_key("attr") {
        return None;
    }
    let options = known.iter().filter_map(|name| {
        let value = given(attribute.get(*name)?).map(|value| match value {
            // The name of a function, as functions are called.
            Value::String(text) if *name == "xform" => Value::symbol(&text),
            value => value,
        });
        Some((*name, value))
    });
    let mut parts = Vec::new();
    for (name, value) in options {
        if name != "attr" {
            parts.push(Value::keyword(name));
        }
        match value {
            Ok(value) => parts.push(value),
            Err(fault) => return Some(Err(fault)),
        }
    }
    let attribute = if parts.len() == 1 {
        parts.remove(0)
    } else {
        Value::Vector(parts)
    };
    Some(match spec.get("pattern").filter(|given| !given.is_null()) {
        None => Ok(attribute),
        Some(pattern) => given(pattern)
            .map(|pattern| Value::Map(std::iter::once((attribute, pattern)).collect())),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Values that have a spelling, which are those that can be kept.
    fn values() -> impl Strategy<Value = Value> {
        let word = "[a-z][a-z0-9.*!?-]{0,6}(/[a-z][a-z0-9-]{0,4})?";
        let single = prop_oneof![
            Just(Value::Nil),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Long),
            any::<f64>().prop_map(Value::Double),
            "\\PC{0,8}".prop_map(|text| Value::text(&*text)),
            "[:~]{1,2}[a-z /:\"]{0,4}".prop_map(|text| Value::text(&*text)),
            prop::sample::select(&TAGS[..]).prop_map(Value::text),
            word.prop_map(|name| Value::keyword(&name)),
            word.prop_map(|name| Value::symbol(&name)),
            (0_i64..4_000_000_000_000).prop_map(Value::Instant),
            prop::collection::vec(any::<u8>(), 0..9).prop_map(|bytes| Value::Bytes(bytes.into())),
            any::<u128>().prop_map(Value::Uuid),
            any::<i128>().prop_map(|number| read(&format!("{number}N")).unwrap()),
            (any::<i64>(), 0_u8..9)
                .prop_map(|(number, scale)| read(&format!("{number}e-{scale}M")).unwrap()),
        ];
        single.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Vector),
                prop::collection::vec(inner.clone(), 0..4)
                    .prop_map(|items| Value::Set(items.into_iter().collect())),
                prop::collection::vec((inner.clone(), inner), 0..4)
                    .prop_map(|pairs| Value::Map(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_goes_out_comes_in_as_it_was(value in values()) {
            let text = to_json(&value).to_string();
            let read = given(&serde_json::from_str(&text).unwrap()).unwrap();
            prop_assert_eq!(&read, &value, "{}", text);
        }
    }

    #[test]
    fn a_text_and_a_keyword_that_look_alike_are_both_there() {
        let both = read("{\":z\" 1, :z 2}").unwrap();
        assert_eq!(
            to_json(&both),
            json!({"~map": [[{"~str": ":z"}, 1], [":z", 2]]})
        );
    }

    #[test]
    fn what_no_keyword_is_written_as_stays_a_text() {
        for text in [":a b", ":", ": x", ":a)", ":\"", ":a ;b"] {
            assert_eq!(given(&json!(text)).unwrap(), Value::text(text), "{text}");
        }
        assert_eq!(given(&json!(":a/b")).unwrap(), Value::keyword("a/b"));
    }

    #[test]
    fn what_is_not_what_its_tag_says_is_refused() {
        for (wrong, code) in [
            (json!({"~i64": "1.5"}), Code::InvalidArguments),
            (json!({"~date": "\" 1"}), Code::InvalidArguments),
            (
                json!({"~pull": {"attr": {"as": "n"}}}),
                Code::InvalidArguments,
            ),
            (
                json!({"~pull": {"attr": {"attr": ":a", "sort": 1}}}),
                Code::InvalidArguments,
            ),
            (json!({"~handle": "database-1"}), Code::InvalidHandle),
        ] {
            assert_eq!(given(&wrong).unwrap_err().code(), code, "{wrong}");
        }
    }

    #[test]
    fn options_of_an_attribute_are_given_by_name() {
        let given = given(
            &json!({"~pull": {"attr": {"attr": ":n", "as": "name", "xform": "inc"}, "pattern": ["*"]}}),
        );
        assert_eq!(
            given.unwrap(),
            read("{[:n :as \"name\" :xform inc] [\"*\"]}").unwrap()
        );
    }
}

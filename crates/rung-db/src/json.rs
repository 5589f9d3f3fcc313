//! EDN values as JSON; types that JSON lacks are tagged.
//!
//! The law it keeps: [`parse_argument`] reads what [`to_json`] writes as the same value. A text that begins with a colon,
//! which would be read as a keyword, is therefore tagged too, and a map with ambiguous keys is written as a list of pairs.

use std::sync::Arc;

use data_encoding::BASE64;
use rung_edn::{BigInt, Value, read, shorten};
use rung_fault::{Code, Fault};
use serde_json::{Map, Value as Json, json};

/// Largest integer that every JSON reader reads exactly.
const MAX_EXACT_INTEGER: i64 = (1 << 53) - 1;

/// Characters of an argument that an error repeats, at most.
const MAX_SHOWN_CHARS: usize = 120;

/// Tags of values that JSON lacks.
const TAGS: [&str; 12] = [
    "~str", "~i64", "~bigint", "~bigdec", "~date", "~uuid", "~bytes", "~set", "~map", "~edn",
    "~pull", "~handle",
];

fn tagged(tag: &str, inner: Json) -> Json {
    let mut members = Map::new();
    members.insert(tag.to_owned(), inner);
    Json::Object(members)
}

/// Converts a value to JSON, with types that JSON lacks tagged.
pub fn to_json(value: &Value) -> Json {
    match value {
        Value::Nil => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Long(number) if number.unsigned_abs() > MAX_EXACT_INTEGER.unsigned_abs() => {
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
            let names: Option<Vec<String>> = members.keys().map(member_name).collect();
            // A map whose only key is a tag would be read as a tagged value.
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

/// Converts a map key to a JSON member name, if unambiguous.
fn member_name(key: &Value) -> Option<String> {
    match key {
        Value::String(text) if !text.starts_with(':') => Some(text.to_string()),
        Value::Keyword(name) => Some(format!(":{name}")),
        _ => None,
    }
}

/// Parses a keyword (`:name`); any other text stays a text.
fn parse_name(text: &str) -> Value {
    // Rejects a keyword followed by something else, for example a comment.
    match text.strip_prefix(':').and_then(|_| read(text).ok()) {
        Some(Value::Keyword(name)) if name.as_str() == &text[1..] => Value::Keyword(name),
        _ => Value::text(text),
    }
}

fn parse_number(number: &serde_json::Number) -> Value {
    match (number.as_i64(), number.as_u64()) {
        (Some(number), _) => Value::Long(number),
        (None, Some(number)) => Value::BigInt(Arc::new(BigInt::from(number))),
        (None, None) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
    }
}

/// Parses a tagged text.
fn parse_tagged(tag: &str, text: &str) -> Option<Value> {
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

/// Converts JSON data to a value: tagged values are restored, and member names that begin with a colon are keywords; other
/// texts stay texts.
pub fn from_json(value: &Json) -> Value {
    match value {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(given) => parse_number(given),
        Json::String(text) => Value::text(text.as_str()),
        Json::Array(items) => Value::Vector(items.iter().map(from_json).collect()),
        Json::Object(members) => {
            if let (1, Some((tag, Json::String(text)))) = (members.len(), members.iter().next())
                && let Some(value) = parse_tagged(tag, text)
            {
                return value;
            }
            let members = members
                .iter()
                .map(|(key, value)| (parse_name(key), from_json(value)));
            Value::Map(members.collect())
        }
    }
}

/// Parses an argument: like [`from_json`], but a text written as a keyword becomes one. `{"~str": ":x"}` stays a text, and
/// so does `":a b"`, which is not a valid keyword. A tagged value that does not match its tag is rejected.
pub fn parse_argument(value: &Json) -> Result<Value, Fault> {
    let members = match value {
        Json::String(text) => return Ok(parse_name(text)),
        Json::Array(items) => {
            return Ok(Value::Vector(
                items.iter().map(parse_argument).collect::<Result<_, _>>()?,
            ));
        }
        Json::Object(members) => members,
        other => return Ok(from_json(other)),
    };
    let only = members.iter().next().filter(|_| members.len() == 1);
    let Some((tag, inner)) = only.filter(|(tag, _)| TAGS.contains(&tag.as_str())) else {
        let members = members
            .iter()
            .map(|(key, value)| Ok((parse_name(key), parse_argument(value)?)));
        return Ok(Value::Map(members.collect::<Result<_, Fault>>()?));
    };
    let wrong = || {
        let shown = value.to_string();
        let why = format!("{} is not a valid {tag}", shorten(&shown, MAX_SHOWN_CHARS));
        Fault::new(Code::InvalidArguments, why)
    };
    match (tag.as_str(), inner) {
        ("~set", Json::Array(items)) => Ok(Value::Set(
            items.iter().map(parse_argument).collect::<Result<_, _>>()?,
        )),
        ("~map", Json::Array(pairs)) => {
            let pairs = pairs
                .iter()
                .map(|pair| match pair.as_array().map(Vec::as_slice) {
                    Some([key, value]) => Ok((parse_argument(key)?, parse_argument(value)?)),
                    _ => Err(wrong()),
                });
            Ok(Value::Map(pairs.collect::<Result<_, Fault>>()?))
        }
        ("~pull", Json::Object(spec)) => parse_pull(spec).unwrap_or_else(|| Err(wrong())),
        ("~handle", _) => {
            let why = "~handle is not supported; pass the value itself";
            Err(Fault::new(Code::InvalidHandle, why))
        }
        ("~edn", Json::String(text)) => read(text).map_err(|error| {
            let why = format!("the text of ~edn is not valid EDN: {error}");
            Fault::new(Code::InvalidArguments, why)
        }),
        (tag, Json::String(text)) => parse_tagged(tag, text).ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

/// Parses an attribute with options of a pull pattern: `{"attr": {"attr": ":name", "as": "n"}, "pattern": [":age"]}`.
fn parse_pull(spec: &Map<String, Json>) -> Option<Result<Value, Fault>> {
    let attribute = spec.get("attr")?.as_object()?;
    let known = ["attr", "as", "limit", "default", "xform"];
    if !attribute.keys().all(|key| known.contains(&&**key)) || !attribute.contains_key("attr") {
        return None;
    }
    let options = known.iter().filter_map(|name| {
        let value = parse_argument(attribute.get(*name)?).map(|value| match value {
            // Function names are symbols.
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
        Some(pattern) => parse_argument(pattern)
            .map(|pattern| Value::Map(std::iter::once((attribute, pattern)).collect())),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Values that have a textual form, which are those that can be stored.
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
            let read = parse_argument(&serde_json::from_str(&text).unwrap()).unwrap();
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
            assert_eq!(
                parse_argument(&json!(text)).unwrap(),
                Value::text(text),
                "{text}"
            );
        }
        assert_eq!(
            parse_argument(&json!(":a/b")).unwrap(),
            Value::keyword("a/b")
        );
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
            assert_eq!(parse_argument(&wrong).unwrap_err().code(), code, "{wrong}");
        }
    }

    #[test]
    fn an_error_of_an_argument_is_short_and_names_its_position() {
        let message = |given: Json| parse_argument(&given).unwrap_err().message().to_owned();
        let wrong = message(json!({"~i64": "x".repeat(100_000)}));
        assert!(wrong.len() < 300, "{wrong}");
        let open = message(json!({"~edn": "[1\n (2"}));
        let expected = "line 2, column 4: `(`, opened at line 2, column 2, is not closed";
        assert!(open.ends_with(expected), "{open}");
        let deep = message(json!({"~edn": "[".repeat(100_000)}));
        assert!(
            deep.contains("line 1, column 201: values are nested deeper"),
            "{deep}"
        );
    }

    #[test]
    fn options_of_an_attribute_are_given_by_name() {
        let given = parse_argument(
            &json!({"~pull": {"attr": {"attr": ":n", "as": "name", "xform": "inc"}, "pattern": ["*"]}}),
        );
        assert_eq!(
            given.unwrap(),
            read("{[:n :as \"name\" :xform inc] [\"*\"]}").unwrap()
        );
    }
}

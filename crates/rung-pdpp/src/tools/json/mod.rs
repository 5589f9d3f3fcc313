//! JSON as providers send it: strings without escapes are borrowed from the received bytes, and members keep their order.
//!
//! Owns: parsing, lookup and writing. Refuses to know: what any of it means. Its law: the same bytes parse and write as with
//! `serde_json::Value`, with two exceptions: numbers are written as they were received, and an unpaired surrogate escape is
//! replaced, not rejected.

mod number;
mod parser;
mod text;

use std::fmt;
use std::fmt::Write as _;
use std::ops::Index;

use serde::de::IgnoredAny;
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

pub(super) use number::Number;
pub(super) use parser::{JsonError, parse, parse_shallow};
pub(super) use text::JsonText;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Json<'a> {
    #[default]
    Null,
    Bool(bool),
    Number(Number<'a>),
    String(JsonText<'a>),
    Array(Vec<Json<'a>>),
    Object(JsonObject<'a>),
}

/// The members of an object, in order; names are unique.
#[derive(Debug, Clone, Default)]
pub(super) struct JsonObject<'a>(Vec<(JsonText<'a>, Json<'a>)>);

/// The value of a missing member.
static NULL: Json<'static> = Json::Null;

/// Up to this many members, duplicate names are found by comparing all pairs; above, by sorting.
const FEW_MEMBERS: usize = 24;

impl<'a> Json<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        self.as_object()?.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Self> {
        self.as_object_mut()?.get_mut(name)
    }

    /// Returns the value at a path: member names, each after a slash.
    pub(super) fn pointer(&self, place: &str) -> Option<&Self> {
        let mut names = place.split('/').skip(1);
        names.try_fold(self, |value, name| value.get(name))
    }

    pub(super) fn pointer_mut(&mut self, place: &str) -> Option<&mut Self> {
        let mut names = place.split('/').skip(1);
        names.try_fold(self, |value, name| value.get_mut(name))
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    pub(super) fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Number(number) => number.as_i64(),
            _ => None,
        }
    }

    pub(super) fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn as_array_mut(&mut self) -> Option<&mut Vec<Self>> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn as_object(&self) -> Option<&JsonObject<'a>> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    pub(super) fn as_object_mut(&mut self) -> Option<&mut JsonObject<'a>> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    pub(super) fn is_string(&self) -> bool {
        matches!(self, Self::String(_))
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Number(_))
    }

    pub(super) fn is_u64(&self) -> bool {
        self.as_u64().is_some()
    }

    pub(super) fn is_array(&self) -> bool {
        matches!(self, Self::Array(_))
    }

    pub(super) fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Returns the bytes of the value as JSON, without writing it.
    pub(super) fn json_bytes(&self) -> usize {
        match self {
            Self::Null => "null".len(),
            Self::Bool(value) => if *value { "true" } else { "false" }.len(),
            Self::Number(number) => number.json_bytes(),
            Self::String(text) => text.json_bytes(),
            Self::Array(items) => {
                let commas = items.len().saturating_sub(1);
                "[]".len() + commas + items.iter().map(Self::json_bytes).sum::<usize>()
            }
            Self::Object(members) => {
                let commas = members.len().saturating_sub(1);
                let each = |(name, value): &(JsonText<'_>, Self)| {
                    name.json_bytes() + 1 + value.json_bytes()
                };
                "{}".len() + commas + members.0.iter().map(each).sum::<usize>()
            }
        }
    }

    /// Appends the value as JSON.
    pub(super) fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(Number::Raw(text)) => out.push_str(text),
            Self::Number(Number::Native(number)) => {
                let _never_fails = write!(out, "{number}");
            }
            Self::String(text) => text.write(out),
            Self::Array(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (at, (name, value)) in members.0.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    name.write(out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    /// True if the value takes more than `max_bytes` as JSON. Stops as soon as that is certain.
    pub(super) fn is_larger(&self, max_bytes: usize) -> bool {
        self.remaining_bytes(max_bytes).is_none()
    }

    /// Returns what is left of `bytes` after the value; `None` if the value takes more.
    fn remaining_bytes(&self, bytes: usize) -> Option<usize> {
        match self {
            Self::Array(items) => {
                let around = "[]".len() + items.len().saturating_sub(1);
                let left = bytes.checked_sub(around)?;
                items
                    .iter()
                    .try_fold(left, |left, item| item.remaining_bytes(left))
            }
            Self::Object(members) => {
                let around = "{}".len() + members.len().saturating_sub(1);
                let left = bytes.checked_sub(around)?;
                members.0.iter().try_fold(left, |left, (name, value)| {
                    let left = left.checked_sub(name.json_bytes() + 1)?;
                    value.remaining_bytes(left)
                })
            }
            other => bytes.checked_sub(other.json_bytes()),
        }
    }

    /// Converts to `serde_json::Value`.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(number) => number.to_value(),
            Self::String(text) => Value::String((**text).to_owned()),
            Self::Array(items) => items.iter().map(Self::to_value).collect(),
            Self::Object(members) => {
                let each = |(name, value): (&str, &Self)| (name.to_owned(), value.to_value());
                Value::Object(members.iter().map(each).collect())
            }
        }
    }
}

impl<'a> JsonObject<'a> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|(own, _)| **own == *name)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Json<'a>> {
        let found = self.0.iter().find(|(own, _)| **own == *name);
        found.map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Json<'a>> {
        let found = self.0.iter_mut().find(|(own, _)| **own == *name);
        found.map(|(_, value)| value)
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Json<'a>)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Json<'a>)> {
        self.0.iter_mut().map(|(name, value)| (&**name, value))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Json<'a>> {
        self.0.iter().map(|(_, value)| value)
    }

    /// Replaces the member of this name, or appends it.
    pub(super) fn insert(&mut self, name: impl Into<JsonText<'a>>, value: impl Into<Json<'a>>) {
        let (name, value) = (name.into(), value.into());
        match self.get_mut(&name) {
            Some(own) => *own = value,
            None => self.0.push((name, value)),
        }
    }

    /// Removes a member; the others keep their order.
    pub(super) fn remove(&mut self, name: &str) -> Option<Json<'a>> {
        let at = self.position(name)?;
        Some(self.0.remove(at).1)
    }

    pub(super) fn retain(&mut self, mut wanted: impl FnMut(&str) -> bool) {
        self.0.retain(|(name, _)| wanted(name));
    }

    /// Merges members of the same name: the first position and the last value remain.
    fn merge_duplicates(&mut self) {
        let members = &mut self.0;
        let named_twice = || {
            let mut rest = members.as_slice();
            while let [(name, _), others @ ..] = rest {
                if others.iter().any(|(other, _)| other == name) {
                    return true;
                }
                rest = others;
            }
            false
        };
        if members.len() <= FEW_MEMBERS && !named_twice() {
            return;
        }
        let mut order: Vec<usize> = (0..members.len()).collect();
        order.sort_by(|one, other| members[*one].0.cmp(&members[*other].0));
        let mut counts = vec![true; members.len()];
        let mut moved = Vec::new();
        for same in order.chunk_by(|one, other| members[*one].0 == members[*other].0) {
            if let [first, .., last] = same {
                moved.push((*first, *last));
                same[1..].iter().for_each(|at| counts[*at] = false);
            }
        }
        if moved.is_empty() {
            return;
        }
        for (first, last) in moved {
            members[first].1 = members[last].1.take();
        }
        let mut counts = counts.into_iter();
        members.retain(|_| counts.next().unwrap_or(true));
    }
}

impl PartialEq for JsonObject<'_> {
    fn eq(&self, other: &Self) -> bool {
        let same = |(name, value): (&str, &Json<'_>)| other.get(name) == Some(value);
        self.len() == other.len() && self.iter().all(same)
    }
}

impl<'a> FromIterator<(JsonText<'a>, Json<'a>)> for JsonObject<'a> {
    fn from_iter<T: IntoIterator<Item = (JsonText<'a>, Json<'a>)>>(members: T) -> Self {
        let mut all = Self(members.into_iter().collect());
        all.merge_duplicates();
        all
    }
}

impl<'a> Index<&str> for Json<'a> {
    type Output = Json<'a>;

    fn index(&self, name: &str) -> &Self {
        self.get(name).unwrap_or(&NULL)
    }
}

impl PartialEq<str> for Json<'_> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == Some(other)
    }
}

impl PartialEq<&str> for Json<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == Some(*other)
    }
}

impl PartialEq<bool> for Json<'_> {
    fn eq(&self, other: &bool) -> bool {
        self.as_bool() == Some(*other)
    }
}

// === from and to other forms ===

impl<'a> From<&'a Value> for Json<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => Self::Number(Number::Native(number.clone())),
            Value::String(text) => Self::String(text.as_str().into()),
            Value::Array(items) => Self::Array(items.iter().map(Self::from).collect()),
            Value::Object(members) => {
                let each =
                    |(name, value): (&'a String, &'a Value)| (name.as_str().into(), value.into());
                Self::Object(JsonObject(members.iter().map(each).collect()))
            }
        }
    }
}

impl From<Value> for Json<'_> {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Number(number) => Self::Number(Number::Native(number)),
            Value::String(text) => Self::String(text.into()),
            Value::Array(items) => Self::Array(items.into_iter().map(Self::from).collect()),
            Value::Object(members) => {
                let each = |(name, value): (String, Value)| (name.into(), value.into());
                Self::Object(JsonObject(members.into_iter().map(each).collect()))
            }
        }
    }
}

impl<'a> From<&'a str> for Json<'a> {
    fn from(text: &'a str) -> Self {
        Self::String(text.into())
    }
}

impl From<usize> for Json<'_> {
    fn from(number: usize) -> Self {
        Self::Number(Number::Native(number.into()))
    }
}

impl<'a> From<Vec<Json<'a>>> for Json<'a> {
    fn from(items: Vec<Json<'a>>) -> Self {
        Self::Array(items)
    }
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) => number.serialize(serializer),
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(items) => serializer.collect_seq(items),
            Self::Object(members) => serializer.collect_map(members.iter()),
        }
    }
}

/// JSON text that serializes as it is.
pub(super) struct RawJson(String);

impl RawJson {
    /// `json` must be valid JSON.
    pub(super) fn new(json: String) -> Self {
        debug_assert!(serde_json::from_str::<IgnoredAny>(&json).is_ok(), "{json}");
        Self(json)
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write_raw(&self.0, serializer)
    }
}

/// Serializes JSON text as it is, as a `RawValue` would. Building a `RawValue` would parse the text again.
fn write_raw<S: Serializer>(json: &str, serializer: S) -> Result<S::Ok, S::Error> {
    const RAW: &str = "$serde_json::private::RawValue";
    let mut raw = serializer.serialize_struct(RAW, 1)?;
    if raw.serialize_field(RAW, json).is_err() {
        // A serializer that builds values may have no number that large: write it as a string.
        raw.serialize_field(RAW, &Value::from(json).to_string())?;
    }
    raw.end()
}

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            let set_out = serde_json::to_string_pretty(self).map_err(|_| fmt::Error)?;
            return f.write_str(&set_out);
        }
        let mut out = String::with_capacity(self.json_bytes());
        self.write(&mut out);
        f.write_str(&out)
    }
}

#[cfg(test)]
mod tests {
    use super::parser::MAX_DEPTH;
    use super::*;
    use proptest::prelude::*;

    /// Asserts that a text parses as with `serde_json::Value`, or is rejected by both.
    fn assert_same_as_serde_json(text: &str) {
        let own = parse(text.as_bytes());
        let other: Result<Value, _> = serde_json::from_slice(text.as_bytes());
        match (own, other) {
            (Ok(own), Ok(other)) => {
                let written = own.to_string();
                assert_eq!(serde_json::to_string(&own).unwrap(), written, "{text}");
                let within = serde_json::to_string(&[RawJson::new(own.to_string())]).unwrap();
                assert_eq!(within, format!("[{written}]"));
                assert_eq!(own.json_bytes(), written.len(), "{text}");
                assert!(!own.is_larger(written.len()), "{text}");
                assert!(own.is_larger(written.len() - 1), "{text}");
                assert_eq!(own.to_value(), other, "{text}");
                assert_eq!(serde_json::to_value(&own).unwrap(), other, "{text}");
                assert_eq!(Json::from(&other), own, "{text}");
                let made = Json::from(other.clone());
                assert_eq!(made, own, "{text}");
                let known = other.to_string();
                assert_eq!(made.to_string(), known, "{text}");
                assert_eq!(made.json_bytes(), known.len(), "{text}");
                for written in [written, format!("{own:#}")] {
                    let again: Value = serde_json::from_str(&written).unwrap();
                    assert_eq!(again, other, "{text}");
                }
            }
            (Err(JsonError::NotJson(_)), Err(_)) => {}
            (own, other) => panic!("{own:?} and {other:?}: {text}"),
        }
    }

    #[test]
    fn what_is_odd_is_as_it_is_elsewhere() {
        let many: Vec<String> = (0..60).map(|n| format!("\"n{}\":{n}", n % 40)).collect();
        for text in [
            "",
            "nul",
            "[1,]",
            "{\"a\":1,}",
            "{\"a\":1}x",
            "\"\u{1}\"",
            r#""\u12"#,
            r#""\u+123""#,
            r#""\x""#,
            "\"\\",
            "[01]",
            "[-]",
            "[-01]",
            "[.5]",
            "[+1]",
            "[1.]",
            "[1.e1]",
            "[1e]",
            "[1e+]",
            "[1 2]",
            "1-",
            "0x10",
            "[-0.0e-0, 123456789012345678901234567890, 0]",
            " { \"a\" : [ ] , \"b\" : { } } ",
            r#"{"b":1,"a":2,"b":[3],"c":null,"a":{"a":1}}"#,
            r#"{"\u0061":"\u00fc\/\ud83e\udd80","a":"\"\\\n\t\b\f\u0000"}"#,
            "[0,-0,1.0,1e3,-1.5e-7,18446744073709551615,18446744073709551616,-9223372036854775808]",
            &format!("{{{}}}", many.join(",")),
        ] {
            assert_same_as_serde_json(text);
        }
    }

    #[test]
    fn numbers_are_written_as_they_came() {
        // Most of a body is strings: numbers must not make a value larger.
        assert_eq!(size_of::<Json<'_>>(), size_of::<JsonText<'_>>());
        for text in [
            "[123456789012345678901234567890,-0,1.10,1E3,1e400,-1e-400]",
            r#"{"a":1e+5,"b":{"c":0.10}}"#,
            "1e400",
        ] {
            let own = parse(text.as_bytes()).unwrap();
            assert_eq!(own.to_string(), text);
            assert_eq!(serde_json::to_string(&own).unwrap(), text);
            assert_eq!(own.json_bytes(), text.len());
            assert_eq!(own, own.clone());
        }
        // Converted to other forms, the nearest number.
        let own = parse(b"[1e400,123456789012345678901234567890]").unwrap();
        let nearest = serde_json::json!(["1e400", 1.234_567_890_123_456_8e29]);
        assert_eq!(own.to_value(), nearest);
        assert_eq!(serde_json::to_value(&own).unwrap(), nearest);
        let own = parse(b"[7,-7,7.0,18446744073709551616]").unwrap();
        let whole = own.as_array().unwrap().iter();
        let whole: Vec<_> = whole.map(|one| (one.as_u64(), one.as_i64())).collect();
        let none = (None, None);
        assert_eq!(whole, [(Some(7), Some(7)), (None, Some(-7)), none, none]);
    }

    #[test]
    fn halves_of_pairs_are_replaced_and_pairs_are_not() {
        for (text, meant) in [
            (r#""\ud83e""#, "\u{fffd}"),
            (r#""a\uD83Eb""#, "a\u{fffd}b"),
            (r#""\udd80""#, "\u{fffd}"),
            (r#""\ud83e\u0041""#, "\u{fffd}A"),
            (r#""\ud83e\n""#, "\u{fffd}\n"),
            (r#""\ud83e\ud83e\udd80""#, "\u{fffd}\u{1f980}"),
            (r#""\udd80\ud83e""#, "\u{fffd}\u{fffd}"),
            (r#""\ud83e\udd80""#, "\u{1f980}"),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap().as_str(), Some(meant));
        }
        for text in [r#""\ud83e\u00""#, r#""\ud83e\"#, r#""\ud83"#] {
            assert!(matches!(parse(text.as_bytes()), Err(JsonError::NotJson(_))));
        }
    }

    #[test]
    fn what_is_nested_too_deep_is_told_from_what_is_no_json() {
        let lists = |depth: usize| format!("{}7{}", "[".repeat(depth), "]".repeat(depth));
        let names = |depth: usize| format!("{}7{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        for deep in [lists, names] {
            let most = deep(MAX_DEPTH);
            assert_eq!(parse(most.as_bytes()).unwrap().to_string(), most);
            for text in [deep(MAX_DEPTH + 1), deep(100_000)] {
                let refused = parse(text.as_bytes()).unwrap_err();
                assert!(matches!(refused, JsonError::TooDeep), "{refused}");
                // The levels above can be parsed nevertheless.
                let text = format!(r#"{{"error":{{"more":{text},"code":"x"}}}}"#);
                let shallow = parse_shallow(text.as_bytes()).unwrap();
                assert_eq!(shallow["error"]["code"], "x");
                assert!(parse(shallow.to_string().as_bytes()).is_ok());
            }
        }
        assert!(matches!(parse(b"\"\xff\""), Err(JsonError::NotUtf8(_))));
        assert!(parse_shallow("[".repeat(100_000).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn read_and_written_it_is_what_it_is_elsewhere(text in json(4)) {
            assert_same_as_serde_json(&text);
        }

        #[test]
        fn broken_it_is_refused_as_elsewhere(text in json(3), cut in any::<prop::sample::Index>()) {
            let at = text.floor_char_boundary(cut.index(text.len() + 1));
            assert_same_as_serde_json(&text[..at]);
        }
    }

    /// JSON with names that repeat, and texts that are escaped.
    fn json(depth: u32) -> impl Strategy<Value = String> {
        let text = || any::<String>().prop_map(|text| Value::from(text).to_string());
        let leaf = prop_oneof![
            text(),
            any::<i64>().prop_map(|number| number.to_string()),
            "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?",
            any::<f64>().prop_map(|number| Value::from(number).to_string()),
            Just("true".to_owned()),
            Just("null".to_owned()),
        ];
        leaf.prop_recursive(depth, 64, 6, move |inner| {
            let member = (
                prop_oneof![Just("\"a\"".to_owned()), Just("\"b\"".to_owned()), text()],
                inner.clone(),
            );
            let member = member.prop_map(|(name, value)| format!("{name}: {value}"));
            prop_oneof![
                prop::collection::vec(inner, 0..6)
                    .prop_map(|items| format!("[{}]", items.join(", "))),
                prop::collection::vec(member, 0..6)
                    .prop_map(|members| format!("{{{}}}", members.join(","))),
            ]
        })
    }
}

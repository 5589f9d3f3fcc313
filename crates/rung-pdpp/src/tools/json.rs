//! What a provider said, as it is read: texts are borrowed from the bytes that came, wherever they stand there as they are meant,
//! and members are a plain list in their order.
//!
//! Owns: reading, finding and writing again. Refuses to know: what any of it means. Its law: of the same bytes it makes what
//! `serde_json::Value` makes of them, and writes the same.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;
use std::ops::{Deref, Index};

use rung_ladder::{json_string_bytes, push_json_string};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::{Number, Value};

/// A JSON value.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Json<'a> {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    String(Text<'a>),
    Array(Vec<Json<'a>>),
    Object(Members<'a>),
}

/// The members of an object.
#[derive(Debug, Clone, Default)]
pub(super) struct Members<'a>(Vec<(Text<'a>, Json<'a>)>);

/// A text, and what it takes as JSON: that is asked of a text more often than it is read.
#[derive(Debug, Clone)]
pub(super) struct Text<'a> {
    text: Cow<'a, str>,
    json_bytes: usize,
}

impl<'a> Text<'a> {
    /// A text that stands in JSON as it is.
    fn as_it_stands(text: &'a str) -> Self {
        Self {
            json_bytes: text.len() + "\"\"".len(),
            text: text.into(),
        }
    }

    /// Bytes that it takes, quotes included.
    pub(super) fn json_bytes(&self) -> usize {
        self.json_bytes
    }

    fn write(&self, out: &mut String) {
        if self.json_bytes == self.len() + "\"\"".len() {
            out.push('"');
            out.push_str(self);
            out.push('"');
        } else {
            push_json_string(out, self);
        }
    }
}

impl<'a, T: Into<Cow<'a, str>>> From<T> for Text<'a> {
    fn from(text: T) -> Self {
        let text = text.into();
        Self {
            json_bytes: json_string_bytes(&text),
            text,
        }
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// What is not there.
static NULL: Json<'static> = Json::Null;

/// Members whose names are compared one with another; of more they are sorted.
const FEW_MEMBERS: usize = 24;

impl<'a> Json<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        self.as_object()?.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Self> {
        self.as_object_mut()?.get_mut(name)
    }

    /// What stands at a place: the names on the way there, each after a slash.
    pub(super) fn at(&self, place: &str) -> Option<&Self> {
        let mut names = place.split('/').skip(1);
        names.try_fold(self, |value, name| value.get(name))
    }

    pub(super) fn at_mut(&mut self, place: &str) -> Option<&mut Self> {
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

    pub(super) fn as_object(&self) -> Option<&Members<'a>> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    pub(super) fn as_object_mut(&mut self) -> Option<&mut Members<'a>> {
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

    /// Bytes that it takes, reckoned and not written.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Null => "null".len(),
            Self::Bool(value) => if *value { "true" } else { "false" }.len(),
            Self::Number(number) => number_bytes(number),
            Self::String(text) => text.json_bytes,
            Self::Array(items) => {
                let commas = items.len().saturating_sub(1);
                "[]".len() + commas + items.iter().map(Self::bytes).sum::<usize>()
            }
            Self::Object(members) => {
                let commas = members.len().saturating_sub(1);
                let each = |(name, value): &(Text<'_>, Self)| name.json_bytes + 1 + value.bytes();
                "{}".len() + commas + members.0.iter().map(each).sum::<usize>()
            }
        }
    }

    /// It, as JSON.
    pub(super) fn written(&self) -> String {
        let mut out = String::with_capacity(self.bytes());
        self.write(&mut out);
        out
    }

    /// Writes it behind what is there.
    pub(super) fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(number) => {
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

    /// Whether it takes more bytes than this, found out without looking at all of it.
    pub(super) fn is_larger(&self, max_bytes: usize) -> bool {
        self.bytes_left(max_bytes).is_none()
    }

    /// What is left of some bytes beside it; `None` where it takes more.
    fn bytes_left(&self, bytes: usize) -> Option<usize> {
        match self {
            Self::Array(items) => {
                let around = "[]".len() + items.len().saturating_sub(1);
                let left = bytes.checked_sub(around)?;
                items
                    .iter()
                    .try_fold(left, |left, item| item.bytes_left(left))
            }
            Self::Object(members) => {
                let around = "{}".len() + members.len().saturating_sub(1);
                let left = bytes.checked_sub(around)?;
                members.0.iter().try_fold(left, |left, (name, value)| {
                    let left = left.checked_sub(name.json_bytes + 1)?;
                    value.bytes_left(left)
                })
            }
            other => bytes.checked_sub(other.bytes()),
        }
    }

    /// The same for whoever knows no other form.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(number) => Value::Number(number.clone()),
            Self::String(text) => Value::String((**text).to_owned()),
            Self::Array(items) => items.iter().map(Self::to_value).collect(),
            Self::Object(members) => {
                let each = |(name, value): (&str, &Self)| (name.to_owned(), value.to_value());
                Value::Object(members.iter().map(each).collect())
            }
        }
    }
}

fn number_bytes(number: &Number) -> usize {
    match number.as_u64() {
        Some(whole) => whole.checked_ilog10().unwrap_or(0) as usize + 1,
        None => number.to_string().len(),
    }
}

impl<'a> Members<'a> {
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

    /// Puts a member where one of this name stands, or at the end.
    pub(super) fn insert(&mut self, name: impl Into<Text<'a>>, value: impl Into<Json<'a>>) {
        let (name, value) = (name.into(), value.into());
        match self.get_mut(&name) {
            Some(own) => *own = value,
            None => self.0.push((name, value)),
        }
    }

    /// Takes a member out; the others stay in their order.
    pub(super) fn remove(&mut self, name: &str) -> Option<Json<'a>> {
        let at = self.position(name)?;
        Some(self.0.remove(at).1)
    }

    /// Keeps the members that are wanted.
    pub(super) fn retain(&mut self, mut wanted: impl FnMut(&str) -> bool) {
        self.0.retain(|(name, _)| wanted(name));
    }

    /// Of members of one name the first place counts, and the last value.
    fn settle(&mut self) {
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
        order.sort_by(|one, other| members[*one].0.text.cmp(&members[*other].0.text));
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

impl PartialEq for Members<'_> {
    fn eq(&self, other: &Self) -> bool {
        let same = |(name, value): (&str, &Json<'_>)| other.get(name) == Some(value);
        self.len() == other.len() && self.iter().all(same)
    }
}

impl<'a> FromIterator<(Text<'a>, Json<'a>)> for Members<'a> {
    fn from_iter<T: IntoIterator<Item = (Text<'a>, Json<'a>)>>(members: T) -> Self {
        let mut all = Self(members.into_iter().collect());
        all.settle();
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
            Value::Number(number) => Self::Number(number.clone()),
            Value::String(text) => Self::String(text.as_str().into()),
            Value::Array(items) => Self::Array(items.iter().map(Self::from).collect()),
            Value::Object(members) => {
                let each =
                    |(name, value): (&'a String, &'a Value)| (name.as_str().into(), value.into());
                Self::Object(Members(members.iter().map(each).collect()))
            }
        }
    }
}

impl From<Value> for Json<'_> {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Number(number) => Self::Number(number),
            Value::String(text) => Self::String(text.into()),
            Value::Array(items) => Self::Array(items.into_iter().map(Self::from).collect()),
            Value::Object(members) => {
                let each = |(name, value): (String, Value)| (name.into(), value.into());
                Self::Object(Members(members.into_iter().map(each).collect()))
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
        Self::Number(number.into())
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

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Json<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader(std::marker::PhantomData))
    }
}

struct Reader<'a>(std::marker::PhantomData<Json<'a>>);

impl<'de: 'a, 'a> Visitor<'de> for Reader<'a> {
    type Value = Json<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json<'a>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'a>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json<'a>, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json<'a>, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Json<'a>, E> {
        Ok(Number::from_f64(number).map_or(Json::Null, Json::Number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'a>, E> {
        Ok(Json::String(Text::as_it_stands(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json<'a>, E> {
        Ok(Json::String(text.to_owned().into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json<'a>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json<'a>, A::Error> {
        let mut members = Members::default();
        while let Some((Name(name), value)) = map.next_entry()? {
            if members.is_empty() {
                // As many as most have, so that they are not moved.
                members.0.reserve(8);
            }
            members.0.push((name, value));
        }
        members.settle();
        Ok(Json::Object(members))
    }
}

/// The name of a member.
struct Name<'a>(Text<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<'a>(std::marker::PhantomData<Name<'a>>);
        impl<'de: 'a, 'a> Visitor<'de> for Reader<'a> {
            type Value = Name<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'a>, E> {
                Ok(Name(Text::as_it_stands(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Name<'a>, E> {
                Ok(Name(name.to_owned().into()))
            }
        }
        deserializer.deserialize_str(Reader(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// It is what `serde_json::Value` is, or the same refusal.
    fn is_the_same(text: &str) {
        let own: Result<Json<'_>, _> = serde_json::from_slice(text.as_bytes());
        let other: Result<Value, _> = serde_json::from_slice(text.as_bytes());
        match (own, other) {
            (Ok(own), Ok(other)) => {
                let written = other.to_string();
                assert_eq!(own.written(), written, "{text}");
                assert_eq!(serde_json::to_string(&own).unwrap(), written, "{text}");
                assert_eq!(own.bytes(), written.len(), "{text}");
                assert!(!own.is_larger(written.len()), "{text}");
                assert!(own.is_larger(written.len() - 1), "{text}");
                assert_eq!(own.to_value(), other, "{text}");
                assert_eq!(Json::from(&other), own, "{text}");
                assert_eq!(Json::from(other), own, "{text}");
            }
            (own, other) => {
                let told = own.map(|_| ()).map_err(|error| error.to_string());
                let known = other.map(|_| ()).map_err(|error| error.to_string());
                assert_eq!(told, known, "{text}");
            }
        }
    }

    #[test]
    fn what_is_odd_is_as_it_is_elsewhere() {
        let many: Vec<String> = (0..60).map(|n| format!("\"n{}\":{n}", n % 40)).collect();
        let deep = format!("{}{}", "[".repeat(130), "]".repeat(130));
        for text in [
            "",
            "nul",
            "[1,]",
            "{\"a\":1,}",
            "{\"a\":1}x",
            "\"\u{1}\"",
            r#""\ud83e""#,
            "1e999",
            r#"{"b":1,"a":2,"b":[3],"c":null,"a":{"a":1}}"#,
            r#"{"\u0061":"\u00fc\/\ud83e\udd80","a":"\"\\\n\t\b\f\u0000"}"#,
            "[0,-0,1.0,1e3,-1.5e-7,18446744073709551615,18446744073709551616,-9223372036854775808]",
            &format!("{{{}}}", many.join(",")),
            &deep,
        ] {
            is_the_same(text);
        }
    }

    proptest! {
        #[test]
        fn read_and_written_it_is_what_it_is_elsewhere(text in json(4)) {
            is_the_same(&text);
        }

        #[test]
        fn broken_it_is_refused_as_elsewhere(text in json(3), cut in any::<prop::sample::Index>()) {
            let at = text.floor_char_boundary(cut.index(text.len() + 1));
            is_the_same(&text[..at]);
        }
    }

    /// JSON with names that repeat, and texts that are escaped.
    fn json(depth: u32) -> impl Strategy<Value = String> {
        let text = || any::<String>().prop_map(|text| Value::from(text).to_string());
        let leaf = prop_oneof![
            text(),
            any::<i64>().prop_map(|number| number.to_string()),
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

//! Schemas of a few common keywords, checked without a validator.
//!
//! Owns: the few keywords that nearly every tool's input uses. Refuses to know: everything else; a schema with an unknown
//! keyword, or with a known one in an unusual form, is left to the validator. The law it keeps: it accepts exactly what the
//! validator accepts. It gives no reasons; the validator does, and is built only for the first rejection.

use serde_json::{Number, Value};

/// Levels of nesting in a schema, at most.
const MAX_DEPTH: usize = 16;
/// Properties of an object, at most: they are searched linearly.
const MAX_PROPERTIES: usize = 64;
/// Bounds up to this one are exact both as integers and as floats.
const MAX_BOUND: i64 = 1 << 53;

/// A schema that has only plain keywords.
#[derive(Debug, Default)]
pub(super) struct PlainSchema {
    types: Option<Vec<JsonType>>,
    choices: Option<Vec<String>>,
    min_length: u64,
    minimum: Option<i64>,
    maximum: Option<i64>,
    properties: Vec<(String, PlainSchema)>,
    required: Vec<String>,
    /// The schema of members that are not in `properties`.
    additional: AdditionalProperties,
    items: Option<Box<PlainSchema>>,
}

#[derive(Debug, Default)]
enum AdditionalProperties {
    #[default]
    Anything,
    Nothing,
    Only(Box<PlainSchema>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonType {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

impl PlainSchema {
    /// Parses a schema; `None` if it has anything but plain keywords.
    pub(super) fn parse(schema: &Value) -> Option<Self> {
        Self::parse_within_depth(schema, MAX_DEPTH)
    }

    fn parse_within_depth(schema: &Value, depth: usize) -> Option<Self> {
        let depth = depth.checked_sub(1)?;
        let mut plain = Self::default();
        for (keyword, said) in schema.as_object()? {
            match keyword.as_str() {
                "description" | "title" if said.is_string() => {}
                "type" => plain.types = Some(parse_types(said)?),
                "enum" => plain.choices = Some(parse_strings(said)?),
                "minLength" => plain.min_length = said.as_u64()?,
                "minimum" => plain.minimum = Some(parse_bound(said)?),
                "maximum" => plain.maximum = Some(parse_bound(said)?),
                "required" => plain.required = parse_strings(said)?,
                "items" => plain.items = Some(Box::new(Self::parse_within_depth(said, depth)?)),
                "properties" => {
                    let said = said
                        .as_object()
                        .filter(|said| said.len() <= MAX_PROPERTIES)?;
                    let each = said.iter();
                    let each = each.map(|(name, own)| {
                        let own = Self::parse_within_depth(own, depth)?;
                        Some((name.clone(), own))
                    });
                    plain.properties = each.collect::<Option<_>>()?;
                }
                "additionalProperties" => {
                    plain.additional = match said {
                        Value::Bool(true) => AdditionalProperties::Anything,
                        Value::Bool(false) => AdditionalProperties::Nothing,
                        said => AdditionalProperties::Only(Box::new(Self::parse_within_depth(
                            said, depth,
                        )?)),
                    };
                }
                _ => return None,
            }
        }
        Some(plain)
    }

    pub(super) fn accepts(&self, value: &Value) -> bool {
        let of_a_kind = |kinds: &Vec<JsonType>| kinds.iter().any(|kind| kind.matches(value));
        if !self.types.as_ref().is_none_or(of_a_kind) {
            return false;
        }
        let chosen = |choices: &Vec<String>| choices.iter().any(|choice| value == choice);
        if !self.choices.as_ref().is_none_or(chosen) {
            return false;
        }
        match value {
            Value::Null | Value::Bool(_) => true,
            Value::Number(number) => {
                self.minimum.is_none_or(|least| is_at_least(least, number))
                    && self.maximum.is_none_or(|most| is_at_most(most, number))
            }
            Value::String(text) => {
                self.min_length == 0 || text.chars().count() as u64 >= self.min_length
            }
            Value::Array(items) => {
                let sound = |own: &Self| items.iter().all(|item| own.accepts(item));
                self.items.as_deref().is_none_or(sound)
            }
            Value::Object(members) => {
                let sound = |(name, member): (&String, &Value)| {
                    let known = self.properties.iter().find(|(known, _)| known == name);
                    match (known, &self.additional) {
                        (Some((_, own)), _) => own.accepts(member),
                        (None, AdditionalProperties::Anything) => true,
                        (None, AdditionalProperties::Nothing) => false,
                        (None, AdditionalProperties::Only(own)) => own.accepts(member),
                    }
                };
                self.required.iter().all(|name| members.contains_key(name))
                    && members.iter().all(sound)
            }
        }
    }
}

impl JsonType {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::Null,
            "boolean" => Self::Boolean,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "string" => Self::String,
            "array" => Self::Array,
            "object" => Self::Object,
            _ => return None,
        })
    }

    fn matches(self, value: &Value) -> bool {
        match value {
            Value::Null => self == Self::Null,
            Value::Bool(_) => self == Self::Boolean,
            Value::Number(number) => {
                // `1.0` is an integer, too.
                let whole = || number.as_f64().is_some_and(|float| float.fract() == 0.0);
                self == Self::Number || self == Self::Integer && (!number.is_f64() || whole())
            }
            Value::String(_) => self == Self::String,
            Value::Array(_) => self == Self::Array,
            Value::Object(_) => self == Self::Object,
        }
    }
}

fn parse_types(said: &Value) -> Option<Vec<JsonType>> {
    match said {
        Value::String(name) => Some(vec![JsonType::from_name(name)?]),
        said => parse_strings(said)?
            .iter()
            .map(|name| JsonType::from_name(name))
            .collect(),
    }
}

/// Parses a non-empty list of distinct strings.
fn parse_strings(said: &Value) -> Option<Vec<String>> {
    let mut texts: Vec<String> = Vec::new();
    for one in said.as_array()? {
        let text = one.as_str()?;
        if texts.iter().any(|known| known == text) {
            return None;
        }
        texts.push(text.to_owned());
    }
    (!texts.is_empty()).then_some(texts)
}

fn parse_bound(said: &Value) -> Option<i64> {
    let bound = said.as_i64()?;
    (bound.unsigned_abs() <= MAX_BOUND.unsigned_abs()).then_some(bound)
}

/// Returns true if `number` is at least `least`.
fn is_at_least(least: i64, number: &Number) -> bool {
    match number.as_i128() {
        Some(whole) => whole >= i128::from(least),
        None => number
            .as_f64()
            .is_some_and(|float| float >= as_float(least)),
    }
}

/// Returns true if `number` is at most `most`.
fn is_at_most(most: i64, number: &Number) -> bool {
    match number.as_i128() {
        Some(whole) => whole <= i128::from(most),
        None => number.as_f64().is_some_and(|float| float <= as_float(most)),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bounds are no larger than what a float holds"
)]
fn as_float(bound: i64) -> f64 {
    bound as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// A schema like those of tool inputs.
    fn schema() -> Value {
        let bound = json!({"type": ["string", "number"]});
        json!({
            "type": "object",
            "properties": {
                "a": {"type": "string", "minLength": 2, "description": "a text"},
                "b": {"type": "integer", "minimum": 1, "maximum": 100},
                "c": {"enum": ["none", "exact"]},
                "d": {"type": "array", "items": {"type": "string", "minLength": 1}},
                "e": {
                    "type": "object",
                    "additionalProperties": {
                        "type": ["string", "number", "boolean", "object"],
                        "properties": {"gte": bound, "lt": bound},
                        "additionalProperties": false,
                    },
                },
                "f": {"type": ["null", "boolean"]},
                "g": {"minimum": -3},
            },
            "required": ["a"],
            "additionalProperties": false,
        })
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            prop_oneof![-5..105_i64, any::<i64>()].prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            prop_oneof![-5.0..105.0, (-5..105_i32).prop_map(f64::from), any::<f64>()]
                .prop_map(Value::from),
            prop_oneof!["none|exact|other", "[a\u{1F980}]{0,3}"].prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let name = prop_oneof!["[a-h]", "gte|lt|odd"];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(name, inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// Arguments that are mostly valid.
    fn arguments() -> impl Strategy<Value = Value> {
        let own = prop::collection::btree_map("[a-h]", value(), 0..4);
        let sound = json!({"a": "aa", "b": 3, "c": "none", "d": ["x"], "e": {"x": {"gte": 1}}, "f": null, "g": 0.5});
        own.prop_map(move |own| {
            let mut all = sound.clone();
            for (name, member) in own {
                all[name.as_str()] = member;
            }
            all
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_accepts_what_the_validator_accepts(value in prop_oneof![arguments(), value()]) {
            let schema = schema();
            let plain = PlainSchema::parse(&schema).unwrap();
            let validator = super::super::build_validator(&schema).unwrap();
            prop_assert_eq!(plain.accepts(&value), validator.is_valid(&value), "{}", value);
            for part in schema["properties"].as_object().unwrap().values() {
                let plain = PlainSchema::parse(part).unwrap();
                let validator = super::super::build_validator(part).unwrap();
                prop_assert_eq!(plain.accepts(&value), validator.is_valid(&value), "{}: {}", part, value);
            }
        }
    }

    #[test]
    fn what_is_unusual_is_left_to_the_validator() {
        for schema in [
            json!(true),
            json!({"$ref": "#"}),
            json!({"type": "text"}),
            json!({"type": []}),
            json!({"type": ["string", "string"]}),
            json!({"enum": ["a", 1]}),
            json!({"enum": []}),
            json!({"minLength": -1}),
            json!({"minLength": 1.5}),
            json!({"minimum": 0.5}),
            json!({"maximum": 1_u64 << 60}),
            json!({"required": "a"}),
            json!({"description": 1}),
            json!({"items": [{}]}),
            json!({"pattern": "a"}),
            json!({"properties": {"a": {"format": "date"}}}),
            json!({"additionalProperties": {"not": {}}}),
        ] {
            assert!(PlainSchema::parse(&schema).is_none(), "{schema}");
        }
    }
}

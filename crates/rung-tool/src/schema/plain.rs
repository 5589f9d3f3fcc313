//! Schemas that say nothing unusual, judged without a validator.
//!
//! Owns: the few keywords that nearly every tool's input is made of. Refuses to know: everything else; a schema with one keyword
//! that is not known here, or known and oddly written, is left to the validator whole. Its law: it accepts what the
//! validator accepts. It says yes or no; why not is the validator's to say, which nobody makes before somebody is refused.

use serde_json::{Number, Value};

/// Levels of a schema that are looked at.
const MAX_DEPTH: usize = 16;
/// Properties that are looked through for a name.
const MAX_PROPERTIES: usize = 64;
/// Bounds up to here are the same as whole numbers and as floats.
const MAX_BOUND: i64 = 1 << 53;

/// A schema of plain keywords alone.
#[derive(Debug, Default)]
pub(super) struct Plain {
    kinds: Option<Vec<Kind>>,
    choices: Option<Vec<String>>,
    min_length: u64,
    minimum: Option<i64>,
    maximum: Option<i64>,
    properties: Vec<(String, Plain)>,
    required: Vec<String>,
    /// What members have to be that are not among the properties.
    others: Others,
    items: Option<Box<Plain>>,
}

#[derive(Debug, Default)]
enum Others {
    #[default]
    Anything,
    Nothing,
    Only(Box<Plain>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

impl Plain {
    /// The schema, if nothing in it is unusual.
    pub(super) fn of(schema: &Value) -> Option<Self> {
        Self::within(schema, MAX_DEPTH)
    }

    fn within(schema: &Value, depth: usize) -> Option<Self> {
        let depth = depth.checked_sub(1)?;
        let mut plain = Self::default();
        for (keyword, said) in schema.as_object()? {
            match keyword.as_str() {
                "description" | "title" if said.is_string() => {}
                "type" => plain.kinds = Some(kinds(said)?),
                "enum" => plain.choices = Some(texts(said)?),
                "minLength" => plain.min_length = said.as_u64()?,
                "minimum" => plain.minimum = Some(bound(said)?),
                "maximum" => plain.maximum = Some(bound(said)?),
                "required" => plain.required = texts(said)?,
                "items" => plain.items = Some(Box::new(Self::within(said, depth)?)),
                "properties" => {
                    let said = said
                        .as_object()
                        .filter(|said| said.len() <= MAX_PROPERTIES)?;
                    let each = said.iter();
                    let each = each.map(|(name, own)| {
                        let own = Self::within(own, depth)?;
                        Some((name.clone(), own))
                    });
                    plain.properties = each.collect::<Option<_>>()?;
                }
                "additionalProperties" => {
                    plain.others = match said {
                        Value::Bool(true) => Others::Anything,
                        Value::Bool(false) => Others::Nothing,
                        said => Others::Only(Box::new(Self::within(said, depth)?)),
                    };
                }
                _ => return None,
            }
        }
        Some(plain)
    }

    pub(super) fn accepts(&self, value: &Value) -> bool {
        let of_a_kind = |kinds: &Vec<Kind>| kinds.iter().any(|kind| kind.is_of(value));
        if !self.kinds.as_ref().is_none_or(of_a_kind) {
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
                    match (known, &self.others) {
                        (Some((_, own)), _) => own.accepts(member),
                        (None, Others::Anything) => true,
                        (None, Others::Nothing) => false,
                        (None, Others::Only(own)) => own.accepts(member),
                    }
                };
                self.required.iter().all(|name| members.contains_key(name))
                    && members.iter().all(sound)
            }
        }
    }
}

impl Kind {
    fn of(name: &str) -> Option<Self> {
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

    fn is_of(self, value: &Value) -> bool {
        match value {
            Value::Null => self == Self::Null,
            Value::Bool(_) => self == Self::Boolean,
            Value::Number(number) => {
                // A whole number is one however it is written.
                let whole = || number.as_f64().is_some_and(|float| float.fract() == 0.0);
                self == Self::Number || self == Self::Integer && (!number.is_f64() || whole())
            }
            Value::String(_) => self == Self::String,
            Value::Array(_) => self == Self::Array,
            Value::Object(_) => self == Self::Object,
        }
    }
}

fn kinds(said: &Value) -> Option<Vec<Kind>> {
    match said {
        Value::String(name) => Some(vec![Kind::of(name)?]),
        said => texts(said)?.iter().map(|name| Kind::of(name)).collect(),
    }
}

/// Texts of which there is one at least, and none twice.
fn texts(said: &Value) -> Option<Vec<String>> {
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

fn bound(said: &Value) -> Option<i64> {
    let bound = said.as_i64()?;
    (bound.unsigned_abs() <= MAX_BOUND.unsigned_abs()).then_some(bound)
}

/// Whether a number is no less than this.
fn is_at_least(least: i64, number: &Number) -> bool {
    match number.as_i128() {
        Some(whole) => whole >= i128::from(least),
        None => number
            .as_f64()
            .is_some_and(|float| float >= as_float(least)),
    }
}

/// Whether a number is no more than this.
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

    /// What the inputs of tools look like.
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

    /// Arguments of which most are as they should be.
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
            let plain = Plain::of(&schema).unwrap();
            let validator = super::super::validator(&schema).unwrap();
            prop_assert_eq!(plain.accepts(&value), validator.is_valid(&value), "{}", value);
            for part in schema["properties"].as_object().unwrap().values() {
                let plain = Plain::of(part).unwrap();
                let validator = super::super::validator(part).unwrap();
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
            assert!(Plain::of(&schema).is_none(), "{schema}");
        }
    }
}

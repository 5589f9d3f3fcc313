//! Conversion of values to the types of their attributes.

use std::sync::Arc;

use num_traits::ToPrimitive as _;
use rung_edn::{BigDecimal, Name, Value};

use crate::schema::{Attribute, Tuple, Type};
use crate::{Error, Result};

/// Converts a value to the type of the attribute.
pub(crate) fn coerce(attribute: &Attribute, value: Value) -> Result<Value> {
    let wrong = |value: &Value| {
        let kind = attribute.kind.map_or("", Type::name);
        Error::Transaction(format!(
            "attribute :{} takes values of type {kind}; {value} is a {}",
            attribute.name,
            value.kind()
        ))
    };
    let Some(kind) = attribute.kind else {
        return Ok(value);
    };
    if kind == Type::Idoc {
        return crate::document::parse_document(attribute, &value);
    }
    if kind != Type::Tuple {
        return to_type(kind, &value).ok_or_else(|| wrong(&value));
    }
    let items = value.as_sequence().ok_or_else(|| wrong(&value))?;
    let part = |kind: Type, item: &Value| match item {
        Value::Nil => Some(Value::Nil),
        item => to_type(kind, item),
    };
    let parts: Option<Vec<Value>> = match &attribute.tuple {
        Some(Tuple::Types(types)) if types.len() != items.len() => None,
        Some(Tuple::Types(types)) => {
            let parts = types.iter().zip(items);
            parts.map(|(kind, item)| part(*kind, item)).collect()
        }
        Some(Tuple::Homogeneous(kind)) => items.iter().map(|item| part(*kind, item)).collect(),
        Some(Tuple::Attributes(_)) | None => Some(items.to_vec()),
    };
    parts.map(Value::Vector).ok_or_else(|| wrong(&value))
}

/// Converts a value to a type. `None` if it cannot have that type.
pub(crate) fn to_type(kind: Type, value: &Value) -> Option<Value> {
    let text = value.as_str();
    match (kind, value) {
        (Type::String, Value::String(_))
        | (Type::Long | Type::Ref, Value::Long(_))
        | (Type::Double, Value::Double(_))
        | (Type::Float, Value::Float(_))
        | (Type::BigInt, Value::BigInt(_))
        | (Type::BigDec, Value::BigDec(_))
        | (Type::Boolean, Value::Bool(_))
        | (Type::Keyword, Value::Keyword(_))
        | (Type::Symbol, Value::Symbol(_))
        | (Type::Instant, Value::Instant(_))
        | (Type::Uuid, Value::Uuid(_))
        | (Type::Bytes, Value::Bytes(_)) => Some(value.clone()),
        (Type::Long, Value::Double(number)) => number.trunc().to_i64().map(Value::Long),
        (Type::Double, value) if value.is_number() => value.as_f64().map(Value::Double),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the nearest one is what is asked for"
        )]
        (Type::Float, value) if value.is_number() => {
            value.as_f64().map(|number| Value::Float(number as f32))
        }
        (Type::BigInt, Value::Long(number)) => Some(Value::BigInt(Arc::new((*number).into()))),
        (Type::BigDec, Value::Long(number)) => Some(Value::BigDec(Arc::new((*number).into()))),
        (Type::BigDec, Value::BigInt(number)) => Some(Value::BigDec(Arc::new(BigDecimal::from(
            (**number).clone(),
        )))),
        (Type::BigDec, Value::Double(number)) => {
            // Convert the shortest decimal digits of the number, not its exact binary value.
            let number: BigDecimal = number.to_string().parse().ok()?;
            Some(Value::BigDec(Arc::new(number)))
        }
        (Type::Vec, Value::Vector(items) | Value::List(items)) => {
            let numbers = items.iter().filter(|item| item.is_number());
            let numbers: Option<Vec<Value>> =
                numbers.map(|item| to_type(Type::Float, item)).collect();
            numbers
                .filter(|numbers| numbers.len() == items.len())
                .map(Value::Vector)
        }
        (Type::Instant, Value::Long(ms)) => Some(Value::Instant(*ms)),
        (Type::Boolean, Value::String(_)) => match text? {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            _ => None,
        },
        (Type::Keyword, Value::String(_)) => {
            let text = text?;
            let name = Name::new(text.strip_prefix(':').unwrap_or(text));
            name.is_readable().then_some(Value::Keyword(name))
        }
        (Type::Symbol, Value::String(_)) => {
            let name = Name::new(text?);
            name.is_readable().then_some(Value::Symbol(name))
        }
        (Type::Uuid, Value::String(_)) => rung_edn::read(&format!("#uuid {value}")).ok(),
        _ => None,
    }
}

/// Restores the type of a stored value where the bytes are ambiguous: a `BigInt` may be stored as a `Long`.
pub(crate) fn restore_type(attribute: &Attribute, value: Value) -> Value {
    match (attribute.kind, &value) {
        (Some(Type::BigInt), Value::Long(_)) => to_type(Type::BigInt, &value).unwrap_or(value),
        _ => value,
    }
}

//! Types of keys and values.

use std::sync::Arc;

use rung_edn::{BigDecimal, BigInt, Value};

use super::{clipped, into_text, invalid, keyword_list, keyword_text};
use crate::{Result, encode};

/// Bytes of a tuple's element, at most.
const MAX_ELEMENT_BYTES: usize = 255;

/// A type of keys or values. It restricts the accepted values, and does not change their encoding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ValueType {
    /// Any value.
    #[default]
    Data,
    /// A text. A keyword is accepted as its text.
    String,
    /// A 64-bit integer.
    Long,
    /// A 32-bit float. A 64-bit float is rounded; an integer must be exactly representable.
    Float,
    /// A 64-bit float. An integer must be exactly representable.
    Double,
    /// An integer of any size.
    BigInt,
    /// A decimal number. An integer is accepted, a float is not.
    BigDec,
    Bytes,
    Keyword,
    Symbol,
    Boolean,
    /// An instant, which may be given as milliseconds since 1970.
    Instant,
    Uuid,
    /// A vector with an element for each of the types, or with any number of elements of a single type.
    Tuple(Vec<ValueType>),
}

const SCALARS: [(&str, ValueType); 13] = [
    ("data", ValueType::Data),
    ("string", ValueType::String),
    ("long", ValueType::Long),
    ("float", ValueType::Float),
    ("double", ValueType::Double),
    ("bigint", ValueType::BigInt),
    ("bigdec", ValueType::BigDec),
    ("bytes", ValueType::Bytes),
    ("keyword", ValueType::Keyword),
    ("symbol", ValueType::Symbol),
    ("boolean", ValueType::Boolean),
    ("instant", ValueType::Instant),
    ("uuid", ValueType::Uuid),
];

impl ValueType {
    /// Parses a type: `:long`, `"long"`, `":long"`, or a vector of such.
    pub fn parse(value: &Value) -> Result<Self> {
        match value.as_sequence() {
            None => Self::scalar(value),
            Some([]) => invalid("a tuple needs at least one type, such as [:string :long]"),
            Some(types) => types
                .iter()
                .map(Self::scalar)
                .collect::<Result<_>>()
                .map(Self::Tuple),
        }
    }

    fn scalar(value: &Value) -> Result<Self> {
        let named =
            keyword_text(value).and_then(|word| SCALARS.iter().find(|(name, _)| *name == word));
        match named {
            Some((_, scalar)) => Ok(scalar.clone()),
            None => invalid(format!(
                "{} is not a type; the types are {}, and vectors of these",
                clipped(value),
                keyword_list(SCALARS.iter().map(|(name, _)| *name))
            )),
        }
    }

    /// Converts a value to this type, or says why it cannot.
    pub fn convert(&self, value: Value) -> Result<Value> {
        let fitted = match self {
            Self::Data => Ok(value),
            Self::String => into_text(value),
            Self::Long => long(value),
            Self::Float => float(value),
            Self::Double => double(value),
            Self::BigInt => accept_if(value, |value| {
                matches!(value, Value::Long(_) | Value::BigInt(_))
            }),
            Self::BigDec => decimal(value),
            Self::Bytes => accept_if(value, |value| matches!(value, Value::Bytes(_))),
            Self::Keyword => accept_if(value, |value| matches!(value, Value::Keyword(_))),
            Self::Symbol => accept_if(value, |value| matches!(value, Value::Symbol(_))),
            Self::Boolean => accept_if(value, |value| matches!(value, Value::Bool(_))),
            Self::Instant => match value {
                Value::Instant(ms) | Value::Long(ms) => Ok(Value::Instant(ms)),
                other => Err(other),
            },
            Self::Uuid => accept_if(value, |value| matches!(value, Value::Uuid(_))),
            Self::Tuple(types) => return tuple(types, value),
        };
        fitted.or_else(|value| {
            let name = SCALARS
                .iter()
                .find(|(_, scalar)| scalar == self)
                .map_or("", |(name, _)| name);
            invalid(format!(
                "{} is a {} and cannot be stored as :{name}",
                clipped(&value),
                value.kind()
            ))
        })
    }
}

fn accept_if(value: Value, is_one: impl Fn(&Value) -> bool) -> Result<Value, Value> {
    if is_one(&value) {
        Ok(value)
    } else {
        Err(value)
    }
}

fn long(value: Value) -> Result<Value, Value> {
    match &value {
        Value::BigInt(number) => match i64::try_from(&**number) {
            Ok(number) => Ok(Value::Long(number)),
            Err(_) => Err(value),
        },
        Value::Long(_) => Ok(value),
        _ => Err(value),
    }
}

/// Fails for a finite number that rounds to infinity.
fn float(value: Value) -> Result<Value, Value> {
    #[expect(clippy::cast_possible_truncation, reason = "the nearest one is wanted")]
    let narrowed = match &value {
        Value::Float(number) => Some(Value::Float(*number)),
        Value::Double(number) => Some(*number as f32)
            .filter(|narrow| narrow.is_finite() == number.is_finite())
            .map(Value::Float),
        _ => whole(&value, |number| Value::Float(number as f32)),
    };
    narrowed.ok_or(value)
}

fn double(value: Value) -> Result<Value, Value> {
    let widened = match &value {
        Value::Double(number) => Some(Value::Double(*number)),
        Value::Float(number) => Some(Value::Double(f64::from(*number))),
        _ => whole(&value, Value::Double),
    };
    widened.ok_or(value)
}

/// Converts an integer to a float, if it is exactly representable.
fn whole(value: &Value, fraction: impl Fn(f64) -> Value) -> Option<Value> {
    let number = match value {
        Value::Long(_) | Value::BigInt(_) => fraction(value.as_f64()?),
        _ => return None,
    };
    (number.as_exact() == value.as_exact()).then_some(number)
}

fn decimal(value: Value) -> Result<Value, Value> {
    let digits = match value {
        Value::BigDec(_) => return Ok(value),
        Value::Long(number) => BigInt::from(number),
        Value::BigInt(number) => (*number).clone(),
        other => return Err(other),
    };
    Ok(Value::BigDec(Arc::new(BigDecimal::new(digits, 0))))
}

fn tuple(types: &[ValueType], value: Value) -> Result<Value> {
    let elements = match value {
        Value::Vector(elements) | Value::List(elements) => elements,
        other => {
            return invalid(format!(
                "{} is a {}; a tuple must be a vector",
                clipped(&other),
                other.kind()
            ));
        }
    };
    if types.len() > 1 && types.len() != elements.len() {
        let (given, wanted) = (elements.len(), types.len());
        return invalid(format!(
            "the tuple has {given} elements; its type has {wanted}"
        ));
    }
    let types = types.iter().cycle();
    let fitted = elements.into_iter().zip(types).map(|(element, of)| {
        let element = of.convert(element)?;
        // Without the byte of the kind.
        let length_bytes = encode::encode(&element).len() - 1;
        if length_bytes > MAX_ELEMENT_BYTES {
            return invalid(format!(
                "an element of a tuple has {length_bytes} bytes; the maximum is {MAX_ELEMENT_BYTES}"
            ));
        }
        Ok(element)
    });
    Ok(Value::Vector(fitted.collect::<Result<_>>()?))
}

//! What a key or a value may be.

use std::sync::Arc;

use rung_edn::{BigDecimal, BigInt, Value};

use super::{invalid, listed, shown, text, word};
use crate::{Result, encode};

/// Bytes of a tuple's element, at most.
const MAX_ELEMENT_BYTES: usize = 255;

/// A type of keys or values. It says what is taken, and changes no encoding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Type {
    /// Whatever there is.
    #[default]
    Data,
    /// A text. A keyword is the text that it is written as.
    String,
    /// A whole number of 64 bits.
    Long,
    /// A binary fraction of 32 bits: one of 64 bits is rounded, a whole number has to be exactly one.
    Float,
    /// A binary fraction of 64 bits: a whole number has to be exactly one.
    Double,
    /// A whole number.
    BigInt,
    /// A decimal number. A whole number is one, a binary fraction is not.
    BigDec,
    /// Bytes.
    Bytes,
    /// A keyword.
    Keyword,
    /// A symbol.
    Symbol,
    /// Whether.
    Boolean,
    /// A moment, which may be given as milliseconds since 1970.
    Instant,
    /// An identifier.
    Uuid,
    /// A vector with an element for each of the types, or with any number of elements of a single one.
    Tuple(Vec<Type>),
}

const SCALARS: [(&str, Type); 13] = [
    ("data", Type::Data),
    ("string", Type::String),
    ("long", Type::Long),
    ("float", Type::Float),
    ("double", Type::Double),
    ("bigint", Type::BigInt),
    ("bigdec", Type::BigDec),
    ("bytes", Type::Bytes),
    ("keyword", Type::Keyword),
    ("symbol", Type::Symbol),
    ("boolean", Type::Boolean),
    ("instant", Type::Instant),
    ("uuid", Type::Uuid),
];

impl Type {
    /// The type that is written so: `:long`, `"long"`, `":long"`, or a vector of such.
    pub fn read(value: &Value) -> Result<Self> {
        match value.as_sequence() {
            None => Self::scalar(value),
            Some([]) => invalid("a tuple has at least one type, as [:string :long]"),
            Some(types) => types
                .iter()
                .map(Self::scalar)
                .collect::<Result<_>>()
                .map(Self::Tuple),
        }
    }

    fn scalar(value: &Value) -> Result<Self> {
        let named = word(value).and_then(|word| SCALARS.iter().find(|(name, _)| *name == word));
        match named {
            Some((_, scalar)) => Ok(scalar.clone()),
            None => invalid(format!(
                "{} is no type; the types are {}, and vectors of these",
                shown(value),
                listed(SCALARS.iter().map(|(name, _)| *name))
            )),
        }
    }

    /// The value as one of this type, or why it is none.
    pub fn fit(&self, value: Value) -> Result<Value> {
        let fitted = match self {
            Self::Data => Ok(value),
            Self::String => text(value),
            Self::Long => long(value),
            Self::Float => float(value),
            Self::Double => double(value),
            Self::BigInt => only(value, |value| {
                matches!(value, Value::Long(_) | Value::BigInt(_))
            }),
            Self::BigDec => decimal(value),
            Self::Bytes => only(value, |value| matches!(value, Value::Bytes(_))),
            Self::Keyword => only(value, |value| matches!(value, Value::Keyword(_))),
            Self::Symbol => only(value, |value| matches!(value, Value::Symbol(_))),
            Self::Boolean => only(value, |value| matches!(value, Value::Bool(_))),
            Self::Instant => match value {
                Value::Instant(ms) | Value::Long(ms) => Ok(Value::Instant(ms)),
                other => Err(other),
            },
            Self::Uuid => only(value, |value| matches!(value, Value::Uuid(_))),
            Self::Tuple(types) => return tuple(types, value),
        };
        fitted.or_else(|value| {
            let name = SCALARS
                .iter()
                .find(|(_, scalar)| scalar == self)
                .map_or("", |(name, _)| name);
            invalid(format!(
                "{} is a {}, and cannot be taken as :{name}",
                shown(&value),
                value.kind()
            ))
        })
    }
}

fn only(value: Value, is_one: impl Fn(&Value) -> bool) -> Result<Value, Value> {
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

/// A fraction that rounds to an infinite one is none of 32 bits.
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

/// A whole number as a fraction, where there is one that is exactly as much.
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

fn tuple(types: &[Type], value: Value) -> Result<Value> {
    let elements = match value {
        Value::Vector(elements) | Value::List(elements) => elements,
        other => {
            return invalid(format!(
                "{} is a {}, and a tuple is a vector",
                shown(&other),
                other.kind()
            ));
        }
    };
    if types.len() > 1 && types.len() != elements.len() {
        let (given, wanted) = (elements.len(), types.len());
        return invalid(format!(
            "the tuple has {given} elements, and its type has {wanted}"
        ));
    }
    let types = types.iter().cycle();
    let fitted = elements.into_iter().zip(types).map(|(element, of)| {
        let element = of.fit(element)?;
        // But for the byte that says of which kind it is.
        let length_bytes = encode::encode(&element).len() - 1;
        if length_bytes > MAX_ELEMENT_BYTES {
            return invalid(format!(
                "an element of a tuple has {length_bytes} bytes, and may have {MAX_ELEMENT_BYTES}; shorten it"
            ));
        }
        Ok(element)
    });
    Ok(Value::Vector(fitted.collect::<Result<_>>()?))
}

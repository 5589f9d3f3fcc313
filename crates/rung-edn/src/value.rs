//! EDN values.

use std::sync::Arc;

use bigdecimal::BigDecimal;
use indexmap::{IndexMap, IndexSet};
use num_bigint::BigInt;
use num_rational::BigRational;

use crate::Name;

/// A map, in insertion order.
pub type Map = IndexMap<Value, Value>;
/// A set, in insertion order.
pub type Set = IndexSet<Value>;

/// An EDN value.
#[derive(Debug, Clone)]
pub enum Value {
    Nil,
    Bool(bool),
    /// A 64-bit integer.
    Long(i64),
    /// An integer of any length.
    BigInt(Arc<BigInt>),
    /// A ratio that is not an integer.
    Ratio(Arc<BigRational>),
    /// A decimal number of any length.
    BigDec(Arc<BigDecimal>),
    Float(f32),
    Double(f64),
    /// A code point.
    Char(char),
    String(Arc<str>),
    /// `:name`.
    Keyword(Name),
    /// `name`.
    Symbol(Name),
    /// An instant, in milliseconds since 1970.
    Instant(i64),
    /// A universally unique identifier.
    Uuid(u128),
    Bytes(Arc<[u8]>),
    /// `[…]`.
    Vector(Vec<Value>),
    /// `(…)`.
    List(Vec<Value>),
    /// `{…}`.
    Map(Map),
    /// `#{…}`.
    Set(Set),
    /// A value with an unknown tag.
    Tagged(Name, Box<Value>),
}

impl Value {
    /// Creates a keyword.
    pub fn keyword(name: &str) -> Self {
        Self::Keyword(name.into())
    }

    /// Creates a symbol.
    pub fn symbol(name: &str) -> Self {
        Self::Symbol(name.into())
    }

    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(text.into())
    }

    /// Creates an integer: a `Long` if it fits 64 bits, else a `BigInt`.
    pub fn integer(number: BigInt) -> Self {
        match i64::try_from(&number) {
            Ok(number) => Self::Long(number),
            Err(_) => Self::BigInt(Arc::new(number)),
        }
    }

    /// Returns the text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the integer of a `Long`.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Long(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the name of a keyword.
    pub fn as_keyword(&self) -> Option<&Name> {
        match self {
            Self::Keyword(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the name of a symbol.
    pub fn as_symbol(&self) -> Option<&Name> {
        match self {
            Self::Symbol(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the items of a vector or a list.
    pub fn as_sequence(&self) -> Option<&[Value]> {
        match self {
            Self::Vector(items) | Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the members of a map.
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(members) => Some(members),
            _ => None,
        }
    }

    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }

    /// Returns true if the value is truthy: every value is, except nil and `false`.
    pub fn is_truthy(&self) -> bool {
        !matches!(self, Self::Nil | Self::Bool(false))
    }

    /// Returns the name of the value's kind, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Bool(_) => "boolean",
            Self::Long(_) => "long",
            Self::BigInt(_) => "bigint",
            Self::Ratio(_) => "ratio",
            Self::BigDec(_) => "bigdec",
            Self::Float(_) => "float",
            Self::Double(_) => "double",
            Self::Char(_) => "character",
            Self::String(_) => "string",
            Self::Keyword(_) => "keyword",
            Self::Symbol(_) => "symbol",
            Self::Instant(_) => "instant",
            Self::Uuid(_) => "uuid",
            Self::Bytes(_) => "bytes",
            Self::Vector(_) => "vector",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Set(_) => "set",
            Self::Tagged(..) => "tagged value",
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Long(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Double(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::text(value)
    }
}

impl From<Name> for Value {
    fn from(name: Name) -> Self {
        Self::Keyword(name)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Self::Vector(items)
    }
}

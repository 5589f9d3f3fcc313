//! What EDN denotes.

use std::sync::Arc;

use bigdecimal::BigDecimal;
use indexmap::{IndexMap, IndexSet};
use num_bigint::BigInt;
use num_rational::BigRational;

use crate::Name;

/// Members by key, in the order in which they were written.
pub type Map = IndexMap<Value, Value>;
/// Members, each once, in the order in which they were written.
pub type Set = IndexSet<Value>;

/// A value.
#[derive(Debug, Clone)]
pub enum Value {
    /// Nothing.
    Nil,
    /// Whether.
    Bool(bool),
    /// A whole number of 64 bits.
    Long(i64),
    /// A whole number of any length.
    BigInt(Arc<BigInt>),
    /// A quotient that is no whole number.
    Ratio(Arc<BigRational>),
    /// A decimal number of any length.
    BigDec(Arc<BigDecimal>),
    /// A binary fraction of 32 bits.
    Float(f32),
    /// A binary fraction of 64 bits.
    Double(f64),
    /// A code point.
    Char(char),
    /// A text.
    String(Arc<str>),
    /// `:name`.
    Keyword(Name),
    /// `name`.
    Symbol(Name),
    /// A moment, in milliseconds since 1970.
    Instant(i64),
    /// A universally unique identifier.
    Uuid(u128),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// `[…]`.
    Vector(Vec<Value>),
    /// `(…)`.
    List(Vec<Value>),
    /// `{…}`.
    Map(Map),
    /// `#{…}`.
    Set(Set),
    /// A value whose tag is not known here.
    Tagged(Name, Box<Value>),
}

impl Value {
    /// The keyword of that name.
    pub fn keyword(name: &str) -> Self {
        Self::Keyword(name.into())
    }

    /// The symbol of that name.
    pub fn symbol(name: &str) -> Self {
        Self::Symbol(name.into())
    }

    /// A text.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(text.into())
    }

    /// A whole number, in 64 bits where it fits.
    pub fn integer(number: BigInt) -> Self {
        match i64::try_from(&number) {
            Ok(number) => Self::Long(number),
            Err(_) => Self::BigInt(Arc::new(number)),
        }
    }

    /// The text, where it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number, where it is one of 64 bits.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Long(number) => Some(*number),
            _ => None,
        }
    }

    /// The name, where it is a keyword.
    pub fn as_keyword(&self) -> Option<&Name> {
        match self {
            Self::Keyword(name) => Some(name),
            _ => None,
        }
    }

    /// The name, where it is a symbol.
    pub fn as_symbol(&self) -> Option<&Name> {
        match self {
            Self::Symbol(name) => Some(name),
            _ => None,
        }
    }

    /// The items, where it is a vector or a list.
    pub fn as_sequence(&self) -> Option<&[Value]> {
        match self {
            Self::Vector(items) | Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// The members, where it is a map.
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(members) => Some(members),
            _ => None,
        }
    }

    /// Whether it is nothing.
    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }

    /// Whether a condition that is this value holds: everything does but nothing and `false`.
    pub fn is_truthy(&self) -> bool {
        !matches!(self, Self::Nil | Self::Bool(false))
    }

    /// What it is, for people.
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

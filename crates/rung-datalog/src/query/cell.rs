//! A value of a query row: encoded as in the store, compared by its bytes, and decoded only when needed.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rung_edn::Value;
use rung_kv::encode;

use crate::Result;
use crate::datom::{Entity, encode_value};

/// An encoded value of a row.
#[derive(Debug, Clone)]
pub(crate) enum Cell<'t> {
    /// A whole number, such as an entity id.
    Long(i64),
    /// Bytes in the store.
    Stored(&'t [u8]),
    /// Bytes that the query computed.
    Owned(Arc<[u8]>),
}

impl<'t> Cell<'t> {
    /// Creates the cell of an encoded value.
    pub(crate) fn from_bytes(bytes: &'t [u8]) -> Self {
        match encode::as_long(bytes) {
            Some(number) => Self::Long(number),
            None => match encode::as_float(bytes) {
                Some(number) => Self::from_value(&Value::Float(number)),
                None => Self::Stored(bytes),
            },
        }
    }

    pub(crate) fn from_entity(e: Entity) -> Self {
        Self::Long(i64::try_from(e).expect("entities are numbered from one up"))
    }

    pub(crate) fn from_value(value: &Value) -> Self {
        match value {
            Value::Long(number) => Self::Long(*number),
            // Floats of 32 and of 64 bits with the same digits are equal, so they must have the same bytes in a row.
            Value::Float(_) => {
                let number = value.as_f64().unwrap_or(f64::NAN);
                Self::Owned(encode_value(&Value::Double(number)).into())
            }
            value => {
                let bytes = encode_value(value);
                match encode::as_long(&bytes) {
                    Some(number) => Self::Long(number),
                    None => Self::Owned(bytes.into()),
                }
            }
        }
    }

    pub(crate) fn value(&self) -> Result<Value> {
        match self {
            Self::Long(number) => Ok(Value::Long(*number)),
            Self::Stored(bytes) => Ok(encode::decode_part(bytes)?),
            Self::Owned(bytes) => Ok(encode::decode_part(bytes)?),
        }
    }

    /// Returns the value as an entity id, if it can be one.
    pub(crate) fn entity(&self) -> Option<Entity> {
        match self {
            Self::Long(number) => Entity::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Returns true if the value can be a lookup ref or an ident.
    pub(crate) fn is_name(&self) -> bool {
        self.raw_bytes().is_some_and(encode::is_keyword_or_vector)
    }

    /// Returns the encoded value.
    pub(crate) fn bytes(&self) -> std::borrow::Cow<'_, [u8]> {
        match self {
            Self::Long(number) => encode_value(&Value::Long(*number)).into(),
            Self::Stored(bytes) => (*bytes).into(),
            Self::Owned(bytes) => (&**bytes).into(),
        }
    }

    fn raw_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Long(_) => None,
            Self::Stored(bytes) => Some(bytes),
            Self::Owned(bytes) => Some(bytes),
        }
    }

    /// Compares two cells in an order in which neighbours are near each other in the store.
    pub(crate) fn order(&self, other: &Self) -> std::cmp::Ordering {
        match (self, other) {
            (Self::Long(one), Self::Long(other)) => one.cmp(other),
            _ => self.raw_bytes().cmp(&other.raw_bytes()),
        }
    }

    /// Bytes of heap memory that the cell owns.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Owned(bytes) => bytes.len() + 16,
            _ => 0,
        }
    }
}

impl PartialEq for Cell<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Long(one), Self::Long(other)) => one == other,
            _ => match (self.raw_bytes(), other.raw_bytes()) {
                (Some(one), Some(other)) => one == other,
                _ => false,
            },
        }
    }
}

impl Eq for Cell<'_> {}

impl Hash for Cell<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Long(number) => state.write_i64(*number),
            Self::Stored(bytes) => state.write(bytes),
            Self::Owned(bytes) => state.write(bytes),
        }
    }
}

//! A value on its way through a query: as the store has it, compared by its bytes, and understood only where somebody asks.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rung_edn::Value;
use rung_kv::encode;

use crate::Result;
use crate::datom::{Entity, encoded};

/// A value on its way.
#[derive(Debug, Clone)]
pub(crate) enum Cell<'t> {
    /// A whole number, which entities are.
    Long(i64),
    /// Bytes of the store.
    Kept(&'t [u8]),
    /// Bytes that were made here.
    Made(Arc<[u8]>),
}

impl<'t> Cell<'t> {
    /// The cell of a value's bytes.
    pub(crate) fn of_bytes(bytes: &'t [u8]) -> Self {
        match encode::as_long(bytes) {
            Some(number) => Self::Long(number),
            None => match encode::as_float(bytes) {
                Some(number) => Self::of_value(&Value::Float(number)),
                None => Self::Kept(bytes),
            },
        }
    }

    pub(crate) fn of_entity(e: Entity) -> Self {
        Self::Long(i64::try_from(e).expect("entities are numbered from one up"))
    }

    pub(crate) fn of_value(value: &Value) -> Self {
        match value {
            Value::Long(number) => Self::Long(*number),
            // Numbers of 32 and of 64 bits with the same digits are equal, so they must have the same bytes here.
            Value::Float(_) => {
                let number = value.as_f64().unwrap_or(f64::NAN);
                Self::Made(encoded(&Value::Double(number)).into())
            }
            value => {
                let bytes = encoded(value);
                match encode::as_long(&bytes) {
                    Some(number) => Self::Long(number),
                    None => Self::Made(bytes.into()),
                }
            }
        }
    }

    pub(crate) fn value(&self) -> Result<Value> {
        match self {
            Self::Long(number) => Ok(Value::Long(*number)),
            Self::Kept(bytes) => Ok(encode::take(bytes)?),
            Self::Made(bytes) => Ok(encode::take(bytes)?),
        }
    }

    /// The entity, where it can be one.
    pub(crate) fn entity(&self) -> Option<Entity> {
        match self {
            Self::Long(number) => Entity::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Whether it can be a lookup ref or an ident.
    pub(crate) fn is_name(&self) -> bool {
        self.raw().is_some_and(encode::is_keyword_or_vector)
    }

    /// The bytes of the value.
    pub(crate) fn bytes(&self) -> std::borrow::Cow<'_, [u8]> {
        match self {
            Self::Long(number) => encoded(&Value::Long(*number)).into(),
            Self::Kept(bytes) => (*bytes).into(),
            Self::Made(bytes) => (&**bytes).into(),
        }
    }

    fn raw(&self) -> Option<&[u8]> {
        match self {
            Self::Long(_) => None,
            Self::Kept(bytes) => Some(bytes),
            Self::Made(bytes) => Some(bytes),
        }
    }

    /// An order in which neighbours are found near to each other.
    pub(crate) fn order(&self, other: &Self) -> std::cmp::Ordering {
        match (self, other) {
            (Self::Long(one), Self::Long(other)) => one.cmp(other),
            _ => self.raw().cmp(&other.raw()),
        }
    }

    /// Bytes of memory that it takes beyond itself.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Made(bytes) => bytes.len() + 16,
            _ => 0,
        }
    }
}

impl PartialEq for Cell<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Long(one), Self::Long(other)) => one == other,
            _ => match (self.raw(), other.raw()) {
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
            Self::Kept(bytes) => state.write(bytes),
            Self::Made(bytes) => state.write(bytes),
        }
    }
}

//! Facts, and which of them are meant.

use rung_edn::{Name, Value};

use crate::nippy::DATOM;
use crate::{Error, Result};

/// The transaction that is said where it does not matter.
const ANY_TX: i64 = 1;

/// A fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datom {
    /// Of what it is.
    pub entity: i64,
    /// What is said of it.
    pub attribute: Value,
    /// What that is.
    pub value: Value,
    /// When it was said. Servers do not keep this: it is right in a report alone.
    pub tx: i64,
    /// Whether it holds since, or does not any more.
    pub added: bool,
}

impl Datom {
    /// Understands a fact as it travels.
    pub(crate) fn read(value: Value) -> Result<Self> {
        let wrong = || Error::Answer("a fact was to come, and something else came".to_owned());
        let parts = match value {
            Value::Tagged(tag, parts) if tag.as_str() == DATOM => *parts,
            // Some answers say facts as they are written.
            parts @ Value::Vector(_) => parts,
            _ => return Err(wrong()),
        };
        let Value::Vector(parts) = parts else {
            return Err(wrong());
        };
        let mut parts = parts.into_iter();
        let (Some(Value::Long(entity)), Some(attribute), Some(value)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let tx = parts.next().and_then(|tx| tx.as_i64()).unwrap_or(ANY_TX);
        let added = match parts.next() {
            Some(Value::Bool(added)) => added,
            _ => tx >= 0,
        };
        Ok(Self {
            entity,
            attribute,
            value,
            tx: tx.saturating_abs(),
            added,
        })
    }
}

/// The order in which facts are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    /// By entity, attribute and value.
    Eav,
    /// By attribute, value and entity.
    Ave,
}

impl Index {
    fn name(self) -> Value {
        Value::keyword(match self {
            Self::Eav => "eav",
            Self::Ave => "ave",
        })
    }
}

/// Which facts are meant: those with these parts.
#[derive(Debug, Clone, Default)]
pub struct Pattern {
    /// Of this entity.
    pub entity: Option<i64>,
    /// With this attribute.
    pub attribute: Option<Name>,
    /// With this value.
    pub value: Option<Value>,
}

impl Pattern {
    /// The index that finds most of it at once.
    pub(crate) fn index(&self) -> Index {
        match (self.entity, &self.attribute) {
            (None, Some(_)) => Index::Ave,
            _ => Index::Eav,
        }
    }

    /// Whether an index finds nothing but what is meant.
    pub(crate) fn is_range_of(&self, index: Index) -> bool {
        match index {
            Index::Eav => {
                (self.attribute.is_none() || self.entity.is_some())
                    && (self.value.is_none() || self.attribute.is_some())
            }
            Index::Ave => {
                (self.value.is_none() || self.attribute.is_some())
                    && (self.entity.is_none() || self.value.is_some())
            }
        }
    }

    /// Whether a server counts it right. It counts by the keys of its index, which are entities, or attributes with values.
    pub(crate) fn is_counted(&self) -> bool {
        match self.index() {
            Index::Eav => self.attribute.is_none() && self.value.is_none(),
            Index::Ave => true,
        }
    }

    /// Whether a fact is one of those.
    pub(crate) fn matches(&self, datom: &Datom) -> bool {
        self.entity.is_none_or(|entity| entity == datom.entity)
            && self
                .attribute
                .as_ref()
                .is_none_or(|name| Some(name) == datom.attribute.as_keyword())
            && self
                .value
                .as_ref()
                .is_none_or(|value| *value == datom.value)
    }

    /// The index and the first and the last fact that there could be, as arguments.
    pub(crate) fn bounds(&self, index: Index) -> [Value; 3] {
        // What comes after a part that is not said is not a bound.
        let (entity, value) = match index {
            Index::Eav => (
                self.entity,
                self.value.as_ref().filter(|_| self.attribute.is_some()),
            ),
            Index::Ave => (
                self.entity.filter(|_| self.value.is_some()),
                self.value.as_ref(),
            ),
        };
        let bound = |default_entity: i64, default_value: &str| {
            let attribute = self.attribute.clone().map_or(Value::Nil, Value::Keyword);
            let value = value.cloned();
            let parts = vec![
                Value::Long(entity.unwrap_or(default_entity)),
                attribute,
                value.unwrap_or_else(|| Value::keyword(default_value)),
                Value::Long(ANY_TX),
            ];
            Value::Tagged(DATOM.into(), Box::new(Value::Vector(parts)))
        };
        [
            index.name(),
            bound(0, "db.value/sysMin"),
            bound(i64::MAX, "db.value/sysMax"),
        ]
    }
}

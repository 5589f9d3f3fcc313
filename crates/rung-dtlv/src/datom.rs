//! Datoms, and patterns that select them.

use rung_edn::{Name, Value};

use crate::nippy::DATOM;
use crate::{Error, Result};

/// The transaction id of a bound, where it does not matter.
const ANY_TX: i64 = 1;

/// A datom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datom {
    /// The entity id.
    pub entity: i64,
    pub attribute: Value,
    pub value: Value,
    /// The transaction id. Correct only in a transaction report: servers do not store it.
    pub tx: i64,
    /// True if asserted, false if retracted.
    pub added: bool,
}

impl Datom {
    /// Parses an encoded datom.
    pub(crate) fn parse(value: Value) -> Result<Self> {
        let wrong = || Error::InvalidResponse("expected a datom".to_owned());
        let parts = match value {
            Value::Tagged(tag, parts) if tag.as_str() == DATOM => *parts,
            // Some responses contain datoms as plain vectors.
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

/// The sort order in which datoms are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatomIndex {
    /// Entity, attribute, value.
    Eav,
    /// Attribute, value, entity.
    Ave,
}

impl DatomIndex {
    fn name(self) -> Value {
        Value::keyword(match self {
            Self::Eav => "eav",
            Self::Ave => "ave",
        })
    }
}

/// Selects the datoms that have all given parts.
#[derive(Debug, Clone, Default)]
pub struct DatomPattern {
    pub entity: Option<i64>,
    pub attribute: Option<Name>,
    pub value: Option<Value>,
}

impl DatomPattern {
    /// Returns the index with the narrowest range for this pattern.
    pub(crate) fn index(&self) -> DatomIndex {
        match (self.entity, &self.attribute) {
            (None, Some(_)) => DatomIndex::Ave,
            _ => DatomIndex::Eav,
        }
    }

    /// Returns true if the index range contains only matching datoms.
    pub(crate) fn is_range_of(&self, index: DatomIndex) -> bool {
        match index {
            DatomIndex::Eav => {
                (self.attribute.is_none() || self.entity.is_some())
                    && (self.value.is_none() || self.attribute.is_some())
            }
            DatomIndex::Ave => {
                (self.value.is_none() || self.attribute.is_some())
                    && (self.entity.is_none() || self.value.is_some())
            }
        }
    }

    /// Returns true if the server counts the range correctly. It counts by index keys: entities, or attributes with values.
    pub(crate) fn is_countable(&self) -> bool {
        match self.index() {
            DatomIndex::Eav => self.attribute.is_none() && self.value.is_none(),
            DatomIndex::Ave => true,
        }
    }

    /// Returns true if the datom has all given parts.
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

    /// Returns the index, and the least and the greatest datom of the range, as request arguments.
    pub(crate) fn bounds(&self, index: DatomIndex) -> [Value; 3] {
        // A part after a missing part does not restrict the range.
        let (entity, value) = match index {
            DatomIndex::Eav => (
                self.entity,
                self.value.as_ref().filter(|_| self.attribute.is_some()),
            ),
            DatomIndex::Ave => (
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

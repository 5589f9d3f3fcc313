//! Equality, order and hash of values.
//!
//! Equality is that of Clojure: a list equals the vector of the same items, `1` equals `1N`, and neither
//! equals `1.0`. The order is total and consistent with equality: by kind, then numbers by their numeric value and their
//! exactness, all other values by their content.

use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::number::{canonical, compare_amounts, f64_by_digits};
use crate::{Map, Set, Value};

impl Value {
    /// Returns the rank of the value's kind.
    fn rank(&self) -> u8 {
        match self {
            Self::Nil => 0,
            Self::Bool(_) => 1,
            Self::Long(_)
            | Self::BigInt(_)
            | Self::Ratio(_)
            | Self::BigDec(_)
            | Self::Float(_)
            | Self::Double(_) => 2,
            Self::Char(_) => 3,
            Self::String(_) => 4,
            Self::Keyword(_) => 5,
            Self::Symbol(_) => 6,
            Self::Instant(_) => 7,
            Self::Uuid(_) => 8,
            Self::Bytes(_) => 9,
            Self::Vector(_) | Self::List(_) => 10,
            Self::Map(_) => 11,
            Self::Set(_) => 12,
            Self::Tagged(..) => 13,
        }
    }
}

impl Value {
    /// Compares two values; numbers by their numeric value alone, whatever their exactness.
    pub fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            _ if self.is_number() && other.is_number() => compare_amounts(self, other),
            // The shorter vector comes first, whatever its items.
            (Self::Vector(one), Self::Vector(other)) => {
                one.len().cmp(&other.len()).then_with(|| {
                    let parts = one.iter().zip(other).map(|(one, other)| one.compare(other));
                    parts.fold(Ordering::Equal, Ordering::then)
                })
            }
            _ => self.cmp(other),
        }
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => one.cmp(other),
            (Self::Long(one), Self::Long(other)) | (Self::Instant(one), Self::Instant(other)) => {
                one.cmp(other)
            }
            (Self::Char(one), Self::Char(other)) => one.cmp(other),
            (Self::String(one), Self::String(other)) => one.cmp(other),
            (Self::Keyword(one), Self::Keyword(other))
            | (Self::Symbol(one), Self::Symbol(other)) => one.cmp(other),
            (Self::Uuid(one), Self::Uuid(other)) => one.cmp(other),
            (Self::Bytes(one), Self::Bytes(other)) => one.cmp(other),
            (Self::Vector(one) | Self::List(one), Self::Vector(other) | Self::List(other)) => {
                one.cmp(other)
            }
            (Self::Map(one), Self::Map(other)) => sorted_members(one).cmp(&sorted_members(other)),
            (Self::Set(one), Self::Set(other)) => sorted(one).cmp(&sorted(other)),
            (Self::Tagged(tag, one), Self::Tagged(other_tag, other)) => {
                tag.cmp(other_tag).then_with(|| one.cmp(other))
            }
            _ if self.is_number() && other.is_number() => compare_amounts(self, other)
                .then_with(|| self.exactness().cmp(&other.exactness()))
                .then_with(|| scale(self).cmp(&scale(other))),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

/// Returns the scale of a decimal number, which is part of its identity.
fn scale(value: &Value) -> i64 {
    match value {
        Value::BigDec(number) => number.fractional_digit_count(),
        _ => 0,
    }
}

fn sorted_members(map: &Map) -> Vec<(&Value, &Value)> {
    let mut members: Vec<_> = map.iter().collect();
    members.sort_unstable();
    members
}

fn sorted(set: &Set) -> Vec<&Value> {
    let mut members: Vec<_> = set.iter().collect();
    members.sort_unstable();
    members
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Map(one), Self::Map(other)) => one == other,
            (Self::Set(one), Self::Set(other)) => one == other,
            _ => self.cmp(other) == Ordering::Equal,
        }
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.rank().hash(state);
        match self {
            Self::Nil => {}
            Self::Bool(value) => value.hash(state),
            Self::Long(number) | Self::Instant(number) => number.hash(state),
            // A big integer that fits 64 bits equals the `Long`.
            Self::BigInt(number) => match i64::try_from(&**number) {
                Ok(number) => number.hash(state),
                Err(_) => number.hash(state),
            },
            Self::Ratio(number) => number.hash(state),
            Self::BigDec(number) => number.as_bigint_and_exponent().hash(state),
            Self::Float(number) => canonical(f64_by_digits(*number)).to_bits().hash(state),
            Self::Double(number) => canonical(*number).to_bits().hash(state),
            Self::Char(c) => c.hash(state),
            Self::String(text) => text.hash(state),
            Self::Keyword(name) | Self::Symbol(name) => name.hash(state),
            Self::Uuid(id) => id.hash(state),
            Self::Bytes(bytes) => bytes.hash(state),
            Self::Vector(items) | Self::List(items) => items.hash(state),
            Self::Map(members) => unordered_hash(members.iter()).hash(state),
            Self::Set(members) => unordered_hash(members.iter()).hash(state),
            Self::Tagged(tag, value) => (tag, value).hash(state),
        }
    }
}

/// Returns a hash that does not depend on the order of the members.
fn unordered_hash(members: impl Iterator<Item = impl Hash>) -> u64 {
    members.fold(0, |sum: u64, member| {
        let mut hasher = DefaultHasher::new();
        member.hash(&mut hasher);
        sum.wrapping_add(hasher.finish())
    })
}

//! Ranges of keys or values, with a kind and bounds.

use std::ops::Bound;

use rung_edn::Value;

use super::{ValueType, clipped, invalid, keyword_list, keyword_text};
use crate::Result;

/// The suffix of kinds that go backwards.
const BACK_SUFFIX: &str = "-back";

/// A bound of a kind.
#[derive(Debug, Clone, Copy)]
enum BoundKind {
    AtLeast,
    Above,
    AtMost,
    Below,
}

impl BoundKind {
    /// Returns the bound for the other end of the range.
    fn mirrored(self) -> Self {
        match self {
            Self::AtLeast => Self::AtMost,
            Self::Above => Self::Below,
            Self::AtMost => Self::AtLeast,
            Self::Below => Self::Above,
        }
    }
}

/// The kinds, and the bounds of each in the order in which they are given. Backwards, two bounds are swapped.
const KINDS: [(&str, &[BoundKind]); 9] = [
    ("all", &[]),
    ("at-least", &[BoundKind::AtLeast]),
    ("at-most", &[BoundKind::AtMost]),
    ("closed", &[BoundKind::AtLeast, BoundKind::AtMost]),
    ("closed-open", &[BoundKind::AtLeast, BoundKind::Below]),
    ("open", &[BoundKind::Above, BoundKind::Below]),
    ("open-closed", &[BoundKind::Above, BoundKind::AtMost]),
    ("greater-than", &[BoundKind::Above]),
    ("less-than", &[BoundKind::Below]),
];

/// A range of keys, with a direction.
#[derive(Debug, Clone)]
pub struct KeySpan {
    /// The lower bound.
    pub from: Bound<Value>,
    /// The upper bound.
    pub to: Bound<Value>,
    /// True if the highest key comes first.
    pub reverse: bool,
}

impl KeySpan {
    /// Returns the range of all keys, the lowest first.
    pub fn all() -> Self {
        Self {
            from: Bound::Unbounded,
            to: Bound::Unbounded,
            reverse: false,
        }
    }

    /// Parses a range: `[:closed 1 5]`, `["closed-back" 5 1]`, `[:all]`, or `:all` alone. Its bounds have the type.
    ///
    /// Datalevin finds nothing if bounds are missing; here that is an error, since an empty result is also a valid one. Bounds
    /// with nothing between them are no error.
    pub fn parse(value: Value, of: &ValueType) -> Result<Self> {
        let (kind, bounds) = match value {
            Value::Vector(mut parts) | Value::List(mut parts) if !parts.is_empty() => {
                let bounds = parts.split_off(1);
                (parts.remove(0), bounds)
            }
            other => (other, Vec::new()),
        };
        let named = keyword_text(&kind).and_then(|word| {
            let (name, back) = match word.strip_suffix(BACK_SUFFIX) {
                Some(name) => (name, true),
                None => (word, false),
            };
            let found = KINDS.iter().find(|(kind, _)| *kind == name);
            found.map(|(_, ends)| (*ends, back))
        });
        let Some((ends, back)) = named else {
            return invalid(format!(
                "{} is not a kind of range; the kinds are {}; each also with {BACK_SUFFIX}, for descending order with the upper bound first",
                clipped(&kind),
                keyword_list(KINDS.iter().map(|(name, _)| *name))
            ));
        };
        if bounds.len() != ends.len() {
            let (given, wanted) = (bounds.len(), ends.len());
            return invalid(format!(
                "a range {kind} has {wanted} bounds; the call passes {given}"
            ));
        }
        let mut span = Self {
            reverse: back,
            ..Self::all()
        };
        for (bound, end) in bounds.into_iter().zip(ends) {
            let bound = of.convert(bound)?;
            match if back && ends.len() == 2 {
                end.mirrored()
            } else {
                *end
            } {
                BoundKind::AtLeast => span.from = Bound::Included(bound),
                BoundKind::Above => span.from = Bound::Excluded(bound),
                BoundKind::AtMost => span.to = Bound::Included(bound),
                BoundKind::Below => span.to = Bound::Excluded(bound),
            }
        }
        Ok(span)
    }
}

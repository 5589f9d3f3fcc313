//! Ranges of keys, by kind and bounds.

use std::ops::Bound;

use rung_edn::Value;

use super::{Type, invalid, listed, shown, word};
use crate::Result;

/// What follows the name of a kind that goes backwards.
const BACK: &str = "-back";

/// A bound of a kind.
#[derive(Debug, Clone, Copy)]
enum End {
    AtLeast,
    Above,
    AtMost,
    Below,
}

impl End {
    /// What it is from the other side.
    fn mirrored(self) -> Self {
        match self {
            Self::AtLeast => Self::AtMost,
            Self::Above => Self::Below,
            Self::AtMost => Self::AtLeast,
            Self::Below => Self::Above,
        }
    }
}

/// The kinds, and the bounds of each in the order in which they are given. Backwards, two bounds change places.
const KINDS: [(&str, &[End]); 9] = [
    ("all", &[]),
    ("at-least", &[End::AtLeast]),
    ("at-most", &[End::AtMost]),
    ("closed", &[End::AtLeast, End::AtMost]),
    ("closed-open", &[End::AtLeast, End::Below]),
    ("open", &[End::Above, End::Below]),
    ("open-closed", &[End::Above, End::AtMost]),
    ("greater-than", &[End::Above]),
    ("less-than", &[End::Below]),
];

/// A range of keys, and in which direction it is gone through.
#[derive(Debug, Clone)]
pub struct Span {
    /// Where the lowest keys are.
    pub from: Bound<Value>,
    /// Where the highest keys are.
    pub to: Bound<Value>,
    /// Whether the highest come first.
    pub back: bool,
}

impl Span {
    /// Every key, the lowest first.
    pub fn all() -> Self {
        Self {
            from: Bound::Unbounded,
            to: Bound::Unbounded,
            back: false,
        }
    }

    /// The range that is written so: `[:closed 1 5]`, `["closed-back" 5 1]`, `[:all]`, or `:all` alone. Its bounds are of the type.
    ///
    /// Datalevin finds nothing where bounds are missing; here that is an error, since nothing is also a true answer. Bounds that
    /// leave nothing between them are no error.
    pub fn read(value: Value, of: &Type) -> Result<Self> {
        let (kind, bounds) = match value {
            Value::Vector(mut parts) | Value::List(mut parts) if !parts.is_empty() => {
                let bounds = parts.split_off(1);
                (parts.remove(0), bounds)
            }
            other => (other, Vec::new()),
        };
        let named = word(&kind).and_then(|word| {
            let (name, back) = match word.strip_suffix(BACK) {
                Some(name) => (name, true),
                None => (word, false),
            };
            let found = KINDS.iter().find(|(kind, _)| *kind == name);
            found.map(|(_, ends)| (*ends, back))
        });
        let Some((ends, back)) = named else {
            return invalid(format!(
                "{} is no kind of range; the kinds are {}, each also with {BACK} for the highest first and its bounds high to low",
                shown(&kind),
                listed(KINDS.iter().map(|(name, _)| *name))
            ));
        };
        if bounds.len() != ends.len() {
            let (given, wanted) = (bounds.len(), ends.len());
            return invalid(format!(
                "a range {kind} has {wanted} bounds, and {given} are given"
            ));
        }
        let mut span = Self {
            back,
            ..Self::all()
        };
        for (bound, end) in bounds.into_iter().zip(ends) {
            let bound = of.fit(bound)?;
            match if back && ends.len() == 2 {
                end.mirrored()
            } else {
                *end
            } {
                End::AtLeast => span.from = Bound::Included(bound),
                End::Above => span.from = Bound::Excluded(bound),
                End::AtMost => span.to = Bound::Included(bound),
                End::Below => span.to = Bound::Excluded(bound),
            }
        }
        Ok(span)
    }
}

//! Numbers as they came.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::write_raw;

/// A number. What a provider wrote is not read before somebody asks what it is: it can be larger, or more exact, than anything that
/// it could be read into.
#[derive(Debug, Clone)]
pub(in crate::tools) enum Number<'a> {
    AsItCame(&'a str),
    Made(serde_json::Number),
}

impl Number<'_> {
    pub(super) fn as_u64(&self) -> Option<u64> {
        match self {
            Self::AsItCame(text) => text.parse().ok(),
            Self::Made(number) => number.as_u64(),
        }
    }

    pub(super) fn as_i64(&self) -> Option<i64> {
        match self {
            Self::AsItCame(text) => text.parse().ok(),
            Self::Made(number) => number.as_i64(),
        }
    }

    /// Bytes that it takes.
    pub(in crate::tools) fn bytes(&self) -> usize {
        match self {
            Self::AsItCame(text) => text.len(),
            Self::Made(number) => match number.as_u64() {
                Some(whole) => whole.checked_ilog10().unwrap_or(0) as usize + 1,
                None => number.to_string().len(),
            },
        }
    }

    /// The nearest there is elsewhere; `None` where there is none.
    fn nearest(&self) -> Option<serde_json::Number> {
        match self {
            Self::AsItCame(text) => serde_json::from_str(text).ok(),
            Self::Made(number) => Some(number.clone()),
        }
    }

    pub(super) fn to_value(&self) -> Value {
        let nearest = self.nearest().map(Value::Number);
        nearest.unwrap_or_else(|| Value::String(self.to_string()))
    }
}

impl PartialEq for Number<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::AsItCame(one), Self::AsItCame(other)) => one == other,
            (one, other) => one.nearest() == other.nearest(),
        }
    }
}

impl fmt::Display for Number<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsItCame(text) => f.write_str(text),
            Self::Made(number) => number.fmt(f),
        }
    }
}

impl Serialize for Number<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::AsItCame(text) => write_raw(text, serializer),
            Self::Made(number) => number.serialize(serializer),
        }
    }
}

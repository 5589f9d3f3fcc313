//! JSON numbers as they were received.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::write_raw;

/// A number. A received number stays text until its value is needed: it may be larger or more precise than any number type.
#[derive(Debug, Clone)]
pub(in crate::tools) enum Number<'a> {
    Raw(&'a str),
    Native(serde_json::Number),
}

impl Number<'_> {
    pub(super) fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Raw(text) => text.parse().ok(),
            Self::Native(number) => number.as_u64(),
        }
    }

    pub(super) fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Raw(text) => text.parse().ok(),
            Self::Native(number) => number.as_i64(),
        }
    }

    /// Returns the bytes of the number as JSON.
    pub(in crate::tools) fn json_bytes(&self) -> usize {
        match self {
            Self::Raw(text) => text.len(),
            Self::Native(number) => match number.as_u64() {
                Some(whole) => whole.checked_ilog10().unwrap_or(0) as usize + 1,
                None => number.to_string().len(),
            },
        }
    }

    /// Returns the nearest `serde_json::Number`; `None` if there is none.
    fn nearest(&self) -> Option<serde_json::Number> {
        match self {
            Self::Raw(text) => serde_json::from_str(text).ok(),
            Self::Native(number) => Some(number.clone()),
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
            (Self::Raw(one), Self::Raw(other)) => one == other,
            (one, other) => one.nearest() == other.nearest(),
        }
    }
}

impl fmt::Display for Number<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Raw(text) => f.write_str(text),
            Self::Native(number) => number.fmt(f),
        }
    }
}

impl Serialize for Number<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Raw(text) => write_raw(text, serializer),
            Self::Native(number) => number.serialize(serializer),
        }
    }
}

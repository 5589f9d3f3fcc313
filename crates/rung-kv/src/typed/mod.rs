//! Typed tables: ordered tables of EDN keys and values, with transactions.
//!
//! Owns: the tables and their kinds, the values that a [`ValueType`] accepts, the keys that a [`KeySpan`] covers, and the effect
//! of a [`TableOp`]. Refuses to know: callers, and how much of a result they are shown.
//!
//! The laws it keeps: a value has one encoding, whatever type it was given as, so that values written with types are read without
//! them; a read is from one snapshot, and lazy; a transaction is applied whole or not at all, including the
//! creation of its tables; and reading creates nothing.

mod apply;
mod lookup;
mod op;
mod span;
mod tables;
mod types;

use std::fmt::{self, Write as _};

use rung_edn::Value;

pub use lookup::{ListTable, PlainTable, TableEntry};
pub use op::{TableAction, TableOp};
pub use span::KeySpan;
pub use tables::{Snapshot, TableKind, TypedTables};
pub use types::ValueType;

use crate::{Error, Result};

/// Bytes of a value in a message, at most.
const SHOWN_BYTES: usize = 60;

/// Returns the word of `:word`, `"word"` or `":word"`.
fn keyword_text(value: &Value) -> Option<&str> {
    match value {
        Value::Keyword(name) => Some(name.as_str()),
        Value::String(text) => Some(text.strip_prefix(':').unwrap_or(text)),
        _ => None,
    }
}

/// Converts a value to a text. A keyword becomes its text: in JSON a text that begins with a colon arrives as a keyword.
fn into_text(value: Value) -> Result<Value, Value> {
    match value {
        Value::String(_) => Ok(value),
        Value::Keyword(name) => Ok(Value::text(format!(":{name}"))),
        other => Err(other),
    }
}

fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::Invalid(message.into()))
}

/// Joins keywords for a message.
fn keyword_list<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!(":{word}")).collect();
    words.join(", ")
}

/// Formats a value for a message, clipped if it is long.
fn clipped(value: &Value) -> String {
    let mut clip = Clip(String::new());
    if write!(clip, "{value}").is_err() {
        clip.0.push('…');
    }
    clip.0
}

/// Accepts up to [`SHOWN_BYTES`] of text, then fails.
struct Clip(String);

impl fmt::Write for Clip {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = SHOWN_BYTES.saturating_sub(self.0.len());
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        if text.len() > room {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

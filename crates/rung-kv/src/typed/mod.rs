//! Tables of values: whatever EDN denotes as keys and values, in order, and in transactions.
//!
//! Owns: which tables there are and of which kind, what a [`Type`] takes, what a [`Span`] covers, and what an [`Op`] does. Refuses to
//! know: who asks, and how much of it they are shown.
//!
//! The laws it keeps: a value has one encoding, whatever type it was given as, so that what was written with types is read without
//! them; what is read is read from one moment, and no further than it is asked for; a transaction is done whole or not at all, and
//! so is the making of its tables; and reading makes nothing.

mod apply;
mod op;
mod reading;
mod span;
mod tables;
mod types;

use std::fmt::{self, Write as _};

use rung_edn::Value;

pub use op::{Act, Op};
pub use reading::{Entry, List, Plain};
pub use span::Span;
pub use tables::{Kind, Snapshot, Tables};
pub use types::Type;

use crate::{Error, Result};

/// Bytes of a value within a message, at most.
const SHOWN_BYTES: usize = 60;

/// A word that is given as `:word`, `"word"` or `":word"`.
fn word(value: &Value) -> Option<&str> {
    match value {
        Value::Keyword(name) => Some(name.as_str()),
        Value::String(text) => Some(text.strip_prefix(':').unwrap_or(text)),
        _ => None,
    }
}

/// A text. A keyword is the text that it is written as: in JSON a text that begins with a colon comes in as one.
fn text(value: Value) -> Result<Value, Value> {
    match value {
        Value::String(_) => Ok(value),
        Value::Keyword(name) => Ok(Value::text(format!(":{name}"))),
        other => Err(other),
    }
}

fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::Invalid(message.into()))
}

/// Some words, for people.
fn listed<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!(":{word}")).collect();
    words.join(", ")
}

/// A value within a message: how it begins, where it is long.
fn shown(value: &Value) -> String {
    let mut clip = Clip(String::new());
    if write!(clip, "{value}").is_err() {
        clip.0.push('…');
    }
    clip.0
}

/// Takes so much text, and then no more.
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

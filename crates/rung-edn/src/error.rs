//! Parse errors.

use std::borrow::Cow;
use std::fmt;

use rung_fault::{Code, Coded};

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A position in a text, for people: line and column count from one, columns in code points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl Position {
    /// Returns the position of a byte offset.
    pub(crate) fn from_offset(text: &str, at: usize) -> Self {
        let before = &text[..at];
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Shortens a text for an error to about `max_chars`. The middle is left out, since an explanation can precede or follow a value.
pub fn shorten(text: &str, max_chars: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= max_chars {
        return Cow::Borrowed(text);
    }
    let half = max_chars / 2;
    let begin: String = text.chars().take(half).collect();
    let end: String = text.chars().skip(length - half).collect();
    Cow::Owned(format!("{begin} … {end}"))
}

/// The reason why a text is not EDN.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {why}")]
pub struct Error {
    /// The position of the error.
    pub position: Position,
    /// The message.
    pub why: String,
    /// True if the text could be completed to a valid one.
    pub unfinished: bool,
}

impl Coded for Error {
    fn code(&self) -> Code {
        Code::InvalidEdn
    }
}

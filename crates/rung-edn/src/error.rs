//! What can be wrong with a text.

use std::fmt;

use rung_fault::{Code, Coded};

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Where in a text something is, for people: both count from one, columns in code points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Its line.
    pub line: usize,
    /// Its place in the line.
    pub column: usize,
}

impl Position {
    /// The position of a byte of a text.
    pub(crate) fn of(text: &str, at: usize) -> Self {
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

/// Why a text is no EDN.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {why}")]
pub struct Error {
    /// Where it is wrong.
    pub position: Position,
    /// What is wrong there.
    pub why: String,
    /// Whether the text could be right if it went on.
    pub unfinished: bool,
}

impl Coded for Error {
    fn code(&self) -> Code {
        Code::InvalidEdn
    }
}

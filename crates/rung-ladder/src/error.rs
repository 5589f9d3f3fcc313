//! Errors of reading and fitting.

use rung_fault::{Code, Coded};

use crate::budget::limits;
use crate::handle::HandleProblem;

/// [`std::result::Result`] with the ladder's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a reading or a fitting failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cursor is forged, altered, or made for something else.
    #[error("the cursor was not issued for this read")]
    CursorInvalid,
    /// The cursor is valid for this subject, but the text has changed since.
    #[error("the text has changed since the cursor was issued")]
    CursorStale,
    /// The text is not a handle.
    #[error(
        "not a handle: {0}; a handle is `res_` and 26 of the characters 0-9 and a-z without i, l, o and u"
    )]
    HandleInvalid(HandleProblem),
    /// The path's text does not parse.
    #[error("path does not parse at byte {at}: {why}")]
    PathInvalid {
        /// Byte offset in the path's text.
        at: usize,
        /// The input that was expected there.
        why: &'static str,
    },
    /// The path parses, but nothing is there.
    #[error("the document has nothing at `{0}`")]
    PathAbsent(String),
    /// The regular expression is rejected.
    #[error("pattern does not compile: {0}")]
    PatternInvalid(String),
    /// The text searched for does not occur.
    #[error("the text searched for does not occur")]
    MatchAbsent,
    /// The bounds of a window are invalid, or do not go together.
    #[error("{0}")]
    WindowInvalid(&'static str),
    /// The document is not UTF-8, so that it has no text window.
    #[error("the document is not UTF-8 text")]
    NotText,
    /// The document is not JSON, so that it has no path.
    #[error("the document is not JSON: unexpected input at byte {at}")]
    NotJson {
        /// Byte offset in the document.
        at: u64,
    },
    /// Not even the record that everything was left out fits.
    #[error("a budget of {max_bytes} bytes does not hold the smallest reply")]
    BudgetTooSmall {
        /// The budget that was given.
        max_bytes: usize,
    },
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::CursorInvalid => Code::InvalidCursor,
            Self::CursorStale => Code::StaleCursor,
            Self::HandleInvalid(_) => Code::InvalidHandle,
            Self::PathInvalid { .. } => Code::InvalidPath,
            Self::PathAbsent(_) => Code::PathNotFound,
            Self::PatternInvalid(_) => Code::InvalidPattern,
            Self::MatchAbsent => Code::QueryNotFound,
            Self::WindowInvalid(_) => Code::InvalidWindow,
            Self::NotText => Code::NotText,
            Self::NotJson { .. } => Code::NotJson,
            Self::BudgetTooSmall { .. } => Code::BudgetTooSmall,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::CursorInvalid | Self::CursorStale => {
                "read again without a cursor, from offset_chars 0, and continue with the new next_cursor".to_owned()
            }
            Self::HandleInvalid(_) => {
                "pass the handle unchanged, as it is in `meta.handle` of the reply".to_owned()
            }
            Self::PathInvalid { .. } => {
                "steps are .name, [\"name\"], [3], [10:20] and [*]; example: result[0].body".to_owned()
            }
            Self::PathAbsent(_) => "read without a path to see the document".to_owned(),
            Self::PatternInvalid(_) => format!(
                "write a pattern of at most {} characters without look-around and back-references; for plain text use q",
                limits::PATTERN_CHARS
            ),
            Self::MatchAbsent => "search for something else: q finds a text in upper or lower case, pattern a regular expression".to_owned(),
            Self::WindowInvalid(_) => format!(
                "use one of: cursor; offset_chars with limit_chars (1 to {}); lines \"10-40\"; pattern; \
                 q with before_chars and after_chars (0 to {})",
                limits::WINDOW_CHARS_MAX, limits::CONTEXT_CHARS_MAX
            ),
            Self::NotText => "read without a selector for its size, type and digest; its bytes cannot be shown as text".to_owned(),
            Self::NotJson { .. } => "read it as text: by offset_chars, lines, pattern or q".to_owned(),
            Self::BudgetTooSmall { .. } => "allow a larger reply with the setting reply.max_bytes".to_owned(),
        };
        Some(hint)
    }
}

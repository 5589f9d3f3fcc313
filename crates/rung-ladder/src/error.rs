//! What can be wrong with a request for a part of something.

use rung_fault::{Code, Coded};

use crate::budget::limits;

/// [`std::result::Result`] with the ladder's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a reading or a fitting did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not ours, altered, or made for something else.
    #[error("the cursor was not issued for this read")]
    CursorInvalid,
    /// Ours, for this subject, but the text has changed since.
    #[error("the text has changed since the cursor was issued")]
    CursorStale,
    /// Not shaped like a handle.
    #[error("not a handle: a handle is `res_` and 26 letters and digits")]
    HandleInvalid,
    /// The path's text does not parse.
    #[error("path does not parse at byte {at}: {why}")]
    PathInvalid {
        /// Byte offset in the path's text.
        at: usize,
        /// What was expected there.
        why: &'static str,
    },
    /// The path parses and leads nowhere.
    #[error("nothing is at `{0}`")]
    PathAbsent(String),
    /// The regular expression is refused.
    #[error("pattern does not compile: {0}")]
    PatternInvalid(String),
    /// The text searched for is not there.
    #[error("the text searched for does not occur")]
    MatchAbsent,
    /// A number or combination that no window has.
    #[error("{0}")]
    WindowInvalid(&'static str),
    /// A text window of bytes that are not UTF-8.
    #[error("the document is not UTF-8 text")]
    NotText,
    /// A path into bytes that are not JSON.
    #[error("the document is not JSON: unexpected input at byte {at}")]
    NotJson {
        /// Byte offset in the document.
        at: u64,
    },
    /// Not even the note that everything was left out fits.
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
            Self::HandleInvalid => Code::InvalidHandle,
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
                "read again without a cursor, from offset_chars 0, and go on with the new next_cursor".to_owned()
            }
            Self::HandleInvalid => {
                "pass the handle exactly as a reply gave it in `meta.handle`".to_owned()
            }
            Self::PathInvalid { .. } => {
                "steps are .name, [\"name\"], [3], [10:20] and [*]; example: result[0].body".to_owned()
            }
            Self::PathAbsent(_) => "read without a path to see what is there".to_owned(),
            Self::PatternInvalid(_) => format!(
                "look-around and back-references are not offered; at most {} characters; q searches plain text",
                limits::PATTERN_CHARS
            ),
            Self::MatchAbsent => "try fewer or other words, or a pattern".to_owned(),
            Self::WindowInvalid(_) => format!(
                "use one of: cursor; offset_chars with limit_chars (1 to {}); lines \"10-40\"; pattern; \
                 q with before_chars and after_chars (0 to {})",
                limits::WINDOW_CHARS_MAX, limits::CONTEXT_CHARS_MAX
            ),
            Self::NotText => "its size, type and digest are known; its bytes are not shown as text".to_owned(),
            Self::NotJson { .. } => "read it as text: by offset_chars, lines, pattern or q".to_owned(),
            Self::BudgetTooSmall { .. } => "allow a larger reply: reply.max_bytes".to_owned(),
        };
        Some(hint)
    }
}

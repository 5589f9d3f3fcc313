//! What can go wrong with a server.

use rung_edn::Name;
use rung_fault::{Code, Coded};

use crate::nippy;

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the server did not do it, or why that is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not the address of a database.
    #[error("not the address of a database: {0}")]
    Target(&'static str),
    /// Nobody answers there.
    #[error("{address} cannot be reached: {why}")]
    Unreachable {
        /// Where.
        address: String,
        /// What the system says.
        why: String,
    },
    /// The server does not know who we are.
    #[error("the server does not let us in: {0}")]
    Unauthorized(String),
    /// The server understood, and will not.
    #[error("the server refuses {operation}: {message}")]
    Refused {
        /// What was asked.
        operation: &'static str,
        /// Its own words, without what lies below them.
        message: String,
        /// Its own name for it, where it has one.
        reason: Option<Name>,
    },
    /// The server has too much to do.
    #[error("the server is busy: {0}")]
    Busy(String),
    /// Too late.
    #[error("{operation} was not answered within {max_ms} ms")]
    Timeout {
        /// What was asked.
        operation: &'static str,
        /// How long it may take.
        max_ms: u64,
    },
    /// Nobody waits for the answer any more.
    #[error("{operation} was given up")]
    Cancelled {
        /// What was asked.
        operation: &'static str,
    },
    /// There is no such database, and none may be made.
    #[error("the server has no database {0}")]
    Absent(String),
    /// The connection ended before the answer did.
    #[error("the connection was lost during {operation}")]
    Lost {
        /// What was asked.
        operation: &'static str,
    },
    /// Something was written, or it was not.
    #[error("whether {operation} was done is not known: {why}. It was not repeated")]
    OutcomeUnknown {
        /// What was asked.
        operation: &'static str,
        /// How the answer was lost.
        why: String,
    },
    /// More than we take.
    #[error("an answer of {bytes} bytes is longer than {max_bytes}")]
    TooLarge {
        /// How long it is.
        bytes: u64,
        /// How long it may be.
        max_bytes: usize,
    },
    /// More items than are held at once.
    #[error("an answer has more than {max_items} items")]
    TooMany {
        /// How many there may be.
        max_items: usize,
    },
    /// An answer that was packed although we cannot unpack.
    #[error("the server sent a compressed answer, which was not agreed on")]
    Compressed,
    /// An answer that is none.
    #[error("the server's answer cannot be understood: {0}")]
    Answer(String),
    /// Bytes that are no value.
    #[error("the server's answer cannot be understood: {0}")]
    Bytes(nippy::Error),
    /// A value that cannot be sent.
    #[error("the request cannot be sent: {0}")]
    Request(nippy::Error),
    /// Not a question that a server can be asked.
    #[error("{0}")]
    Question(&'static str),
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::Target(_) | Self::Request(_) | Self::Question(_) => Code::InvalidArguments,
            Self::Unreachable { .. } | Self::Busy(_) => Code::SourceUnavailable,
            Self::Unauthorized(_) => Code::SourceUnauthorized,
            Self::Refused { .. } => Code::SourceRefused,
            Self::Timeout { .. } | Self::Cancelled { .. } => Code::DeadlineExceeded,
            Self::Absent(_) => Code::UnknownDatabase,
            Self::OutcomeUnknown { .. } => Code::OutcomeUnknown,
            Self::TooLarge { .. } | Self::TooMany { .. } => Code::ResultTooLarge,
            Self::Lost { .. } | Self::Compressed | Self::Answer(_) | Self::Bytes(_) => {
                Code::SourceFailed
            }
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Target(_) => Some("write dtlv://user:password@host:8898/database".to_owned()),
            Self::OutcomeUnknown { .. } => {
                Some("read what is there before writing it again".to_owned())
            }
            Self::TooLarge { .. } | Self::TooMany { .. } => {
                Some("ask for less: bind more of the variables, or give a limit".to_owned())
            }
            _ => None,
        }
    }
}

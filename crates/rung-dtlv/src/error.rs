//! Errors of requests to a server.

use rung_edn::Name;
use rung_fault::{Code, Coded};

use crate::nippy;

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a `dtlv://` URL.
    #[error("not a database address: {0}")]
    InvalidUrl(&'static str),
    /// No connection could be made.
    #[error("cannot connect to {address}: {why}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// The system's error.
        why: String,
    },
    /// The server rejected user or password.
    #[error("the server rejected the login: {0}")]
    Unauthorized(String),
    /// The server refused the request.
    #[error("the server refused {operation}: {message}")]
    Refused {
        /// The type of the request.
        operation: &'static str,
        /// The server's message, without its stack trace.
        message: String,
        /// The server's error keyword, if any.
        reason: Option<Name>,
    },
    /// The server is overloaded.
    #[error("the server is busy: {0}")]
    Busy(String),
    /// The deadline passed.
    #[error("{operation} got no response within {max_ms} ms")]
    Timeout {
        /// The type of the request.
        operation: &'static str,
        /// The time limit.
        max_ms: u64,
    },
    /// The caller cancelled the request.
    #[error("{operation} was cancelled")]
    Cancelled {
        /// The type of the request.
        operation: &'static str,
    },
    /// The database does not exist and must not be created.
    #[error("the database {0} does not exist on the server")]
    UnknownDatabase(String),
    /// The connection closed before the response was complete.
    #[error("the connection was lost during {operation}")]
    Lost {
        /// The type of the request.
        operation: &'static str,
    },
    /// A write may or may not have been done.
    #[error("it is not known whether {operation} was done: {why}. The request was not repeated")]
    OutcomeUnknown {
        /// The type of the request.
        operation: &'static str,
        /// The error that lost the response.
        why: String,
    },
    /// A message exceeds the size limit.
    #[error("a response of {bytes} bytes is over the limit of {max_bytes}")]
    TooLarge {
        /// The length of the message.
        bytes: u64,
        /// The limit.
        max_bytes: usize,
    },
    /// A response has more items than may be held in memory.
    #[error("a response has more than {max_items} items")]
    TooMany {
        /// The limit.
        max_items: usize,
    },
    /// The response is compressed, which was not negotiated.
    #[error("the server sent a compressed response, which was not negotiated")]
    Compressed,
    /// The response violates the protocol.
    #[error("the server sent an invalid response: {0}")]
    InvalidResponse(String),
    /// The response is not valid nippy.
    #[error("the server sent an invalid response: {0}")]
    InvalidEncoding(nippy::Error),
    /// A value cannot be encoded.
    #[error("the request cannot be encoded: {0}")]
    Unencodable(nippy::Error),
    /// The request is not possible.
    #[error("{0}")]
    InvalidRequest(&'static str),
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::InvalidUrl(_) | Self::Unencodable(_) | Self::InvalidRequest(_) => {
                Code::InvalidArguments
            }
            Self::Unreachable { .. } | Self::Busy(_) => Code::SourceUnavailable,
            Self::Unauthorized(_) => Code::SourceUnauthorized,
            Self::Refused { .. } => Code::SourceRefused,
            Self::Timeout { .. } | Self::Cancelled { .. } => Code::DeadlineExceeded,
            Self::UnknownDatabase(_) => Code::UnknownDatabase,
            Self::OutcomeUnknown { .. } => Code::OutcomeUnknown,
            Self::TooLarge { .. } | Self::TooMany { .. } => Code::ResultTooLarge,
            Self::Lost { .. }
            | Self::Compressed
            | Self::InvalidResponse(_)
            | Self::InvalidEncoding(_) => Code::SourceFailed,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::InvalidUrl(_) => Some("write dtlv://user:password@host:8898/database".to_owned()),
            Self::OutcomeUnknown { .. } => Some("read the data before writing it again".to_owned()),
            Self::TooLarge { .. } | Self::TooMany { .. } => {
                Some("bind more of the variables, or pass a limit".to_owned())
            }
            _ => None,
        }
    }
}

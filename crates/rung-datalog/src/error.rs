//! What can go wrong with a database.

use rung_fault::{Code, Coded, Fault};
use rung_kv::Failure;

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the database did not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not EDN.
    #[error(transparent)]
    Edn(#[from] rung_edn::Error),
    /// Not a schema, or one that the data does not allow.
    #[error("{0}")]
    Schema(String),
    /// Not a transaction.
    #[error("{0}")]
    Transaction(String),
    /// A transaction that does not agree with what is there.
    #[error("{0}")]
    Conflict(String),
    /// Not a query, or a function called as it cannot be.
    #[error("{0}")]
    Query(String),
    /// More memory than a query may have.
    #[error("the query needs more than the {max_bytes} bytes that one query may have")]
    TooLarge {
        /// What it may have.
        max_bytes: usize,
    },
    /// Longer than a query may take.
    #[error("the query was not answered within {max_ms} ms")]
    Timeout {
        /// What it may take.
        max_ms: u64,
    },
    /// Nobody waits for the answer.
    #[error("the query was cancelled")]
    Cancelled,
    /// The vectors of texts are not to be had.
    #[error("{}", .0.message())]
    Embedding(Box<Fault>),
    /// The database was opened to be read.
    #[error("the database is open for reading only")]
    ReadOnly,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] rung_kv::Error),
}

impl From<rung_search::Error> for Error {
    fn from(error: rung_search::Error) -> Self {
        match error {
            rung_search::Error::Store(error) => Self::Store(error),
            other => Self::Query(other.to_string()),
        }
    }
}

impl Failure for Error {
    fn of_store(self) -> Result<rung_kv::Error, Self> {
        match self {
            Self::Store(error) => Ok(error),
            other => Err(other),
        }
    }
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::Edn(error) => error.code(),
            Self::Schema(_) => Code::InvalidAttributes,
            Self::Transaction(_) => Code::InvalidTransaction,
            Self::Conflict(_) => Code::TransactionConflict,
            Self::Query(_) => Code::InvalidQuery,
            Self::TooLarge { .. } => Code::QueryTooLarge,
            Self::Timeout { .. } | Self::Cancelled => Code::DeadlineExceeded,
            Self::Embedding(fault) => fault.code(),
            Self::ReadOnly => Code::WritesDisabled,
            Self::Store(error) => error.code(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::TooLarge { .. } => Some(
                "bind more of the variables, or count with an aggregate instead of listing"
                    .to_owned(),
            ),
            Self::Timeout { .. } => Some(
                "see the plan with explain; begin with the clause that matches least".to_owned(),
            ),
            Self::Embedding(fault) => fault.hint().map(str::to_owned),
            Self::Store(error) => error.hint(),
            _ => None,
        }
    }
}

//! The errors of a database.

use rung_fault::{Code, Coded, Fault};
use rung_kv::Failure;

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Characters of a message, at most: a message can repeat a value of any length.
const MAX_SHOWN_CHARS: usize = 400;

/// An error of a database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Invalid EDN.
    #[error(transparent)]
    Edn(#[from] rung_edn::Error),
    /// A query in another language, such as SQL.
    #[error("the query is not EDN: queries are Datalog in EDN, not SQL")]
    NotDatalog,
    /// An invalid schema, or one that the data does not allow.
    #[error("{}", rung_edn::shorten(.0, MAX_SHOWN_CHARS))]
    Schema(String),
    /// An invalid transaction.
    #[error("{}", rung_edn::shorten(.0, MAX_SHOWN_CHARS))]
    Transaction(String),
    /// A transaction that conflicts with the stored data.
    #[error("{}", rung_edn::shorten(.0, MAX_SHOWN_CHARS))]
    Conflict(String),
    /// An invalid query, or a function called with invalid arguments.
    #[error("{}", rung_edn::shorten(.0, MAX_SHOWN_CHARS))]
    Query(String),
    /// The query needs more memory than its limit.
    #[error("the query needs more than {max_bytes} bytes of memory, the limit of one query")]
    TooLarge {
        /// The memory limit.
        max_bytes: usize,
    },
    /// The query takes longer than its limit.
    #[error("the query did not finish within {max_ms} ms")]
    Timeout {
        /// The time limit.
        max_ms: u64,
    },
    /// The caller cancelled the query.
    #[error("the query was cancelled")]
    Cancelled,
    /// Texts cannot be embedded.
    #[error("{}", .0.message())]
    Embedding(Box<Fault>),
    /// The database is open for reading only.
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
    fn into_store_error(self) -> Result<rung_kv::Error, Self> {
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
            Self::NotDatalog => Code::InvalidEdn,
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
            Self::NotDatalog => {
                Some("for example: [:find ?e ?name :where [?e :name ?name]]".to_owned())
            }
            Self::TooLarge { .. } => Some(
                "bind more of the variables, or count with an aggregate instead of listing"
                    .to_owned(),
            ),
            Self::Timeout { .. } => Some(
                "look at the plan with explain; begin with the clause that matches least"
                    .to_owned(),
            ),
            Self::Embedding(fault) => fault.hint().map(str::to_owned),
            Self::Store(error) => error.hint(),
            _ => None,
        }
    }
}

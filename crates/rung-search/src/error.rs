//! What can go wrong with an index.

use rung_fault::{Code, Coded};
use rung_kv::Failure;

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the index did not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not a question to an index.
    #[error("{0}")]
    Query(String),
    /// Not an option, or not a value that it can have.
    #[error("{0}")]
    Option(String),
    /// A phrase was asked for, and it is not known where words stand.
    #[error(
        "a phrase can be searched for only where the index was made with :index-position? true"
    )]
    NoPositions,
    /// Options, a vector or a search that is none; it says why.
    #[error("{0}")]
    Invalid(String),
    /// Options that do not agree with those that the index was made with.
    #[error("the index {domain} was made with {kept}, not with {given}")]
    Conflict {
        /// Which index.
        domain: String,
        /// What it was made with.
        kept: String,
        /// What was asked for.
        given: String,
    },
    /// Every number that a document, a word or a vector can have was given out.
    #[error("the index has given out all of its numbers")]
    Full,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] rung_kv::Error),
}

impl Error {
    /// A row does not look as we write it.
    pub(crate) fn corrupt(what: &'static str) -> Self {
        Self::Store(rung_kv::Error::Corrupt(what))
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
            Self::Query(_) | Self::NoPositions => Code::InvalidQuery,
            Self::Option(_) | Self::Invalid(_) | Self::Conflict { .. } => Code::InvalidRequest,
            Self::Full => Code::StoreFull,
            Self::Store(error) => error.code(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoPositions => Some(
                "ask for the words with [:and …], or make another index with positions".to_owned(),
            ),
            Self::Full => Some("clear the index and add the documents again".to_owned()),
            Self::Conflict { .. } => Some(
                "leave the option out, or use another domain for another kind of index".to_owned(),
            ),
            Self::Store(error) => error.hint(),
            Self::Query(_) | Self::Option(_) | Self::Invalid(_) => None,
        }
    }
}

//! Errors of indexes.

use rung_fault::{Code, Coded};
use rung_kv::Failure;

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Characters of a message, at most: a message can repeat a value of any length.
const MAX_SHOWN_CHARS: usize = 400;

/// The reason why an index operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The query is not valid.
    #[error("{}", rung_edn::shorten(.0, MAX_SHOWN_CHARS))]
    Query(String),
    /// An option is unknown, or its value is not valid.
    #[error("{}", rung_edn::shorten(.0, MAX_SHOWN_CHARS))]
    Option(String),
    /// A phrase was searched for in an index without positions.
    #[error("a phrase search needs an index that was created with :index-position? true")]
    NoPositions,
    /// Options, a vector or a search are not valid; the message says why.
    #[error("{}", rung_edn::shorten(.0, MAX_SHOWN_CHARS))]
    Invalid(String),
    /// The options conflict with those that the index was created with.
    #[error("the index {domain} was created with {kept}, not with {given}")]
    Conflict {
        /// The domain of the index.
        domain: String,
        /// The options of the index.
        kept: String,
        /// The given options.
        given: String,
    },
    /// All numbers for documents, terms or vectors are used up.
    #[error("the index has no more numbers for documents, terms or vectors")]
    Full,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] rung_kv::Error),
}

impl Error {
    /// Returns the error for a row that is not in the expected format.
    pub(crate) fn corrupt(what: &'static str) -> Self {
        Self::Store(rung_kv::Error::Corrupt(what))
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
            Self::Query(_) | Self::NoPositions => Code::InvalidQuery,
            Self::Option(_) | Self::Invalid(_) | Self::Conflict { .. } => Code::InvalidRequest,
            Self::Full => Code::StoreFull,
            Self::Store(error) => error.code(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoPositions => Some(
                "search for the words with [:and …], or create another index with :index-position? true".to_owned(),
            ),
            Self::Full => Some("clear the index and add the documents again".to_owned()),
            Self::Conflict { .. } => Some(
                "leave the option out, or use another :domain".to_owned(),
            ),
            Self::Store(error) => error.hint(),
            Self::Query(_) | Self::Option(_) | Self::Invalid(_) => None,
        }
    }
}

//! What can go wrong with somebody's records.

use std::borrow::Cow;

use rung_fault::{Code, Coded};
use serde_json::Value;

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A connection that could have been meant.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Candidate {
    /// Its id.
    pub connection_id: String,
    /// Its connector.
    pub connector_key: String,
    /// The stream, where that is in question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Its name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
}

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody said who they are.
    #[error("no token was sent")]
    TokenMissing,
    /// Nobody has this token.
    #[error("the token is not valid")]
    TokenUnknown,
    /// The grant was taken back.
    #[error("the grant was revoked")]
    GrantRevoked,
    /// The grant's time is over.
    #[error("the grant has expired")]
    GrantExpired,
    /// The stored grant cannot be used.
    #[error("the grant cannot be used: {0}")]
    GrantInvalid(String),
    /// What only the owner may do.
    #[error("{0}")]
    Forbidden(&'static str),
    /// The stream is none of the grant's.
    #[error("stream {0} is not in this grant")]
    StreamNotGranted(String),
    /// The field is none of the grant's.
    #[error("field {field} is not in this grant")]
    FieldNotGranted {
        /// Which.
        field: String,
        /// Where it was named.
        param: &'static str,
    },
    /// A related stream is none of the grant's.
    #[error("{0}")]
    ScopeInsufficient(String),
    /// The request is wrong.
    #[error("{message}")]
    Invalid {
        /// Under which of the contract's codes.
        code: Code,
        /// Which parameter.
        param: Cow<'static, str>,
        /// In which way.
        message: String,
    },
    /// A declaration is wrong.
    #[error("{0}")]
    Declaration(String),
    /// No such thing, or none that may be seen.
    #[error("{0}")]
    NotFound(String),
    /// No such connection.
    #[error("no such connection")]
    ConnectionNotFound,
    /// No such connection to write to.
    #[error("no such connection")]
    InstanceNotFound,
    /// A connection that takes nothing.
    #[error("the connection is {0} and takes no records")]
    InstanceClosed(String),
    /// No such blob, or none that may be seen.
    #[error("no such blob")]
    BlobNotFound,
    /// The record has no such field.
    #[error("the record has no field {0}")]
    FieldNotFound(String),
    /// The field is no text.
    #[error("field {0} is no text")]
    FieldNotText(String),
    /// The text is not there.
    #[error("the text does not occur in the field")]
    QueryNotFound,
    /// Several connections have it.
    #[error("{message}")]
    Ambiguous {
        /// Under which of the contract's codes.
        code: Code,
        /// What is not clear.
        message: String,
        /// What it could be.
        candidates: Vec<Candidate>,
    },
    /// Changes so old are not known any more.
    #[error("the history of changes does not reach back so far")]
    CursorExpired,
    /// The text has changed since the cursor was made.
    #[error("field {field} of record {record} has changed since the cursor was made")]
    CursorStale {
        /// Of which record.
        record: String,
        /// Which field.
        field: String,
    },
    /// More than is taken at once.
    #[error("{what}: {limit} bytes at most")]
    TooLarge {
        /// What.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// What was to come did not come.
    #[error("it did not come in whole: {0}")]
    Source(String),
    /// The reading itself was refused.
    #[error(transparent)]
    Ladder(#[from] rung_ladder::Error),
    /// What is needed is being made.
    #[error("{0}")]
    Building(String),
    /// No room.
    #[error("the disk is full; nothing of it was kept")]
    Full,
    /// Not now.
    #[error("{0}")]
    Busy(&'static str),
    /// The database cannot be reached.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// The disk failed.
    #[error("the disk failed: {0}")]
    Disk(String),
    /// The store was written by a later version.
    #[error("the store was written by a later version of this program")]
    Newer,
    /// What this store does not do.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The store is not what it should be.
    #[error("the store failed: {0}")]
    Broken(String),
}

impl Error {
    /// A wrong request.
    pub fn invalid(param: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::Invalid {
            code: Code::InvalidRequest,
            param: param.into(),
            message: message.into(),
        }
    }

    /// A wrong request, under a code of its own.
    pub fn refused(code: Code, param: &'static str, message: impl Into<String>) -> Self {
        Self::Invalid {
            code,
            param: param.into(),
            message: message.into(),
        }
    }

    /// Which parameter is at fault.
    pub fn param(&self) -> Option<&str> {
        match self {
            Self::Invalid { param, .. } => Some(param.as_ref()).filter(|param| !param.is_empty()),
            Self::FieldNotGranted { param, .. } => Some(param),
            Self::StreamNotGranted(_) => Some("stream"),
            Self::ConnectionNotFound => Some("connection_id"),
            Self::InstanceNotFound | Self::InstanceClosed(_) => Some("connector_instance_id"),
            _ => None,
        }
    }

    /// The connections that could have been meant.
    pub fn candidates(&self) -> Option<&[Candidate]> {
        match self {
            Self::Ambiguous { candidates, .. } => Some(candidates),
            _ => None,
        }
    }

    /// Whether the same request may do better later.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Full | Self::Busy(_) | Self::Unreachable(_) | Self::Disk(_)
        )
    }

    pub(crate) fn corrupt(what: &str, why: impl std::fmt::Display) -> Self {
        Self::Broken(format!("{what}: {why}"))
    }
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::TokenMissing | Self::TokenUnknown => Code::AuthenticationError,
            Self::GrantRevoked => Code::GrantRevoked,
            Self::GrantExpired => Code::GrantExpired,
            Self::GrantInvalid(_) => Code::GrantInvalid,
            Self::Forbidden(_) => Code::PermissionError,
            Self::StreamNotGranted(_) => Code::GrantStreamNotAllowed,
            Self::FieldNotGranted { .. } => Code::FieldNotGranted,
            Self::ScopeInsufficient(_) => Code::InsufficientScope,
            Self::Invalid { code, .. } | Self::Ambiguous { code, .. } => *code,
            Self::Declaration(_) => Code::InvalidRequest,
            Self::NotFound(_) => Code::NotFound,
            Self::ConnectionNotFound => Code::ConnectionNotFound,
            Self::InstanceNotFound => Code::ConnectorInstanceNotFound,
            Self::InstanceClosed(_) => Code::ConnectorInstanceClosed,
            Self::BlobNotFound => Code::BlobNotFound,
            Self::FieldNotFound(_) => Code::PathNotFound,
            Self::FieldNotText(_) => Code::NotText,
            Self::QueryNotFound => Code::QueryNotFound,
            Self::CursorExpired => Code::CursorExpired,
            Self::CursorStale { .. } => Code::StaleCursor,
            Self::TooLarge { .. } => Code::ResultTooLarge,
            Self::Source(_) => Code::SourceFailed,
            Self::Ladder(error) => error.code(),
            Self::Building(_) => Code::IndexBuilding,
            Self::Full => Code::StoreFull,
            Self::Busy(_) | Self::Unreachable(_) => Code::StoreBusy,
            Self::Newer => Code::StoreFormat,
            Self::Unsupported(_) => Code::InvalidArguments,
            Self::Disk(_) | Self::Broken(_) => Code::StoreBroken,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::TokenMissing | Self::TokenUnknown => {
                "send Authorization: Bearer with a token that the owner gave"
            }
            Self::GrantRevoked | Self::GrantExpired | Self::GrantInvalid(_) => {
                "ask the owner for a new grant"
            }
            Self::StreamNotGranted(_) => "GET /v1/schema?view=compact lists what is granted",
            Self::FieldNotGranted { .. } => {
                "leave the field out; GET /v1/schema lists what is granted"
            }
            Self::ConnectionNotFound | Self::InstanceNotFound => {
                "GET /v1/schema?view=compact names the connections"
            }
            Self::InstanceClosed(_) => {
                "PATCH /v1/connections/{connection_id} with {\"status\":\"active\"} opens it"
            }
            Self::Ambiguous { .. } => "repeat the request with connection_id",
            Self::CursorExpired => "begin again with changes_since=beginning",
            Self::CursorStale { .. } => "read the field again from its start",
            Self::QueryNotFound => "read the field from its start, or look for something else",
            Self::Full => "free some space, then send it again",
            Self::Building(_) | Self::Busy(_) | Self::Unreachable(_) => "try again in a moment",
            Self::Newer => "use the version of rung that wrote it",
            Self::Ladder(error) => return error.hint(),
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::corrupt("what is stored is no JSON", error)
    }
}

/// A list of candidates as an answer has it.
pub fn candidates_json(candidates: &[Candidate]) -> Value {
    serde_json::to_value(candidates).unwrap_or_default()
}

//! The errors of this crate.

use std::borrow::Cow;

use rung_fault::{Code, Coded};
use serde_json::Value;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A connection that an ambiguous request could mean.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ConnectionCandidate {
    pub connection_id: String,
    pub connector_key: String,
    /// The stream, if it is ambiguous too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
}

/// The error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("no token was sent")]
    TokenMissing,
    /// The token is unknown, revoked or expired.
    #[error("the token is not valid")]
    TokenUnknown,
    #[error("the grant was revoked")]
    GrantRevoked,
    #[error("the grant has expired")]
    GrantExpired,
    #[error("the grant cannot be used: {0}")]
    GrantInvalid(String),
    /// The operation requires other rights than the caller has.
    #[error("{0}")]
    Forbidden(&'static str),
    #[error("stream {0} is not in this grant")]
    StreamNotGranted(String),
    #[error("field {field} is not in this grant")]
    FieldNotGranted {
        field: String,
        /// The request parameter that named the field.
        param: &'static str,
    },
    #[error("{0}")]
    ScopeInsufficient(String),
    #[error("{message}")]
    Invalid {
        /// The error code of the published contract.
        code: Code,
        param: Cow<'static, str>,
        message: String,
    },
    /// A source declaration is invalid.
    #[error("{0}")]
    Declaration(String),
    /// The item does not exist or is not visible to the caller.
    #[error("{0}")]
    NotFound(String),
    #[error("no such connection")]
    ConnectionNotFound,
    /// The connection to write to does not exist.
    #[error("no such connection")]
    InstanceNotFound,
    /// The connection is not active. Carries its status.
    #[error("the connection is {0} and accepts no records")]
    InstanceClosed(String),
    /// The blob does not exist or is not visible to the caller.
    #[error("no such blob")]
    BlobNotFound,
    #[error("the record has no field {0}")]
    FieldNotFound(String),
    #[error("field {0} is not text")]
    FieldNotText(String),
    /// The text searched for does not occur in the field.
    #[error("the text does not occur in the field")]
    QueryNotFound,
    /// Several connections match the request.
    #[error("{message}")]
    Ambiguous {
        /// The error code of the published contract.
        code: Code,
        message: String,
        candidates: Vec<ConnectionCandidate>,
    },
    /// The requested changes are older than the stored history.
    #[error("the change history does not reach back to changes_since")]
    CursorExpired,
    #[error("field {field} of record {record} has changed since the cursor was issued")]
    CursorStale { record: String, field: String },
    #[error("{what} is too long: at most {limit} bytes")]
    TooLarge {
        what: &'static str,
        /// In bytes.
        limit: u64,
    },
    /// Input ended early or arrived too slowly.
    #[error("the input is incomplete: {0}")]
    InputFailed(String),
    #[error(transparent)]
    Ladder(#[from] rung_ladder::Error),
    /// The index for the request is still being built.
    #[error("{0}")]
    IndexBuilding(String),
    /// The disk or the database is full.
    #[error("the disk is full; nothing was stored")]
    StoreFull,
    #[error("{0}")]
    Busy(&'static str),
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    #[error("the disk failed: {0}")]
    Disk(String),
    #[error("the store was written by a later version of this program")]
    NewerFormat,
    /// The operation is not supported by this store.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The store is corrupt or misbehaves.
    #[error("the store failed: {0}")]
    Broken(String),
    /// Another error, with a hint of its own.
    #[error("{error}")]
    Hinted { error: Box<Self>, hint: String },
}

impl Error {
    /// Creates an error with the code `invalid_request`.
    pub fn invalid_request(
        param: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self::Invalid {
            code: Code::InvalidRequest,
            param: param.into(),
            message: message.into(),
        }
    }

    /// Creates an error for an invalid request, with a specific code.
    pub fn invalid_with_code(code: Code, param: &'static str, message: impl Into<String>) -> Self {
        Self::Invalid {
            code,
            param: param.into(),
            message: message.into(),
        }
    }

    /// Replaces the hint.
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self::Hinted {
            error: Box::new(self),
            hint: hint.into(),
        }
    }

    /// Adds a hint with the `known` names that are similar to an unknown name. All `known` names must be visible to the caller.
    pub(crate) fn with_similar_names<'k>(
        self,
        unknown: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) -> Self {
        match similar_names(unknown, known) {
            None => self,
            Some(names) => self.with_hint(format!("did you mean {names}?")),
        }
    }

    /// Returns the hint for a caller over HTTP, which names routes.
    pub fn http_hint(&self) -> Option<String> {
        let hint = match self {
            Self::TokenMissing | Self::TokenUnknown => {
                "send Authorization: Bearer with a token that the owner issued"
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
            _ => return self.hint(),
        };
        Some(hint.to_owned())
    }

    /// Returns the request parameter at fault.
    pub fn param(&self) -> Option<&str> {
        match self {
            Self::Hinted { error, .. } => error.param(),
            Self::Invalid { param, .. } => Some(param.as_ref()).filter(|param| !param.is_empty()),
            Self::FieldNotGranted { param, .. } => Some(param),
            Self::StreamNotGranted(_) => Some("stream"),
            Self::ConnectionNotFound => Some("connection_id"),
            Self::InstanceNotFound | Self::InstanceClosed(_) => Some("connector_instance_id"),
            _ => None,
        }
    }

    /// Returns the connections that an ambiguous request could mean.
    pub fn candidates(&self) -> Option<&[ConnectionCandidate]> {
        match self {
            Self::Ambiguous { candidates, .. } => Some(candidates),
            Self::Hinted { error, .. } => error.candidates(),
            _ => None,
        }
    }

    /// Returns true if the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::StoreFull | Self::Busy(_) | Self::Unreachable(_) | Self::Disk(_) => true,
            Self::Hinted { error, .. } => error.is_transient(),
            _ => false,
        }
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
            Self::InputFailed(_) => Code::SourceFailed,
            Self::Ladder(error) => error.code(),
            Self::IndexBuilding(_) => Code::IndexBuilding,
            Self::StoreFull => Code::StoreFull,
            Self::Busy(_) | Self::Unreachable(_) => Code::StoreBusy,
            Self::NewerFormat => Code::StoreFormat,
            Self::Unsupported(_) => Code::InvalidArguments,
            Self::Disk(_) | Self::Broken(_) => Code::StoreBroken,
            Self::Hinted { error, .. } => error.code(),
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Hinted { hint, .. } => hint,
            Self::TokenMissing | Self::TokenUnknown => "use a token that the owner issued",
            Self::GrantRevoked | Self::GrantExpired | Self::GrantInvalid(_) => {
                "ask the owner for a new grant"
            }
            Self::FieldNotGranted { .. } => "leave the field out, or ask the owner for a new grant",
            Self::ConnectionNotFound | Self::InstanceNotFound => {
                "`rung pdpp connections list` lists the connections"
            }
            Self::InstanceClosed(_) => {
                "`rung pdpp connections resume ID` opens a paused connection"
            }
            Self::Ambiguous { .. } => "name the connection",
            Self::CursorStale { .. } => "read the field again from its start",
            Self::QueryNotFound => "read the field from its start, or search for another text",
            Self::StoreFull => "free some space, then repeat the request",
            Self::IndexBuilding(_) | Self::Busy(_) | Self::Unreachable(_) => {
                "try again in a moment"
            }
            Self::NewerFormat => "use the version of rung that wrote it",
            Self::Ladder(error) => return error.hint(),
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// Names at most, that a hint proposes for an unknown name.
const MAX_SIMILAR_NAMES: usize = 3;

/// Lists the names that are similar to an unknown name, most similar first: `a, b or c`.
pub fn similar_names<'k>(
    unknown: &str,
    known: impl IntoIterator<Item = &'k str>,
) -> Option<String> {
    let mut known: Vec<&str> = known.into_iter().collect();
    let mut found = Vec::new();
    while found.len() < MAX_SIMILAR_NAMES
        && let Some(name) = rung_fault::nearest(unknown, known.iter().copied())
    {
        known.retain(|own| *own != name);
        found.push(name);
    }
    let last = found.pop()?;
    Some(match found.as_slice() {
        [] => last.to_owned(),
        others => format!("{} or {last}", others.join(", ")),
    })
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::corrupt("the stored data is not valid JSON", error)
    }
}

/// Renders candidates for a response.
pub fn candidates_json(candidates: &[ConnectionCandidate]) -> Value {
    serde_json::to_value(candidates).unwrap_or_default()
}

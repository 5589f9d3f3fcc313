//! Authentication and permission errors.

use rung_fault::{Code, Coded};

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a permit was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No record has this token's hash. A malformed token gives the same error.
    #[error("the token is not valid")]
    TokenUnknown,
    /// The token is on record, but has expired.
    #[error("the token has expired")]
    TokenExpired,
    /// The call writes, but the permit only reads.
    #[error("the permit is read-only")]
    ReadOnly,
    /// A name of a caller or grant that is not valid.
    #[error("a name has 1 to 128 characters and no control characters")]
    NameInvalid,
    /// The system gave no randomness.
    #[error("the system's random number generator failed")]
    NoRandomness,
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::TokenUnknown => Code::AuthenticationError,
            Self::TokenExpired => Code::GrantExpired,
            Self::ReadOnly => Code::WritesDisabled,
            Self::NameInvalid => Code::InvalidArguments,
            Self::NoRandomness => Code::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::TokenUnknown | Self::TokenExpired => {
                Some("ask the owner for a new token".to_owned())
            }
            Self::ReadOnly => Some("ask the owner for write access".to_owned()),
            Self::NameInvalid | Self::NoRandomness => None,
        }
    }
}

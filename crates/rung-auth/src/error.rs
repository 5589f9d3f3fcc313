//! Why somebody is not let in, or not let do something.

use rung_fault::{Code, Coded};

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a permit was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No record has this token's hash. A malformed token is told the same.
    #[error("the token is not valid")]
    TokenUnknown,
    /// A record has it, and its time is over.
    #[error("the token has expired")]
    TokenExpired,
    /// The permit reads and the call writes.
    #[error("this permit only reads")]
    ReadOnly,
    /// A name for a caller or grant that cannot be one.
    #[error("a name has 1 to 128 characters and no control characters")]
    NameInvalid,
    /// The system gave no randomness.
    #[error("the system has no randomness to give")]
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

//! What can be wrong with bytes.

/// [`std::result::Result`] with this module's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why bytes are no value, or a value has no bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: {why}")]
pub struct Error {
    /// How many bytes were read or written before.
    pub at: usize,
    /// What is wrong there.
    pub why: Why,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// More is announced than there is.
    #[error("{wanted} bytes or values are announced, and {left} bytes are left")]
    Ends {
        /// What was announced.
        wanted: u64,
        /// What is there.
        left: usize,
    },
    /// A length below zero.
    #[error("a length is negative")]
    Negative,
    /// More bytes than the value has.
    #[error("{0} bytes follow the value")]
    Trailing(usize),
    /// A type that is not known here.
    #[error("type {0} is not known")]
    Type(u8),
    /// A type of the server's own that is not known here.
    #[error("custom type {0} is not known")]
    Custom(i16),
    /// Values within values within values.
    #[error("values are nested deeper than {}", super::MAX_DEPTH)]
    Deep,
    /// More values than one message may have.
    #[error("there are more than {} values", super::MAX_VALUES)]
    Many,
    /// A text that is none.
    #[error("a text is not UTF-8")]
    Text,
    /// A code point that is none.
    #[error("a character is no code point, or half of one")]
    Character,
    /// A number that takes too long to work with.
    #[error("a number has more digits than can be worked with")]
    Number,
    /// A quotient by zero.
    #[error("a quotient is by zero")]
    Quotient,
    /// A reference to nothing.
    #[error("a reference to value {0} that was not said before")]
    Reference(usize),
    /// A collection that is not what its type says.
    #[error("a {0} was announced, and its content is none")]
    Content(&'static str),
    /// EDN that is none.
    #[error("text that was to be read: {0}")]
    Edn(rung_edn::Error),
    /// A value that has no bytes.
    #[error("a {0} cannot be sent")]
    Unwritable(&'static str),
    /// A value longer than a length can say.
    #[error("a {0} is too long to be sent")]
    Long(&'static str),
}

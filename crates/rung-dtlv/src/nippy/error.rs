//! Encoding and decoding errors.

/// [`std::result::Result`] with this module's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A decoding or encoding error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: {why}")]
pub struct Error {
    /// The number of bytes read or written before.
    pub at: usize,
    pub why: ErrorKind,
}

/// The kind of an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An announced length exceeds the remaining bytes.
    #[error("{wanted} bytes or values are declared, but {left} bytes are left")]
    UnexpectedEnd {
        /// The announced length.
        wanted: u64,
        /// The remaining bytes.
        left: usize,
    },
    /// A negative length.
    #[error("a length is negative")]
    NegativeLength,
    /// Bytes follow the value.
    #[error("{0} bytes follow the value")]
    Trailing(usize),
    /// An unknown type byte.
    #[error("type {0} is unknown")]
    UnknownType(u8),
    /// An unknown custom type.
    #[error("custom type {0} is unknown")]
    UnknownCustomType(i16),
    /// The nesting exceeds the limit.
    #[error("values are nested deeper than {} levels", super::MAX_DEPTH)]
    TooDeep,
    /// The number of values exceeds the limit.
    #[error("more than {} values", super::MAX_VALUES)]
    TooManyValues,
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    InvalidUtf8,
    /// A character is a surrogate.
    #[error("a character is not a code point")]
    InvalidCharacter,
    /// A number exceeds the size limit.
    #[error("a number has too many digits")]
    NumberTooLarge,
    /// A ratio has the denominator zero.
    #[error("a ratio has the denominator zero")]
    ZeroDenominator,
    /// A reference to a value that is not yet complete.
    #[error("a reference to value {0}, which is not complete")]
    UnknownReference(usize),
    /// The content does not match the type.
    #[error("the content of a {0} is invalid")]
    InvalidContent(&'static str),
    /// An embedded text is not EDN.
    #[error("invalid EDN: {0}")]
    InvalidEdn(rung_edn::Error),
    /// The value has no encoding.
    #[error("a {0} cannot be encoded")]
    Unwritable(&'static str),
    /// The value is longer than its length field allows.
    #[error("a {0} is too long to be encoded")]
    TooLong(&'static str),
}

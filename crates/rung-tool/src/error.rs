//! What can be wrong with a tool itself. What can be wrong with a call is a `Fault`.

use rung_fault::{Code, Coded};

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a schema or a tool is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two tools of one box have one name.
    #[error("two tools are named {0}")]
    NameTaken(&'static str),
    /// A name that some client would refuse.
    #[error("{0:?} is not a tool's name: 1 to 64 letters, digits, `_`, `-` or `.`")]
    NameInvalid(&'static str),
    /// A tool whose arguments are not a closed object would let unknown ones through.
    #[error("the input of {0} is not an object that refuses unknown members")]
    InputOpen(&'static str),
    /// A tool whose output is not an object cannot be structured content.
    #[error("the output of {0} is not an object")]
    OutputNotObject(&'static str),
    /// A schema that is not one, or that would cost too much.
    #[error("the schema cannot be used: {0}")]
    SchemaInvalid(String),
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::SchemaInvalid(_) => Code::InvalidSchema,
            Self::NameTaken(_)
            | Self::NameInvalid(_)
            | Self::InputOpen(_)
            | Self::OutputNotObject(_) => Code::Internal,
        }
    }
}

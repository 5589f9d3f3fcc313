//! Errors in the definition of a tool. Errors of a call are `Fault`s.

use rung_fault::{Code, Coded};

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a schema or a tool is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two tools of one toolbox have the same name.
    #[error("two tools are named {0}")]
    NameTaken(&'static str),
    /// A name that some clients would refuse.
    #[error("{0:?} is not a tool name: use 1 to 64 letters, digits, `_`, `-` or `.`")]
    NameInvalid(&'static str),
    /// A tool whose arguments are not a closed object would let unknown ones through.
    #[error("the input schema of {0} is not an object that rejects unknown members")]
    InputOpen(&'static str),
    /// A tool whose output is not an object cannot be structured content.
    #[error("the output schema of {0} is not an object")]
    OutputNotObject(&'static str),
    /// A schema with a keyword at its root that makes hosts drop the tool.
    #[error("a schema of {0} has `oneOf`, `anyOf` or `allOf` at its root")]
    RootAlternatives(&'static str),
    /// A schema that is not valid, or that would cost too much to check.
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
            | Self::OutputNotObject(_)
            | Self::RootAlternatives(_) => Code::Internal,
        }
    }
}

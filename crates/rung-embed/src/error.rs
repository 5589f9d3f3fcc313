//! Embedding errors.

use std::path::Path;

use rung_fault::{Code, Coded};

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An embedding error. Errors contain neither addresses nor folder paths: the operator knows them, and clients must not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder or file is not a supported model.
    #[error("{file} is not a usable model: {why}")]
    Model {
        /// The file name without its folder.
        file: String,
        why: String,
    },
    /// The endpoint's configuration is invalid.
    #[error("the endpoint cannot be used: {0}")]
    InvalidConfig(String),
    /// The endpoint's key cannot be read.
    #[error("the key of the endpoint cannot be read: {0}")]
    Key(String),
    /// The endpoint did not respond.
    #[error("the endpoint cannot be reached: {0}")]
    Unreachable(String),
    /// The endpoint rejected the key.
    #[error("the endpoint rejected the key: status {0}")]
    Unauthorized(u16),
    /// The endpoint refused the request.
    #[error("the endpoint refused the request: status {status}{words}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The endpoint's message.
        words: String,
    },
    /// The endpoint is overloaded or failing, also after retries.
    #[error("the endpoint is unavailable: status {status}")]
    Busy {
        /// The last HTTP status.
        status: u16,
        /// The endpoint's `Retry-After` in seconds.
        seconds: Option<u64>,
    },
    /// The endpoint returned an invalid response.
    #[error("the endpoint returned an invalid response: {0}")]
    InvalidResponse(String),
    /// The deadline passed.
    #[error("the texts were not embedded in time")]
    TimedOut,
}

impl Error {
    pub(crate) fn model(
        path: &Path,
        why: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        let file = path.file_name().unwrap_or(path.as_os_str());
        Self::Model {
            file: file.to_string_lossy().into_owned(),
            why: why.into().to_string(),
        }
    }
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::Model { .. } | Self::InvalidConfig(_) | Self::Key(_) => Code::InvalidSetting,
            Self::Unreachable(_) => Code::SourceUnavailable,
            Self::Unauthorized(_) => Code::SourceUnauthorized,
            Self::Refused { .. } => Code::SourceRefused,
            Self::Busy { .. } | Self::InvalidResponse(_) => Code::SourceFailed,
            Self::TimedOut => Code::DeadlineExceeded,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Model { .. } => {
                "a model is a folder with tokenizer.json and model.safetensors, and config.json where it is a BERT; see docs/db.md"
            }
            Self::InvalidConfig(_) | Self::Key(_) | Self::Unauthorized(_) => {
                "check url, model, key_env and key_file in the settings"
            }
            Self::Unreachable(_) => "check that the endpoint is running, then try again",
            Self::Busy {
                seconds: Some(seconds),
                ..
            } => return Some(format!("try again in {seconds} seconds")),
            Self::Busy { .. } => "try again later",
            Self::TimedOut => "raise the time limit, or embed fewer texts at once",
            Self::Refused { .. } | Self::InvalidResponse(_) => {
                "check that the settings name an embedding model and its dimensions"
            }
        };
        Some(hint.to_owned())
    }
}

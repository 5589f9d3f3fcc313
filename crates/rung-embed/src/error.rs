//! Why a text has no vector.

use std::path::Path;

use rung_fault::{Code, Coded};

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a text has no vector. No error has an address or the place of a folder: whoever named them knows them, and others need not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A folder or a file that is no model, or none that is understood.
    #[error("{file} is not of a model that can be used: {why}")]
    Model {
        /// Which one, without where it is.
        file: String,
        /// Why not.
        why: String,
    },
    /// An endpoint that cannot be asked as it is said.
    #[error("the endpoint cannot be used: {0}")]
    Setting(String),
    /// The key of an endpoint is not where it should be.
    #[error("the key of the endpoint cannot be read: {0}")]
    Key(String),
    /// The endpoint does not answer.
    #[error("the endpoint could not be asked: {0}")]
    Unreachable(String),
    /// The endpoint does not take the key.
    #[error("the endpoint does not take the key: status {0}")]
    Unauthorized(u16),
    /// The endpoint refuses.
    #[error("the endpoint refused: status {status}{words}")]
    Refused {
        /// What it answered.
        status: u16,
        /// What it said.
        words: String,
    },
    /// The endpoint wants to be asked later, or failed, again and again.
    #[error("the endpoint embeds nothing now: status {status}")]
    Busy {
        /// What it answered last.
        status: u16,
        /// In how many seconds it wants to be asked again.
        seconds: Option<u64>,
    },
    /// The endpoint gave something that is no answer to what was asked.
    #[error("the endpoint gave what are no embeddings: {0}")]
    Odd(String),
    /// There was no time left.
    #[error("the texts were not embedded in time")]
    Late,
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
            Self::Model { .. } | Self::Setting(_) | Self::Key(_) => Code::InvalidSetting,
            Self::Unreachable(_) => Code::SourceUnavailable,
            Self::Unauthorized(_) => Code::SourceUnauthorized,
            Self::Refused { .. } => Code::SourceRefused,
            Self::Busy { .. } | Self::Odd(_) => Code::SourceFailed,
            Self::Late => Code::DeadlineExceeded,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Model { .. } => {
                "a model is a folder with tokenizer.json and model.safetensors, and config.json where it is a BERT; see docs/db.md"
            }
            Self::Setting(_) | Self::Key(_) | Self::Unauthorized(_) => {
                "see url, model, key_env and key_file in the settings"
            }
            Self::Unreachable(_) => "see that the endpoint runs, then do it again",
            Self::Busy {
                seconds: Some(seconds),
                ..
            } => return Some(format!("do it again in {seconds} seconds")),
            Self::Busy { .. } => "do it again later",
            Self::Late => "give it more time, or embed fewer texts at once",
            Self::Refused { .. } | Self::Odd(_) => {
                "see that the settings name a model of embeddings, and its dimensions"
            }
        };
        Some(hint.to_owned())
    }
}

//! What can go wrong with a store.

use std::io;
use std::path::PathBuf;

use rung_fault::{Code, Coded};

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such result for this caller under this grant: never was, expired, or somebody else's.
    #[error("no result has this handle")]
    ResultAbsent,
    /// A single result that is larger than everything the caller may keep.
    #[error("the result is larger than the {max_bytes} bytes that may be kept for one caller")]
    ResultTooLarge {
        /// What may be kept.
        max_bytes: u64,
    },
    /// A result of which a part was lost on its way in, or that came in too slowly.
    #[error("the result did not come in whole and was given up")]
    ResultAbandoned,
    /// No room on the disk.
    #[error("the disk is full; nothing was stored")]
    DiskFull,
    /// The folder holds a format that is not ours to read.
    #[error("the data folder has format {found}; this program reads format {supported}")]
    Format {
        /// What is there.
        found: u32,
        /// What we read.
        supported: u32,
    },
    /// The folder is of another program, or of another version of the engine.
    #[error("the folder was written by another program or another version of the engine")]
    Foreign,
    /// The folder is open in this process already.
    #[error("the data folder is open in this process already")]
    Open,
    /// A file or folder could not be used.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another user owns a file or folder of ours.
    #[error("{path} belongs to another user (uid {owner})", path = path.display())]
    Owner {
        /// Which.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Whose it must be.
        user: u32,
        /// Whether it is a folder.
        is_folder: bool,
    },
    /// Other users may have written a file or folder of ours.
    #[error("{path} can be written by other users (mode {mode:o})", path = path.display())]
    Writable {
        /// Which.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// Whether it is a folder.
        is_folder: bool,
    },
    /// The engine failed.
    #[error("the storage engine failed: {0}")]
    Engine(heed::Error),
    /// A row does not look as we write it.
    #[error("the store holds a {0} that cannot be read")]
    Corrupt(&'static str),
    /// A key, value, type, range or operation that is not one; it says why.
    #[error("{0}")]
    Invalid(String),
    /// The folder was opened to be read.
    #[error("the store is open for reading only")]
    ReadOnly,
    /// No room for another table.
    #[error("the folder has as many tables as it may have")]
    TablesFull,
    /// What comes in could not be read from its source.
    #[error("the result could not be read from its source: {0}")]
    Source(io::Error),
    /// The system gave no randomness.
    #[error("the system has no randomness to give")]
    NoRandomness,
    /// The reading itself was refused.
    #[error(transparent)]
    Ladder(#[from] rung_ladder::Error),
}

/// An error of whoever works upon the store, in which one of the store's may be.
pub trait Failure: From<Error> {
    /// The store's error, or this one where it is none.
    fn of_store(self) -> Result<Error, Self>;
}

impl Failure for Error {
    fn of_store(self) -> Result<Error, Self> {
        Ok(self)
    }
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::ResultAbsent => Code::NotFound,
            Self::ResultTooLarge { .. } => Code::ResultTooLarge,
            Self::ResultAbandoned => Code::DeadlineExceeded,
            Self::DiskFull | Self::TablesFull => Code::StoreFull,
            Self::Format { .. } | Self::Foreign => Code::StoreFormat,
            Self::Open => Code::StoreBusy,
            Self::File { .. }
            | Self::Owner { .. }
            | Self::Writable { .. }
            | Self::Engine(_)
            | Self::Corrupt(_) => Code::StoreBroken,
            Self::Invalid(_) => Code::InvalidRequest,
            Self::ReadOnly => Code::WritesDisabled,
            Self::Source(_) => Code::SourceFailed,
            Self::NoRandomness => Code::Internal,
            Self::Ladder(error) => error.code(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::ResultAbsent => Some(
                "results expire; repeat the call that gave the handle to get a new one".to_owned(),
            ),
            Self::ResultTooLarge { .. } => {
                Some("ask for less at once, or raise results.max_bytes".to_owned())
            }
            Self::DiskFull => Some("free some space in the data folder, then try again".to_owned()),
            Self::Format { .. } => Some(
                "use the version of rung that wrote it, or another folder with RUNG_HOME"
                    .to_owned(),
            ),
            Self::File { .. } => {
                Some("see to the folder's permissions, or use another with RUNG_HOME".to_owned())
            }
            Self::Owner {
                path,
                user,
                is_folder,
                ..
            } => {
                let all = if *is_folder { "-R " } else { "" };
                let path = path.display();
                Some(format!(
                    "if its content is yours, run `chown {all}{user} {path}`, or use another folder with RUNG_HOME"
                ))
            }
            Self::Writable {
                path, is_folder, ..
            } => {
                let mode = if *is_folder { 700 } else { 600 };
                let path = path.display();
                Some(format!(
                    "if its content is yours, run `chmod {mode} {path}`, or use another folder with RUNG_HOME"
                ))
            }
            Self::Foreign => Some(
                "let the program that wrote it write it as text, and take that in with `rung db import`"
                    .to_owned(),
            ),
            Self::TablesFull => Some("drop a table that is not needed, then try again".to_owned()),
            Self::ResultAbandoned => Some("store it again".to_owned()),
            Self::Ladder(error) => error.hint(),
            Self::Open
            | Self::Engine(_)
            | Self::Corrupt(_)
            | Self::Invalid(_)
            | Self::ReadOnly
            | Self::Source(_)
            | Self::NoRandomness => None,
        }
    }
}

impl From<heed::Error> for Error {
    fn from(error: heed::Error) -> Self {
        let errno = match &error {
            heed::Error::Io(error) => error.raw_os_error(),
            heed::Error::Mdb(heed::MdbError::Other(errno)) => Some(*errno),
            heed::Error::Mdb(heed::MdbError::DbsFull) => return Self::TablesFull,
            heed::Error::EnvAlreadyOpened => return Self::Open,
            heed::Error::Mdb(heed::MdbError::VersionMismatch | heed::MdbError::Invalid) => {
                return Self::Foreign;
            }
            _ => None,
        };
        match errno.map(|errno| io::Error::from_raw_os_error(errno).kind()) {
            Some(
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge,
            ) => Self::DiskFull,
            _ => Self::Engine(error),
        }
    }
}

//! Errors of the store.

use std::io;
use std::path::PathBuf;

use rung_fault::{Code, Coded};

/// [`std::result::Result`] with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why the store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This caller has no such result under this grant: it never existed, expired, or belongs to another caller.
    #[error("no result has this handle")]
    ResultAbsent,
    /// A single result that is larger than all that the caller may store.
    #[error(
        "the result is larger than the {max_bytes} bytes that the store may hold for one caller"
    )]
    ResultTooLarge {
        /// The limit.
        max_bytes: u64,
    },
    /// A part of the result could not be written, or the result came in too slowly.
    #[error("the result did not arrive completely and was discarded")]
    ResultAbandoned,
    /// No room on the disk.
    #[error("the disk is full; nothing was stored")]
    DiskFull,
    /// The folder has a format that this program cannot read.
    #[error("the data folder has format {found}; this program reads format {supported}")]
    Format {
        /// The format of the folder.
        found: u32,
        /// The format that this program reads.
        supported: u32,
    },
    /// The folder was written by another program, or by another version of the engine.
    #[error("the folder was written by another program or another version of the engine")]
    ForeignFormat,
    /// The folder is open in this process already.
    #[error("the data folder is open in this process already")]
    Open,
    /// A file or folder could not be used.
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: io::Error },
    /// Another user owns a file or folder of the data folder.
    #[error("{path} belongs to another user (uid {owner})", path = path.display())]
    Owner {
        path: PathBuf,
        /// The uid of the owner.
        owner: u32,
        /// The uid of the current user.
        user: u32,
        /// True if `path` is a folder.
        is_folder: bool,
    },
    /// Other users may have written a file or folder of the data folder.
    #[error("{path} can be written by other users (mode {mode:o})", path = path.display())]
    Writable {
        path: PathBuf,
        /// The permission bits.
        mode: u32,
        /// True if `path` is a folder.
        is_folder: bool,
    },
    /// The engine failed.
    #[error("the storage engine failed: {0}")]
    Engine(heed::Error),
    /// A row is not in the expected format.
    #[error("the store holds a {0} that cannot be read")]
    Corrupt(&'static str),
    /// A key, value, type, range or operation is not valid; the message says why.
    #[error("{0}")]
    Invalid(String),
    /// The folder was opened for reading only.
    #[error("the store is open for reading only")]
    ReadOnly,
    /// The folder has no space for another table.
    #[error("the folder has the maximum number of tables")]
    TablesFull,
    /// The incoming result could not be read from its source.
    #[error("the result could not be read from its source: {0}")]
    Source(io::Error),
    /// The system gave no randomness.
    #[error("the system's random number generator failed")]
    NoRandomness,
    /// The ladder refused the reading.
    #[error(transparent)]
    Ladder(#[from] rung_ladder::Error),
}

/// An error type of code that uses the store, which may wrap one of the store's errors.
pub trait Failure: From<Error> {
    /// Returns the store's error, or `self` if it is another one.
    fn into_store_error(self) -> Result<Error, Self>;
}

impl Failure for Error {
    fn into_store_error(self) -> Result<Error, Self> {
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
            Self::Format { .. } | Self::ForeignFormat => Code::StoreFormat,
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
                "results expire; repeat the call that returned the handle to get a new one. A handle that a downstream server returned is read with that server's own tools"
                    .to_owned(),
            ),
            Self::ResultTooLarge { .. } => {
                Some("request less at once, or raise results.max_bytes".to_owned())
            }
            Self::DiskFull => Some("free disk space for the data folder, then try again".to_owned()),
            Self::Format { .. } => Some(
                "use the version of rung that wrote it, or another folder with RUNG_HOME"
                    .to_owned(),
            ),
            Self::File { .. } => {
                Some("correct the folder's permissions, or use another folder with RUNG_HOME".to_owned())
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
            Self::ForeignFormat => Some(
                "export it as text with the program that wrote it, and import that with `rung db import`"
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
                return Self::ForeignFormat;
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

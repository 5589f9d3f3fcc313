//! Files that people edit: read with a size limit, recorded as snapshots, and polled for changes.
//!
//! The metadata of a snapshot is taken before the file is read, so a change during the read is detected by the next poll.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rung_fault::{Code, Coded};
use sha2::{Digest as _, Sha256};

/// Maximum file size. A link to an endless device must not block the reader.
const MAX_BYTES: u64 = 4 << 20;

/// A problem in a file, with its position where known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub file: PathBuf,
    /// One-based line and column, where known.
    pub position: Option<(u64, u64)>,
    pub reason: String,
}

impl Problem {
    pub(crate) fn new(file: &Path, reason: impl fmt::Display) -> Self {
        Self {
            file: file.to_owned(),
            position: None,
            reason: reason.to_string(),
        }
    }

    /// Converts a JSON error, without the position that its message repeats.
    pub(crate) fn in_json(file: &Path, error: &serde_json::Error) -> Self {
        let (line, column) = (error.line() as u64, error.column() as u64);
        let reason = error.to_string();
        let suffix = format!(" at line {line} column {column}");
        Self {
            file: file.to_owned(),
            position: (line > 0).then_some((line, column)),
            reason: reason.strip_suffix(&suffix).unwrap_or(&reason).to_owned(),
        }
    }

    /// Converts a YAML error, without the source snippet that its message includes.
    pub(crate) fn in_yaml(file: &Path, error: &serde_saphyr::Error) -> Self {
        let error = error.without_snippet();
        let position = error.location().map(|place| (place.line(), place.column()));
        let reason = error.to_string();
        // The position is reported once.
        let reason = match (position, reason.rsplit_once(" at line ")) {
            (Some(_), Some((reason, _))) => reason,
            _ => &reason,
        };
        Self {
            position,
            ..Self::new(file, reason)
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some((line, column)) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for Problem {}

impl Coded for Problem {
    fn code(&self) -> Code {
        Code::InvalidSetting
    }
}

/// Metadata that distinguishes two states of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    len: u64,
    modified: Option<SystemTime>,
    /// Inode, so that a replaced file differs, and the time of the last metadata change.
    inode: u64,
    changed: (i64, i64),
}

impl FileStamp {
    fn from_path(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        #[cfg(unix)]
        let (inode, changed) = {
            use std::os::unix::fs::MetadataExt as _;
            (metadata.ino(), (metadata.ctime(), metadata.ctime_nsec()))
        };
        #[cfg(not(unix))]
        let (inode, changed) = (0, (0, 0));
        Some(Self {
            len: metadata.len(),
            modified: metadata.modified().ok(),
            inode,
            changed,
        })
    }
}

/// A file as it was when last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSnapshot {
    pub path: PathBuf,
    /// The digest of the content; `None` if the file was absent or could not be read.
    pub digest: Option<String>,
    stamp: Option<FileStamp>,
}

impl FileSnapshot {
    /// Returns true if the file did not exist.
    pub fn is_absent(&self) -> bool {
        self.stamp.is_none()
    }

    fn read_with_bytes(path: &Path) -> (Self, io::Result<Vec<u8>>) {
        let stamp = FileStamp::from_path(path);
        let bytes = read_bytes(path);
        let digest = bytes.as_ref().ok().map(|bytes| digest(bytes));
        let path = path.to_owned();
        (
            Self {
                path,
                digest,
                stamp,
            },
            bytes,
        )
    }
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a named pipe would block until something writes to it.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("is not a file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!(
            "is longer than {MAX_BYTES} bytes"
        )));
    }
    Ok(bytes)
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    format!(
        "sha256:{}",
        data_encoding::HEXLOWER.encode(&Sha256::digest(bytes))
    )
}

/// Reads a file as text. An absent file gives `None`.
pub(crate) fn read_text(path: &Path) -> (FileSnapshot, Result<Option<String>, Problem>) {
    let (seen, bytes) = FileSnapshot::read_with_bytes(path);
    let text = match bytes {
        Ok(bytes) => match String::from_utf8(bytes) {
            // Some editors write a byte order mark.
            Ok(text) => Ok(Some(match text.strip_prefix('\u{feff}') {
                Some(rest) => rest.to_owned(),
                None => text,
            })),
            Err(_) => Err(Problem::new(path, "is not UTF-8")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Problem::new(path, error)),
    };
    (seen, text)
}

/// Detects changes of files since they were read. Cheap enough to poll every second.
#[derive(Debug, Clone)]
pub struct FileWatch(Vec<FileSnapshot>);

impl FileWatch {
    /// Creates a watch that compares with these snapshots.
    pub fn new(files: impl IntoIterator<Item = FileSnapshot>) -> Self {
        Self(files.into_iter().collect())
    }

    /// Returns true if the content of any file changed since the last call. A file is read only where its time, length or
    /// inode changed.
    pub fn has_changed(&mut self) -> bool {
        let mut changed = false;
        for seen in &mut self.0 {
            if FileStamp::from_path(&seen.path) == seen.stamp {
                continue;
            }
            let (now, _) = FileSnapshot::read_with_bytes(&seen.path);
            changed |= now.digest != seen.digest;
            *seen = now;
        }
        changed
    }
}

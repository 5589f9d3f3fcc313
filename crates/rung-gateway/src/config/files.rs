//! Files of people's own making: read with bounds, remembered as they were, and watched.
//!
//! What is remembered of a file is taken before it is read. A change that comes while we read is then seen as one
//! later on, never lost.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rung_fault::{Code, Coded};
use sha2::{Digest as _, Sha256};

/// More than any such file has; a link to an endless device must not hold us up.
const MAX_BYTES: u64 = 4 << 20;

/// What is wrong with a file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Which file.
    pub file: PathBuf,
    /// The line and the column, from one, where they are known.
    pub place: Option<(u64, u64)>,
    /// What is wrong.
    pub reason: String,
}

impl Problem {
    pub(crate) fn new(file: &Path, reason: impl fmt::Display) -> Self {
        Self {
            file: file.to_owned(),
            place: None,
            reason: reason.to_string(),
        }
    }

    /// What the reader of JSON found, without the place that it repeats.
    pub(crate) fn in_json(file: &Path, error: &serde_json::Error) -> Self {
        let (line, column) = (error.line() as u64, error.column() as u64);
        let reason = error.to_string();
        let suffix = format!(" at line {line} column {column}");
        Self {
            file: file.to_owned(),
            place: (line > 0).then_some((line, column)),
            reason: reason.strip_suffix(&suffix).unwrap_or(&reason).to_owned(),
        }
    }

    /// What the reader of YAML found, without the lines around it that it adds.
    pub(crate) fn in_yaml(file: &Path, error: &serde_saphyr::Error) -> Self {
        let error = error.without_snippet();
        let place = error.location().map(|place| (place.line(), place.column()));
        let reason = error.to_string();
        // The place is told once.
        let reason = match (place, reason.rsplit_once(" at line ")) {
            (Some(_), Some((reason, _))) => reason,
            _ => &reason,
        };
        Self {
            place,
            ..Self::new(file, reason)
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some((line, column)) = self.place {
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

/// What tells two states of a file apart without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    len: u64,
    modified: Option<SystemTime>,
    /// Of the file itself, so that one put in its place is another; and when any of this last changed.
    inode: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
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

/// A file as it was when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Which file.
    pub path: PathBuf,
    /// The digest of its bytes, or nothing where it was not there or could not be read.
    pub digest: Option<String>,
    stamp: Option<Stamp>,
}

impl Seen {
    /// Whether there was no such file.
    pub fn is_absent(&self) -> bool {
        self.stamp.is_none()
    }

    fn look(path: &Path) -> (Self, io::Result<Vec<u8>>) {
        let stamp = Stamp::of(path);
        let bytes = bytes_of(path);
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

fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe would wait for whoever writes to it.
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

/// Reads a file, where it is there.
pub(crate) fn read(path: &Path) -> (Seen, Result<Option<String>, Problem>) {
    let (seen, bytes) = Seen::look(path);
    let text = match bytes {
        Ok(bytes) => match String::from_utf8(bytes) {
            // Some editors begin a file with a mark that is no part of it.
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

/// Tells whether files changed since they were read. Cheap enough to ask every second.
#[derive(Debug, Clone)]
pub struct Watch(Vec<Seen>);

impl Watch {
    /// Watches files from what was seen of them on.
    pub fn new(files: impl IntoIterator<Item = Seen>) -> Self {
        Self(files.into_iter().collect())
    }

    /// Whether the bytes of any of them are others than when they were last looked at. A file is read only where its
    /// time, length or place on the disk changed.
    pub fn changed(&mut self) -> bool {
        let mut changed = false;
        for seen in &mut self.0 {
            if Stamp::of(&seen.path) == seen.stamp {
                continue;
            }
            let (now, _) = Seen::look(&seen.path);
            changed |= now.digest != seen.digest;
            *seen = now;
        }
        changed
    }
}

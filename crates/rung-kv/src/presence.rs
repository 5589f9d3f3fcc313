//! The processes on the data folder. Each holds a lock on a file; the system releases it however the process ends.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use data_encoding::BASE32_NOPAD;
use rustix::fs::{FlockOperation, flock};

use crate::home::file_error;
use crate::{Error, Home, Result};

/// This process's entry among the processes on the data folder.
#[derive(Debug)]
pub struct Presence {
    name: String,
    folder: PathBuf,
    /// Locked; the system releases the lock when the process ends.
    _held: File,
}

impl Presence {
    /// Registers this process. Deletes the files of processes that have ended.
    pub fn register(home: &Home) -> Result<Self> {
        let folder = home.folder("processes")?;
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(|_| Error::NoRandomness)?;
        let name = BASE32_NOPAD.encode(&bits).to_lowercase();
        for entry in fs::read_dir(&folder)
            .map_err(file_error(&folder))?
            .flatten()
        {
            let unfinished = entry.file_name().as_encoded_bytes().starts_with(b".");
            if !unfinished && !is_locked(&entry.path()) {
                let _somebody_else_did = fs::remove_file(entry.path());
            }
        }
        // Locked before it gets its final name, so that no process finds it unlocked.
        let path = folder.join(format!(".{name}"));
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let held = options.open(&path).map_err(file_error(&path))?;
        flock(&held, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| file_error(&path)(error.into()))?;
        fs::rename(&path, folder.join(&name)).map_err(file_error(&path))?;
        Ok(Self {
            name,
            folder,
            _held: held,
        })
    }

    /// Returns the name of this process, which is never used again.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the process of that name is running.
    pub fn is_running(&self, name: &str) -> bool {
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric());
        plain && (name == self.name || is_locked(&self.folder.join(name)))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let _best_effort = fs::remove_file(self.folder.join(&self.name));
    }
}

/// Returns true if a process holds the lock on the file.
fn is_locked(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    flock(&file, FlockOperation::NonBlockingLockShared).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_here_for_as_long_as_it_holds_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path()).unwrap();
        let (one, other) = (
            Presence::register(&home).unwrap(),
            Presence::register(&home).unwrap(),
        );
        assert!(
            one.is_running(other.name())
                && other.is_running(one.name())
                && one.is_running(one.name())
        );
        for never in ["", "nobody", "../store", "."] {
            assert!(!one.is_running(never), "{never:?}");
        }
        let gone = other.name().to_owned();
        drop(other);
        assert!(!one.is_running(&gone));
    }
}

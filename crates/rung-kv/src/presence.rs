//! Which processes are here: each holds a file locked for as long as it lives, however it ends.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use data_encoding::BASE32_NOPAD;
use rustix::fs::{FlockOperation, flock};

use crate::home::at;
use crate::{Error, Home, Result};

/// This process, among those on the data folder.
#[derive(Debug)]
pub struct Presence {
    name: String,
    folder: PathBuf,
    /// Locked; the system lets go of it when the process ends.
    _held: File,
}

impl Presence {
    /// Makes this process known. What processes that are gone left behind is cleared away.
    pub fn announce(home: &Home) -> Result<Self> {
        let folder = home.folder("processes")?;
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(|_| Error::NoRandomness)?;
        let name = BASE32_NOPAD.encode(&bits).to_lowercase();
        for entry in fs::read_dir(&folder).map_err(at(&folder))?.flatten() {
            let unfinished = entry.file_name().as_encoded_bytes().starts_with(b".");
            if !unfinished && !is_held(&entry.path()) {
                let _somebody_else_did = fs::remove_file(entry.path());
            }
        }
        // Locked before it has its name, so that nobody finds it unlocked.
        let path = folder.join(format!(".{name}"));
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let held = options.open(&path).map_err(at(&path))?;
        flock(&held, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| at(&path)(error.into()))?;
        fs::rename(&path, folder.join(&name)).map_err(at(&path))?;
        Ok(Self {
            name,
            folder,
            _held: held,
        })
    }

    /// What this process is known by. No other process ever is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the process of that name is here.
    pub fn is_here(&self, name: &str) -> bool {
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric());
        plain && (name == self.name || is_held(&self.folder.join(name)))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let _best_effort = fs::remove_file(self.folder.join(&self.name));
    }
}

/// Whether somebody holds the file.
fn is_held(path: &Path) -> bool {
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
            Presence::announce(&home).unwrap(),
            Presence::announce(&home).unwrap(),
        );
        assert!(one.is_here(other.name()) && other.is_here(one.name()) && one.is_here(one.name()));
        for never in ["", "nobody", "../store", "."] {
            assert!(!one.is_here(never), "{never:?}");
        }
        let gone = other.name().to_owned();
        drop(other);
        assert!(!one.is_here(&gone));
    }
}

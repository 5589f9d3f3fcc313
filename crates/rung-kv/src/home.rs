//! The data folder, which holds all of Rung's files and is readable by its owner alone.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rung_ladder::CursorKey;

use crate::{Error, Result};

/// The data folder.
#[derive(Debug, Clone)]
pub struct Home(PathBuf);

impl Home {
    /// Opens the folder at `path`. Creates it if it is missing, and restricts its files to the owner. A folder or a file that
    /// another user owns or may have written is rejected, and left unchanged.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let home = Self(path.into());
        make_private_folder(&home.0)?;
        #[cfg(unix)]
        crate::permissions::restrict(&home.0)?;
        Ok(home)
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the folder of the key-value store.
    pub fn store(&self) -> Result<PathBuf> {
        self.folder("store")
    }

    /// Returns a subfolder. Creates it if it is missing.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        make_private_folder(&path)?;
        Ok(path)
    }

    /// Returns the key that seals cursors. It is created on first use, and shared by all processes on the folder.
    pub fn cursor_key(&self) -> Result<CursorKey> {
        self.key("cursor.key").map(CursorKey::new)
    }

    /// Returns the key that seals the state that a client carries between two requests.
    pub fn request_key(&self) -> Result<[u8; 32]> {
        self.key("request.key")
    }

    fn key(&self, name: &'static str) -> Result<[u8; 32]> {
        let path = self.0.join(name);
        if let Some(key) = read_key(&path)? {
            return Ok(key);
        }
        // Written to a temporary file and moved into place unless a key exists: the first process wins, and no process reads
        // half a key. Temporary files are readable by their owner alone.
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|_| Error::NoRandomness)?;
        let mut aside = tempfile::NamedTempFile::new_in(&self.0).map_err(file_error(&path))?;
        aside.write_all(&bytes).map_err(file_error(&path))?;
        aside.as_file().sync_all().map_err(file_error(&path))?;
        match aside.persist_noclobber(&path) {
            Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => {
                Err(file_error(&path)(error.error))
            }
            _ => read_key(&path)?.ok_or(Error::Corrupt("key")),
        }
    }
}

fn read_key(path: &Path) -> Result<Option<[u8; 32]>> {
    match fs::read(path) {
        Ok(bytes) => match bytes.try_into() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(_) => Err(Error::Corrupt("key")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error(path)(error)),
    }
}

fn make_private_folder(path: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(file_error(path))
}

pub(crate) fn file_error(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
    |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull,
        _ => Error::File {
            path: path.to_owned(),
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_ladder::{Binding, CursorTarget, Position};

    #[test]
    fn the_key_is_made_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path().join("deep/er")).unwrap();
        let binding = Binding {
            subject: "s",
            field: "",
            digest: "d",
            grant: "g",
        };
        let position = Position {
            target: CursorTarget::Text(rung_ladder::Path::root()),
            offset: 1,
            limit_chars: 2,
            shortcut: None,
        };
        let keys: Vec<CursorKey> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| home.cursor_key().unwrap()))
                .collect();
            makers
                .into_iter()
                .map(|maker| maker.join().unwrap())
                .collect()
        });
        let cursor = keys[0].seal(&binding, &position);
        for key in &keys {
            assert_eq!(key.open(cursor.as_str(), &binding), Ok(position.clone()));
        }
        let files: Vec<_> = fs::read_dir(home.path()).unwrap().collect();
        assert_eq!(files.len(), 1, "nothing is left aside");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(&home.path().join("cursor.key")), 0o600);
            assert_eq!(mode(home.path()), 0o700);
        }
    }

    #[test]
    fn a_damaged_key_is_reported_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path()).unwrap();
        fs::write(dir.path().join("cursor.key"), b"short").unwrap();
        assert!(matches!(home.cursor_key(), Err(Error::Corrupt(_))));
    }
}

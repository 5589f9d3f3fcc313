//! Restricts the files in the data folder to their owner.
//!
//! Everything is checked before anything is changed, so that a rejected folder stays unchanged. Only files that this
//! program writes are changed: a folder that was given by mistake may hold others.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::home::file_error;
use crate::{Error, Result};

/// The subfolders of the data folder. All files in them are Rung's.
const FOLDERS: [&str; 4] = ["store", "processes", "ingest", "models"];

fn is_our_file(name: &str) -> bool {
    name.starts_with("records.sqlite")
        || name.starts_with("gateway-")
        || matches!(name, "cursor.key" | "request.key" | "disclosures.journal")
}

/// Restricts the data folder to its owner.
pub(crate) fn restrict(home: &Path) -> Result<()> {
    let mut plan = PermissionPlan::default();
    let metadata = fs::metadata(home).map_err(file_error(home))?;
    // If others may write to the folder, they may have replaced any file.
    plan.add(home, &metadata, true)?;
    let is_open = is_enterable(&metadata);
    for (path, metadata) in entries(home)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name else {
            continue;
        };
        if metadata.is_dir() && FOLDERS.contains(&name) {
            plan.add_folder(&path, &metadata, is_open)?;
        } else if !metadata.is_dir() && is_our_file(name) {
            plan.add(&path, &metadata, is_open)?;
        }
    }
    plan.apply()
}

/// Returns true if other users can access files in a folder.
fn is_enterable(metadata: &Metadata) -> bool {
    metadata.mode() & 0o011 != 0
}

/// Returns the entries of a folder; links are followed. Entries that are removed meanwhile are skipped.
fn entries(folder: &Path) -> Result<Vec<(PathBuf, Metadata)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(file_error(folder))? {
        let path = entry.map_err(file_error(folder))?.path();
        match fs::metadata(&path) {
            Ok(metadata) => found.push((path, metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(file_error(&path)(error)),
        }
    }
    Ok(found)
}

/// The modes to set, the outermost folder first.
#[derive(Default)]
struct PermissionPlan(Vec<(PathBuf, u32)>);

impl PermissionPlan {
    /// Checks one file or folder. `is_open` is true if other users could access it.
    fn add(&mut self, path: &Path, metadata: &Metadata, is_open: bool) -> Result<()> {
        let user = geteuid().as_raw();
        let is_folder = metadata.is_dir();
        if metadata.uid() != user {
            return Err(Error::Owner {
                path: path.to_owned(),
                owner: metadata.uid(),
                user,
                is_folder,
            });
        }
        let mode = metadata.mode() & 0o7777;
        if is_open && mode & 0o022 != 0 {
            return Err(Error::Writable {
                path: path.to_owned(),
                mode,
                is_folder,
            });
        }
        let wanted = if is_folder { 0o700 } else { 0o600 };
        if mode != wanted {
            self.0.push((path.to_owned(), wanted));
        }
        Ok(())
    }

    /// Checks a folder with everything in it. A folder that a link leads to is outside the data folder, and is not changed.
    fn add_folder(&mut self, folder: &Path, metadata: &Metadata, is_open: bool) -> Result<()> {
        self.add(folder, metadata, is_open)?;
        let is_open = is_open && is_enterable(metadata);
        for (path, metadata) in entries(folder)? {
            if !metadata.is_dir() {
                self.add(&path, &metadata, is_open)?;
            } else if !path.is_symlink() {
                self.add_folder(&path, &metadata, is_open)?;
            }
        }
        Ok(())
    }

    fn apply(self) -> Result<()> {
        for (path, mode) in self.0 {
            match fs::set_permissions(&path, Permissions::from_mode(mode)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(file_error(&path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

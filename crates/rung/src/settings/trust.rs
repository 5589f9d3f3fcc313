//! The project file and its approval by the user.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rung_fault::{Code, Fault};
use sha2::{Digest as _, Sha256};

use super::layers::{SettingsInput, read_optional};

/// A project file, as read.
#[derive(Debug)]
pub(crate) struct ProjectFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl ProjectFile {
    /// Returns the digest of the exact bytes, which an approval names.
    pub(crate) fn digest(&self) -> String {
        let digest = Sha256::digest(self.text.as_bytes());
        format!("sha256:{}", data_encoding::HEXLOWER.encode(&digest))
    }
}

/// Finds the nearest `rung.toml` at or above the working folder, but not above the home folder. Also returns the files that
/// were ignored on the way.
///
/// Outside the home folder the search goes up to the root. A file of another user is ignored: on a shared machine anyone can
/// create one in a parent folder.
pub(super) fn find_project(
    given: &SettingsInput,
) -> Result<(Option<ProjectFile>, Vec<PathBuf>), Fault> {
    let mut passed_over = Vec::new();
    for folder in given.working_folder.ancestors() {
        let path = folder.join("rung.toml");
        if is_ours(&path) {
            if let Some(text) = read_optional(&path)? {
                return Ok((Some(ProjectFile { path, text }), passed_over));
            }
        } else if fs::symlink_metadata(&path).is_ok() {
            passed_over.push(path);
        }
        if Some(folder) == given.user_home.as_deref() {
            break;
        }
    }
    Ok((None, passed_over))
}

#[cfg(unix)]
fn is_ours(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let user = rustix::process::geteuid().as_raw();
    // Check the owner of a symbolic link itself, who chose its target.
    fs::symlink_metadata(path).is_ok_and(|file| file.uid() == user)
}

#[cfg(not(unix))]
fn is_ours(path: &Path) -> bool {
    path.exists()
}

/// Approvals of this user: digests by file path.
#[derive(Debug)]
pub(crate) struct ProjectApprovals {
    path: PathBuf,
    approved: BTreeMap<String, String>,
}

impl ProjectApprovals {
    /// Reads the approvals.
    pub(crate) fn load(given: &SettingsInput) -> Result<Self, Fault> {
        let unknown = || {
            Fault::new(
                Code::InvalidSetting,
                "the user's configuration folder is not known",
            )
            .with_hint("set HOME")
        };
        let path = given
            .user_file()
            .ok_or_else(unknown)?
            .with_file_name("trust.toml");
        let approved = match read_optional(&path)? {
            None => BTreeMap::new(),
            Some(text) => toml::from_str(&text).map_err(|error| {
                Fault::new(
                    Code::InvalidSetting,
                    format!("{}: {}", path.display(), error.message()),
                )
                .with_hint("remove the file and approve again with `rung config trust`")
            })?,
        };
        Ok(Self { path, approved })
    }

    /// Returns true if the user approved this file with its current bytes.
    pub(crate) fn is_approved(&self, project: &ProjectFile) -> bool {
        self.approved.get(&approval_key(project)) == Some(&project.digest())
    }

    /// Approves a project file, or revokes the approval.
    pub(crate) fn set_approved(
        &mut self,
        project: &ProjectFile,
        approve: bool,
    ) -> Result<(), Fault> {
        if approve {
            self.approved
                .insert(approval_key(project), project.digest());
        } else {
            self.approved.remove(&approval_key(project));
        }
        self.save().map_err(|error| {
            Fault::new(
                Code::StoreBroken,
                format!("{}: {error}", self.path.display()),
            )
        })
    }

    /// Writes a temporary file and renames it: a crash leaves either the old or the new approvals.
    fn save(&self) -> std::io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(folder)?;
        let text = toml::to_string(&self.approved).map_err(std::io::Error::other)?;
        let mut aside = tempfile::NamedTempFile::new_in(folder)?;
        aside.write_all(text.as_bytes())?;
        aside.as_file().sync_all()?;
        aside.persist(&self.path)?;
        Ok(())
    }
}

/// Returns the key of a project: the path where its file was found, since a link to an approved file would change the meaning
/// of relative folders.
fn approval_key(project: &ProjectFile) -> String {
    project.path.to_string_lossy().into_owned()
}

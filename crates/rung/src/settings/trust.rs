//! The project file, and whether the user has approved it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rung_fault::{Code, Fault};
use sha2::{Digest as _, Sha256};

use super::layers::{Given, read_if_there};

/// A project file as it was read.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Project {
    /// The digest that an approval names: of the exact bytes.
    pub(crate) fn digest(&self) -> String {
        let digest = Sha256::digest(self.text.as_bytes());
        format!("sha256:{}", data_encoding::HEXLOWER.encode(&digest))
    }
}

/// The nearest `rung.toml` at or above the current folder, never above the user's own folder; and those that
/// were passed over on the way.
///
/// Elsewhere on the disk the search goes up to the root. A file that belongs to somebody else is passed
/// over: on a shared machine anybody can put one into a folder above ours.
pub(super) fn find_project(given: &Given) -> Result<(Option<Project>, Vec<PathBuf>), Fault> {
    let mut passed_over = Vec::new();
    for folder in given.folder.ancestors() {
        let path = folder.join("rung.toml");
        if is_ours(&path) {
            if let Some(text) = read_if_there(&path)? {
                return Ok((Some(Project { path, text }), passed_over));
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
    // Of the link, where it is one: whoever made it chose what it leads to.
    fs::symlink_metadata(path).is_ok_and(|file| file.uid() == user)
}

#[cfg(not(unix))]
fn is_ours(path: &Path) -> bool {
    path.exists()
}

/// The approvals of this user: which file, with which bytes.
#[derive(Debug)]
pub(crate) struct Trust {
    path: PathBuf,
    approved: BTreeMap<String, String>,
}

impl Trust {
    /// Reads them.
    pub(crate) fn of(given: &Given) -> Result<Self, Fault> {
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
        let approved = match read_if_there(&path)? {
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

    /// Whether the user approved this file as it is now.
    pub(crate) fn approves(&self, project: &Project) -> bool {
        self.approved.get(&name(project)) == Some(&project.digest())
    }

    /// Approves it, or takes the approval back.
    pub(crate) fn set(&mut self, project: &Project, approve: bool) -> Result<(), Fault> {
        if approve {
            self.approved.insert(name(project), project.digest());
        } else {
            self.approved.remove(&name(project));
        }
        self.save().map_err(|error| {
            Fault::new(
                Code::StoreBroken,
                format!("{}: {error}", self.path.display()),
            )
        })
    }

    /// Written aside and renamed: a crash leaves the old approvals or the new ones.
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

/// A project is known by the place where its file is found: a link to an approved file elsewhere would give its
/// relative folders another meaning.
fn name(project: &Project) -> String {
    project.path.to_string_lossy().into_owned()
}

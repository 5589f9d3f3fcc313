//! Finding the root folder of a project.

use std::fs;
use std::path::{Path, PathBuf};

/// Files and folders that mark the root of a project.
const PROJECT_MARKERS: [&str; 5] = [
    super::CONFIG_FILE,
    ".pmcp/manifest.yaml",
    ".git",
    "package.json",
    "pyproject.toml",
];

/// Returns the nearest folder at or above `from` that has a marker of a project. The search ends at the folders in `stops`,
/// which contain projects: the user's home folder and the shared folder for temporary files.
pub fn find_project<'a>(from: &Path, stops: impl IntoIterator<Item = &'a Path>) -> Option<PathBuf> {
    let plain = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let stops: Vec<PathBuf> = stops.into_iter().map(plain).collect();
    let from = plain(from);
    let folders = from
        .ancestors()
        .take_while(|folder| stops.iter().all(|stop| stop != folder));
    let is_root = |folder: &&Path| {
        PROJECT_MARKERS
            .iter()
            .any(|mark| folder.join(mark).exists())
    };
    folders.into_iter().find(is_root).map(Path::to_owned)
}

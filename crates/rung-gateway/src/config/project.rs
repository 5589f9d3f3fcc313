//! Where a project begins.

use std::fs;
use std::path::{Path, PathBuf};

/// What is found at the root of one.
const MARKS: [&str; 5] = [
    super::FILE,
    ".pmcp/manifest.yaml",
    ".git",
    "package.json",
    "pyproject.toml",
];

/// The nearest folder at or above `from` that has the marks of a project. The folders at which the search stops are those
/// in which projects lie: the user's own, and the one for temporary files, which is everybody's.
pub fn find_project<'a>(from: &Path, stops: impl IntoIterator<Item = &'a Path>) -> Option<PathBuf> {
    let plain = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let stops: Vec<PathBuf> = stops.into_iter().map(plain).collect();
    let from = plain(from);
    let folders = from
        .ancestors()
        .take_while(|folder| stops.iter().all(|stop| stop != folder));
    let is_root = |folder: &&Path| MARKS.iter().any(|mark| folder.join(mark).exists());
    folders.into_iter().find(is_root).map(Path::to_owned)
}

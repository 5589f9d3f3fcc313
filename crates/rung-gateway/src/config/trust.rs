//! What the user has approved of the files that come with projects.
//!
//! An approval is of one entry of one file, and holds the entry itself. An edit of the file therefore changes nothing that
//! was approved: it runs on as it was, and the edit waits. An entry that is no longer there is no server, approved or not.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rung_fault::nearest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::files::{Problem, Seen, digest, read};
use super::{Waiting, entry, read_document};

/// The approvals of this user.
pub struct Approvals {
    path: PathBuf,
    kept: Kept,
    problem: Option<Problem>,
    seen: Seen,
    /// Whatever a project has is as approved.
    all: bool,
}

/// As they are written: by file, then by the name of the server.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    approved: BTreeMap<String, BTreeMap<String, Value>>,
}

/// Of which servers of a file.
#[derive(Debug, Clone, Copy)]
pub enum Which<'n> {
    /// All that it names.
    All,
    /// These.
    Named(&'n [String]),
    /// These, as they were shown: one that was edited since is refused.
    Shown(&'n [Waiting]),
}

// Entries may have credentials in them.
impl fmt::Debug for Approvals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.kept.approved.iter();
        let names = names.map(|(file, entries)| (file, entries.keys().collect::<Vec<_>>()));
        f.debug_struct("Approvals")
            .field("path", &self.path)
            .field("approved", &names.collect::<Vec<_>>())
            .field("problem", &self.problem)
            .finish_non_exhaustive()
    }
}

impl Approvals {
    /// Reads them. A file that cannot be read approves nothing; [`problem`](Self::problem) says so.
    pub fn read(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let (seen, text) = read(&path);
        let kept = text.and_then(|text| match text {
            None => Ok(Kept::default()),
            Some(text) => {
                serde_json::from_str(&text).map_err(|error| Problem::in_json(&path, &error))
            }
        });
        let (kept, problem) = match kept {
            Ok(kept) => (kept, None),
            Err(problem) => (Kept::default(), Some(problem)),
        };
        Self {
            path,
            kept,
            problem,
            seen,
            all: false,
        }
    }

    /// The same, with everything that a project has as approved as it is.
    #[must_use]
    pub fn and_all(mut self) -> Self {
        self.all = true;
        self
    }

    pub(super) fn is_all(&self) -> bool {
        self.all
    }

    /// Why nothing is approved.
    pub fn problem(&self) -> Option<&Problem> {
        self.problem.as_ref()
    }

    /// The file of approvals as it was when it was read.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Everything that is approved: the file, the name, and the entry as it was then.
    pub fn list(&self) -> impl Iterator<Item = (&Path, &str, &Value)> {
        self.kept.approved.iter().flat_map(|(file, entries)| {
            let entries = entries.iter();
            entries.map(move |(name, entry)| (Path::new(file), name.as_str(), entry))
        })
    }

    pub(super) fn of(&self, file: &Path) -> Option<&BTreeMap<String, Value>> {
        self.kept.approved.get(&key(file))
    }

    /// Approves servers of a file as it is now, and says which.
    pub fn approve(&mut self, file: &Path, which: Which<'_>) -> Result<Vec<String>, Problem> {
        let (_, text) = read(file);
        let text = text?.ok_or_else(|| Problem::new(file, "is not there"))?;
        let mut problems = Vec::new();
        let document = read_document(file, &text, &mut problems);
        if let Some(problem) = problems.into_iter().next() {
            return Err(problem);
        }
        let entries = document.entries;
        let approved: BTreeMap<String, Value> = match which {
            Which::All => {
                let entries = entries.into_iter();
                entries
                    .filter(|(name, entry)| entry::parse(name, entry).is_ok())
                    .collect()
            }
            Which::Named(names) => {
                let found = names.iter().map(|name| named(file, &entries, name));
                found.collect::<Result<_, _>>()?
            }
            Which::Shown(shown) => {
                let as_shown = |waiting: &Waiting| {
                    let found = named(file, &entries, &waiting.name)?;
                    if digest_of(&found.1) == waiting.digest {
                        return Ok(found);
                    }
                    let reason = format!("`{}` was edited since it was shown", waiting.name);
                    Err(Problem::new(file, reason))
                };
                shown.iter().map(as_shown).collect::<Result<_, _>>()?
            }
        };
        let names = approved.keys().cloned().collect();
        self.change(|kept| {
            let entries = kept.approved.entry(key(file)).or_default();
            match which {
                Which::All => *entries = approved,
                Which::Named(_) | Which::Shown(_) => entries.extend(approved),
            }
        })?;
        Ok(names)
    }

    /// Takes approvals back, and says which.
    pub fn revoke(&mut self, file: &Path, which: Which<'_>) -> Result<Vec<String>, Problem> {
        let mut revoked = Vec::new();
        self.change(|kept| {
            let entries = kept.approved.entry(key(file)).or_default();
            entries.retain(|name, _| {
                let keeps = match which {
                    Which::All => false,
                    Which::Named(names) => !names.contains(name),
                    Which::Shown(shown) => shown.iter().all(|waiting| waiting.name != *name),
                };
                if !keeps {
                    revoked.push(name.clone());
                }
                keeps
            });
            if entries.is_empty() {
                kept.approved.remove(&key(file));
            }
        })?;
        Ok(revoked)
    }

    /// Changes what is on the disk now: another process may have written since we read.
    fn change(&mut self, change: impl FnOnce(&mut Kept)) -> Result<(), Problem> {
        let mut now = Self::read(&self.path);
        if let Some(mut problem) = now.problem {
            problem.reason += "; remove the file and approve again";
            return Err(problem);
        }
        change(&mut now.kept);
        now.save()
            .map_err(|error| Problem::new(&self.path, error))?;
        *self = Self::read(&self.path);
        Ok(())
    }

    /// Written aside and renamed: a crash leaves the old approvals or the new ones.
    fn save(&self) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(folder)?;
        // Such files are their owner's alone from the first byte on.
        let mut aside = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut aside, &self.kept)?;
        aside.write_all(b"\n")?;
        aside.as_file().sync_all()?;
        aside.persist(&self.path)?;
        Ok(())
    }
}

/// The entry of that name, where it is one that can be taken.
fn named(file: &Path, entries: &[(String, Value)], name: &str) -> Result<(String, Value), Problem> {
    let found = entries.iter().find(|(own, _)| own == name);
    let (_, entry) = found.ok_or_else(|| {
        let advice = nearest(name, entries.iter().map(|(name, _)| name.as_str()))
            .map(|known| format!("; did you mean `{known}`?"))
            .unwrap_or_default();
        Problem::new(file, format!("names no server `{name}`{advice}"))
    })?;
    entry::parse(name, entry)
        .map_err(|reason| Problem::new(file, format!("`{name}`: {reason}")))?;
    Ok((name.to_owned(), entry.clone()))
}

/// Of an entry as it is written.
pub(super) fn digest_of(entry: &Value) -> String {
    digest(entry.to_string().as_bytes())
}

/// A file is known by its place, whichever way led there. The file itself may be a link: to follow that would give the
/// folders in an approved entry another meaning.
fn key(file: &Path) -> String {
    let folder = file
        .parent()
        .and_then(|folder| fs::canonicalize(folder).ok());
    let place = match (folder, file.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => file.to_owned(),
    };
    place.to_string_lossy().into_owned()
}

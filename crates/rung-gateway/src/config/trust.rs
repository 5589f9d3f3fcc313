//! What the user has approved of the files that come with projects.
//!
//! An approval is of one entry of one file with the values that the checkout supplies for it, and holds all of them. An edit of
//! the entry or of those values therefore changes nothing that was approved: it runs on as it was, and the edit waits. Values of
//! the user's are bound by their names alone, so that a renewed credential needs no approval. An entry that is no longer there is
//! no server, approved or not.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rung_fault::nearest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::files::{Problem, Seen, read};
use super::variables::{Checkout, Sources, Store, Values, Variables};
use super::{Loaded, Origin, Reason, Spec, Trust, Waiting, entry};

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
    /// The checkout's values that were approved with an entry, where there are any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    values: BTreeMap<String, BTreeMap<String, Values>>,
}

/// One entry as it was approved.
#[derive(Clone, Copy)]
pub(super) struct Approval<'a> {
    entry: &'a Value,
    values: &'a Values,
}

/// Of which servers of a file.
#[derive(Debug, Clone, Copy)]
pub enum Which<'n> {
    /// All that it names.
    All,
    /// These.
    Named(&'n [String]),
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

    pub(super) fn of(&self, file: &Path, name: &str) -> Option<Approval<'_>> {
        let mut all = self.of_file(file);
        all.find_map(|(own, approval)| (own == name).then_some(approval))
    }

    pub(super) fn of_file(&self, file: &Path) -> impl Iterator<Item = (&str, Approval<'_>)> {
        static NONE: Values = Values::new();
        let key = key(file);
        let values = self.kept.values.get(&key);
        let entries = self.kept.approved.get(&key).into_iter().flatten();
        entries.map(move |(name, entry)| {
            let values = values.and_then(|values| values.get(name));
            let values = values.unwrap_or(&NONE);
            (name.as_str(), Approval { entry, values })
        })
    }

    /// Approves entries of a file as they were shown.
    pub fn approve(&mut self, file: &Path, shown: &[&Waiting]) -> Result<(), Problem> {
        self.change(|kept| {
            let entries = kept.approved.entry(key(file)).or_default();
            let values = kept.values.entry(key(file)).or_default();
            for waiting in shown {
                let name = &waiting.name;
                entries.insert(name.clone(), waiting.entry.clone());
                if waiting.values.is_empty() {
                    values.remove(name);
                } else {
                    values.insert(name.clone(), waiting.values.clone());
                }
            }
            if values.is_empty() {
                kept.values.remove(&key(file));
            }
        })
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
                };
                if !keeps {
                    revoked.push(name.clone());
                }
                keeps
            });
            if entries.is_empty() {
                kept.approved.remove(&key(file));
            }
            if let Some(values) = kept.values.get_mut(&key(file)) {
                values.retain(|name, _| !revoked.contains(name));
                if values.is_empty() {
                    kept.values.remove(&key(file));
                }
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

impl Approval<'_> {
    /// Whether it is of this entry, with the values that the checkout would supply for it and those that it has now.
    pub(super) fn covers(&self, entry: &Value, sources: &Sources, checkout: &Store) -> bool {
        let mut supplied = sources.checkout.iter();
        let mut approved = self.values.iter();
        self.entry == entry
            && supplied.all(|(name, value)| self.values.get(name) == Some(value.expose()))
            && approved.all(|(name, value)| {
                let now = checkout.get(name);
                now.is_some_and(|now| now.expose() == value)
            })
    }

    /// What was approved, with the values that were approved.
    pub(super) fn spec(
        &self,
        name: &str,
        source: (Origin, &Path),
        trust: Trust,
        variables: &Variables<'_>,
    ) -> Result<Spec, Reason> {
        let entry = entry::parse(name, self.entry)?;
        let checkout = Checkout::Approved(self.values);
        entry.spec(name, source, trust, variables, checkout)
    }
}

impl Loaded {
    /// What can be approved of a project's file: all that waits, or what waits of these. One that is approved as it is
    /// needs nothing.
    pub fn proposals(&self, file: &Path, names: &[String]) -> Result<Vec<&Waiting>, Problem> {
        if let Some(problem) = self.problems.iter().find(|problem| problem.file == file) {
            return Err(problem.clone());
        }
        let is_absent = |seen: &Seen| seen.path == file && seen.is_absent();
        if self.files.iter().any(is_absent) {
            return Err(Problem::new(file, "is not there"));
        }
        let waiting = || self.waiting.iter().filter(|waiting| waiting.file == file);
        if names.is_empty() {
            return Ok(waiting().collect());
        }
        let mut proposals = Vec::new();
        for name in names {
            if let Some(found) = waiting().find(|waiting| waiting.name == *name) {
                proposals.push(found);
                continue;
            }
            let mut skipped = self.skipped.iter().filter(|skipped| skipped.file == file);
            if let Some(skipped) = skipped.find(|skipped| skipped.name == *name) {
                let reason = format!("`{name}`: {}", skipped.reason);
                return Err(Problem::new(file, reason));
            }
            let specs = self.specs.iter().filter(|spec| spec.file == file);
            let approved: Vec<&str> = specs.map(|spec| &*spec.name).collect();
            if approved.contains(&name.as_str()) {
                continue;
            }
            let known = waiting().map(|waiting| waiting.name.as_str());
            let advice = nearest(name, known.chain(approved))
                .map(|known| format!("; did you mean `{known}`?"))
                .unwrap_or_default();
            let reason = format!("names no server `{name}`{advice}");
            return Err(Problem::new(file, reason));
        }
        Ok(proposals)
    }
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

//! The user's approvals of entries in project files.
//!
//! An approval covers one entry of one file, with the values that the checkout supplies for it, and stores all of them. If
//! the entry or one of those values is edited, the approved version remains in effect and the edit awaits approval. Values
//! of the user's are bound by name alone, so a renewed credential needs no approval. An entry that no longer exists is no
//! server, approved or not.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rung_fault::nearest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::files::{FileSnapshot, Problem, read_text};
use super::variables::{ApprovedValues, CheckoutValues, ValueSources, VariableMap, Variables};
use super::{LoadedConfig, Origin, PendingEntry, ServerSpec, SkipReason, Trust, entry};

pub struct Approvals {
    path: PathBuf,
    stored: StoredApprovals,
    problem: Option<Problem>,
    snapshot: FileSnapshot,
    /// Treat every entry of a project as approved.
    approve_all: bool,
}

/// The format on disk: by file, then by server name.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredApprovals {
    approved: BTreeMap<String, BTreeMap<String, Value>>,
    /// Values of the checkout that were approved with an entry.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    values: BTreeMap<String, BTreeMap<String, ApprovedValues>>,
}

#[derive(Clone, Copy)]
pub(super) struct Approval<'a> {
    entry: &'a Value,
    values: &'a ApprovedValues,
}

/// The servers of a file that are revoked.
#[derive(Debug, Clone, Copy)]
pub enum ServerSelection<'n> {
    All,
    Named(&'n [String]),
}

// Entries may contain credentials.
impl fmt::Debug for Approvals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.stored.approved.iter();
        let names = names.map(|(file, entries)| (file, entries.keys().collect::<Vec<_>>()));
        f.debug_struct("Approvals")
            .field("path", &self.path)
            .field("approved", &names.collect::<Vec<_>>())
            .field("problem", &self.problem)
            .finish_non_exhaustive()
    }
}

impl Approvals {
    /// Reads the approvals. A file that cannot be read approves nothing, and [`problem`](Self::problem) reports why.
    pub fn read(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let (snapshot, text) = read_text(&path);
        let kept = text.and_then(|text| match text {
            None => Ok(StoredApprovals::default()),
            Some(text) => {
                serde_json::from_str(&text).map_err(|error| Problem::in_json(&path, &error))
            }
        });
        let (stored, problem) = match kept {
            Ok(kept) => (kept, None),
            Err(problem) => (StoredApprovals::default(), Some(problem)),
        };
        Self {
            path,
            stored,
            problem,
            snapshot,
            approve_all: false,
        }
    }

    /// Treats every entry of a project as approved.
    #[must_use]
    pub fn with_all_approved(mut self) -> Self {
        self.approve_all = true;
        self
    }

    pub(super) fn approves_all(&self) -> bool {
        self.approve_all
    }

    /// Returns the problem because of which nothing is approved.
    pub fn problem(&self) -> Option<&Problem> {
        self.problem.as_ref()
    }

    /// Returns the snapshot of the approvals file.
    pub fn snapshot(&self) -> &FileSnapshot {
        &self.snapshot
    }

    /// Lists all approvals: the file, the server name, and the approved entry.
    pub fn list(&self) -> impl Iterator<Item = (&Path, &str, &Value)> {
        self.stored.approved.iter().flat_map(|(file, entries)| {
            let entries = entries.iter();
            entries.map(move |(name, entry)| (Path::new(file), name.as_str(), entry))
        })
    }

    pub(super) fn get(&self, file: &Path, name: &str) -> Option<Approval<'_>> {
        let mut all = self.for_file(file);
        all.find_map(|(own, approval)| (own == name).then_some(approval))
    }

    pub(super) fn for_file(&self, file: &Path) -> impl Iterator<Item = (&str, Approval<'_>)> {
        static NONE: ApprovedValues = ApprovedValues::new();
        let key = file_key(file);
        let values = self.stored.values.get(&key);
        let entries = self.stored.approved.get(&key).into_iter().flatten();
        entries.map(move |(name, entry)| {
            let values = values.and_then(|values| values.get(name));
            let values = values.unwrap_or(&NONE);
            (name.as_str(), Approval { entry, values })
        })
    }

    /// Approves entries of a file as they were shown.
    pub fn approve(&mut self, file: &Path, shown: &[&PendingEntry]) -> Result<(), Problem> {
        self.update(|kept| {
            let entries = kept.approved.entry(file_key(file)).or_default();
            let values = kept.values.entry(file_key(file)).or_default();
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
                kept.values.remove(&file_key(file));
            }
        })
    }

    /// Revokes approvals and returns the names of the servers.
    pub fn revoke(
        &mut self,
        file: &Path,
        which: ServerSelection<'_>,
    ) -> Result<Vec<String>, Problem> {
        let mut revoked = Vec::new();
        self.update(|kept| {
            let entries = kept.approved.entry(file_key(file)).or_default();
            entries.retain(|name, _| {
                let keeps = match which {
                    ServerSelection::All => false,
                    ServerSelection::Named(names) => !names.contains(name),
                };
                if !keeps {
                    revoked.push(name.clone());
                }
                keeps
            });
            if entries.is_empty() {
                kept.approved.remove(&file_key(file));
            }
            if let Some(values) = kept.values.get_mut(&file_key(file)) {
                values.retain(|name, _| !revoked.contains(name));
                if values.is_empty() {
                    kept.values.remove(&file_key(file));
                }
            }
        })?;
        Ok(revoked)
    }

    /// Applies a change to the current file: another process may have written since it was read.
    fn update(&mut self, change: impl FnOnce(&mut StoredApprovals)) -> Result<(), Problem> {
        let mut now = Self::read(&self.path);
        if let Some(mut problem) = now.problem {
            problem.reason += "; remove the file and approve again";
            return Err(problem);
        }
        change(&mut now.stored);
        now.save()
            .map_err(|error| Problem::new(&self.path, error))?;
        *self = Self::read(&self.path);
        Ok(())
    }

    /// Writes a temporary file and renames it: a crash leaves either the old approvals or the new ones.
    fn save(&self) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(folder)?;
        // Temporary files are created readable by their owner alone.
        let mut aside = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut aside, &self.stored)?;
        aside.write_all(b"\n")?;
        aside.as_file().sync_all()?;
        aside.persist(&self.path)?;
        Ok(())
    }
}

impl Approval<'_> {
    /// Returns true if the approval covers this entry, the values that the checkout would supply for it, and the current
    /// values of the checkout.
    pub(super) fn covers(
        &self,
        entry: &Value,
        sources: &ValueSources,
        checkout: &VariableMap,
    ) -> bool {
        let mut supplied = sources.checkout.iter();
        let mut approved = self.values.iter();
        self.entry == entry
            && supplied.all(|(name, value)| self.values.get(name) == Some(value.expose()))
            && approved.all(|(name, value)| {
                let now = checkout.get(name);
                now.is_some_and(|now| now.expose() == value)
            })
    }

    /// Builds the server specification from the approved entry and values.
    pub(super) fn build_spec(
        &self,
        name: &str,
        source: (Origin, &Path),
        trust: Trust,
        variables: &Variables<'_>,
    ) -> Result<ServerSpec, SkipReason> {
        let entry = entry::parse(name, self.entry)?;
        let checkout = CheckoutValues::Approved(self.values);
        entry.build_spec(name, source, trust, variables, checkout)
    }
}

impl LoadedConfig {
    /// Returns the pending entries of a project file, or those among `names`. A name that is already approved is omitted.
    pub fn proposals(&self, file: &Path, names: &[String]) -> Result<Vec<&PendingEntry>, Problem> {
        if let Some(problem) = self.problems.iter().find(|problem| problem.file == file) {
            return Err(problem.clone());
        }
        let is_absent = |seen: &FileSnapshot| seen.path == file && seen.is_absent();
        if self.files.iter().any(is_absent) {
            return Err(Problem::new(file, "is not there"));
        }
        let waiting = || self.pending.iter().filter(|waiting| waiting.file == file);
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

/// Returns the key of a file: its path with the folder canonicalized. The file itself may be a link, which is not followed:
/// that would change the folder against which an approved entry resolves paths.
fn file_key(file: &Path) -> String {
    let folder = file
        .parent()
        .and_then(|folder| fs::canonicalize(folder).ok());
    let place = match (folder, file.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => file.to_owned(),
    };
    place.to_string_lossy().into_owned()
}

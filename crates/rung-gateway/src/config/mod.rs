//! Configuration of downstream servers.
//!
//! Owns: the files that name servers, the meaning of their entries, the variables in them, and which entries of a project's
//! files the user has approved. Refuses to know: how to connect to a server, and who may use it.
//!
//! The laws it keeps: for each name, the file of highest precedence decides; every skipped entry is reported with its
//! reason; no entry of a checkout is started, or replaces a server of the user's, before the user approves it; no secret is
//! printed.

mod approvals;
mod credentials;
mod entry;
mod files;
mod project;
#[cfg(test)]
mod tests;
mod variables;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rung_auth::Secret;
use rung_mcp::connect::Era;
use serde_json::Value;

use crate::auth::SignIn;
pub use approvals::{Approvals, ServerSelection};
pub use credentials::find_credentials;
use entry::ServerEntry;
pub use entry::SkipReason;
pub(crate) use files::read_text;
pub use files::{FileSnapshot, FileWatch, Problem};
pub use project::find_project;
use variables::{ApprovedValues, CheckoutValues, ValueSources, VariableMap, Variables};

/// Name of the file that lists a project's or a user's servers.
pub const CONFIG_FILE: &str = ".mcp.json";

/// The files and folders that configuration is read from.
#[derive(Debug, Clone, Default)]
pub struct ConfigPaths {
    /// Server file given explicitly.
    pub config: Option<PathBuf>,
    /// Policy file given explicitly.
    pub policy: Option<PathBuf>,
    /// Root folder of the project.
    pub project: Option<PathBuf>,
    /// Home folder of the user.
    pub home: Option<PathBuf>,
}

/// The origin of a file, which decides how far it is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Given explicitly by the operator.
    Explicit,
    /// Part of the project's checkout.
    Project,
    /// In the user's home folder.
    User,
}

/// A configured server.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    /// Does not contain `::`.
    pub name: Arc<str>,
    pub origin: Origin,
    pub file: PathBuf,
    pub endpoint: ServerEndpoint,
    pub sharing: Sharing,
    /// The protocol version to use: legacy or modern. `None` negotiates it with the server.
    pub era: Option<Era>,
    /// OAuth settings of the entry.
    pub sign_in: SignIn,
    /// True if the server starts with the gateway.
    pub auto_start: bool,
    pub trust: Trust,
    /// Variables without a value that the entry needs. The server cannot start without them.
    pub missing: Vec<String>,
    /// Digest over everything whose change requires a new process or connection. It covers credentials: compare it, do not
    /// show it.
    pub digest: String,
    summary_text: String,
    secrets: Vec<Secret<String>>,
    sources: ValueSources,
}

/// How to connect to a server.
#[derive(Clone)]
pub enum ServerEndpoint {
    /// A process that the gateway starts.
    Command {
        program: PathBuf,
        args: Vec<String>,
        /// Working directory.
        dir: Option<PathBuf>,
        /// Variables added to the default environment.
        env: Vec<(String, Secret<String>)>,
    },
    /// A server reached over HTTP.
    Http {
        url: String,
        /// Headers sent with every request.
        headers: Vec<(String, Secret<String>)>,
        /// True if the server uses the HTTP+SSE transport (type `sse`).
        legacy_sse: bool,
    },
}

/// Which sessions share one process or connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// All sessions.
    #[default]
    Shared,
    Client,
    /// Each session has its own.
    Session,
}

/// Whether a server is approved to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The entry is not from a project: no approval is required.
    NotNeeded,
    /// The current entry is approved.
    Approved,
    /// The entry was edited after its approval: this is the approved entry, and the edit awaits approval.
    EditPending,
    /// The entry awaits its first approval.
    ApprovalRequired,
}

/// The result of reading all configuration files.
#[derive(Debug)]
pub struct LoadedConfig {
    pub specs: Vec<ServerSpec>,
    pub skipped: Vec<SkippedEntry>,
    /// Entries that await approval.
    pub pending: Vec<PendingEntry>,
    /// Names in `autoStart` for which no file has a server.
    pub unknown_auto_start: Vec<AutoStartName>,
    pub problems: Vec<Problem>,
    /// Every file that was read or found absent, for the file watch.
    pub files: Vec<FileSnapshot>,
}

/// An entry that was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedEntry {
    pub name: String,
    pub file: PathBuf,
    pub reason: SkipReason,
}

/// An entry that awaits approval.
#[derive(Clone)]
pub struct PendingEntry {
    pub name: String,
    pub file: PathBuf,
    /// The whole entry as written, with credentials masked.
    pub summary: String,
    /// The entry line by line, with the origin of each value.
    pub review: String,
    /// Approval stores this entry, as it was shown, even if the file has changed since.
    entry: Value,
    values: ApprovedValues,
}

/// A name in `autoStart`, and the file that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoStartName {
    pub name: String,
    pub file: PathBuf,
    pub origin: Origin,
}

// The entry and its values may contain credentials.
impl fmt::Debug for PendingEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("name", &self.name)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

// A rejected name may be any text.
impl fmt::Display for SkippedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, file) = (&self.name, self.file.display());
        write!(f, "{name:?} in {file} is skipped: {}", self.reason)
    }
}

// === impl Spec ===

impl ServerSpec {
    /// Returns the command line or URL as written, with credentials masked and variables not expanded.
    pub fn summary(&self) -> &str {
        &self.summary_text
    }

    /// Returns the secrets of the server: values from its variables, headers or environment whose name or form marks them
    /// as secret. A folder or the name of a region is not one.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.secrets.iter().map(|secret| secret.expose().as_str())
    }

    /// Returns the variables of the entry that are named as credentials, or all of its variables if none is.
    pub fn credential_variables(&self) -> Vec<String> {
        let all = self.sources.checkout.keys().chain(&self.sources.user);
        let (named, others): (Vec<String>, Vec<String>) = all
            .cloned()
            .partition(|name| variables::is_secret_name(name));
        if named.is_empty() { others } else { named }
    }
}

// Any part of the command or URL may contain an expanded secret.
impl fmt::Debug for ServerEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |pairs: &[(String, Secret<String>)]| -> Vec<String> {
            pairs.iter().map(|(name, _)| name.clone()).collect()
        };
        match self {
            Self::Command { dir, env, .. } => f
                .debug_struct("Command")
                .field("dir", dir)
                .field("env", &names(env))
                .finish_non_exhaustive(),
            Self::Http {
                headers,
                legacy_sse: oldest,
                ..
            } => f
                .debug_struct("Address")
                .field("headers", &names(headers))
                .field("oldest", oldest)
                .finish_non_exhaustive(),
        }
    }
}

impl Sharing {
    /// Returns the name used in configuration files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Client => "client",
            Self::Session => "session",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Shared, Self::Client, Self::Session]
            .into_iter()
            .find(|sharing| sharing.name() == word)
    }
}

// === reading ===

/// The relevant content of one file.
#[derive(Default)]
struct ConfigDocument {
    entries: Vec<(String, Value)>,
    auto_start: Vec<String>,
    /// The servers of the file cannot be read, which differs from having none.
    is_broken: bool,
}

/// Parses a file. Problems are added to `problems`, and the rest of the file still counts.
fn read_document(file: &Path, text: &str, problems: &mut Vec<Problem>) -> ConfigDocument {
    let mut document = ConfigDocument::default();
    let members = match serde_json::from_str(text) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(Problem::new(file, "is not an object")),
        Err(error) => Err(Problem::in_json(file, &error)),
    };
    let mut members = match members {
        Ok(members) => members,
        Err(problem) => {
            problems.push(problem);
            document.is_broken = true;
            return document;
        }
    };
    for name in ["mcpServers", "servers"] {
        match members.remove(name) {
            None | Some(Value::Null) => {}
            Some(Value::Object(entries)) => {
                for (name, entry) in entries {
                    if document.entries.iter().all(|(known, _)| *known != name) {
                        document.entries.push((name, entry));
                    }
                }
            }
            Some(_) => {
                problems.push(Problem::new(file, format!("`{name}` is not an object")));
                document.is_broken = true;
            }
        }
    }
    match members.remove("autoStart") {
        None | Some(Value::Null) => {}
        Some(names) => match serde_json::from_value(names) {
            Ok(names) => document.auto_start = names,
            Err(_) => problems.push(Problem::new(file, "`autoStart` is not an array of names")),
        },
    }
    document
}

/// Returns the files that name servers, by descending precedence.
fn config_files(places: &ConfigPaths) -> Vec<(Origin, PathBuf)> {
    let of_user = places.home.iter().flat_map(|home| {
        let claude = home.join(".claude").join(CONFIG_FILE);
        [
            (Origin::User, home.join(CONFIG_FILE)),
            (Origin::User, claude),
        ]
    });
    let of_user: Vec<_> = of_user.collect();
    let given = places
        .config
        .iter()
        .map(|file| (Origin::Explicit, file.clone()));
    let of_project = places
        .project
        .iter()
        .map(|root| (Origin::Project, root.join(CONFIG_FILE)));
    // If the home folder is the project, its file counts as the user's.
    let of_project = of_project.filter(|(_, file)| of_user.iter().all(|(_, own)| own != file));
    given.chain(of_project).chain(of_user.clone()).collect()
}

/// Reads all configuration files. `env` looks up a variable of the process.
pub fn load(
    places: &ConfigPaths,
    env: &dyn Fn(&str) -> Option<String>,
    approvals: &Approvals,
) -> LoadedConfig {
    let mut loaded = LoadedConfig {
        specs: Vec::new(),
        skipped: Vec::new(),
        pending: Vec::new(),
        unknown_auto_start: Vec::new(),
        problems: approvals.problem().cloned().into_iter().collect(),
        files: vec![approvals.snapshot().clone()],
    };
    let mut store = |file: Option<PathBuf>| -> VariableMap {
        let Some(file) = file else {
            return VariableMap::new();
        };
        let text = loaded.read_file(&file);
        variables::parse(&file, &text.unwrap_or_default(), &mut loaded.problems)
    };
    let variables = Variables {
        process: env,
        project: store(places.project.as_ref().map(|root| root.join(".env.pmcp"))),
        user: store(
            places
                .home
                .as_ref()
                .map(|home| home.join(".config/pmcp/pmcp.env")),
        ),
    };
    let mut reading = ConfigLoader {
        loaded,
        variables: &variables,
        approvals,
        decided_by: HashMap::new(),
        unapproved: Vec::new(),
        auto_start: Vec::new(),
    };
    for (origin, file) in config_files(places) {
        reading.load_file(origin, &file);
    }
    reading.finish()
}

impl LoadedConfig {
    /// Reads a file if it exists, and records its snapshot.
    fn read_file(&mut self, file: &Path) -> Option<String> {
        let (seen, text) = read_text(file);
        self.files.push(seen);
        text.unwrap_or_else(|problem| {
            self.problems.push(problem);
            None
        })
    }
}

/// State while the files are read by descending precedence.
struct ConfigLoader<'a> {
    loaded: LoadedConfig,
    variables: &'a Variables<'a>,
    approvals: &'a Approvals,
    /// Names that are decided, and the file that decided each.
    decided_by: HashMap<String, PathBuf>,
    /// Servers that await their first approval. They are listed unless another file has the name.
    unapproved: Vec<ServerSpec>,
    auto_start: Vec<AutoStartName>,
}

impl ConfigLoader<'_> {
    fn load_file(&mut self, origin: Origin, file: &Path) {
        let found = self.loaded.problems.len();
        let document = match self.loaded.read_file(file) {
            Some(text) => read_document(file, &text, &mut self.loaded.problems),
            None => ConfigDocument {
                is_broken: self.loaded.problems.len() > found,
                ..ConfigDocument::default()
            },
        };
        if origin == Origin::Explicit
            && self
                .loaded
                .files
                .last()
                .is_some_and(FileSnapshot::is_absent)
        {
            self.loaded
                .problems
                .push(Problem::new(file, "is not there"));
        }
        let auto_start = document.auto_start.into_iter();
        self.auto_start.extend(auto_start.map(|name| AutoStartName {
            name,
            file: file.to_owned(),
            origin,
        }));
        for (name, value) in &document.entries {
            if let Some(by) = self.decided_by.get(name) {
                let by = by.clone();
                self.skip(name, file, SkipReason::Shadowed { by });
            } else if origin == Origin::Project {
                self.load_project_entry(file, name, value);
            } else {
                let source = (origin, file);
                let spec = entry::parse(name, value).and_then(|entry| {
                    entry.build_spec(
                        name,
                        source,
                        Trust::NotNeeded,
                        self.variables,
                        CheckoutValues::None,
                    )
                });
                self.add_spec(name, file, spec);
            }
        }
        if origin == Origin::Project && document.is_broken {
            self.keep_approved(file);
        }
    }

    fn load_project_entry(&mut self, file: &Path, name: &str, value: &Value) {
        let (source, variables) = ((Origin::Project, file), self.variables);
        let approvals = self.approvals;
        let filled = |entry: &ServerEntry, trust, checkout| {
            entry.build_spec(name, source, trust, variables, checkout)
        };
        let entry = match entry::parse(name, value) {
            Ok(entry) if approvals.approves_all() => {
                let spec = filled(&entry, Trust::Approved, CheckoutValues::Current);
                return self.add_spec(name, file, spec);
            }
            // Disabling an approved server needs no approval. No other entry of a checkout disables a server.
            Err(SkipReason::Disabled) if approvals.get(file, name).is_some() => {
                return self.add_spec(name, file, Err(SkipReason::Disabled));
            }
            entry => entry,
        };
        let current = entry.and_then(|entry| {
            let spec = filled(&entry, Trust::ApprovalRequired, CheckoutValues::Current)?;
            Ok((entry, spec))
        });
        let Some(approval) = approvals.get(file, name) else {
            match current {
                Ok((entry, spec)) => {
                    self.add_pending(&spec, &entry, value);
                    self.unapproved.push(spec);
                }
                // An invalid entry does not hide a server of the user's with the same name.
                Err(reason) => self.skip(name, file, reason),
            }
            return;
        };
        let is_covered =
            |spec: &ServerSpec| approval.covers(value, &spec.sources, &variables.project);
        let trust = match &current {
            Ok((_, spec)) if is_covered(spec) => Trust::Approved,
            _ => Trust::EditPending,
        };
        let approved = approval.build_spec(name, source, trust, variables);
        match current {
            Ok((entry, spec)) if trust == Trust::EditPending => {
                self.add_pending(&spec, &entry, value);
            }
            Err(reason) if approved.as_ref().err() != Some(&reason) => {
                self.skip(name, file, reason);
            }
            _ => {}
        }
        self.add_spec(name, file, approved);
    }

    /// Keeps the approved entries of a file that cannot currently be read.
    fn keep_approved(&mut self, file: &Path) {
        let approvals = self.approvals;
        for (name, approval) in approvals.for_file(file) {
            if !self.decided_by.contains_key(name) {
                let source = (Origin::Project, file);
                let spec = approval.build_spec(name, source, Trust::EditPending, self.variables);
                self.add_spec(name, file, spec);
            }
        }
    }

    fn add_spec(&mut self, name: &str, file: &Path, spec: Result<ServerSpec, SkipReason>) {
        self.decided_by.insert(name.to_owned(), file.to_owned());
        match spec {
            Ok(spec) => self.loaded.specs.push(spec),
            Err(reason) => self.skip(name, file, reason),
        }
    }

    fn skip(&mut self, name: &str, file: &Path, reason: SkipReason) {
        self.loaded.skipped.push(SkippedEntry {
            name: name.to_owned(),
            file: file.to_owned(),
            reason,
        });
    }

    fn add_pending(&mut self, spec: &ServerSpec, entry: &ServerEntry, value: &Value) {
        let values = spec.sources.checkout.iter();
        self.loaded.pending.push(PendingEntry {
            name: spec.name.to_string(),
            file: spec.file.clone(),
            summary: entry.full_summary(),
            review: entry.review(&spec.sources, &spec.missing),
            entry: value.clone(),
            values: values
                .map(|(name, value)| (name.clone(), value.expose().clone()))
                .collect(),
        });
    }

    fn finish(self) -> LoadedConfig {
        let mut loaded = self.loaded;
        let free = |spec: &ServerSpec| !self.decided_by.contains_key(&*spec.name);
        loaded
            .specs
            .extend(self.unapproved.into_iter().filter(free));
        for named in self.auto_start {
            let spec = loaded
                .specs
                .iter_mut()
                .find(|spec| *spec.name == *named.name);
            match spec {
                // A project cannot start the user's servers.
                Some(spec) if named.origin != Origin::Project || spec.origin == Origin::Project => {
                    spec.auto_start = true;
                }
                Some(_) => {}
                None => loaded.unknown_auto_start.push(named),
            }
        }
        loaded
    }
}

//! Which servers there are, and how each of them is reached.
//!
//! Owns: the files that name servers, what their entries mean, the variables in them, and what of a project's files the
//! user has approved. Refuses to know: how a server is spoken to, and who may use it.
//!
//! The laws it keeps: what the strongest file says of a name holds; every entry that is not taken is named with its reason;
//! nothing that came with a checkout is started, or takes the place of a server of the user's, before the user approved it;
//! no secret is printed.

mod credentials;
mod entry;
mod files;
mod project;
#[cfg(test)]
mod tests;
mod trust;
mod variables;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rung_auth::Secret;
use rung_mcp::connect::Era;
use serde_json::Value;

use crate::auth::SignIn;
pub use credentials::credentials_in;
use entry::Entry;
pub use entry::Reason;
pub(crate) use files::read;
pub use files::{Problem, Seen, Watch};
pub use project::find_project;
pub use trust::{Approvals, Which};
use variables::{Checkout, Sources, Store, Values, Variables};

/// The file that names a project's or a user's servers.
pub const FILE: &str = ".mcp.json";

/// Where to look.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// The file of servers that was asked for.
    pub config: Option<PathBuf>,
    /// The policy that was asked for.
    pub policy: Option<PathBuf>,
    /// The root of the project.
    pub project: Option<PathBuf>,
    /// The user's own folder.
    pub home: Option<PathBuf>,
}

/// Whose word a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It was asked for.
    Given,
    /// It came with the project.
    Project,
    /// It is the user's own.
    User,
}

/// A server, and how to get to it.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Its name; without `::`.
    pub name: Arc<str>,
    /// Whose word it is.
    pub origin: Origin,
    /// The file that names it.
    pub file: PathBuf,
    /// How it is reached.
    pub reach: Reach,
    /// Who shares one of it.
    pub sharing: Sharing,
    /// In which era it is spoken to; by asking it, where nothing is said.
    pub era: Option<Era>,
    /// Where it is said how one signs in there.
    pub sign_in: SignIn,
    /// Whether it starts with the gateway.
    pub eager: bool,
    /// Whether it may start.
    pub trust: Trust,
    /// The variables that it needs and that have no value. It cannot start without them.
    pub missing: Vec<String>,
    /// Changes with everything that would make another process or another connection of it. To compare, not to show: it is
    /// of the credentials, too.
    pub digest: String,
    shown: String,
    secrets: Vec<Secret<String>>,
    sources: Sources,
}

/// How a server is reached.
#[derive(Clone)]
pub enum Reach {
    /// Started by us.
    Command {
        /// The program.
        program: PathBuf,
        /// Its arguments.
        args: Vec<String>,
        /// Where it runs.
        dir: Option<PathBuf>,
        /// What it gets beside the usual few variables.
        env: Vec<(String, Secret<String>)>,
    },
    /// Behind an address.
    Address {
        /// The address.
        url: String,
        /// What goes along with every request.
        headers: Vec<(String, Secret<String>)>,
        /// Whether it speaks the oldest form of the protocol over HTTP: its type is `sse`.
        oldest: bool,
    },
}

/// Who shares one process or connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// Everybody.
    #[default]
    Shared,
    /// The sessions of one client.
    Client,
    /// One session has it alone.
    Session,
}

/// Whether a server may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The user's own word.
    NotNeeded,
    /// The user approved it as it is.
    Approved,
    /// It was approved and then edited: this is what was approved, and the edit waits.
    Kept,
    /// It must be approved first.
    Wanted,
}

/// What was found.
#[derive(Debug)]
pub struct Loaded {
    /// The servers.
    pub specs: Vec<Spec>,
    /// The entries that were not taken.
    pub skipped: Vec<Skipped>,
    /// The entries that wait for an approval.
    pub waiting: Vec<Waiting>,
    /// The names in `autoStart` for which no file has a server.
    pub unknown: Vec<Named>,
    /// What is wrong with files.
    pub problems: Vec<Problem>,
    /// Every file that was looked at, to be watched.
    pub files: Vec<Seen>,
}

/// An entry that was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// The file that it is in.
    pub file: PathBuf,
    /// Why.
    pub reason: Reason,
}

/// An entry that waits for an approval.
#[derive(Clone)]
pub struct Waiting {
    /// Its name.
    pub name: String,
    /// The file that it is in.
    pub file: PathBuf,
    /// All that it says, as it is written, but for credentials.
    pub shown: String,
    /// The same in lines, with where each value comes from.
    pub review: String,
    /// What is approved is what was shown, whatever the files say by then.
    entry: Value,
    values: Values,
}

/// A name, and the file that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The name.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// Whose word it is.
    pub origin: Origin,
}

// The entry and its values may have credentials in them.
impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("name", &self.name)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

// A name that is refused may be any text.
impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, file) = (&self.name, self.file.display());
        write!(f, "{name:?} in {file} is left out: {}", self.reason)
    }
}

// === impl Spec ===

impl Spec {
    /// What is run or asked, as it is written: variables are not filled in.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// What must not be shown of it: values that came from its variables, headers or environment, where their name or their
    /// form says that they are secrets. A folder or the name of a region is none.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.secrets.iter().map(|secret| secret.expose().as_str())
    }
}

// A variable may stand anywhere in what is run or asked.
impl fmt::Debug for Reach {
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
            Self::Address {
                headers, oldest, ..
            } => f
                .debug_struct("Address")
                .field("headers", &names(headers))
                .field("oldest", oldest)
                .finish_non_exhaustive(),
        }
    }
}

impl Sharing {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Client => "client",
            Self::Session => "session",
        }
    }

    fn of(word: &str) -> Option<Self> {
        [Self::Shared, Self::Client, Self::Session]
            .into_iter()
            .find(|sharing| sharing.name() == word)
    }
}

// === reading ===

/// What a file says.
#[derive(Default)]
struct Document {
    entries: Vec<(String, Value)>,
    auto_start: Vec<String>,
    /// What it has of servers cannot be read. That is something else than having none.
    is_broken: bool,
}

/// What a file says; what is wrong with it goes to `problems`, and the rest still counts.
fn read_document(file: &Path, text: &str, problems: &mut Vec<Problem>) -> Document {
    let mut document = Document::default();
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

/// The files that name servers, the strongest first.
fn sources(places: &Places) -> Vec<(Origin, PathBuf)> {
    let of_user = places.home.iter().flat_map(|home| {
        let claude = home.join(".claude").join(FILE);
        [(Origin::User, home.join(FILE)), (Origin::User, claude)]
    });
    let of_user: Vec<_> = of_user.collect();
    let given = places
        .config
        .iter()
        .map(|file| (Origin::Given, file.clone()));
    let of_project = places
        .project
        .iter()
        .map(|root| (Origin::Project, root.join(FILE)));
    // Where the user's own folder is the project, its file is the user's.
    let of_project = of_project.filter(|(_, file)| of_user.iter().all(|(_, own)| own != file));
    given.chain(of_project).chain(of_user.clone()).collect()
}

/// Reads everything. `env` is the environment of the process.
pub fn load(
    places: &Places,
    env: &dyn Fn(&str) -> Option<String>,
    approvals: &Approvals,
) -> Loaded {
    let mut loaded = Loaded {
        specs: Vec::new(),
        skipped: Vec::new(),
        waiting: Vec::new(),
        unknown: Vec::new(),
        problems: approvals.problem().cloned().into_iter().collect(),
        files: vec![approvals.seen().clone()],
    };
    let mut store = |file: Option<PathBuf>| -> Store {
        let Some(file) = file else {
            return Store::new();
        };
        let text = loaded.look(&file);
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
    let mut reading = Reading {
        loaded,
        variables: &variables,
        approvals,
        taken: HashMap::new(),
        wanted: Vec::new(),
        auto_start: Vec::new(),
    };
    for (origin, file) in sources(places) {
        reading.source(origin, &file);
    }
    reading.finish()
}

impl Loaded {
    /// Reads a file, where it is there, and remembers it.
    fn look(&mut self, file: &Path) -> Option<String> {
        let (seen, text) = read(file);
        self.files.push(seen);
        text.unwrap_or_else(|problem| {
            self.problems.push(problem);
            None
        })
    }
}

/// What is known while the files are read, one after the other.
struct Reading<'a> {
    loaded: Loaded,
    variables: &'a Variables<'a>,
    approvals: &'a Approvals,
    /// The names that are decided on, and by which file.
    taken: HashMap<String, PathBuf>,
    /// What waits for its first approval. It is listed where nobody else has the name.
    wanted: Vec<Spec>,
    auto_start: Vec<Named>,
}

impl Reading<'_> {
    fn source(&mut self, origin: Origin, file: &Path) {
        let found = self.loaded.problems.len();
        let document = match self.loaded.look(file) {
            Some(text) => read_document(file, &text, &mut self.loaded.problems),
            None => Document {
                is_broken: self.loaded.problems.len() > found,
                ..Document::default()
            },
        };
        if origin == Origin::Given && self.loaded.files.last().is_some_and(Seen::is_absent) {
            self.loaded
                .problems
                .push(Problem::new(file, "is not there"));
        }
        let auto_start = document.auto_start.into_iter();
        self.auto_start.extend(auto_start.map(|name| Named {
            name,
            file: file.to_owned(),
            origin,
        }));
        for (name, value) in &document.entries {
            if let Some(by) = self.taken.get(name) {
                let by = by.clone();
                self.skip(name, file, Reason::Shadowed { by });
            } else if origin == Origin::Project {
                self.of_project(file, name, value);
            } else {
                let source = (origin, file);
                let spec = entry::parse(name, value).and_then(|entry| {
                    entry.spec(
                        name,
                        source,
                        Trust::NotNeeded,
                        self.variables,
                        Checkout::None,
                    )
                });
                self.take(name, file, spec);
            }
        }
        if origin == Origin::Project && document.is_broken {
            self.keep_approved(file);
        }
    }

    fn of_project(&mut self, file: &Path, name: &str, value: &Value) {
        let (source, variables) = ((Origin::Project, file), self.variables);
        let approvals = self.approvals;
        let filled =
            |entry: &Entry, trust, checkout| entry.spec(name, source, trust, variables, checkout);
        let entry = match entry::parse(name, value) {
            Ok(entry) if approvals.is_all() => {
                let spec = filled(&entry, Trust::Approved, Checkout::Current);
                return self.take(name, file, spec);
            }
            // To take something away needs no approval.
            Err(Reason::Disabled) => return self.take(name, file, Err(Reason::Disabled)),
            entry => entry,
        };
        let current = entry.and_then(|entry| {
            let spec = filled(&entry, Trust::Wanted, Checkout::Current)?;
            Ok((entry, spec))
        });
        let Some(approval) = approvals.of(file, name) else {
            match current {
                Ok((entry, spec)) => {
                    self.wait(&spec, &entry, value);
                    self.wanted.push(spec);
                }
                // It does not hide a server of the user's with the same name.
                Err(reason) => self.skip(name, file, reason),
            }
            return;
        };
        let is_covered = |spec: &Spec| approval.covers(value, &spec.sources, &variables.project);
        let trust = match &current {
            Ok((_, spec)) if is_covered(spec) => Trust::Approved,
            _ => Trust::Kept,
        };
        let approved = approval.spec(name, source, trust, variables);
        match current {
            Ok((entry, spec)) if trust == Trust::Kept => self.wait(&spec, &entry, value),
            Err(reason) if approved.as_ref().err() != Some(&reason) => {
                self.skip(name, file, reason);
            }
            _ => {}
        }
        self.take(name, file, approved);
    }

    /// A file that cannot be read just now has lost nothing that was approved.
    fn keep_approved(&mut self, file: &Path) {
        let approvals = self.approvals;
        for (name, approval) in approvals.of_file(file) {
            if !self.taken.contains_key(name) {
                let source = (Origin::Project, file);
                let spec = approval.spec(name, source, Trust::Kept, self.variables);
                self.take(name, file, spec);
            }
        }
    }

    fn take(&mut self, name: &str, file: &Path, spec: Result<Spec, Reason>) {
        self.taken.insert(name.to_owned(), file.to_owned());
        match spec {
            Ok(spec) => self.loaded.specs.push(spec),
            Err(reason) => self.skip(name, file, reason),
        }
    }

    fn skip(&mut self, name: &str, file: &Path, reason: Reason) {
        self.loaded.skipped.push(Skipped {
            name: name.to_owned(),
            file: file.to_owned(),
            reason,
        });
    }

    fn wait(&mut self, spec: &Spec, entry: &Entry, value: &Value) {
        let values = spec.sources.checkout.iter();
        self.loaded.waiting.push(Waiting {
            name: spec.name.to_string(),
            file: spec.file.clone(),
            shown: entry.shown_whole(),
            review: entry.review(&spec.sources, &spec.missing),
            entry: value.clone(),
            values: values
                .map(|(name, value)| (name.clone(), value.expose().clone()))
                .collect(),
        });
    }

    fn finish(self) -> Loaded {
        let mut loaded = self.loaded;
        let free = |spec: &Spec| !self.taken.contains_key(&*spec.name);
        loaded.specs.extend(self.wanted.into_iter().filter(free));
        for named in self.auto_start {
            let spec = loaded
                .specs
                .iter_mut()
                .find(|spec| *spec.name == *named.name);
            match spec {
                // A project does not say what of the user's is started.
                Some(spec) if named.origin != Origin::Project || spec.origin == Origin::Project => {
                    spec.eager = true;
                }
                Some(_) => {}
                None => loaded.unknown.push(named),
            }
        }
        loaded
    }
}

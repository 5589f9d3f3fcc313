//! Who may see and use what.
//!
//! Owns: the policy files, what their patterns mean, and the one verdict on a server, a tool, a resource, a prompt or a
//! package. Refuses to know: what servers there are, and who asks.
//!
//! The law it keeps: every file is asked, and all must allow. A file of a project can therefore only narrow, which is why
//! it needs nobody's approval: its limits count where they are lower, its patterns are added, and what it allows grants
//! nothing. A file that cannot be read whole is refused; where another policy holds already, that one goes on.

mod file;
mod glob;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use regex::Regex;

use crate::config::{Origin, Places, Problem, Seen, Watch, read};
use file::{Bounds, Lists, Rules};
pub use glob::Glob;

/// What holds where no file says otherwise.
const MAX_OUTPUT_BYTES: u64 = 50_000;
const MAX_OUTPUT_TOKENS: u64 = 4_000;

/// Every policy file there is, as one.
#[derive(Debug, Default)]
pub struct Policy {
    layers: Vec<Layer>,
    files: Vec<Seen>,
}

#[derive(Debug)]
struct Layer {
    file: PathBuf,
    origin: Origin,
    rules: Rules,
}

/// What a verdict is asked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thing<'a> {
    /// A server.
    Server(&'a str),
    /// A tool of a server.
    Tool {
        /// The server.
        server: &'a str,
        /// The tool, by the server's own name for it.
        tool: &'a str,
    },
    /// A resource of a server.
    Resource {
        /// The server.
        server: &'a str,
        /// The resource.
        uri: &'a str,
    },
    /// A prompt of a server.
    Prompt {
        /// The server.
        server: &'a str,
        /// The prompt, by the server's own name for it.
        name: &'a str,
    },
    /// A tool of the gateway itself.
    GatewayTool(&'a str),
}

/// A group of rules in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// By name.
    Servers,
    /// By `server::tool`.
    Tools,
    /// By name.
    GatewayTools,
    /// By `server::uri`.
    Resources,
    /// By `server::name`.
    Prompts,
    /// By name.
    Packages,
}

impl Section {
    /// As it is called in a file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Servers => "servers",
            Self::Tools => "tools",
            Self::GatewayTools => "gateway_tools",
            Self::Resources => "resources",
            Self::Prompts => "prompts",
            Self::Packages => "packages",
        }
    }

    fn of(self, rules: &Rules) -> &Lists {
        match self {
            Self::Servers => &rules.servers,
            Self::Tools => &rules.tools,
            Self::GatewayTools => &rules.gateway_tools,
            Self::Resources => &rules.resources,
            Self::Prompts => &rules.prompts,
            Self::Packages => &rules.packages,
        }
    }
}

/// What in which file decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule<'p> {
    /// The file.
    pub file: &'p Path,
    /// The section of it.
    pub section: Section,
    /// The list in the section.
    pub list: List<'p>,
}

/// What of a list decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List<'p> {
    /// This pattern of the denylist matched.
    Denied(&'p str),
    /// This pattern of the allowlist matched.
    Allowed(&'p str),
    /// There is an allowlist, and nothing in it matched.
    NotAllowed,
}

impl fmt::Display for Rule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, section) = (self.file.display(), self.section.name());
        match self.list {
            List::Denied(pattern) => write!(f, "`{pattern}` in {section}.denylist of {file}"),
            List::Allowed(pattern) => write!(f, "`{pattern}` in {section}.allowlist of {file}"),
            List::NotAllowed => write!(f, "nothing in {section}.allowlist of {file} matches"),
        }
    }
}

/// Whether a thing may be seen and used, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'p> {
    /// It may: by the last rule that says so, or because none says anything.
    Allowed(Option<Rule<'p>>),
    /// It may not, by the first rule that says so.
    Denied(Rule<'p>),
}

impl Verdict<'_> {
    /// Whether it may be.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }
}

/// What is said of a package that is to be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Package<'p> {
    /// It may not be.
    Denied(Rule<'p>),
    /// It may be, without further approval: a file of the user's own says so.
    Granted(Rule<'p>),
    /// No rule speaks of it, or only one of a project, which grants nothing.
    Unspecified,
}

/// The limits that hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many tools of one server are shown; all, where nothing is said.
    pub max_tools_per_server: Option<u64>,
    /// How long a reply may be.
    pub max_output_bytes: u64,
    /// And in tokens.
    pub max_output_tokens: u64,
}

// === impl Lists ===

impl Lists {
    /// What the lists say of a name; nothing, where there is no rule on it.
    fn on(&self, name: &str) -> Option<List<'_>> {
        let find = |list: &[Glob]| list.iter().position(|glob| glob.matches(name));
        if let Some(at) = find(&self.denylist) {
            return Some(List::Denied(self.denylist[at].as_str()));
        }
        if self.allowlist.is_empty() {
            return None;
        }
        Some(match find(&self.allowlist) {
            Some(at) => List::Allowed(self.allowlist[at].as_str()),
            None => List::NotAllowed,
        })
    }

    fn is_empty(&self) -> bool {
        self.allowlist.is_empty() && self.denylist.is_empty()
    }
}

// === impl Policy ===

impl Policy {
    /// Reads every policy file. One that was asked for must be there.
    pub fn load(places: &Places) -> Result<Self, Problem> {
        Self::read(places).1
    }

    /// What was looked at, also where what was found is refused.
    fn read(places: &Places) -> (Vec<Seen>, Result<Self, Problem>) {
        let mut files: Vec<Seen> = Vec::new();
        let mut layers = Vec::new();
        let mut refused = None;
        for (origin, file) in candidates(places) {
            if files.iter().any(|seen| seen.path == file) {
                continue;
            }
            let (seen, text) = read(&file);
            files.push(seen);
            let rules = text.and_then(|text| match text {
                Some(text) => file::parse(&file, &text).map(Some),
                None if origin == Origin::Given => Err(Problem::new(&file, "is not there")),
                None => Ok(None),
            });
            match rules {
                Ok(Some(rules)) => layers.push(Layer {
                    file,
                    origin,
                    rules,
                }),
                Ok(None) => {}
                Err(problem) => refused = refused.or(Some(problem)),
            }
        }
        let policy = match refused {
            Some(problem) => Err(problem),
            None => Ok(Self {
                layers,
                files: files.clone(),
            }),
        };
        (files, policy)
    }

    /// The files in which rules were found, the strongest first.
    pub fn sources(&self) -> impl Iterator<Item = (Origin, &Path)> {
        self.layers
            .iter()
            .map(|layer| (layer.origin, layer.file.as_path()))
    }

    /// Every file that was looked at.
    pub fn files(&self) -> &[Seen] {
        &self.files
    }

    /// The one decision. What belongs to a denied server is denied with it.
    pub fn verdict(&self, thing: Thing<'_>) -> Verdict<'_> {
        let (section, server, name) = match thing {
            Thing::Server(name) => return self.on(Section::Servers, name),
            Thing::GatewayTool(name) => return self.on(Section::GatewayTools, name),
            Thing::Tool { server, tool } => (Section::Tools, server, tool),
            Thing::Resource { server, uri } => (Section::Resources, server, uri),
            Thing::Prompt { server, name } => (Section::Prompts, server, name),
        };
        let of_server = self.on(Section::Servers, server);
        let spoken = |layer: &Layer| !section.of(&layer.rules).is_empty();
        if !of_server.is_allowed() || !self.layers.iter().any(spoken) {
            return of_server;
        }
        match self.on(section, &format!("{server}::{name}")) {
            Verdict::Allowed(None) => of_server,
            verdict => verdict,
        }
    }

    fn on(&self, section: Section, name: &str) -> Verdict<'_> {
        let mut by = None;
        for layer in &self.layers {
            let Some(list) = section.of(&layer.rules).on(name) else {
                continue;
            };
            let rule = Rule {
                file: &layer.file,
                section,
                list,
            };
            if !matches!(list, List::Allowed(_)) {
                return Verdict::Denied(rule);
            }
            by = Some(rule);
        }
        Verdict::Allowed(by)
    }

    /// What is said of a package.
    pub fn package(&self, name: &str) -> Package<'_> {
        if let Verdict::Denied(rule) = self.on(Section::Packages, name) {
            return Package::Denied(rule);
        }
        let own = self
            .layers
            .iter()
            .filter(|layer| layer.origin != Origin::Project);
        let mut granted = own.filter_map(|layer| {
            Some(Rule {
                file: &layer.file,
                section: Section::Packages,
                list: layer.rules.packages.on(name)?,
            })
        });
        granted
            .next()
            .map_or(Package::Unspecified, Package::Granted)
    }

    /// The limits: the lowest that the user's own files name, or ours where they name none; and what a project lowers of it.
    pub fn limits(&self) -> Limits {
        let lowest = |of: fn(&Bounds) -> Option<u64>, ours: Option<u64>| {
            let of_project = |wanted: bool| {
                let layers = self.layers.iter();
                let layers =
                    layers.filter(move |layer| (layer.origin == Origin::Project) == wanted);
                layers.filter_map(|layer| of(&layer.rules.limits)).min()
            };
            let own = of_project(false).or(ours);
            own.into_iter().chain(of_project(true)).min()
        };
        Limits {
            max_tools_per_server: lowest(|limits| limits.max_tools_per_server.map(u64::from), None),
            max_output_bytes: lowest(
                |limits| limits.max_output_bytes.map(u64::from),
                Some(MAX_OUTPUT_BYTES),
            )
            .unwrap_or(MAX_OUTPUT_BYTES),
            max_output_tokens: lowest(
                |limits| limits.max_output_tokens.map(u64::from),
                Some(MAX_OUTPUT_TOKENS),
            )
            .unwrap_or(MAX_OUTPUT_TOKENS),
        }
    }

    /// What is masked, by all files together.
    pub fn patterns(&self) -> Vec<Regex> {
        let mut patterns: Vec<Regex> = Vec::new();
        for layer in &self.layers {
            for pattern in &layer.rules.redaction.patterns {
                if patterns
                    .iter()
                    .all(|known| known.as_str() != pattern.0.as_str())
                {
                    patterns.push(pattern.0.clone());
                }
            }
        }
        patterns
    }
}

/// Where policies are looked for, the strongest first.
fn candidates(places: &Places) -> Vec<(Origin, PathBuf)> {
    let mut candidates = Vec::new();
    if let Some(given) = &places.policy {
        candidates.push((Origin::Given, given.clone()));
    }
    for extension in ["yaml", "json"] {
        if let Some(home) = &places.home {
            let file = home.join(format!(".claude/gateway-policy.{extension}"));
            candidates.push((Origin::User, file));
        }
    }
    for extension in ["yaml", "json"] {
        if let Some(project) = &places.project {
            let file = project.join(format!(".mcp-gateway-policy.{extension}"));
            candidates.push((Origin::Project, file));
        }
    }
    candidates
}

/// The policy that holds now.
#[derive(Debug)]
pub struct Current {
    places: Places,
    state: Mutex<(Arc<Policy>, Watch)>,
}

impl Current {
    /// Reads it; a file that is refused is an error.
    pub fn open(places: Places) -> Result<Self, Problem> {
        let policy = Policy::load(&places)?;
        let watch = Watch::new(policy.files.iter().cloned());
        Ok(Self {
            places,
            state: Mutex::new((Arc::new(policy), watch)),
        })
    }

    /// The policy.
    pub fn get(&self) -> Arc<Policy> {
        Arc::clone(&self.state.lock().0)
    }

    /// Reads it again where a file changed, and says whether it did. What is refused leaves the old one in place, and is
    /// not tried again before it changes.
    pub fn refresh(&self) -> Result<bool, Problem> {
        let mut state = self.state.lock();
        if !state.1.changed() {
            return Ok(false);
        }
        let (files, policy) = Policy::read(&self.places);
        state.1 = Watch::new(files);
        state.0 = Arc::new(policy?);
        Ok(true)
    }
}

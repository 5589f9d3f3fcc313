//! Operator policy: what may be listed and used.
//!
//! Owns: the policy files, the meaning of their patterns, and the one verdict on a server, tool, resource, prompt or
//! package. Refuses to know: which servers exist, and who the caller is.
//!
//! The law it keeps: every file is evaluated, and all must allow. A project's file can therefore only narrow access and
//! needs no approval: its limits apply where they are lower, its redaction patterns are added, and its allowlists grant
//! nothing. A file that cannot be parsed completely is rejected; a policy that is already in effect then stays in effect.

mod file;
mod glob;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use regex::Regex;

use crate::config::{ConfigPaths, FileSnapshot, FileWatch, Origin, Problem, read_text};
use file::{FileLimits, PolicyRules, RuleLists};
pub use glob::Glob;

/// Defaults.
const MAX_OUTPUT_BYTES: u64 = 50_000;
const MAX_OUTPUT_TOKENS: u64 = 4_000;

/// All policy files, combined.
#[derive(Debug, Default)]
pub struct Policy {
    layers: Vec<PolicyLayer>,
    files: Vec<FileSnapshot>,
}

#[derive(Debug)]
struct PolicyLayer {
    file: PathBuf,
    origin: Origin,
    rules: PolicyRules,
}

/// The subject of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicySubject<'a> {
    Server(&'a str),
    Tool {
        server: &'a str,
        /// The tool, by the server's own name for it.
        tool: &'a str,
    },
    Resource {
        server: &'a str,
        uri: &'a str,
    },
    Prompt {
        server: &'a str,
        /// The prompt, by the server's own name for it.
        name: &'a str,
    },
    /// A tool of the gateway itself.
    GatewayTool(&'a str),
}

/// A section of a policy file, and what its patterns match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicySection {
    Servers,
    /// Matches `server::tool`.
    Tools,
    GatewayTools,
    /// Matches `server::uri`.
    Resources,
    /// Matches `server::name`.
    Prompts,
    Packages,
}

impl PolicySection {
    /// Returns the name used in policy files.
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

    fn lists_in(self, rules: &PolicyRules) -> &RuleLists {
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

/// The rule that decided, and its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchedRule<'p> {
    pub file: &'p Path,
    pub section: PolicySection,
    pub list: ListMatch<'p>,
}

/// The list entry that decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListMatch<'p> {
    /// This pattern of the denylist matched.
    Denied(&'p str),
    /// This pattern of the allowlist matched.
    Allowed(&'p str),
    /// The section has an allowlist, and no pattern of it matched.
    NotAllowed,
}

impl fmt::Display for MatchedRule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, section) = (self.file.display(), self.section.name());
        match self.list {
            ListMatch::Denied(pattern) => write!(f, "`{pattern}` in {section}.denylist of {file}"),
            ListMatch::Allowed(pattern) => {
                write!(f, "`{pattern}` in {section}.allowlist of {file}")
            }
            ListMatch::NotAllowed => write!(f, "nothing in {section}.allowlist of {file} matches"),
        }
    }
}

/// Whether the subject may be seen and used, and the rule that decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'p> {
    /// Allowed by the last matching rule, or because no rule matches.
    Allowed(Option<MatchedRule<'p>>),
    /// Denied by the first rule that denies.
    Denied(MatchedRule<'p>),
}

impl Verdict<'_> {
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }
}

/// The verdict on a package that is to be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageVerdict<'p> {
    Denied(MatchedRule<'p>),
    /// Granted without further approval by a file of the user's own.
    Granted(MatchedRule<'p>),
    /// No rule matches, or only a rule of a project, which grants nothing.
    Unspecified,
}

/// The limits in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyLimits {
    /// Maximum number of tools listed per server; `None` lists all.
    pub max_tools_per_server: Option<u64>,
    /// Maximum size of a reply.
    pub max_output_bytes: u64,
    pub max_output_tokens: u64,
}

// === impl Lists ===

impl RuleLists {
    /// Matches a name against both lists; `None` if no rule applies.
    fn match_name(&self, name: &str) -> Option<ListMatch<'_>> {
        let find = |list: &[Glob]| list.iter().position(|glob| glob.matches(name));
        if let Some(at) = find(&self.denylist) {
            return Some(ListMatch::Denied(self.denylist[at].as_str()));
        }
        if self.allowlist.is_empty() {
            return None;
        }
        Some(match find(&self.allowlist) {
            Some(at) => ListMatch::Allowed(self.allowlist[at].as_str()),
            None => ListMatch::NotAllowed,
        })
    }

    fn is_empty(&self) -> bool {
        self.allowlist.is_empty() && self.denylist.is_empty()
    }
}

// === impl Policy ===

impl Policy {
    /// Reads every policy file. A file given explicitly must exist.
    pub fn load(places: &ConfigPaths) -> Result<Self, Problem> {
        Self::read(places).1
    }

    /// Reads every policy file. The snapshots are returned even if a file is rejected.
    fn read(places: &ConfigPaths) -> (Vec<FileSnapshot>, Result<Self, Problem>) {
        let mut files: Vec<FileSnapshot> = Vec::new();
        let mut layers = Vec::new();
        let mut refused = None;
        for (origin, file) in policy_files(places) {
            if files.iter().any(|seen| seen.path == file) {
                continue;
            }
            let (seen, text) = read_text(&file);
            files.push(seen);
            let rules = text.and_then(|text| match text {
                Some(text) => file::parse(&file, &text).map(Some),
                None if origin == Origin::Explicit => Err(Problem::new(&file, "is not there")),
                None => Ok(None),
            });
            match rules {
                Ok(Some(rules)) => layers.push(PolicyLayer {
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

    /// Returns the files with rules, by descending precedence.
    pub fn sources(&self) -> impl Iterator<Item = (Origin, &Path)> {
        self.layers
            .iter()
            .map(|layer| (layer.origin, layer.file.as_path()))
    }

    /// Returns the snapshots of all files, including absent ones.
    pub fn files(&self) -> &[FileSnapshot] {
        &self.files
    }

    /// Decides on a subject. Everything of a denied server is denied with it.
    pub fn verdict(&self, thing: PolicySubject<'_>) -> Verdict<'_> {
        let (section, server, name) = match thing {
            PolicySubject::Server(name) => return self.check(PolicySection::Servers, name),
            PolicySubject::GatewayTool(name) => {
                return self.check(PolicySection::GatewayTools, name);
            }
            PolicySubject::Tool { server, tool } => (PolicySection::Tools, server, tool),
            PolicySubject::Resource { server, uri } => (PolicySection::Resources, server, uri),
            PolicySubject::Prompt { server, name } => (PolicySection::Prompts, server, name),
        };
        let of_server = self.check(PolicySection::Servers, server);
        let spoken = |layer: &PolicyLayer| !section.lists_in(&layer.rules).is_empty();
        if !of_server.is_allowed() || !self.layers.iter().any(spoken) {
            return of_server;
        }
        match self.check(section, &format!("{server}::{name}")) {
            Verdict::Allowed(None) => of_server,
            verdict => verdict,
        }
    }

    fn check(&self, section: PolicySection, name: &str) -> Verdict<'_> {
        let mut by = None;
        for layer in &self.layers {
            let Some(list) = section.lists_in(&layer.rules).match_name(name) else {
                continue;
            };
            let rule = MatchedRule {
                file: &layer.file,
                section,
                list,
            };
            if !matches!(list, ListMatch::Allowed(_)) {
                return Verdict::Denied(rule);
            }
            by = Some(rule);
        }
        Verdict::Allowed(by)
    }

    pub fn package_verdict(&self, name: &str) -> PackageVerdict<'_> {
        if let Verdict::Denied(rule) = self.check(PolicySection::Packages, name) {
            return PackageVerdict::Denied(rule);
        }
        let own = self
            .layers
            .iter()
            .filter(|layer| layer.origin != Origin::Project);
        let mut granted = own.filter_map(|layer| {
            Some(MatchedRule {
                file: &layer.file,
                section: PolicySection::Packages,
                list: layer.rules.packages.match_name(name)?,
            })
        });
        granted
            .next()
            .map_or(PackageVerdict::Unspecified, PackageVerdict::Granted)
    }

    /// Returns the limits: the lowest that the user's own files set, or the defaults, further lowered by the project's
    /// file.
    pub fn limits(&self) -> PolicyLimits {
        let lowest = |of: fn(&FileLimits) -> Option<u64>, ours: Option<u64>| {
            let of_project = |wanted: bool| {
                let layers = self.layers.iter();
                let layers =
                    layers.filter(move |layer| (layer.origin == Origin::Project) == wanted);
                layers.filter_map(|layer| of(&layer.rules.limits)).min()
            };
            let own = of_project(false).or(ours);
            own.into_iter().chain(of_project(true)).min()
        };
        PolicyLimits {
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

    /// Returns the redaction patterns of all files.
    pub fn redaction_patterns(&self) -> Vec<Regex> {
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

/// Returns the candidate policy files, by descending precedence.
fn policy_files(places: &ConfigPaths) -> Vec<(Origin, PathBuf)> {
    let mut candidates = Vec::new();
    if let Some(given) = &places.policy {
        candidates.push((Origin::Explicit, given.clone()));
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

/// The policy in effect, reloaded when its files change.
#[derive(Debug)]
pub struct CurrentPolicy {
    places: ConfigPaths,
    state: Mutex<(Arc<Policy>, FileWatch)>,
}

impl CurrentPolicy {
    /// Reads the policy; a rejected file is an error.
    pub fn open(places: ConfigPaths) -> Result<Self, Problem> {
        let policy = Policy::load(&places)?;
        let watch = FileWatch::new(policy.files.iter().cloned());
        Ok(Self {
            places,
            state: Mutex::new((Arc::new(policy), watch)),
        })
    }

    pub fn get(&self) -> Arc<Policy> {
        Arc::clone(&self.state.lock().0)
    }

    /// Reloads the policy if a file changed, and returns whether it did. If a file is rejected, the old policy stays in
    /// effect and the file is not read again until it changes.
    pub fn refresh(&self) -> Result<bool, Problem> {
        let mut state = self.state.lock();
        if !state.1.has_changed() {
            return Ok(false);
        }
        let (files, policy) = Policy::read(&self.places);
        state.1 = FileWatch::new(files);
        state.0 = Arc::new(policy?);
        Ok(true)
    }
}

//! Settings, and where each of them comes from.
//!
//! Five layers, the first that speaks wins: flags, environment, project file, user file, default. Every
//! value keeps its [`Origin`], every unknown name is refused with the nearest known one.
//!
//! A project file comes with a checkout, so it is not the user's word. Until the user has approved its exact
//! bytes ([`trust`]) it may only name sources and narrow what is there; what would add a command, a folder or
//! a listener, or raise a limit, is withheld and said so.

mod layers;
mod table;
mod trust;
mod value;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rung_fault::{Code, Fault};

pub(crate) use layers::{Given, Origin};
pub(crate) use table::SETTINGS;
pub(crate) use trust::{Project, Trust};
pub(crate) use value::Value;

/// What holds, and why.
#[derive(Debug)]
pub(crate) struct Settings {
    values: BTreeMap<String, (Value, Origin)>,
    withheld: Vec<Withheld>,
    project: Option<Project>,
}

/// A value of an unapproved project file that was not taken.
#[derive(Debug)]
pub(crate) struct Withheld {
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

impl Settings {
    /// Reads every layer.
    pub(crate) fn load(given: &Given) -> Result<Self, Fault> {
        let mut values = layers::defaults(given);
        let mut withheld = Vec::new();
        values.extend(layers::user_file(given)?);
        let project = trust::find_project(given)?;
        if let Some(project) = &project {
            let approved = Trust::of(given)?.approves(project);
            for (key, (value, origin)) in layers::parse_file(&project.path, &project.text)? {
                let below = values.get(&key).map(|(value, _)| value);
                if approved || table::find(&key)?.power.harmless(&value, below) {
                    values.insert(key, (value, origin));
                } else {
                    withheld.push(Withheld { key, value, origin });
                }
            }
        }
        values.extend(layers::environment(given)?);
        values.extend(layers::flags(given)?);
        Ok(Self {
            values,
            withheld,
            project,
        })
    }

    /// Every value with its origin, in the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Value, &Origin)> {
        self.values
            .iter()
            .map(|(key, (value, origin))| (key.as_str(), value, origin))
    }

    /// What the project file asked for in vain.
    pub(crate) fn withheld(&self) -> &[Withheld] {
        &self.withheld
    }

    /// The project file, if there is one.
    pub(crate) fn project(&self) -> Option<&Project> {
        self.project.as_ref()
    }

    /// The data folder.
    pub(crate) fn home(&self) -> Result<PathBuf, Fault> {
        match self.values.get("home") {
            Some((Value::Folder(path), _)) => Ok(path.clone()),
            _ => Err(Fault::new(Code::InvalidSetting, "no data folder is known")
                .with_hint("name one with --home DIR or RUNG_HOME")),
        }
    }

    /// Bytes of a reply.
    pub(crate) fn reply_max_bytes(&self) -> usize {
        usize::try_from(self.number("reply.max_bytes")).unwrap_or(usize::MAX)
    }

    /// How long a result is kept.
    pub(crate) fn results_ttl(&self) -> Duration {
        Duration::from_secs(self.number("results.ttl_s"))
    }

    /// Bytes of results that one caller may keep.
    pub(crate) fn results_max_bytes(&self) -> u64 {
        self.number("results.max_bytes")
    }

    fn number(&self, key: &str) -> u64 {
        match self.values.get(key) {
            Some((Value::Number(number), _)) => *number,
            other => unreachable!("{key} has a number by default, not {other:?}"),
        }
    }
}

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

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rung_auth::Access;
use rung_db::{Holds, Known, Limits, OpenTo};
use rung_embed::{Key, Prefixes, Said, Source};
use rung_fault::{Code, Fault};

use layers::Layer;
pub(crate) use layers::{Given, Origin};
use table::Power;
pub(crate) use table::SETTINGS;
pub(crate) use trust::{Project, Trust};
pub(crate) use value::{Value, visible};

/// What holds, and why.
#[derive(Debug)]
pub(crate) struct Settings {
    values: Layer,
    withheld: Vec<Withheld>,
    project: Option<Project>,
    /// Whether the user approved it.
    approved: bool,
    passed_over: Vec<PathBuf>,
}

/// A value of an unapproved project file that was not taken.
#[derive(Debug)]
pub(crate) struct Withheld {
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// What the user's own layers say where a project file wants to say `key`.
///
/// A source of the user's is the user's as a whole: it cannot be led elsewhere by another of its members.
fn own_word<'l>(layer: &'l Layer, key: &str, power: Power) -> Option<&'l Value> {
    let same = |name: &str| match (power, key.rsplit_once('.')) {
        (Power::Names, Some((source, _))) => {
            name.rsplit_once('.').is_some_and(|(s, _)| s == source)
        }
        _ => name == key,
    };
    let found = layer.iter().find(|(name, _)| same(name));
    found.map(|(_, (value, _))| value)
}

impl Settings {
    /// Reads every layer.
    pub(crate) fn load(given: &Given) -> Result<Self, Fault> {
        let mut values = layers::defaults(given);
        let mut withheld = Vec::new();
        values.extend(layers::user_file(given)?);
        let mut said_here = layers::environment(given)?;
        said_here.extend(layers::flags(given)?);
        let (project, passed_over) = trust::find_project(given)?;
        let mut approved = false;
        if let Some(project) = &project {
            approved = Trust::of(given)?.approves(project);
            // Everything that is the user's own word, whether it comes below the project file or above it.
            let mut own = values.clone();
            own.extend(said_here.clone());
            for (key, (value, origin)) in layers::parse_file(given, &project.path, &project.text)? {
                let power = table::find(&key)?.power;
                if approved || power.harmless(&value, own_word(&own, &key, power)) {
                    values.insert(key, (value, origin));
                } else {
                    withheld.push(Withheld { key, value, origin });
                }
            }
        }
        values.extend(said_here);
        Ok(Self {
            values,
            withheld,
            project,
            approved,
            passed_over,
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

    /// Project files that were passed over, since they belong to another user.
    pub(crate) fn passed_over(&self) -> &[PathBuf] {
        &self.passed_over
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

    /// The database that personal data is kept in, if it is not the data folder.
    pub(crate) fn records_postgres(&self) -> Option<&str> {
        match self.values.get("records.postgres") {
            Some((Value::Database(address), _)) => Some(address),
            _ => None,
        }
    }

    /// Changes of personal data that are remembered.
    pub(crate) fn records_history(&self) -> u64 {
        self.number("records.history")
    }

    /// Bytes of records that are taken in by one request.
    pub(crate) fn records_max_body_bytes(&self) -> u64 {
        self.number("records.max_body_bytes")
    }

    /// Whether records must be as they are declared.
    pub(crate) fn records_strict(&self) -> bool {
        matches!(
            self.values.get("records.strict"),
            Some((Value::Switch(true), _))
        )
    }

    /// Where the HTTP side listens.
    pub(crate) fn listen(&self) -> SocketAddr {
        match self.values.get("listen") {
            Some((Value::Address(address), _)) => *address,
            other => unreachable!("listen has an address by default, not {other:?}"),
        }
    }

    /// How much a server tells.
    pub(crate) fn log(&self) -> &'static str {
        match self.values.get("log") {
            Some((Value::Word(word), _)) => word,
            other => unreachable!("log has a word by default, not {other:?}"),
        }
    }

    /// Folders that may be opened; any where there are none.
    pub(crate) fn roots(&self) -> &[PathBuf] {
        match self.values.get("roots") {
            Some((Value::Folders(roots), _)) => roots,
            _ => &[],
        }
    }

    /// How much of a database's answer is sent.
    pub(crate) fn db_limits(&self) -> Limits {
        let size = |key| usize::try_from(self.number(key)).unwrap_or(usize::MAX);
        Limits {
            max_items: size("db.max_items"),
            max_bytes: size("db.max_bytes"),
        }
    }

    /// The databases that are known by name.
    pub(crate) fn databases(&self) -> Result<Vec<Known>, Fault> {
        let tables = self.values.keys().filter_map(|key| {
            let (name, _) = key.strip_prefix("databases.")?.split_once('.')?;
            Some(name)
        });
        let mut names: Vec<&str> = tables.collect();
        names.dedup();
        let known = names.into_iter().map(|name| {
            let said = |member: &str| {
                let said = self.values.get(&format!("databases.{name}.{member}"));
                said.map(|(value, _)| value)
            };
            let Some(Value::Folder(dir)) = said("dir") else {
                let why = format!("databases.{name} has no folder");
                return Err(Fault::new(Code::InvalidSetting, why)
                    .with_hint(format!("say databases.{name}.dir")));
            };
            Ok(Known {
                name: name.to_owned(),
                dir: dir.clone(),
                holds: match said("store") {
                    Some(Value::Word("kv")) => Holds::Tables,
                    _ => Holds::Facts,
                },
                mode: match said("mode") {
                    Some(Value::Word("write")) => Access::Write,
                    _ => Access::Read,
                },
                open_to: match said("open_to") {
                    Some(Value::Word("anybody")) => OpenTo::Anybody,
                    Some(Value::Word("tokens")) => OpenTo::Tokens,
                    _ => OpenTo::Granted,
                },
            })
        });
        known.collect()
    }

    /// The models of embeddings that databases may name, and what each wants to read before a text.
    pub(crate) fn embeddings(&self) -> Result<BTreeMap<String, (Source, Prefixes)>, Fault> {
        let tables = self.values.keys().filter_map(|key| {
            let (name, _) = key.strip_prefix("embeddings.")?.split_once('.')?;
            Some(name)
        });
        let names: BTreeSet<&str> = tables.collect();
        let known = names.into_iter().map(|name| {
            let said = |member: &str| {
                let said = self.values.get(&format!("embeddings.{name}.{member}"));
                said.map(|(value, _)| value)
            };
            let text = |member: &str| match said(member) {
                Some(Value::Text(text)) => Some(text.clone()),
                _ => None,
            };
            let number = |member: &str| match said(member) {
                Some(Value::Number(number)) => Some(*number),
                _ => None,
            };
            let wrong = |why: &str| {
                let why = format!("embeddings.{name} {why}");
                Fault::new(Code::InvalidSetting, why)
            };
            let key = match (text("key_env"), said("key_file")) {
                (None, None) => Key::None,
                (Some(name), None) => Key::Variable(name),
                (None, Some(Value::File(path))) => Key::File(path.clone()),
                _ => return Err(wrong("has its key in two places")),
            };
            let source = match (said("dir"), said("url"), text("model")) {
                (Some(Value::Folder(dir)), None, _) => Source::Folder(dir.clone()),
                (None, Some(Value::Url(url)), Some(model)) => Source::Endpoint(Said {
                    url: url.clone(),
                    model,
                    key,
                    dimensions: number("dimensions")
                        .and_then(|number| usize::try_from(number).ok()),
                    patience: Duration::from_secs(number("timeout_s").unwrap_or(60)),
                }),
                (None, Some(_), _) => {
                    return Err(wrong("has an endpoint that is asked for no model"));
                }
                _ => {
                    return Err(wrong(
                        "is a folder or an endpoint: say dir or url, one of them",
                    ));
                }
            };
            let prefixes = Prefixes {
                document: text("document_prefix").unwrap_or_default(),
                query: text("query_prefix").unwrap_or_default(),
            };
            Ok((name.to_owned(), (source, prefixes)))
        });
        known.collect()
    }

    /// Whether a value comes from a project's file that nobody approved.
    pub(crate) fn is_strangers(&self, origin: &Origin) -> bool {
        let of_project = |project: &Project| matches!(origin, Origin::File { path, .. } if *path == project.path);
        !self.approved && self.project.as_ref().is_some_and(of_project)
    }

    pub(crate) fn word(&self, key: &str) -> &'static str {
        match self.values.get(key) {
            Some((Value::Word(word), _)) => word,
            other => unreachable!("{key} has a word by default, not {other:?}"),
        }
    }

    pub(crate) fn number(&self, key: &str) -> u64 {
        match self.values.get(key) {
            Some((Value::Number(number), _)) => *number,
            other => unreachable!("{key} has a number by default, not {other:?}"),
        }
    }
}

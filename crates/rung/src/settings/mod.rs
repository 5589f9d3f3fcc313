//! Settings, and where each value comes from.
//!
//! Five layers in order of precedence: flags, environment, project file, user file, default. Every value keeps its
//! [`Origin`]. Every unknown key is rejected with the nearest known one.
//!
//! A project file comes with a checkout, so it is untrusted. Until the user has approved its exact bytes ([`trust`]), it may
//! only name sources and narrow access; a value that would add a command, a folder or a listener, or raise a limit, is
//! withheld and reported.

mod layers;
mod table;
mod trust;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use rung_auth::Access;
use rung_db::{DatabaseAudience, NamedDatabase, StoreKind};
use rung_embed::{EmbeddingSource, EndpointConfig, EndpointKey, Prefixes};
use rung_fault::{Code, Fault};
use rung_ladder::limits;
use rung_mcp::CallDeadlines;
use rung_tool::PayloadLimits;

use crate::listen_address::ListenAddress;
use layers::Layer;
pub(crate) use layers::{Origin, SettingsInput};
use table::ProjectPermission;
pub(crate) use table::SETTINGS;
pub(crate) use trust::{ProjectApprovals, ProjectFile};
pub(crate) use value::{SettingValue, escape_for_terminal};

/// Effective settings with their origins.
#[derive(Debug)]
pub(crate) struct Settings {
    values: Layer,
    withheld: Vec<WithheldSetting>,
    project: Option<ProjectFile>,
    /// True if the user approved the project file.
    approved: bool,
    ignored_projects: Vec<PathBuf>,
}

/// A value of an unapproved project file that was not applied.
#[derive(Debug)]
pub(crate) struct WithheldSetting {
    pub(crate) key: String,
    pub(crate) value: SettingValue,
    pub(crate) origin: Origin,
}

/// Returns the user's own value for a `key` of a project file.
///
/// Any member of a source that the user defines counts as a value for the whole source: a project file cannot redirect it by
/// setting another member.
fn user_value<'l>(
    layer: &'l Layer,
    key: &str,
    power: ProjectPermission,
) -> Option<&'l SettingValue> {
    let same = |name: &str| match (power, key.rsplit_once('.')) {
        (ProjectPermission::MayAdd, Some((source, _))) => {
            name.rsplit_once('.').is_some_and(|(s, _)| s == source)
        }
        _ => name == key,
    };
    let found = layer.iter().find(|(name, _)| same(name));
    found.map(|(_, (value, _))| value)
}

impl Settings {
    /// Loads and merges all layers.
    pub(crate) fn load(given: &SettingsInput) -> Result<Self, Fault> {
        let mut values = layers::defaults(given);
        let mut withheld = Vec::new();
        values.extend(layers::user_file(given)?);
        let mut said_here = layers::environment(given)?;
        said_here.extend(layers::flags(given)?);
        let (project, passed_over) = trust::find_project(given)?;
        let mut approved = false;
        if let Some(project) = &project {
            approved = ProjectApprovals::load(given)?.is_approved(project);
            // The user's own values, of lower and higher precedence than the project file.
            let mut own = values.clone();
            own.extend(said_here.clone());
            for (key, (value, origin)) in layers::parse_file(given, &project.path, &project.text)? {
                let power = table::find(&key)?.project_permission;
                if approved || power.allows(&value, user_value(&own, &key, power)) {
                    values.insert(key, (value, origin));
                } else {
                    withheld.push(WithheldSetting { key, value, origin });
                }
            }
        }
        values.extend(said_here);
        Ok(Self {
            values,
            withheld,
            project,
            approved,
            ignored_projects: passed_over,
        })
    }

    /// Returns every value with its origin, ordered by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &SettingValue, &Origin)> {
        self.values
            .iter()
            .map(|(key, (value, origin))| (key.as_str(), value, origin))
    }

    /// Returns the values of the project file that were not applied.
    pub(crate) fn withheld(&self) -> &[WithheldSetting] {
        &self.withheld
    }

    /// Returns the project files that were ignored because they belong to another user.
    pub(crate) fn ignored_projects(&self) -> &[PathBuf] {
        &self.ignored_projects
    }

    pub(crate) fn project(&self) -> Option<&ProjectFile> {
        self.project.as_ref()
    }

    pub(crate) fn home(&self) -> Result<PathBuf, Fault> {
        match self.values.get("home") {
            Some((SettingValue::Folder(path), _)) => Ok(path.clone()),
            _ => Err(
                Fault::new(Code::InvalidSetting, "the data folder is not known")
                    .with_hint("set --home DIR or RUNG_HOME"),
            ),
        }
    }

    /// Returns the maximum bytes of a reply.
    pub(crate) fn reply_max_bytes(&self) -> usize {
        usize::try_from(self.number("reply.max_bytes")).unwrap_or(usize::MAX)
    }

    /// Returns the bytes of a page of rows. Only an explicit limit of replies limits pages as well.
    pub(crate) fn page_max_bytes(&self) -> usize {
        let origin = self.values.get("reply.max_bytes").map(|(_, origin)| origin);
        match origin {
            None | Some(Origin::Default) => limits::PAGE_BYTES.max(self.reply_max_bytes()),
            Some(_) => self.reply_max_bytes(),
        }
    }

    /// Returns the time that calls have.
    pub(crate) fn call_deadlines(&self) -> CallDeadlines {
        let by_tool = self.values.iter().filter_map(|(key, (value, _))| {
            let tool = key.strip_prefix("calls.")?.strip_suffix(".deadline_s")?;
            match value {
                SettingValue::Number(seconds) => {
                    Some((tool.to_owned(), Duration::from_secs(*seconds)))
                }
                _ => None,
            }
        });
        CallDeadlines {
            usual: Duration::from_secs(self.number("calls.deadline_s")),
            by_tool: by_tool.collect(),
        }
    }

    /// Returns how long a result is kept.
    pub(crate) fn results_ttl(&self) -> Duration {
        Duration::from_secs(self.number("results.ttl_s"))
    }

    /// Returns the maximum bytes of stored results for each caller.
    pub(crate) fn results_max_bytes(&self) -> u64 {
        self.number("results.max_bytes")
    }

    /// Returns the URL of the PostgreSQL database of personal data. `None` means SQLite in the data folder.
    pub(crate) fn records_postgres(&self) -> Option<&str> {
        match self.values.get("records.postgres") {
            Some((SettingValue::Database(address), _)) => Some(address),
            _ => None,
        }
    }

    /// Returns the number of record changes to retain; 0 for all.
    pub(crate) fn records_history(&self) -> u64 {
        self.number("records.history")
    }

    /// Returns the maximum bytes of records in one request.
    pub(crate) fn records_max_body_bytes(&self) -> u64 {
        self.number("records.max_body_bytes")
    }

    /// Returns true if records must match their schema.
    pub(crate) fn records_strict(&self) -> bool {
        matches!(
            self.values.get("records.strict"),
            Some((SettingValue::Switch(true), _))
        )
    }

    /// Returns the address that the HTTP server listens on.
    pub(crate) fn listen(&self) -> &ListenAddress {
        match self.values.get("listen") {
            Some((SettingValue::Address(address), _)) => address,
            other => unreachable!("listen has an address by default, not {other:?}"),
        }
    }

    /// Returns the log level.
    pub(crate) fn log(&self) -> &'static str {
        match self.values.get("log") {
            Some((SettingValue::Word(word), _)) => word,
            other => unreachable!("log has a word by default, not {other:?}"),
        }
    }

    /// Returns the folders within which databases may be opened; empty for no restriction.
    pub(crate) fn roots(&self) -> &[PathBuf] {
        match self.values.get("roots") {
            Some((SettingValue::Folders(roots), _)) => roots,
            _ => &[],
        }
    }

    /// Returns the limits of a database reply.
    pub(crate) fn db_limits(&self) -> PayloadLimits {
        let size = |key| usize::try_from(self.number(key)).unwrap_or(usize::MAX);
        PayloadLimits {
            max_items: size("db.max_items"),
            max_bytes: size("db.max_bytes"),
        }
    }

    /// Returns the databases that the settings name.
    pub(crate) fn databases(&self) -> Result<Vec<NamedDatabase>, Fault> {
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
            let Some(SettingValue::Folder(dir)) = said("dir") else {
                let why = format!("databases.{name}.dir is not set");
                return Err(Fault::new(Code::InvalidSetting, why)
                    .with_hint(format!("set databases.{name}.dir")));
            };
            Ok(NamedDatabase {
                name: name.to_owned(),
                dir: dir.clone(),
                kind: match said("store") {
                    Some(SettingValue::Word("kv")) => StoreKind::Tables,
                    _ => StoreKind::Facts,
                },
                mode: match said("mode") {
                    Some(SettingValue::Word("write")) => Access::Write,
                    _ => Access::Read,
                },
                audience: match said("open_to") {
                    Some(SettingValue::Word("anybody")) => DatabaseAudience::Anonymous,
                    Some(SettingValue::Word("tokens")) => DatabaseAudience::Tokens,
                    _ => DatabaseAudience::Granted,
                },
            })
        });
        known.collect()
    }

    /// Returns the embedding models that databases may name, with the prefixes that each expects before a text.
    pub(crate) fn embeddings(
        &self,
    ) -> Result<BTreeMap<String, (EmbeddingSource, Prefixes)>, Fault> {
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
                Some(SettingValue::Text(text)) => Some(text.clone()),
                _ => None,
            };
            let number = |member: &str| match said(member) {
                Some(SettingValue::Number(number)) => Some(*number),
                _ => None,
            };
            let wrong = |why: &str| {
                let why = format!("embeddings.{name} {why}");
                Fault::new(Code::InvalidSetting, why)
            };
            let key = match (text("key_env"), said("key_file")) {
                (None, None) => EndpointKey::None,
                (Some(name), None) => EndpointKey::Variable(name),
                (None, Some(SettingValue::File(path))) => EndpointKey::File(path.clone()),
                _ => return Err(wrong("has both key_env and key_file; set one of them")),
            };
            let source = match (said("dir"), said("url"), text("model")) {
                (Some(SettingValue::Folder(dir)), None, _) => EmbeddingSource::Folder(dir.clone()),
                (None, Some(SettingValue::Url(url)), Some(model)) => {
                    EmbeddingSource::Endpoint(EndpointConfig {
                        url: url.clone(),
                        model,
                        key,
                        dimensions: number("dimensions")
                            .and_then(|number| usize::try_from(number).ok()),
                        timeout: Duration::from_secs(number("timeout_s").unwrap_or(60)),
                    })
                }
                (None, Some(_), _) => {
                    return Err(wrong("has a url and no model; set model"));
                }
                _ => {
                    return Err(wrong("must have exactly one of dir and url"));
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

    /// Returns true if a value comes from an unapproved project file.
    pub(crate) fn is_from_unapproved_project(&self, origin: &Origin) -> bool {
        let of_project = |project: &ProjectFile| matches!(origin, Origin::File { path, .. } if *path == project.path);
        !self.approved && self.project.as_ref().is_some_and(of_project)
    }

    pub(crate) fn word(&self, key: &str) -> &'static str {
        match self.values.get(key) {
            Some((SettingValue::Word(word), _)) => word,
            other => unreachable!("{key} has a word by default, not {other:?}"),
        }
    }

    pub(crate) fn number(&self, key: &str) -> u64 {
        match self.values.get(key) {
            Some((SettingValue::Number(number), _)) => *number,
            other => unreachable!("{key} has a number by default, not {other:?}"),
        }
    }
}

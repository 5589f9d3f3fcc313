//! The table of all settings: key, kind of value, default, and what an unapproved project file may do with it.

use rung_fault::{Code, Detail, Fault, nearest};
use rung_ladder::limits;

use super::value::{SettingKind, SettingValue};

/// What an unapproved project file may do with a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProjectPermission {
    /// Add it under a new name, which accesses nothing on its own.
    MayAdd,
    /// Lower it, which narrows access.
    MayLower,
    /// Set it to `true`, which narrows access.
    MayEnable,
    /// Nothing: the setting runs a command, opens a folder, listens or deletes, and needs the user's approval.
    Denied,
}

impl ProjectPermission {
    /// Returns true if an unapproved file may set this value, given the user's own value.
    pub(crate) fn allows(self, value: &SettingValue, own_word: Option<&SettingValue>) -> bool {
        match self {
            Self::MayAdd => own_word.is_none(),
            Self::MayLower => match (value, own_word) {
                (SettingValue::Number(new), Some(SettingValue::Number(old))) => new <= old,
                _ => false,
            },
            Self::MayEnable => *value == SettingValue::Switch(true),
            Self::Denied => false,
        }
    }

    /// Returns the rule in words, for the reference.
    pub(crate) fn rule(self) -> &'static str {
        match self {
            Self::MayAdd => "may name a new one",
            Self::MayLower => "may lower it",
            Self::MayEnable => "may enable it",
            Self::Denied => "no",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Setting {
    /// Name in files and for `--set`; `*` stands for a name that the user chooses.
    pub(crate) key: &'static str,
    /// Environment variable.
    pub(crate) env: Option<&'static str>,
    pub(crate) kind: SettingKind,
    /// Default, as text.
    pub(crate) default: Option<&'static str>,
    pub(crate) project_permission: ProjectPermission,
    /// Description in the reference.
    pub(crate) help: &'static str,
}

/// The time of a call.
const CALL_SECONDS: SettingKind = SettingKind::Number {
    min: 1,
    max: 24 * 60 * 60,
};

pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        key: "calls.*.deadline_s",
        env: None,
        kind: CALL_SECONDS,
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "`calls.deadline_s` of one tool, whose name has `_` in place of `.`: `calls.rung_read.deadline_s`.",
    },
    Setting {
        key: "calls.deadline_s",
        env: Some("RUNG_CALLS_DEADLINE_S"),
        kind: CALL_SECONDS,
        default: Some("600"),
        project_permission: ProjectPermission::MayLower,
        help: "Seconds after which a call is abandoned. The time in which the user answers a question of the call is not counted, and a call that runs as a task has an hour.",
    },
    Setting {
        key: "databases.*.dir",
        env: None,
        kind: SettingKind::Folder,
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "The folder of the database that agents open by this name.",
    },
    Setting {
        key: "databases.*.mode",
        env: None,
        kind: SettingKind::OneOf(&["read", "write"]),
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "Access of clients: `read` or `write`. The default is `read`.",
    },
    Setting {
        key: "databases.*.open_to",
        env: None,
        kind: SettingKind::OneOf(&["granted", "tokens", "anybody"]),
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "Clients that may open it over HTTP: `granted` for tokens whose grant names it (the default), `tokens` also for every token without a grant, `anybody` for every admitted client.",
    },
    Setting {
        key: "databases.*.store",
        env: None,
        kind: SettingKind::OneOf(&["datalog", "kv"]),
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "Content of the folder: `datalog` for facts (the default), or `kv` for tables of keys and values.",
    },
    Setting {
        key: "db.max_bytes",
        env: Some("RUNG_DB_MAX_BYTES"),
        kind: SettingKind::Number {
            min: 4_000,
            max: 1 << 30,
        },
        default: Some("524288"),
        project_permission: ProjectPermission::MayLower,
        help: "Maximum bytes of a database reply; a larger one is cut and stored whole. `reply.max_bytes` applies too.",
    },
    Setting {
        key: "db.max_items",
        env: Some("RUNG_DB_MAX_ITEMS"),
        kind: SettingKind::Number {
            min: 1,
            max: 1 << 20,
        },
        default: Some("200"),
        project_permission: ProjectPermission::MayLower,
        help: "Maximum items of a database reply; a longer one is cut and stored whole.",
    },
    Setting {
        key: "embeddings.*.dimensions",
        env: None,
        kind: SettingKind::Number {
            min: 1,
            max: 65_536,
        },
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "Dimensions of the endpoint's vectors. By default the endpoint is asked.",
    },
    Setting {
        key: "embeddings.*.dir",
        env: None,
        kind: SettingKind::Folder,
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "The folder of a model that databases name, with `tokenizer.json` and `model.safetensors`, and `config.json` for a BERT model.",
    },
    Setting {
        key: "embeddings.*.document_prefix",
        env: None,
        kind: SettingKind::Text,
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "Prefix that the model expects before a document.",
    },
    Setting {
        key: "embeddings.*.key_env",
        env: None,
        kind: SettingKind::Text,
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "The environment variable that holds the endpoint's key.",
    },
    Setting {
        key: "embeddings.*.key_file",
        env: None,
        kind: SettingKind::File,
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "The file whose first line is the endpoint's key.",
    },
    Setting {
        key: "embeddings.*.model",
        env: None,
        kind: SettingKind::Text,
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "The model to request from the endpoint.",
    },
    Setting {
        key: "embeddings.*.query_prefix",
        env: None,
        kind: SettingKind::Text,
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "Prefix that the model expects before a query.",
    },
    Setting {
        key: "embeddings.*.timeout_s",
        env: None,
        kind: SettingKind::Number { min: 1, max: 3_600 },
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "Timeout, in seconds, of embedding up to 64 texts at the endpoint, with retries. The default is 60.",
    },
    Setting {
        key: "embeddings.*.url",
        env: None,
        kind: SettingKind::Url,
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "The endpoint of a model that databases name. Texts are sent to `/embeddings` below this URL.",
    },
    Setting {
        key: "gateway.idle_s",
        env: Some("RUNG_GATEWAY_IDLE_S"),
        kind: SettingKind::Number {
            min: 1,
            max: 365 * 24 * 60 * 60,
        },
        default: Some("600"),
        project_permission: ProjectPermission::MayLower,
        help: "Seconds for which an unused downstream server keeps running.",
    },
    Setting {
        key: "gateway.open_to",
        env: Some("RUNG_GATEWAY_OPEN_TO"),
        kind: SettingKind::OneOf(&["granted", "tokens", "anybody"]),
        default: Some("tokens"),
        project_permission: ProjectPermission::Denied,
        help: "Clients that may reach downstream servers over HTTP: `granted` for tokens whose grant names them, `tokens` also for every token with write access and without a grant, `anybody` for every admitted client.",
    },
    Setting {
        key: "gateway.registry",
        env: Some("RUNG_GATEWAY_REGISTRY"),
        kind: SettingKind::Url,
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "The URL of a registry of MCP servers, such as `https://registry.modelcontextprotocol.io`. Its list is downloaded once a day and searched locally if no configured tool matches. By default no registry is used.",
    },
    Setting {
        key: "gateway.start_s",
        env: Some("RUNG_GATEWAY_START_S"),
        kind: SettingKind::Number { min: 1, max: 3_600 },
        default: Some("60"),
        project_permission: ProjectPermission::MayLower,
        help: "Seconds that a downstream server may take to start, and then to list its tools, resources and prompts.",
    },
    Setting {
        key: "home",
        env: Some("RUNG_HOME"),
        kind: SettingKind::Folder,
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "The data folder. By default `rung` in the platform's data directory.",
    },
    Setting {
        key: "listen",
        env: Some("RUNG_LISTEN"),
        kind: SettingKind::Address,
        default: Some("127.0.0.1:7663"),
        project_permission: ProjectPermission::Denied,
        help: "Host and port that the HTTP server listens on.",
    },
    Setting {
        key: "log",
        env: Some("RUNG_LOG"),
        kind: SettingKind::OneOf(&["off", "error", "warn", "info", "debug", "trace"]),
        default: Some("warn"),
        project_permission: ProjectPermission::Denied,
        help: "Log level on standard error. Requests and replies of clients are never logged.",
    },
    Setting {
        key: "records.history",
        env: Some("RUNG_RECORDS_HISTORY"),
        kind: SettingKind::Number {
            min: 0,
            max: 1 << 40,
        },
        default: Some("0"),
        // A lower value would delete retained changes.
        project_permission: ProjectPermission::Denied,
        help: "Number of changes of personal data that are retained for clients that read changes since a cursor. 0 retains all.",
    },
    Setting {
        key: "records.max_body_bytes",
        env: Some("RUNG_RECORDS_MAX_BODY_BYTES"),
        kind: SettingKind::Number {
            min: 1 << 10,
            max: 1 << 40,
        },
        default: Some("52428800"),
        project_permission: ProjectPermission::MayLower,
        help: "Maximum bytes of records, or of one blob, in one request.",
    },
    Setting {
        key: "records.postgres",
        env: Some("RUNG_RECORDS_POSTGRES"),
        kind: SettingKind::Database,
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "The PostgreSQL database that stores personal data. By default the data folder stores it.",
    },
    Setting {
        key: "records.strict",
        env: Some("RUNG_RECORDS_STRICT"),
        kind: SettingKind::Switch,
        default: Some("false"),
        project_permission: ProjectPermission::MayEnable,
        help: "Accept only records that match their schema, and reject changes of records in append-only streams.",
    },
    Setting {
        key: "reply.max_bytes",
        env: Some("RUNG_REPLY_MAX_BYTES"),
        kind: SettingKind::Number {
            // Fewer bytes cannot hold a window with its metadata.
            min: 4_000,
            max: 1 << 30,
        },
        default: Some(REPLY_BYTES_TEXT),
        project_permission: ProjectPermission::MayLower,
        help: "Maximum bytes of a reply, for each of its forms (content, structured content); a larger result is cut and stored whole. Unless it is set, a page of personal data may have 262144 bytes.",
    },
    Setting {
        key: "results.max_bytes",
        env: Some("RUNG_RESULTS_MAX_BYTES"),
        kind: SettingKind::Number {
            min: 1 << 20,
            max: 1 << 40,
        },
        default: Some("1073741824"),
        // A lower value would delete stored results.
        project_permission: ProjectPermission::Denied,
        help: "Maximum bytes of stored results for one caller; the oldest are deleted first.",
    },
    Setting {
        key: "results.ttl_s",
        env: Some("RUNG_RESULTS_TTL_S"),
        kind: SettingKind::Number {
            min: 1,
            max: 365 * 24 * 60 * 60,
        },
        default: Some("86400"),
        project_permission: ProjectPermission::MayLower,
        help: "Seconds for which a result is stored.",
    },
    Setting {
        key: "roots",
        env: Some("RUNG_ROOTS"),
        kind: SettingKind::Folders,
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "Folders within which databases may be opened. Without any, databases may be opened anywhere.",
    },
    Setting {
        key: "sources.*.command",
        env: None,
        kind: SettingKind::Command,
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "The command that serves the source, as a list of words.",
    },
    Setting {
        key: "sources.*.dir",
        env: None,
        kind: SettingKind::Folder,
        default: None,
        project_permission: ProjectPermission::Denied,
        help: "The folder that holds the source.",
    },
    Setting {
        key: "sources.*.off",
        env: None,
        kind: SettingKind::Switch,
        default: None,
        project_permission: ProjectPermission::MayEnable,
        help: "Hides the source.",
    },
    Setting {
        key: "sources.*.url",
        env: None,
        kind: SettingKind::Url,
        default: None,
        project_permission: ProjectPermission::MayAdd,
        help: "The address that serves the source.",
    },
];

/// `limits::REPLY_BYTES` as text.
const REPLY_BYTES_TEXT: &str = "50000";
const _: () = assert!(limits::REPLY_BYTES == 50_000);

impl Setting {
    /// Returns true if `key` is a key of this setting.
    fn matches_key(&self, key: &str) -> bool {
        let (mut own, mut given) = (self.key.split('.'), key.split('.'));
        loop {
            match (own.next(), given.next()) {
                (None, None) => return true,
                (Some(own), Some(given)) if matches_part(own, given) => {}
                _ => return false,
            }
        }
    }

    /// Returns true if a TOML table named `prefix` can hold this setting.
    fn fits_table(&self, prefix: &str) -> bool {
        let mut own = self.key.split('.');
        prefix
            .split('.')
            .all(|given| own.next().is_some_and(|own| matches_part(own, given)))
            && own.next().is_some()
    }
}

/// Returns true if one part of a key matches; `*` matches a name of 1 to 64 letters, digits, `_` and `-`.
fn matches_part(own: &str, given: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    match own {
        "*" => (1..=64).contains(&given.len()) && given.bytes().all(plain),
        own => own == given,
    }
}

/// Returns the setting with this key.
pub(crate) fn find(key: &str) -> Result<&'static Setting, Fault> {
    let found = SETTINGS.iter().find(|setting| setting.matches_key(key));
    found.ok_or_else(|| unknown_fault("setting", key, SETTINGS.iter().map(|setting| setting.key)))
}

/// Rejects a TOML table that can hold no setting.
pub(crate) fn check_table(prefix: &str) -> Result<(), Fault> {
    if SETTINGS.iter().any(|setting| setting.fits_table(prefix)) {
        return Ok(());
    }
    let known = SETTINGS.iter().map(|setting| setting.key);
    Err(unknown_fault("setting", prefix, known))
}

/// Returns the setting with this environment variable.
pub(crate) fn find_env(name: &str) -> Result<&'static Setting, Fault> {
    let found = SETTINGS.iter().find(|setting| setting.env == Some(name));
    found.ok_or_else(|| unknown_fault("variable", name, SETTINGS.iter().filter_map(|s| s.env)))
}

fn unknown_fault(what: &str, given: &str, known: impl Iterator<Item = &'static str>) -> Fault {
    let known: Vec<&str> = known.collect();
    let message = format!("no {what} is named `{}`", given.escape_debug());
    let fault = Fault::new(Code::UnknownSetting, message);
    match nearest(given, known.iter().copied()) {
        Some(nearest) => fault
            .with_hint(format!("did you mean `{nearest}`?"))
            .with(Detail::Nearest, nearest),
        None => fault.with_hint(format!("choose one of: {}", known.join(", "))),
    }
}

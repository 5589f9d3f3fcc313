//! Every setting, once: its name, what it takes, and what a stranger's file may do with it.

use rung_fault::{Code, Detail, Fault, nearest};
use rung_ladder::limits;

use super::value::{Kind, Value};

/// What a setting could do in the wrong hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Power {
    /// It names something new, and reaches nothing by itself.
    Names,
    /// A lower value is narrower.
    Limits,
    /// `true` is narrower.
    Narrows,
    /// It runs a command, opens a folder, listens or throws away: the user's word is needed.
    Reaches,
}

impl Power {
    /// Whether a file that nobody approved may say this beside the user's own word.
    pub(crate) fn harmless(self, value: &Value, own_word: Option<&Value>) -> bool {
        match self {
            Self::Names => own_word.is_none(),
            Self::Limits => match (value, own_word) {
                (Value::Number(new), Some(Value::Number(old))) => new <= old,
                _ => false,
            },
            Self::Narrows => *value == Value::Switch(true),
            Self::Reaches => false,
        }
    }

    /// The rule in words, for the reference.
    pub(crate) fn rule(self) -> &'static str {
        match self {
            Self::Names => "may name a new one",
            Self::Limits => "may lower it",
            Self::Narrows => "may switch it on",
            Self::Reaches => "no",
        }
    }
}

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its name in files and for `--set`; `*` stands for a name of the user's.
    pub(crate) key: &'static str,
    /// Its variable.
    pub(crate) env: Option<&'static str>,
    pub(crate) kind: Kind,
    /// Its default, as it would be written.
    pub(crate) default: Option<&'static str>,
    pub(crate) power: Power,
    /// What it is for.
    pub(crate) help: &'static str,
}

/// The table.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        key: "databases.*.dir",
        env: None,
        kind: Kind::Folder,
        default: None,
        power: Power::Reaches,
        help: "The folder of the database that agents open by this name.",
    },
    Setting {
        key: "databases.*.mode",
        env: None,
        kind: Kind::OneOf(&["read", "write"]),
        default: None,
        power: Power::Reaches,
        help: "Whether it may be changed. `read` unless said.",
    },
    Setting {
        key: "databases.*.open_to",
        env: None,
        kind: Kind::OneOf(&["granted", "tokens", "anybody"]),
        default: None,
        power: Power::Reaches,
        help: "Who opens it over HTTP: tokens whose grant names it, unless said; or also every token that has no grant; or anybody who is let in.",
    },
    Setting {
        key: "databases.*.store",
        env: None,
        kind: Kind::OneOf(&["datalog", "kv"]),
        default: None,
        power: Power::Reaches,
        help: "What is in the folder: facts, unless said, or tables of keys and values.",
    },
    Setting {
        key: "db.max_bytes",
        env: Some("RUNG_DB_MAX_BYTES"),
        kind: Kind::Number {
            min: 4_000,
            max: 1 << 30,
        },
        default: Some("524288"),
        power: Power::Limits,
        help: "Bytes of a database's answer; what is larger is cut and kept. `reply.max_bytes` holds as well.",
    },
    Setting {
        key: "db.max_items",
        env: Some("RUNG_DB_MAX_ITEMS"),
        kind: Kind::Number {
            min: 1,
            max: 1 << 20,
        },
        default: Some("200"),
        power: Power::Limits,
        help: "Items of a database's answer; where there are more, all of them are kept.",
    },
    Setting {
        key: "embeddings.*.dimensions",
        env: None,
        kind: Kind::Number {
            min: 1,
            max: 65_536,
        },
        default: None,
        power: Power::Reaches,
        help: "Numbers of the endpoint's vectors. It is asked, unless said.",
    },
    Setting {
        key: "embeddings.*.dir",
        env: None,
        kind: Kind::Folder,
        default: None,
        power: Power::Reaches,
        help: "The folder of a model that databases name: `tokenizer.json` and `model.safetensors`, and `config.json` where it is a BERT.",
    },
    Setting {
        key: "embeddings.*.document_prefix",
        env: None,
        kind: Kind::Text,
        default: None,
        power: Power::Reaches,
        help: "What the model wants to read before a text that is to be found.",
    },
    Setting {
        key: "embeddings.*.key_env",
        env: None,
        kind: Kind::Text,
        default: None,
        power: Power::Reaches,
        help: "The variable that holds the endpoint's key.",
    },
    Setting {
        key: "embeddings.*.key_file",
        env: None,
        kind: Kind::File,
        default: None,
        power: Power::Reaches,
        help: "The file whose first line is the endpoint's key.",
    },
    Setting {
        key: "embeddings.*.model",
        env: None,
        kind: Kind::Text,
        default: None,
        power: Power::Reaches,
        help: "The model that the endpoint is asked for.",
    },
    Setting {
        key: "embeddings.*.query_prefix",
        env: None,
        kind: Kind::Text,
        default: None,
        power: Power::Reaches,
        help: "What the model wants to read before a text that finds others.",
    },
    Setting {
        key: "embeddings.*.timeout_s",
        env: None,
        kind: Kind::Number { min: 1, max: 3_600 },
        default: None,
        power: Power::Reaches,
        help: "Seconds for which the endpoint is asked for up to 64 texts, also again. 60 unless said.",
    },
    Setting {
        key: "embeddings.*.url",
        env: None,
        kind: Kind::Url,
        default: None,
        power: Power::Reaches,
        help: "The endpoint of a model that databases name: texts are sent to `/embeddings` below it.",
    },
    Setting {
        key: "gateway.idle_s",
        env: Some("RUNG_GATEWAY_IDLE_S"),
        kind: Kind::Number {
            min: 1,
            max: 365 * 24 * 60 * 60,
        },
        default: Some("600"),
        power: Power::Limits,
        help: "Seconds for which another server that nobody uses is kept running.",
    },
    Setting {
        key: "gateway.open_to",
        env: Some("RUNG_GATEWAY_OPEN_TO"),
        kind: Kind::OneOf(&["granted", "tokens", "anybody"]),
        default: Some("tokens"),
        power: Power::Reaches,
        help: "Who reaches other servers over HTTP: tokens whose grant names them; also every token that may change something and has no grant; or anybody who is let in.",
    },
    Setting {
        key: "gateway.registry",
        env: Some("RUNG_GATEWAY_REGISTRY"),
        kind: Kind::Url,
        default: None,
        power: Power::Reaches,
        help: "The address of a registry of MCP servers, such as `https://registry.modelcontextprotocol.io`. Its list is fetched once a day and searched here, where no tool of yours will do; none is asked unless said.",
    },
    Setting {
        key: "gateway.start_s",
        env: Some("RUNG_GATEWAY_START_S"),
        kind: Kind::Number { min: 1, max: 3_600 },
        default: Some("60"),
        power: Power::Limits,
        help: "Seconds that a downstream server may take to start, and then to list what it has.",
    },
    Setting {
        key: "home",
        env: Some("RUNG_HOME"),
        kind: Kind::Folder,
        default: None,
        power: Power::Reaches,
        help: "The data folder. By default `rung` in the platform's data directory.",
    },
    Setting {
        key: "listen",
        env: Some("RUNG_LISTEN"),
        kind: Kind::Address,
        default: Some("127.0.0.1:7663"),
        power: Power::Reaches,
        help: "Where the HTTP side listens.",
    },
    Setting {
        key: "log",
        env: Some("RUNG_LOG"),
        kind: Kind::OneOf(&["off", "error", "warn", "info", "debug", "trace"]),
        default: Some("warn"),
        power: Power::Reaches,
        help: "How much a server tells on stderr. What callers send and get is never told.",
    },
    Setting {
        key: "records.history",
        env: Some("RUNG_RECORDS_HISTORY"),
        kind: Kind::Number {
            min: 0,
            max: 1 << 40,
        },
        default: Some("0"),
        // Lowering it throws away what is remembered already.
        power: Power::Reaches,
        help: "Changes of personal data that are remembered for whoever reads on from an earlier one. 0 for all.",
    },
    Setting {
        key: "records.max_body_bytes",
        env: Some("RUNG_RECORDS_MAX_BODY_BYTES"),
        kind: Kind::Number {
            min: 1 << 10,
            max: 1 << 40,
        },
        default: Some("52428800"),
        power: Power::Limits,
        help: "Bytes of records, or of one blob, that are taken in by one request.",
    },
    Setting {
        key: "records.postgres",
        env: Some("RUNG_RECORDS_POSTGRES"),
        kind: Kind::Database,
        default: None,
        power: Power::Reaches,
        help: "The PostgreSQL database that personal data is kept in. By default it is kept in the data folder.",
    },
    Setting {
        key: "records.strict",
        env: Some("RUNG_RECORDS_STRICT"),
        kind: Kind::Switch,
        default: Some("false"),
        power: Power::Narrows,
        help: "Takes only records that are as their schema says, and lets streams that only grow only grow.",
    },
    Setting {
        key: "reply.max_bytes",
        env: Some("RUNG_REPLY_MAX_BYTES"),
        kind: Kind::Number {
            // Less does not hold a window with all that is said about it.
            min: 4_000,
            max: 1 << 30,
        },
        default: Some(REPLY_BYTES_TEXT),
        power: Power::Limits,
        help: "Bytes of a reply; what is larger is cut and kept.",
    },
    Setting {
        key: "results.max_bytes",
        env: Some("RUNG_RESULTS_MAX_BYTES"),
        kind: Kind::Number {
            min: 1 << 20,
            max: 1 << 40,
        },
        default: Some("1073741824"),
        // Lowering it would throw away results that are already kept.
        power: Power::Reaches,
        help: "Bytes of results kept for one caller; the oldest make room.",
    },
    Setting {
        key: "results.ttl_s",
        env: Some("RUNG_RESULTS_TTL_S"),
        kind: Kind::Number {
            min: 1,
            max: 365 * 24 * 60 * 60,
        },
        default: Some("86400"),
        power: Power::Limits,
        help: "Seconds for which a result is kept.",
    },
    Setting {
        key: "roots",
        env: Some("RUNG_ROOTS"),
        kind: Kind::Folders,
        default: None,
        power: Power::Reaches,
        help: "Folders within which databases may be opened; anywhere where there are none.",
    },
    Setting {
        key: "sources.*.command",
        env: None,
        kind: Kind::Command,
        default: None,
        power: Power::Reaches,
        help: "The command that serves the source, as a list of words.",
    },
    Setting {
        key: "sources.*.dir",
        env: None,
        kind: Kind::Folder,
        default: None,
        power: Power::Reaches,
        help: "The folder that holds the source.",
    },
    Setting {
        key: "sources.*.off",
        env: None,
        kind: Kind::Switch,
        default: None,
        power: Power::Narrows,
        help: "Hides the source.",
    },
    Setting {
        key: "sources.*.url",
        env: None,
        kind: Kind::Url,
        default: None,
        power: Power::Names,
        help: "The address that serves the source.",
    },
];

/// The ladder owns the number; the table needs its digits.
const REPLY_BYTES_TEXT: &str = "50000";
const _: () = assert!(limits::REPLY_BYTES == 50_000);

impl Setting {
    /// Whether `key` is a name of this setting.
    fn names(&self, key: &str) -> bool {
        let (mut own, mut given) = (self.key.split('.'), key.split('.'));
        loop {
            match (own.next(), given.next()) {
                (None, None) => return true,
                (Some(own), Some(given)) if matches(own, given) => {}
                _ => return false,
            }
        }
    }

    /// Whether a table named `prefix` can hold it.
    fn lies_in(&self, prefix: &str) -> bool {
        let mut own = self.key.split('.');
        prefix
            .split('.')
            .all(|given| own.next().is_some_and(|own| matches(own, given)))
            && own.next().is_some()
    }
}

/// `*` stands for a name of the user's choice: letters, digits, `_` and `-`, so that it prints as it is.
fn matches(own: &str, given: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    match own {
        "*" => (1..=64).contains(&given.len()) && given.bytes().all(plain),
        own => own == given,
    }
}

/// The setting that `key` names.
pub(crate) fn find(key: &str) -> Result<&'static Setting, Fault> {
    let found = SETTINGS.iter().find(|setting| setting.names(key));
    found.ok_or_else(|| unknown("setting", key, SETTINGS.iter().map(|setting| setting.key)))
}

/// Refuses a table that can hold no setting.
pub(crate) fn check_table(prefix: &str) -> Result<(), Fault> {
    if SETTINGS.iter().any(|setting| setting.lies_in(prefix)) {
        return Ok(());
    }
    let known = SETTINGS.iter().map(|setting| setting.key);
    Err(unknown("setting", prefix, known))
}

/// The setting whose variable is `name`.
pub(crate) fn find_env(name: &str) -> Result<&'static Setting, Fault> {
    let found = SETTINGS.iter().find(|setting| setting.env == Some(name));
    found.ok_or_else(|| unknown("variable", name, SETTINGS.iter().filter_map(|s| s.env)))
}

fn unknown(what: &str, given: &str, known: impl Iterator<Item = &'static str>) -> Fault {
    let known: Vec<&str> = known.collect();
    let message = format!("no {what} is named `{}`", given.escape_debug());
    let fault = Fault::new(Code::UnknownSetting, message);
    match nearest(given, known.iter().copied()) {
        Some(nearest) => fault
            .with_hint(format!("did you mean `{nearest}`?"))
            .with(Detail::Nearest, nearest),
        None => fault.with_hint(format!("there are {}", known.join(", "))),
    }
}

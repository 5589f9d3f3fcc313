//! A file that says what the bearer of a token may reach.

use std::path::Path;

use rung_auth::{Access, OfDatabase, OfServer, Scope};
use rung_fault::{Code, Fault};
use rung_records::GrantRequest;
use rung_records::grant::Selection;
use rung_records::key::Moment;
use serde::Deserialize;

use crate::settings::Settings;

/// What is granted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantFile {
    /// Of each source of personal data.
    #[serde(default)]
    personal_data: Vec<OfSource>,
    /// Of each database.
    #[serde(default)]
    databases: Vec<OfDatabase>,
    /// Of each other server.
    #[serde(default)]
    servers: Vec<OfServer>,
    #[serde(default)]
    budget: Budget,
    expires: Option<End>,
}

/// When it ends: a day or a time, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "toml::Value")]
struct End(u64);

impl TryFrom<toml::Value> for End {
    type Error = &'static str;

    fn try_from(value: toml::Value) -> Result<Self, Self::Error> {
        let text = match value {
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        // A time names its zone.
        let pieces = jiff::fmt::temporal::Pieces::parse(&text);
        let offset = pieces.ok().and_then(|pieces| pieces.to_numeric_offset());
        let zoned = !text.contains(':') || offset.is_some();
        let end = Moment::parse(&text).filter(|_| zoned);
        let end = end.ok_or("a day or a time, as 2027-01-31 or 2027-01-31T12:00:00Z")?;
        Ok(Self(u64::try_from(end.as_millisecond()).unwrap_or(0)))
    }
}

/// How much of everything.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    /// Bytes of a reply.
    reply_bytes: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfSource {
    source: String,
    /// All that are active, if none is named.
    #[serde(default)]
    connections: Vec<String>,
    /// All of them, if none is named.
    #[serde(default)]
    streams: Vec<OfStream>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfStream {
    name: String,
    #[serde(default)]
    fields: Vec<String>,
    since: Option<String>,
    until: Option<String>,
}

/// Fewer bytes do not hold a reply with all that is said about it.
const MIN_REPLY_BYTES: usize = 4_000;

/// Whether there is such a thing; else what is wrong, and what to do.
fn is_known(what: &str, name: &str, known: &[String], hint: &str) -> Result<(), (String, String)> {
    if known.iter().any(|own| own == name) {
        return Ok(());
    }
    let nearest = rung_fault::nearest(name, known.iter().map(String::as_str));
    let hint = nearest.map_or_else(
        || hint.to_owned(),
        |nearest| format!("did you mean `{nearest}`?"),
    );
    Err((format!("no {what} is named {name}"), hint))
}

impl GrantFile {
    pub(crate) fn read(path: &Path, settings: &Settings) -> Result<Self, Fault> {
        let wrong = |why: String| {
            Fault::new(Code::InvalidArguments, format!("{}: {why}", path.display())).with_hint(
                "write [[databases]] with name = \"people\" and attributes = [\"person/*\"], \
                 [[personal_data]] with source = \"mail\" and [[personal_data.streams]], or [[servers]] with a name and tools",
            )
        };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let file: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if file.personal_data.is_empty() && file.databases.is_empty() && file.servers.is_empty() {
            return Err(wrong("it grants nothing".to_owned()));
        }
        if let Some(bytes) = file.budget.reply_bytes
            && bytes < MIN_REPLY_BYTES
        {
            let why = format!("budget.reply_bytes is {MIN_REPLY_BYTES} at least");
            return Err(wrong(why));
        }
        let named = |table: &str| -> Vec<String> {
            let names = settings.iter().filter_map(|(key, ..)| {
                let (name, _) = key.strip_prefix(table)?.split_once('.')?;
                Some(name.to_owned())
            });
            names.collect()
        };
        let databases = named("databases.");
        for of in &file.databases {
            let hint = format!("name it in the settings: [databases.{}]", of.name);
            is_known("database", &of.name, &databases, &hint)
                .map_err(|why| wrong(why.0).with_hint(why.1))?;
        }
        // Whoever reads one database need not know where servers are named.
        if !file.servers.is_empty() {
            let servers = crate::gateway::names(settings)?;
            for of in &file.servers {
                let hint = format!(
                    "name it in .mcp.json, in the settings as [sources.{}], or in the file that PMCP_CONFIG names",
                    of.name
                );
                is_known("server", &of.name, &servers, &hint)
                    .map_err(|why| wrong(why.0).with_hint(why.1))?;
            }
        }
        Ok(file)
    }

    /// When it ends, in milliseconds since 1970.
    pub(crate) fn expires_ms(&self) -> Option<u64> {
        self.expires.map(|End(ms)| ms)
    }

    /// Whether something may be changed by whoever it is granted to.
    pub(crate) fn writes(&self) -> bool {
        self.databases.iter().any(|of| of.mode == Access::Write)
    }

    /// What is granted beside personal data.
    pub(crate) fn scope(&self) -> Scope {
        Scope {
            databases: self.databases.clone(),
            servers: self.servers.clone(),
            max_reply_bytes: self.budget.reply_bytes,
        }
    }

    /// What is asked of the owner's data, for the bearer of this name.
    pub(crate) fn requests(&self, name: &str, expires_ms: Option<i64>) -> Vec<GrantRequest> {
        let selection = |stream: &OfStream| Selection {
            stream: stream.name.clone(),
            fields: stream.fields.clone(),
            since: stream.since.clone(),
            until: stream.until.clone(),
            ..Selection::default()
        };
        let request = |of: &OfSource| {
            let mut selections: Vec<Selection> = of.streams.iter().map(selection).collect();
            if selections.is_empty() {
                selections.push(Selection {
                    stream: "*".to_owned(),
                    ..Selection::default()
                });
            }
            GrantRequest {
                client: name.to_owned(),
                source: of.source.clone(),
                connections: of.connections.clone(),
                selections,
                purpose_code: None,
                expires_ms,
            }
        };
        self.personal_data.iter().map(request).collect()
    }
}

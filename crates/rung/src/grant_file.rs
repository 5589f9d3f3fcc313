//! The grant file: TOML that names what the bearer of a token may reach.

use std::path::Path;

use rung_auth::{Access, DatabaseGrant, Scope, ServerGrant};
use rung_fault::{Code, Fault};
use rung_records::GrantRequest;
use rung_records::grant::StreamSelection;
use rung_records::key::CalendarTime;
use serde::Deserialize;

use crate::settings::Settings;

/// A parsed grant file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantFile {
    /// Sources of personal data.
    #[serde(default)]
    personal_data: Vec<SourceGrant>,
    #[serde(default)]
    databases: Vec<DatabaseGrant>,
    /// Downstream servers.
    #[serde(default)]
    servers: Vec<ServerGrant>,
    #[serde(default)]
    budget: GrantBudget,
    expires: Option<Expiry>,
}

/// Expiry, a date or a time with zone, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "toml::Value")]
struct Expiry(u64);

impl TryFrom<toml::Value> for Expiry {
    type Error = &'static str;

    fn try_from(value: toml::Value) -> Result<Self, Self::Error> {
        let text = match value {
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        // A time requires a zone.
        let pieces = jiff::fmt::temporal::Pieces::parse(&text);
        let offset = pieces.ok().and_then(|pieces| pieces.to_numeric_offset());
        let zoned = !text.contains(':') || offset.is_some();
        let end = CalendarTime::parse(&text).filter(|_| zoned);
        let end = end.ok_or("expires must be a date or a time with zone, such as 2027-01-31 or 2027-01-31T12:00:00Z")?;
        Ok(Self(u64::try_from(end.as_millisecond()).unwrap_or(0)))
    }
}

/// Limits of the grant.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantBudget {
    /// Maximum bytes of a reply.
    reply_bytes: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceGrant {
    source: String,
    /// Connections; empty for all active ones.
    #[serde(default)]
    connections: Vec<String>,
    /// Streams; empty for all.
    #[serde(default)]
    streams: Vec<StreamGrant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamGrant {
    name: String,
    #[serde(default)]
    fields: Vec<String>,
    since: Option<String>,
    until: Option<String>,
}

/// Smaller budgets cannot hold a reply with its metadata.
const MIN_REPLY_BYTES: usize = 4_000;

/// Checks that `name` is known. The error is a message and a hint.
fn check_known(
    what: &str,
    name: &str,
    known: &[String],
    hint: &str,
) -> Result<(), (String, String)> {
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
        let file: Self = toml::from_str(&text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map_or(1, |before| before.matches('\n').count() + 1);
            wrong(format!("line {line}: {}", error.message()))
        })?;
        if file.personal_data.is_empty() && file.databases.is_empty() && file.servers.is_empty() {
            return Err(wrong("the file grants nothing".to_owned()));
        }
        if let Some(bytes) = file.budget.reply_bytes
            && bytes < MIN_REPLY_BYTES
        {
            let why = format!("budget.reply_bytes must be at least {MIN_REPLY_BYTES}");
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
            let hint = format!("configure it in the settings as [databases.{}]", of.name);
            check_known("database", &of.name, &databases, &hint)
                .map_err(|why| wrong(why.0).with_hint(why.1))?;
        }
        // Load the server names only if the file grants servers.
        if !file.servers.is_empty() {
            let servers = crate::gateway::server_names(settings)?;
            for of in &file.servers {
                let hint = format!(
                    "configure it in .mcp.json, in the settings as [sources.{}], or in the file of PMCP_CONFIG",
                    of.name
                );
                check_known("server", &of.name, &servers, &hint)
                    .map_err(|why| wrong(why.0).with_hint(why.1))?;
            }
        }
        Ok(file)
    }

    /// Returns the expiry, in milliseconds since 1970.
    pub(crate) fn expires_ms(&self) -> Option<u64> {
        self.expires.map(|Expiry(ms)| ms)
    }

    /// Returns true if the grant allows writing to a database.
    pub(crate) fn allows_writes(&self) -> bool {
        self.databases.iter().any(|of| of.mode == Access::Write)
    }

    /// Returns the scope of the token: everything but personal data.
    pub(crate) fn scope(&self) -> Scope {
        Scope {
            databases: self.databases.clone(),
            servers: self.servers.clone(),
            max_reply_bytes: self.budget.reply_bytes,
        }
    }

    /// Returns the grants of personal data to issue to the client `name`.
    pub(crate) fn grant_requests(&self, name: &str, expires_ms: Option<i64>) -> Vec<GrantRequest> {
        let selection = |stream: &StreamGrant| StreamSelection {
            stream: stream.name.clone(),
            fields: stream.fields.clone(),
            since: stream.since.clone(),
            until: stream.until.clone(),
            ..StreamSelection::default()
        };
        let request = |of: &SourceGrant| {
            let mut selections: Vec<StreamSelection> = of.streams.iter().map(selection).collect();
            if selections.is_empty() {
                selections.push(StreamSelection {
                    stream: "*".to_owned(),
                    ..StreamSelection::default()
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

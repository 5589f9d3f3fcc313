//! One server entry of a configuration file: how it is parsed, displayed and resolved.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rung_auth::Secret;
use rung_mcp::connect::Era;
use serde_json::{Map, Value, json};

use super::credentials::{find_credentials, mask_credentials};
use super::files::digest;
use super::variables::{
    CheckoutValues, ValueSources, VariableExpander, VariableUse, Variables, is_secret_name,
    mask_password, mask_value,
};
use super::{Origin, ServerEndpoint, ServerSpec, Sharing, Trust};
use crate::auth::{SignIn, is_plain_url, is_scope};
use crate::redact::SHORTEST_SECRET_BYTES;

const MAX_NAME_CHARS: usize = 64;

/// The reason an entry is skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkipReason {
    Disabled,
    NotAnObject,
    /// The name is empty, too long, or has a character that is not allowed.
    InvalidName,
    UnknownType(String),
    /// The entry has neither `command` nor `url`.
    NoEndpoint,
    /// The entry has both `command` and `url`, and no `type` that selects one.
    TwoEndpoints,
    /// A member has an invalid value.
    InvalidMember {
        name: &'static str,
        /// The expected value.
        expected: &'static str,
    },
    /// The command would start this gateway again.
    StartsGateway,
    /// A file of higher precedence names the same server. This is not an error; it is reported as information.
    Shadowed {
        /// The file of higher precedence.
        by: PathBuf,
    },
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("it is disabled"),
            Self::NotAnObject => f.write_str("it is not an object"),
            Self::InvalidName => write!(
                f,
                "its name must consist of 1 to {MAX_NAME_CHARS} letters, digits, spaces and any of `_-.@/`"
            ),
            Self::UnknownType(kind) => write!(
                f,
                "its type {kind:?} is unknown; the types are stdio, http, streamable-http, sse and remote"
            ),
            Self::NoEndpoint => f.write_str("it has neither a command nor a url"),
            Self::TwoEndpoints => f.write_str("it has both a command and a url; set its type"),
            Self::InvalidMember {
                name,
                expected: wanted,
            } => write!(f, "its `{name}` must be {wanted}"),
            Self::StartsGateway => f.write_str("it would start this gateway again"),
            Self::Shadowed { by } => {
                write!(f, "{} also defines it and takes precedence", by.display())
            }
        }
    }
}

/// An entry as written, with variable references not expanded.
pub(super) struct ServerEntry {
    endpoint: EntryEndpoint,
    sharing: Sharing,
    era: Option<Era>,
    sign_in: SignIn,
}

enum EntryEndpoint {
    Command {
        program: String,
        args: Vec<String>,
        dir: Option<String>,
        env: Vec<(String, String)>,
    },
    Http {
        url: String,
        headers: Vec<(String, String)>,
        legacy_sse: bool,
    },
}

pub(super) fn is_name(name: &str) -> bool {
    let fine = |c: char| c.is_alphanumeric() || " _-.@/".contains(c);
    !name.is_empty()
        && name.chars().count() <= MAX_NAME_CHARS
        && name.trim() == name
        && name.chars().all(fine)
}

/// Parses an entry.
pub(super) fn parse(name: &str, value: &Value) -> Result<ServerEntry, SkipReason> {
    if !is_name(name) {
        return Err(SkipReason::InvalidName);
    }
    let entry = value.as_object().ok_or(SkipReason::NotAnObject)?;
    // Clients use either member.
    for (name, off) in [("disabled", true), ("enabled", false)] {
        match entry.get(name) {
            Some(Value::Bool(is)) if *is == off => return Err(SkipReason::Disabled),
            None | Some(Value::Bool(_)) => {}
            Some(_) => return Err(invalid_member(name, "true or false")),
        }
    }
    let sharing = match text_member(entry, "sharing")? {
        None => Sharing::default(),
        Some(word) => Sharing::parse(word)
            .ok_or_else(|| invalid_member("sharing", "`shared`, `client` or `session`"))?,
    };
    let era = match text_member(entry, "era")? {
        None => None,
        Some("legacy") => Some(Era::Legacy),
        Some("modern") => Some(Era::Modern),
        Some(_) => return Err(invalid_member("era", "`legacy` or `modern`")),
    };
    let (command, url) = (text_member(entry, "command")?, text_member(entry, "url")?);
    // Other clients spell this transport differently.
    let kind = match text_member(entry, "type")? {
        Some("streamableHttp" | "streamable_http") => Some("streamable-http"),
        kind => kind,
    };
    let form = match (kind, command, url) {
        (None, Some(_), Some(_)) => return Err(SkipReason::TwoEndpoints),
        (None, None, None) => return Err(SkipReason::NoEndpoint),
        (Some("stdio") | None, Some(program), _) => EntryEndpoint::Command {
            program: program.to_owned(),
            args: args_member(entry)?,
            dir: text_member(entry, "cwd")?.map(str::to_owned),
            env: pairs_member(entry, "env")?,
        },
        (Some("stdio"), None, _) => {
            return Err(invalid_member("command", "there for the type `stdio`"));
        }
        (None | Some("http" | "streamable-http" | "remote" | "sse"), _, Some(url)) => {
            EntryEndpoint::Http {
                url: url.to_owned(),
                headers: pairs_member(entry, "headers")?,
                legacy_sse: entry.get("type").is_some_and(|kind| kind == "sse"),
            }
        }
        (Some("http" | "streamable-http" | "remote" | "sse"), _, None) => {
            return Err(invalid_member(
                "url",
                "there for a type that is not `stdio`",
            ));
        }
        (Some(kind), _, _) => return Err(SkipReason::UnknownType(kind.to_owned())),
    };
    Ok(ServerEntry {
        endpoint: form,
        sharing,
        era,
        sign_in: parse_sign_in(entry)?,
    })
}

/// Parses the members that configure OAuth.
fn parse_sign_in(entry: &Map<String, Value>) -> Result<SignIn, SkipReason> {
    let url = |name: &'static str| match text_member(entry, name)? {
        Some(url) if !is_plain_url(url) => Err(invalid_member(
            name,
            "an http or https URL without a password or a query",
        )),
        url => Ok(url.map(str::to_owned)),
    };
    let scopes = match entry.get("declared_scopes") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(scopes)) => {
            let scope = |scope: &Value| {
                scope
                    .as_str()
                    .filter(|text| is_scope(text))
                    .map(str::to_owned)
            };
            scopes.iter().map(scope).collect()
        }
        Some(_) => None,
    };
    Ok(SignIn {
        protected_resource_metadata_url: url("protected_resource_metadata_url")?,
        authorization_server_metadata_url: url("authorization_server_metadata_url")?,
        oidc_issuer_url: url("oidc_issuer_url")?,
        oidc_discovery_url: url("oidc_discovery_url")?,
        client_id_metadata_document_url: url("client_id_metadata_document_url")?,
        declared_scopes: scopes
            .ok_or_else(|| invalid_member("declared_scopes", "an array of scope names"))?,
        missing_scopes: Vec::new(),
        uses_url_elicitation: match entry.get("supports_url_elicitation") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(by_page)) => *by_page,
            Some(_) => return Err(invalid_member("supports_url_elicitation", "true or false")),
        },
    })
}

fn invalid_member(name: &'static str, wanted: &'static str) -> SkipReason {
    SkipReason::InvalidMember {
        name,
        expected: wanted,
    }
}

/// Returns true if the text has no NUL byte, which no process argument can contain.
fn has_no_nul(text: &str) -> bool {
    !text.contains('\0')
}

fn text_member<'e>(
    entry: &'e Map<String, Value>,
    name: &'static str,
) -> Result<Option<&'e str>, SkipReason> {
    match entry.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.trim().is_empty() && has_no_nul(text) => Ok(Some(text)),
        Some(_) => Err(invalid_member(name, "a non-empty string")),
    }
}

/// Returns a scalar as text. Numbers and booleans are often written without quotes where a text is meant.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| has_no_nul(text)),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn args_member(entry: &Map<String, Value>) -> Result<Vec<String>, SkipReason> {
    match entry.get("args") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(args)) => args.iter().map(scalar).collect(),
        Some(_) => None,
    }
    .ok_or_else(|| invalid_member("args", "an array of strings"))
}

fn pairs_member(
    entry: &Map<String, Value>,
    name: &'static str,
) -> Result<Vec<(String, String)>, SkipReason> {
    let pair = |(name, value): (&String, &Value)| {
        let fine = !name.is_empty() && has_no_nul(name) && !name.contains('=');
        Some((name.clone(), scalar(value).filter(|_| fine)?))
    };
    match entry.get(name) {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Object(members)) => members.iter().map(pair).collect(),
        Some(_) => None,
    }
    .ok_or_else(|| invalid_member(name, "an object whose values are strings"))
}

/// Returns one word for display: without a password, quoted where its borders would be unclear, and with control characters
/// escaped.
fn escape_for_display(word: &str) -> String {
    let word = mask_password(word);
    let plain = |c: char| c.is_ascii_graphic() || c.is_alphanumeric() || c == '…';
    if !word.is_empty() && word.chars().all(plain) {
        word
    } else {
        format!("{word:?}")
    }
}

/// Returns the value of a variable or header for display. A credential that is not a variable reference is masked.
fn display_value(name: &str, written: &str) -> String {
    if is_secret_name(name) && !written.contains("${") {
        escape_for_display(&mask_value(written))
    } else {
        escape_for_display(written)
    }
}

// === impl Entry ===

impl ServerEntry {
    /// Returns the command line or URL as written, with credentials masked.
    pub(super) fn summary(&self) -> String {
        match &self.endpoint {
            EntryEndpoint::Command { program, args, .. } => {
                let words = std::iter::once(program).chain(args);
                let words = mask_credentials(words.map(String::as_str));
                let words: Vec<_> = words.iter().map(|word| escape_for_display(word)).collect();
                words.join(" ")
            }
            EntryEndpoint::Http { url, .. } => {
                escape_for_display(&mask_credentials([url.as_str()]).concat())
            }
        }
    }

    /// Returns the command line or URL in full, except for a password in a URL: an owner who approves it must see what
    /// masking could hide.
    fn unmasked_summary(&self) -> String {
        match &self.endpoint {
            EntryEndpoint::Command { program, args, .. } => {
                let words = std::iter::once(program).chain(args);
                let words: Vec<_> = words.map(|word| escape_for_display(word)).collect();
                words.join(" ")
            }
            EntryEndpoint::Http { url, .. } => escape_for_display(url),
        }
    }

    /// Returns the whole entry as written, for approval. Credentials that are not variable references are masked.
    pub(super) fn full_summary(&self) -> String {
        let mut whole = String::new();
        let (pairs, mark, dir) = match &self.endpoint {
            EntryEndpoint::Command { env, dir, .. } => (env, "=", dir.as_deref()),
            EntryEndpoint::Http { headers, .. } => (headers, ": ", None),
        };
        whole.push_str(&self.summary());
        if let Some(dir) = dir {
            whole.extend([" in ", &escape_for_display(dir)]);
        }
        for (at, (name, written)) in pairs.iter().enumerate() {
            let before = if at == 0 { " with " } else { ", " };
            whole.extend([
                before,
                &escape_for_display(name),
                mark,
                &display_value(name, written),
            ]);
        }
        whole
    }

    /// Returns, line by line, what an approval covers: the entry, and which of its values come from the checkout, which
    /// from the user, and which are missing.
    pub(super) fn review(&self, sources: &ValueSources, missing: &[String]) -> String {
        let mut lines = Vec::new();
        match &self.endpoint {
            EntryEndpoint::Command { dir, env, .. } => {
                lines.push(format!("run      {}", self.unmasked_summary()));
                lines.extend(
                    dir.iter()
                        .map(|dir| format!("folder   {}", escape_for_display(dir))),
                );
                let env = env.iter();
                lines.extend(env.map(|(name, value)| {
                    format!(
                        "env      {}={}",
                        escape_for_display(name),
                        display_value(name, value)
                    )
                }));
            }
            EntryEndpoint::Http { headers, .. } => {
                lines.push(format!("address  {}", self.unmasked_summary()));
                let headers = headers.iter();
                lines.extend(headers.map(|(name, value)| {
                    format!(
                        "header   {}: {}",
                        escape_for_display(name),
                        display_value(name, value)
                    )
                }));
            }
        }
        if !sources.checkout.is_empty() {
            lines.push("values that come with the checkout, in .env.pmcp:".to_owned());
        }
        for (name, value) in &sources.checkout {
            let value = if sources.shown_in_review.contains(name) {
                escape_for_display(value.expose())
            } else {
                escape_for_display(&mask_value(value.expose()))
            };
            lines.push(format!("  {name} = {value}"));
        }
        if !sources.user.is_empty() {
            let names: Vec<&str> = sources.user.iter().map(String::as_str).collect();
            lines.push(format!(
                "values of your own, from the environment or pmcp.env: {}",
                names.join(", ")
            ));
        }
        if !missing.is_empty() {
            lines.push(format!("without a value: {}", missing.join(", ")));
        }
        let mut review = String::new();
        for line in lines {
            review.extend(["  ", &line, "\n"]);
        }
        review
    }

    /// Builds the server specification, with variables expanded.
    pub(super) fn build_spec(
        &self,
        name: &str,
        (origin, file): (Origin, &Path),
        trust: Trust,
        variables: &Variables<'_>,
        checkout: CheckoutValues<'_>,
    ) -> Result<ServerSpec, SkipReason> {
        let shown = self.summary();
        let mut filling = VariableExpander {
            variables,
            checkout,
            sources: ValueSources::default(),
            missing: Vec::new(),
            secrets: Vec::new(),
        };
        let folder = file.parent().unwrap_or(Path::new("."));
        let reach = match &self.endpoint {
            EntryEndpoint::Command {
                program,
                args,
                dir,
                env,
            } => {
                let program = filling.expand(program, VariableUse::Target);
                let args: Vec<_> = args
                    .iter()
                    .map(|arg| filling.expand(arg, VariableUse::Target))
                    .collect();
                if starts_this_gateway(&program, &args) {
                    return Err(SkipReason::StartsGateway);
                }
                let dir = dir
                    .as_deref()
                    .map(|dir| folder.join(filling.expand(dir, VariableUse::Target)));
                // The working directory of an entry of a project defaults to the project's folder.
                let dir = dir.or_else(|| (origin == Origin::Project).then(|| folder.to_owned()));
                let is_beside = program.starts_with("./") || program.starts_with("../");
                let program = if is_beside {
                    dir.as_deref().unwrap_or(folder).join(program)
                } else {
                    PathBuf::from(program)
                };
                ServerEndpoint::Command {
                    program,
                    args,
                    dir,
                    env: fill_pairs(env, &mut filling),
                }
            }
            EntryEndpoint::Http {
                url,
                headers,
                legacy_sse: oldest,
            } => {
                let url = filling.expand(url, VariableUse::Target);
                let is_web = ["http://", "https://"].iter().any(|scheme| {
                    url.get(..scheme.len())
                        .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
                });
                if !is_web && filling.missing.is_empty() {
                    return Err(invalid_member("url", "one of http or https"));
                }
                ServerEndpoint::Http {
                    url,
                    headers: fill_pairs(headers, &mut filling),
                    legacy_sse: *oldest,
                }
            }
        };
        let written = match &reach {
            ServerEndpoint::Command { args, .. } => {
                find_credentials(args.iter().map(String::as_str))
            }
            ServerEndpoint::Http { url, .. } => find_credentials([url.as_str()]),
        };
        for credential in written {
            let mut known = filling.secrets.iter();
            if credential.len() >= SHORTEST_SECRET_BYTES
                && known.all(|known| known.expose() != credential)
            {
                filling.secrets.push(Secret::new(credential.to_owned()));
            }
        }
        Ok(ServerSpec {
            name: Arc::from(name),
            origin,
            file: file.to_owned(),
            digest: endpoint_digest(&reach, self.sharing, self.era),
            endpoint: reach,
            sharing: self.sharing,
            era: self.era,
            sign_in: self.sign_in.clone(),
            auto_start: false,
            trust,
            missing: filling.missing,
            summary_text: shown,
            secrets: filling.secrets,
            sources: filling.sources,
        })
    }
}

fn fill_pairs(
    pairs: &[(String, String)],
    filling: &mut VariableExpander<'_>,
) -> Vec<(String, Secret<String>)> {
    let fill = |(name, value): &(String, String)| {
        let value = Secret::new(filling.expand(value, VariableUse::NamedValue(name)));
        (name.clone(), value)
    };
    pairs.iter().map(fill).collect()
}

/// Returns a digest of everything whose change requires a new process or connection.
fn endpoint_digest(reach: &ServerEndpoint, sharing: Sharing, era: Option<Era>) -> String {
    let pairs = |pairs: &[(String, Secret<String>)]| -> Vec<Value> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| json!([name, value.expose()]))
            .collect()
    };
    let era = era.map(|era| match era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    });
    let how = (sharing.name(), era);
    let all = match reach {
        ServerEndpoint::Command {
            program,
            args,
            dir,
            env,
        } => json!([program, args, dir, pairs(env), how]),
        ServerEndpoint::Http {
            url,
            headers,
            legacy_sse: oldest,
        } => json!([url, pairs(headers), oldest, how]),
    };
    digest(all.to_string().as_bytes())
}

/// Returns true if a command starts this gateway or `pmcp`, whose files it reads: either would call itself endlessly.
fn starts_this_gateway(program: &str, args: &[String]) -> bool {
    let ours = |word: &str| matches!(word, "rung" | "pmcp");
    let program = program.rsplit(['/', '\\']).next().unwrap_or(program);
    let program = program.strip_suffix(".exe").unwrap_or(program);
    // Launchers that run the package named by an argument, with or without a version.
    let runs_others = ["uvx", "uv", "npx", "bunx", "pipx", "pnpm"].contains(&program)
        || program.starts_with("python");
    let named = |arg: &String| ours(arg.split(['@', '=']).next().unwrap_or(arg));
    let first = args.iter().find(|arg| {
        !arg.starts_with('-') && !matches!(arg.as_str(), "run" | "tool" | "dlx" | "exec")
    });
    // The other subcommands of this program never start the gateway.
    let beside = |arg: &String| matches!(arg.as_str(), "db" | "pdpp" | "--conformance");
    let other = program == "rung" && args.iter().any(beside);
    ours(program) && !other || runs_others && first.is_some_and(named)
}

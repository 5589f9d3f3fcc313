//! One entry of a file: what it may say, and what it means.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rung_auth::Secret;
use rung_mcp::connect::Era;
use serde_json::{Map, Value, json};

use super::credentials::{credentials_in, without_credentials};
use super::files::digest;
use super::variables::{
    Checkout, Filling, Sources, Use, Variables, masked, names_secret, without_password,
};
use super::{Origin, Reach, Sharing, Spec, Trust};
use crate::auth::{SignIn, is_plain_url, is_scope};
use crate::redact::SHORTEST_SECRET_BYTES;

const MAX_NAME_CHARS: usize = 64;

/// Why an entry is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// It says so itself.
    Disabled,
    /// It is no object.
    NotAnObject,
    /// Its name is empty, too long, or has what no name may have.
    Name,
    /// Its type is none that we know.
    Type(String),
    /// It says neither what to run nor whom to ask.
    NoReach,
    /// It says both, and not which.
    TwoReaches,
    /// A member has another form than it must have.
    Member {
        /// Which.
        name: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// It would start us.
    Ourselves,
    /// A stronger file names the server. That is as it should be, and told for whoever wonders.
    Shadowed {
        /// The file.
        by: PathBuf,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("it is disabled"),
            Self::NotAnObject => f.write_str("it is not an object"),
            Self::Name => write!(
                f,
                "its name must have 1 to {MAX_NAME_CHARS} letters, digits, spaces and any of `_-.@/`"
            ),
            Self::Type(kind) => write!(
                f,
                "its type {kind:?} is not known; there are stdio, http, streamable-http, sse, remote"
            ),
            Self::NoReach => f.write_str("it has neither a command nor a url"),
            Self::TwoReaches => {
                f.write_str("it has both a command and a url; say which with its type")
            }
            Self::Member { name, wanted } => write!(f, "its `{name}` must be {wanted}"),
            Self::Ourselves => f.write_str("it would start this gateway again"),
            Self::Shadowed { by } => write!(f, "{} names it, too, and is stronger", by.display()),
        }
    }
}

/// An entry as it is written, variables and all.
pub(super) struct Entry {
    form: Form,
    sharing: Sharing,
    era: Option<Era>,
    sign_in: SignIn,
}

enum Form {
    Command {
        program: String,
        args: Vec<String>,
        dir: Option<String>,
        env: Vec<(String, String)>,
    },
    Address {
        url: String,
        headers: Vec<(String, String)>,
        oldest: bool,
    },
}

pub(super) fn is_name(name: &str) -> bool {
    let fine = |c: char| c.is_alphanumeric() || " _-.@/".contains(c);
    !name.is_empty()
        && name.chars().count() <= MAX_NAME_CHARS
        && name.trim() == name
        && name.chars().all(fine)
}

/// Reads an entry.
pub(super) fn parse(name: &str, value: &Value) -> Result<Entry, Reason> {
    if !is_name(name) {
        return Err(Reason::Name);
    }
    let entry = value.as_object().ok_or(Reason::NotAnObject)?;
    // Clients say it in either way.
    for (name, off) in [("disabled", true), ("enabled", false)] {
        match entry.get(name) {
            Some(Value::Bool(is)) if *is == off => return Err(Reason::Disabled),
            None | Some(Value::Bool(_)) => {}
            Some(_) => return Err(member(name, "true or false")),
        }
    }
    let sharing = match text(entry, "sharing")? {
        None => Sharing::default(),
        Some(word) => {
            Sharing::of(word).ok_or_else(|| member("sharing", "`shared`, `client` or `session`"))?
        }
    };
    let era = match text(entry, "era")? {
        None => None,
        Some("legacy") => Some(Era::Legacy),
        Some("modern") => Some(Era::Modern),
        Some(_) => return Err(member("era", "`legacy` or `modern`")),
    };
    let (command, url) = (text(entry, "command")?, text(entry, "url")?);
    // Others write the name of one transport in their own ways.
    let kind = match text(entry, "type")? {
        Some("streamableHttp" | "streamable_http") => Some("streamable-http"),
        kind => kind,
    };
    let form = match (kind, command, url) {
        (None, Some(_), Some(_)) => return Err(Reason::TwoReaches),
        (None, None, None) => return Err(Reason::NoReach),
        (Some("stdio") | None, Some(program), _) => Form::Command {
            program: program.to_owned(),
            args: words(entry)?,
            dir: text(entry, "cwd")?.map(str::to_owned),
            env: pairs(entry, "env")?,
        },
        (Some("stdio"), None, _) => return Err(member("command", "there for the type `stdio`")),
        (None | Some("http" | "streamable-http" | "remote" | "sse"), _, Some(url)) => {
            Form::Address {
                url: url.to_owned(),
                headers: pairs(entry, "headers")?,
                oldest: entry.get("type").is_some_and(|kind| kind == "sse"),
            }
        }
        (Some("http" | "streamable-http" | "remote" | "sse"), _, None) => {
            return Err(member("url", "there for a type that is not `stdio`"));
        }
        (Some(kind), _, _) => return Err(Reason::Type(kind.to_owned())),
    };
    Ok(Entry {
        form,
        sharing,
        era,
        sign_in: sign_in(entry)?,
    })
}

/// What it says of how one signs in.
fn sign_in(entry: &Map<String, Value>) -> Result<SignIn, Reason> {
    let url = |name: &'static str| match text(entry, name)? {
        Some(url) if !is_plain_url(url) => Err(member(
            name,
            "an address of http or https, without a password or a query",
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
            .ok_or_else(|| member("declared_scopes", "an array of names of scopes"))?,
        missing_scopes: Vec::new(),
        by_page: match entry.get("supports_url_elicitation") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(by_page)) => *by_page,
            Some(_) => return Err(member("supports_url_elicitation", "true or false")),
        },
    })
}

fn member(name: &'static str, wanted: &'static str) -> Reason {
    Reason::Member { name, wanted }
}

/// No process can be given a text with a zero in it.
fn is_clean(text: &str) -> bool {
    !text.contains('\0')
}

fn text<'e>(entry: &'e Map<String, Value>, name: &'static str) -> Result<Option<&'e str>, Reason> {
    match entry.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.trim().is_empty() && is_clean(text) => Ok(Some(text)),
        Some(_) => Err(member(name, "a text that is not empty")),
    }
}

/// Numbers and truths are often written without quotes, and meant as texts.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| is_clean(text)),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn words(entry: &Map<String, Value>) -> Result<Vec<String>, Reason> {
    match entry.get("args") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(args)) => args.iter().map(scalar).collect(),
        Some(_) => None,
    }
    .ok_or_else(|| member("args", "an array of texts"))
}

fn pairs(entry: &Map<String, Value>, name: &'static str) -> Result<Vec<(String, String)>, Reason> {
    let pair = |(name, value): (&String, &Value)| {
        let fine = !name.is_empty() && is_clean(name) && !name.contains('=');
        Some((name.clone(), scalar(value).filter(|_| fine)?))
    };
    match entry.get(name) {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Object(members)) => members.iter().map(pair).collect(),
        Some(_) => None,
    }
    .ok_or_else(|| member(name, "an object of names and texts"))
}

/// One word for people to judge: no password in it, its borders to be seen, and nothing that a terminal would act upon.
fn visible(word: &str) -> String {
    let word = without_password(word);
    let plain = |c: char| c.is_ascii_graphic() || c.is_alphanumeric() || c == '…';
    if !word.is_empty() && word.chars().all(plain) {
        word
    } else {
        format!("{word:?}")
    }
}

/// What is handed over under a name, as it is written. A credential that is not a variable is masked.
fn shown_value(name: &str, written: &str) -> String {
    if names_secret(name) && !written.contains("${") {
        visible(&masked(written))
    } else {
        visible(written)
    }
}

// === impl Entry ===

impl Entry {
    /// What is run or asked, as it is written.
    pub(super) fn shown(&self) -> String {
        match &self.form {
            Form::Command { program, args, .. } => {
                let words = std::iter::once(program).chain(args);
                let words = without_credentials(words.map(String::as_str));
                let words: Vec<_> = words.iter().map(|word| visible(word)).collect();
                words.join(" ")
            }
            Form::Address { url, .. } => visible(&without_credentials([url.as_str()]).concat()),
        }
    }

    /// What is run or asked, to the letter: an owner who approves it must see what a credential would hide.
    fn to_review(&self) -> String {
        match &self.form {
            Form::Command { program, args, .. } => {
                let words = std::iter::once(program).chain(args);
                let words: Vec<_> = words.map(|word| visible(word)).collect();
                words.join(" ")
            }
            Form::Address { url, .. } => visible(url),
        }
    }

    /// All that it says, as it is written: what an approval is of. A credential that is not a variable is left out.
    pub(super) fn shown_whole(&self) -> String {
        let mut whole = String::new();
        let (pairs, mark, dir) = match &self.form {
            Form::Command { env, dir, .. } => (env, "=", dir.as_deref()),
            Form::Address { headers, .. } => (headers, ": ", None),
        };
        whole.push_str(&self.shown());
        if let Some(dir) = dir {
            whole.extend([" in ", &visible(dir)]);
        }
        for (at, (name, written)) in pairs.iter().enumerate() {
            let before = if at == 0 { " with " } else { ", " };
            whole.extend([before, &visible(name), mark, &shown_value(name, written)]);
        }
        whole
    }

    /// What an approval of it is of, line by line: what it says, and which of its values come from the checkout, which from
    /// the user, and which from nowhere.
    pub(super) fn review(&self, sources: &Sources, missing: &[String]) -> String {
        let mut lines = Vec::new();
        match &self.form {
            Form::Command { dir, env, .. } => {
                lines.push(format!("run      {}", self.to_review()));
                lines.extend(dir.iter().map(|dir| format!("folder   {}", visible(dir))));
                let env = env.iter();
                lines.extend(env.map(|(name, value)| {
                    format!("env      {}={}", visible(name), shown_value(name, value))
                }));
            }
            Form::Address { headers, .. } => {
                lines.push(format!("address  {}", self.to_review()));
                let headers = headers.iter();
                lines.extend(headers.map(|(name, value)| {
                    format!("header   {}: {}", visible(name), shown_value(name, value))
                }));
            }
        }
        if !sources.checkout.is_empty() {
            lines.push("values that come with the checkout, in .env.pmcp:".to_owned());
        }
        for (name, value) in &sources.checkout {
            let value = if sources.plain.contains(name) {
                visible(value.expose())
            } else {
                visible(&masked(value.expose()))
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

    /// What it means, with its variables filled in.
    pub(super) fn spec(
        &self,
        name: &str,
        (origin, file): (Origin, &Path),
        trust: Trust,
        variables: &Variables<'_>,
        checkout: Checkout<'_>,
    ) -> Result<Spec, Reason> {
        let shown = self.shown();
        let mut filling = Filling {
            variables,
            checkout,
            sources: Sources::default(),
            missing: Vec::new(),
            secrets: Vec::new(),
        };
        let folder = file.parent().unwrap_or(Path::new("."));
        let reach = match &self.form {
            Form::Command {
                program,
                args,
                dir,
                env,
            } => {
                let program = filling.fill(program, Use::Leads);
                let args: Vec<_> = args
                    .iter()
                    .map(|arg| filling.fill(arg, Use::Leads))
                    .collect();
                if is_ourselves(&program, &args) {
                    return Err(Reason::Ourselves);
                }
                let dir = dir
                    .as_deref()
                    .map(|dir| folder.join(filling.fill(dir, Use::Leads)));
                // What comes with a project means its own files by what it says.
                let dir = dir.or_else(|| (origin == Origin::Project).then(|| folder.to_owned()));
                let is_beside = program.starts_with("./") || program.starts_with("../");
                let program = if is_beside {
                    dir.as_deref().unwrap_or(folder).join(program)
                } else {
                    PathBuf::from(program)
                };
                Reach::Command {
                    program,
                    args,
                    dir,
                    env: fill_pairs(env, &mut filling),
                }
            }
            Form::Address {
                url,
                headers,
                oldest,
            } => {
                let url = filling.fill(url, Use::Leads);
                let is_web = ["http://", "https://"].iter().any(|scheme| {
                    url.get(..scheme.len())
                        .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
                });
                if !is_web && filling.missing.is_empty() {
                    return Err(member("url", "one of http or https"));
                }
                Reach::Address {
                    url,
                    headers: fill_pairs(headers, &mut filling),
                    oldest: *oldest,
                }
            }
        };
        let written = match &reach {
            Reach::Command { args, .. } => credentials_in(args.iter().map(String::as_str)),
            Reach::Address { url, .. } => credentials_in([url.as_str()]),
        };
        for credential in written {
            let mut known = filling.secrets.iter();
            if credential.len() >= SHORTEST_SECRET_BYTES
                && known.all(|known| known.expose() != credential)
            {
                filling.secrets.push(Secret::new(credential.to_owned()));
            }
        }
        Ok(Spec {
            name: Arc::from(name),
            origin,
            file: file.to_owned(),
            digest: digest_of(&reach, self.sharing, self.era),
            reach,
            sharing: self.sharing,
            era: self.era,
            sign_in: self.sign_in.clone(),
            eager: false,
            trust,
            missing: filling.missing,
            shown,
            secrets: filling.secrets,
            sources: filling.sources,
        })
    }
}

fn fill_pairs(
    pairs: &[(String, String)],
    filling: &mut Filling<'_>,
) -> Vec<(String, Secret<String>)> {
    let fill = |(name, value): &(String, String)| {
        let value = Secret::new(filling.fill(value, Use::Holds(name)));
        (name.clone(), value)
    };
    pairs.iter().map(fill).collect()
}

/// Of everything that would make another process or another connection of it.
fn digest_of(reach: &Reach, sharing: Sharing, era: Option<Era>) -> String {
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
        Reach::Command {
            program,
            args,
            dir,
            env,
        } => json!([program, args, dir, pairs(env), how]),
        Reach::Address {
            url,
            headers,
            oldest,
        } => json!([url, pairs(headers), oldest, how]),
    };
    digest(all.to_string().as_bytes())
}

/// Whether a command starts this gateway, or the one whose files we read: either would ask itself for ever.
fn is_ourselves(program: &str, args: &[String]) -> bool {
    let ours = |word: &str| matches!(word, "rung" | "pmcp");
    let program = program.rsplit(['/', '\\']).next().unwrap_or(program);
    let program = program.strip_suffix(".exe").unwrap_or(program);
    // Those that run what their arguments name, with or without a version.
    let runs_others = ["uvx", "uv", "npx", "bunx", "pipx", "pnpm"].contains(&program)
        || program.starts_with("python");
    let named = |arg: &String| ours(arg.split(['@', '=']).next().unwrap_or(arg));
    let first = args.iter().find(|arg| {
        !arg.starts_with('-') && !matches!(arg.as_str(), "run" | "tool" | "dlx" | "exec")
    });
    // What this program has beside the gateway never leads back to it.
    let beside = |arg: &String| matches!(arg.as_str(), "db" | "pdpp" | "--conformance");
    let other = program == "rung" && args.iter().any(beside);
    ours(program) && !other || runs_others && first.is_some_and(named)
}

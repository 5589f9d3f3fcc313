//! Variables in entries: where their values come from, and which values are secrets.
//!
//! `${NAME}` and `${env:NAME}`, which some clients use, expand to a value; `${NAME:-other}` expands to `other` if there is
//! no value. Any other `$` is literal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rung_auth::Secret;

use super::credentials::CREDENTIAL_WORDS;
use super::files::Problem;
use crate::redact::SHORTEST_SECRET_BYTES;

/// Minimum length, in bytes, at which a value is recognized as a secret by its form alone.
const MIN_KEY_BYTES: usize = 16;

/// Sources of values: the process, then the checkout's file where it is permitted, then the user's.
pub(super) struct Variables<'a> {
    pub(super) process: &'a dyn Fn(&str) -> Option<String>,
    pub(super) project: VariableMap,
    pub(super) user: VariableMap,
}

pub(super) type VariableMap = BTreeMap<String, Secret<String>>;

/// Values of a checkout's file that are approved together with an entry.
pub(super) type ApprovedValues = BTreeMap<String, String>;

/// Which values of the checkout's file are used to expand an entry.
#[derive(Clone, Copy)]
pub(super) enum CheckoutValues<'a> {
    /// None: the entry is the user's. A value that decides what a server runs or connects to could send the user's
    /// credentials elsewhere.
    None,
    /// The current values of the file.
    Current,
    /// The values approved with the entry. Every other name is looked up only in the process and the user's file, so
    /// neither an edit of the checkout's file nor an exported variable changes the origin of an approved value.
    Approved(&'a ApprovedValues),
}

/// The origins of the values of one entry.
#[derive(Debug, Clone, Default)]
pub(super) struct ValueSources {
    /// Values from the checkout, by name.
    pub(super) checkout: VariableMap,
    /// Names in `checkout` whose value must be shown for approval: it decides what is run or connected to, or is passed
    /// under a name that is not that of a credential.
    pub(super) shown_in_review: BTreeSet<String>,
    /// Names with a value in the user's environment or file.
    pub(super) user: BTreeSet<String>,
}

/// The use of a text with variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VariableUse<'n> {
    /// Part of the command, the working directory or the URL.
    Target,
    /// The value of an environment variable or header of this name.
    NamedValue(&'n str),
}

/// Expands the variables of one entry, and collects missing names and secrets.
pub(super) struct VariableExpander<'a> {
    pub(super) variables: &'a Variables<'a>,
    pub(super) checkout: CheckoutValues<'a>,
    pub(super) sources: ValueSources,
    pub(super) missing: Vec<String>,
    pub(super) secrets: Vec<Secret<String>>,
}

impl VariableExpander<'_> {
    pub(super) fn expand(&mut self, text: &str, used: VariableUse<'_>) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut is_whole = true;
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let Some((name, other, after)) = parse_reference(&rest[at + 2..]) else {
                filled.push_str(&rest[..at + 2]);
                rest = &rest[at + 2..];
                continue;
            };
            filled.push_str(&rest[..at]);
            rest = after;
            let value = self.look_up(name, used);
            match (value, other) {
                // As in a shell, an empty value counts as missing if there is a default.
                (Some(value), other) if !value.is_empty() || other.is_none() => {
                    self.add_secret(name, &value);
                    filled.push_str(&value);
                }
                (_, Some(other)) => filled.push_str(other),
                (_, None) => {
                    is_whole = false;
                    if !self.missing.iter().any(|known| known == name) {
                        self.missing.push(name.to_owned());
                    }
                }
            }
        }
        filled.push_str(rest);
        if let VariableUse::NamedValue(name) = used
            && is_whole
        {
            self.add_secret(name, &filled);
            // The credential is also secret without its authentication scheme.
            if let Some((_, credential)) = filled.split_once(' ')
                && is_secret_name(name)
            {
                self.add_secret(name, credential.trim());
            }
        }
        if let Some(password) = password_in(&filled) {
            self.secrets.push(Secret::new(password.to_owned()));
        }
        filled
    }

    fn look_up(&mut self, name: &str, used: VariableUse<'_>) -> Option<String> {
        let from = |store: &VariableMap| store.get(name).map(|value| value.expose().clone());
        let of_process = || (self.variables.process)(name);
        let of_user = || from(&self.variables.user);
        let (of_checkout, of_user) = match self.checkout {
            CheckoutValues::None => (None, of_process().or_else(of_user)),
            CheckoutValues::Approved(values) => match values.get(name) {
                Some(value) => (Some(value.clone()), None),
                None => (None, of_process().or_else(of_user)),
            },
            CheckoutValues::Current => match (of_process(), from(&self.variables.project)) {
                (None, Some(value)) => (Some(value), None),
                (exported, _) => (None, exported.or_else(of_user)),
            },
        };
        if let Some(value) = &of_checkout {
            let value = Secret::new(value.clone());
            self.sources.checkout.insert(name.to_owned(), value);
            if !matches!(used, VariableUse::NamedValue(under) if is_secret_name(under)) {
                self.sources.shown_in_review.insert(name.to_owned());
            }
        }
        if of_user.is_some() {
            self.sources.user.insert(name.to_owned());
        }
        of_checkout.or(of_user)
    }

    fn add_secret(&mut self, name: &str, value: &str) {
        let looks_so = || {
            value.len() >= MIN_KEY_BYTES
                && value.bytes().any(|b| b.is_ascii_digit())
                && value.bytes().any(|b| b.is_ascii_alphabetic())
                && !value.contains([' ', '/', '\\'])
        };
        let is_secret =
            value.len() >= SHORTEST_SECRET_BYTES && (is_secret_name(name) || looks_so());
        if is_secret && self.secrets.iter().all(|known| known.expose() != value) {
            self.secrets.push(Secret::new(value.to_owned()));
        }
    }
}

pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("key") || CREDENTIAL_WORDS.iter().any(|word| name.contains(word))
}

/// Returns the password in the first URL of a text.
fn password_in(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#', ' ']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    let (_, password) = user.split_once(':')?;
    Some(password).filter(|password| password.len() >= SHORTEST_SECRET_BYTES)
}

/// Masks a credential. Of a URL, the scheme and the host stay readable.
pub(super) fn mask_value(value: &str) -> String {
    let Some((scheme, rest)) = value.split_once("://") else {
        return "…".to_owned();
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://…@{host}/…")
}

/// Masks the password in the first URL of a text.
pub(super) fn mask_password(text: &str) -> String {
    match text.split_once("://").zip(password_in(text)) {
        Some(((scheme, rest), password)) => {
            format!("{scheme}://{}", rest.replacen(password, "…", 1))
        }
        None => text.to_owned(),
    }
}

/// Splits a variable reference, after `${`, into the name, the default and the text after it.
fn parse_reference(text: &str) -> Option<(&str, Option<&str>, &str)> {
    let (inside, after) = text.split_once('}')?;
    let (name, other) = match inside.split_once(":-") {
        Some((name, other)) => (name, Some(other)),
        None => (inside, None),
    };
    let name = name.strip_prefix("env:").unwrap_or(name);
    is_name(name).then_some((name, other, after))
}

fn is_name(name: &str) -> bool {
    let rest_is_fine = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(rest_is_fine)
}

/// Parses `NAME=value` lines. Problems are reported without the content of the line.
pub(super) fn parse(file: &Path, text: &str, problems: &mut Vec<Problem>) -> VariableMap {
    let mut store = VariableMap::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let pair = line
            .split_once('=')
            .map(|(name, value)| (name.trim(), value.trim()));
        let value = pair
            .filter(|(name, _)| is_name(name))
            .and_then(|(name, written)| Some((name, parse_value(written)?)));
        match value {
            Some((name, value)) => {
                store.insert(name.to_owned(), Secret::new(value));
            }
            None => problems.push(Problem {
                position: Some((at as u64 + 1, 1)),
                ..Problem::new(file, "the line is not `NAME=value`")
            }),
        }
    }
    store
}

/// Parses the value of a line: quoted, or up to a comment.
fn parse_value(written: &str) -> Option<String> {
    let Some(quote @ ('"' | '\'')) = written.chars().next() else {
        let end = written.find(" #").unwrap_or(written.len());
        return Some(written[..end].trim_end().to_owned());
    };
    let mut value = String::new();
    let mut chars = written[1..].chars();
    loop {
        match chars.next()? {
            c if c == quote => break,
            '\\' if quote == '"' => match chars.next()? {
                'n' => value.push('\n'),
                'r' => value.push('\r'),
                't' => value.push('\t'),
                c @ ('"' | '\\' | '$') => value.push(c),
                c => value.extend(['\\', c]),
            },
            c => value.push(c),
        }
    }
    let rest = chars.as_str().trim_start();
    (rest.is_empty() || rest.starts_with('#')).then_some(value)
}

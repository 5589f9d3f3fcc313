//! Variables in entries: where their values come from, and which of them are secrets.
//!
//! `${NAME}` stands for a value, and so does `${env:NAME}`, as some clients write it; `${NAME:-other}` for a value or what is written
//! after the mark where there is none.
//! Everything else that has a `$` is itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rung_auth::Secret;

use super::credentials::WORDS;
use super::files::Problem;
use crate::redact::SHORTEST_SECRET_BYTES;

/// A value whose name says nothing is a secret from this length on, where it looks like one.
const KEY_BYTES: usize = 16;

/// Where values are looked up: the process, then the checkout's file where that may say something, then the user's.
pub(super) struct Variables<'a> {
    pub(super) process: &'a dyn Fn(&str) -> Option<String>,
    pub(super) project: Store,
    pub(super) user: Store,
}

pub(super) type Store = BTreeMap<String, Secret<String>>;

/// Values of a checkout's file, as they are approved along with an entry.
pub(super) type Values = BTreeMap<String, String>;

/// Which values of the checkout's file fill in an entry.
#[derive(Clone, Copy)]
pub(super) enum Checkout<'a> {
    /// None: the entry is the user's. A value that steers what a server runs or asks would lead the user's credentials
    /// elsewhere.
    None,
    /// Those of the file as it is now.
    Current,
    /// Those that were approved along with the entry. Every other name is looked up on the user's side alone, so that
    /// neither an edit of the file nor an exported variable changes where an approved value comes from.
    Approved(&'a Values),
}

/// Where the values of one entry came from.
#[derive(Debug, Clone, Default)]
pub(super) struct Sources {
    /// The checkout's values, by name.
    pub(super) checkout: Store,
    /// Names among them whose value must be shown before it is approved: it says what is run or asked, or is handed over
    /// under a name that no credential has.
    pub(super) plain: BTreeSet<String>,
    /// Names that the user's environment or file has a value for.
    pub(super) user: BTreeSet<String>,
}

/// What a text with variables is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use<'n> {
    /// It says what is run, where, and who is asked.
    Leads,
    /// It is handed over under a name: a variable or a header.
    Holds(&'n str),
}

/// Fills in one entry, and gathers what is missing and what must not be shown.
pub(super) struct Filling<'a> {
    pub(super) variables: &'a Variables<'a>,
    pub(super) checkout: Checkout<'a>,
    pub(super) sources: Sources,
    pub(super) missing: Vec<String>,
    pub(super) secrets: Vec<Secret<String>>,
}

impl Filling<'_> {
    pub(super) fn fill(&mut self, text: &str, used: Use<'_>) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut is_whole = true;
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let Some((name, other, after)) = reference(&rest[at + 2..]) else {
                filled.push_str(&rest[..at + 2]);
                rest = &rest[at + 2..];
                continue;
            };
            filled.push_str(&rest[..at]);
            rest = after;
            let value = self.look_up(name, used);
            match (value, other) {
                // As in a shell: an empty value is none where there is another.
                (Some(value), other) if !value.is_empty() || other.is_none() => {
                    self.keep_secret(name, &value);
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
        if let Use::Holds(name) = used
            && is_whole
        {
            self.keep_secret(name, &filled);
            // A credential is as secret without the word before it that says its kind.
            if let Some((_, credential)) = filled.split_once(' ')
                && names_secret(name)
            {
                self.keep_secret(name, credential.trim());
            }
        }
        if let Some(password) = password_in(&filled) {
            self.secrets.push(Secret::new(password.to_owned()));
        }
        filled
    }

    fn look_up(&mut self, name: &str, used: Use<'_>) -> Option<String> {
        let from = |store: &Store| store.get(name).map(|value| value.expose().clone());
        let of_process = || (self.variables.process)(name);
        let of_user = || from(&self.variables.user);
        let (of_checkout, of_user) = match self.checkout {
            Checkout::None => (None, of_process().or_else(of_user)),
            Checkout::Approved(values) => match values.get(name) {
                Some(value) => (Some(value.clone()), None),
                None => (None, of_process().or_else(of_user)),
            },
            Checkout::Current => match (of_process(), from(&self.variables.project)) {
                (None, Some(value)) => (Some(value), None),
                (exported, _) => (None, exported.or_else(of_user)),
            },
        };
        if let Some(value) = &of_checkout {
            let value = Secret::new(value.clone());
            self.sources.checkout.insert(name.to_owned(), value);
            if !matches!(used, Use::Holds(under) if names_secret(under)) {
                self.sources.plain.insert(name.to_owned());
            }
        }
        if of_user.is_some() {
            self.sources.user.insert(name.to_owned());
        }
        of_checkout.or(of_user)
    }

    fn keep_secret(&mut self, name: &str, value: &str) {
        let looks_so = || {
            value.len() >= KEY_BYTES
                && value.bytes().any(|b| b.is_ascii_digit())
                && value.bytes().any(|b| b.is_ascii_alphabetic())
                && !value.contains([' ', '/', '\\'])
        };
        let is_secret = value.len() >= SHORTEST_SECRET_BYTES && (names_secret(name) || looks_so());
        if is_secret && self.secrets.iter().all(|known| known.expose() != value) {
            self.secrets.push(Secret::new(value.to_owned()));
        }
    }
}

pub(super) fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("key") || WORDS.iter().any(|word| name.contains(word))
}

/// The password in the first address of a text.
fn password_in(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#', ' ']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    let (_, password) = user.split_once(':')?;
    Some(password).filter(|password| password.len() >= SHORTEST_SECRET_BYTES)
}

/// A credential as it is shown: not at all, but for where an address leads.
pub(super) fn masked(value: &str) -> String {
    let Some((scheme, rest)) = value.split_once("://") else {
        return "…".to_owned();
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://…@{host}/…")
}

/// A text without the password in its first address.
pub(super) fn without_password(text: &str) -> String {
    match text.split_once("://").zip(password_in(text)) {
        Some(((scheme, rest), password)) => {
            format!("{scheme}://{}", rest.replacen(password, "…", 1))
        }
        None => text.to_owned(),
    }
}

/// The name, what stands in for it, and the text behind it, from behind the opening brace on.
fn reference(text: &str) -> Option<(&str, Option<&str>, &str)> {
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

/// Reads `NAME=value` lines. What is wrong with a line is told without what it says.
pub(super) fn parse(file: &Path, text: &str, problems: &mut Vec<Problem>) -> Store {
    let mut store = Store::new();
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
            .and_then(|(name, written)| Some((name, value(written)?)));
        match value {
            Some((name, value)) => {
                store.insert(name.to_owned(), Secret::new(value));
            }
            None => problems.push(Problem {
                place: Some((at as u64 + 1, 1)),
                ..Problem::new(file, "the line is not `NAME=value`")
            }),
        }
    }
    store
}

/// The value of a line: between quotes as it is, else up to a remark.
fn value(written: &str) -> Option<String> {
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

//! Variables in entries: where their values come from, and which of them are secrets.
//!
//! `${NAME}` stands for a value, and so does `${env:NAME}`, as some clients write it; `${NAME:-other}` for a value or what is written
//! after the mark where there is none.
//! Everything else that has a `$` is itself.

use std::collections::BTreeMap;
use std::path::Path;

use rung_auth::Secret;

use super::Origin;
use super::files::Problem;
use crate::redact::SHORTEST_SECRET_BYTES;

/// A value whose name says nothing is a secret from this length on, where it looks like one.
const KEY_BYTES: usize = 16;

/// Where values are looked up: the process, then the project's file, then the user's.
pub(super) struct Variables<'a> {
    pub(super) process: &'a dyn Fn(&str) -> Option<String>,
    pub(super) project: Store,
    pub(super) user: Store,
}

pub(super) type Store = BTreeMap<String, Secret<String>>;

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
    pub(super) origin: Origin,
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

    /// A project's file fills in the project's own entries. In others it may hand over a credential, and not say what is
    /// run or who is asked: that would lead the user's credentials elsewhere.
    fn look_up(&self, name: &str, used: Use<'_>) -> Option<String> {
        let from = |store: &Store| store.get(name).map(|value| value.expose().clone());
        let project_may = self.origin == Origin::Project || used != Use::Leads;
        (self.variables.process)(name)
            .or_else(|| project_may.then(|| from(&self.variables.project)).flatten())
            .or_else(|| from(&self.variables.user))
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
    let words = [
        "key",
        "token",
        "secret",
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "credential",
        "authorization",
        "cookie",
        "dsn",
    ];
    words.iter().any(|word| name.contains(word))
}

/// The password in the first address of a text.
fn password_in(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#', ' ']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    let (_, password) = user.split_once(':')?;
    Some(password).filter(|password| password.len() >= SHORTEST_SECRET_BYTES)
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

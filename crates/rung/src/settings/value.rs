//! Values of settings.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::listen_address::{self, ListenAddress};

/// Kind of value that a setting takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SettingKind {
    Address,
    Command,
    Database,
    File,
    Folder,
    Folders,
    Number { min: u64, max: u64 },
    OneOf(&'static [&'static str]),
    Switch,
    Text,
    Url,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SettingValue {
    Address(ListenAddress),
    Command(Vec<String>),
    /// URL of a database; never displayed, since it can contain a password.
    Database(String),
    File(PathBuf),
    Folder(PathBuf),
    Folders(Vec<PathBuf>),
    Number(u64),
    Switch(bool),
    Text(String),
    Url(String),
    Word(&'static str),
}

/// Base of relative paths.
#[derive(Clone, Copy)]
pub(crate) struct PathBase<'p> {
    pub(crate) folder: &'p Path,
    /// Expansion of `~`.
    pub(crate) user_home: Option<&'p Path>,
}

/// A value of a file, a variable or a flag, before it is checked against a kind.
pub(crate) enum UnparsedValue {
    Text(String),
    Number(i64),
    Switch(bool),
    List(Vec<String>),
    Other,
}

impl SettingKind {
    /// Parses a value. The error names what is expected.
    pub(crate) fn parse(
        self,
        raw: UnparsedValue,
        base: PathBase<'_>,
    ) -> Result<SettingValue, String> {
        let folder = |text: &str| match (text.strip_prefix("~/"), base.user_home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => base.folder.join(text),
        };
        match (self, raw) {
            (Self::Address, UnparsedValue::Text(text)) => {
                let address = text.parse().map(SettingValue::Address);
                address.map_err(|_| listen_address::EXPECTED.to_owned())
            }
            (Self::Command, UnparsedValue::List(words)) if !words.is_empty() => {
                Ok(SettingValue::Command(words))
            }
            (Self::Command, _) => {
                Err("a list of words, such as [\"npx\", \"-y\", \"a-server\"]".to_owned())
            }
            (Self::Database, UnparsedValue::Text(text)) if !text.is_empty() => {
                Ok(SettingValue::Database(text))
            }
            (Self::Database, _) => {
                Err("a PostgreSQL URL, such as postgres://user@host/name".to_owned())
            }
            (Self::File, UnparsedValue::Text(text)) if !text.is_empty() => {
                Ok(SettingValue::File(folder(&text)))
            }
            (Self::File, _) => Err("a file".to_owned()),
            (Self::Folder, UnparsedValue::Text(text)) if !text.is_empty() => {
                Ok(SettingValue::Folder(folder(&text)))
            }
            (Self::Folder, _) => Err("a folder".to_owned()),
            (Self::Folders, UnparsedValue::List(list)) => Ok(SettingValue::Folders(
                list.iter().map(|text| folder(text)).collect(),
            )),
            (Self::Folders, _) => Err("a list of folders".to_owned()),
            (Self::Number { min, max }, raw) => {
                let number = match raw {
                    UnparsedValue::Number(number) => u64::try_from(number).ok(),
                    UnparsedValue::Text(text) => text.parse().ok(),
                    _ => None,
                };
                let number = number.filter(|number| (min..=max).contains(number));
                number
                    .map(SettingValue::Number)
                    .ok_or_else(|| format!("a whole number from {min} to {max}"))
            }
            (Self::OneOf(words), raw) => {
                let given = match &raw {
                    UnparsedValue::Text(text) => text.as_str(),
                    _ => "",
                };
                let word = words.iter().find(|word| **word == given);
                word.map(|word| SettingValue::Word(word))
                    .ok_or_else(|| format!("one of {}", words.join(", ")))
            }
            (Self::Switch, UnparsedValue::Switch(switch)) => Ok(SettingValue::Switch(switch)),
            (Self::Switch, _) => Err("true or false".to_owned()),
            (Self::Text, UnparsedValue::Text(text)) if !text.is_empty() => {
                Ok(SettingValue::Text(text))
            }
            (Self::Text, _) => Err("a text".to_owned()),
            (Self::Url, UnparsedValue::Text(text))
                if text.starts_with("http://") || text.starts_with("https://") =>
            {
                Ok(SettingValue::Url(text))
            }
            (Self::Url, _) => Err("a URL that begins with http:// or https://".to_owned()),
            (Self::Address, _) => Err(listen_address::EXPECTED.to_owned()),
        }
    }

    /// Parses the text of a variable or flag.
    pub(crate) fn parse_text(self, text: &str, base: PathBase<'_>) -> Result<SettingValue, String> {
        let raw = match self {
            Self::Command => {
                UnparsedValue::List(text.split_whitespace().map(str::to_owned).collect())
            }
            Self::Folders => UnparsedValue::List(
                std::env::split_paths(text)
                    .map(|path| path.to_string_lossy().into_owned())
                    // An empty entry is skipped; it does not mean the working folder.
                    .filter(|path| !path.is_empty())
                    .collect(),
            ),
            Self::Switch => match text {
                "true" => UnparsedValue::Switch(true),
                "false" => UnparsedValue::Switch(false),
                _ => UnparsedValue::Other,
            },
            Self::Address
            | Self::Database
            | Self::File
            | Self::Folder
            | Self::Number { .. }
            | Self::OneOf(_)
            | Self::Text
            | Self::Url => UnparsedValue::Text(text.to_owned()),
        };
        self.parse(raw, base)
    }

    /// Returns the kind in words, for the reference.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Address => "host and port".to_owned(),
            Self::Command => "list of words".to_owned(),
            Self::Database => "PostgreSQL URL".to_owned(),
            Self::File => "file".to_owned(),
            Self::Folder => "folder".to_owned(),
            Self::Folders => "list of folders".to_owned(),
            Self::Number { min, max } => format!("{min} to {max}"),
            Self::OneOf(words) => words.join(", "),
            Self::Switch => "true or false".to_owned(),
            Self::Text => "text".to_owned(),
            Self::Url => "URL".to_owned(),
        }
    }
}

/// Escapes untrusted text for a terminal: control characters, and invisible or bidirectional formatting characters.
pub(crate) fn escape_for_terminal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        let unseen = matches!(
            char,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        );
        if char.is_control() || unseen {
            out.extend(char.escape_unicode());
        } else {
            out.push(char);
        }
    }
    out
}

/// Formats a value for people, with untrusted text escaped.
impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Command(words) => f.write_str(&escape_for_terminal(&json!(words).to_string())),
            Self::Database(_) => f.write_str("a database"),
            Self::File(path) | Self::Folder(path) => {
                f.write_str(&escape_for_terminal(&path.display().to_string()))
            }
            Self::Folders(paths) => f.write_str(&escape_for_terminal(&json!(paths).to_string())),
            Self::Number(number) => write!(f, "{number}"),
            Self::Switch(switch) => write!(f, "{switch}"),
            Self::Text(text) => f.write_str(&escape_for_terminal(text)),
            Self::Url(url) => f.write_str(&escape_for_terminal(url)),
            Self::Word(word) => f.write_str(word),
        }
    }
}

impl SettingValue {
    /// Returns the value as JSON.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Address(address) => json!(address.to_string()),
            Self::File(path) | Self::Folder(path) => json!(path),
            Self::Text(text) | Self::Url(text) => json!(text),
            Self::Command(words) => json!(words),
            Self::Database(_) => json!("a database"),
            Self::Folders(paths) => json!(paths),
            Self::Number(number) => json!(number),
            Self::Switch(switch) => json!(switch),
            Self::Word(word) => json!(word),
        }
    }
}

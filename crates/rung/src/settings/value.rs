//! What a setting can hold.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::json;

/// The kind of value a setting takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
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

/// A value of one of the kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Address(SocketAddr),
    Command(Vec<String>),
    /// Its address may hold a password, and is not shown.
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

/// What folders are relative to.
#[derive(Clone, Copy)]
pub(crate) struct Base<'p> {
    pub(crate) folder: &'p Path,
    /// What `~` stands for.
    pub(crate) user_home: Option<&'p Path>,
}

/// What a file, a variable or a flag says, before it is understood.
pub(crate) enum Raw {
    Text(String),
    Number(i64),
    Switch(bool),
    List(Vec<String>),
    Other,
}

impl Kind {
    /// Reads a value. The error says what is expected.
    pub(crate) fn read(self, raw: Raw, base: Base<'_>) -> Result<Value, String> {
        let folder = |text: &str| match (text.strip_prefix("~/"), base.user_home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => base.folder.join(text),
        };
        match (self, raw) {
            (Self::Address, Raw::Text(text)) => {
                let address = text.parse().map(Value::Address);
                address.map_err(|_| "an address and a port, as 127.0.0.1:7663".to_owned())
            }
            (Self::Command, Raw::List(words)) if !words.is_empty() => Ok(Value::Command(words)),
            (Self::Command, _) => {
                Err("a list of words, as [\"npx\", \"-y\", \"a-server\"]".to_owned())
            }
            (Self::Database, Raw::Text(text)) if !text.is_empty() => Ok(Value::Database(text)),
            (Self::Database, _) => Err("an address, as postgres://user@host/name".to_owned()),
            (Self::File, Raw::Text(text)) if !text.is_empty() => Ok(Value::File(folder(&text))),
            (Self::File, _) => Err("a file".to_owned()),
            (Self::Folder, Raw::Text(text)) if !text.is_empty() => Ok(Value::Folder(folder(&text))),
            (Self::Folder, _) => Err("a folder".to_owned()),
            (Self::Folders, Raw::List(list)) => Ok(Value::Folders(
                list.iter().map(|text| folder(text)).collect(),
            )),
            (Self::Folders, _) => Err("a list of folders".to_owned()),
            (Self::Number { min, max }, raw) => {
                let number = match raw {
                    Raw::Number(number) => u64::try_from(number).ok(),
                    Raw::Text(text) => text.parse().ok(),
                    _ => None,
                };
                let number = number.filter(|number| (min..=max).contains(number));
                number
                    .map(Value::Number)
                    .ok_or_else(|| format!("a whole number from {min} to {max}"))
            }
            (Self::OneOf(words), raw) => {
                let given = match &raw {
                    Raw::Text(text) => text.as_str(),
                    _ => "",
                };
                let word = words.iter().find(|word| **word == given);
                word.map(|word| Value::Word(word))
                    .ok_or_else(|| format!("one of {}", words.join(", ")))
            }
            (Self::Switch, Raw::Switch(switch)) => Ok(Value::Switch(switch)),
            (Self::Switch, _) => Err("true or false".to_owned()),
            (Self::Text, Raw::Text(text)) if !text.is_empty() => Ok(Value::Text(text)),
            (Self::Text, _) => Err("a text".to_owned()),
            (Self::Url, Raw::Text(text))
                if text.starts_with("http://") || text.starts_with("https://") =>
            {
                Ok(Value::Url(text))
            }
            (Self::Url, _) => Err("an address that begins with http:// or https://".to_owned()),
            (Self::Address, _) => Err("an address and a port".to_owned()),
        }
    }

    /// Reads a value from a variable or flag, where everything is text.
    pub(crate) fn read_text(self, text: &str, base: Base<'_>) -> Result<Value, String> {
        let raw = match self {
            Self::Command => Raw::List(text.split_whitespace().map(str::to_owned).collect()),
            Self::Folders => Raw::List(
                std::env::split_paths(text)
                    .map(|path| path.to_string_lossy().into_owned())
                    // Nothing between two colons is nothing, not the current folder.
                    .filter(|path| !path.is_empty())
                    .collect(),
            ),
            Self::Switch => match text {
                "true" => Raw::Switch(true),
                "false" => Raw::Switch(false),
                _ => Raw::Other,
            },
            Self::Address
            | Self::Database
            | Self::File
            | Self::Folder
            | Self::Number { .. }
            | Self::OneOf(_)
            | Self::Text
            | Self::Url => Raw::Text(text.to_owned()),
        };
        self.read(raw, base)
    }

    /// The kind in words, for the reference.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Address => "address".to_owned(),
            Self::Command => "list of words".to_owned(),
            Self::Database => "address of a database".to_owned(),
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

/// A text that comes from elsewhere, for a terminal: nothing in it can move the cursor, hide, or turn what
/// stands around it.
pub(crate) fn visible(text: &str) -> String {
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

/// For people: visible, and with words told apart.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Command(words) => f.write_str(&visible(&json!(words).to_string())),
            Self::Database(_) => f.write_str("a database"),
            Self::File(path) | Self::Folder(path) => {
                f.write_str(&visible(&path.display().to_string()))
            }
            Self::Folders(paths) => f.write_str(&visible(&json!(paths).to_string())),
            Self::Number(number) => write!(f, "{number}"),
            Self::Switch(switch) => write!(f, "{switch}"),
            Self::Text(text) => f.write_str(&visible(text)),
            Self::Url(url) => f.write_str(&visible(url)),
            Self::Word(word) => f.write_str(word),
        }
    }
}

impl Value {
    /// The value for programs.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Address(address) => json!(address),
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

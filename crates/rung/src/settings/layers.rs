//! The layers, each as a map from names to values with their origins.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rung_fault::{Code, Detail, Fault};
use toml::de::{DeTable, DeValue};

use super::table::{self, SETTINGS};
use super::value::{Base, Raw, Value, visible};

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File { path: PathBuf, line: usize },
    Variable(&'static str),
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => {
                write!(f, "{}:{line}", visible(&path.to_string_lossy()))
            }
            Self::Variable(name) => f.write_str(name),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

pub(super) type Layer = BTreeMap<String, (Value, Origin)>;

/// What the process was given: everything that the settings depend on.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) folder: PathBuf,
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// `--home`
    pub(crate) home: Option<PathBuf>,
    /// `--set key=value`
    pub(crate) set: Vec<String>,
    /// The user's own folder.
    pub(crate) user_home: Option<PathBuf>,
    /// The platform's folder for configuration.
    pub(crate) config_home: Option<PathBuf>,
    /// The platform's folder for data.
    pub(crate) data_home: Option<PathBuf>,
}

impl Given {
    /// What this process was given.
    pub(crate) fn here(home: Option<PathBuf>, set: Vec<String>) -> Result<Self, Fault> {
        let folder = std::env::current_dir().map_err(|error| {
            Fault::new(Code::InvalidSetting, format!("current folder: {error}"))
        })?;
        let platform = etcetera::base_strategy::choose_native_strategy().ok();
        Ok(Self {
            folder,
            variables: std::env::vars_os().collect(),
            home,
            set,
            // The current folder comes without links, so home must too.
            user_home: platform
                .as_ref()
                .map(etcetera::BaseStrategy::home_dir)
                .map(|home| fs::canonicalize(home).unwrap_or_else(|_| home.to_owned())),
            config_home: platform.as_ref().map(etcetera::BaseStrategy::config_dir),
            data_home: platform.as_ref().map(etcetera::BaseStrategy::data_dir),
        })
    }

    /// What the folders of a variable or flag are relative to.
    fn base(&self) -> Base<'_> {
        Base {
            folder: &self.folder,
            user_home: self.user_home.as_deref(),
        }
    }

    /// Where the user's own settings are.
    pub(crate) fn user_file(&self) -> Option<PathBuf> {
        Some(self.config_home.as_ref()?.join("rung").join("config.toml"))
    }
}

/// What holds where nobody says anything.
pub(super) fn defaults(given: &Given) -> Layer {
    let mut layer = Layer::new();
    if let Some(data) = &given.data_home {
        let home = Value::Folder(data.join("rung"));
        layer.insert("home".to_owned(), (home, Origin::Default));
    }
    for setting in SETTINGS {
        if let Some(text) = setting.default {
            let value = setting.kind.read_text(text, given.base());
            let value = value.expect("the table's own defaults are right");
            layer.insert(setting.key.to_owned(), (value, Origin::Default));
        }
    }
    layer
}

pub(super) fn user_file(given: &Given) -> Result<Layer, Fault> {
    match given.user_file() {
        Some(path) => match read_if_there(&path)? {
            Some(text) => parse_file(given, &path, &text),
            None => Ok(Layer::new()),
        },
        None => Ok(Layer::new()),
    }
}

pub(super) fn environment(given: &Given) -> Result<Layer, Fault> {
    let mut layer = Layer::new();
    for (name, value) in &given.variables {
        let name = name.to_string_lossy();
        if !name.starts_with("RUNG_") {
            continue;
        }
        let setting = table::find_env(&name)?;
        let variable = setting.env.unwrap_or_default();
        let value = match value.to_str() {
            Some(text) => setting.kind.read_text(text, given.base()),
            None => Err("UTF-8".to_owned()),
        };
        let value = value.map_err(|expected| wrong(setting.key, variable, &expected))?;
        layer.insert(setting.key.to_owned(), (value, Origin::Variable(variable)));
    }
    Ok(layer)
}

pub(super) fn flags(given: &Given) -> Result<Layer, Fault> {
    let mut layer = Layer::new();
    for pair in &given.set {
        let (key, text) = pair.split_once('=').ok_or_else(|| {
            Fault::new(
                Code::InvalidSetting,
                format!("--set {pair}: no value is given"),
            )
            .with_hint("write --set KEY=VALUE")
        })?;
        let setting = table::find(key)?;
        let value = setting.kind.read_text(text, given.base());
        let value = value.map_err(|expected| wrong(key, &format!("--set {key}"), &expected))?;
        layer.insert(key.to_owned(), (value, Origin::Flag("--set".to_owned())));
    }
    if let Some(home) = &given.home {
        let home = Value::Folder(given.folder.join(home));
        layer.insert("home".to_owned(), (home, Origin::Flag("--home".to_owned())));
    }
    Ok(layer)
}

/// Bytes of a settings file. A person writes them.
const FILE_BYTES: u64 = 1 << 20;

/// A file's text, if there is such a file.
pub(super) fn read_if_there(path: &Path) -> Result<Option<String>, Fault> {
    let refused = |why: &str| {
        let message = format!("{}: {why}", path.display());
        Fault::new(Code::InvalidSetting, message)
    };
    let mut options = fs::OpenOptions::new();
    options.read(true);
    // Opening a pipe must not wait for its other end.
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refused(&error.to_string())),
    };
    let known = file
        .metadata()
        .map_err(|error| refused(&error.to_string()))?;
    if !known.is_file() || known.len() > FILE_BYTES {
        return Err(refused("it is not a file of at most 1 MiB"));
    }
    let mut text = String::new();
    let read = file.take(FILE_BYTES).read_to_string(&mut text);
    read.map_err(|error| refused(&error.to_string()))?;
    Ok(Some(text))
}

pub(super) fn parse_file(given: &Given, path: &Path, text: &str) -> Result<Layer, Fault> {
    let file = File {
        path,
        line_ends: text.match_indices('\n').map(|(at, _)| at).collect(),
        base: Base {
            folder: path.parent().unwrap_or(Path::new("")),
            ..given.base()
        },
    };
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| file.line(span.start));
        Fault::new(
            Code::InvalidSetting,
            format!("{}:{line}: {}", path.display(), error.message()),
        )
    })?;
    let mut layer = Layer::new();
    file.flatten(table.get_ref(), "", &mut layer)?;
    Ok(layer)
}

struct File<'f> {
    path: &'f Path,
    line_ends: Vec<usize>,
    base: Base<'f>,
}

impl File<'_> {
    fn flatten(&self, table: &DeTable<'_>, prefix: &str, layer: &mut Layer) -> Result<(), Fault> {
        for (name, value) in table {
            let line = self.line(name.span().start);
            let place = format!("{}:{line}", self.path.display());
            let placed = |fault: Fault| fault.at(&place);
            // A quoted name with a dot in it is one name, and no setting has such a one.
            let name = name.get_ref();
            let key = if name.contains('.') {
                format!("{prefix}\"{name}\"")
            } else {
                format!("{prefix}{name}")
            };
            if let DeValue::Table(inner) = value.get_ref() {
                table::check_table(&key).map_err(placed)?;
                self.flatten(inner, &format!("{key}."), layer)?;
                continue;
            }
            let setting = table::find(&key).map_err(placed)?;
            let value = setting.kind.read(raw(value.get_ref()), self.base);
            let value =
                value.map_err(|expected| wrong(&key, &format!("{place}: `{key}`"), &expected))?;
            let path = self.path.to_owned();
            layer.insert(key, (value, Origin::File { path, line }));
        }
        Ok(())
    }

    fn line(&self, at: usize) -> usize {
        1 + self.line_ends.partition_point(|end| *end < at)
    }
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Boolean(switch) => Raw::Switch(*switch),
        DeValue::Integer(number) => {
            let digits = number.as_str().replace('_', "");
            i64::from_str_radix(&digits, number.radix()).map_or(Raw::Other, Raw::Number)
        }
        DeValue::Array(items) => {
            let words: Option<Vec<String>> = items
                .iter()
                .map(|item| item.get_ref().as_str().map(str::to_owned))
                .collect();
            words.map_or(Raw::Other, Raw::List)
        }
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => Raw::Other,
    }
}

fn wrong(key: &str, place: &str, expected: &str) -> Fault {
    Fault::new(Code::InvalidSetting, format!("{place} must be {expected}")).with(Detail::Field, key)
}

//! The layers of settings, each a map from keys to values with their origins.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rung_fault::{Code, Detail, Fault};
use toml::de::{DeTable, DeValue};

use super::table::{self, SETTINGS};
use super::value::{PathBase, SettingValue, UnparsedValue, escape_for_terminal};

/// Origin of a value.
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
                write!(f, "{}:{line}", escape_for_terminal(&path.to_string_lossy()))
            }
            Self::Variable(name) => f.write_str(name),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

pub(super) type Layer = BTreeMap<String, (SettingValue, Origin)>;

/// Inputs of the settings: working folder, environment, flags and platform folders.
#[derive(Debug)]
pub(crate) struct SettingsInput {
    pub(crate) working_folder: PathBuf,
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// `--home`
    pub(crate) home: Option<PathBuf>,
    /// `--set key=value`
    pub(crate) set: Vec<String>,
    /// Home folder of the user.
    pub(crate) user_home: Option<PathBuf>,
    /// Configuration folder of the platform.
    pub(crate) config_home: Option<PathBuf>,
    /// Data folder of the platform.
    pub(crate) data_home: Option<PathBuf>,
}

impl SettingsInput {
    /// Collects the inputs of this process.
    pub(crate) fn from_process(home: Option<PathBuf>, set: Vec<String>) -> Result<Self, Fault> {
        let folder = std::env::current_dir().map_err(|error| {
            Fault::new(
                Code::InvalidSetting,
                format!("the working folder cannot be read: {error}"),
            )
        })?;
        let platform = etcetera::base_strategy::choose_native_strategy().ok();
        Ok(Self {
            working_folder: folder,
            variables: std::env::vars_os().collect(),
            home,
            set,
            // The working folder is canonical, so the home folder must be, too.
            user_home: platform
                .as_ref()
                .map(etcetera::BaseStrategy::home_dir)
                .map(|home| fs::canonicalize(home).unwrap_or_else(|_| home.to_owned())),
            config_home: platform.as_ref().map(etcetera::BaseStrategy::config_dir),
            data_home: platform.as_ref().map(etcetera::BaseStrategy::data_dir),
        })
    }

    /// Returns the base of relative paths in variables and flags.
    fn base(&self) -> PathBase<'_> {
        PathBase {
            folder: &self.working_folder,
            user_home: self.user_home.as_deref(),
        }
    }

    /// Returns the path of the user's settings file.
    pub(crate) fn user_file(&self) -> Option<PathBuf> {
        Some(self.config_home.as_ref()?.join("rung").join("config.toml"))
    }
}

/// Returns the layer of default values.
pub(super) fn defaults(given: &SettingsInput) -> Layer {
    let mut layer = Layer::new();
    if let Some(data) = &given.data_home {
        let home = SettingValue::Folder(data.join("rung"));
        layer.insert("home".to_owned(), (home, Origin::Default));
    }
    for setting in SETTINGS {
        if let Some(text) = setting.default {
            let value = setting.kind.parse_text(text, given.base());
            let value = value.expect("the table's own defaults are right");
            layer.insert(setting.key.to_owned(), (value, Origin::Default));
        }
    }
    layer
}

pub(super) fn user_file(given: &SettingsInput) -> Result<Layer, Fault> {
    match given.user_file() {
        Some(path) => match read_optional(&path)? {
            Some(text) => parse_file(given, &path, &text),
            None => Ok(Layer::new()),
        },
        None => Ok(Layer::new()),
    }
}

pub(super) fn environment(given: &SettingsInput) -> Result<Layer, Fault> {
    let mut layer = Layer::new();
    for (name, value) in &given.variables {
        let name = name.to_string_lossy();
        if !name.starts_with("RUNG_") {
            continue;
        }
        let setting = table::find_env(&name)?;
        let variable = setting.env.unwrap_or_default();
        let value = match value.to_str() {
            Some(text) => setting.kind.parse_text(text, given.base()),
            None => Err("UTF-8".to_owned()),
        };
        let value = value.map_err(|expected| invalid_value(setting.key, variable, &expected))?;
        layer.insert(setting.key.to_owned(), (value, Origin::Variable(variable)));
    }
    Ok(layer)
}

pub(super) fn flags(given: &SettingsInput) -> Result<Layer, Fault> {
    let mut layer = Layer::new();
    for pair in &given.set {
        let (key, text) = pair.split_once('=').ok_or_else(|| {
            Fault::new(
                Code::InvalidSetting,
                format!("--set {pair}: the value is missing"),
            )
            .with_hint("write --set KEY=VALUE")
        })?;
        let setting = table::find(key)?;
        let value = setting.kind.parse_text(text, given.base());
        let value =
            value.map_err(|expected| invalid_value(key, &format!("--set {key}"), &expected))?;
        layer.insert(key.to_owned(), (value, Origin::Flag("--set".to_owned())));
    }
    if let Some(home) = &given.home {
        let home = SettingValue::Folder(given.working_folder.join(home));
        layer.insert("home".to_owned(), (home, Origin::Flag("--home".to_owned())));
    }
    Ok(layer)
}

/// Maximum bytes of a settings file, which a person writes.
const FILE_BYTES: u64 = 1 << 20;

/// Reads a file. Returns `None` if it does not exist.
pub(super) fn read_optional(path: &Path) -> Result<Option<String>, Fault> {
    let refused = |why: &str| {
        let message = format!("{}: {why}", path.display());
        Fault::new(Code::InvalidSetting, message)
    };
    let mut options = fs::OpenOptions::new();
    options.read(true);
    // Opening a named pipe must not block until its other end is opened.
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
        return Err(refused("it must be a regular file of at most 1 MiB"));
    }
    let mut text = String::new();
    let read = file.take(FILE_BYTES).read_to_string(&mut text);
    read.map_err(|error| refused(&error.to_string()))?;
    Ok(Some(text))
}

pub(super) fn parse_file(given: &SettingsInput, path: &Path, text: &str) -> Result<Layer, Fault> {
    let file = FileParser {
        path,
        line_ends: text.match_indices('\n').map(|(at, _)| at).collect(),
        base: PathBase {
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

struct FileParser<'f> {
    path: &'f Path,
    line_ends: Vec<usize>,
    base: PathBase<'f>,
}

impl FileParser<'_> {
    fn flatten(&self, table: &DeTable<'_>, prefix: &str, layer: &mut Layer) -> Result<(), Fault> {
        for (name, value) in table {
            let line = self.line(name.span().start);
            let place = format!("{}:{line}", self.path.display());
            let placed = |fault: Fault| fault.with_location(&place);
            // A quoted name with a dot is a single name, and no setting has one.
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
            let value = setting.kind.parse(to_unparsed(value.get_ref()), self.base);
            let value = value
                .map_err(|expected| invalid_value(&key, &format!("{place}: `{key}`"), &expected))?;
            let path = self.path.to_owned();
            layer.insert(key, (value, Origin::File { path, line }));
        }
        Ok(())
    }

    fn line(&self, at: usize) -> usize {
        1 + self.line_ends.partition_point(|end| *end < at)
    }
}

fn to_unparsed(value: &DeValue<'_>) -> UnparsedValue {
    match value {
        DeValue::String(text) => UnparsedValue::Text(text.to_string()),
        DeValue::Boolean(switch) => UnparsedValue::Switch(*switch),
        DeValue::Integer(number) => {
            let digits = number.as_str().replace('_', "");
            i64::from_str_radix(&digits, number.radix())
                .map_or(UnparsedValue::Other, UnparsedValue::Number)
        }
        DeValue::Array(items) => {
            let words: Option<Vec<String>> = items
                .iter()
                .map(|item| item.get_ref().as_str().map(str::to_owned))
                .collect();
            words.map_or(UnparsedValue::Other, UnparsedValue::List)
        }
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => UnparsedValue::Other,
    }
}

fn invalid_value(key: &str, place: &str, expected: &str) -> Fault {
    Fault::new(Code::InvalidSetting, format!("{place} must be {expected}")).with(Detail::Field, key)
}

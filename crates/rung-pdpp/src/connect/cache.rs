//! The file that credentials are kept in: one for each provider, readable by its owner alone.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rung_fault::{Code, Fault};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where they are kept, if nothing else is said.
const ROOT: &str = ".pdpp";

/// What is kept of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cached {
    /// Its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_url: Option<String>,
    /// Where access is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization_server: Option<String>,
    /// What was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// As whom.
    #[serde(default)]
    pub client: Option<ClientKept>,
    /// What was given.
    pub credential: Credential,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
}

/// As whom a provider knows us.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientKept {
    /// The id that it gave.
    pub client_id: String,
    /// The name that we gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// How we prove who we are: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_endpoint_auth_method: Option<String>,
}

/// What was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// The token.
    pub access_token: String,
    /// How it is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_type: Option<String>,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_id: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// What gets the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// What kind of token some providers say that it is.
    #[serde(
        default,
        alias = "token_kind",
        alias = "kind",
        alias = "role",
        skip_serializing_if = "Option::is_none"
    )]
    pub pdpp_token_kind: Option<String>,
}

/// Where credentials are kept.
#[derive(Debug, Clone)]
pub struct Cache(PathBuf);

/// When a file was written, if it is there, and how long it is.
pub(crate) fn written(path: &Path) -> Option<(SystemTime, u64)> {
    let facts = fs::metadata(path).ok()?;
    Some((facts.modified().ok()?, facts.len()))
}

impl Cache {
    /// Under a folder, or in `.pdpp` of the working directory.
    pub fn at(root: Option<PathBuf>) -> Self {
        Self(root.unwrap_or_else(|| PathBuf::from(ROOT)))
    }

    /// The file of a provider.
    pub fn path(&self, provider: &str) -> PathBuf {
        let host = provider
            .split_once("://")
            .map_or(provider, |(_, rest)| rest);
        let host = host.split('/').next().unwrap_or_default();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        let key: String = host
            .chars()
            .map(|c| if plain(c) { c } else { '_' })
            .collect();
        self.0.join("clients").join(format!("{key}.json"))
    }

    /// What is kept of a provider.
    pub fn read(&self, provider: &str) -> Result<Option<Cached>, Fault> {
        read(&self.path(provider))
    }

    /// Everything that is kept, and where.
    pub fn all(&self) -> Result<Vec<(PathBuf, Cached)>, Fault> {
        let folder = self.0.join("clients");
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&folder, &error)),
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| failed(&folder, &error))?.path();
            if path.extension().is_some_and(|kind| kind == "json")
                && let Some(cached) = read(&path)?
            {
                all.push((path, cached));
            }
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }

    /// Keeps it: the file is there whole, or the one before it is.
    pub fn write(&self, provider: &str, cached: &Cached) -> Result<PathBuf, Fault> {
        let path = self.path(provider);
        let folder = path.parent().unwrap_or(Path::new("."));
        make_private(&self.0)?;
        make_private(folder)?;
        let ignored = self.0.join(".gitignore");
        if !ignored.exists() {
            fs::write(&ignored, "*\n!.gitignore\n").map_err(|error| failed(&ignored, &error))?;
        }
        let mut text = serde_json::to_string_pretty(cached)
            .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
        text.push('\n');
        let at = |error: &io::Error| failed(&path, error);
        // Such files are their owner's alone from the first byte on.
        let mut aside = tempfile::NamedTempFile::new_in(folder).map_err(|error| at(&error))?;
        aside
            .write_all(text.as_bytes())
            .map_err(|error| at(&error))?;
        aside.as_file().sync_all().map_err(|error| at(&error))?;
        aside.persist(&path).map_err(|error| at(&error.error))?;
        Ok(path)
    }

    /// Forgets a provider.
    pub fn remove(&self, provider: &str) -> Result<(), Fault> {
        let path = self.path(provider);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&path, &error)),
            _ => Ok(()),
        }
    }

    /// Keeps other processes from getting a new token at the same time, until what is returned is dropped.
    pub(super) fn lock(&self, provider: &str) -> Result<File, Fault> {
        let path = self.path(provider).with_extension("lock");
        let mut options = fs::OpenOptions::new();
        options.create(true).truncate(false).write(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path).map_err(|error| failed(&path, &error))?;
        file.lock().map_err(|error| failed(&path, &error))?;
        Ok(file)
    }
}

fn read(path: &Path) -> Result<Option<Cached>, Fault> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(path, &error)),
    };
    let cached: Cached = serde_json::from_str(&text).map_err(|error| {
        let why = format!("{}: {error}", path.display());
        Fault::new(Code::StoreBroken, why)
            .with_hint("remove the file, then `rung pdpp connect` again")
    })?;
    if cached.credential.pdpp_token_kind.as_deref() == Some("owner") {
        return Err(owner_token(&path.display().to_string()));
    }
    Ok(Some(cached))
}

/// What is kept somewhere is an owner's token, which is not for agents.
pub(crate) fn owner_token(place: &str) -> Fault {
    let why = format!("owner_token_refused: {place} holds an owner's token");
    Fault::new(Code::PermissionError, why)
        .with_hint("`rung pdpp connect` asks the owner for one that is for agents")
}

/// Whether a provider's schema says that it was read with an owner's token: the body is the schema, or has it in `data`.
pub(crate) fn is_owner(schema: &Value) -> bool {
    let owner = |bearer: &Value| bearer["token_kind"] == "owner" || bearer["scope"] == "owner";
    owner(&schema["bearer"]) || owner(&schema["data"]["bearer"])
}

fn make_private(path: &Path) -> Result<(), Fault> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &io::Error) -> Fault {
    Fault::new(Code::StoreBroken, format!("{}: {error}", path.display()))
        .with_hint("see to the folder's permissions, or name another with --cache-root")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_private_named_by_its_host_and_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(Some(dir.path().join("p")));
        let provider = "http://127.0.0.1:7663";
        assert_eq!(cache.read(provider).unwrap(), None);
        let text = r#"{"credential":{"access_token":"x"}}"#;
        let cached: Cached = serde_json::from_str(text).unwrap();
        let path = cache.write(provider, &cached).unwrap();
        assert!(path.ends_with("clients/127.0.0.1_7663.json"), "{path:?}");
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "{\n  \"client\": null,\n  \"credential\": {\n    \"access_token\": \"x\"\n  }\n}\n"
        );
        assert_eq!(cache.read(provider).unwrap(), Some(cached));
        assert_eq!(
            fs::read_to_string(dir.path().join("p/.gitignore")).unwrap(),
            "*\n!.gitignore\n"
        );
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(&path), 0o600);
            assert_eq!(mode(path.parent().unwrap()), 0o700);
            assert_eq!(mode(&dir.path().join("p")), 0o700);
        }
        fs::write(
            &path,
            r#"{"credential":{"access_token":"x","kind":"owner"}}"#,
        )
        .unwrap();
        let refused = cache.read(provider).unwrap_err();
        assert!(
            refused.message().starts_with("owner_token_refused"),
            "{refused}"
        );
    }
}

//! The credential cache: one file per provider, readable by the user alone.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rung_fault::{Code, Fault};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The default cache directory, relative to the working directory.
const DEFAULT_ROOT: &str = ".pdpp";

/// The cached grant of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedGrant {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_url: Option<String>,
    /// The issuer URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization_server: Option<String>,
    /// The requested scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    #[serde(default)]
    pub client: Option<ClientRegistration>,
    pub credential: Credential,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
}

/// This program's client registration at a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRegistration {
    pub client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// The registered method: always `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_endpoint_auth_method: Option<String>,
}

/// The token of a grant, with its metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    pub access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// The token kind, where the provider reports one. An `owner` token is refused.
    #[serde(
        default,
        alias = "token_kind",
        alias = "kind",
        alias = "role",
        skip_serializing_if = "Option::is_none"
    )]
    pub pdpp_token_kind: Option<String>,
}

/// A directory of cached credentials.
#[derive(Debug, Clone)]
pub struct CredentialCache(PathBuf);

/// Returns the modification time and the size of a file, if it exists.
pub(crate) fn file_stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let facts = fs::metadata(path).ok()?;
    Some((facts.modified().ok()?, facts.len()))
}

impl CredentialCache {
    /// A cache in `root`, or in `.pdpp` of the working directory.
    pub fn new(root: Option<PathBuf>) -> Self {
        Self(root.unwrap_or_else(|| PathBuf::from(DEFAULT_ROOT)))
    }

    /// Returns the path of a provider's file, named by the provider's host.
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

    pub fn read(&self, provider: &str) -> Result<Option<CachedGrant>, Fault> {
        read(&self.path(provider))
    }

    /// Returns all cached grants and their paths, sorted by path.
    pub fn list(&self) -> Result<Vec<(PathBuf, CachedGrant)>, Fault> {
        let folder = self.0.join("clients");
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_fault(&folder, &error)),
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| io_fault(&folder, &error))?.path();
            if path.extension().is_some_and(|kind| kind == "json")
                && let Some(cached) = read(&path)?
            {
                all.push((path, cached));
            }
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }

    /// Writes a provider's file atomically and returns its path.
    pub fn write(&self, provider: &str, cached: &CachedGrant) -> Result<PathBuf, Fault> {
        let path = self.path(provider);
        let folder = path.parent().unwrap_or(Path::new("."));
        create_private_dir(&self.0)?;
        create_private_dir(folder)?;
        let ignored = self.0.join(".gitignore");
        if !ignored.exists() {
            fs::write(&ignored, "*\n!.gitignore\n").map_err(|error| io_fault(&ignored, &error))?;
        }
        let mut text = serde_json::to_string_pretty(cached)
            .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
        text.push('\n');
        let at = |error: &io::Error| io_fault(&path, error);
        // Temporary files are created with mode 0600.
        let mut aside = tempfile::NamedTempFile::new_in(folder).map_err(|error| at(&error))?;
        aside
            .write_all(text.as_bytes())
            .map_err(|error| at(&error))?;
        aside.as_file().sync_all().map_err(|error| at(&error))?;
        aside.persist(&path).map_err(|error| at(&error.error))?;
        Ok(path)
    }

    /// Deletes a provider's file, if it exists.
    pub fn remove(&self, provider: &str) -> Result<(), Fault> {
        let path = self.path(provider);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_fault(&path, &error)),
            _ => Ok(()),
        }
    }

    /// Locks a provider's file against a concurrent refresh by another process, until the returned file is dropped.
    pub(super) fn lock(&self, provider: &str) -> Result<File, Fault> {
        let path = self.path(provider).with_extension("lock");
        let mut options = fs::OpenOptions::new();
        options.create(true).truncate(false).write(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options
            .open(&path)
            .map_err(|error| io_fault(&path, &error))?;
        file.lock().map_err(|error| io_fault(&path, &error))?;
        Ok(file)
    }
}

fn read(path: &Path) -> Result<Option<CachedGrant>, Fault> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_fault(path, &error)),
    };
    let cached: CachedGrant = serde_json::from_str(&text).map_err(|error| {
        let why = format!("{}: {error}", path.display());
        Fault::new(Code::StoreBroken, why)
            .with_hint("delete the file, then run `rung pdpp connect` again")
    })?;
    if cached.credential.pdpp_token_kind.as_deref() == Some("owner") {
        return Err(owner_token_fault(&path.display().to_string()));
    }
    Ok(Some(cached))
}

/// Returns the fault for an owner token, which agents must not use.
pub(crate) fn owner_token_fault(place: &str) -> Fault {
    let why = format!("owner_token_refused: {place} contains an owner token");
    Fault::new(Code::PermissionError, why)
        .with_hint("run `rung pdpp connect` to get a token for agents")
}

/// True if a schema response says that it was read with an owner token. The schema is the body, or its `data` member.
pub(crate) fn is_owner_schema(schema: &Value) -> bool {
    let owner = |bearer: &Value| bearer["token_kind"] == "owner" || bearer["scope"] == "owner";
    owner(&schema["bearer"]) || owner(&schema["data"]["bearer"])
}

fn create_private_dir(path: &Path) -> Result<(), Fault> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|error| io_fault(path, &error))
}

fn io_fault(path: &Path, error: &io::Error) -> Fault {
    Fault::new(Code::StoreBroken, format!("{}: {error}", path.display()))
        .with_hint("check the permissions of the folder, or name another folder with --cache-root")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_private_named_by_its_host_and_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let cache = CredentialCache::new(Some(dir.path().join("p")));
        let provider = "http://127.0.0.1:7663";
        assert_eq!(cache.read(provider).unwrap(), None);
        let text = r#"{"credential":{"access_token":"x"}}"#;
        let cached: CachedGrant = serde_json::from_str(text).unwrap();
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

//! The catalogs on disk. The key is a server's name and definition, so that another server of that name has another entry.

use data_encoding::HEXLOWER;
use rung_fault::Fault;
use rung_kv::RecordTable;
use rung_mcp::connect::ServerTarget;
use sha2::{Digest as _, Sha256};

use crate::catalog::{Catalog, StoredCatalog};
use crate::definition::ServerDefinition;

pub(crate) struct CatalogStore(RecordTable);

/// Format version of an entry. Entries of another version are ignored; the server is listed again.
const FORMAT_VERSION: u8 = 1;

/// Entries expire when they were not rewritten for this long.
const RETENTION_MS: u64 = 180 * 24 * 60 * 60 * 1_000;

impl CatalogStore {
    pub(crate) fn new(records: RecordTable) -> Self {
        Self(records)
    }

    pub(crate) fn read(&self, definition: &ServerDefinition) -> Option<Catalog> {
        let entry = self.0.get(&key(definition), crate::now_ms()).ok()??;
        let (form, kept) = entry.split_first()?;
        let kept: StoredCatalog =
            (*form == FORMAT_VERSION).then(|| serde_json::from_slice(kept).ok())??;
        Some(kept.into())
    }

    /// Stores a server's catalog. Returns true if it differs from `before`.
    pub(crate) fn put(
        &self,
        definition: &ServerDefinition,
        seen: &Catalog,
        before: Option<&Catalog>,
    ) -> Result<bool, Fault> {
        let written = |seen: &Catalog| {
            let mut entry = vec![FORMAT_VERSION];
            serde_json::to_writer(&mut entry, &seen.to_stored())
                .expect("what came as JSON is JSON");
            entry
        };
        let entry = written(seen);
        if before.is_some_and(|before| written(before) == entry) {
            return Ok(false);
        }
        let until_ms = crate::now_ms() + RETENTION_MS;
        self.0.put(&key(definition), &entry, Some(until_ms))?;
        Ok(true)
    }
}

/// Derives the key. The working directory is part of it, because the same command is another server there.
fn key(definition: &ServerDefinition) -> String {
    let mut digest = Sha256::new_with_prefix(&definition.summary);
    if let ServerTarget::Command(command) = &definition.target
        && let Some(dir) = &command.dir
    {
        digest.update([0]);
        digest.update(dir.as_os_str().as_encoded_bytes());
    }
    let digest = HEXLOWER.encode(&digest.finalize());
    format!("{}\u{0}{}", definition.name, &digest[..32])
}

//! What every server was last seen to offer, on disk: under its name and what it is, so that another server of that name is
//! another entry.

use data_encoding::HEXLOWER;
use rung_fault::Fault;
use rung_kv::Records;
use rung_mcp::connect::Target;
use sha2::{Digest as _, Sha256};

use crate::definition::Definition;
use crate::seen::{Kept, Seen};

/// What every server was last seen to offer.
pub(crate) struct Catalogue(Records);

/// The form of an entry. An entry of another form is as good as none: it is read from the server again.
const FORM: u8 = 1;

/// An entry that nobody has renewed for so long is let go.
const KEPT_MS: u64 = 180 * 24 * 60 * 60 * 1_000;

impl Catalogue {
    pub(crate) fn new(records: Records) -> Self {
        Self(records)
    }

    /// What a server was seen to offer.
    pub(crate) fn read(&self, definition: &Definition) -> Option<Seen> {
        let entry = self.0.get(&key(definition), crate::now_ms()).ok()??;
        let (form, kept) = entry.split_first()?;
        let kept: Kept = (*form == FORM).then(|| serde_json::from_slice(kept).ok())??;
        Some(kept.into())
    }

    /// Notes what a server offers. Whether that is something else than before.
    pub(crate) fn put(
        &self,
        definition: &Definition,
        seen: &Seen,
        before: Option<&Seen>,
    ) -> Result<bool, Fault> {
        let written = |seen: &Seen| {
            let mut entry = vec![FORM];
            serde_json::to_writer(&mut entry, &seen.kept()).expect("what came as JSON is JSON");
            entry
        };
        let entry = written(seen);
        if before.is_some_and(|before| written(before) == entry) {
            return Ok(false);
        }
        let until_ms = crate::now_ms() + KEPT_MS;
        self.0.put(&key(definition), &entry, Some(until_ms))?;
        Ok(true)
    }
}

/// What is written alike means something else in another folder.
fn key(definition: &Definition) -> String {
    let mut digest = Sha256::new_with_prefix(&definition.shown);
    if let Target::Command(command) = &definition.target
        && let Some(dir) = &command.dir
    {
        digest.update([0]);
        digest.update(dir.as_os_str().as_encoded_bytes());
    }
    let digest = HEXLOWER.encode(&digest.finalize());
    format!("{}\u{0}{}", definition.name, &digest[..32])
}

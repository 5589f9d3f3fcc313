//! The rows of the result store, down to the byte.
//!
//! | table | key | value |
//! | --- | --- | --- |
//! | `results` | caller 16, grant 8, handle 16 | a [`ResultRecord`] as JSON |
//! | `chunks` | body 8, number 4 | code points before 8, line breaks before 8, up to [`CHUNK_BYTES`] bytes |
//! | `expiry` | expiry 8, key 40 | |
//! | `queue` | caller 16, body 8 | key 40 |
//! | `usage` | caller 16 | bytes 8 |
//! | `pending` | body 8 | last heard of 8 |
//!
//! Numbers are big-endian, so rows are in numeric order. Callers and grants are prefixes of the
//! SHA-256 of their names: fixed in length, and unreadable in a stolen file's keys.

use rung_auth::Permit;
use rung_ladder::{Handle, ResultSummary};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// Code points and line breaks before a chunk.
pub(super) const CHUNK_HEADER_BYTES: usize = 16;
/// With its header and the engine's own 16 bytes, a chunk fills sixteen pages exactly.
pub(super) const CHUNK_BYTES: usize = 65_536 - 16 - CHUNK_HEADER_BYTES;

const CALLER_BYTES: usize = 16;
const GRANT_BYTES: usize = 8;
const OWNER_BYTES: usize = CALLER_BYTES + GRANT_BYTES;
const KEY_BYTES: usize = OWNER_BYTES + 16;

/// The caller and the grant of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResultOwner([u8; OWNER_BYTES]);

impl ResultOwner {
    pub(super) fn from_permit(permit: &Permit) -> Self {
        let mut bytes = [0; OWNER_BYTES];
        let hash = |name: &str| Sha256::digest(name.as_bytes());
        bytes[..CALLER_BYTES].copy_from_slice(&hash(permit.caller().as_str())[..CALLER_BYTES]);
        bytes[CALLER_BYTES..].copy_from_slice(&hash(permit.grant().as_str())[..GRANT_BYTES]);
        Self(bytes)
    }

    pub(super) fn caller(&self) -> &[u8] {
        &self.0[..CALLER_BYTES]
    }

    pub(super) fn key(&self, handle: &Handle) -> ResultKey {
        let mut bytes = [0; KEY_BYTES];
        bytes[..OWNER_BYTES].copy_from_slice(&self.0);
        bytes[OWNER_BYTES..].copy_from_slice(handle.bits());
        ResultKey(bytes)
    }
}

/// The key of a row of `results`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResultKey([u8; KEY_BYTES]);

impl ResultKey {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn caller(&self) -> &[u8] {
        &self.0[..CALLER_BYTES]
    }

    pub(super) fn belongs_to(&self, owner: &ResultOwner) -> bool {
        self.0[..OWNER_BYTES] == owner.0
    }

    pub(super) fn handle(&self) -> Handle {
        Handle::from_bits(*self.0.last_chunk().expect("a key ends in a handle"))
    }

    pub(super) fn expiry_row(&self, expires_ms: u64) -> Vec<u8> {
        [expires_ms.to_be_bytes().as_slice(), &self.0].concat()
    }

    pub(super) fn from_expiry_row(row: &[u8]) -> Result<(u64, Self)> {
        let (expires_ms, key) = row.split_at_checked(8).ok_or(Error::Corrupt("expiry"))?;
        let key = key.try_into().map_err(|_| Error::Corrupt("expiry"))?;
        Ok((decode_number(expires_ms)?, Self(key)))
    }

    /// Bodies are numbered as they arrive, so a caller's rows are in that order, independent of the clock.
    pub(super) fn queue_row(&self, body: u64) -> [u8; CALLER_BYTES + 8] {
        let mut row = [0; CALLER_BYTES + 8];
        row[..CALLER_BYTES].copy_from_slice(self.caller());
        row[CALLER_BYTES..].copy_from_slice(&body.to_be_bytes());
        row
    }

    pub(super) fn from_queue_row(row: &[u8]) -> Result<Self> {
        Ok(Self(row.try_into().map_err(|_| Error::Corrupt("queue"))?))
    }
}

pub(super) fn chunk_key(body: u64, number: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&body.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Decodes a number of a row.
pub(super) fn decode_number(row: &[u8]) -> Result<u64> {
    let bytes = row.try_into().map_err(|_| Error::Corrupt("number"))?;
    Ok(u64::from_be_bytes(bytes))
}

/// A finished result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ResultRecord {
    pub(super) body: u64,
    pub(super) content_type: String,
    pub(super) bytes: u64,
    pub(super) chars: Option<u64>,
    pub(super) digest: String,
    pub(super) created_ms: u64,
    pub(super) expires_ms: u64,
}

impl ResultRecord {
    pub(super) fn new(body: u64, summary: &ResultSummary) -> Self {
        let summary = summary.clone();
        Self {
            body,
            content_type: summary.content_type,
            bytes: summary.bytes,
            chars: summary.chars,
            digest: summary.digest,
            created_ms: summary.created_ms,
            expires_ms: summary.expires_ms,
        }
    }

    pub(super) fn to_row(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|_| Error::Corrupt("record"))
    }

    pub(super) fn from_row(row: &[u8]) -> Result<Self> {
        serde_json::from_slice(row).map_err(|_| Error::Corrupt("record"))
    }

    pub(super) fn summary(&self) -> ResultSummary {
        ResultSummary {
            content_type: self.content_type.clone(),
            bytes: self.bytes,
            chars: self.chars,
            digest: self.digest.clone(),
            created_ms: self.created_ms,
            expires_ms: self.expires_ms,
        }
    }
}

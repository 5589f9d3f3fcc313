//! Stored results and their metadata. Storage itself is not known here.

use std::time::Duration;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::{Handle, Mark};

/// The limits of stored results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionLimits {
    /// The time after which a result is deleted.
    pub ttl: Duration,
    /// Bytes that one caller may store; the oldest results are deleted for the newest.
    pub max_bytes: u64,
}

impl Default for RetentionLimits {
    fn default() -> Self {
        Self {
            ttl: Duration::from_hours(24),
            max_bytes: 1 << 30,
        }
    }
}

/// A stored result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultEntry {
    /// The handle of the result.
    pub handle: Handle,
    /// The metadata of the result.
    pub summary: ResultSummary,
}

/// The metadata of a stored result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultSummary {
    /// The media type, as given.
    pub content_type: String,
    /// The length in bytes.
    pub bytes: u64,
    /// The length in code points, if the result is text.
    pub chars: Option<u64>,
    /// `sha256:` and the SHA-256 in hexadecimal.
    pub digest: String,
    /// The time of storage, in milliseconds since 1970.
    pub created_ms: u64,
    /// The time of deletion, in milliseconds since 1970.
    pub expires_ms: u64,
}

/// Cuts an incoming result into pieces of equal length, each with the position where it begins, so that a window is
/// found without reading the text before it.
#[derive(Debug)]
pub struct ResultChunker {
    content_type: String,
    piece_bytes: usize,
    /// Bytes that were not discarded yet; a whole number of pieces lies before them.
    held: Vec<u8>,
    /// The position where `held` begins.
    before: Mark,
    bytes: u64,
    digest: Sha256,
    text: Utf8Checker,
}

impl ResultChunker {
    /// Creates an empty result of that media type, to be cut into pieces of `piece_bytes`.
    pub fn new(content_type: String, piece_bytes: usize) -> Self {
        let text = Utf8Checker {
            valid: !is_binary_type(&content_type),
            tail: Vec::new(),
        };
        Self {
            content_type,
            piece_bytes,
            held: Vec::new(),
            before: Mark::default(),
            bytes: 0,
            digest: Sha256::new(),
            text,
        }
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.digest.update(bytes);
        self.text.check(bytes);
        self.held.extend_from_slice(bytes);
    }

    /// Returns the total number of bytes appended.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of bytes in memory.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Returns the bytes in memory, in pieces, each with the position where it begins.
    pub fn pieces(&self) -> impl Iterator<Item = (Mark, &[u8])> {
        let mut next = self.before;
        self.held.chunks(self.piece_bytes).map(move |piece| {
            let mark = next;
            next = mark.after(piece);
            (mark, piece)
        })
    }

    /// Discards the bytes in memory after they were written. Unless the result is complete, they must be whole pieces.
    pub fn discard_held(&mut self) {
        self.before = self.before.after(&self.held);
        self.held.clear();
    }

    /// Returns the metadata of the complete result.
    pub fn summary(&self, created_ms: u64, ttl: Duration) -> ResultSummary {
        let text = self.text.valid && self.text.tail.is_empty();
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        ResultSummary {
            content_type: self.content_type.clone(),
            bytes: self.bytes,
            chars: text.then(|| self.before.after(&self.held).chars),
            digest: format!(
                "sha256:{}",
                HEXLOWER.encode(&self.digest.clone().finalize())
            ),
            created_ms,
            expires_ms: created_ms.saturating_add(ttl_ms),
        }
    }
}

/// Checks incrementally whether a result is UTF-8.
#[derive(Debug)]
struct Utf8Checker {
    valid: bool,
    /// The first bytes of an incomplete code point.
    tail: Vec<u8>,
}

impl Utf8Checker {
    fn check(&mut self, mut bytes: &[u8]) {
        while self.valid && !self.tail.is_empty() && !bytes.is_empty() {
            self.tail.push(bytes[0]);
            bytes = &bytes[1..];
            match std::str::from_utf8(&self.tail) {
                Ok(_) => self.tail.clear(),
                Err(error) if error.error_len().is_none() => {}
                Err(_) => self.valid = false,
            }
        }
        if !self.valid {
            return;
        }
        match std::str::from_utf8(bytes) {
            Ok(_) => {}
            Err(error) if error.error_len().is_none() => {
                self.tail.extend_from_slice(&bytes[error.valid_up_to()..]);
            }
            Err(_) => self.valid = false,
        }
    }
}

/// Returns true for types whose bytes are not text even if they happen to be valid UTF-8.
fn is_binary_type(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    let essence = essence.as_str();
    let (kind, subtype) = essence.split_once('/').unwrap_or((essence, ""));
    match kind {
        "image" | "audio" | "video" | "font" => !subtype.ends_with("+xml"),
        "application" => ["octet-stream", "pdf", "zip", "gzip", "wasm"].contains(&subtype),
        _ => false,
    }
}

//! Whole answers that are kept, and what is known of them. Where they are kept is others' business.

use std::time::Duration;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::{Handle, Mark};

/// How long results are kept, and how much of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keeping {
    /// A result is gone after this.
    pub ttl: Duration,
    /// What one caller may keep; the oldest results make room for the newest.
    pub max_bytes: u64,
}

impl Default for Keeping {
    fn default() -> Self {
        Self {
            ttl: Duration::from_hours(24),
            max_bytes: 1 << 30,
        }
    }
}

/// A result that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its handle.
    pub handle: Handle,
    /// What is known of it.
    pub summary: Summary,
}

/// What is known of a result without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its media type, as given.
    pub content_type: String,
    /// Its length.
    pub bytes: u64,
    /// Its length in code points, where it is text.
    pub chars: Option<u64>,
    /// `sha256:` and its SHA-256 in hexadecimal.
    pub digest: String,
    /// When it was stored, in milliseconds since 1970.
    pub created_ms: u64,
    /// When it will be gone.
    pub expires_ms: u64,
}

/// A result on its way in: cut into pieces of equal length, each with the place where it begins, so that a window is
/// found without reading what lies before it.
#[derive(Debug)]
pub struct Intake {
    content_type: String,
    piece_bytes: usize,
    /// What was not let go yet; a whole number of pieces lies before it.
    held: Vec<u8>,
    /// Where `held` begins.
    before: Mark,
    bytes: u64,
    digest: Sha256,
    text: Text,
}

impl Intake {
    /// Nothing yet, of that type, to be cut into pieces of so many bytes.
    pub fn new(content_type: String, piece_bytes: usize) -> Self {
        let text = Text {
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

    /// Takes what came.
    pub fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.digest.update(bytes);
        self.text.check(bytes);
        self.held.extend_from_slice(bytes);
    }

    /// Bytes that came in all.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that are held.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// What is held, in pieces, and where each of them begins.
    pub fn pieces(&self) -> impl Iterator<Item = (Mark, &[u8])> {
        let mut next = self.before;
        self.held.chunks(self.piece_bytes).map(move |piece| {
            let mark = next;
            next = mark.behind(piece);
            (mark, piece)
        })
    }

    /// Forgets what was held, which others have now: whole pieces, while more is to come.
    pub fn let_go(&mut self) {
        self.before = self.before.behind(&self.held);
        self.held.clear();
    }

    /// What is known, now that all of it came.
    pub fn summary(&self, created_ms: u64, ttl: Duration) -> Summary {
        let text = self.text.valid && self.text.tail.is_empty();
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Summary {
            content_type: self.content_type.clone(),
            bytes: self.bytes,
            chars: text.then(|| self.before.behind(&self.held).chars),
            digest: format!(
                "sha256:{}",
                HEXLOWER.encode(&self.digest.clone().finalize())
            ),
            created_ms,
            expires_ms: created_ms.saturating_add(ttl_ms),
        }
    }
}

/// Whether what has come in so far is UTF-8.
#[derive(Debug)]
struct Text {
    valid: bool,
    /// The beginning of a code point whose end has not come yet.
    tail: Vec<u8>,
}

impl Text {
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

/// Types whose bytes are not text even where they happen to be valid UTF-8.
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

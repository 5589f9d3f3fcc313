//! Cursors: positions where a caller stopped reading, sealed with a key.
//!
//! A cursor is bound to what is read (subject and field), to its content (digest) and to the grant it
//! is read under, by a keyed MAC. So three cases are distinguished: a cursor that was not issued for this read, one
//! whose text has changed since, and a valid one. A cursor carries no authority: the read that it continues is
//! permitted or refused on its own.

use std::ops::Range;

use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::scan::JsonKind;
use crate::{Error, Path, Result};

/// The secret key that seals cursors.
#[derive(Clone)]
pub struct CursorKey([u8; 32]);

/// The read that a cursor is bound to.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a> {
    /// The record or result.
    pub subject: &'a str,
    /// The field of the subject.
    pub field: &'a str,
    /// The content's digest or revision.
    pub digest: &'a str,
    /// The grant of the read.
    pub grant: &'a str,
}

/// The read that a position continues. It decides the unit of the offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CursorTarget {
    /// A text, forward from a code point.
    Text(Path),
    /// A text, backward from a code point.
    Before(Path),
    /// The items that a path leads to, from an item on.
    Items(Path),
    /// One item of a path, from a code point on.
    Item(Path, u64),
    /// The matches of a pattern in a text, from a code point on.
    Hits(Path, String),
}

impl CursorTarget {
    pub(crate) fn path_mut(&mut self) -> &mut Path {
        match self {
            Self::Text(path)
            | Self::Before(path)
            | Self::Items(path)
            | Self::Item(path, _)
            | Self::Hits(path, _) => path,
        }
    }
}

/// The position where reading continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The read to continue.
    pub target: CursorTarget,
    /// The offset in it, in code points or items.
    pub offset: u64,
    /// The size of the next window, in code points.
    pub limit_chars: u64,
    /// A shortcut to the position, if known.
    pub shortcut: Option<Shortcut>,
}

/// Byte offsets and lengths for a position, so that continuing need not scan from the start of the document.
///
/// A shortcut is only valid for the same bytes, which the digest in a cursor's binding ensures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shortcut {
    /// A position in the text of one value.
    Text {
        /// The kind of the value.
        kind: JsonKind,
        /// The range of the value in the document.
        span: Range<u64>,
        /// The text's length in bytes.
        size_bytes: u64,
        /// The text's length in code points.
        size_chars: u64,
        /// Bytes of the text before the position.
        bytes: u64,
        /// Bytes of the value before the position: more than `bytes` if there are escapes.
        raw: u64,
    },
    /// The next item of a list.
    Item {
        /// The offset in the document where it begins.
        at: u64,
        /// The total number of items.
        original: u64,
    },
}

impl Position {
    /// Returns the shortcut if it is plausible for a document of `len_bytes`. A position is plain data, and a made-up
    /// shortcut must be ignored.
    pub(crate) fn valid_shortcut(&self, len_bytes: u64) -> Option<&Shortcut> {
        let shortcut = self.shortcut.as_ref()?;
        let sound = match shortcut {
            Shortcut::Text {
                kind,
                span,
                size_bytes,
                size_chars,
                bytes,
                raw,
            } => {
                let quotes = 2 * u64::from(*kind == JsonKind::String);
                let length = span.end.checked_sub(span.start)?.checked_sub(quotes)?;
                span.end <= len_bytes
                    && *raw <= length
                    && *bytes <= *size_bytes
                    && *size_bytes <= length
                    && self.offset <= *size_chars
                    && *size_chars <= *size_bytes
            }
            Shortcut::Item { at, original } => {
                *at < len_bytes && *original <= len_bytes && self.offset < *original
            }
        };
        sound.then_some(shortcut)
    }
}

/// A sealed position: opaque and URL-safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(String);

impl Cursor {
    /// Returns the text of the cursor.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the text of the cursor.
    pub fn into_string(self) -> String {
        self.0
    }
}

/// An opened position whose content digest was not checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncheckedCursor {
    /// The position, valid if the content is unchanged.
    pub position: Position,
    digest: [u8; TAG_BYTES],
}

impl UncheckedCursor {
    /// Fails if the digest of the content is not the one that the cursor was sealed for.
    pub fn check(&self, key: &CursorKey, binding: &Binding<'_>) -> Result<()> {
        if self.digest == key.digest_tag(binding) {
            Ok(())
        } else {
            Err(Error::CursorStale)
        }
    }
}

const VERSION: u8 = 1;
const TAG_BYTES: usize = 8;
const MAC_BYTES: usize = 16;

/// The binary form of a position: its target, its shortcut, and their numbers; then the path and the pattern.
///
/// Numbers are written as LEB128: most are small, and each character of a cursor costs an agent tokens.
impl Position {
    fn to_bytes(&self) -> Vec<u8> {
        let (kind, path, index, pattern) = match &self.target {
            CursorTarget::Text(path) => (0, path, 0, ""),
            CursorTarget::Before(path) => (1, path, 0, ""),
            CursorTarget::Items(path) => (2, path, 0, ""),
            CursorTarget::Item(path, index) => (3, path, *index, ""),
            CursorTarget::Hits(path, pattern) => (4, path, 0, pattern.as_str()),
        };
        let path = path.to_string();
        let mut bytes = vec![kind];
        for number in [self.offset, self.limit_chars, index, path.len() as u64] {
            write_number(&mut bytes, number);
        }
        match &self.shortcut {
            None => bytes.push(0),
            Some(Shortcut::Item { at, original }) => {
                bytes.push(1);
                write_number(&mut bytes, *at);
                write_number(&mut bytes, *original);
            }
            Some(Shortcut::Text {
                kind,
                span,
                size_bytes,
                size_chars,
                bytes: before,
                raw,
            }) => {
                bytes.push(match kind {
                    JsonKind::Object => 2,
                    JsonKind::Array => 3,
                    JsonKind::String => 4,
                    JsonKind::Scalar => 5,
                });
                for number in [
                    span.start,
                    span.end,
                    *size_bytes,
                    *size_chars,
                    *before,
                    *raw,
                ] {
                    write_number(&mut bytes, number);
                }
            }
        }
        bytes.extend(path.as_bytes());
        bytes.extend(pattern.as_bytes());
        bytes
    }

    /// Returns `None` for invalid bytes, which a valid seal rules out.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (place, mut rest) = bytes.split_first()?;
        let rest = &mut rest;
        let offset = read_number(rest)?;
        let limit_chars = read_number(rest)?;
        let index = read_number(rest)?;
        let path_bytes = usize::try_from(read_number(rest)?).ok()?;
        let (shortcut, after) = rest.split_first()?;
        *rest = after;
        let kind = match shortcut {
            2 => Some(JsonKind::Object),
            3 => Some(JsonKind::Array),
            4 => Some(JsonKind::String),
            5 => Some(JsonKind::Scalar),
            _ => None,
        };
        let shortcut = match (shortcut, kind) {
            (0, _) => None,
            (1, _) => Some(Shortcut::Item {
                at: read_number(rest)?,
                original: read_number(rest)?,
            }),
            (_, Some(kind)) => Some(Shortcut::Text {
                kind,
                span: read_number(rest)?..read_number(rest)?,
                size_bytes: read_number(rest)?,
                size_chars: read_number(rest)?,
                bytes: read_number(rest)?,
                raw: read_number(rest)?,
            }),
            _ => return None,
        };
        let (path, pattern) = std::str::from_utf8(rest)
            .ok()?
            .split_at_checked(path_bytes)?;
        let path = Path::from_own_text(path).ok()?;
        Some(Self {
            target: match place {
                0 => CursorTarget::Text(path),
                1 => CursorTarget::Before(path),
                2 => CursorTarget::Items(path),
                3 => CursorTarget::Item(path, index),
                4 => CursorTarget::Hits(path, pattern.to_owned()),
                _ => return None,
            },
            offset,
            limit_chars,
            shortcut,
        })
    }
}

fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

impl CursorKey {
    /// Creates the key of these random bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the length of the cursor that [`Self::seal`] makes for a position. It depends on the position alone.
    pub fn sealed_chars(position: &Position) -> usize {
        let bytes = 1 + 2 * TAG_BYTES + position.to_bytes().len() + MAC_BYTES;
        BASE64URL_NOPAD.encode_len(bytes)
    }

    /// Seals `position` for `binding`.
    pub fn seal(&self, binding: &Binding<'_>, position: &Position) -> Cursor {
        let mut bytes = vec![VERSION];
        bytes.extend(self.subject_tag(binding));
        bytes.extend(self.digest_tag(binding));
        bytes.extend(position.to_bytes());
        let mac = self.mac("cursor", &[&bytes]).finalize().into_bytes();
        bytes.extend(&mac[..MAC_BYTES]);
        Cursor(BASE64URL_NOPAD.encode(&bytes))
    }

    /// Opens a cursor that must have been sealed for `binding`.
    pub fn open(&self, cursor: &str, binding: &Binding<'_>) -> Result<Position> {
        let opened = self.open_unchecked(cursor, binding)?;
        opened.check(self, binding)?;
        Ok(opened.position)
    }

    /// Opens a cursor before the content is known: the digest has to be checked later.
    pub fn open_unchecked(&self, cursor: &str, binding: &Binding<'_>) -> Result<UncheckedCursor> {
        let bytes = BASE64URL_NOPAD
            .decode(cursor.as_bytes())
            .map_err(|_| Error::CursorInvalid)?;
        let (body, mac) = bytes
            .split_last_chunk::<MAC_BYTES>()
            .ok_or(Error::CursorInvalid)?;
        self.mac("cursor", &[body])
            .verify_truncated_left(mac)
            .map_err(|_| Error::CursorInvalid)?;

        // From here on the bytes are authentic, so the order of the checks reveals nothing.
        let sealed = body.strip_prefix(&[VERSION]).and_then(|rest| {
            let (place, rest) = rest.split_first_chunk::<TAG_BYTES>()?;
            let (digest, rest) = rest.split_first_chunk::<TAG_BYTES>()?;
            Some((place, digest, Position::from_bytes(rest)?))
        });
        match sealed {
            Some((place, digest, position)) if *place == self.subject_tag(binding) => {
                Ok(UncheckedCursor {
                    position,
                    digest: *digest,
                })
            }
            _ => Err(Error::CursorInvalid),
        }
    }

    fn subject_tag(&self, binding: &Binding<'_>) -> [u8; TAG_BYTES] {
        let parts = [binding.subject, binding.field, binding.grant].map(str::as_bytes);
        self.tag("place", &parts)
    }

    fn digest_tag(&self, binding: &Binding<'_>) -> [u8; TAG_BYTES] {
        self.tag("digest", &[binding.digest.as_bytes()])
    }

    fn tag(&self, purpose: &str, parts: &[&[u8]]) -> [u8; TAG_BYTES] {
        let mac = self.mac(purpose, parts).finalize().into_bytes();
        *mac.first_chunk().expect("a MAC is longer than a tag")
    }

    /// Lengths are included, so that no two lists of parts give the same input.
    fn mac(&self, purpose: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(purpose.as_bytes());
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CursorKey = CursorKey::new([7; 32]);
    const BINDING: Binding<'static> = Binding {
        subject: "cin_a/messages:m-1",
        field: "text",
        digest: "sha256:aa",
        grant: "g1",
    };

    fn path() -> Path {
        "result[3].body".parse().unwrap()
    }

    fn position() -> Position {
        Position {
            target: CursorTarget::Text(path()),
            offset: 4096,
            limit_chars: 4096,
            shortcut: None,
        }
    }

    #[test]
    fn every_place_survives_the_seal() {
        for place in [
            CursorTarget::Text(Path::root()),
            CursorTarget::Before(path()),
            CursorTarget::Items(path()),
            CursorTarget::Item(path(), u64::MAX),
            CursorTarget::Hits(path(), "a\0b\u{1F980}".to_owned()),
            CursorTarget::Hits(Path::root(), String::new()),
        ] {
            for shortcut in [
                None,
                Some(Shortcut::Item {
                    at: 300,
                    original: u64::MAX,
                }),
                Some(Shortcut::Text {
                    kind: JsonKind::String,
                    span: 1..u64::MAX,
                    size_bytes: 127,
                    size_chars: 128,
                    bytes: 16_384,
                    raw: 0,
                }),
            ] {
                let position = Position {
                    target: place.clone(),
                    offset: u64::MAX,
                    limit_chars: 1,
                    shortcut,
                };
                let cursor = KEY.seal(&BINDING, &position);
                let chars = CursorKey::sealed_chars(&position);
                assert_eq!(cursor.as_str().len(), chars);
                assert_eq!(KEY.open(cursor.as_str(), &BINDING), Ok(position));
            }
        }
    }

    #[test]
    fn a_sealed_position_opens_again() {
        let cursor = KEY.seal(&BINDING, &position());
        assert!(
            cursor
                .as_str()
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        );
        assert_eq!(KEY.open(cursor.as_str(), &BINDING), Ok(position()));
    }

    #[test]
    fn forged_foreign_and_stale_are_told_apart() {
        let cursor = KEY.seal(&BINDING, &position());
        let open = |binding: &Binding<'_>| KEY.open(cursor.as_str(), binding);

        let changed = Binding {
            digest: "sha256:bb",
            ..BINDING
        };
        assert_eq!(open(&changed), Err(Error::CursorStale));
        for foreign in [
            Binding {
                subject: "cin_a/messages:m-2",
                ..BINDING
            },
            Binding {
                field: "body",
                ..BINDING
            },
            Binding {
                grant: "g2",
                ..BINDING
            },
            // Foreign and changed: `CursorInvalid` reveals less.
            Binding {
                grant: "g2",
                digest: "sha256:bb",
                ..BINDING
            },
            // The same characters, split elsewhere.
            Binding {
                subject: "cin_a/messages:m-1t",
                field: "ext",
                ..BINDING
            },
        ] {
            assert_eq!(open(&foreign), Err(Error::CursorInvalid));
        }
        let other_key = CursorKey::new([8; 32]);
        assert_eq!(
            other_key.open(cursor.as_str(), &BINDING),
            Err(Error::CursorInvalid)
        );
    }

    #[test]
    fn every_altered_or_shortened_cursor_is_refused() {
        let cursor = KEY.seal(&BINDING, &position()).into_string();
        for end in 0..cursor.len() {
            assert_eq!(
                KEY.open(&cursor[..end], &BINDING),
                Err(Error::CursorInvalid)
            );
        }
        for at in 0..cursor.len() {
            let mut forged = cursor.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            assert_eq!(
                KEY.open(&forged, &BINDING),
                Err(Error::CursorInvalid),
                "{at}"
            );
        }
        for junk in ["", "12", "\u{1F980}", "====", &"A".repeat(100_000)] {
            assert_eq!(KEY.open(junk, &BINDING), Err(Error::CursorInvalid));
        }
    }
}

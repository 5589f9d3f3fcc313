//! Where a caller stopped reading, in a form only we can make.
//!
//! A cursor is bound to what is read (subject and field), to its content (digest) and to the grant it
//! is read under, by a keyed MAC. So three things are told apart: one we never issued for this read, one
//! whose text has changed since, and one that is good. It carries no authority: the read it continues is
//! permitted or refused on its own.

use std::ops::Range;

use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::scan::Kind;
use crate::{Error, Path, Result};

/// The secret that makes cursors ours.
#[derive(Clone)]
pub struct CursorKey([u8; 32]);

/// What a cursor is bound to.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a> {
    /// The record or result that is read.
    pub subject: &'a str,
    /// The field of it.
    pub field: &'a str,
    /// The content's digest or revision.
    pub digest: &'a str,
    /// The grant it is read under.
    pub grant: &'a str,
}

/// What is being read, and so what an offset into it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A text, from a code point on.
    Text(Path),
    /// A text, up to a code point.
    Before(Path),
    /// What a path leads to, from an item on.
    Items(Path),
    /// One of these items, from a code point on.
    Item(Path, u64),
    /// The matches of a pattern in a text, from a code point on.
    Hits(Path, String),
}

/// Where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// In what.
    pub place: Place,
    /// From where in it.
    pub offset: u64,
    /// How much to read next, in code points.
    pub limit_chars: u64,
    /// A short way there, where one is known.
    pub shortcut: Option<Shortcut>,
}

/// What was learnt on the way to a position, so that going on does not begin at the document's start again.
///
/// It is only good for the bytes it was learnt from, which the digest in a cursor's binding sees to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shortcut {
    /// The text of one value, and where in it the position is.
    Text {
        /// What the value is.
        kind: Kind,
        /// Its bytes in the document.
        span: Range<u64>,
        /// The text's length in bytes.
        size_bytes: u64,
        /// The text's length in code points.
        size_chars: u64,
        /// Bytes of the text before the position.
        bytes: u64,
        /// Bytes of the value before it, which are more where escapes stand.
        raw: u64,
    },
    /// The next item of a list.
    Item {
        /// Where in the document it begins.
        at: u64,
        /// Items that the path leads to in all.
        original: u64,
    },
}

impl Position {
    /// Its shortcut, if it can be one of a document of `len_bytes`. A position is plain data, and what somebody
    /// made up must lead nowhere rather than astray.
    pub(crate) fn sound_shortcut(&self, len_bytes: u64) -> Option<&Shortcut> {
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
                let quotes = 2 * u64::from(*kind == Kind::String);
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
    /// The text to hand out.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text to hand out.
    pub fn into_string(self) -> String {
        self.0
    }
}

/// A position that was opened before what it points into was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// Where to go on, if the content is still the same.
    pub position: Position,
    digest: [u8; TAG_BYTES],
}

impl Unread {
    /// Refuses where the content, whose digest is known by now, has changed since.
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

/// The bytes of a position: its place, its shortcut, and their numbers; then the path and the pattern.
///
/// Numbers are written seven bits at a time, the low ones first: most are small, and agents pay for each letter.
impl Position {
    fn to_bytes(&self) -> Vec<u8> {
        let (kind, path, index, pattern) = match &self.place {
            Place::Text(path) => (0, path, 0, ""),
            Place::Before(path) => (1, path, 0, ""),
            Place::Items(path) => (2, path, 0, ""),
            Place::Item(path, index) => (3, path, *index, ""),
            Place::Hits(path, pattern) => (4, path, 0, pattern.as_str()),
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
                    Kind::Object => 2,
                    Kind::Array => 3,
                    Kind::String => 4,
                    Kind::Scalar => 5,
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

    /// `None` for what is not one of ours, which a seal rules out.
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
            2 => Some(Kind::Object),
            3 => Some(Kind::Array),
            4 => Some(Kind::String),
            5 => Some(Kind::Scalar),
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
            place: match place {
                0 => Place::Text(path),
                1 => Place::Before(path),
                2 => Place::Items(path),
                3 => Place::Item(path, index),
                4 => Place::Hits(path, pattern.to_owned()),
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
    /// The key of these random bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Characters of the cursor that [`Self::seal`] makes for a position: nothing else decides how many.
    pub fn sealed_chars(position: &Position) -> usize {
        let bytes = 1 + 2 * TAG_BYTES + position.to_bytes().len() + MAC_BYTES;
        BASE64URL_NOPAD.encode_len(bytes)
    }

    /// Seals `position` for `binding`.
    pub fn seal(&self, binding: &Binding<'_>, position: &Position) -> Cursor {
        let mut bytes = vec![VERSION];
        bytes.extend(self.place_tag(binding));
        bytes.extend(self.digest_tag(binding));
        bytes.extend(position.to_bytes());
        let mac = self.mac("cursor", &[&bytes]).finalize().into_bytes();
        bytes.extend(&mac[..MAC_BYTES]);
        Cursor(BASE64URL_NOPAD.encode(&bytes))
    }

    /// Opens a cursor that must have been sealed for `binding`.
    pub fn open(&self, cursor: &str, binding: &Binding<'_>) -> Result<Position> {
        let opened = self.open_unread(cursor, binding)?;
        opened.check(self, binding)?;
        Ok(opened.position)
    }

    /// Opens a cursor into something whose content is not known yet: the digest is left to be checked.
    pub fn open_unread(&self, cursor: &str, binding: &Binding<'_>) -> Result<Unread> {
        let bytes = BASE64URL_NOPAD
            .decode(cursor.as_bytes())
            .map_err(|_| Error::CursorInvalid)?;
        let (body, mac) = bytes
            .split_last_chunk::<MAC_BYTES>()
            .ok_or(Error::CursorInvalid)?;
        self.mac("cursor", &[body])
            .verify_truncated_left(mac)
            .map_err(|_| Error::CursorInvalid)?;

        // From here on the bytes are ours, so the order of the checks reveals nothing.
        let sealed = body.strip_prefix(&[VERSION]).and_then(|rest| {
            let (place, rest) = rest.split_first_chunk::<TAG_BYTES>()?;
            let (digest, rest) = rest.split_first_chunk::<TAG_BYTES>()?;
            Some((place, digest, Position::from_bytes(rest)?))
        });
        match sealed {
            Some((place, digest, position)) if *place == self.place_tag(binding) => Ok(Unread {
                position,
                digest: *digest,
            }),
            _ => Err(Error::CursorInvalid),
        }
    }

    fn place_tag(&self, binding: &Binding<'_>) -> [u8; TAG_BYTES] {
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

    /// Lengths go in with the parts, so that no two lists of parts run together.
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
            place: Place::Text(path()),
            offset: 4096,
            limit_chars: 4096,
            shortcut: None,
        }
    }

    #[test]
    fn every_place_survives_the_seal() {
        for place in [
            Place::Text(Path::root()),
            Place::Before(path()),
            Place::Items(path()),
            Place::Item(path(), u64::MAX),
            Place::Hits(path(), "a\0b\u{1F980}".to_owned()),
            Place::Hits(Path::root(), String::new()),
        ] {
            for shortcut in [
                None,
                Some(Shortcut::Item {
                    at: 300,
                    original: u64::MAX,
                }),
                Some(Shortcut::Text {
                    kind: Kind::String,
                    span: 1..u64::MAX,
                    size_bytes: 127,
                    size_chars: 128,
                    bytes: 16_384,
                    raw: 0,
                }),
            ] {
                let position = Position {
                    place: place.clone(),
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
            // Foreign and changed: foreign says less.
            Binding {
                grant: "g2",
                digest: "sha256:bb",
                ..BINDING
            },
            // The same letters, split elsewhere.
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

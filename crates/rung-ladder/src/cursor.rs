//! Where a caller stopped reading, in a form only we can make.
//!
//! A cursor is bound to what is read (subject and field), to its content (digest) and to the grant it
//! is read under, by a keyed MAC. So three things are told apart: one we never issued for this read, one
//! whose text has changed since, and one that is good. It carries no authority: the read it continues is
//! permitted or refused on its own.

use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{Error, Result};

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

/// What a position counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Code points of a text.
    Chars,
    /// Items of a collection, or places a path leads to.
    Items,
    /// Code points from which a search goes on.
    Hits,
    /// Code points of a text, up to which to read.
    Before,
}

impl Unit {
    const ALL: [Self; 4] = [Self::Chars, Self::Items, Self::Hits, Self::Before];
}

/// Where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// What `offset` counts.
    pub unit: Unit,
    /// What has been passed.
    pub offset: u64,
    /// How much to read next, in code points.
    pub limit_chars: u64,
    /// What the offset is inside of, and what was asked there: a path, or a path and a pattern.
    pub scope: String,
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

const VERSION: u8 = 1;
const TAG_BYTES: usize = 8;
const MAC_BYTES: usize = 16;
const HEADER_BYTES: usize = 1 + TAG_BYTES + TAG_BYTES + 1 + 8 + 8;

impl CursorKey {
    /// The key of these random bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Seals `position` for `binding`.
    pub fn seal(&self, binding: &Binding<'_>, position: &Position) -> Cursor {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + position.scope.len() + MAC_BYTES);
        bytes.push(VERSION);
        bytes.extend(self.place_tag(binding));
        bytes.extend(self.digest_tag(binding));
        bytes.push(position.unit as u8);
        bytes.extend(position.offset.to_be_bytes());
        bytes.extend(position.limit_chars.to_be_bytes());
        bytes.extend(position.scope.as_bytes());
        let mac = self.mac("cursor", &[&bytes]).finalize().into_bytes();
        bytes.extend(&mac[..MAC_BYTES]);
        Cursor(BASE64URL_NOPAD.encode(&bytes))
    }

    /// Opens a cursor that must have been sealed for `binding`.
    pub fn open(&self, cursor: &str, binding: &Binding<'_>) -> Result<Position> {
        let bytes = BASE64URL_NOPAD
            .decode(cursor.as_bytes())
            .map_err(|_| Error::CursorInvalid)?;
        let (body, mac) = bytes
            .split_last_chunk::<MAC_BYTES>()
            .filter(|(body, _)| body.len() >= HEADER_BYTES)
            .ok_or(Error::CursorInvalid)?;
        self.mac("cursor", &[body])
            .verify_truncated_left(mac)
            .map_err(|_| Error::CursorInvalid)?;

        // From here on the bytes are ours, so the order of the checks reveals nothing.
        let (version, rest) = (body[0], &body[1..]);
        let (place, rest) = rest.split_at(TAG_BYTES);
        let (digest, rest) = rest.split_at(TAG_BYTES);
        if version != VERSION || place != self.place_tag(binding) {
            return Err(Error::CursorInvalid);
        }
        if digest != self.digest_tag(binding) {
            return Err(Error::CursorStale);
        }
        let unit = Unit::ALL.get(usize::from(rest[0]));
        let unit = *unit.ok_or(Error::CursorInvalid)?;
        let number = |at: usize| {
            u64::from_be_bytes(
                rest[at..at + 8]
                    .try_into()
                    .expect("eight bytes of the header"),
            )
        };
        Ok(Position {
            unit,
            offset: number(1),
            limit_chars: number(9),
            scope: String::from_utf8(rest[17..].to_vec()).map_err(|_| Error::CursorInvalid)?,
        })
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

    fn position() -> Position {
        Position {
            unit: Unit::Chars,
            offset: 4096,
            limit_chars: 4096,
            scope: "result[3].body".to_owned(),
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

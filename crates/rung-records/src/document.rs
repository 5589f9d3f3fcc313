//! The data of a record: the members of one JSON object, in their original spelling.
//!
//! Long texts are lifted out and stored separately, in chunks. They are put back when the whole record is read.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use data_encoding::HEXLOWER;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::scope::Collection;
use crate::store::{Tx, params};
use crate::{Error, Result};

/// Encoded size in bytes above which a text is lifted out.
pub(crate) const LIFT_BYTES: usize = 16 * 1024;
/// Maximum size in bytes of a chunk of a lifted text.
pub(crate) const CHUNK_BYTES: usize = 16 * 1024;

/// Number of members from which on they are looked up in a map.
const MAP_THRESHOLD: usize = 32;

/// The members of an object in order, with their encoded values.
pub(crate) type ObjectMembers<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// Parses the members of an object. Returns `None` if the JSON is not an object.
pub(crate) fn members(object: &str) -> Option<ObjectMembers<'_>> {
    struct MembersVisitor;

    impl<'de> Visitor<'de> for MembersVisitor {
        type Value = ObjectMembers<'de>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members: ObjectMembers<'de> = Vec::with_capacity(16);
            // Avoids quadratic time for objects with many members.
            let mut places: HashMap<Cow<'de, str>, usize> = HashMap::new();
            while let Some(Name(name)) = map.next_key()? {
                let value = map.next_value::<&'de RawValue>()?;
                if members.len() == MAP_THRESHOLD {
                    places.extend(
                        members
                            .iter()
                            .enumerate()
                            .map(|(at, (name, _))| (name.clone(), at)),
                    );
                }
                // The last of several members with the same name wins.
                let known = match members.len() {
                    ..MAP_THRESHOLD => members.iter().position(|(own, _)| *own == name),
                    _ => places.get(&name).copied(),
                };
                if let Some(at) = known {
                    members[at].1 = value;
                    continue;
                }
                if members.len() >= MAP_THRESHOLD {
                    places.insert(name.clone(), members.len());
                }
                members.push((name, value));
            }
            Ok(members)
        }
    }

    /// Borrowed if the name has no escapes.
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

    let mut deserializer = serde_json::Deserializer::from_str(object);
    let members = deserializer.deserialize_map(MembersVisitor).ok()?;
    deserializer.end().ok()?;
    Some(members)
}

/// Replaces lone surrogates, which escapes can express but UTF-8 cannot, by U+FFFD. The length stays the same.
pub(crate) fn replace_lone_surrogates(json: &str) -> Cow<'_, str> {
    let escaped = |at: usize| {
        let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut fixed: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(next) = json.get(at..).and_then(|rest| rest.find('\\')) {
        at += next;
        match escaped(at) {
            Some(0xd800..=0xdbff) if matches!(escaped(at + 6), Some(0xdc00..=0xdfff)) => at += 12,
            Some(0xd800..=0xdfff) => {
                let fixed = fixed.get_or_insert_with(|| json.as_bytes().to_vec());
                fixed[at..at + 6].copy_from_slice(b"\\ufffd");
                at += 6;
            }
            _ => at += 2,
        }
    }
    let fixed = fixed.and_then(|fixed| String::from_utf8(fixed).ok());
    fixed.map_or(Cow::Borrowed(json), Cow::Owned)
}

/// Metadata of a lifted text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LiftedText {
    pub field: String,
    pub chars: u64,
    pub bytes: u64,
    pub sha256: String,
    /// The first bytes, at most [`crate::key::MAX_TEXT_BYTES`].
    pub head: String,
}

/// Returns the digest of a text, as `sha256:` and hexadecimal digits.
pub fn digest(text: &str) -> String {
    digest_bytes(text.as_bytes())
}

/// Returns the digest of bytes, as `sha256:` and hexadecimal digits.
pub fn digest_bytes(bytes: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(bytes)))
}

/// A record's data, prepared for storing.
#[derive(Debug)]
pub(crate) struct RecordDocument<'a> {
    /// The JSON with lifted texts replaced by empty strings.
    pub stored: Cow<'a, str>,
    /// All members, including the long texts.
    pub members: ObjectMembers<'a>,
    /// The lifted texts and their metadata.
    pub lifted: Vec<(LiftedText, String)>,
}

impl<'a> RecordDocument<'a> {
    /// Parses an object and lifts out its long texts. Returns `None` if the JSON is not an object.
    pub(crate) fn parse(data: &'a str) -> Option<Self> {
        let members = members(data)?;
        let mut lifted = Vec::new();
        let mut stored = Cow::Borrowed(data);
        if data.len() > LIFT_BYTES {
            let mut rest = String::with_capacity(LIFT_BYTES);
            let mut from = 0;
            let mut long: Vec<&(Cow<'_, str>, &RawValue)> = members
                .iter()
                .filter(|(_, value)| value.get().len() > LIFT_BYTES && value.get().starts_with('"'))
                // Chunks are keyed by field name, and PostgreSQL text cannot contain NUL.
                .filter(|(name, _)| !name.contains('\0'))
                .collect();
            long.sort_by_key(|(_, value)| value.get().as_ptr().addr());
            for (name, value) in long {
                let text: String = serde_json::from_str(value.get()).ok()?;
                let at = value.get().as_ptr().addr() - data.as_ptr().addr();
                rest.push_str(&data[from..at]);
                rest.push_str("\"\"");
                from = at + value.get().len();
                let known = LiftedText {
                    field: name.to_string(),
                    chars: text.chars().count() as u64,
                    bytes: text.len() as u64,
                    sha256: digest(&text),
                    head: rung_ladder::head(&text, crate::key::MAX_TEXT_BYTES).to_owned(),
                };
                lifted.push((known, text));
            }
            if from > 0 {
                rest.push_str(&data[from..]);
                stored = Cow::Owned(rest);
            }
        }
        Some(Self {
            stored,
            members,
            lifted,
        })
    }

    /// Returns the value of a member, if it is a scalar.
    pub(crate) fn scalar(&self, field: &str) -> Option<Value> {
        let found = self.members.iter().find(|(name, _)| name == field);
        scalar_value(found?.1)
    }

    /// Returns the value of a member, if it is a string.
    pub(crate) fn text(&self, field: &str) -> Option<Cow<'a, str>> {
        let (_, value) = self.members.iter().find(|(name, _)| name == field)?;
        string_value(value)
    }

    /// Encodes the metadata of the lifted texts for the store.
    pub(crate) fn lifted_json(&self) -> Option<String> {
        if self.lifted.is_empty() {
            return None;
        }
        let known: Vec<&LiftedText> = self.lifted.iter().map(|(known, _)| known).collect();
        serde_json::to_string(&known).ok()
    }
}

/// Decodes a JSON string, borrowing it if it has no escapes.
pub(crate) fn string_value(value: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    if !value.get().starts_with('"') {
        return None;
    }
    serde_json::from_str::<Text<'_>>(value.get())
        .ok()
        .map(|text| text.0)
}

/// Decodes a JSON scalar other than null.
pub(crate) fn scalar_value(value: &RawValue) -> Option<Value> {
    match value.get().as_bytes().first()? {
        b'{' | b'[' | b'n' => None,
        _ => serde_json::from_str(value.get()).ok(),
    }
}

/// Decodes the stored metadata of lifted texts.
pub(crate) fn parse_lifted(stored: Option<&str>) -> Result<Vec<LiftedText>> {
    match stored {
        None => Ok(Vec::new()),
        Some(json) => Ok(serde_json::from_str(json)?),
    }
}

/// Returns true if two objects are equal as JSON, whatever their member order and escapes.
pub(crate) fn is_same_json(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    // Lengths are not compared, because escapes change them.
    matches!((parsed(a), parsed(b)), (Some(a), Some(b)) if a == b)
}

/// Splits a text into chunks at character boundaries. Each comes with the index of its first character.
pub(crate) fn chunks(text: &str) -> impl Iterator<Item = (u64, &str)> {
    let mut rest = text;
    let mut start = 0;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let piece = rung_ladder::head(rest, CHUNK_BYTES);
        rest = &rest[piece.len()..];
        let at = start;
        start += piece.chars().count() as u64;
        Some((at, piece))
    })
}

/// Reads a lifted text from its chunks.
pub(crate) fn read_lifted_text(
    tx: &mut dyn Tx,
    collection: &Collection,
    version: i64,
    field: &str,
) -> Result<String> {
    let mut text = Vec::new();
    tx.query(
        "SELECT text FROM chunk WHERE subject = ?1 AND collection = ?2 AND version = ?3 AND field = ?4 ORDER BY start",
        params![collection.subject, collection.no, version, field],
        &mut |row| {
            text.extend_from_slice(row.bytes(0)?);
            Ok(true)
        },
    )?;
    String::from_utf8(text).map_err(|error| Error::corrupt("text", error))
}

/// Writes the members accepted by `wanted`. `fetch` writes a lifted text, `changed` may replace a value.
pub(crate) fn write_object(
    stored: &str,
    lifted: &[LiftedText],
    wanted: impl Fn(&str) -> bool,
    changed: impl Fn(&str, &RawValue) -> Option<String>,
    mut fetch: impl FnMut(&str, &mut Vec<u8>) -> Result<()>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let members = members(stored).ok_or(Error::Broken("a record is not an object".to_owned()))?;
    out.push(b'{');
    let mut first = true;
    for (name, value) in &members {
        if !wanted(name) {
            continue;
        }
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        serde_json::to_writer(&mut *out, name.as_ref())?;
        out.push(b':');
        if lifted.iter().any(|long| long.field == *name) {
            out.push(b'"');
            fetch(name, out)?;
            out.push(b'"');
        } else if let Some(changed) = changed(name, value) {
            out.extend_from_slice(changed.as_bytes());
        } else {
            out.extend_from_slice(value.get().as_bytes());
        }
    }
    out.push(b'}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn restore(document: &RecordDocument<'_>) -> String {
        let known: Vec<LiftedText> = document
            .lifted
            .iter()
            .map(|(known, _)| known.clone())
            .collect();
        let mut out = Vec::new();
        write_object(
            &document.stored,
            &known,
            |_| true,
            |_, _| None,
            |field, out| {
                let (_, text) = document
                    .lifted
                    .iter()
                    .find(|(known, _)| known.field == field)
                    .unwrap();
                for (_, piece) in chunks(text) {
                    let json = serde_json::to_string(piece).unwrap();
                    out.extend_from_slice(&json.as_bytes()[1..json.len() - 1]);
                }
                Ok(())
            },
            &mut out,
        )
        .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn long_texts_are_lifted_and_put_back() {
        let long = "\u{1F980}\"\\\n".repeat(5_000);
        let data = serde_json::json!({"id": 1, "body": long, "x": [1, {"y": null}], "also": "z".repeat(20_000)}).to_string();
        let document = RecordDocument::parse(&data).unwrap();
        assert_eq!(document.lifted.len(), 2);
        assert!(document.stored.len() < 200, "{}", document.stored);
        assert_eq!(document.lifted[0].0.chars, 20_000);
        assert!(is_same_json(&restore(&document), &data));
        assert!(RecordDocument::parse("[1]").is_none());
        assert!(RecordDocument::parse("{\"a\":1}x").is_none());
    }

    #[test]
    fn half_of_a_pair_is_mended_and_everything_else_stays() {
        for (written, read) in [
            (r#"{"a":"\ud800"}"#, r#"{"a":"\ufffd"}"#),
            (
                r#"{"\uDfFf":["\udc00\ud800"]}"#,
                r#"{"\ufffd":["\ufffd\ufffd"]}"#,
            ),
            (r#""\ud800\ud83e\udd80""#, r#""\ufffd\ud83e\udd80""#),
            (
                r#""\ud800\n\\ud800\"\u0041""#,
                r#""\ufffd\n\\ud800\"\u0041""#,
            ),
        ] {
            assert_eq!(replace_lone_surrogates(written), read);
            assert!(serde_json::from_str::<Value>(read).is_ok());
        }
        for whole in [
            r#""\\ud800\ud83e\udd80 \u00e9 é""#,
            "{}",
            "\\",
            r"\u",
            r"\ud8",
        ] {
            assert!(
                matches!(replace_lone_surrogates(whole), Cow::Borrowed(_)),
                "{whole}"
            );
        }
    }

    proptest! {
        #[test]
        fn pieces_make_the_text(text in "(\\PC|\u{1F980}){0,9000}") {
            let text = text.repeat(3);
            let mut at = 0;
            let mut all = String::new();
            for (start, piece) in chunks(&text) {
                prop_assert_eq!(start, at);
                prop_assert!(piece.len() <= CHUNK_BYTES);
                at += piece.chars().count() as u64;
                all.push_str(piece);
            }
            prop_assert_eq!(all, text);
        }
    }
}

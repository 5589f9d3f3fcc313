//! A part of one text, cut where it lies: what is not asked for is not read.

use regex::RegexBuilder;
use rung_fault::Code;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::document::{self, Lifted};
use crate::page::{self, Stored};
use crate::scope::{Bearer, Choice, Collection};
use crate::store::{Tx, params};
use crate::{Error, Records, Result};

/// Characters of a part where nobody says how many.
pub(crate) const DEFAULT_CHARS: u64 = 4_096;
/// Characters of a part at most.
pub const MAX_CHARS: u64 = 16_384;
/// Characters around a match at most.
pub const MAX_CONTEXT_CHARS: u64 = 8_192;
/// Characters of what is looked for.
const MAX_QUERY_CHARS: usize = 1_000;

/// Which part.
#[derive(Debug, Clone)]
pub enum WindowSelector {
    /// From a character on.
    At(u64),
    /// Where an earlier part ended.
    Cursor(String),
    /// Around the first place where this stands.
    Match {
        /// What is looked for.
        q: String,
        /// Characters before it.
        before: Option<u64>,
        /// Characters after it.
        after: Option<u64>,
    },
}

/// A part that is asked for.
#[derive(Debug, Clone)]
pub struct WindowQuery {
    /// The stream.
    pub stream: String,
    /// The record.
    pub id: String,
    /// The field.
    pub field: String,
    /// Of which connections.
    pub choice: Choice,
    /// Which part.
    pub selector: WindowSelector,
    /// How much of it.
    pub limit_chars: Option<u64>,
}

/// A part of a text.
#[derive(Debug, Clone)]
pub struct FieldWindow {
    /// The connection it was found in.
    pub connection_id: String,
    /// The part.
    pub text: String,
    /// Its first character.
    pub start: u64,
    /// The character after its last.
    pub end: u64,
    /// How many were asked for.
    pub limit: u64,
    /// How many the text has.
    pub total: u64,
    /// Where what was looked for stands.
    pub matched: Option<(u64, u64)>,
    /// The digest of the whole text.
    pub digest: String,
    /// What kind of text it is.
    pub mime_type: String,
    /// Where to go on.
    pub next_cursor: Option<String>,
    /// Where to go back.
    pub previous_cursor: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Place {
    o: u64,
    l: u64,
    d: String,
}

/// A text, wherever it lies.
enum Text<'a> {
    Here(String),
    Lifted(&'a Collection, i64, &'a Lifted),
}

impl Text<'_> {
    fn chars(&self) -> u64 {
        match self {
            Self::Here(text) => text.chars().count() as u64,
            Self::Lifted(_, _, long) => long.chars,
        }
    }

    fn digest(&self) -> String {
        match self {
            Self::Here(text) => document::digest(text),
            Self::Lifted(_, _, long) => long.sha256.clone(),
        }
    }

    /// Hands over the pieces from the one that holds a character on.
    fn pieces(
        &self,
        tx: &mut dyn Tx,
        from: u64,
        each: &mut dyn FnMut(u64, &str) -> Result<bool>,
    ) -> Result<()> {
        let (collection, version, long) = match self {
            Self::Here(text) => return each(0, text).map(drop),
            Self::Lifted(collection, version, long) => (collection, version, long),
        };
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        tx.query(
            "SELECT start, text FROM chunk WHERE subject = ?1 AND collection = ?2 AND version = ?3 AND field = ?4
             AND start >= (SELECT max(start) FROM chunk WHERE subject = ?1 AND collection = ?2 AND version = ?3 AND field = ?4 AND start <= ?5)
             ORDER BY start",
            params![collection.subject, collection.no, *version, &long.field, from],
            &mut |row| {
                let piece = std::str::from_utf8(row.bytes(1)?).map_err(|error| Error::corrupt("text", error))?;
                each(u64::try_from(row.int(0)?).unwrap_or(0), piece)
            },
        )
    }

    fn part(&self, tx: &mut dyn Tx, start: u64, end: u64) -> Result<String> {
        let mut part = String::new();
        if start >= end {
            return Ok(part);
        }
        self.pieces(tx, start, &mut |at, piece| {
            if at >= end {
                return Ok(false);
            }
            let skip = usize::try_from(start.saturating_sub(at)).unwrap_or(usize::MAX);
            let take = usize::try_from(end - at).unwrap_or(usize::MAX) - skip;
            part.extend(piece.chars().skip(skip).take(take));
            Ok(true)
        })?;
        Ok(part)
    }

    /// The first place where something stands, whatever its case.
    fn find(&self, tx: &mut dyn Tx, q: &str) -> Result<Option<(u64, u64)>> {
        let pattern = RegexBuilder::new(&regex::escape(q))
            .case_insensitive(true)
            .build();
        let pattern = pattern
            .map_err(|_| Error::refused(Code::InvalidWindow, "q", "q cannot be looked for"))?;
        let length = q.chars().count();
        // What ends a piece may begin what is looked for.
        let (mut carried, mut found) = (String::new(), None);
        self.pieces(tx, 0, &mut |at, piece| {
            let before = carried.chars().count() as u64;
            carried.push_str(piece);
            if let Some(place) = pattern.find(&carried) {
                let start = at - before + carried[..place.start()].chars().count() as u64;
                found = Some((start, start + place.as_str().chars().count() as u64));
                return Ok(false);
            }
            let keep = carried
                .char_indices()
                .rev()
                .take(length.saturating_sub(1))
                .last();
            let keep = keep.map_or(carried.len(), |(at, _)| at);
            carried.drain(..keep);
            Ok(true)
        })?;
        Ok(found)
    }
}

impl Records {
    /// A part of one text of a record.
    pub fn field_window(&self, bearer: &Bearer, query: &WindowQuery) -> Result<FieldWindow> {
        if query.field.is_empty() || query.field.contains('\0') {
            return Err(Error::refused(
                Code::InvalidPath,
                "field",
                "field: the name of a field is needed",
            ));
        }
        self.store.reading(|tx| {
            let sights = self.sights_of(tx, bearer, &query.choice, &query.stream)?;
            // Before a byte of it is touched.
            if !sights.iter().any(|sight| sight.shows(&query.field)) {
                return Err(Error::FieldNotGranted {
                    field: query.field.clone(),
                    param: "field",
                });
            }
            let (at, row) = page::sole(tx, &sights, &query.id)?;
            let sight = &sights[at];
            let Some(collection) = &sight.collection else {
                return Err(Error::NotFound("no such record".to_owned()));
            };
            let text = text(collection, &row, &query.field)?;
            let (total, digest) = (text.chars(), text.digest());
            let question = json!([
                "window",
                query.stream,
                sight.connection.id,
                query.id,
                query.field
            ])
            .to_string();
            let authority = bearer.authority();
            let asked = query.limit_chars.map(|limit| limit.clamp(1, MAX_CHARS));
            let (start, limit, matched) = match &query.selector {
                WindowSelector::At(offset) => (*offset, asked.unwrap_or(DEFAULT_CHARS), None),
                WindowSelector::Cursor(cursor) => {
                    let place: Place = self.seal.open(&authority, &question, "cursor", cursor)?;
                    if place.d != digest {
                        return Err(Error::CursorStale {
                            record: query.id.clone(),
                            field: query.field.clone(),
                        });
                    }
                    (place.o, asked.unwrap_or(place.l), None)
                }
                WindowSelector::Match { q, before, after } => {
                    if q.is_empty() || q.chars().count() > MAX_QUERY_CHARS {
                        let why = format!("q: 1 to {MAX_QUERY_CHARS} characters");
                        return Err(Error::refused(Code::InvalidWindow, "q", why));
                    }
                    let (start, end) = text.find(tx, q)?.ok_or(Error::QueryNotFound)?;
                    // Where nothing is said there is as much on either side; what is said stands alone.
                    let context = if before.is_none() && after.is_none() {
                        DEFAULT_CHARS / 2
                    } else {
                        0
                    };
                    let before = before.unwrap_or(context);
                    let limit = asked.unwrap_or(before + (end - start) + after.unwrap_or(context));
                    (
                        start.saturating_sub(before),
                        limit.min(MAX_CHARS),
                        Some((start, end)),
                    )
                }
            };
            let start = start.min(total);
            let end = start.saturating_add(limit).min(total);
            let part = text.part(tx, start, end)?;
            let seal = |offset: u64| {
                let place = Place {
                    o: offset,
                    l: limit,
                    d: digest.clone(),
                };
                self.seal.close(&authority, &question, &place)
            };
            let schema = sight
                .stream()
                .field(&query.field)
                .map(|field| &field.schema);
            let mime_type = schema.and_then(|schema| schema["contentMediaType"].as_str());
            Ok(FieldWindow {
                connection_id: sight.connection.id.clone(),
                next_cursor: (end < total).then(|| seal(end)).transpose()?,
                previous_cursor: (start > 0)
                    .then(|| seal(start.saturating_sub(limit)))
                    .transpose()?,
                text: part,
                start,
                end,
                limit,
                total,
                matched,
                mime_type: mime_type.unwrap_or("text/plain").to_owned(),
                digest,
            })
        })
    }
}

fn text<'a>(collection: &'a Collection, row: &'a Stored, field: &str) -> Result<Text<'a>> {
    if let Some(long) = row.lifted.iter().find(|long| long.field == field) {
        return Ok(Text::Lifted(collection, row.version, long));
    }
    let members = document::members(&row.data);
    let members = members.ok_or_else(|| Error::Broken("a record is no object".to_owned()))?;
    let (_, value) = members
        .iter()
        .find(|(name, _)| name == field)
        .ok_or_else(|| Error::FieldNotFound(field.to_owned()))?;
    match document::text(value) {
        Some(text) => Ok(Text::Here(text.into_owned())),
        None => Err(Error::FieldNotText(field.to_owned())),
    }
}

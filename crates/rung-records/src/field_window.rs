//! Windows into long texts: only the requested part is read from the store.

use std::collections::BTreeSet;

use regex::RegexBuilder;
use rung_fault::Code;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::document::{self, LiftedText};
use crate::page::{self, StoredRecord};
use crate::scope::{Bearer, Collection, ConnectionFilter, StreamScope};
use crate::store::{Tx, params};
use crate::{Error, Records, Result};

/// Default length of a window in characters.
pub(crate) const DEFAULT_CHARS: u64 = 4_096;
/// Maximum length of a window in characters.
pub const MAX_WINDOW_CHARS: u64 = 16_384;
/// Maximum number of characters before or after a match.
pub const MAX_CONTEXT_CHARS: u64 = 8_192;
/// Maximum number of characters to search for.
const MAX_QUERY_CHARS: usize = 1_000;

/// Selects the part of the text.
#[derive(Debug, Clone)]
pub enum WindowSelector {
    /// From a character offset.
    Offset(u64),
    /// From the cursor of an earlier window.
    Cursor(String),
    /// Around the first occurrence of `q`.
    Match {
        q: String,
        before: Option<u64>,
        after: Option<u64>,
    },
}

/// A request for a part of a text field.
#[derive(Debug, Clone)]
pub struct WindowQuery {
    pub stream: String,
    pub id: String,
    pub field: String,
    pub choice: ConnectionFilter,
    pub selector: WindowSelector,
    /// Length of the window in characters.
    pub limit_chars: Option<u64>,
}

/// A part of a text. Offsets and lengths are in characters.
#[derive(Debug, Clone)]
pub struct FieldWindow {
    /// The connection that contains the record.
    pub connection_id: String,
    pub text: String,
    pub start: u64,
    /// The offset after the last character.
    pub end: u64,
    /// The length requested.
    pub limit: u64,
    /// The length of the whole text.
    pub total: u64,
    /// The range of the match, if a search selected the window.
    pub match_range: Option<(u64, u64)>,
    /// The digest of the whole text.
    pub digest: String,
    pub mime_type: String,
    pub next_cursor: Option<String>,
    pub previous_cursor: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct WindowPosition {
    o: u64,
    l: u64,
    d: String,
}

/// The text of a field: inline in the record, or lifted out into chunks.
enum FieldText<'a> {
    Inline(String),
    Chunked(&'a Collection, i64, &'a LiftedText),
}

impl FieldText<'_> {
    fn chars(&self) -> u64 {
        match self {
            Self::Inline(text) => text.chars().count() as u64,
            Self::Chunked(_, _, long) => long.chars,
        }
    }

    fn digest(&self) -> String {
        match self {
            Self::Inline(text) => document::digest(text),
            Self::Chunked(_, _, long) => long.sha256.clone(),
        }
    }

    /// Calls `each` with the chunks, starting with the one that contains a character.
    fn pieces(
        &self,
        tx: &mut dyn Tx,
        from: u64,
        each: &mut dyn FnMut(u64, &str) -> Result<bool>,
    ) -> Result<()> {
        let (collection, version, long) = match self {
            Self::Inline(text) => return each(0, text).map(drop),
            Self::Chunked(collection, version, long) => (collection, version, long),
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

    fn slice(&self, tx: &mut dyn Tx, start: u64, end: u64) -> Result<String> {
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

    /// Finds the first occurrence, ignoring case.
    fn find(&self, tx: &mut dyn Tx, q: &str) -> Result<Option<(u64, u64)>> {
        let pattern = RegexBuilder::new(&regex::escape(q))
            .case_insensitive(true)
            .build();
        let pattern = pattern.map_err(|_| {
            Error::invalid_with_code(Code::InvalidWindow, "q", "q is too complex to search for")
        })?;
        let length = q.chars().count();
        // Carry over the end of each chunk, because a match may span two chunks.
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
    /// Returns a part of one text field of a record.
    #[allow(clippy::too_many_lines, reason = "one check after another")]
    pub fn field_window(&self, bearer: &Bearer, query: &WindowQuery) -> Result<FieldWindow> {
        if query.field.is_empty() || query.field.contains('\0') {
            return Err(Error::invalid_with_code(
                Code::InvalidPath,
                "field",
                "field is required: the name of a field",
            ));
        }
        self.store.read_tx(|tx| {
            let scopes = self.scopes_of_stream(tx, bearer, &query.choice, &query.stream)?;
            // Check the grant before reading any data.
            if !scopes.iter().any(|scope| scope.grants_field(&query.field)) {
                let error = Error::FieldNotGranted {
                    field: query.field.clone(),
                    param: "field",
                };
                let known: BTreeSet<&str> = scopes
                    .iter()
                    .flat_map(StreamScope::granted_fields)
                    .collect();
                return Err(error.with_similar_names(&query.field, known));
            }
            let (at, row) = page::find_one(tx, &scopes, &query.id)?;
            let scope = &scopes[at];
            let Some(collection) = &scope.collection else {
                return Err(Error::NotFound("no such record".to_owned()));
            };
            let text = field_text(collection, &row, &query.field).map_err(|error| match error {
                Error::FieldNotFound(_) => {
                    error.with_similar_names(&query.field, scope.granted_fields())
                }
                _ => error,
            })?;
            let (total, digest) = (text.chars(), text.digest());
            let question = json!([
                "window",
                query.stream,
                scope.connection.id,
                query.id,
                query.field
            ])
            .to_string();
            let authority = bearer.cursor_authority();
            let asked = query
                .limit_chars
                .map(|limit| limit.clamp(1, MAX_WINDOW_CHARS));
            let (start, limit, matched) = match &query.selector {
                WindowSelector::Offset(offset) => (*offset, asked.unwrap_or(DEFAULT_CHARS), None),
                WindowSelector::Cursor(cursor) => {
                    let place: WindowPosition =
                        self.seal.open(&authority, &question, "cursor", cursor)?;
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
                        let why = format!("q must have 1 to {MAX_QUERY_CHARS} characters");
                        return Err(Error::invalid_with_code(Code::InvalidWindow, "q", why));
                    }
                    let (start, end) = text.find(tx, q)?.ok_or(Error::QueryNotFound)?;
                    // Without `before` and `after`, both sides get a default; if only one is set, the other is 0.
                    let context = if before.is_none() && after.is_none() {
                        DEFAULT_CHARS / 2
                    } else {
                        0
                    };
                    let before = before.unwrap_or(context);
                    let limit = asked.unwrap_or(before + (end - start) + after.unwrap_or(context));
                    (
                        start.saturating_sub(before),
                        limit.min(MAX_WINDOW_CHARS),
                        Some((start, end)),
                    )
                }
            };
            let start = start.min(total);
            let end = start.saturating_add(limit).min(total);
            let part = text.slice(tx, start, end)?;
            let seal = |offset: u64| {
                let place = WindowPosition {
                    o: offset,
                    l: limit,
                    d: digest.clone(),
                };
                self.seal.close(&authority, &question, &place)
            };
            let schema = scope
                .stream()
                .field(&query.field)
                .map(|field| &field.schema);
            let mime_type = schema.and_then(|schema| schema["contentMediaType"].as_str());
            Ok(FieldWindow {
                connection_id: scope.connection.id.clone(),
                next_cursor: (end < total).then(|| seal(end)).transpose()?,
                previous_cursor: (start > 0)
                    .then(|| seal(start.saturating_sub(limit)))
                    .transpose()?,
                text: part,
                start,
                end,
                limit,
                total,
                match_range: matched,
                mime_type: mime_type.unwrap_or("text/plain").to_owned(),
                digest,
            })
        })
    }
}

fn field_text<'a>(
    collection: &'a Collection,
    row: &'a StoredRecord,
    field: &str,
) -> Result<FieldText<'a>> {
    if let Some(long) = row.lifted.iter().find(|long| long.field == field) {
        return Ok(FieldText::Chunked(collection, row.version, long));
    }
    let members = document::members(&row.data);
    let members = members.ok_or_else(|| Error::Broken("a record is not an object".to_owned()))?;
    let (_, value) = members
        .iter()
        .find(|(name, _)| name == field)
        .ok_or_else(|| Error::FieldNotFound(field.to_owned()))?;
    match document::string_value(value) {
        Some(text) => Ok(FieldText::Inline(text.into_owned())),
        None => Err(Error::FieldNotText(field.to_owned())),
    }
}

//! Full-text search: matching, ranking and the rendering of hits.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::{Posting, PostingIndex, WordIndex as _, tokenizer, words_in};
use crate::document;
use crate::filter::{self, RecordConditions, RecordFilter};
use crate::page::{STORED, StoredRecord, latest_version};
use crate::scope::{Bearer, Collection, ConnectionFilter, StreamScope};
use crate::store::{Tx, params};
use crate::{Error, Records, Result};

/// A search request.
#[derive(Debug, Clone, Default)]
pub struct SearchQuery {
    /// The text to search for. A hit contains all its words.
    pub q: String,
    pub limit: usize,
    pub cursor: Option<String>,
    /// The streams to search. Empty: all.
    pub streams: Vec<String>,
    /// Filters on records. Requires exactly one stream.
    pub filters: Vec<RecordFilter>,
    pub choice: ConnectionFilter,
}

/// A page of hits.
#[derive(Debug, Clone)]
pub struct SearchPage {
    /// The hits, best first.
    pub hits: Vec<Json>,
    pub has_more: bool,
    pub next_cursor: Option<String>,
    /// Number of all hits.
    pub total: usize,
    /// Number of stream and connection pairs searched.
    pub sources: usize,
}

/// The last hit of a page and the version of the store that the search reads.
#[derive(Serialize, Deserialize)]
struct SearchPosition {
    v: i64,
    after: Option<(u32, i64)>,
}

/// Maximum number of words in a query.
const MAX_WORDS: usize = 32;
/// Maximum length of a query.
const MAX_QUESTION_BYTES: usize = 2_000;
/// BM25 `k1`: how fast repeated words saturate.
const SATURATION: f32 = 1.2;
/// BM25 `b`: the weight of the text length.
const LENGTH_WEIGHT: f32 = 0.75;
/// Reference text length in words. Constant, because an average would disclose the length of hidden texts.
const PIVOT_WORDS: f32 = 200.0;
const SNIPPET_WORDS: usize = 48;
const EXCERPT_CHARS: usize = 400;
/// Maximum number of excerpts per hit.
const MAX_EXCERPTS: usize = 3;
/// Maximum length of a title in characters.
const TITLE_CHARS: usize = 100;
/// The fields that usually have a title, where none is declared.
const TITLE_FIELDS: [&str; 4] = ["title", "name", "subject", "summary"];

/// A record with all the words, with its score. Kept small: there may be one per record.
#[derive(Clone, Copy)]
struct WordHit {
    version: i64,
    score: f32,
    scope_index: u32,
    /// A bit per field that contains the words.
    fields: u64,
}

impl WordHit {
    /// Compares by score, best first, then by version, newest first.
    fn cmp_rank(&self, other: &Self) -> Ordering {
        let better = other.score.total_cmp(&self.score);
        better.then(other.version.cmp(&self.version))
    }

    /// Returns the indexes of the matching fields.
    fn field_indexes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..64).filter(|at| self.fields >> at & 1 == 1)
    }
}

impl Records {
    /// Searches records by words.
    pub fn search(&self, bearer: &Bearer, query: &SearchQuery) -> Result<SearchPage> {
        if query.q.trim().is_empty() {
            return Err(Error::invalid_request(
                "q",
                "q is required: the words to find",
            ));
        }
        if query.q.len() > MAX_QUESTION_BYTES {
            return Err(Error::invalid_request(
                "q",
                format!("q must have at most {MAX_QUESTION_BYTES} bytes"),
            ));
        }
        let mut asked = tokenizer::query_words(&query.q);
        asked.truncate(MAX_WORDS);
        if !query.filters.is_empty() && query.streams.len() != 1 {
            return Err(Error::invalid_request(
                "filter",
                "filter needs exactly one stream: name it with streams",
            ));
        }
        self.store.read_tx(|tx| {
            let scopes = self.searchable_scopes(tx, bearer, query)?;
            let question = canonical_request(query);
            let authority = bearer.cursor_authority();
            let place = match &query.cursor {
                Some(cursor) => self.seal.open(&authority, &question, "cursor", cursor)?,
                None => SearchPosition {
                    v: latest_version(tx, bearer.subject)?,
                    after: None,
                },
            };
            let mut hits = Vec::new();
            for (at, scope) in scopes.iter().enumerate() {
                if !asked.is_empty() {
                    collect_hits(tx, scope, at, &asked, &query.filters, place.v, &mut hits)?;
                }
            }
            let total = hits.len();
            if let Some((score, version)) = place.after {
                let last = WordHit {
                    version,
                    score: f32::from_bits(score),
                    scope_index: 0,
                    fields: 0,
                };
                hits.retain(|hit| last.cmp_rank(hit) == Ordering::Less);
            }
            let end = query.limit.min(hits.len());
            // Only the returned hits are sorted.
            if end < hits.len() {
                hits.select_nth_unstable_by(end, WordHit::cmp_rank);
            }
            hits[..end].sort_unstable_by(WordHit::cmp_rank);
            let mut told = Vec::new();
            for hit in &hits[..end] {
                told.extend(hit_json(
                    tx,
                    &scopes[hit.scope_index as usize],
                    hit,
                    &asked,
                )?);
            }
            let has_more = end < hits.len();
            let last = hits[..end]
                .last()
                .map(|hit| (hit.score.to_bits(), hit.version));
            let next = SearchPosition {
                v: place.v,
                after: last,
            };
            Ok(SearchPage {
                hits: told,
                has_more,
                next_cursor: has_more
                    .then(|| self.seal.close(&authority, &question, &next))
                    .transpose()?,
                total,
                sources: scopes.len(),
            })
        })
    }

    /// Returns the scopes to search: visible, requested and with searchable fields.
    fn searchable_scopes(
        &self,
        tx: &mut dyn Tx,
        bearer: &Bearer,
        query: &SearchQuery,
    ) -> Result<Vec<StreamScope>> {
        if let Some(grant) = bearer.grant() {
            let outside = query
                .streams
                .iter()
                .find(|name| grant.stream(name).is_none());
            if let Some(outside) = outside {
                return Err(crate::scope::stream_not_granted(grant, outside));
            }
        }
        let mut scopes = self.visible_scopes(tx, bearer, &query.choice)?;
        scopes.retain(|scope| {
            query.streams.is_empty() || query.streams.contains(&scope.stream().name)
        });
        for scope in &scopes {
            filter::check_filters(scope, &query.filters)?;
        }
        scopes.retain(|scope| {
            scope.collection.is_some() && !scope.stream().query.search.lexical_fields.is_empty()
        });
        Ok(scopes)
    }
}

/// Appends the hits in one stream of one connection.
fn collect_hits(
    tx: &mut dyn Tx,
    scope: &StreamScope,
    at: usize,
    asked: &[String],
    filters: &[RecordFilter],
    version: i64,
    hits: &mut Vec<WordHit>,
) -> Result<()> {
    let Some(collection) = &scope.collection else {
        return Ok(());
    };
    let tests = RecordConditions::build(scope, filters)?;
    let visible = visible_versions(tx, collection, &tests)?;
    let dead = superseded_versions(tx, collection, version)?;
    let index = PostingIndex::new(collection);
    let sight_no = u32::try_from(at).unwrap_or(u32::MAX);
    let mut found: Vec<WordHit> = Vec::new();
    for (place, field) in scope
        .stream()
        .query
        .search
        .lexical_fields
        .iter()
        .enumerate()
    {
        if !scope.grants_field(field) {
            continue;
        }
        let Some(no) = collection.shape.lexical(field) else {
            continue;
        };
        let mut lists = Vec::with_capacity(asked.len());
        for word in asked {
            let mut list = index.find(tx, no, word)?;
            list.retain(|posting| {
                posting.version <= version
                    && !dead.contains(&posting.version)
                    && visible
                        .as_ref()
                        .is_none_or(|visible| visible.binary_search(&posting.version).is_ok())
            });
            lists.push(list);
        }
        let of_field = intersect_postings(&lists)
            .into_iter()
            .map(|(version, score)| WordHit {
                version,
                score,
                scope_index: sight_no,
                fields: 1 << place.min(63),
            });
        found = merge_hits(found, of_field);
    }
    hits.append(&mut found);
    Ok(())
}

/// Merges two lists sorted by version. The scores of a version in both are added.
fn merge_hits(found: Vec<WordHit>, more: impl ExactSizeIterator<Item = WordHit>) -> Vec<WordHit> {
    if found.is_empty() {
        return more.collect();
    }
    let mut all: Vec<WordHit> = Vec::with_capacity(found.len() + more.len());
    let (mut ours, mut theirs) = (found.into_iter().peekable(), more.peekable());
    loop {
        let next = match (ours.peek(), theirs.peek()) {
            (None, None) => return all,
            (Some(_), None) => ours.next(),
            (None, Some(_)) => theirs.next(),
            (Some(a), Some(b)) => match a.version.cmp(&b.version) {
                Ordering::Less => ours.next(),
                Ordering::Greater => theirs.next(),
                Ordering::Equal => ours.next().zip(theirs.next()).map(|(a, b)| WordHit {
                    score: a.score + b.score,
                    fields: a.fields | b.fields,
                    ..a
                }),
            },
        };
        all.extend(next);
    }
}

/// Returns the versions contained in all lists, with their scores.
fn intersect_postings(lists: &[Vec<Posting>]) -> Vec<(i64, f32)> {
    let Some(shortest) = lists.iter().min_by_key(|list| list.len()) else {
        return Vec::new();
    };
    // Rare words weigh more. Only visible texts count, so that scores disclose nothing about others.
    #[allow(clippy::cast_precision_loss)]
    let weights: Vec<f32> = lists
        .iter()
        .map(|list| (1.0 + 10_000.0 / (list.len() as f32 + 1.0)).ln())
        .collect();
    let mut at = vec![0; lists.len()];
    let mut found = Vec::with_capacity(shortest.len());
    'versions: for posting in shortest {
        let mut score = 0.0;
        for (list, (at, weight)) in lists.iter().zip(at.iter_mut().zip(&weights)) {
            // All lists are sorted, so positions only advance.
            *at += list[*at..].partition_point(|other| other.version < posting.version);
            match list.get(*at) {
                Some(other) if other.version == posting.version => {
                    #[allow(clippy::cast_precision_loss)]
                    let times = other.times as f32;
                    let length =
                        1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * words_in(other.length) / PIVOT_WORDS;
                    score += weight * times * (SATURATION + 1.0) / (times + SATURATION * length);
                }
                _ => continue 'versions,
            }
        }
        found.push((posting.version, score));
    }
    found
}

/// Returns the sorted versions that meet all conditions. `None`: all.
fn visible_versions(
    tx: &mut dyn Tx,
    collection: &Collection,
    tests: &RecordConditions,
) -> Result<Option<Vec<i64>>> {
    let mut visible: Option<Vec<i64>> = None;
    for sql in tests.version_queries(collection) {
        let mut found = tx.query_all(&sql.text, &sql.params, |row| row.int(0))?;
        found.sort_unstable();
        if let Some(before) = &visible {
            found.retain(|version| before.binary_search(version).is_ok());
        }
        visible = Some(found);
    }
    Ok(visible)
}

/// Returns the versions that were superseded by `version`.
fn superseded_versions(
    tx: &mut dyn Tx,
    collection: &Collection,
    version: i64,
) -> Result<HashSet<i64>> {
    let mut all = HashSet::new();
    tx.query(
        "SELECT d.version FROM dead d LEFT JOIN record r ON r.subject = d.subject AND r.collection = d.collection AND r.version = d.version
         WHERE d.subject = ?1 AND d.collection = ?2 AND coalesce(r.until, 0) <= ?3",
        params![collection.subject, collection.no, version],
        &mut |row| {
            all.insert(row.int(0)?);
            Ok(true)
        },
    )?;
    Ok(all)
}

/// Renders a hit. Returns `None` if the record was changed in the meantime.
fn hit_json(
    tx: &mut dyn Tx,
    scope: &StreamScope,
    hit: &WordHit,
    asked: &[String],
) -> Result<Option<Json>> {
    let Some(collection) = &scope.collection else {
        return Ok(None);
    };
    let sql = format!(
        "SELECT {STORED} FROM record r WHERE r.subject = ?1 AND r.collection = ?2 AND r.version = ?3
         AND r.until = 9223372036854775807 AND r.deleted = 0"
    );
    let row = tx.query_one(
        &sql,
        params![collection.subject, collection.no, hit.version],
        StoredRecord::from_row,
    )?;
    let Some(row) = row else {
        return Ok(None);
    };
    let stream = scope.stream();
    let names = &stream.query.search.lexical_fields;
    let (connection, stream_name) = (&scope.connection.id, &stream.name);
    let url = format!(
        "/v1/streams/{}/records/{}",
        percent_encode(stream_name),
        percent_encode(&row.key)
    );
    let mut excerpts = Vec::new();
    let mut snippet = Json::Null;
    for (at, field) in hit
        .field_indexes()
        .filter_map(|at| names.get(at))
        .enumerate()
        .take(MAX_EXCERPTS)
    {
        let Some(text) = match_field(tx, collection, &row, field, asked)? else {
            continue;
        };
        if at == 0 {
            snippet = json!({"field": field, "text": text.snippet});
        }
        excerpts.push(json!({
            "object": "evidence_excerpt", "field_path": field, "preview_text": text.excerpt,
            "provenance": "lexical_match", "truncated": text.truncated,
            "read": {
                "object": "field_window_read", "method": "GET", "route": format!("{url}/field-window"),
                "stream": stream_name, "record_id": row.key, "field": field, "connection_id": connection,
            },
        }));
    }
    let mut told = json!({
        "object": "search_result",
        "stream": stream_name,
        "record_key": row.key,
        "connector_id": scope.connection.connector,
        "record_url": format!("{url}?connection_id={}", percent_encode(connection)),
        "emitted_at": row.emitted_at,
        "connection_id": connection,
        "connector_instance_id": connection,
        "matched_fields": hit.field_indexes().filter_map(|at| names.get(at)).collect::<Vec<_>>(),
        "snippet": snippet,
        "evidence_excerpts": excerpts,
        "score": {"kind": "bm25", "order": "lower_is_better", "value": -f64::from((hit.score * 1000.0).round()) / 1000.0},
    });
    if let Some(title) = record_title(tx, scope, collection, &row)? {
        told["title"] = json!(title);
    }
    if let Some(name) = &scope.connection.display_name {
        told["display_name"] = json!(name);
    }
    if let Some(field) = stream
        .consent_time_field
        .as_ref()
        .filter(|field| scope.grants_field(field))
    {
        let members = document::members(&row.data).unwrap_or_default();
        let authored = members
            .iter()
            .find(|(name, _)| name == field)
            .and_then(|(_, value)| document::scalar_value(value));
        if let Some(authored) = authored {
            told["authored_at"] = authored;
        }
    }
    Ok(Some(told))
}

/// Returns the title of a record: its declared title field (`x_pdpp_role`), else a field that usually is one, else the first
/// words of its text. Reads visible fields only.
fn record_title(
    tx: &mut dyn Tx,
    scope: &StreamScope,
    collection: &Collection,
    row: &StoredRecord,
) -> Result<Option<String>> {
    let stream = scope.stream();
    let declared = stream.fields.iter();
    let declared = declared.filter(|field| field.role.as_deref() == Some("title"));
    let candidates = declared
        .map(|field| field.name.as_str())
        .chain(TITLE_FIELDS)
        .chain(
            stream
                .query
                .search
                .lexical_fields
                .iter()
                .map(String::as_str),
        );
    let members = document::members(&row.data).unwrap_or_default();
    for field in candidates.filter(|field| scope.grants_field(field)) {
        let text = if let Some(long) = row.lifted.iter().find(|long| long.field == *field) {
            first_chunk(tx, collection, row.version, &long.field)?
        } else {
            let value = members.iter().find(|(name, _)| name == field);
            value.and_then(|(_, value)| document::string_value(value).map(Cow::into_owned))
        };
        let title = text.as_deref().map(first_words).unwrap_or_default();
        if !title.is_empty() {
            return Ok(Some(title));
        }
    }
    Ok(None)
}

/// Returns the beginning of a lifted text.
fn first_chunk(
    tx: &mut dyn Tx,
    collection: &Collection,
    version: i64,
    field: &str,
) -> Result<Option<String>> {
    let chunk = tx.query_one(
        "SELECT text FROM chunk WHERE subject = ?1 AND collection = ?2 AND version = ?3 AND field = ?4 ORDER BY start LIMIT 1",
        params![collection.subject, collection.no, version, field],
        |row| Ok(String::from_utf8_lossy(row.bytes(0)?).into_owned()),
    )?;
    Ok(chunk)
}

/// Returns the first words of a text, on one line. A word that is cut, or omitted, is replaced by an ellipsis.
fn first_words(text: &str) -> String {
    let mut title = String::new();
    let mut chars = 0;
    // Longer texts are cut anyway.
    for word in rung_ladder::head(text, 8 * TITLE_CHARS).split_whitespace() {
        let length = word.chars().count();
        if chars > 0 && chars + 1 + length > TITLE_CHARS {
            title.push_str(" \u{2026}");
            break;
        }
        if length > TITLE_CHARS {
            title.extend(word.chars().take(TITLE_CHARS - 1));
            title.push('\u{2026}');
            break;
        }
        if chars > 0 {
            title.push(' ');
            chars += 1;
        }
        title.push_str(word);
        chars += length;
    }
    title
}

/// Percent-encodes all bytes except unreserved characters (RFC 3986).
pub(crate) fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            let _never_fails = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// The displayed parts of a matching text.
struct MatchedText {
    snippet: String,
    excerpt: String,
    truncated: bool,
}

/// Finds the part of a field that contains the words.
fn match_field(
    tx: &mut dyn Tx,
    collection: &Collection,
    row: &StoredRecord,
    field: &str,
    asked: &[String],
) -> Result<Option<MatchedText>> {
    let Some(long) = row.lifted.iter().find(|long| long.field == field) else {
        let members = document::members(&row.data).unwrap_or_default();
        let value = members.iter().find(|(name, _)| name == field);
        let text = value.and_then(|(_, value)| document::string_value(value));
        return Ok(text.and_then(|text| excerpt_around(&text, asked, false)));
    };
    // Chunk by chunk: the first chunk with any of the words is used.
    let mut found = None;
    tx.query(
        "SELECT text FROM chunk WHERE subject = ?1 AND collection = ?2 AND version = ?3 AND field = ?4 ORDER BY start",
        params![collection.subject, collection.no, row.version, &long.field],
        &mut |row| {
            let piece = std::str::from_utf8(row.bytes(0)?).map_err(|error| Error::corrupt("text", error))?;
            found = excerpt_around(piece, asked, true);
            Ok(found.is_none())
        },
    )?;
    Ok(found)
}

fn excerpt_around(text: &str, asked: &[String], part: bool) -> Option<MatchedText> {
    let mut places = Vec::new();
    tokenizer::for_each_word(text, |word, place| {
        places.push((place, asked.iter().any(|own| own == word)));
    });
    let first = places.iter().position(|(_, hit)| *hit)?;
    let from = first.saturating_sub(SNIPPET_WORDS / 4);
    let to = (from + SNIPPET_WORDS).min(places.len());
    let (start, end) = (
        if from == 0 { 0 } else { places[from].0.start },
        if to == places.len() {
            text.len()
        } else {
            places[to - 1].0.end
        },
    );
    let mut snippet = String::from(if start > 0 { "\u{2026} " } else { "" });
    let mut at = start;
    for (place, _) in places[from..to].iter().filter(|(_, hit)| *hit) {
        snippet.push_str(&text[at..place.start]);
        snippet.push_str("<mark>");
        snippet.push_str(&text[place.clone()]);
        snippet.push_str("</mark>");
        at = place.end;
    }
    snippet.push_str(&text[at..end]);
    if end < text.len() {
        snippet.push_str(" \u{2026}");
    }
    let excerpt: String = text[start..end].chars().take(EXCERPT_CHARS).collect();
    Some(MatchedText {
        truncated: part || excerpt.len() < text.len(),
        snippet,
        excerpt,
    })
}

/// Returns the canonical form of a request, to which its cursors are bound.
fn canonical_request(query: &SearchQuery) -> String {
    let mut filters = query.filters.clone();
    filters.sort();
    let filters: Vec<Json> = filters
        .iter()
        .map(|one| json!([one.field, one.operator, one.value]))
        .collect();
    json!([
        "search",
        query.q,
        query.streams,
        query.choice.connection_id,
        filters
    ])
    .to_string()
}

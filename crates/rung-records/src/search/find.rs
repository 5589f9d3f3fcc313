//! Asking for records by words: which of them, in which order, and what to show of each.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::{LexicalIndex as _, Posting, Postings, words, words_in};
use crate::document;
use crate::filter::{self, Filter, Tests};
use crate::page::{STORED, Stored, latest};
use crate::scope::{Bearer, Choice, Collection, Sight};
use crate::store::{Tx, params};
use crate::{Error, Records, Result};

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct SearchQuery {
    /// In which words.
    pub q: String,
    /// How many.
    pub limit: usize,
    /// Where to go on.
    pub cursor: Option<String>,
    /// In which streams. All, if none is named.
    pub streams: Vec<String>,
    /// Of which records, of one stream.
    pub filters: Vec<Filter>,
    /// Of which connections.
    pub choice: Choice,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// Hits, the best ones first.
    pub hits: Vec<Json>,
    /// Whether there are more.
    pub has_more: bool,
    /// Where to go on.
    pub next_cursor: Option<String>,
    /// How many there are in all.
    pub total: usize,
    /// In how many streams of connections was looked.
    pub sources: usize,
}

/// The last hit of a page, and at which moment it was looked for.
#[derive(Serialize, Deserialize)]
struct Place {
    v: i64,
    after: Option<(u32, i64)>,
}

/// Words of a question.
const MAX_WORDS: usize = 32;
/// Bytes of a question.
const MAX_QUESTION_BYTES: usize = 2_000;
/// How soon more of the same word counts less.
const SATURATION: f32 = 1.2;
/// How much a long text counts less.
const LENGTH: f32 = 0.75;
/// Words of a text that is neither short nor long. It is no average: that would tell of texts nobody may see.
const PIVOT: f32 = 200.0;
/// Words of a snippet.
const SNIPPET_WORDS: usize = 48;
/// Characters of an excerpt.
const EXCERPT_CHARS: usize = 400;
/// Excerpts of a hit.
const MAX_EXCERPTS: usize = 3;

/// A record that has all the words. There may be as many of these as there are records.
#[derive(Clone, Copy)]
struct Hit {
    version: i64,
    score: f32,
    sight: u32,
    /// A bit for each field they stand in.
    fields: u64,
}

impl Hit {
    /// The better one first; of two that are as good, the later one.
    fn before(&self, other: &Self) -> Ordering {
        let better = other.score.total_cmp(&self.score);
        better.then(other.version.cmp(&self.version))
    }

    /// The places of the fields.
    fn places(&self) -> impl Iterator<Item = usize> + '_ {
        (0..64).filter(|at| self.fields >> at & 1 == 1)
    }
}

impl Records {
    /// Looks for records by words.
    pub fn search(&self, bearer: &Bearer, query: &SearchQuery) -> Result<Found> {
        if query.q.trim().is_empty() {
            return Err(Error::invalid("q", "q: something to look for is needed"));
        }
        if query.q.len() > MAX_QUESTION_BYTES {
            return Err(Error::invalid(
                "q",
                format!("q: {MAX_QUESTION_BYTES} bytes at most"),
            ));
        }
        let mut asked = words::asked(&query.q);
        asked.truncate(MAX_WORDS);
        if !query.filters.is_empty() && query.streams.len() != 1 {
            return Err(Error::invalid(
                "filter",
                "filter needs exactly one stream: name it with streams",
            ));
        }
        self.store.reading(|tx| {
            let sights = self.searched(tx, bearer, query)?;
            let question = question(query);
            let authority = bearer.authority();
            let place = match &query.cursor {
                Some(cursor) => self.seal.open(&authority, &question, "cursor", cursor)?,
                None => Place {
                    v: latest(tx, bearer.subject)?,
                    after: None,
                },
            };
            let mut hits = Vec::new();
            for (at, sight) in sights.iter().enumerate() {
                if !asked.is_empty() {
                    look(tx, sight, at, &asked, &query.filters, place.v, &mut hits)?;
                }
            }
            let total = hits.len();
            if let Some((score, version)) = place.after {
                let last = Hit {
                    version,
                    score: f32::from_bits(score),
                    sight: 0,
                    fields: 0,
                };
                hits.retain(|hit| last.before(hit) == Ordering::Less);
            }
            let end = query.limit.min(hits.len());
            // Only those that are shown need stand in their order.
            if end < hits.len() {
                hits.select_nth_unstable_by(end, Hit::before);
            }
            hits[..end].sort_unstable_by(Hit::before);
            let mut told = Vec::new();
            for hit in &hits[..end] {
                told.extend(shown(tx, &sights[hit.sight as usize], hit, &asked)?);
            }
            let has_more = end < hits.len();
            let last = hits[..end]
                .last()
                .map(|hit| (hit.score.to_bits(), hit.version));
            let next = Place {
                v: place.v,
                after: last,
            };
            Ok(Found {
                hits: told,
                has_more,
                next_cursor: has_more
                    .then(|| self.seal.close(&authority, &question, &next))
                    .transpose()?,
                total,
                sources: sights.len(),
            })
        })
    }

    /// Where to look: what may be seen, of what was asked for, and has words.
    fn searched(
        &self,
        tx: &mut dyn Tx,
        bearer: &Bearer,
        query: &SearchQuery,
    ) -> Result<Vec<Sight>> {
        if let Some(grant) = bearer.grant() {
            let outside = query
                .streams
                .iter()
                .find(|name| grant.stream(name).is_none());
            if let Some(outside) = outside {
                return Err(Error::StreamNotGranted(outside.clone()));
            }
        }
        let mut sights = self.sights(tx, bearer, &query.choice)?;
        sights.retain(|sight| {
            query.streams.is_empty() || query.streams.contains(&sight.stream().name)
        });
        for sight in &sights {
            filter::check(sight, &query.filters)?;
        }
        sights.retain(|sight| {
            sight.collection.is_some() && !sight.stream().query.search.lexical_fields.is_empty()
        });
        Ok(sights)
    }
}

/// Adds the hits in one stream of one connection.
fn look(
    tx: &mut dyn Tx,
    sight: &Sight,
    at: usize,
    asked: &[String],
    filters: &[Filter],
    version: i64,
    hits: &mut Vec<Hit>,
) -> Result<()> {
    let Some(collection) = &sight.collection else {
        return Ok(());
    };
    let tests = Tests::of(sight, filters)?;
    let visible = visible(tx, collection, &tests)?;
    let dead = dead(tx, collection, version)?;
    let index = Postings::new(collection);
    let sight_no = u32::try_from(at).unwrap_or(u32::MAX);
    let mut found: Vec<Hit> = Vec::new();
    for (place, field) in sight
        .stream()
        .query
        .search
        .lexical_fields
        .iter()
        .enumerate()
    {
        if !sight.shows(field) {
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
        let of_field = common(&lists).into_iter().map(|(version, score)| Hit {
            version,
            score,
            sight: sight_no,
            fields: 1 << place.min(63),
        });
        found = merged(found, of_field);
    }
    hits.append(&mut found);
    Ok(())
}

/// Two lists in the order of versions as one: what is in both is better by as much.
fn merged(found: Vec<Hit>, more: impl ExactSizeIterator<Item = Hit>) -> Vec<Hit> {
    if found.is_empty() {
        return more.collect();
    }
    let mut all: Vec<Hit> = Vec::with_capacity(found.len() + more.len());
    let (mut ours, mut theirs) = (found.into_iter().peekable(), more.peekable());
    loop {
        let next = match (ours.peek(), theirs.peek()) {
            (None, None) => return all,
            (Some(_), None) => ours.next(),
            (None, Some(_)) => theirs.next(),
            (Some(a), Some(b)) => match a.version.cmp(&b.version) {
                Ordering::Less => ours.next(),
                Ordering::Greater => theirs.next(),
                Ordering::Equal => ours.next().zip(theirs.next()).map(|(a, b)| Hit {
                    score: a.score + b.score,
                    fields: a.fields | b.fields,
                    ..a
                }),
            },
        };
        all.extend(next);
    }
}

/// The versions that are in all lists, with how well they fit.
fn common(lists: &[Vec<Posting>]) -> Vec<(i64, f32)> {
    let Some(shortest) = lists.iter().min_by_key(|list| list.len()) else {
        return Vec::new();
    };
    // A word that few texts have says more. Only texts that may be seen are counted.
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
            // Lists are in order: what is behind stays behind.
            *at += list[*at..].partition_point(|other| other.version < posting.version);
            match list.get(*at) {
                Some(other) if other.version == posting.version => {
                    #[allow(clippy::cast_precision_loss)]
                    let times = other.times as f32;
                    let length = 1.0 - LENGTH + LENGTH * words_in(other.length) / PIVOT;
                    score += weight * times * (SATURATION + 1.0) / (times + SATURATION * length);
                }
                _ => continue 'versions,
            }
        }
        found.push((posting.version, score));
    }
    found
}

/// The versions that conditions let through, in order. `None` for all.
fn visible(tx: &mut dyn Tx, collection: &Collection, tests: &Tests) -> Result<Option<Vec<i64>>> {
    let mut visible: Option<Vec<i64>> = None;
    for sql in tests.versions(collection) {
        let mut found = tx.all(&sql.text, &sql.params, |row| row.int(0))?;
        found.sort_unstable();
        if let Some(before) = &visible {
            found.retain(|version| before.binary_search(version).is_ok());
        }
        visible = Some(found);
    }
    Ok(visible)
}

/// The versions that did not hold any more at a moment.
fn dead(tx: &mut dyn Tx, collection: &Collection, version: i64) -> Result<HashSet<i64>> {
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

/// What is told of a hit; nothing if it is gone meanwhile.
fn shown(tx: &mut dyn Tx, sight: &Sight, hit: &Hit, asked: &[String]) -> Result<Option<Json>> {
    let Some(collection) = &sight.collection else {
        return Ok(None);
    };
    let sql = format!(
        "SELECT {STORED} FROM record r WHERE r.subject = ?1 AND r.collection = ?2 AND r.version = ?3
         AND r.until = 9223372036854775807 AND r.deleted = 0"
    );
    let row = tx.one(
        &sql,
        params![collection.subject, collection.no, hit.version],
        Stored::read,
    )?;
    let Some(row) = row else {
        return Ok(None);
    };
    let stream = sight.stream();
    let names = &stream.query.search.lexical_fields;
    let (connection, stream_name) = (&sight.connection.id, &stream.name);
    let url = format!(
        "/v1/streams/{}/records/{}",
        encoded(stream_name),
        encoded(&row.key)
    );
    let mut excerpts = Vec::new();
    let mut snippet = Json::Null;
    for (at, field) in hit
        .places()
        .filter_map(|at| names.get(at))
        .enumerate()
        .take(MAX_EXCERPTS)
    {
        let Some(text) = matched(tx, collection, &row, field, asked)? else {
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
        "connector_id": sight.connection.connector,
        "record_url": format!("{url}?connection_id={}", encoded(connection)),
        "emitted_at": row.emitted_at,
        "connection_id": connection,
        "connector_instance_id": connection,
        "matched_fields": hit.places().filter_map(|at| names.get(at)).collect::<Vec<_>>(),
        "snippet": snippet,
        "evidence_excerpts": excerpts,
        "score": {"kind": "bm25", "order": "lower_is_better", "value": -f64::from((hit.score * 1000.0).round()) / 1000.0},
    });
    if let Some(name) = &sight.connection.display_name {
        told["display_name"] = json!(name);
    }
    if let Some(field) = stream
        .consent_time_field
        .as_ref()
        .filter(|field| sight.shows(field))
    {
        let members = document::members(&row.data).unwrap_or_default();
        let authored = members
            .iter()
            .find(|(name, _)| name == field)
            .and_then(|(_, value)| document::scalar(value));
        if let Some(authored) = authored {
            told["authored_at"] = authored;
        }
    }
    Ok(Some(told))
}

/// Everything but letters, digits and a few signs is written by its bytes.
pub(crate) fn encoded(text: &str) -> String {
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

/// What of a text is shown.
struct Matched {
    snippet: String,
    excerpt: String,
    truncated: bool,
}

/// The part of a field where the words stand.
fn matched(
    tx: &mut dyn Tx,
    collection: &Collection,
    row: &Stored,
    field: &str,
    asked: &[String],
) -> Result<Option<Matched>> {
    let Some(long) = row.lifted.iter().find(|long| long.field == field) else {
        let members = document::members(&row.data).unwrap_or_default();
        let value = members.iter().find(|(name, _)| name == field);
        let text = value.and_then(|(_, value)| document::text(value));
        return Ok(text.and_then(|text| around(&text, asked, false)));
    };
    // A piece at a time: the first that has one of the words is enough.
    let mut found = None;
    tx.query(
        "SELECT text FROM chunk WHERE subject = ?1 AND collection = ?2 AND version = ?3 AND field = ?4 ORDER BY start",
        params![collection.subject, collection.no, row.version, &long.field],
        &mut |row| {
            let piece = std::str::from_utf8(row.bytes(0)?).map_err(|error| Error::corrupt("text", error))?;
            found = around(piece, asked, true);
            Ok(found.is_none())
        },
    )?;
    Ok(found)
}

fn around(text: &str, asked: &[String], part: bool) -> Option<Matched> {
    let mut places = Vec::new();
    words::each(text, |word, place| {
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
    Some(Matched {
        truncated: part || excerpt.len() < text.len(),
        snippet,
        excerpt,
    })
}

/// What was asked, in one spelling.
fn question(query: &SearchQuery) -> String {
    let mut filters = query.filters.clone();
    filters.sort();
    let filters: Vec<Json> = filters
        .iter()
        .map(|one| json!([one.field, one.bound, one.value]))
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

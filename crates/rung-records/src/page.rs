//! Reading records: one, or a page of many in one order, whatever connections they are in.

use std::cmp::Ordering;

use data_encoding::BASE64URL_NOPAD;
use rung_fault::Code;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

use crate::document::{self, Lifted};
use crate::expand::expanded_of;
use crate::filter::{self, Filter, Sql, Tests};
use crate::reading::{From, Reading};
use crate::scope::{Bearer, Choice, Collection, Sight};
use crate::store::{Row, Tx, params};
use crate::write::fact_key;
use crate::{Error, Records, Result};

/// In which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// From the least on.
    Asc,
    /// From the greatest on.
    #[default]
    Desc,
}

impl Order {
    pub(crate) fn of(self, a: Ordering) -> Ordering {
        match self {
            Self::Asc => a,
            Self::Desc => a.reverse(),
        }
    }

    pub(crate) fn sql(self) -> (&'static str, &'static str) {
        match self {
            Self::Asc => (">", "ASC"),
            Self::Desc => ("<", "DESC"),
        }
    }
}

/// Whether records are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Count {
    /// No.
    #[default]
    None,
    /// Yes.
    Exact,
}

/// What is read along.
#[derive(Debug, Clone, Default)]
pub struct ExpandQuery {
    /// The relations.
    pub names: Vec<String>,
    /// How many of each.
    pub limits: Vec<(String, u64)>,
}

/// A page that is asked for.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    /// The stream.
    pub stream: String,
    /// Of which connections.
    pub choice: Choice,
    /// How many.
    pub limit: usize,
    /// Where to go on.
    pub cursor: Option<String>,
    /// In which order. By default the greatest comes first.
    pub order: Option<Order>,
    /// By which field, with a dash before it for the greatest first.
    pub sort: Option<String>,
    /// Whether to count.
    pub count: Count,
    /// Whether to say from when until when all of them are.
    pub window: bool,
    /// The fields.
    pub fields: Option<Vec<String>>,
    /// A view in place of fields.
    pub view: Option<String>,
    /// Which records.
    pub filters: Vec<Filter>,
    /// What to read along.
    pub expand: ExpandQuery,
}

/// A record that is asked for.
#[derive(Debug, Clone, Default)]
pub struct RecordQuery {
    /// Its stream.
    pub stream: String,
    /// Its key.
    pub id: String,
    /// Of which connections.
    pub choice: Choice,
    /// The fields.
    pub fields: Option<Vec<String>>,
    /// What to read along.
    pub expand: ExpandQuery,
}

/// A page.
#[derive(Debug, Clone)]
pub struct Page {
    /// The records, as JSON.
    pub records: Vec<Box<RawValue>>,
    /// Whether there are more.
    pub has_more: bool,
    /// Where to go on.
    pub next_cursor: Option<String>,
    /// How many there are in all.
    pub count: Option<i64>,
    /// From when until when.
    pub window: Option<Json>,
}

/// One version of a record.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) version: i64,
    pub(crate) key: String,
    pub(crate) ord: Vec<u8>,
    pub(crate) emitted_at: String,
    pub(crate) data: String,
    pub(crate) lifted: Vec<Lifted>,
}

pub(crate) const STORED: &str = "r.version, r.key, r.ord, r.emitted_at, r.data, r.lifted";

impl Stored {
    pub(crate) fn read(row: &dyn Row) -> Result<Self> {
        Ok(Self {
            version: row.int(0)?,
            key: row.text(1)?.to_owned(),
            ord: row.bytes(2)?.to_owned(),
            emitted_at: row.text(3)?.to_owned(),
            // Earlier versions stored what they were sent.
            data: document::mended(row.text(4)?).into_owned(),
            lifted: document::lifted(row.maybe_text(5)?)?,
        })
    }

    /// The one that holds.
    pub(crate) fn find(
        tx: &mut dyn Tx,
        collection: &Collection,
        key: &str,
    ) -> Result<Option<Self>> {
        // No key has one, and PostgreSQL takes no text that does.
        if key.contains('\0') {
            return Ok(None);
        }
        let sql = format!(
            "SELECT {STORED} FROM record r WHERE r.subject = ?1 AND r.collection = ?2 AND r.key = ?3
             AND r.until = 9223372036854775807 AND r.deleted = 0"
        );
        tx.one(
            &sql,
            params![collection.subject, collection.no, key],
            Self::read,
        )
    }
}

/// Where a page ended, and at which moment of the stream it was read.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Place {
    v: i64,
    o: String,
    k: String,
    c: String,
}

/// The number of the last change of a subject.
pub(crate) fn latest(tx: &mut dyn Tx, subject: i64) -> Result<i64> {
    let version = tx.one(
        "SELECT version FROM subject WHERE no = ?1",
        params![subject],
        |row| row.int(0),
    )?;
    Ok(version.unwrap_or(0))
}

impl Records {
    /// A page of a stream.
    pub fn list(&self, bearer: &Bearer, query: &ListQuery) -> Result<Page> {
        self.store.reading(|tx| {
            let sights = self.sights_of(tx, bearer, &query.choice, &query.stream)?;
            for sight in &sights {
                filter::check(sight, &query.filters)?;
            }
            let shown = Shown::of(
                &sights,
                bearer,
                query.fields.as_deref(),
                query.view.as_deref(),
            )?;
            let expansions = self.expansions(tx, bearer, &sights, &query.expand)?;
            let order = ordering(&sights, query)?;
            let question = question(query, order);
            let authority = bearer.authority();
            let now = latest(tx, bearer.subject)?;
            let place: Option<Place> = match &query.cursor {
                Some(cursor) => Some(self.seal.open(&authority, &question, "cursor", cursor)?),
                None => None,
            };
            let version = place.as_ref().map_or(now, |place| place.v);
            let ord = place.as_ref().map(|place| {
                BASE64URL_NOPAD
                    .decode(place.o.as_bytes())
                    .unwrap_or_default()
            });
            let mut rows: Vec<(usize, Stored)> = Vec::new();
            let (mut count, mut window) = (0, Window::default());
            for (at, sight) in sights.iter().enumerate() {
                let Some(collection) = &sight.collection else {
                    continue;
                };
                if version < collection.floor {
                    return Err(Error::CursorExpired);
                }
                let tests = Tests::of(sight, &query.filters)?;
                let reading = Reading {
                    collection,
                    tests: &tests,
                    order,
                    version,
                    past: version < now,
                };
                let from = place.as_ref().zip(ord.as_deref()).map(|(place, ord)| From {
                    ord,
                    key: &place.k,
                    including: order.of(sight.connection.id.cmp(&place.c)) == Ordering::Greater,
                });
                let found = reading.rows(tx, from.as_ref(), query.limit + 1)?;
                rows.extend(found.into_iter().map(|row| (at, row)));
                if query.count == Count::Exact || query.window {
                    count += reading.count(tx)?;
                }
                if query.window {
                    window.add(tx, &reading, sight)?;
                }
            }
            let place_of = |(at, row): &(usize, Stored)| {
                (
                    row.ord.clone(),
                    row.key.clone(),
                    sights[*at].connection.id.clone(),
                )
            };
            if sights.len() > 1 {
                rows.sort_by(|a, b| order.of(place_of(a).cmp(&place_of(b))));
            }
            let has_more = rows.len() > query.limit;
            rows.truncate(query.limit);
            let last = rows.last().filter(|_| has_more).map(|(at, row)| Place {
                v: version,
                o: BASE64URL_NOPAD.encode(&row.ord),
                k: row.key.clone(),
                c: sights[*at].connection.id.clone(),
            });
            let next_cursor = last.map(|place| self.seal.close(&authority, &question, &place));
            let next_cursor = next_cursor.transpose()?;
            let mut records = Vec::with_capacity(rows.len());
            for (at, row) in &rows {
                let expanded = expanded_of(tx, row, &expansions[*at])?;
                let json = record_json(
                    tx,
                    &sights[*at],
                    row,
                    |field| shown.shows(&sights[*at], field),
                    &expanded,
                    Among::Others,
                )?;
                records.push(json);
            }
            Ok(Page {
                records,
                has_more,
                next_cursor,
                count: (query.count == Count::Exact).then_some(count),
                window: query.window.then(|| window.json(count)),
            })
        })
    }

    /// One record.
    pub fn record(&self, bearer: &Bearer, query: &RecordQuery) -> Result<Box<RawValue>> {
        self.store.reading(|tx| {
            let sights = self.sights_of(tx, bearer, &query.choice, &query.stream)?;
            let shown = Shown::of(&sights, bearer, query.fields.as_deref(), None)?;
            let expansions = self.expansions(tx, bearer, &sights, &query.expand)?;
            let (at, row) = sole(tx, &sights, &query.id)?;
            let sight = &sights[at];
            let expanded = expanded_of(tx, &row, &expansions[at])?;
            record_json(
                tx,
                sight,
                &row,
                |field| shown.shows(sight, field),
                &expanded,
                Among::Alone,
            )
        })
    }
}

/// The one record of this key that may be seen, and where it is.
pub(crate) fn sole(tx: &mut dyn Tx, sights: &[Sight], key: &str) -> Result<(usize, Stored)> {
    let mut found = Vec::new();
    for (at, sight) in sights.iter().enumerate() {
        let Some(collection) = &sight.collection else {
            continue;
        };
        let Some(row) = Stored::find(tx, collection, key)? else {
            continue;
        };
        if sight.is_whole() || Tests::of(sight, &[])?.hold(&row.key, &row.data, &row.lifted)? {
            found.push((at, row));
        }
    }
    if found.len() > 1 {
        return Err(Error::Ambiguous {
            code: Code::AmbiguousConnection,
            message: format!("record {key} is in several connections"),
            candidates: found
                .iter()
                .map(|(at, _)| sights[*at].candidate())
                .collect(),
        });
    }
    found.pop().ok_or_else(|| {
        Error::NotFound(format!(
            "no record has the id {}",
            rung_ladder::head(key, 100)
        ))
    })
}

/// The order that is meant: a stream has one field to be ordered by.
fn ordering(sights: &[Sight], query: &ListQuery) -> Result<Order> {
    let Some(sort) = &query.sort else {
        return Ok(query.order.unwrap_or_default());
    };
    let (order, field) = match sort.strip_prefix('-') {
        Some(field) => (Order::Desc, field),
        None => (Order::Asc, sort.as_str()),
    };
    let refused = |why: String| Err(Error::refused(Code::InvalidSort, "sort", why));
    for sight in sights {
        let own = sight.stream().cursor_field.as_deref();
        if own != Some(field) {
            let own = own.map_or_else(|| "nothing but its key".to_owned(), str::to_owned);
            return refused(format!(
                "{} is ordered by {own}, not by {}",
                query.stream,
                rung_ladder::head(field, 100)
            ));
        }
    }
    if query.order.is_some_and(|asked| asked != order) {
        return refused("sort and order say different things".to_owned());
    }
    Ok(order)
}

/// What was asked, in one spelling: a bookmark is good for the same question only.
fn question(query: &ListQuery, order: Order) -> String {
    let mut filters = query.filters.clone();
    filters.sort();
    let filters: Vec<Json> = filters
        .iter()
        .map(|one| json!([one.field, one.bound, one.value]))
        .collect();
    let order = order == Order::Asc;
    let choice = (&query.choice.connection_id, &query.choice.connector_id);
    json!(["list", query.stream, order, choice.0, choice.1, filters]).to_string()
}

/// Which fields go out.
pub(crate) struct Shown {
    /// As they were asked for. `None` for all that may be seen.
    named: Option<Vec<String>>,
    /// Whether what every record has goes out in any case.
    with_required: bool,
}

impl Shown {
    pub(crate) fn of(
        sights: &[Sight],
        bearer: &Bearer,
        fields: Option<&[String]>,
        view: Option<&str>,
    ) -> Result<Self> {
        let Some(sight) = sights.first() else {
            return Err(Error::NotFound("no such stream".to_owned()));
        };
        let stream = sight.stream();
        let named = match (fields, view) {
            (Some(_), Some(_)) => return Err(Error::invalid("view", "fields or view, not both")),
            (Some(fields), None) => {
                for field in fields {
                    if stream.field(field).is_none() {
                        let why = format!(
                            "{} has no field {}",
                            stream.name,
                            rung_ladder::head(field, 100)
                        );
                        return Err(Error::refused(Code::UnknownField, "fields", why));
                    }
                    if !sights.iter().any(|sight| sight.shows(field)) {
                        return Err(Error::FieldNotGranted {
                            field: field.clone(),
                            param: "fields",
                        });
                    }
                }
                Some(fields.to_vec())
            }
            (None, Some(view)) => {
                let found = stream.views.iter().find(|own| own.id == view);
                let found = found.ok_or_else(|| {
                    Error::invalid("view", format!("{} has no view {view}", stream.name))
                })?;
                Some(found.fields.clone())
            }
            (None, None) => None,
        };
        Ok(Self {
            named,
            with_required: bearer.is_owner(),
        })
    }

    pub(crate) fn shows(&self, sight: &Sight, field: &str) -> bool {
        let Some(named) = &self.named else {
            return sight.shows(field);
        };
        let required = || {
            sight
                .stream()
                .field(field)
                .is_some_and(|field| field.required)
        };
        sight.shows(field)
            && (named.iter().any(|own| own == field) || self.with_required && required())
    }
}

/// Whether a record is an answer by itself, or one of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Among {
    Alone,
    Others,
}

/// A record as answers have it.
pub(crate) fn record_json(
    tx: &mut dyn Tx,
    sight: &Sight,
    row: &Stored,
    shows: impl Fn(&str) -> bool,
    expanded: &[(String, Box<RawValue>)],
    among: Among,
) -> Result<Box<RawValue>> {
    let mut out = Vec::with_capacity(row.data.len() + 400);
    let member = |out: &mut Vec<u8>, name: &str, value: &Json| -> Result<()> {
        out.push(if out.is_empty() { b'{' } else { b',' });
        serde_json::to_writer(&mut *out, name)?;
        out.push(b':');
        Ok(serde_json::to_writer(&mut *out, value)?)
    };
    member(&mut out, "object", &json!("record"))?;
    member(&mut out, "id", &json!(row.key))?;
    member(&mut out, "stream", &json!(sight.stream().name))?;
    member(&mut out, "emitted_at", &json!(row.emitted_at))?;
    member(&mut out, "connection_id", &json!(sight.connection.id))?;
    member(
        &mut out,
        "connector_instance_id",
        &json!(sight.connection.id),
    )?;
    if let Some(name) = &sight.connection.display_name {
        member(&mut out, "display_name", &json!(name))?;
    }
    out.extend_from_slice(b",\"data\":");
    let start = out.len();
    data_json(tx, sight, row, shows, &mut out)?;
    if among == Among::Alone {
        // Of what is shown: how long the rest is tells of it.
        let bytes = out.len() - start;
        member(
            &mut out,
            "connector_key",
            &json!(sight.connection.connector),
        )?;
        member(&mut out, "record_json_bytes", &json!(bytes))?;
    }
    if !expanded.is_empty() {
        out.extend_from_slice(b",\"expanded\":{");
        for (at, (name, json)) in expanded.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            serde_json::to_writer(&mut out, name)?;
            out.push(b':');
            out.extend_from_slice(json.get().as_bytes());
        }
        out.push(b'}');
    }
    out.push(b'}');
    raw(out)
}

fn raw(json: Vec<u8>) -> Result<Box<RawValue>> {
    let json = String::from_utf8(json).map_err(|error| Error::corrupt("record", error))?;
    Ok(RawValue::from_string(json)?)
}

/// A record's data with what `shows` lets through, long texts and all.
pub(crate) fn data_json(
    tx: &mut dyn Tx,
    sight: &Sight,
    row: &Stored,
    shows: impl Fn(&str) -> bool,
    out: &mut Vec<u8>,
) -> Result<()> {
    let Some(collection) = &sight.collection else {
        return Err(Error::Broken("a record of no collection".to_owned()));
    };
    document::write(
        &row.data,
        &row.lifted,
        shows,
        with_fetch_url,
        |field, out| {
            tx.query(
                "SELECT text FROM chunk WHERE subject = ?1 AND collection = ?2 AND version = ?3 AND field = ?4 ORDER BY start",
                params![collection.subject, collection.no, row.version, field],
                &mut |row| {
                    let piece = std::str::from_utf8(row.bytes(0)?).map_err(|error| Error::corrupt("text", error))?;
                    let start = out.len();
                    serde_json::to_writer(&mut *out, piece)?;
                    // The quotes stand around the whole.
                    out.pop();
                    out.remove(start);
                    Ok(true)
                },
            )
        },
        out,
    )
}

/// Where a blob that is referred to can be had.
fn with_fetch_url(field: &str, value: &RawValue) -> Option<String> {
    if field != "blob_ref" {
        return None;
    }
    let mut blob: Json = serde_json::from_str(value.get()).ok()?;
    let id = blob["blob_id"].as_str()?;
    blob["fetch_url"] = json!(format!("/v1/blobs/{id}"));
    Some(blob.to_string())
}

/// From when until when records are.
#[derive(Default)]
struct Window {
    earliest: Option<Vec<u8>>,
    latest: Option<Vec<u8>>,
}

impl Window {
    fn add(&mut self, tx: &mut dyn Tx, reading: &Reading<'_>, sight: &Sight) -> Result<()> {
        let field = sight.stream().consent_time_field.as_ref();
        // A time that is not granted is not told by its extremes, either.
        let Some(field) = field.filter(|field| sight.shows(field)) else {
            return Ok(());
        };
        let (no, fact) = filter::indexed(reading.collection, field)?;
        for direction in ["ASC", "DESC"] {
            let mut sql = Sql::new("SELECT f.value FROM fact f WHERE f.subject = ");
            sql.bind(reading.collection.subject)
                .push(" AND f.collection = ")
                .bind(reading.collection.no);
            sql.push(" AND f.field = ").bind(no);
            reading
                .tests
                .conditions(&mut sql, reading.collection, "f", None);
            if reading.past {
                sql.push(" AND f.version <= ").bind(reading.version);
            }
            sql.push(&format!(" ORDER BY f.value {direction} LIMIT 1"));
            let found = tx.one(&sql.text, &sql.params, |row| Ok(row.bytes(0)?.to_vec()))?;
            if let Some(key) = found {
                self.widen(key);
            }
        }
        if reading.past {
            reading.superseded(tx, None, &mut |row| {
                let members = document::members(&row.data).unwrap_or_default();
                let value = members.iter().find(|(name, _)| *name == *field);
                let value = value.and_then(|(_, value)| document::scalar(value));
                if let Some(key) = value.and_then(|value| fact_key(&value, fact)) {
                    self.widen(key);
                }
                Ok(true)
            })?;
        }
        Ok(())
    }

    fn widen(&mut self, key: Vec<u8>) {
        if self.earliest.as_ref().is_none_or(|own| key < *own) {
            self.earliest = Some(key.clone());
        }
        if self.latest.as_ref().is_none_or(|own| key > *own) {
            self.latest = Some(key);
        }
    }

    fn json(&self, total: i64) -> Json {
        let mut json = json!({"total": total});
        for (name, key) in [("earliest_at", &self.earliest), ("latest_at", &self.latest)] {
            if let Some(value) = key.as_ref().and_then(|key| crate::key::value(key)) {
                json[name] = value;
            }
        }
        json
    }
}

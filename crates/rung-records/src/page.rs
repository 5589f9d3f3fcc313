//! Reading records: a single one, or pages of a stream across its connections.

use std::cmp::Ordering;

use data_encoding::BASE64URL_NOPAD;
use rung_fault::Code;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

use crate::document::{self, LiftedText};
use crate::expand::read_expansions;
use crate::filter::{self, RecordConditions, RecordFilter, SqlBuilder};
use crate::scan::{CollectionScan, ScanStart};
use crate::scope::{Bearer, Collection, ConnectionFilter, StreamScope};
use crate::store::{SqlRow, Tx, params};
use crate::write::fact_key;
use crate::{Error, Records, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortOrder {
    /// Smallest first.
    Asc,
    /// Greatest first.
    #[default]
    Desc,
}

impl SortOrder {
    pub(crate) fn apply(self, a: Ordering) -> Ordering {
        match self {
            Self::Asc => a,
            Self::Desc => a.reverse(),
        }
    }

    pub(crate) fn sql_terms(self) -> (&'static str, &'static str) {
        match self {
            Self::Asc => (">", "ASC"),
            Self::Desc => ("<", "DESC"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CountMode {
    #[default]
    None,
    Exact,
}

/// The expansions of a request.
#[derive(Debug, Clone, Default)]
pub struct ExpandQuery {
    /// The names of the relationships.
    pub names: Vec<String>,
    /// Maximum number of related records, by relationship.
    pub limits: Vec<(String, u64)>,
}

/// A request for a page of a stream.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    pub stream: String,
    pub choice: ConnectionFilter,
    pub limit: usize,
    pub cursor: Option<String>,
    /// Descending by default.
    pub order: Option<SortOrder>,
    /// The field to sort by, prefixed with `-` for descending order.
    pub sort: Option<String>,
    pub count: CountMode,
    /// True to return the earliest and latest time of all matching records.
    pub window: bool,
    pub fields: Option<Vec<String>>,
    /// A named view, instead of fields.
    pub view: Option<String>,
    pub filters: Vec<RecordFilter>,
    pub expand: ExpandQuery,
}

/// A request for one record.
#[derive(Debug, Clone, Default)]
pub struct RecordQuery {
    pub stream: String,
    pub id: String,
    pub choice: ConnectionFilter,
    pub fields: Option<Vec<String>>,
    pub expand: ExpandQuery,
}

/// A page of records.
#[derive(Debug, Clone)]
pub struct RecordPage {
    /// The records as JSON.
    pub records: Vec<Box<RawValue>>,
    pub has_more: bool,
    pub next_cursor: Option<String>,
    /// Number of all matching records.
    pub count: Option<i64>,
    /// The number, earliest and latest time of all matching records.
    pub window: Option<Json>,
}

/// A stored version of a record.
#[derive(Debug, Clone)]
pub(crate) struct StoredRecord {
    pub(crate) version: i64,
    pub(crate) key: String,
    pub(crate) ord: Vec<u8>,
    pub(crate) emitted_at: String,
    pub(crate) data: String,
    pub(crate) lifted: Vec<LiftedText>,
}

pub(crate) const STORED: &str = "r.version, r.key, r.ord, r.emitted_at, r.data, r.lifted";

impl StoredRecord {
    pub(crate) fn from_row(row: &dyn SqlRow) -> Result<Self> {
        Ok(Self {
            version: row.int(0)?,
            key: row.text(1)?.to_owned(),
            ord: row.bytes(2)?.to_owned(),
            emitted_at: row.text(3)?.to_owned(),
            // Earlier versions of this program stored lone surrogates.
            data: document::replace_lone_surrogates(row.text(4)?).into_owned(),
            lifted: document::parse_lifted(row.maybe_text(5)?)?,
        })
    }

    /// Reads the current version of a record.
    pub(crate) fn find_current(
        tx: &mut dyn Tx,
        collection: &Collection,
        key: &str,
    ) -> Result<Option<Self>> {
        // No key contains NUL, and PostgreSQL text cannot.
        if key.contains('\0') {
            return Ok(None);
        }
        let sql = format!(
            "SELECT {STORED} FROM record r WHERE r.subject = ?1 AND r.collection = ?2 AND r.key = ?3
             AND r.until = 9223372036854775807 AND r.deleted = 0"
        );
        tx.query_one(
            &sql,
            params![collection.subject, collection.no, key],
            Self::from_row,
        )
    }
}

/// The last record of a page and the version of the store that the list reads.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ListPosition {
    v: i64,
    o: String,
    k: String,
    c: String,
}

/// Returns the latest version of a subject.
pub(crate) fn latest_version(tx: &mut dyn Tx, subject: i64) -> Result<i64> {
    let version = tx.query_one(
        "SELECT version FROM subject WHERE no = ?1",
        params![subject],
        |row| row.int(0),
    )?;
    Ok(version.unwrap_or(0))
}

/// Sorts the rows of several connections, each given with the index of its scope, as one list.
fn sort_by_position(rows: &mut [(usize, StoredRecord)], scopes: &[StreamScope], order: SortOrder) {
    let position = |(at, row): &(usize, StoredRecord)| {
        (
            row.ord.clone(),
            row.key.clone(),
            scopes[*at].connection.id.clone(),
        )
    };
    rows.sort_by(|a, b| order.apply(position(a).cmp(&position(b))));
}

impl Records {
    /// Returns a page of a stream.
    pub fn list(&self, bearer: &Bearer, query: &ListQuery) -> Result<RecordPage> {
        self.store.read_tx(|tx| {
            let scopes = self.scopes_of_stream(tx, bearer, &query.choice, &query.stream)?;
            for scope in &scopes {
                filter::check_filters(scope, &query.filters)?;
            }
            let shown = Projection::of(
                &scopes,
                bearer,
                query.fields.as_deref(),
                query.view.as_deref(),
            )?;
            let expansions = self.resolve_expansions(tx, bearer, &scopes, &query.expand)?;
            let order = sort_order(&scopes, query)?;
            let question = canonical_request(query, order);
            let authority = bearer.cursor_authority();
            let now = latest_version(tx, bearer.subject)?;
            let place: Option<ListPosition> = match &query.cursor {
                Some(cursor) => Some(self.seal.open(&authority, &question, "cursor", cursor)?),
                None => None,
            };
            let version = place.as_ref().map_or(now, |place| place.v);
            let ord = place.as_ref().map(|place| {
                BASE64URL_NOPAD
                    .decode(place.o.as_bytes())
                    .unwrap_or_default()
            });
            let mut rows: Vec<(usize, StoredRecord)> = Vec::new();
            let (mut count, mut window) = (0, TimeWindow::default());
            for (at, scope) in scopes.iter().enumerate() {
                let Some(collection) = &scope.collection else {
                    continue;
                };
                if version < collection.floor {
                    return Err(Error::CursorExpired);
                }
                let tests = RecordConditions::build(scope, &query.filters)?;
                let reading = CollectionScan {
                    collection,
                    conditions: &tests,
                    order,
                    version,
                    is_past: version < now,
                };
                let from = place
                    .as_ref()
                    .zip(ord.as_deref())
                    .map(|(place, ord)| ScanStart {
                        ord,
                        key: &place.k,
                        inclusive: order.apply(scope.connection.id.cmp(&place.c))
                            == Ordering::Greater,
                    });
                let found = reading.rows(tx, from.as_ref(), query.limit + 1)?;
                rows.extend(found.into_iter().map(|row| (at, row)));
                if query.count == CountMode::Exact || query.window {
                    count += reading.count(tx)?;
                }
                if query.window {
                    window.add(tx, &reading, scope)?;
                }
            }
            if scopes.len() > 1 {
                sort_by_position(&mut rows, &scopes, order);
            }
            let has_more = rows.len() > query.limit;
            rows.truncate(query.limit);
            let last = rows
                .last()
                .filter(|_| has_more)
                .map(|(at, row)| ListPosition {
                    v: version,
                    o: BASE64URL_NOPAD.encode(&row.ord),
                    k: row.key.clone(),
                    c: scopes[*at].connection.id.clone(),
                });
            let next_cursor = last.map(|place| self.seal.close(&authority, &question, &place));
            let next_cursor = next_cursor.transpose()?;
            let mut records = Vec::with_capacity(rows.len());
            for (at, row) in &rows {
                let expanded = read_expansions(tx, row, &expansions[*at])?;
                let json = record_json(
                    tx,
                    &scopes[*at],
                    row,
                    |field| shown.includes(&scopes[*at], field),
                    &expanded,
                    RecordRendering::ListItem,
                )?;
                records.push(json);
            }
            Ok(RecordPage {
                records,
                has_more,
                next_cursor,
                count: (query.count == CountMode::Exact).then_some(count),
                window: query.window.then(|| window.to_json(count)),
            })
        })
    }

    /// Returns one record.
    pub fn record(&self, bearer: &Bearer, query: &RecordQuery) -> Result<Box<RawValue>> {
        self.store.read_tx(|tx| {
            let scopes = self.scopes_of_stream(tx, bearer, &query.choice, &query.stream)?;
            let shown = Projection::of(&scopes, bearer, query.fields.as_deref(), None)?;
            let expansions = self.resolve_expansions(tx, bearer, &scopes, &query.expand)?;
            let (at, row) = find_one(tx, &scopes, &query.id)?;
            let scope = &scopes[at];
            let expanded = read_expansions(tx, &row, &expansions[at])?;
            record_json(
                tx,
                scope,
                &row,
                |field| shown.includes(scope, field),
                &expanded,
                RecordRendering::Single,
            )
        })
    }
}

/// Finds the visible record with this key, and the index of its scope. Fails if several connections have it.
pub(crate) fn find_one(
    tx: &mut dyn Tx,
    scopes: &[StreamScope],
    key: &str,
) -> Result<(usize, StoredRecord)> {
    let mut found = Vec::new();
    for (at, scope) in scopes.iter().enumerate() {
        let Some(collection) = &scope.collection else {
            continue;
        };
        let Some(row) = StoredRecord::find_current(tx, collection, key)? else {
            continue;
        };
        if scope.is_unrestricted()
            || RecordConditions::build(scope, &[])?.matches(&row.key, &row.data, &row.lifted)?
        {
            found.push((at, row));
        }
    }
    if found.len() > 1 {
        return Err(Error::Ambiguous {
            code: Code::AmbiguousConnection,
            message: format!("record {key} is in several connections"),
            candidates: found
                .iter()
                .map(|(at, _)| scopes[*at].candidate())
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

/// Returns the order of a list. A stream can be sorted by its cursor field only.
fn sort_order(scopes: &[StreamScope], query: &ListQuery) -> Result<SortOrder> {
    let Some(sort) = &query.sort else {
        return Ok(query.order.unwrap_or_default());
    };
    let (order, field) = match sort.strip_prefix('-') {
        Some(field) => (SortOrder::Desc, field),
        None => (SortOrder::Asc, sort.as_str()),
    };
    let refused = |why: String| Err(Error::invalid_with_code(Code::InvalidSort, "sort", why));
    for scope in scopes {
        let own = scope.stream().cursor_field.as_deref();
        if own != Some(field) {
            let own = own.map_or_else(|| "its key only".to_owned(), str::to_owned);
            return refused(format!(
                "{} is ordered by {own}, not by {}",
                query.stream,
                rung_ladder::head(field, 100)
            ));
        }
    }
    if query.order.is_some_and(|asked| asked != order) {
        return refused("sort and order contradict each other".to_owned());
    }
    Ok(order)
}

/// Returns the canonical form of a request, to which its cursors are bound.
fn canonical_request(query: &ListQuery, order: SortOrder) -> String {
    let mut filters = query.filters.clone();
    filters.sort();
    let filters: Vec<Json> = filters
        .iter()
        .map(|one| json!([one.field, one.operator, one.value]))
        .collect();
    let order = order == SortOrder::Asc;
    let choice = (&query.choice.connection_id, &query.choice.connector_id);
    json!(["list", query.stream, order, choice.0, choice.1, filters]).to_string()
}

/// The fields to return.
pub(crate) struct Projection {
    /// The requested fields. `None`: all visible ones.
    requested_fields: Option<Vec<String>>,
    /// True to include required fields that were not requested.
    include_required: bool,
}

impl Projection {
    pub(crate) fn of(
        scopes: &[StreamScope],
        bearer: &Bearer,
        fields: Option<&[String]>,
        view: Option<&str>,
    ) -> Result<Self> {
        let Some(scope) = scopes.first() else {
            return Err(Error::NotFound("no such stream".to_owned()));
        };
        let stream = scope.stream();
        let named = match (fields, view) {
            (Some(_), Some(_)) => {
                return Err(Error::invalid_request(
                    "view",
                    "send fields or view, not both",
                ));
            }
            (Some(fields), None) => {
                for field in fields {
                    if stream.field(field).is_none() {
                        let why = format!(
                            "{} has no field {}",
                            stream.name,
                            rung_ladder::head(field, 100)
                        );
                        let error = Error::invalid_with_code(Code::UnknownField, "fields", why);
                        let known: std::collections::BTreeSet<&str> = scopes
                            .iter()
                            .flat_map(StreamScope::granted_fields)
                            .collect();
                        return Err(error.with_similar_names(field, known));
                    }
                    if !scopes.iter().any(|scope| scope.grants_field(field)) {
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
                    Error::invalid_request("view", format!("{} has no view {view}", stream.name))
                })?;
                Some(found.fields.clone())
            }
            (None, None) => None,
        };
        Ok(Self {
            requested_fields: named,
            include_required: bearer.is_owner(),
        })
    }

    pub(crate) fn includes(&self, scope: &StreamScope, field: &str) -> bool {
        let Some(named) = &self.requested_fields else {
            return scope.grants_field(field);
        };
        let required = || {
            scope
                .stream()
                .field(field)
                .is_some_and(|field| field.required)
        };
        scope.grants_field(field)
            && (named.iter().any(|own| own == field) || self.include_required && required())
    }
}

/// Whether a record is rendered alone or as an item of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordRendering {
    Single,
    ListItem,
}

/// Renders a record for a response.
pub(crate) fn record_json(
    tx: &mut dyn Tx,
    scope: &StreamScope,
    row: &StoredRecord,
    shows: impl Fn(&str) -> bool,
    expanded: &[(String, Box<RawValue>)],
    among: RecordRendering,
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
    member(&mut out, "stream", &json!(scope.stream().name))?;
    member(&mut out, "emitted_at", &json!(row.emitted_at))?;
    member(&mut out, "connection_id", &json!(scope.connection.id))?;
    member(
        &mut out,
        "connector_instance_id",
        &json!(scope.connection.id),
    )?;
    if let Some(name) = &scope.connection.display_name {
        member(&mut out, "display_name", &json!(name))?;
    }
    out.extend_from_slice(b",\"data\":");
    let start = out.len();
    write_data(tx, scope, row, shows, &mut out)?;
    if among == RecordRendering::Single {
        // The size of the visible fields only; the full size would disclose hidden ones.
        let bytes = out.len() - start;
        member(
            &mut out,
            "connector_key",
            &json!(scope.connection.connector),
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
    into_raw_json(out)
}

fn into_raw_json(json: Vec<u8>) -> Result<Box<RawValue>> {
    let json = String::from_utf8(json).map_err(|error| Error::corrupt("record", error))?;
    Ok(RawValue::from_string(json)?)
}

/// Writes the members accepted by `shows`, including long texts.
pub(crate) fn write_data(
    tx: &mut dyn Tx,
    scope: &StreamScope,
    row: &StoredRecord,
    shows: impl Fn(&str) -> bool,
    out: &mut Vec<u8>,
) -> Result<()> {
    let Some(collection) = &scope.collection else {
        return Err(Error::Broken("a record without a collection".to_owned()));
    };
    document::write_object(
        &row.data,
        &row.lifted,
        shows,
        add_fetch_url,
        |field, out| {
            tx.query(
                "SELECT text FROM chunk WHERE subject = ?1 AND collection = ?2 AND version = ?3 AND field = ?4 ORDER BY start",
                params![collection.subject, collection.no, row.version, field],
                &mut |row| {
                    let piece = std::str::from_utf8(row.bytes(0)?).map_err(|error| Error::corrupt("text", error))?;
                    let start = out.len();
                    serde_json::to_writer(&mut *out, piece)?;
                    // Strip the quotes of each chunk; the caller writes those around the whole text.
                    out.pop();
                    out.remove(start);
                    Ok(true)
                },
            )
        },
        out,
    )
}

/// Adds the `fetch_url` to a blob reference.
fn add_fetch_url(field: &str, value: &RawValue) -> Option<String> {
    if field != "blob_ref" {
        return None;
    }
    let mut blob: Json = serde_json::from_str(value.get()).ok()?;
    let id = blob["blob_id"].as_str()?;
    blob["fetch_url"] = json!(format!("/v1/blobs/{id}"));
    Some(blob.to_string())
}

/// The earliest and latest time of matching records, as keys.
#[derive(Default)]
struct TimeWindow {
    earliest: Option<Vec<u8>>,
    latest: Option<Vec<u8>>,
}

impl TimeWindow {
    fn add(
        &mut self,
        tx: &mut dyn Tx,
        reading: &CollectionScan<'_>,
        scope: &StreamScope,
    ) -> Result<()> {
        let field = scope.stream().consent_time_field.as_ref();
        // A time field that is not granted must not be disclosed by its extremes either.
        let Some(field) = field.filter(|field| scope.grants_field(field)) else {
            return Ok(());
        };
        let (no, fact) = filter::indexed_field(reading.collection, field)?;
        for direction in ["ASC", "DESC"] {
            let mut sql = SqlBuilder::new("SELECT f.value FROM fact f WHERE f.subject = ");
            sql.bind(reading.collection.subject)
                .push(" AND f.collection = ")
                .bind(reading.collection.no);
            sql.push(" AND f.field = ").bind(no);
            reading
                .conditions
                .push_conditions(&mut sql, reading.collection, "f", None);
            if reading.is_past {
                sql.push(" AND f.version <= ").bind(reading.version);
            }
            sql.push(&format!(" ORDER BY f.value {direction} LIMIT 1"));
            let found = tx.query_one(&sql.text, &sql.params, |row| Ok(row.bytes(0)?.to_vec()))?;
            if let Some(key) = found {
                self.widen(key);
            }
        }
        if reading.is_past {
            reading.superseded_rows(tx, None, &mut |row| {
                let members = document::members(&row.data).unwrap_or_default();
                let value = members.iter().find(|(name, _)| *name == *field);
                let value = value.and_then(|(_, value)| document::scalar_value(value));
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

    fn to_json(&self, total: i64) -> Json {
        let mut json = json!({"total": total});
        for (name, key) in [("earliest_at", &self.earliest), ("latest_at", &self.latest)] {
            if let Some(value) = key.as_ref().and_then(|key| crate::key::decode_value(key)) {
                json[name] = value;
            }
        }
        json
    }
}

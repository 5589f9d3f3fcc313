//! Reading records: one, or a page of many in one order, whatever connections they are in.

use std::cmp::Ordering;
use std::fmt::Write as _;

use data_encoding::BASE64URL_NOPAD;
use rung_fault::Code;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

use crate::declaration::{Cardinality, Ways};
use crate::document::{self, Lifted};
use crate::filter::{self, Filter, Sql, Test, Tests};
use crate::key::Kind;
use crate::scope::{Bearer, Choice, Collection, Sight};
use crate::store::{Row, Tx, params};
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
    fn of(self, a: Ordering) -> Ordering {
        match self {
            Self::Asc => a,
            Self::Desc => a.reverse(),
        }
    }

    fn sql(self) -> (&'static str, &'static str) {
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
            data: row.text(4)?.to_owned(),
            lifted: document::lifted(row.maybe_text(5)?)?,
        })
    }

    /// The one that holds.
    pub(crate) fn find(
        tx: &mut dyn Tx,
        collection: &Collection,
        key: &str,
    ) -> Result<Option<Self>> {
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

/// Where to go on in one collection.
struct From<'p> {
    ord: &'p [u8],
    key: &'p str,
    /// Whether the place itself is still to come.
    including: bool,
}

/// Rows that are looked at together at most.
const MAX_ROWS: i64 = 2_000;
/// Up to so many matches are sorted; of more, enough are met on the way.
const FEW: i64 = 5_000;

/// One collection's part of a page.
pub(crate) struct Reading<'a> {
    pub(crate) collection: &'a Collection,
    pub(crate) tests: &'a Tests,
    pub(crate) order: Order,
    /// The moment at which it is read.
    pub(crate) version: i64,
    /// Whether something has changed since.
    pub(crate) past: bool,
}

impl Reading<'_> {
    /// The first `limit` rows after a place.
    fn rows(&self, tx: &mut dyn Tx, from: Option<&From<'_>>, limit: usize) -> Result<Vec<Stored>> {
        let mut found = self.current(tx, from, limit)?;
        if self.past {
            found.extend(self.superseded(tx, from, limit)?);
            found.sort_by(|a, b| self.order.of((&a.ord, &a.key).cmp(&(&b.ord, &b.key))));
            found.truncate(limit);
        }
        Ok(found)
    }

    /// Of those that still hold.
    fn current(
        &self,
        tx: &mut dyn Tx,
        from: Option<&From<'_>>,
        limit: usize,
    ) -> Result<Vec<Stored>> {
        let mut found: Vec<Stored> = Vec::new();
        let driver = self.driver(tx)?;
        let mut rows = i64::try_from(limit).unwrap_or(MAX_ROWS).min(MAX_ROWS);
        let mut place: Option<(Vec<u8>, String)> = None;
        loop {
            let next = place.as_ref().map(|(ord, key)| From {
                ord,
                key,
                including: false,
            });
            let mut sql = self.select(driver, next.as_ref().or(from));
            sql.push(" LIMIT ").bind(rows);
            let mut seen = 0;
            let mut last = None;
            let (text, values) = (sql.text, sql.params);
            tx.query(&text, &values, &mut |row| {
                seen += 1;
                let stored = Stored::read(row)?;
                last = Some((stored.ord.clone(), stored.key.clone()));
                if self.tests.hold(&stored.key, &stored.data, &stored.lifted)? {
                    found.push(stored);
                }
                Ok(found.len() < limit)
            })?;
            if found.len() >= limit || seen < rows {
                return Ok(found);
            }
            place = last;
            rows = (rows * 4).min(MAX_ROWS);
        }
    }

    /// The condition by which rows are found, where that is better than to go through all in order.
    fn driver(&self, tx: &mut dyn Tx) -> Result<Option<usize>> {
        let order = self.collection.shape.order.as_ref().map(|(field, _)| field);
        let mut best: Option<(usize, i64)> = None;
        for (at, test) in self.tests.tests.iter().enumerate() {
            if !test.exact && order == Some(&test.fact.field) {
                continue;
            }
            let mut sql = Sql::new("SELECT count(*) FROM (SELECT 1 FROM fact f WHERE f.subject = ");
            sql.bind(self.collection.subject)
                .push(" AND f.collection = ")
                .bind(self.collection.no);
            sql.push(" AND f.field = ").bind(test.no);
            test.range(&mut sql, "f");
            sql.push(" LIMIT ").bind(FEW).push(") few");
            let few = tx
                .one(&sql.text, &sql.params, |row| row.int(0))?
                .unwrap_or(0);
            // A range that lets many through gives them in no useful order.
            if (test.exact || few < FEW) && best.is_none_or(|(_, least)| few < least) {
                best = Some((at, few));
            }
        }
        Ok(best.map(|(at, _)| at))
    }

    fn select<'a>(&'a self, driver: Option<usize>, from: Option<&From<'a>>) -> Sql<'a> {
        let (subject, no) = (self.collection.subject, self.collection.no);
        let (after, direction) = self.order.sql();
        let mut sql = Sql::new(&format!("SELECT {STORED} FROM "));
        let row = if let Some(at) = driver {
            let test = &self.tests.tests[at];
            sql.push("fact f JOIN record r ON r.subject = f.subject AND r.collection = f.collection AND r.version = f.version WHERE f.subject = ");
            sql.bind(subject)
                .push(" AND f.collection = ")
                .bind(no)
                .push(" AND f.field = ")
                .bind(test.no);
            test.range(&mut sql, "f");
            match test.fact.ways {
                Ways::All => "f",
                Ways::Equal => "r",
            }
        } else {
            sql.push("record r WHERE r.subject = ")
                .bind(subject)
                .push(" AND r.collection = ")
                .bind(no);
            sql.push(" AND r.until = 9223372036854775807 AND r.deleted = 0");
            "r"
        };
        // What is asked of the field that orders them is asked of their order.
        let order = self.collection.shape.order.as_ref().map(|(field, _)| field);
        // An empty text is a value, and has no place in the order: what lets it through is left to be checked.
        let bounded = |test: &Test| {
            test.fact.kind != Kind::Text || test.from.as_ref().is_some_and(|from| from.len() > 1)
        };
        let ordering =
            |test: &&Test| !test.exact && order == Some(&test.fact.field) && bounded(test);
        for test in self.tests.tests.iter().filter(ordering) {
            if let Some(from) = &test.from {
                sql.push(&format!(" AND {row}.ord >= "))
                    .bind(from.as_slice());
            }
            if let Some(to) = &test.to {
                sql.push(&format!(" AND {row}.ord < ")).bind(to.as_slice());
            }
        }
        for (at, test) in self.tests.tests.iter().enumerate() {
            if test.exact && Some(at) != driver {
                sql.push(" AND EXISTS (SELECT 1 FROM fact g WHERE g.subject = ")
                    .bind(subject);
                sql.push(" AND g.collection = ")
                    .bind(no)
                    .push(" AND g.field = ")
                    .bind(test.no);
                test.range(&mut sql, "g");
                match test.fact.ways {
                    Ways::All => sql.push(" AND g.ord = r.ord"),
                    Ways::Equal => sql.push(" AND g.ord = ").bind(&[][..]),
                };
                sql.push(" AND g.version = r.version)");
            }
        }
        if let Some(keys) = &self.tests.keys {
            sql.push(" AND r.key IN (");
            for (at, key) in keys.iter().enumerate() {
                sql.push(if at == 0 { "" } else { ", " }).bind(key.as_str());
            }
            sql.push(if keys.is_empty() { "NULL)" } else { ")" });
        }
        if self.past {
            // A sum of one: versions are no way to find these rows, their order is.
            sql.push(" AND +r.version <= ").bind(self.version);
        }
        if let Some(from) = from {
            let equal = if from.including { "=" } else { "" };
            sql.push(&format!(" AND ({row}.ord, r.key) {after}{equal} ("))
                .bind(from.ord);
            sql.push(", ").bind(from.key).push(")");
        }
        let _never_fails = write!(
            sql.text,
            " ORDER BY {row}.ord {direction}, r.key {direction}"
        );
        sql
    }

    /// Of those that held at that moment, and have been followed by others since. What is deleted now is not shown any more.
    fn superseded(
        &self,
        tx: &mut dyn Tx,
        from: Option<&From<'_>>,
        limit: usize,
    ) -> Result<Vec<Stored>> {
        let (after, direction) = self.order.sql();
        let mut sql = Sql::new(&format!("SELECT {STORED} FROM record r WHERE r.subject = "));
        sql.bind(self.collection.subject)
            .push(" AND r.collection = ")
            .bind(self.collection.no);
        sql.push(" AND r.until < 9223372036854775807 AND r.until > ")
            .bind(self.version);
        sql.push(" AND r.version <= ").bind(self.version);
        sql.push(
            " AND r.deleted = 0 AND NOT EXISTS (SELECT 1 FROM record d WHERE d.subject = r.subject
             AND d.collection = r.collection AND d.key = r.key AND d.until = 9223372036854775807 AND d.deleted = 1)",
        );
        if let Some(from) = from {
            let equal = if from.including { "=" } else { "" };
            sql.push(&format!(" AND (r.ord, r.key) {after}{equal} ("))
                .bind(from.ord);
            sql.push(", ").bind(from.key).push(")");
        }
        sql.push(&format!(" ORDER BY r.ord {direction}, r.key {direction}"));
        let mut found = Vec::new();
        tx.query(&sql.text, &sql.params, &mut |row| {
            let stored = Stored::read(row)?;
            if self.tests.hold(&stored.key, &stored.data, &stored.lifted)? {
                found.push(stored);
            }
            Ok(found.len() < limit)
        })?;
        Ok(found)
    }

    /// How many there are.
    pub(crate) fn count(&self, tx: &mut dyn Tx) -> Result<i64> {
        let now = if self.tests.is_empty() && !self.past {
            self.collection.records
        } else {
            let mut sql = self.matching("count(*)");
            if self.past {
                sql.push(" AND r.version <= ").bind(self.version);
            }
            tx.one(&sql.text, &sql.params, |row| row.int(0))?
                .unwrap_or(0)
        };
        let before = if self.past {
            self.superseded(tx, None, usize::MAX)?.len()
        } else {
            0
        };
        Ok(now + i64::try_from(before).unwrap_or(0))
    }

    /// The records that are meant, by the one index that is narrowest to begin with.
    fn matching(&self, what: &str) -> Sql<'_> {
        let (subject, no) = (self.collection.subject, self.collection.no);
        let mut sql = Sql::new("SELECT ");
        // What is in order says more of a row than what is not.
        let ordered = |test: &Test| test.fact.ways == Ways::All;
        let first = self.tests.tests.iter().position(ordered).unwrap_or(0);
        if let Some(test) = self.tests.tests.get(first) {
            sql.push(what)
                .push(" FROM fact r WHERE r.subject = ")
                .bind(subject);
            sql.push(" AND r.collection = ")
                .bind(no)
                .push(" AND r.field = ")
                .bind(test.no);
            test.range(&mut sql, "r");
            self.tests
                .conditions(&mut sql, self.collection, "r", Some(first));
        } else {
            sql.push(what)
                .push(" FROM record r WHERE r.subject = ")
                .bind(subject);
            sql.push(" AND r.collection = ").bind(no);
            sql.push(" AND r.until = 9223372036854775807 AND r.deleted = 0");
            self.tests.conditions(&mut sql, self.collection, "r", None);
        }
        sql
    }
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
        let (no, _) = filter::indexed(reading.collection, field)?;
        for (most, direction) in [(false, "ASC"), (true, "DESC")] {
            let mut sql = Sql::new("SELECT f.value FROM fact f WHERE f.subject = ");
            sql.bind(reading.collection.subject)
                .push(" AND f.collection = ")
                .bind(reading.collection.no);
            sql.push(" AND f.field = ").bind(no);
            reading
                .tests
                .conditions(&mut sql, reading.collection, "f", None);
            sql.push(&format!(" ORDER BY f.value {direction} LIMIT 1"));
            let found = tx.one(&sql.text, &sql.params, |row| Ok(row.bytes(0)?.to_vec()))?;
            if let Some(key) = found {
                let own = if most {
                    &mut self.latest
                } else {
                    &mut self.earliest
                };
                let better = own.as_ref().is_none_or(|own| (key > *own) == most);
                if better {
                    *own = Some(key);
                }
            }
        }
        Ok(())
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

/// What is read along with each record of a sight.
pub(crate) struct Expansion {
    name: String,
    one: bool,
    limit: usize,
    child: Option<Sight>,
    foreign_key: String,
}

impl Records {
    fn expansions(
        &self,
        tx: &mut dyn Tx,
        bearer: &Bearer,
        sights: &[Sight],
        query: &ExpandQuery,
    ) -> Result<Vec<Vec<Expansion>>> {
        let refused = |param, why: String| Error::refused(Code::InvalidExpand, param, why);
        for (name, _) in &query.limits {
            if !query.names.contains(name) {
                return Err(refused(
                    "expand_limit",
                    format!("expand_limit[{name}] without expand={name}"),
                ));
            }
        }
        let mut all = Vec::with_capacity(sights.len());
        for sight in sights {
            let stream = sight.stream();
            let mut own: Vec<Expansion> = Vec::new();
            for name in &query.names {
                if own.iter().any(|other| other.name == *name) {
                    continue;
                }
                let declared = stream
                    .query
                    .expand
                    .iter()
                    .find(|expand| expand.name == *name);
                let relation = stream.relationship(name);
                let (Some(declared), Some(relation)) = (declared, relation) else {
                    let known: Vec<&str> = stream
                        .query
                        .expand
                        .iter()
                        .map(|expand| expand.name.as_str())
                        .collect();
                    let why = format!(
                        "{} has no relation {} to read along, but: {}",
                        stream.name,
                        rung_ladder::head(name, 100),
                        known.join(", ")
                    );
                    return Err(refused("expand", why));
                };
                let one = relation.cardinality == Cardinality::HasOne;
                let asked = query
                    .limits
                    .iter()
                    .find(|(own, _)| own == name)
                    .map(|(_, limit)| *limit);
                if asked.is_some() && one {
                    return Err(refused(
                        "expand_limit",
                        format!("{name} is one at most, and takes no limit"),
                    ));
                }
                if asked.is_some_and(|limit| limit == 0 || limit > declared.max_limit) {
                    return Err(refused(
                        "expand_limit",
                        format!("expand_limit[{name}]: 1 to {}", declared.max_limit),
                    ));
                }
                if let Some(grant) = bearer.grant() {
                    let Some(granted) = grant.stream(&relation.stream) else {
                        return Err(Error::ScopeInsufficient(format!(
                            "{name} lies in stream {}, which is not in this grant",
                            relation.stream
                        )));
                    };
                    if !granted.instance_ids.contains(&sight.connection.id) {
                        return Err(Error::ConnectionNotFound);
                    }
                }
                let choice = Choice {
                    connection_id: Some(sight.connection.id.clone()),
                    connector_id: None,
                };
                let child = self.sights_of(tx, bearer, &choice, &relation.stream)?.pop();
                if let Some(child) = &child
                    && !child.shows(&relation.foreign_key)
                {
                    return Err(Error::FieldNotGranted {
                        field: relation.foreign_key.clone(),
                        param: "expand",
                    });
                }
                let limit = if one {
                    1
                } else {
                    asked.unwrap_or(declared.default_limit)
                };
                own.push(Expansion {
                    name: name.clone(),
                    one,
                    limit: usize::try_from(limit).unwrap_or(1),
                    child,
                    foreign_key: relation.foreign_key.clone(),
                });
            }
            all.push(own);
        }
        Ok(all)
    }
}

#[derive(Serialize)]
struct Children<'a> {
    object: &'static str,
    data: &'a [Box<RawValue>],
    has_more: bool,
}

/// What belongs to a record, by the names under which it is read along.
fn expanded_of(
    tx: &mut dyn Tx,
    row: &Stored,
    expansions: &[Expansion],
) -> Result<Vec<(String, Box<RawValue>)>> {
    let mut all = Vec::with_capacity(expansions.len());
    for expansion in expansions {
        let mut records = Vec::new();
        let mut has_more = false;
        // A key that the other stream's field cannot hold belongs to nothing there.
        let holds = |child: &&Sight| {
            let kind = child.stream().kind(&expansion.foreign_key);
            kind.is_some_and(|kind| crate::key::parse(&row.key, kind).is_some())
        };
        if let Some((child, collection)) = expansion
            .child
            .as_ref()
            .filter(holds)
            .and_then(|child| Some((child, child.collection.as_ref()?)))
        {
            let filter = Filter {
                field: expansion.foreign_key.clone(),
                bound: None,
                value: row.key.clone(),
            };
            let tests = Tests::of(child, &[filter])?;
            let reading = Reading {
                collection,
                tests: &tests,
                order: Order::Asc,
                version: i64::MAX,
                past: false,
            };
            let mut rows = reading.rows(tx, None, expansion.limit + 1)?;
            has_more = rows.len() > expansion.limit;
            rows.truncate(expansion.limit);
            for row in &rows {
                records.push(record_json(
                    tx,
                    child,
                    row,
                    |field| child.shows(field),
                    &[],
                    Among::Others,
                )?);
            }
        }
        let json = if expansion.one {
            match records.pop() {
                Some(record) => record,
                None => RawValue::from_string("null".to_owned())?,
            }
        } else {
            serde_json::value::to_raw_value(&Children {
                object: "list",
                data: &records,
                has_more,
            })?
        };
        all.push((expansion.name.clone(), json));
    }
    Ok(all)
}

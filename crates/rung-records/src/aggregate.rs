//! Aggregates over the indexed fields. Does not read the records themselves.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::ToSpan as _;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use rung_fault::Code;
use serde_json::{Number, Value as Json, json};

use crate::document;
use crate::filter::{self, RecordConditions, RecordFilter, SqlBuilder};
use crate::key::CalendarTime;
use crate::page::SortOrder;
use crate::scan::CollectionScan;
use crate::scope::{Bearer, Collection, ConnectionFilter, StreamScope};
use crate::store::Tx;
use crate::{Error, Records, Result, key};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    Count,
    Sum,
    Min,
    Max,
    CountDistinct,
}

impl Metric {
    /// Returns the name used in requests and responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::CountDistinct => "count_distinct",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        let all = [
            Self::Count,
            Self::Sum,
            Self::Min,
            Self::Max,
            Self::CountDistinct,
        ];
        all.into_iter().find(|metric| metric.name() == name)
    }
}

/// Width of a time bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
}

impl Granularity {
    /// Returns the name used in requests and responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Quarter => "quarter",
            Self::Year => "year",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        let all = [
            Self::Minute,
            Self::Hour,
            Self::Day,
            Self::Week,
            Self::Month,
            Self::Quarter,
            Self::Year,
        ];
        all.into_iter()
            .find(|granularity| granularity.name() == name)
    }

    /// Returns the start of the bucket that contains the local time `at`.
    fn bucket_start(self, at: DateTime) -> DateTime {
        let day = at.date();
        let first = |month: i8| {
            Date::new(day.year(), month, 1)
                .unwrap_or(day)
                .at(0, 0, 0, 0)
        };
        match self {
            Self::Minute => day.at(at.hour(), at.minute(), 0, 0),
            Self::Hour => day.at(at.hour(), 0, 0, 0),
            Self::Day => day.at(0, 0, 0, 0),
            Self::Week => {
                let back = i32::from(day.weekday().to_monday_zero_offset());
                day.checked_sub(back.days()).unwrap_or(day).at(0, 0, 0, 0)
            }
            Self::Month => first(day.month()),
            Self::Quarter => first((day.month() - 1) / 3 * 3 + 1),
            Self::Year => first(1),
        }
    }

    fn next_bucket(self, start: DateTime) -> Option<DateTime> {
        let step = match self {
            Self::Minute => 1.minute(),
            Self::Hour => 1.hour(),
            Self::Day => 1.day(),
            Self::Week => 1.week(),
            Self::Month => 1.month(),
            Self::Quarter => 3.months(),
            Self::Year => 1.year(),
        };
        start.checked_add(step).ok()
    }

    /// Formats the start of a bucket as its label.
    fn bucket_label(self, start: DateTime) -> String {
        let date = start.date();
        match self {
            Self::Minute => format!("{date}T{:02}:{:02}", start.hour(), start.minute()),
            Self::Hour => format!("{date}T{:02}:00", start.hour()),
            _ => date.to_string(),
        }
    }
}

/// A request for one aggregate of a stream.
#[derive(Debug, Clone)]
pub struct AggregateQuery {
    pub stream: String,
    pub choice: ConnectionFilter,
    pub metric: Metric,
    /// The aggregated field. `count` takes none.
    pub field: Option<String>,
    /// Groups by the value of this field.
    pub group_by: Option<String>,
    /// Groups by the time in this field.
    pub group_by_time: Option<(String, Granularity)>,
    /// IANA time zone of the time buckets. UTC by default.
    pub time_zone: Option<String>,
    /// Maximum number of groups.
    pub limit: Option<usize>,
    pub filters: Vec<RecordFilter>,
}

/// Number of groups if the request sets no limit.
const DEFAULT_GROUPS: usize = 10;

/// One stream of one connection, with the conditions that apply to it.
struct AggregatePart<'a> {
    scope: &'a StreamScope,
    collection: &'a Collection,
    conditions: RecordConditions,
}

impl Records {
    /// Computes an aggregate or its groups.
    pub fn aggregate(&self, bearer: &Bearer, query: &AggregateQuery) -> Result<Json> {
        self.store.read_tx(|tx| {
            let scopes = self.scopes_of_stream(tx, bearer, &query.choice, &query.stream)?;
            for scope in &scopes {
                check_allowed(scope, query)?;
                filter::check_filters(scope, &query.filters)?;
            }
            let mut parts = Vec::new();
            for scope in &scopes {
                if let Some(collection) = &scope.collection {
                    let tests = RecordConditions::build(scope, &query.filters)?;
                    parts.push(AggregatePart {
                        scope,
                        collection,
                        conditions: tests,
                    });
                }
            }
            let mut total = 0;
            for part in &parts {
                total += part.count_records(tx)?;
            }
            let mut answer = json!({
                "object": "aggregation",
                "stream": query.stream,
                "metric": query.metric.name(),
                "field": query.field,
                "group_by": query.group_by,
                "group_by_time": query.group_by_time.as_ref().map(|(field, _)| field),
                "granularity": query.group_by_time.as_ref().map(|(_, granularity)| granularity.name()),
                "time_zone": query.group_by_time.as_ref().map(|_| query.time_zone.as_deref().unwrap_or("UTC")),
                "approximate": false,
                "filtered_record_count": total,
            });
            let limit = query.limit.unwrap_or(DEFAULT_GROUPS);
            if let Some(field) = &query.group_by {
                let (groups, other) = group_by_value(tx, &parts, field, total, limit)?;
                answer["groups"] = groups;
                answer["limit"] = json!(limit);
                answer["other_count"] = json!(other);
            } else if let Some((field, granularity)) = &query.group_by_time {
                let zone = parse_time_zone(query.time_zone.as_deref())?;
                let (groups, other) = group_by_time(tx, &parts, field, *granularity, &zone, total, limit)?;
                answer["groups"] = groups;
                answer["limit"] = json!(limit);
                answer["other_count"] = json!(other);
            } else {
                answer["value"] = match (query.metric, &query.field) {
                    (Metric::Count, _) | (_, None) => json!(total),
                    (Metric::Sum, Some(field)) => sum(tx, &parts, field)?,
                    (Metric::Min, Some(field)) => extreme(tx, &parts, field, false)?,
                    (Metric::Max, Some(field)) => extreme(tx, &parts, field, true)?,
                    (Metric::CountDistinct, Some(field)) => distinct(tx, &parts, field)?,
                };
            }
            Ok(answer)
        })
    }
}

/// Checks that every part of the request is declared for the stream and visible to the caller.
fn check_allowed(scope: &StreamScope, query: &AggregateQuery) -> Result<()> {
    let own = &scope.stream().query.aggregations;
    let check = |param: &'static str, field: &str, list: &[String]| {
        if scope.stream().field(field).is_none() {
            let why = format!(
                "{} has no field {}",
                scope.stream().name,
                rung_ladder::head(field, 100)
            );
            let error = Error::invalid_with_code(Code::UnknownField, param, why);
            return Err(error.with_similar_names(field, scope.granted_fields()));
        }
        if !scope.grants_field(field) {
            return Err(Error::FieldNotGranted {
                field: field.to_owned(),
                param,
            });
        }
        if !list.iter().any(|own| own == field) {
            let known: Vec<&str> = list
                .iter()
                .map(String::as_str)
                .filter(|own| scope.grants_field(own))
                .collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            return Err(Error::invalid_request(
                param,
                format!("{field} is not declared for this aggregate; declared: {known}"),
            ));
        }
        Ok(())
    };
    match (query.metric, &query.field) {
        (Metric::Count, Some(_)) => {
            return Err(Error::invalid_request("field", "count takes no field"));
        }
        (Metric::Count, None) => {
            if !own.count {
                return Err(Error::invalid_request(
                    "metric",
                    "count is not declared for this stream",
                ));
            }
        }
        (metric, None) => {
            return Err(Error::invalid_request(
                "field",
                format!("{} needs a field", metric.name()),
            ));
        }
        (Metric::Sum, Some(field)) => check("field", field, &own.sum)?,
        (Metric::Min, Some(field)) => check("field", field, &own.min)?,
        (Metric::Max, Some(field)) => check("field", field, &own.max)?,
        (Metric::CountDistinct, Some(field)) => check("field", field, &own.count_distinct)?,
    }
    if (query.group_by.is_some() || query.group_by_time.is_some()) && query.metric != Metric::Count
    {
        return Err(Error::invalid_request("metric", "groups need metric=count"));
    }
    if let Some(field) = &query.group_by {
        check("group_by", field, &own.group_by)?;
    }
    if let Some((field, _)) = &query.group_by_time {
        check("group_by_time", field, &own.group_by_time)?;
    }
    Ok(())
}

fn parse_time_zone(name: Option<&str>) -> Result<TimeZone> {
    match name {
        None => Ok(TimeZone::UTC),
        Some(name) => TimeZone::get(name).map_err(|_| {
            let why = format!(
                "time_zone: {} is not a time zone of the IANA list",
                rung_ladder::head(name, 100)
            );
            Error::invalid_request("time_zone", why)
        }),
    }
}

impl AggregatePart<'_> {
    fn count_records(&self, tx: &mut dyn Tx) -> Result<i64> {
        let reading = CollectionScan {
            collection: self.collection,
            conditions: &self.conditions,
            order: SortOrder::Asc,
            version: i64::MAX,
            is_past: false,
        };
        reading.count(tx)
    }

    /// Builds a query that selects `what` from the index of a field, for the matching records.
    fn index_query(&self, what: &str, field: &str) -> Result<SqlBuilder<'_>> {
        let (no, _) = filter::indexed_field(self.collection, field)?;
        let mut sql = SqlBuilder::new(&format!("SELECT {what} FROM fact f WHERE f.subject = "));
        sql.bind(self.collection.subject)
            .push(" AND f.collection = ")
            .bind(self.collection.no);
        sql.push(" AND f.field = ").bind(no);
        self.conditions
            .push_conditions(&mut sql, self.collection, "f", None);
        Ok(sql)
    }

    /// Decodes an index key. A text too long for a key is read from the record.
    fn decode_value(&self, tx: &mut dyn Tx, key: &[u8], version: i64, field: &str) -> Result<Json> {
        if let Some(value) = key::decode_value(key) {
            return Ok(value);
        }
        let found = tx.query_one(
            "SELECT data, lifted FROM record WHERE subject = ?1 AND collection = ?2 AND version = ?3",
            crate::store::params![self.collection.subject, self.collection.no, version],
            |row| {
                let lifted = document::parse_lifted(row.maybe_text(1)?)?;
                let lifted = lifted.iter().any(|long| long.field == field);
                let data = document::replace_lone_surrogates(row.text(0)?);
                Ok((serde_json::from_str::<Json>(&data)?, lifted))
            },
        )?;
        match found {
            None => Ok(Json::Null),
            Some((_, true)) => Ok(Json::String(document::read_lifted_text(
                tx,
                self.collection,
                version,
                field,
            )?)),
            Some((mut data, false)) => Ok(data[field].take()),
        }
    }
}

fn group_by_value(
    tx: &mut dyn Tx,
    parts: &[AggregatePart<'_>],
    field: &str,
    total: i64,
    limit: usize,
) -> Result<(Json, i64)> {
    let mut counts: HashMap<String, (Json, i64)> = HashMap::new();
    let mut known = 0;
    for part in parts {
        let mut sql = part.index_query("f.value, count(*), max(f.version)", field)?;
        sql.push(" GROUP BY f.value");
        let rows = tx.query_all(&sql.text, &sql.params, |row| {
            Ok((row.bytes(0)?.to_vec(), row.int(1)?, row.int(2)?))
        })?;
        for (key, count, version) in rows {
            let value = part.decode_value(tx, &key, version, field)?;
            known += count;
            counts.entry(value.to_string()).or_insert((value, 0)).1 += count;
        }
    }
    if total > known {
        counts.insert("null".to_owned(), (Json::Null, total - known));
    }
    let mut counts: Vec<(String, (Json, i64))> = counts.into_iter().collect();
    counts.sort_by(|a, b| (-a.1.1, &a.0).cmp(&(-b.1.1, &b.0)));
    let other = counts.iter().skip(limit).map(|(_, (_, count))| count).sum();
    let groups: Vec<Json> = counts
        .into_iter()
        .take(limit)
        .map(|(_, (key, count))| json!({"key": key, "count": count}))
        .collect();
    Ok((groups.into(), other))
}

fn group_by_time(
    tx: &mut dyn Tx,
    parts: &[AggregatePart<'_>],
    field: &str,
    granularity: Granularity,
    zone: &TimeZone,
    total: i64,
    limit: usize,
) -> Result<(Json, i64)> {
    let mut counts: BTreeMap<DateTime, i64> = BTreeMap::new();
    // True if there may be later buckets than those counted.
    let mut cut = false;
    for part in parts {
        let field_of = part.scope.stream().field(field);
        let zone = match field_of {
            Some(field) if field.date_only => &TimeZone::UTC,
            _ => zone,
        };
        // Returns the start of a bucket and the first key after the bucket.
        let stretch = |at: CalendarTime| {
            let start = granularity.bucket_start(at.to_civil(zone));
            let end = granularity.next_bucket(start);
            let end = end.map(|end| key::moment_key(CalendarTime::from_civil(end, zone)));
            (start, end.unwrap_or_else(|| key::TIME_KEYS.1.to_vec()))
        };
        if part.conditions.is_empty() {
            // Per bucket, one query finds its start and one counts its records. Stops at the number of groups returned.
            let mut from = key::TIME_KEYS.0.to_vec();
            for shown in 0..=limit {
                cut |= shown == limit;
                let mut sql = part.index_query("f.value", field)?;
                sql.push(" AND f.value >= ")
                    .bind(&from)
                    .push(" AND f.value < ")
                    .bind(key::TIME_KEYS.1);
                sql.push(" ORDER BY f.value LIMIT 1");
                let first = tx.query_one(&sql.text, &sql.params, |row| {
                    Ok(key::decode_moment(row.bytes(0)?))
                })?;
                let Some(first) = first.flatten() else {
                    break;
                };
                let (start, to) = stretch(first);
                let mut sql = part.index_query("count(*)", field)?;
                sql.push(" AND f.value >= ")
                    .bind(&from)
                    .push(" AND f.value < ")
                    .bind(&to);
                *counts.entry(start).or_default() += tx
                    .query_one(&sql.text, &sql.params, |row| row.int(0))?
                    .unwrap_or(0);
                from = to;
            }
            continue;
        }
        let mut sql = part.index_query("f.value, count(*)", field)?;
        sql.push(" AND f.value >= ")
            .bind(key::TIME_KEYS.0)
            .push(" AND f.value < ")
            .bind(key::TIME_KEYS.1);
        sql.push(" GROUP BY f.value ORDER BY f.value");
        let mut now: Option<(DateTime, Vec<u8>)> = None;
        tx.query(&sql.text, &sql.params, &mut |row| {
            let (value, count) = (row.bytes(0)?, row.int(1)?);
            let same = now
                .as_ref()
                .filter(|(_, end)| value < end.as_slice())
                .map(|(start, _)| *start);
            let start = if let Some(start) = same {
                start
            } else {
                let Some(at) = key::decode_moment(value) else {
                    return Ok(true);
                };
                let (start, end) = stretch(at);
                now = Some((start, end));
                start
            };
            *counts.entry(start).or_default() += count;
            Ok(true)
        })?;
    }
    let mut groups: Vec<(Json, i64)> = counts
        .into_iter()
        .map(|(start, count)| (json!(granularity.bucket_label(start)), count))
        .collect();
    let timed: i64 = groups.iter().map(|(_, count)| count).sum();
    if !cut && total > timed {
        groups.push((Json::Null, total - timed));
    }
    groups.truncate(limit);
    let shown: i64 = groups.iter().map(|(_, count)| count).sum();
    let groups: Vec<Json> = groups
        .into_iter()
        .map(|(key, count)| json!({"key": key, "count": count}))
        .collect();
    Ok((groups.into(), total - shown))
}

fn sum(tx: &mut dyn Tx, parts: &[AggregatePart<'_>], field: &str) -> Result<Json> {
    let (mut whole, mut broken, mut lost, mut any, mut exact) = (0i128, 0f64, 0f64, false, true);
    for part in parts {
        let mut sql = part.index_query("f.value, count(*)", field)?;
        sql.push(" GROUP BY f.value");
        tx.query(&sql.text, &sql.params, &mut |row| {
            let Some(Json::Number(number)) = key::decode_value(row.bytes(0)?) else {
                return Ok(true);
            };
            any = true;
            let count = row.int(1)?;
            let integer = number
                .as_i64()
                .map(i128::from)
                .or_else(|| number.as_u64().map(i128::from));
            if let Some(integer) = integer {
                whole += integer * i128::from(count);
            } else {
                exact = false;
                #[allow(clippy::cast_precision_loss)]
                let count = count as f64;
                // Neumaier summation: the rounding error of each step is added back at the end.
                let added = number.as_f64().unwrap_or(0.0) * count;
                let next = broken + added;
                lost += if broken.abs() >= added.abs() {
                    (broken - next) + added
                } else {
                    (added - next) + broken
                };
                broken = next;
            }
            Ok(true)
        })?;
    }
    if !any {
        return Ok(Json::Null);
    }
    if exact && let Ok(whole) = i64::try_from(whole) {
        return Ok(json!(whole));
    }
    #[allow(clippy::cast_precision_loss)]
    let all = whole as f64 + (broken + lost);
    Ok(Number::from_f64(all).map_or(Json::Null, Json::Number))
}

fn extreme(tx: &mut dyn Tx, parts: &[AggregatePart<'_>], field: &str, most: bool) -> Result<Json> {
    let direction = if most { "DESC" } else { "ASC" };
    let mut best: Option<(Vec<u8>, Json)> = None;
    for part in parts {
        let mut sql = part.index_query("f.value, f.version", field)?;
        sql.push(&format!(" ORDER BY f.value {direction} LIMIT 1"));
        let found = tx.query_one(&sql.text, &sql.params, |row| {
            Ok((row.bytes(0)?.to_vec(), row.int(1)?))
        })?;
        if let Some((key, version)) = found
            && best.as_ref().is_none_or(|(own, _)| (key > *own) == most)
        {
            let value = part.decode_value(tx, &key, version, field)?;
            best = Some((key, value));
        }
    }
    Ok(best.map_or(Json::Null, |(_, value)| value))
}

fn distinct(tx: &mut dyn Tx, parts: &[AggregatePart<'_>], field: &str) -> Result<Json> {
    if let [part] = parts {
        let sql = part.index_query("count(DISTINCT f.value)", field)?;
        return Ok(json!(
            tx.query_one(&sql.text, &sql.params, |row| row.int(0))?
                .unwrap_or(0)
        ));
    }
    let mut all: HashSet<Vec<u8>> = HashSet::new();
    for part in parts {
        let sql = part.index_query("DISTINCT f.value", field)?;
        tx.query(&sql.text, &sql.params, &mut |row| {
            all.insert(row.bytes(0)?.to_vec());
            Ok(true)
        })?;
    }
    Ok(json!(all.len()))
}

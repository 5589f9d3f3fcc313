//! Counting and summing, from what records are found by: no record is opened for it.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::ToSpan as _;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use rung_fault::Code;
use serde_json::{Number, Value as Json, json};

use crate::document;
use crate::filter::{self, Filter, Sql, Tests};
use crate::key::Moment;
use crate::page::Order;
use crate::reading::Reading;
use crate::scope::{Bearer, Choice, Collection, Sight};
use crate::store::Tx;
use crate::{Error, Records, Result, key};

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Records.
    Count,
    /// The sum of a field.
    Sum,
    /// Its least value.
    Min,
    /// Its greatest value.
    Max,
    /// How many different values it has.
    CountDistinct,
}

impl Metric {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::CountDistinct => "count_distinct",
        }
    }

    /// The metric of this name.
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

/// How long a stretch of time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
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
    /// The word for it.
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

    /// The granularity of this name.
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

    /// The beginning of the stretch that a moment of the clock on the wall is in.
    fn floor(self, at: DateTime) -> DateTime {
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

    fn next(self, start: DateTime) -> Option<DateTime> {
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

    /// The stretch's name.
    fn label(self, start: DateTime) -> String {
        let date = start.date();
        match self {
            Self::Minute => format!("{date}T{:02}:{:02}", start.hour(), start.minute()),
            Self::Hour => format!("{date}T{:02}:00", start.hour()),
            _ => date.to_string(),
        }
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Aggregate {
    /// The stream.
    pub stream: String,
    /// Of which connections.
    pub choice: Choice,
    /// What is computed.
    pub metric: Metric,
    /// Of which field.
    pub field: Option<String>,
    /// For each value of this one.
    pub group_by: Option<String>,
    /// For each stretch of time in this one.
    pub group_by_time: Option<(String, Granularity)>,
    /// By the clocks of this place.
    pub time_zone: Option<String>,
    /// How many groups.
    pub limit: Option<usize>,
    /// Of which records.
    pub filters: Vec<Filter>,
}

/// Groups where nobody says how many.
const DEFAULT_GROUPS: usize = 10;

/// One collection's part.
struct Part<'a> {
    sight: &'a Sight,
    collection: &'a Collection,
    tests: Tests,
}

impl Records {
    /// Counts or sums.
    pub fn aggregate(&self, bearer: &Bearer, query: &Aggregate) -> Result<Json> {
        self.store.reading(|tx| {
            let sights = self.sights_of(tx, bearer, &query.choice, &query.stream)?;
            for sight in &sights {
                allowed(sight, query)?;
                filter::check(sight, &query.filters)?;
            }
            let mut parts = Vec::new();
            for sight in &sights {
                if let Some(collection) = &sight.collection {
                    let tests = Tests::of(sight, &query.filters)?;
                    parts.push(Part {
                        sight,
                        collection,
                        tests,
                    });
                }
            }
            let mut total = 0;
            for part in &parts {
                total += part.total(tx)?;
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
                let (groups, other) = grouped(tx, &parts, field, total, limit)?;
                answer["groups"] = groups;
                answer["limit"] = json!(limit);
                answer["other_count"] = json!(other);
            } else if let Some((field, granularity)) = &query.group_by_time {
                let zone = zone(query.time_zone.as_deref())?;
                let (groups, other) = by_time(tx, &parts, field, *granularity, &zone, total, limit)?;
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

/// Whether this may be asked: every part of it declared, and granted.
fn allowed(sight: &Sight, query: &Aggregate) -> Result<()> {
    let own = &sight.stream().query.aggregations;
    let check = |param: &'static str, field: &str, list: &[String]| {
        if sight.stream().field(field).is_none() {
            let why = format!(
                "{} has no field {}",
                sight.stream().name,
                rung_ladder::head(field, 100)
            );
            return Err(Error::refused(Code::UnknownField, param, why));
        }
        if !sight.shows(field) {
            return Err(Error::FieldNotGranted {
                field: field.to_owned(),
                param,
            });
        }
        if !list.iter().any(|own| own == field) {
            let known: Vec<&str> = list
                .iter()
                .map(String::as_str)
                .filter(|own| sight.shows(own))
                .collect();
            let known = if known.is_empty() {
                "no field is".to_owned()
            } else {
                known.join(", ")
            };
            return Err(Error::invalid(
                param,
                format!("{field} is not declared for this; declared: {known}"),
            ));
        }
        Ok(())
    };
    match (query.metric, &query.field) {
        (Metric::Count, Some(_)) => return Err(Error::invalid("field", "count takes no field")),
        (Metric::Count, None) => {
            if !own.count {
                return Err(Error::invalid(
                    "metric",
                    "count is not declared for this stream",
                ));
            }
        }
        (metric, None) => {
            return Err(Error::invalid(
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
        return Err(Error::invalid("metric", "groups are counted: metric=count"));
    }
    if let Some(field) = &query.group_by {
        check("group_by", field, &own.group_by)?;
    }
    if let Some((field, _)) = &query.group_by_time {
        check("group_by_time", field, &own.group_by_time)?;
    }
    Ok(())
}

fn zone(name: Option<&str>) -> Result<TimeZone> {
    match name {
        None => Ok(TimeZone::UTC),
        Some(name) => TimeZone::get(name).map_err(|_| {
            let why = format!(
                "time_zone: {} is no time zone of the IANA list",
                rung_ladder::head(name, 100)
            );
            Error::invalid("time_zone", why)
        }),
    }
}

impl Part<'_> {
    fn total(&self, tx: &mut dyn Tx) -> Result<i64> {
        let reading = Reading {
            collection: self.collection,
            tests: &self.tests,
            order: Order::Asc,
            version: i64::MAX,
            past: false,
        };
        reading.count(tx)
    }

    /// What is asked of the facts of a field, for the records that are meant.
    fn of(&self, what: &str, field: &str) -> Result<Sql<'_>> {
        let (no, _) = filter::indexed(self.collection, field)?;
        let mut sql = Sql::new(&format!("SELECT {what} FROM fact f WHERE f.subject = "));
        sql.bind(self.collection.subject)
            .push(" AND f.collection = ")
            .bind(self.collection.no);
        sql.push(" AND f.field = ").bind(no);
        self.tests.conditions(&mut sql, self.collection, "f", None);
        Ok(sql)
    }

    /// The value of a key; of a text too long for one, from a record that has it.
    fn value(&self, tx: &mut dyn Tx, key: &[u8], version: i64, field: &str) -> Result<Json> {
        if let Some(value) = key::value(key) {
            return Ok(value);
        }
        let found = tx.one(
            "SELECT data, lifted FROM record WHERE subject = ?1 AND collection = ?2 AND version = ?3",
            crate::store::params![self.collection.subject, self.collection.no, version],
            |row| {
                let lifted = document::lifted(row.maybe_text(1)?)?;
                let lifted = lifted.iter().any(|long| long.field == field);
                let data = document::mended(row.text(0)?);
                Ok((serde_json::from_str::<Json>(&data)?, lifted))
            },
        )?;
        match found {
            None => Ok(Json::Null),
            Some((_, true)) => Ok(Json::String(document::whole(
                tx,
                self.collection,
                version,
                field,
            )?)),
            Some((mut data, false)) => Ok(data[field].take()),
        }
    }
}

fn grouped(
    tx: &mut dyn Tx,
    parts: &[Part<'_>],
    field: &str,
    total: i64,
    limit: usize,
) -> Result<(Json, i64)> {
    let mut counts: HashMap<String, (Json, i64)> = HashMap::new();
    let mut known = 0;
    for part in parts {
        let mut sql = part.of("f.value, count(*), max(f.version)", field)?;
        sql.push(" GROUP BY f.value");
        let rows = tx.all(&sql.text, &sql.params, |row| {
            Ok((row.bytes(0)?.to_vec(), row.int(1)?, row.int(2)?))
        })?;
        for (key, count, version) in rows {
            let value = part.value(tx, &key, version, field)?;
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

fn by_time(
    tx: &mut dyn Tx,
    parts: &[Part<'_>],
    field: &str,
    granularity: Granularity,
    zone: &TimeZone,
    total: i64,
    limit: usize,
) -> Result<(Json, i64)> {
    let mut counts: BTreeMap<DateTime, i64> = BTreeMap::new();
    // Whether there may be later stretches than those that were counted.
    let mut cut = false;
    for part in parts {
        let field_of = part.sight.stream().field(field);
        let zone = match field_of {
            Some(field) if field.date_only => &TimeZone::UTC,
            _ => zone,
        };
        // Where a stretch begins, and the first key after it.
        let stretch = |at: Moment| {
            let start = granularity.floor(at.to_civil(zone));
            let end = granularity.next(start);
            let end = end.map(|end| key::moment_key(Moment::from_civil(end, zone)));
            (start, end.unwrap_or_else(|| key::TIMES.1.to_vec()))
        };
        if part.tests.is_empty() {
            // One look at where a stretch begins, one at how many are in it. More than are shown is never needed.
            let mut from = key::TIMES.0.to_vec();
            for shown in 0..=limit {
                cut |= shown == limit;
                let mut sql = part.of("f.value", field)?;
                sql.push(" AND f.value >= ")
                    .bind(&from)
                    .push(" AND f.value < ")
                    .bind(key::TIMES.1);
                sql.push(" ORDER BY f.value LIMIT 1");
                let first = tx.one(&sql.text, &sql.params, |row| {
                    Ok(key::instant(row.bytes(0)?))
                })?;
                let Some(first) = first.flatten() else {
                    break;
                };
                let (start, to) = stretch(first);
                let mut sql = part.of("count(*)", field)?;
                sql.push(" AND f.value >= ")
                    .bind(&from)
                    .push(" AND f.value < ")
                    .bind(&to);
                *counts.entry(start).or_default() += tx
                    .one(&sql.text, &sql.params, |row| row.int(0))?
                    .unwrap_or(0);
                from = to;
            }
            continue;
        }
        let mut sql = part.of("f.value, count(*)", field)?;
        sql.push(" AND f.value >= ")
            .bind(key::TIMES.0)
            .push(" AND f.value < ")
            .bind(key::TIMES.1);
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
                let Some(at) = key::instant(value) else {
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
        .map(|(start, count)| (json!(granularity.label(start)), count))
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

fn sum(tx: &mut dyn Tx, parts: &[Part<'_>], field: &str) -> Result<Json> {
    let (mut whole, mut broken, mut lost, mut any, mut exact) = (0i128, 0f64, 0f64, false, true);
    for part in parts {
        let mut sql = part.of("f.value, count(*)", field)?;
        sql.push(" GROUP BY f.value");
        tx.query(&sql.text, &sql.params, &mut |row| {
            let Some(Json::Number(number)) = key::value(row.bytes(0)?) else {
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
                // What each step rounds away is kept, and given back in the end.
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

fn extreme(tx: &mut dyn Tx, parts: &[Part<'_>], field: &str, most: bool) -> Result<Json> {
    let direction = if most { "DESC" } else { "ASC" };
    let mut best: Option<(Vec<u8>, Json)> = None;
    for part in parts {
        let mut sql = part.of("f.value, f.version", field)?;
        sql.push(&format!(" ORDER BY f.value {direction} LIMIT 1"));
        let found = tx.one(&sql.text, &sql.params, |row| {
            Ok((row.bytes(0)?.to_vec(), row.int(1)?))
        })?;
        if let Some((key, version)) = found
            && best.as_ref().is_none_or(|(own, _)| (key > *own) == most)
        {
            let value = part.value(tx, &key, version, field)?;
            best = Some((key, value));
        }
    }
    Ok(best.map_or(Json::Null, |(_, value)| value))
}

fn distinct(tx: &mut dyn Tx, parts: &[Part<'_>], field: &str) -> Result<Json> {
    if let [part] = parts {
        let sql = part.of("count(DISTINCT f.value)", field)?;
        return Ok(json!(
            tx.one(&sql.text, &sql.params, |row| row.int(0))?
                .unwrap_or(0)
        ));
    }
    let mut all: HashSet<Vec<u8>> = HashSet::new();
    for part in parts {
        let sql = part.of("DISTINCT f.value", field)?;
        tx.query(&sql.text, &sql.params, &mut |row| {
            all.insert(row.bytes(0)?.to_vec());
            Ok(true)
        })?;
    }
    Ok(json!(all.len()))
}

//! `GET /v1/streams/{stream}/aggregate`

use rung_records::{Aggregate, Bearer, Error, Granularity, Metric};

use crate::answer::Answer;
use crate::service::{Asked, Service};

const KNOWN: [&str; 12] = [
    "metric",
    "field",
    "group_by",
    "group_by_time",
    "granularity",
    "time_zone",
    "limit",
    "filter",
    "connection_id",
    "connector_instance_id",
    "connector_id",
    "subject_id",
];

pub(super) fn get(service: &Service, bearer: &Bearer, asked: &Asked) -> Result<Answer, Error> {
    let params = &asked.params;
    params.only(&KNOWN)?;
    asked.core_only(service, bearer, &["filter"])?;
    let (choice, alias) = asked.one_source(bearer)?;
    let text = |name| params.one(name).map(|value| value.map(str::to_owned));
    let metric = params.one("metric")?.and_then(Metric::named);
    let metric = metric.ok_or_else(|| {
        Error::invalid("metric", "metric: count, sum, min, max or count_distinct")
    })?;
    let (group_by, group_by_time) = (text("group_by")?, text("group_by_time")?);
    if group_by.is_some() && group_by_time.is_some() {
        return Err(Error::invalid(
            "group_by",
            "group_by or group_by_time, not both",
        ));
    }
    let granularity = match (&group_by_time, params.one("granularity")?) {
        (None, None) => None,
        (None, Some(_)) => {
            return Err(Error::invalid(
                "granularity",
                "granularity needs group_by_time",
            ));
        }
        (Some(_), word) => {
            let known = word.and_then(Granularity::named);
            let why = "granularity: minute, hour, day, week, month, quarter or year";
            Some(known.ok_or_else(|| Error::invalid("granularity", why))?)
        }
    };
    let time_zone = text("time_zone")?;
    if time_zone.is_some() && group_by_time.is_none() {
        return Err(Error::invalid("time_zone", "time_zone needs group_by_time"));
    }
    let limit = match params.one("limit")? {
        None => None,
        Some(_) if group_by.is_none() && group_by_time.is_none() => {
            return Err(Error::invalid(
                "limit",
                "limit is of groups: it needs group_by or group_by_time",
            ));
        }
        Some(text) => {
            let limit = text
                .parse::<usize>()
                .ok()
                .filter(|limit| (1..=100).contains(limit));
            Some(limit.ok_or_else(|| Error::invalid("limit", "limit: 1 to 100"))?)
        }
    };
    let query = Aggregate {
        stream: asked.name(0).to_owned(),
        choice,
        metric,
        field: text("field")?,
        group_by,
        group_by_time: group_by_time.zip(granularity),
        time_zone,
        limit,
        filters: params.filters()?,
    };
    let mut answer = Answer::of(&service.records().aggregate(bearer, &query)?)?;
    if alias {
        answer.warnings.alias();
    }
    Ok(answer.showing(Some(&query.stream), 0))
}

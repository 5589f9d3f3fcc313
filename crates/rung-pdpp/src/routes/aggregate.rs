//! `GET /v1/streams/{stream}/aggregate`

use rung_records::{AggregateQuery, Bearer, Error, Granularity, Metric};

use crate::envelope::RouteResponse;
use crate::service::{RouteRequest, Service};

const PARAMS: [&str; 12] = [
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

pub(super) fn get(
    service: &Service,
    bearer: &Bearer,
    asked: &RouteRequest,
) -> Result<RouteResponse, Error> {
    let params = &asked.params;
    params.reject_unknown(&PARAMS)?;
    asked.check_strict_mode(service, bearer, &["filter"])?;
    let (choice, alias) = asked.required_source(bearer)?;
    let text = |name| params.single(name).map(|value| value.map(str::to_owned));
    let metric = params.single("metric")?.and_then(Metric::named);
    let metric = metric.ok_or_else(|| {
        Error::invalid_request(
            "metric",
            "metric must be count, sum, min, max or count_distinct",
        )
    })?;
    let (group_by, group_by_time) = (text("group_by")?, text("group_by_time")?);
    if group_by.is_some() && group_by_time.is_some() {
        return Err(Error::invalid_request(
            "group_by",
            "send group_by or group_by_time, not both",
        ));
    }
    let granularity = match (&group_by_time, params.single("granularity")?) {
        (None, None) => None,
        (None, Some(_)) => {
            return Err(Error::invalid_request(
                "granularity",
                "granularity needs group_by_time",
            ));
        }
        (Some(_), word) => {
            let known = word.and_then(Granularity::named);
            let why = "granularity must be minute, hour, day, week, month, quarter or year";
            Some(known.ok_or_else(|| Error::invalid_request("granularity", why))?)
        }
    };
    let time_zone = text("time_zone")?;
    if time_zone.is_some() && group_by_time.is_none() {
        return Err(Error::invalid_request(
            "time_zone",
            "time_zone needs group_by_time",
        ));
    }
    let limit = match params.single("limit")? {
        None => None,
        Some(_) if group_by.is_none() && group_by_time.is_none() => {
            return Err(Error::invalid_request(
                "limit",
                "limit limits the groups: it needs group_by or group_by_time",
            ));
        }
        Some(text) => {
            let limit = text
                .parse::<usize>()
                .ok()
                .filter(|limit| (1..=100).contains(limit));
            Some(limit.ok_or_else(|| Error::invalid_request("limit", "limit must be 1 to 100"))?)
        }
    };
    let query = AggregateQuery {
        stream: asked.path_param(0).to_owned(),
        choice,
        metric,
        field: text("field")?,
        group_by,
        group_by_time: group_by_time.zip(granularity),
        time_zone,
        limit,
        filters: params.filters()?,
    };
    let mut answer = RouteResponse::object(&service.records().aggregate(bearer, &query)?)?;
    if alias {
        answer.warnings.add_deprecated_alias();
    }
    Ok(answer.with_disclosure(Some(&query.stream), 0))
}

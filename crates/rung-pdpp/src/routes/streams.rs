//! `GET /v1/streams` and `GET /v1/streams/{stream}`

use rung_records::{Bearer, Error};

use crate::envelope::RouteResponse;
use crate::service::{RouteRequest, Service};

const PARAMS: [&str; 4] = [
    "connection_id",
    "connector_instance_id",
    "connector_id",
    "subject_id",
];

pub(super) fn list(
    service: &Service,
    bearer: &Bearer,
    asked: &RouteRequest,
) -> Result<RouteResponse, Error> {
    asked.params.reject_unknown(&PARAMS)?;
    let (choice, alias) = asked.choice(bearer)?;
    let streams = service.records().streams(bearer, &choice)?;
    let mut answer = RouteResponse::list(&asked.path, &streams, None, None)?;
    if alias {
        answer.warnings.add_deprecated_alias();
    }
    Ok(answer)
}

pub(super) fn get(
    service: &Service,
    bearer: &Bearer,
    asked: &RouteRequest,
) -> Result<RouteResponse, Error> {
    asked.params.reject_unknown(&PARAMS)?;
    let (choice, alias) = asked.choice(bearer)?;
    let mut answer = RouteResponse::object(&service.records().stream(
        bearer,
        asked.path_param(0),
        &choice,
    )?)?;
    if alias {
        answer.warnings.add_deprecated_alias();
    }
    Ok(answer)
}

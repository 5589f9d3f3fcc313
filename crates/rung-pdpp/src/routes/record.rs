//! `GET` and `DELETE /v1/streams/{stream}/records/{id}`

use axum::http::StatusCode;
use rung_records::{Bearer, Error, RecordQuery};

use super::records::{parse_expand, parse_target};
use crate::envelope::RouteResponse;
use crate::service::{RouteRequest, Service};

pub(super) fn get(
    service: &Service,
    bearer: &Bearer,
    asked: &RouteRequest,
) -> Result<RouteResponse, Error> {
    let params = &asked.params;
    params.reject_unknown(&[
        "fields",
        "expand",
        "expand_limit",
        "connection_id",
        "connector_instance_id",
        "connector_id",
        "subject_id",
    ])?;
    asked.check_strict_mode(service, bearer, &["expand", "expand_limit"])?;
    let (choice, alias) = asked.required_source(bearer)?;
    let stream = asked.path_param(0).to_owned();
    let query = RecordQuery {
        stream: stream.clone(),
        id: asked.path_param(1).to_owned(),
        choice,
        fields: params.list("fields")?,
        expand: parse_expand(params)?,
    };
    let record = service.records().record(bearer, &query)?;
    let mut answer = RouteResponse::object(&record)?;
    if alias {
        answer.warnings.add_deprecated_alias();
    }
    Ok(answer.with_disclosure(Some(&stream), 1))
}

pub(super) fn delete(
    service: &Service,
    bearer: &Bearer,
    asked: &RouteRequest,
) -> Result<RouteResponse, Error> {
    bearer.require_owner()?;
    service
        .records()
        .delete_records(bearer, &parse_target(asked)?, Some(asked.path_param(1)))?;
    Ok(RouteResponse {
        status: StatusCode::NO_CONTENT,
        ..RouteResponse::default()
    })
}

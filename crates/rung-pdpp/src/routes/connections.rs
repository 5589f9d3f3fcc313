//! `/v1/connections`: the accounts that an owner collects from.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use rung_records::{Bearer, ConnectionChange, Error};
use serde::Deserialize;

use crate::envelope::{self, RouteResponse};
use crate::service::{RouteRequest, Service, handle_buffered};

/// Bytes of a request body, at most.
const MAX_BYTES: usize = 64 * 1024;

pub(super) fn list(
    service: &Service,
    bearer: &Bearer,
    asked: &RouteRequest,
) -> Result<RouteResponse, Error> {
    asked.params.reject_unknown(&[])?;
    let all = service.records().connections(bearer)?;
    let all: Vec<_> = all
        .iter()
        .map(rung_records::SourceConnection::to_json)
        .collect();
    RouteResponse::list(&asked.path, &all, None, None)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PutConnection {
    connector_id: String,
    #[serde(default)]
    display_name: Option<String>,
}

pub(super) async fn put(
    State(service): State<Arc<Service>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    handle_buffered(
        service,
        "put_connection",
        MAX_BYTES,
        request,
        move |service, arrived, body| {
            let bearer = service.authenticate(arrived)?;
            bearer.require_owner()?;
            let put: PutConnection = parse_body(body)?;
            let (connection, is_new) = service.records().put_connection(
                &bearer,
                &id,
                &put.connector_id,
                put.display_name.as_deref(),
            )?;
            let status = if is_new {
                StatusCode::CREATED
            } else {
                StatusCode::OK
            };
            Ok(envelope::json_response(
                status,
                connection.to_json().to_string(),
            ))
        },
    )
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PatchConnection {
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    display_name: Option<String>,
}

pub(super) async fn patch(
    State(service): State<Arc<Service>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    handle_buffered(
        service,
        "change_connection",
        MAX_BYTES,
        request,
        move |service, arrived, body| {
            let bearer = service.authenticate(arrived)?;
            bearer.require_owner()?;
            let patch: PatchConnection = parse_body(body)?;
            let change = ConnectionChange {
                status: patch.status,
                display_name: patch.display_name,
            };
            let connection = service.records().update_connection(&bearer, &id, &change)?;
            Ok(envelope::json_response(
                StatusCode::OK,
                connection.to_json().to_string(),
            ))
        },
    )
    .await
}

pub(super) fn delete(
    service: &Service,
    bearer: &Bearer,
    asked: &RouteRequest,
) -> Result<RouteResponse, Error> {
    asked.params.reject_unknown(&[])?;
    service
        .records()
        .revoke_connection(bearer, asked.path_param(0))?;
    Ok(RouteResponse {
        status: StatusCode::NO_CONTENT,
        ..RouteResponse::default()
    })
}

fn parse_body<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Error> {
    serde_json::from_slice(body)
        .map_err(|error| Error::invalid_request("", format!("the body cannot be read: {error}")))
}

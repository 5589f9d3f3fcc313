//! `GET /v1/connectors`, `GET /connectors/{connector}` and `POST /connectors`, which registers a connector manifest.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use rung_records::{Bearer, Error};
use serde_json::{Value, json};

use crate::envelope::{self, RouteResponse};
use crate::service::{RequestHead, RouteRequest, Service, handle_buffered};

/// Bytes of a manifest, at most.
const MAX_BYTES: usize = 8 * 1024 * 1024;

pub(super) fn list(
    service: &Service,
    bearer: &Bearer,
    asked: &RouteRequest,
) -> Result<RouteResponse, Error> {
    asked.params.reject_unknown(&[])?;
    RouteResponse::list(
        &asked.path,
        &service.records().connectors(bearer)?,
        None,
        None,
    )
}

pub(super) async fn register(State(service): State<Arc<Service>>, request: Request) -> Response {
    handle_buffered(
        service,
        "register",
        MAX_BYTES,
        request,
        |service, arrived, body| {
            if !service.without_login {
                service.authenticate(arrived)?.require_owner()?;
            }
            let body: Value = serde_json::from_slice(body).map_err(|error| {
                Error::invalid_request("", format!("the body is not valid JSON: {error}"))
            })?;
            let declared = service.records().register_source(body)?;
            let told =
                json!({"connector_id": declared.connector, "connector_key": declared.connector});
            Ok(envelope::json_response(
                StatusCode::CREATED,
                told.to_string(),
            ))
        },
    )
    .await
}

pub(super) async fn get(
    State(service): State<Arc<Service>>,
    Path(connector): Path<String>,
    request: Request,
) -> Response {
    handle_buffered(
        service,
        "connector",
        0,
        request,
        move |service, arrived: &RequestHead, _| {
            if !service.without_login {
                service.authenticate(arrived)?.require_owner()?;
            }
            let told = service.records().connector_declaration(&connector)?;
            Ok(envelope::json_response(StatusCode::OK, told.to_string()))
        },
    )
    .await
}

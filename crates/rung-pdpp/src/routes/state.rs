//! `GET` and `PUT /v1/state/{connector}`

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use rung_records::{Bearer, Error};
use serde_json::{Map, Value, json};

use crate::envelope::{self, RouteResponse};
use crate::params::QueryParams;
use crate::service::{RouteRequest, Service, handle_buffered};

const PARAMS: [&str; 3] = ["grant_id", "connector_instance_id", "connection_id"];
/// Bytes of a state, at most.
const MAX_BYTES: usize = 4 * 1024 * 1024;

pub(super) fn get(
    service: &Service,
    bearer: &Bearer,
    asked: &RouteRequest,
) -> Result<RouteResponse, Error> {
    bearer.require_owner()?;
    asked.params.reject_unknown(&PARAMS)?;
    let (choice, _) = asked.params.choice()?;
    let grant = asked.params.single("grant_id")?;
    let connector = asked.path_param(0);
    let state =
        service
            .records()
            .state(bearer, connector, choice.connection_id.as_deref(), grant)?;
    RouteResponse::object(
        &json!({"object": "connector_state", "connector_id": connector, "state": state}),
    )
}

pub(super) async fn put(
    State(service): State<Arc<Service>>,
    Path(connector): Path<String>,
    request: Request,
) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    handle_buffered(
        service,
        "put_state",
        MAX_BYTES,
        request,
        move |service, arrived, body| {
            let bearer = service.authenticate(arrived)?;
            bearer.require_owner()?;
            let params = QueryParams::parse(&query)?;
            params.reject_unknown(&PARAMS)?;
            let (choice, _) = params.choice()?;
            let body: Value = serde_json::from_slice(body).map_err(|error| {
                Error::invalid_request("", format!("the body is not valid JSON: {error}"))
            })?;
            let state: &Map<String, Value> = body["state"].as_object().ok_or_else(|| {
                Error::invalid_request(
                    "state",
                    "state must be an object with a member for each stream",
                )
            })?;
            let (connection, grant) = (choice.connection_id.as_deref(), params.single("grant_id")?);
            service
                .records()
                .put_state(&bearer, &connector, connection, grant, state)?;
            let now = service
                .records()
                .state(&bearer, &connector, connection, grant)?;
            let told =
                json!({"object": "connector_state", "connector_id": connector, "state": now});
            Ok(envelope::json_response(StatusCode::OK, told.to_string()))
        },
    )
    .await
}

//! `GET` and `PUT /v1/state/{connector}`

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use rung_records::{Bearer, Error};
use serde_json::{Map, Value, json};

use crate::answer::{self, Answer};
use crate::params::Params;
use crate::service::{Asked, Service, whole};

const KNOWN: [&str; 3] = ["grant_id", "connector_instance_id", "connection_id"];
/// Bytes of a state.
const MAX_BYTES: usize = 4 * 1024 * 1024;

pub(super) fn get(service: &Service, bearer: &Bearer, asked: &Asked) -> Result<Answer, Error> {
    bearer.require_owner()?;
    asked.params.only(&KNOWN)?;
    let (choice, _) = asked.params.choice()?;
    let grant = asked.params.one("grant_id")?;
    let connector = asked.name(0);
    let state =
        service
            .records()
            .state(bearer, connector, choice.connection_id.as_deref(), grant)?;
    Answer::of(&json!({"object": "connector_state", "connector_id": connector, "state": state}))
}

pub(super) async fn put(
    State(service): State<Arc<Service>>,
    Path(connector): Path<String>,
    request: Request,
) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    whole(
        service,
        "put_state",
        MAX_BYTES,
        request,
        move |service, arrived, body| {
            let bearer = service.admit(arrived)?;
            bearer.require_owner()?;
            let params = Params::read(&query)?;
            params.only(&KNOWN)?;
            let (choice, _) = params.choice()?;
            let body: Value = serde_json::from_slice(body)
                .map_err(|error| Error::invalid("", format!("the body is no JSON: {error}")))?;
            let state: &Map<String, Value> = body["state"].as_object().ok_or_else(|| {
                Error::invalid(
                    "state",
                    "state: an object is needed, with a member for each stream",
                )
            })?;
            let (connection, grant) = (choice.connection_id.as_deref(), params.one("grant_id")?);
            service
                .records()
                .put_state(&bearer, &connector, connection, grant, state)?;
            let now = service
                .records()
                .state(&bearer, &connector, connection, grant)?;
            let told =
                json!({"object": "connector_state", "connector_id": connector, "state": now});
            Ok(answer::json_response(StatusCode::OK, told.to_string()))
        },
    )
    .await
}

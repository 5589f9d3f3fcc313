//! `GET /v1/connectors`, and `POST /connectors`, by which a source declares itself.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use rung_records::{Bearer, Error};
use serde_json::{Value, json};

use crate::answer::{self, Answer};
use crate::service::{Arrived, Asked, Service, whole};

/// Bytes of a declaration.
const MAX_BYTES: usize = 8 * 1024 * 1024;

pub(super) fn list(service: &Service, bearer: &Bearer, asked: &Asked) -> Result<Answer, Error> {
    asked.params.only(&[])?;
    Answer::list(
        &asked.path,
        &service.records().connectors(bearer)?,
        None,
        None,
    )
}

pub(super) async fn register(State(service): State<Arc<Service>>, request: Request) -> Response {
    whole(
        service,
        "register",
        MAX_BYTES,
        request,
        |service, arrived, body| {
            if !service.without_login {
                service.admit(arrived)?.require_owner()?;
            }
            let body: Value = serde_json::from_slice(body)
                .map_err(|error| Error::invalid("", format!("the body is no JSON: {error}")))?;
            let declared = service.records().register(body)?;
            let told =
                json!({"connector_id": declared.connector, "connector_key": declared.connector});
            Ok(answer::json_response(StatusCode::CREATED, told.to_string()))
        },
    )
    .await
}

pub(super) async fn get(
    State(service): State<Arc<Service>>,
    Path(connector): Path<String>,
    request: Request,
) -> Response {
    whole(
        service,
        "connector",
        0,
        request,
        move |service, arrived: &Arrived, _| {
            if !service.without_login {
                service.admit(arrived)?.require_owner()?;
            }
            let told = service.records().connector(&connector)?;
            Ok(answer::json_response(StatusCode::OK, told.to_string()))
        },
    )
    .await
}

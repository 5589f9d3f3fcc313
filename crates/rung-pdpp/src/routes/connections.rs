//! `/v1/connections`: the accounts that an owner collects from.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use rung_records::{Bearer, ConnectionChange, Error};
use serde::Deserialize;

use crate::answer::{self, Answer};
use crate::service::{Asked, Service, whole};

/// Bytes of what is said of a connection.
const MAX_BYTES: usize = 64 * 1024;

pub(super) fn list(service: &Service, bearer: &Bearer, asked: &Asked) -> Result<Answer, Error> {
    asked.params.only(&[])?;
    let all = service.records().connections(bearer)?;
    let all: Vec<_> = all.iter().map(rung_records::Connection::json).collect();
    Answer::list(&asked.path, &all, None, None)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Put {
    connector_id: String,
    #[serde(default)]
    display_name: Option<String>,
}

pub(super) async fn put(
    State(service): State<Arc<Service>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    whole(
        service,
        "put_connection",
        MAX_BYTES,
        request,
        move |service, arrived, body| {
            let bearer = service.admit(arrived)?;
            bearer.require_owner()?;
            let put: Put = read(body)?;
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
            Ok(answer::json_response(status, connection.json().to_string()))
        },
    )
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
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
    whole(
        service,
        "change_connection",
        MAX_BYTES,
        request,
        move |service, arrived, body| {
            let bearer = service.admit(arrived)?;
            bearer.require_owner()?;
            let patch: Patch = read(body)?;
            let change = ConnectionChange {
                status: patch.status,
                display_name: patch.display_name,
            };
            let connection = service.records().change_connection(&bearer, &id, &change)?;
            Ok(answer::json_response(
                StatusCode::OK,
                connection.json().to_string(),
            ))
        },
    )
    .await
}

pub(super) fn delete(service: &Service, bearer: &Bearer, asked: &Asked) -> Result<Answer, Error> {
    asked.params.only(&[])?;
    service.records().revoke_connection(bearer, asked.name(0))?;
    Ok(Answer {
        status: StatusCode::NO_CONTENT,
        ..Answer::default()
    })
}

fn read<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Error> {
    serde_json::from_slice(body)
        .map_err(|error| Error::invalid("", format!("the body cannot be read: {error}")))
}

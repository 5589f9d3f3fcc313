//! `/oauth/register`: an application that was not known says what it is.

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use rung_records::Error;
use serde_json::Value;

use super::session;
use super::visit::{self, Visit};
use crate::service::Service;

pub(super) fn post(service: &Service, visit: &Visit) -> Result<Response, Error> {
    if !visit.is_json {
        return Err(Error::invalid("", "a JSON object is needed"));
    }
    let told = Value::Object(visit.fields.clone());
    let card = service.records().register_client(&told)?;
    Ok(visit::json(
        StatusCode::CREATED,
        &serde_json::to_value(card)?,
    ))
}

pub(super) fn change(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let owner = session::deciding(service, visit)?;
    let told = Value::Object(visit.fields.clone());
    let card = service
        .records()
        .change_client(&owner, &visit.names[0], &told)?;
    Ok(visit::json(StatusCode::OK, &serde_json::to_value(card)?))
}

pub(super) fn remove(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let owner = session::deciding(service, visit)?;
    service.records().remove_client(&owner, &visit.names[0])?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

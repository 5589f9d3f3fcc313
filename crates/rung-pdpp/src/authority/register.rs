//! `/oauth/register`: dynamic client registration (RFC 7591).

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use rung_records::Error;
use serde_json::Value;

use super::form_request::{self, FormRequest};
use super::session;
use crate::service::Service;

pub(super) fn post(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    if !visit.is_json {
        return Err(Error::invalid_request("", "the body must be a JSON object"));
    }
    let told = Value::Object(visit.fields.clone());
    let card = service.records().register_client(&told)?;
    Ok(form_request::json_response(
        StatusCode::CREATED,
        &serde_json::to_value(card)?,
    ))
}

pub(super) fn update(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let owner = session::require_owner(service, visit)?;
    let told = Value::Object(visit.fields.clone());
    let card = service
        .records()
        .update_client(&owner, &visit.path_params[0], &told)?;
    Ok(form_request::json_response(
        StatusCode::OK,
        &serde_json::to_value(card)?,
    ))
}

pub(super) fn remove(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let owner = session::require_owner(service, visit)?;
    service
        .records()
        .remove_client(&owner, &visit.path_params[0])?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

//! `POST /introspect`: token introspection (RFC 7662) for remote resource servers.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use data_encoding::BASE64;
use rung_records::Error;
use serde_json::json;

use super::form_request::{self, FormRequest};
use crate::service::Service;

pub(super) fn post(service: &Service, visit: &FormRequest) -> Result<Response, Error> {
    let Some((name, secret)) = basic_credentials(visit) else {
        return Ok(unauthorized());
    };
    if !service.records().is_resource_server(&name, &secret)? {
        return Ok(unauthorized());
    }
    let known = service
        .records()
        .introspect(visit.required_text("token")?)?;
    let issuer = service.issuer(&visit.head);
    let resource = service.resource_url(&visit.head);
    Ok(form_request::json_response(
        StatusCode::OK,
        &known.to_response(&issuer, &resource),
    ))
}

fn basic_credentials(visit: &FormRequest) -> Option<(String, String)> {
    let (scheme, shown) = visit.header(header::AUTHORIZATION)?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = BASE64.decode(shown.trim().as_bytes()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (name, secret) = text.split_once(':')?;
    Some((name.to_owned(), secret.to_owned()))
}

fn unauthorized() -> Response {
    let body = json!({"error": {
        "type": "authentication_error", "code": "context.authentication_failed",
        "message": "only a registered resource server may introspect tokens",
        "hint": "create credentials with `rung pdpp resource-server NAME`",
    }});
    let mut response = form_request::json_response(StatusCode::UNAUTHORIZED, &body);
    let challenge = HeaderValue::from_static("Basic realm=\"introspection\"");
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, challenge);
    response
}

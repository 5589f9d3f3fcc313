//! `POST /introspect`: a resource server elsewhere asks what a token is.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use data_encoding::BASE64;
use rung_records::Error;
use serde_json::json;

use super::visit::{self, Visit};
use crate::service::Service;

pub(super) fn post(service: &Service, visit: &Visit) -> Result<Response, Error> {
    let Some((name, secret)) = credentials(visit) else {
        return Ok(refused());
    };
    if !service.records().is_resource_server(&name, &secret)? {
        return Ok(refused());
    }
    let known = service.records().introspect(visit.need("token")?)?;
    let issuer = service.issuer(&visit.arrived);
    let resource = service.resource(&visit.arrived);
    Ok(visit::json(StatusCode::OK, &known.told(&issuer, &resource)))
}

fn credentials(visit: &Visit) -> Option<(String, String)> {
    let (scheme, shown) = visit.header(header::AUTHORIZATION)?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = BASE64.decode(shown.trim().as_bytes()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (name, secret) = text.split_once(':')?;
    Some((name.to_owned(), secret.to_owned()))
}

fn refused() -> Response {
    let body = json!({"error": {
        "type": "authentication_error", "code": "context.authentication_failed",
        "message": "only a resource server that is known may ask this",
        "hint": "`rung pdpp resource-server new NAME` makes credentials for it",
    }});
    let mut response = visit::json(StatusCode::UNAUTHORIZED, &body);
    let challenge = HeaderValue::from_static("Basic realm=\"introspection\"");
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, challenge);
    response
}

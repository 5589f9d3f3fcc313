//! `GET /`: what is served here, for whoever does not know yet.

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use serde_json::json;

use crate::answer::{self, VERSION};

pub(super) async fn get(request: Request) -> Response {
    let accept = request.headers().get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    // People are shown where people go.
    if accept.is_some_and(|accept| accept.contains("text/html")) {
        return Redirect::to("/owner/grants").into_response();
    }
    let told = json!({
        "object": "discovery",
        "pdpp_version": VERSION,
        "links": {
            "schema": "/v1/schema",
            "streams": "/v1/streams",
            "connectors": "/v1/connectors",
            "search": "/v1/search",
            "mcp": "/mcp",
            "protected_resource_metadata": "/.well-known/oauth-protected-resource",
        },
    });
    answer::json_response(StatusCode::OK, told.to_string())
}

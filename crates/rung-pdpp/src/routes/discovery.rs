//! `GET /`: the discovery document.

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use serde_json::json;

use crate::envelope::{self, PDPP_VERSION};

pub(super) async fn get(request: Request) -> Response {
    let accept = request.headers().get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    // Browsers are sent to the owner's pages.
    if accept.is_some_and(|accept| accept.contains("text/html")) {
        return Redirect::to("/owner/grants").into_response();
    }
    let told = json!({
        "object": "discovery",
        "pdpp_version": PDPP_VERSION,
        "links": {
            "schema": "/v1/schema",
            "streams": "/v1/streams",
            "connectors": "/v1/connectors",
            "search": "/v1/search",
            "mcp": "/mcp",
            "protected_resource_metadata": "/.well-known/oauth-protected-resource",
        },
    });
    envelope::json_response(StatusCode::OK, told.to_string())
}

//! `GET /`: what is served here, for whoever does not know yet.

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use crate::answer::{self, VERSION};

pub(super) async fn get() -> Response {
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

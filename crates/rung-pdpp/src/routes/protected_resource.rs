//! `/.well-known/oauth-protected-resource`: protected resource metadata (RFC 9728).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use crate::envelope;
use crate::service::{RequestHead, Service};

pub(super) async fn get(State(service): State<Arc<Service>>, request: Request) -> Response {
    let arrived = service.request_head(request.headers());
    let here = service.resource_url(&arrived);
    let mut told = metadata(&service, &arrived, &here);
    told["resource"] = json!(here);
    told["pdpp_token_kinds_supported"] = json!(["owner", "client"]);
    metadata_response(&told, &arrived)
}

pub(super) async fn get_for_mcp(State(service): State<Arc<Service>>, request: Request) -> Response {
    let arrived = service.request_head(request.headers());
    let here = service.resource_url(&arrived);
    let mut told = metadata(&service, &arrived, &here);
    told["resource"] = json!(format!("{here}/mcp"));
    told["pdpp_token_kinds_supported"] = json!(["client", "mcp_package"]);
    metadata_response(&told, &arrived)
}

fn metadata_response(told: &Value, arrived: &RequestHead) -> Response {
    let mut response = envelope::json_response(StatusCode::OK, told.to_string());
    envelope::add_common_headers(&mut response, &arrived.request_id);
    response
}

fn metadata(service: &Service, arrived: &RequestHead, here: &str) -> Value {
    json!({
        "resource": here,
        "resource_name": "Rung",
        "authorization_servers": [service.issuer(arrived)],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["pdpp:read"],
        "authorization_details_types_supported": ["https://pdpp.dev/data-access"],
        "pdpp_provider_connect_version": "draft-2026-04-16",
        "pdpp_self_export_supported": true,
        "pdpp_core_query_base": format!("{here}/v1"),
        "pdpp_discovery_hints": {
            "schema_endpoint": "/v1/schema",
            "query_base": "/v1",
            "connectors_endpoint": "/v1/connectors",
            "streams_endpoint_template": "/v1/streams/{stream}",
            "aggregate": {"endpoint_template": "/v1/streams/{stream}/aggregate"},
            "changes_since_bootstrap": "beginning",
            "blob_indirection": "data.blob_ref.fetch_url",
            "search": {"endpoint": "/v1/search", "scope_param": "streams[]", "filter_requires_single_stream": true},
            "hybrid_pagination_supported": false,
            "owner_polyfill_requires_source_kind_connector": true,
        },
        "pdpp_agent_discovery": {
            "cli": {"no_owner_token": true, "command": format!("rung pdpp connect {here}")},
            "mcp": {
                "endpoint": format!("{here}/mcp"),
                "transport": "streamable_http",
                "setup_intent": "add this address to an MCP client; the owner approves in a browser",
                "tool_surface": "schema, query_records, aggregate, search, fetch, read_record_field",
                "authorization": "oauth",
            },
        },
        "capabilities": {
            "lexical_retrieval": {
                "supported": true, "endpoint": "/v1/search", "cross_stream": true, "snippets": true,
                "default_limit": 25, "max_limit": 100, "cursor_supported": true, "count_supported": true,
                "score": {"supported": true, "kind": "bm25", "order": "lower_is_better"},
            },
            "semantic_retrieval": {"supported": false},
            "hybrid_retrieval": {"supported": false},
            "client_event_subscriptions": {"supported": false},
        },
    })
}

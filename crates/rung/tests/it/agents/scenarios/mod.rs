//! Every scenario of the adapter's specification, under its own name.

mod aggregate;
mod fetch;
mod filters;
mod ids;
mod over_http;
mod schema;
mod search;
mod start;
mod tools;

use serde_json::{Value, json};

use super::fake_provider::FakeProvider;
use super::{Agent, start_adapter};
use crate::personal_data::{PersonalDataFixture, message_line};
use crate::sandbox::Sandbox;

const TOKEN: &str = "a-scoped-token-of-some-length";

/// The responses of the public reference provider, as far as the tools need them.
fn reference_response(asked: &super::fake_provider::RecordedRequest) -> (u16, Value) {
    let list = |data: Value| json!({"object": "list", "data": data, "has_more": false, "url": asked.path(), "meta": {"warnings": []}});
    match asked.path() {
        "/v1/schema" if asked.has_param("detail", "full") => (
            200,
            json!({"object": "schema", "connectors": [{"connector_key": "slack",
            "streams": [{"name": "messages", "schema": {"type": "object", "description": "everything"}}]}], "streams": [{"name": "messages"}]}),
        ),
        "/v1/schema" => (
            200,
            json!({"object": "schema", "detail": "compact", "connectors": [{"connector_key": "slack", "connector_id": "slack",
            "granted_connections": [{"connection_id": "cin_a", "display_name": "Work"}, {"connection_id": "cin_b", "display_name": "Home"}],
            "streams": [{"name": "messages", "field_capabilities": {"text": "t=string,eq,lex", "user_id": "t=string,eq,a=group_by"},
                "expand_capabilities": [{"name": "messages", "usable": true}]}]}]}),
        ),
        "/v1/streams" => (
            200,
            list(
                json!([{"name": "messages", "connection_id": "cin_a", "connector_key": "slack", "display_name": "Work", "record_count": 2}]),
            ),
        ),
        "/v1/streams/orders/aggregate" if asked.has_param_named("group_by") => (
            200,
            json!({"object": "aggregation", "stream": "orders", "metric": "count",
            "groups": [{"key": "open", "count": 4}, {"key": "done", "count": 2}], "other_count": 9}),
        ),
        "/v1/streams/orders/aggregate" => (
            200,
            json!({"object": "aggregation", "stream": "orders", "metric": "count", "value": 5}),
        ),
        "/v1/search" => (
            200,
            list(json!([
                {"object": "search_result", "stream": "messages", "record_key": "m-1", "connector_id": "slack", "connection_id": "cin_a", "display_name": "Work",
                 "authored_at": "2026-03-01T00:00:00Z", "snippet": {"field": "text", "text": "the <mark>invoice</mark> is late"},
                 "evidence_excerpts": [{"field_path": "text", "preview_text": "the invoice is late", "truncated": true}]},
                {"object": "search_result", "stream": "messages", "record_key": "m-1", "connector_id": "slack", "connection_id": "cin_b", "display_name": "Home"},
            ])),
        ),
        "/v1/streams/messages/records/m-1" if !asked.has_param_named("connection_id") => (
            409,
            json!({"error": {"type": "api_error", "code": "ambiguous_connection",
            "message": "several", "available_connections": [{"connection_id": "cin_a"}, {"connection_id": "cin_b"}], "retry_with": "connection_id"}}),
        ),
        "/v1/streams/messages/records/m-1" => (
            200,
            json!({"object": "record", "id": "m-1", "stream": "messages", "connection_id": "cin_a", "connector_key": "slack",
            "display_name": "Work", "emitted_at": "2026-03-01T00:00:00Z", "data": {"title": "Invoice", "text": "the invoice is late", "url": "https://slack.example/m-1"}}),
        ),
        "/v1/streams/messages/records" => (
            200,
            list(
                json!([{"object": "record", "id": "m-1", "stream": "messages", "connection_id": "cin_a",
            "data": {"text": "the invoice is late", "user_id": "U123"}}]),
            ),
        ),
        "/v1/blobs/b-1" => (200, json!({"bytes": "of the blob"})),
        _ => (
            404,
            json!({"error": {"type": "not_found_error", "code": "not_found", "message": "no"}}),
        ),
    }
}

/// Starts the adapter against the reference provider.
fn start_reference_adapter(flags: &[&str]) -> (Sandbox, FakeProvider, Agent<'static>) {
    let sandbox = Sandbox::new();
    let provider = FakeProvider::with_json(reference_response);
    let agent = start_adapter(&sandbox, &provider.address, TOKEN, flags);
    (sandbox, provider, agent)
}

/// Starts Rung with mail in two connections.
fn start_mail_server(flags: &[&str]) -> PersonalDataFixture {
    let data = PersonalDataFixture::start(flags);
    for id in ["home", "work"] {
        data.create_connection(id);
    }
    let lines: Vec<Value> = (0..10).map(message_line).collect();
    data.ingest("messages", "home", &lines[..6]);
    data.ingest("messages", "work", &lines[4..]);
    data.ingest(
        "threads",
        "home",
        &[json!({"key": "t", "data": {"id": "t"}})],
    );
    data
}

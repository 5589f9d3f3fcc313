//! Filters and expand limits as typed objects.

use serde_json::json;

use super::super::fake_provider::FakeProvider;
use super::super::start_adapter;
use super::{TOKEN, start_reference_adapter};
use crate::sandbox::Sandbox;

#[test]
fn agent_supplies_a_typed_exact_filter() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    agent.call_ok(
        "query_records",
        json!({"stream": "messages", "filter": {"user_id": "U123", "done": true, "n": 3}}),
    );
    let asked = provider.last_request();
    assert!(
        asked.has_param("filter[user_id]", "U123")
            && asked.has_param("filter[done]", "true")
            && asked.has_param("filter[n]", "3"),
        "{}",
        asked.target
    );
    assert!(!asked.has_param_named("filter"));
}

#[test]
fn agent_supplies_a_typed_range_filter() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    agent.call_ok("query_records", json!({"stream": "messages", "filter": {"created_at": {"gte": "2026-01-01T00:00:00Z", "lt": "2026-02-01T00:00:00Z"}}}));
    let asked = provider.last_request();
    assert!(
        asked.has_param("filter[created_at][gte]", "2026-01-01T00:00:00Z")
            && asked.has_param("filter[created_at][lt]", "2026-02-01T00:00:00Z")
    );
    let before = provider.requests().len();
    agent.call_error(
        "query_records",
        json!({"stream": "messages", "filter": {"created_at": {"since": "x"}}}),
    );
    assert_eq!(provider.requests().len(), before, "no other operator");
}

#[test]
fn string_filter_is_supplied() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    for text in [
        "filter[user_id]=U123",
        "amount>100",
        "Vana",
        "",
        "{\"user_id\":\"U123\"}",
    ] {
        for (tool, more) in [
            ("query_records", json!({"stream": "messages"})),
            ("search", json!({"q": "x"})),
        ] {
            let mut arguments = more;
            arguments["filter"] = json!(text);
            let error = agent.call_error(tool, arguments);
            let told = error.to_string();
            assert!(
                told.contains("validation") && told.contains("filter"),
                "{told}"
            );
            assert!(
                error["hint"].as_str().unwrap().contains("typed object"),
                "{told}"
            );
        }
    }
    assert!(provider.requests().is_empty());
}

#[test]
fn empty_or_pre_encoded_typed_filter_objects_are_rejected() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    for filter in [
        json!({}),
        json!({"filter[user_id]": "U123"}),
        json!({"a]": 1}),
        json!({"created_at": {}}),
    ] {
        let error = agent.call_error(
            "query_records",
            json!({"stream": "messages", "filter": filter}),
        );
        assert_eq!(
            (error["type"].as_str(), error["code"].as_str()),
            (Some("adapter_error"), Some("invalid_filter"))
        );
    }
    assert!(provider.requests().is_empty());
}

#[test]
fn agent_supplies_typed_expand_limits_on_a_record_query() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    agent.call_ok(
        "query_records",
        json!({"stream": "messages", "expand": ["messages"], "expand_limit": {"messages": 3}}),
    );
    let asked = provider.last_request();
    assert!(
        asked.has_param("expand", "messages") && asked.has_param("expand_limit[messages]", "3"),
        "{}",
        asked.target
    );
    assert!(!asked.has_param_named("expand_limit"));
    // A stream that advertises no relation is not requested with `expand`.
    let bare = FakeProvider::with_json(|asked| match asked.path() {
        "/v1/schema" => (
            200,
            json!({"object": "schema", "connectors": [{"streams": [{"name": "orders", "expand_capabilities": []}]}]}),
        ),
        _ => (200, json!({"data": []})),
    });
    let sandbox = Sandbox::new();
    let mut agent = start_adapter(&sandbox, &bare.address, TOKEN, &[]);
    let error = agent.call_error(
        "query_records",
        json!({"stream": "orders", "expand": ["lines"]}),
    );
    assert_eq!(error["code"], "invalid_expand");
    let told = error["message"].as_str().unwrap();
    assert!(
        told.contains("no advertised expand_capabilities")
            && told.contains("orders")
            && told.contains("lines"),
        "{told}"
    );
    assert!(
        bare.requests()
            .iter()
            .all(|asked| asked.path() == "/v1/schema")
    );
    // If the schema does not list the stream, the provider decides.
    agent.call_ok(
        "query_records",
        json!({"stream": "unlisted", "expand": ["lines"]}),
    );
}

#[test]
fn agent_supplies_typed_expand_limits_on_a_fetch() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    agent.call_ok("fetch", json!({"id": "cin_a/messages:m-1", "expand": ["messages"], "expand_limit": {"messages": 3}, "fields": ["text"]}));
    let asked = provider.last_request();
    assert!(
        asked.has_param("expand_limit[messages]", "3")
            && asked.has_param("expand", "messages")
            && asked.has_param("fields", "text")
    );
    assert!(!asked.has_param_named("expand_limit"));
}

#[test]
fn empty_or_pre_encoded_expand_limit_objects_are_rejected() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    for limits in [json!({}), json!({"expand_limit[messages]": 3})] {
        for (tool, mut arguments) in [
            ("query_records", json!({"stream": "messages"})),
            ("fetch", json!({"id": "cin_a/messages:m-1"})),
        ] {
            arguments["expand_limit"] = limits.clone();
            assert_eq!(agent.call_error(tool, arguments)["code"], "invalid_expand");
        }
    }
    assert!(provider.requests().is_empty());
}

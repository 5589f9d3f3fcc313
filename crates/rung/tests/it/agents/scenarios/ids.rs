//! Self-contained ids: each identifies its record on its own.

use serde_json::{Value, json};

use super::super::Agent;
use super::{reference_response, start_mail_server, start_reference_adapter};

#[test]
fn multi_source_search_returns_self_contained_ids() {
    let data = start_mail_server(&[]);
    let token = data.issue_grant(&[]);
    let given = Agent::over_http(&data.server, &token)
        .call_ok("search", json!({"q": "apple", "limit": 20}));
    let results = given.structured()["results"].as_array().unwrap();
    for connection in ["home", "work"] {
        assert!(results.iter().any(|hit| hit["connection_id"] == connection));
    }
    for hit in results {
        let id = format!(
            "{}/messages:{}",
            hit["connection_id"].as_str().unwrap(),
            hit["record_key"].as_str().unwrap()
        );
        assert_eq!(hit["id"], id);
    }
    for hit in &results[..3] {
        assert!(given.text().contains(hit["id"].as_str().unwrap()));
    }
}

#[test]
fn single_handle_search_to_fetch_journey_on_a_multi_source_grant() {
    let data = start_mail_server(&[]);
    let token = data.issue_grant(&[]);
    let mut agent = Agent::over_http(&data.server, &token);
    // This record is in both connections.
    let given = agent.call_ok(
        "search",
        json!({"q": "\"apple number 5\" number 5", "limit": 5}),
    );
    let id = given
        .text()
        .split("first_fetch_id=")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .to_owned();
    assert!(id.ends_with("/messages:m5"), "{}", given.text());
    let document = agent.call_ok("fetch", json!({"id": id}));
    assert_eq!(document.structured()["id"], id);
    assert_eq!(document.structured()["text"], "apple number 5");
}

#[test]
fn legacy_id_semantics_are_preserved() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    let error = agent.call_error("fetch", json!({"id": "messages:m-1"}));
    assert!(!provider.last_request().has_param_named("connection_id"));
    assert_eq!(
        error,
        reference_response(&provider.last_request()).1["error"]
            .as_object()
            .map(|error| {
                let mut error = error.clone();
                error.insert("request_id".to_owned(), json!("req_fake"));
                Value::Object(error)
            })
            .unwrap(),
        "the provider's words, untouched"
    );
    let given = agent.call_ok(
        "fetch",
        json!({"id": "messages:m-1", "connection_id": "cin_a"}),
    );
    assert!(provider.last_request().has_param("connection_id", "cin_a"));
    assert_eq!(given.structured()["id"], "messages:m-1");
    let data = start_mail_server(&[]);
    let token = data.issue_grant(&[]);
    let error =
        Agent::over_http(&data.server, &token).call_error("fetch", json!({"id": "messages:m5"}));
    assert_eq!(error["code"], "ambiguous_connection");
    assert_eq!(error["available_connections"].as_array().unwrap().len(), 2);
    assert_eq!(error["retry_with"], "connection_id");
}

#[test]
fn conflicting_connection_handles_are_rejected() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    let error = agent.call_error(
        "fetch",
        json!({"id": "cin_a/messages:m-1", "connection_id": "cin_b"}),
    );
    assert_eq!(error["code"], "conflicting_connection_id");
    let told = error["message"].as_str().unwrap();
    assert!(told.contains("cin_a") && told.contains("cin_b"), "{told}");
    assert!(provider.requests().is_empty());
    agent.call_ok(
        "fetch",
        json!({"id": "cin_a/messages:m-1", "connection_id": "cin_a"}),
    );
}

#[test]
fn malformed_self_contained_ids_are_rejected_before_the_rs() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    for id in [
        "cin/orders",
        "cin/",
        "/orders:o1",
        "cin/extra/orders:o1",
        "cin/orders:",
        "cin/:o1",
        "../orders:o1",
        "cin/..:o1",
        "cin/orders:..",
        "cin/orders:..%2f..",
        "cin/orders:a/../../b",
        "cin/orders:a\\b",
        "pdpp://record/!!!",
        "pdpp://record/cin%2Forders%3A..",
        "pdpp://elsewhere/x:y",
    ] {
        for (tool, arguments) in [
            ("fetch", json!({"id": id})),
            ("read_record_field", json!({"id": id, "field_path": "text"})),
        ] {
            let error = agent.call_error(tool, arguments);
            assert_eq!(
                (error["type"].as_str(), error["code"].as_str()),
                (Some("adapter_error"), Some("invalid_record_identity")),
                "{id}"
            );
        }
    }
    assert!(provider.requests().is_empty());
}

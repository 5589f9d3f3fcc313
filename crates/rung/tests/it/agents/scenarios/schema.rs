//! `schema`, compact and full.

use serde_json::json;

use super::super::fake_provider::FakeProvider;
use super::super::{Agent, start_adapter};
use super::{TOKEN, reference_response, start_mail_server, start_reference_adapter};
use crate::sandbox::Sandbox;

#[test]
fn mcp_compact_schema_uses_the_rest_compact_view() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    let given = agent.call_ok("schema", json!({}));
    assert_eq!(provider.last_request().target, "/v1/schema?view=compact");
    assert_eq!(
        given.structured()["data"],
        reference_response(&provider.last_request()).1,
        "verbatim"
    );
    assert!(
        given.text().starts_with(
            "PDPP schema: connectors=1 streams=1\nstream name=\"messages\" connector_key=\"slack\""
        ),
        "{}",
        given.text()
    );
    assert!(given.text().contains("connections={connection_id:cin_a,display_name:Work}|{connection_id:cin_b,display_name:Home}"));
    assert!(
        given
            .text()
            .contains("\ncall schema(stream, connection_id?) for per-field capability flags")
    );
    let given = agent.call_ok(
        "schema",
        json!({"stream": "messages", "connection_id": "cin_a"}),
    );
    assert_eq!(
        provider.last_request().target,
        "/v1/schema?view=compact&stream=messages&connection_id=cin_a"
    );
    assert!(
        given
            .text()
            .contains("[field_capability_legend t=declared_type"),
        "{}",
        given.text()
    );
    assert!(
        given
            .text()
            .contains("[schema_scope connection_id=\"cin_a\"]")
    );
    assert!(given.text().contains("fields=text[t=string,eq,lex];user_id[t=string,eq,a=group_by] aggregations=group_by=user_id"), "{}", given.text());
}

#[test]
fn mcp_compact_schema_falls_back_without_diverging() {
    let data = start_mail_server(&[]);
    let token = data.issue_grant(&[]);
    let compact = data.get_ok(&token, "/v1/schema?view=compact");
    let full = data.get_ok(&token, "/v1/schema");
    let sandbox = Sandbox::new();
    let provider = FakeProvider::with_json(move |asked| {
        if asked.has_param_named("view") {
            return (
                400,
                json!({"error": {"type": "invalid_request_error", "code": "invalid_request", "message": "what view?"}}),
            );
        }
        (200, full.clone())
    });
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
    let given = agent.call_ok("schema", json!({}));
    assert_eq!(provider.last_request().target, "/v1/schema");
    let said = &given.structured()["data"];
    let (ours, theirs) = (&said["connectors"][0], &compact["connectors"][0]);
    assert_eq!(
        ours["granted_connections"], theirs["granted_connections"],
        "said once"
    );
    for at in 0..2 {
        let (ours, theirs) = (&ours["streams"][at], &theirs["streams"][at]);
        assert_eq!(ours["name"], theirs["name"]);
        assert_eq!(ours["field_capabilities"], theirs["field_capabilities"]);
        assert_eq!(
            ours.get("expand_capabilities"),
            theirs.get("expand_capabilities")
        );
        assert!(ours.get("granted_connections").is_none());
        assert!(ours.get("schema").is_none());
    }
    // Other refusals of the provider are passed on.
    let refusing = FakeProvider::with_json(|_| {
        (
            403,
            json!({"error": {"type": "permission_error", "code": "grant_revoked", "message": "gone"}}),
        )
    });
    let error =
        start_adapter(&sandbox, &refusing.address, TOKEN, &[]).call_error("schema", json!({}));
    assert_eq!(error["code"], "grant_revoked");
    assert_eq!(refusing.requests().len(), 1);
}

#[test]
fn mcp_full_schema_remains_explicit() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    let given = agent.call_ok("schema", json!({"detail": "full", "stream": "messages"}));
    assert_eq!(
        provider.last_request().target,
        "/v1/schema?detail=full&stream=messages"
    );
    let mut whole = reference_response(&provider.last_request()).1;
    whole.as_object_mut().unwrap().shift_remove("streams");
    assert_eq!(
        given.structured()["data"],
        whole,
        "everything, and nothing twice"
    );
    let data = start_mail_server(&[]);
    let token = data.issue_grant(&[]);
    let error =
        Agent::over_http(&data.server, &token).call_error("schema", json!({"detail": "full"}));
    assert_eq!(
        (error["code"].as_str(), error["param"].as_str()),
        (Some("invalid_request"), Some("detail"))
    );
    assert!(
        error["message"].as_str().unwrap().contains("stream"),
        "{error}"
    );
}

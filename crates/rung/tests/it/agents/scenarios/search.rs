//! `search`, and its results as text.

use serde_json::{Value, json};

use super::super::fake_provider::FakeProvider;
use super::super::start_adapter;
use super::{TOKEN, start_reference_adapter};
use crate::sandbox::Sandbox;

#[test]
fn client_searches_records() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    let given = agent.call_ok(
        "search",
        json!({"q": "invoice", "streams": ["messages", "notes"], "limit": 5}),
    );
    let asked = provider.last_request();
    assert!(
        asked.path() == "/v1/search"
            && asked.has_param("q", "invoice")
            && asked.has_param("streams", "messages")
            && asked.has_param("streams", "notes")
            && asked.has_param("limit", "5")
    );
    let results = &given.structured()["results"];
    assert_eq!(results[0]["id"], "cin_a/messages:m-1");
    assert_eq!(
        results[0]["title"],
        "Work / messages / 2026-03-01T00:00:00Z"
    );
    assert_eq!(
        results[0]["url"],
        format!(
            "http://{}/v1/streams/messages/records/m-1?connection_id=cin_a",
            provider.address
        )
    );
    assert_eq!(results[0]["snippet"], "the invoice is late");
    assert_eq!(
        results[0]["evidence_excerpts"][0]["read"],
        json!({"tool": "read_record_field", "args": {"id": "cin_a/messages:m-1", "field_path": "text"}})
    );
    assert!(
        results[1].get("evidence_excerpts").is_none(),
        "nothing is made up for a hit without any"
    );
    agent.call_error("search", json!({"q": ""}));
    agent.call("search", json!({"q": "x", "mode": "hybrid"}));
    assert_eq!(provider.last_request().path(), "/v1/search/hybrid");
    agent.call("search", json!({"q": "x", "mode": "semantic"}));
    assert_eq!(
        provider.last_request().path(),
        "/v1/search/semantic",
        "no mode stands in for another"
    );
}

#[test]
fn search_surfaces_fetch_handles_in_text() {
    let (_sandbox, _provider, mut agent) = start_reference_adapter(&[]);
    let given = agent.call_ok("search", json!({"q": "invoice"}));
    let text = given.text();
    assert!(text.starts_with("search: 2 hit(s). first_fetch_id=cin_a/messages:m-1\nEvidence excerpts:\n1. result=1 field_path=text snippet=\"the invoice is late\" id=cin_a/messages:m-1 complete=false read=read_record_field"), "{text}");
    for told in [
        "\nTop results:\n1. id=cin_a/messages:m-1 connector_key=slack stream=messages title=\"Work / messages / 2026-03-01T00:00:00Z\" display_name=\"Work\"",
        "\n2. id=cin_b/messages:m-1 connector_key=slack stream=messages",
        "fetch takes an id exactly as shown; add connection_id only where it is listed separately",
    ] {
        assert!(text.contains(told), "{told}\n{text}");
    }
    assert!(!text.contains(" connection_id="), "it is in the id already");
}

#[test]
fn search_text_remains_bounded() {
    let sandbox = Sandbox::new();
    let hits: Vec<Value> = (0..100).map(|n| json!({"stream": "messages", "record_key": format!("m-{n}"), "connection_id": "cin_a", "connector_id": "slack",
        "title": "a title ".repeat(50), "snippet": {"text": "words around invoice ".repeat(100)}})).collect();
    let provider = FakeProvider::with_json(move |asked| {
        let limit = asked
            .query_pairs()
            .iter()
            .find(|(name, _)| name == "limit")
            .map_or(25, |(_, value)| value.parse().unwrap());
        (
            200,
            json!({"object": "list", "data": &hits[..limit], "has_more": true, "next_cursor": "on"}),
        )
    });
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
    for limit in [3_usize, 25, 100] {
        let given = agent.call_ok("search", json!({"q": "invoice", "limit": limit}));
        assert!(given.bytes <= (limit * 640).max(12_000), "{}", given.bytes);
        assert_eq!(given.text().matches("\n1. ").count(), 1, "{}", given.text());
        assert!(given.text().contains("first_fetch_id=cin_a/messages:m-0"));
        assert_eq!(given.structured()["data"]["next_cursor"], "on");
    }
    // A page that fits is passed on unchanged, with a reference to the list of results.
    let given = agent.call_ok("search", json!({"q": "invoice", "limit": 1}));
    assert_eq!(given.structured()["data"]["data"][0]["record_key"], "m-0");
    assert_eq!(
        given.structured()["data"]["results_ref"],
        "structuredContent.results"
    );
}

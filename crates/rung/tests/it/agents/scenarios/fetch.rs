//! `fetch`: a record as a document.

use serde_json::{Value, json};

use super::super::fake_provider::FakeProvider;
use super::super::start_adapter;
use super::{TOKEN, start_reference_adapter};
use crate::sandbox::Sandbox;

#[test]
fn client_fetches_a_search_result() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    let given = agent.call_ok("fetch", json!({"id": "cin_a/messages:m-1"}));
    assert!(provider.last_request().has_param("connection_id", "cin_a"));
    let document = given.structured();
    let members: Vec<&String> = document.as_object().unwrap().keys().collect();
    assert_eq!(members, ["id", "title", "text", "url", "metadata"]);
    assert_eq!(document["text"], "the invoice is late");
    assert_eq!(document["url"], "https://slack.example/m-1");
    let words: Value = serde_json::from_str(given.text()).unwrap();
    assert_eq!(&words, document, "the words are the same object");
}

#[test]
fn fetch_surfaces_the_fetched_document_in_text() {
    let (_sandbox, _provider, mut agent) = start_reference_adapter(&[]);
    let given = agent.call_ok("fetch", json!({"id": "cin_a/messages:m-1"}));
    let words: Value = serde_json::from_str(given.text()).unwrap();
    assert_eq!(words["id"], "cin_a/messages:m-1");
    assert_eq!(words["title"], "Invoice");
    assert_eq!(words["text"], "the invoice is late");
    let metadata = &words["metadata"];
    assert_eq!(metadata["connection_id"], "cin_a");
    assert_eq!(metadata["stream"], "messages");
    assert_eq!(metadata["connector_key"], "slack");
    assert_eq!(metadata["display_name"], "Work");
}

#[test]
fn fetch_understands_canonical_record_wrappers() {
    let sandbox = Sandbox::new();
    let provider = FakeProvider::with_json(|asked| {
        let data = if asked.has_param_named("fields") {
            json!({"amount": 3})
        } else {
            json!({"subject": "Rent", "body": "It is due.", "secret": "hush", "amount": 3})
        };
        (
            200,
            json!({"object": "record", "id": "m-1", "stream": "mail", "connection_id": "cin_a", "data": data}),
        )
    });
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
    let given = agent.call_ok("fetch", json!({"id": "cin_a/mail:m-1"}));
    assert_eq!(
        (
            given.structured()["title"].as_str(),
            given.structured()["text"].as_str()
        ),
        (Some("Rent"), Some("It is due."))
    );
    // Fields that were not requested appear nowhere.
    let given = agent.call_ok(
        "fetch",
        json!({"id": "cin_a/mail:m-1", "fields": ["amount"]}),
    );
    assert_eq!(given.structured()["text"], "{\"amount\":3}");
    assert!(!given.result.to_string().contains("hush"));
    assert_eq!(given.structured()["metadata"]["stream"], "mail");
}

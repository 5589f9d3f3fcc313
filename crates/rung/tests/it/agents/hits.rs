//! Hits of a search: each leads to its own record, and none keeps the others from being told.

use serde_json::{Value, json};

use super::fake::Provider;
use super::{Agent, Given, adapter};
use crate::sandbox::Sandbox;

const TOKEN: &str = "a-scoped-token-of-some-length";

/// A provider that finds these, as many as it is asked for, and says where it goes on.
fn finds(hits: Vec<Value>) -> Provider {
    Provider::of(move |asked| {
        if asked.path() != "/v1/search" {
            return (
                200,
                json!({"object": "record", "id": "m", "stream": "messages", "data": {"text": "short"}}),
            );
        }
        let value = |name: &str| asked.pairs().into_iter().find(|(own, _)| own == name);
        let number = |name: &str| value(name).map(|(_, value)| value.parse::<usize>().unwrap());
        let from = number("cursor").unwrap_or(0);
        let to = (from + number("limit").unwrap_or(25)).min(hits.len());
        let mut body =
            json!({"object": "list", "data": &hits[from..to], "has_more": to < hits.len()});
        if to < hits.len() {
            body["next_cursor"] = json!(to.to_string());
        }
        (200, body)
    })
}

/// What is found with the budget that nobody chose.
fn found(hits: Vec<Value>) -> (Given, Provider, Agent<'static>, Sandbox) {
    let sandbox = Sandbox::new();
    let provider = finds(hits);
    let mut agent = adapter(&sandbox, &provider.address, TOKEN, &[]);
    (
        agent.ok("search", json!({"q": "invoice"})),
        provider,
        agent,
        sandbox,
    )
}

fn results(given: &Given) -> &Vec<Value> {
    given.structured()["results"].as_array().unwrap()
}

#[test]
fn the_id_of_a_hit_is_that_of_its_own_record() {
    let own = |more: Value| {
        let mut hit = json!({"stream": "messages", "connection_id": "mail_home"});
        hit.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        hit
    };
    let keys = [
        "5",
        "messages:5",
        "mail_home/messages:5",
        "chat_home/messages:5",
    ];
    let mut hits: Vec<Value> = keys
        .iter()
        .map(|key| own(json!({"record_key": key})))
        .collect();
    hits.extend(keys.iter().map(|key| own(json!({"record_id": key}))));
    hits.extend(keys.iter().map(|key| own(json!({"id": key}))));
    let (given, provider, mut agent, _sandbox) = found(hits);
    for (hit, key) in results(&given).iter().zip(keys.iter().cycle()) {
        agent.ok("fetch", json!({"id": hit["id"]}));
        let asked = provider.last();
        let place = asked.path().strip_prefix("/v1/streams/messages/records/");
        let place = place.unwrap_or_else(|| panic!("{hit} leads to {}", asked.target));
        let key_asked = form_urlencoded::parse(place.as_bytes()).next().unwrap().0;
        assert_eq!(key_asked, *key, "{hit}");
        assert!(asked.has("connection_id", "mail_home"), "{}", asked.target);
    }
}

#[test]
fn ids_of_other_forms_are_taken_where_nothing_else_is_said() {
    let cases = [
        // What says all at once.
        (
            json!({"result_id": "mail_home/messages:5"}),
            "mail_home/messages:5",
        ),
        (
            json!({"result_id": "messages:5", "connection_id": "mail_home"}),
            "mail_home/messages:5",
        ),
        (
            json!({"uri": "pdpp://record/mail_home%2Fmessages%3A5"}),
            "mail_home/messages:5",
        ),
        (
            json!({"id": "mail_home/messages:5", "connection_id": "mail_home"}),
            "mail_home/messages:5",
        ),
        (json!({"id": "messages:5"}), "messages:5"),
        (
            json!({"stream": "messages", "record_key": "5", "result_id": "mail_home/messages:5"}),
            "mail_home/messages:5",
        ),
        (
            json!({"stream": "messages", "id": "row-7", "result_id": "mail_home/messages:5"}),
            "mail_home/messages:5",
        ),
        (
            json!({"stream": "messages", "id": "5", "connector_instance_id": "mail_home"}),
            "mail_home/messages:5",
        ),
        // What says something else than the hit itself.
        (
            json!({"stream": "messages", "record_key": "5", "connection_id": "mail_home", "result_id": "chat_home/messages:5"}),
            "mail_home/messages:5",
        ),
        (
            json!({"stream": "messages", "record_key": "5", "connection_id": "mail_home", "result_id": "mail_home/notes:5"}),
            "mail_home/messages:5",
        ),
        (
            json!({"stream": "messages", "record_key": "5", "connection_id": "mail_home", "uri": "pdpp://record/mail_home%2Fmessages%3A6"}),
            "mail_home/messages:5",
        ),
        (
            json!({"id": "chat_home/messages:5", "connection_id": "mail_home"}),
            "result:12",
        ),
        (
            json!({"result_id": "chat_home/messages:5", "connection_id": "mail_home"}),
            "result:13",
        ),
        // What is no id.
        (
            json!({"url": "https://mail.example/5"}),
            "https://mail.example/5",
        ),
    ];
    let (given, ..) = found(cases.iter().map(|(hit, _)| hit.clone()).collect());
    for ((hit, id), told) in cases.iter().zip(results(&given)) {
        assert_eq!(told["id"], *id, "{hit}");
    }
}

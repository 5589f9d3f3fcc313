//! Sessions of the legacy era: streams that can be lost and fetched again, and an end.

use std::time::Duration;

use serde_json::{Value, json};

use crate::http::{Request, Server, legacy};
use crate::sandbox::Sandbox;

fn call(id: u64, name: &str) -> Request {
    legacy(id, "tools/call", json!({"name": name, "arguments": {}}))
}

#[test]
fn an_answer_is_plain_json_where_it_is_all_there_is_and_a_stream_where_it_is_not() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &["--conformance"]);
    let session = server.session("2025-11-25", &json!({}), None);
    let plain = server.post(call(2, "test_simple_text").session(&session));
    assert_eq!(plain.header("content-type"), Some("application/json"));
    assert!(plain.json()["result"].is_object());
    let streamed = server.post(call(3, "test_tool_with_logging").session(&session));
    assert!(streamed.is_stream());
    assert_eq!(streamed.header("x-accel-buffering"), Some("no"));
    let events = streamed.events();
    // First what it takes to come back, then what was said, then the answer.
    assert_eq!(events[0].data, "");
    assert!(events[0].retry.is_some());
    assert_eq!(events.len(), 1 + 3 + 1);
    assert_eq!(events.last().unwrap().json()["id"], 3);
    let ids: Vec<_> = events
        .iter()
        .map(|event| event.id.clone().unwrap())
        .collect();
    assert_eq!(
        ids.iter().collect::<std::collections::HashSet<_>>().len(),
        ids.len()
    );
    // An older client would choke on an event without a message.
    let old = server.session("2025-06-18", &json!({}), None);
    let streamed = server.post(call(3, "test_tool_with_logging").session(&old));
    assert!(streamed.events().iter().all(|event| !event.data.is_empty()));
    // One that takes no stream gets the answer, one that takes no JSON a stream.
    let only = |accept: &str| {
        server.post(
            call(4, "test_tool_with_logging")
                .session(&session)
                .with("Accept", accept),
        )
    };
    assert_eq!(only("application/json").json()["id"], 4);
    assert!(only("text/event-stream").is_stream());
    assert_eq!(only("text/html").status, 406);
    let kind = call(5, "test_simple_text")
        .session(&session)
        .with("Content-Type", "text/plain");
    assert_eq!(server.post(kind).status, 415);
}

#[test]
fn a_stream_that_was_lost_is_fetched_again_from_where_it_was_left() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &["--conformance"]);
    let session = server.session("2025-11-25", &json!({}), None);
    let mut lost = server.send(&call(7, "test_tool_with_logging").session(&session));
    let first = lost.event().unwrap();
    let second = lost.event().unwrap();
    assert_eq!(first.data, "");
    assert_eq!(second.json()["method"], "notifications/message");
    lost.hang_up();
    let again = |last: &str| {
        let request = Request::new("GET", "/mcp")
            .session(&session)
            .with("Accept", "text/event-stream");
        server.post(request.with("Last-Event-ID", last))
    };
    // The call went on without us.
    let rest = again(second.id.as_deref().unwrap()).events();
    assert_eq!(rest.len(), 3, "two messages and the answer: {rest:?}");
    assert_eq!(rest[2].json()["id"], 7);
    // And again from the start, as often as one likes.
    let all = again(first.id.as_deref().unwrap()).events();
    assert_eq!(all.len(), 4);
    assert_eq!(all[0], second);
    assert_eq!(all[1..], rest[..]);
    for unknown in ["99-1", "x", "", "1", "-", "18446744073709551616-0"] {
        assert_eq!(again(unknown).status, 400, "{unknown:?}");
    }
}

#[test]
fn a_tool_that_hangs_up_is_answered_when_the_client_comes_back() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &["--conformance"]);
    let session = server.session("2025-11-25", &json!({}), None);
    let reply = server.post(call(8, "test_reconnection").session(&session));
    let events = reply.events();
    assert_eq!(events.len(), 1, "only the way back: {events:?}");
    let request = Request::new("GET", "/mcp")
        .session(&session)
        .with("Accept", "text/event-stream");
    let back = server.post(request.with("Last-Event-ID", events[0].id.as_deref().unwrap()));
    assert_eq!(back.events().last().unwrap().json()["id"], 8);
}

#[test]
fn changes_come_on_the_stream_that_belongs_to_no_request() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &["--conformance"]);
    let session = server.session("2025-11-25", &json!({}), None);
    let open = Request::new("GET", "/mcp")
        .session(&session)
        .with("Accept", "text/event-stream");
    let mut standing = server.send(&open);
    assert_eq!(standing.status, 200);
    assert!(standing.is_silent_for(Duration::from_millis(100)));
    server.post(call(2, "test_trigger_tool_change").session(&session));
    let told = standing.event().unwrap();
    assert_eq!(told.json()["method"], "notifications/tools/list_changed");
    // A second one takes over; the first ends.
    let mut second = server.send(&open);
    assert_eq!(standing.event(), None);
    let watched = json!({"uri": "test://watched-resource"});
    server.post(legacy(3, "resources/subscribe", watched.clone()).session(&session));
    server.post(call(4, "test_trigger_resource_update").session(&session));
    assert_eq!(second.event().unwrap().json()["params"], watched);
    // What is told while nobody listens waits.
    second.hang_up();
    server.post(call(5, "test_trigger_prompt_change").session(&session));
    let mut third = server.send(&open);
    assert_eq!(
        third.event().unwrap().json()["method"],
        "notifications/prompts/list_changed"
    );
    // And the end of the session is the end of its streams.
    assert_eq!(
        server
            .post(Request::new("DELETE", "/mcp").session(&session))
            .status,
        204
    );
    assert_eq!(third.event(), None);
}

#[test]
fn a_question_goes_out_on_the_calls_stream_and_its_answer_comes_by_post() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &["--conformance"]);
    let session = server.session("2025-06-18", &json!({"elicitation": {}}), None);
    let mut stream = server.send(&call(2, "test_elicitation").session(&session));
    let asked = stream.event().unwrap().json();
    assert_eq!(asked["method"], "elicitation/create");
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}});
    assert_eq!(
        server
            .post(Request::message(&answer).session(&session))
            .status,
        202
    );
    let answered = stream.event().unwrap().json();
    assert!(
        answered["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("decline")
    );
    assert_eq!(stream.event(), None);
}

#[test]
fn a_cancelled_call_ends_without_an_answer() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &["--conformance"]);
    let session = server.session("2025-11-25", &json!({}), None);
    let slow = legacy(
        9,
        "tools/call",
        json!({"name": "slow_compute", "arguments": {"seconds": 60}}),
    );
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.post(slow.session(&session)));
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}});
        while !waiting.is_finished() {
            assert_eq!(
                server
                    .post(Request::message(&cancel).session(&session))
                    .status,
                202
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        waiting.join().unwrap()
    });
    assert!(waiting.is_stream());
    assert_eq!(waiting.text(), "");
}

#[test]
fn a_session_is_needed_named_rightly_and_spoken_to_in_its_own_era() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &[]);
    let session = server.session("2025-11-25", &json!({}), None);
    let list = || legacy(2, "tools/list", json!({}));
    let refused = server.post(list());
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["error"]["code"], -32600);
    assert_eq!(server.post(list().session("forged")).status, 404);
    assert_eq!(server.post(list().session("")).status, 404);
    assert_eq!(
        server
            .post(list().session(&session).and("Mcp-Session-Id", "x"))
            .status,
        404
    );
    // The version may be left out, or be one with sessions.
    assert_eq!(server.post(list().session(&session)).status, 200);
    assert_eq!(
        server
            .post(
                list()
                    .session(&session)
                    .with("MCP-Protocol-Version", "2025-11-25")
            )
            .status,
        200
    );
    assert_eq!(
        server
            .post(
                list()
                    .session(&session)
                    .with("MCP-Protocol-Version", "1999-01-01")
            )
            .status,
        400
    );
    let get = Request::new("GET", "/mcp").with("Accept", "text/event-stream");
    assert_eq!(server.post(get.clone()).status, 400);
    assert_eq!(server.post(get.session("forged")).status, 404);
    assert_eq!(
        server
            .post(
                Request::new("GET", "/mcp")
                    .session(&session)
                    .with("Accept", "application/json")
            )
            .status,
        406
    );
    assert_eq!(server.post(Request::new("DELETE", "/mcp")).status, 400);
    assert_eq!(server.post(Request::new("PUT", "/mcp")).status, 405);
    assert_eq!(server.get("/no/such").status, 404);
    let bad = json!({"protocolVersion": 7});
    assert_eq!(server.post(legacy(1, "initialize", bad)).status, 400);
    for message in [
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 5, "result": {}}),
    ] {
        assert_eq!(
            server
                .post(Request::message(&message).session(&session))
                .status,
            202
        );
        assert_eq!(
            server
                .post(Request::message(&message).session("forged"))
                .status,
            404
        );
    }
}

#[test]
fn without_sessions_every_legacy_request_stands_for_itself() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &["--stateless"]);
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
    let opened = server.post(legacy(1, "initialize", params));
    assert_eq!(opened.json()["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(opened.header("mcp-session-id"), None);
    let listed: Value = server
        .post(legacy(2, "tools/list", json!({})).with("MCP-Protocol-Version", "2025-06-18"))
        .json();
    assert!(listed["result"]["tools"][0]["outputSchema"].is_object());
    let about = legacy(3, "tools/call", json!({"name": "rung.about"}));
    assert!(server.post(about).json()["result"].is_object());
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(server.post(Request::message(&initialized)).status, 202);
    for method in ["GET", "DELETE"] {
        let refused = server.post(Request::new(method, "/mcp").with("Accept", "text/event-stream"));
        assert_eq!(refused.status, 405);
        assert_eq!(refused.header("allow"), Some("POST"));
    }
}

#[test]
fn a_client_that_cannot_come_back_is_not_hung_up_on() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &["--conformance"]);
    for version in ["2024-11-05", "2025-03-26", "2025-06-18"] {
        let session = server.session(version, &json!({}), None);
        let reply = server.post(call(8, "test_reconnection").session(&session));
        assert_eq!(reply.json()["id"], 8, "{version}");
    }
}

#[test]
fn a_notification_is_never_taken_for_the_answer() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &["--conformance"]);
    let session = server.session("2025-11-25", &json!({}), None);
    let logging = call(9, "test_tool_with_logging")
        .session(&session)
        .with("Accept", "application/json");
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}});
    let reply = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.post(logging));
        std::thread::sleep(Duration::from_millis(70));
        server.post(Request::message(&cancel).session(&session));
        waiting.join().unwrap()
    });
    assert_eq!((reply.status, reply.text().as_str()), (202, ""));
}

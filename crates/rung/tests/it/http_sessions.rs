//! Legacy sessions over HTTP: resumable streams, and the end of a session.

use std::time::Duration;

use serde_json::{Value, json};

use crate::http::{HttpRequest, ServerProcess, legacy_request};
use crate::sandbox::Sandbox;

fn call_request(id: u64, name: &str) -> HttpRequest {
    legacy_request(id, "tools/call", json!({"name": name, "arguments": {}}))
}

#[test]
fn an_answer_is_plain_json_where_it_is_all_there_is_and_a_stream_where_it_is_not() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let session = server.session("2025-11-25", &json!({}), None);
    let plain = server.fetch(call_request(2, "test_simple_text").session(&session));
    assert_eq!(plain.header("content-type"), Some("application/json"));
    assert!(plain.json()["result"].is_object());
    let streamed = server.fetch(call_request(3, "test_tool_with_logging").session(&session));
    assert!(streamed.is_stream());
    assert_eq!(streamed.header("x-accel-buffering"), Some("no"));
    let events = streamed.events();
    // First the event for resuming, then the messages, then the reply.
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
    // Older clients fail on an event without data.
    let old = server.session("2025-06-18", &json!({}), None);
    let streamed = server.fetch(call_request(3, "test_tool_with_logging").session(&old));
    assert!(streamed.events().iter().all(|event| !event.data.is_empty()));
    // A client that does not accept streams gets only the reply; one that does not accept JSON gets a stream.
    let only = |accept: &str| {
        server.fetch(
            call_request(4, "test_tool_with_logging")
                .session(&session)
                .with_header("Accept", accept),
        )
    };
    assert_eq!(only("application/json").json()["id"], 4);
    assert!(only("text/event-stream").is_stream());
    assert_eq!(only("text/html").status, 406);
    let kind = call_request(5, "test_simple_text")
        .session(&session)
        .with_header("Content-Type", "text/plain");
    assert_eq!(server.fetch(kind).status, 415);
}

#[test]
fn a_stream_that_was_lost_is_fetched_again_from_where_it_was_left() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let session = server.session("2025-11-25", &json!({}), None);
    let mut lost = server.send(&call_request(7, "test_tool_with_logging").session(&session));
    let first = lost.next_event().unwrap();
    let second = lost.next_event().unwrap();
    assert_eq!(first.data, "");
    assert_eq!(second.json()["method"], "notifications/message");
    lost.disconnect();
    let again = |last: &str| {
        let request = HttpRequest::new("GET", "/mcp")
            .session(&session)
            .with_header("Accept", "text/event-stream");
        server.fetch(request.with_header("Last-Event-ID", last))
    };
    // The call continued after the client disconnected.
    let rest = again(second.id.as_deref().unwrap()).events();
    assert_eq!(rest.len(), 3, "two messages and the answer: {rest:?}");
    assert_eq!(rest[2].json()["id"], 7);
    // A stream can be replayed from its start any number of times.
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
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let session = server.session("2025-11-25", &json!({}), None);
    let reply = server.fetch(call_request(8, "test_reconnection").session(&session));
    let events = reply.events();
    assert_eq!(events.len(), 1, "only the way back: {events:?}");
    let request = HttpRequest::new("GET", "/mcp")
        .session(&session)
        .with_header("Accept", "text/event-stream");
    let back = server.fetch(request.with_header("Last-Event-ID", events[0].id.as_deref().unwrap()));
    assert_eq!(back.events().last().unwrap().json()["id"], 8);
}

#[test]
fn changes_come_on_the_stream_that_belongs_to_no_request() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let session = server.session("2025-11-25", &json!({}), None);
    let open = HttpRequest::new("GET", "/mcp")
        .session(&session)
        .with_header("Accept", "text/event-stream");
    let mut standing = server.send(&open);
    assert_eq!(standing.status, 200);
    assert!(standing.is_silent_for(Duration::from_millis(100)));
    server.fetch(call_request(2, "test_trigger_tool_change").session(&session));
    let told = standing.next_event().unwrap();
    assert_eq!(told.json()["method"], "notifications/tools/list_changed");
    // A second stream replaces the first, which ends.
    let mut second = server.send(&open);
    assert_eq!(standing.next_event(), None);
    let watched = json!({"uri": "test://watched-resource"});
    server.fetch(legacy_request(3, "resources/subscribe", watched.clone()).session(&session));
    server.fetch(call_request(4, "test_trigger_resource_update").session(&session));
    assert_eq!(second.next_event().unwrap().json()["params"], watched);
    // Notifications without a listener are queued.
    second.disconnect();
    server.fetch(call_request(5, "test_trigger_prompt_change").session(&session));
    let mut third = server.send(&open);
    assert_eq!(
        third.next_event().unwrap().json()["method"],
        "notifications/prompts/list_changed"
    );
    // The streams of a session end with it.
    assert_eq!(
        server
            .fetch(HttpRequest::new("DELETE", "/mcp").session(&session))
            .status,
        204
    );
    assert_eq!(third.next_event(), None);
}

#[test]
fn a_question_goes_out_on_the_calls_stream_and_its_answer_comes_by_post() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let session = server.session("2025-06-18", &json!({"elicitation": {}}), None);
    let mut stream = server.send(&call_request(2, "test_elicitation").session(&session));
    let asked = stream.next_event().unwrap().json();
    assert_eq!(asked["method"], "elicitation/create");
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}});
    assert_eq!(
        server
            .fetch(HttpRequest::from_message(&answer).session(&session))
            .status,
        202
    );
    let answered = stream.next_event().unwrap().json();
    assert!(
        answered["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("decline")
    );
    assert_eq!(stream.next_event(), None);
}

#[test]
fn a_cancelled_call_ends_without_an_answer() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let session = server.session("2025-11-25", &json!({}), None);
    let slow = legacy_request(
        9,
        "tools/call",
        json!({"name": "slow_compute", "arguments": {"seconds": 60}}),
    );
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.fetch(slow.session(&session)));
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}});
        while !waiting.is_finished() {
            assert_eq!(
                server
                    .fetch(HttpRequest::from_message(&cancel).session(&session))
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
    let server = ServerProcess::start(&sandbox, &[]);
    let session = server.session("2025-11-25", &json!({}), None);
    let list = || legacy_request(2, "tools/list", json!({}));
    let refused = server.fetch(list());
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["error"]["code"], -32600);
    assert_eq!(server.fetch(list().session("forged")).status, 404);
    assert_eq!(server.fetch(list().session("")).status, 404);
    assert_eq!(
        server
            .fetch(list().session(&session).add_header("Mcp-Session-Id", "x"))
            .status,
        404
    );
    // The version may be omitted, or be any version with sessions.
    assert_eq!(server.fetch(list().session(&session)).status, 200);
    assert_eq!(
        server
            .fetch(
                list()
                    .session(&session)
                    .with_header("MCP-Protocol-Version", "2025-11-25")
            )
            .status,
        200
    );
    assert_eq!(
        server
            .fetch(
                list()
                    .session(&session)
                    .with_header("MCP-Protocol-Version", "1999-01-01")
            )
            .status,
        400
    );
    let get = HttpRequest::new("GET", "/mcp").with_header("Accept", "text/event-stream");
    assert_eq!(server.fetch(get.clone()).status, 400);
    assert_eq!(server.fetch(get.session("forged")).status, 404);
    assert_eq!(
        server
            .fetch(
                HttpRequest::new("GET", "/mcp")
                    .session(&session)
                    .with_header("Accept", "application/json")
            )
            .status,
        406
    );
    assert_eq!(server.fetch(HttpRequest::new("DELETE", "/mcp")).status, 400);
    assert_eq!(server.fetch(HttpRequest::new("PUT", "/mcp")).status, 405);
    assert_eq!(server.get("/no/such").status, 404);
    let bad = json!({"protocolVersion": 7});
    assert_eq!(
        server.fetch(legacy_request(1, "initialize", bad)).status,
        400
    );
    for message in [
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 5, "result": {}}),
    ] {
        assert_eq!(
            server
                .fetch(HttpRequest::from_message(&message).session(&session))
                .status,
            202
        );
        assert_eq!(
            server
                .fetch(HttpRequest::from_message(&message).session("forged"))
                .status,
            404
        );
    }
}

#[test]
fn without_sessions_every_legacy_request_stands_for_itself() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--stateless"]);
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
    let opened = server.fetch(legacy_request(1, "initialize", params));
    assert_eq!(opened.json()["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(opened.header("mcp-session-id"), None);
    let listed: Value = server
        .fetch(
            legacy_request(2, "tools/list", json!({}))
                .with_header("MCP-Protocol-Version", "2025-06-18"),
        )
        .json();
    assert!(listed["result"]["tools"][0]["outputSchema"].is_object());
    let about = legacy_request(3, "tools/call", json!({"name": "rung.about"}));
    assert!(server.fetch(about).json()["result"].is_object());
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(
        server.fetch(HttpRequest::from_message(&initialized)).status,
        202
    );
    for method in ["GET", "DELETE"] {
        let refused = server
            .fetch(HttpRequest::new(method, "/mcp").with_header("Accept", "text/event-stream"));
        assert_eq!(refused.status, 405);
        assert_eq!(refused.header("allow"), Some("POST"));
    }
}

#[test]
fn a_client_that_cannot_come_back_is_not_hung_up_on() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    for version in ["2024-11-05", "2025-03-26", "2025-06-18"] {
        let session = server.session(version, &json!({}), None);
        let reply = server.fetch(call_request(8, "test_reconnection").session(&session));
        assert_eq!(reply.json()["id"], 8, "{version}");
    }
}

#[test]
fn a_notification_is_never_taken_for_the_answer() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let session = server.session("2025-11-25", &json!({}), None);
    let logging = call_request(9, "test_tool_with_logging")
        .session(&session)
        .with_header("Accept", "application/json");
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}});
    let reply = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.fetch(logging));
        std::thread::sleep(Duration::from_millis(70));
        server.fetch(HttpRequest::from_message(&cancel).session(&session));
        waiting.join().unwrap()
    });
    assert_eq!((reply.status, reply.text().as_str()), (202, ""));
}

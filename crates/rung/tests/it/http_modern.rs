//! Modern MCP over HTTP: headers that repeat the body, status codes, and a call tied to its response.

use std::time::Duration;

use serde_json::json;

use crate::http::{ServerProcess, modern_request, modern_request_with};
use crate::sandbox::Sandbox;

#[test]
fn headers_must_say_what_the_body_says() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let call = || {
        modern_request(
            1,
            "tools/call",
            json!({"name": "greet", "arguments": {"name": "Ada"}}),
        )
    };
    assert_eq!(server.fetch(call()).status, 200);
    let accepted = [
        call().with_header("mcp-name", "  greet  "),
        call().with_header("Mcp-Name", "=?base64?Z3JlZXQ=?="),
        call()
            .without_header("Mcp-Method")
            .with_header("MCP-METHOD", "tools/call"),
    ];
    for request in accepted {
        let reply = server.fetch(request);
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let refused = [
        call().without_header("Mcp-Method"),
        call().with_header("Mcp-Method", "tools/list"),
        call().with_header("Mcp-Method", "TOOLS/CALL"),
        call().add_header("Mcp-Method", "tools/call"),
        call().without_header("Mcp-Name"),
        call().with_header("Mcp-Name", "other"),
        call().with_header("Mcp-Name", "=?base64?Z3JlZXQ?="),
        call().with_header("Mcp-Name", "=?base64?!!!!?="),
        call().without_header("MCP-Protocol-Version"),
        call().with_header("MCP-Protocol-Version", "2025-11-25"),
    ];
    for request in refused {
        let reply = server.fetch(request);
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert_eq!(reply.json()["error"]["code"], -32020);
        assert_eq!(reply.json()["id"], 1);
    }
    // A body with duplicate keys, which cannot be compared, is refused.
    let meta = crate::stdio::modern_meta(&json!({}));
    let twice = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"greet","name":"greet","_meta":{meta}}}}}"#
    );
    let reply = server.fetch(
        crate::http::HttpRequest::from_body(twice)
            .with_header("MCP-Protocol-Version", "2026-07-28")
            .with_header("Mcp-Method", "tools/call")
            .with_header("Mcp-Name", "other"),
    );
    assert_eq!(reply.json()["error"]["code"], -32602, "{}", reply.text());
    // The Base64 form is allowed for names and arguments only.
    let wrapped = call().with_header("Mcp-Method", "=?base64?dG9vbHMvY2FsbA==?=");
    assert_eq!(server.fetch(wrapped).json()["error"]["code"], -32020);
    let region = |value: &str| {
        modern_request(
            2,
            "tools/call",
            json!({"name": "test_custom_header", "arguments": {"region": value}}),
        )
    };
    assert_eq!(
        server
            .fetch(region("eu").with_header("Mcp-Param-Region", "eu"))
            .status,
        200
    );
    let encoded = "=?base64?w6k=?=";
    assert_eq!(
        server
            .fetch(region("é").with_header("Mcp-Param-Region", encoded))
            .status,
        200
    );
    for wrong in [
        region("eu"),
        region("eu").with_header("Mcp-Param-Region", "us"),
    ] {
        assert_eq!(server.fetch(wrong).json()["error"]["code"], -32020);
    }
    let absent = modern_request(
        3,
        "tools/call",
        json!({"name": "test_custom_header", "arguments": {}}),
    );
    assert_eq!(server.fetch(absent.clone()).status, 200);
    assert_eq!(
        server
            .fetch(absent.with_header("Mcp-Param-Region", "eu"))
            .status,
        400
    );
}

#[test]
fn every_refusal_has_its_status() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let status = |request| {
        let reply = server.fetch(request);
        (
            reply.status,
            reply.json()["error"]["code"].as_i64().unwrap_or(0),
        )
    };
    assert_eq!(
        status(modern_request(1, "no/such", json!({}))),
        (404, -32601)
    );
    assert_eq!(
        status(modern_request(1, "initialize", json!({}))),
        (404, -32601)
    );
    assert_eq!(
        status(modern_request(
            1,
            "tools/call",
            json!({"name": "test_missing_capability"})
        )),
        (400, -32021)
    );
    assert_eq!(
        status(modern_request(1, "tasks/get", json!({"taskId": "x"}))),
        (400, -32021)
    );
    assert_eq!(
        status(modern_request(
            1,
            "resources/read",
            json!({"uri": "no://such"})
        )),
        (200, -32602)
    );
    assert_eq!(
        status(modern_request(1, "tools/call", json!({"name": "no.such"}))),
        (200, -32602)
    );
    let unknown =
        modern_request(1, "tools/list", json!({})).with_header("MCP-Protocol-Version", "v999");
    assert_eq!(status(unknown), (400, -32020));
    let can = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let none = modern_request_with(1, "tasks/get", json!({"taskId": "task_none"}), &can);
    assert_eq!(status(none), (200, -32602));
}

#[test]
fn closing_the_reply_cancels_the_call_and_waiting_long_makes_it_a_stream() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let slow = |seconds| {
        modern_request(
            1,
            "tools/call",
            json!({"name": "slow_compute", "arguments": {"seconds": seconds}}),
        )
    };
    let mut late = server.send(&slow(2.5));
    assert!(
        late.is_stream(),
        "something can be said while it takes long"
    );
    assert_eq!(late.next_event().unwrap().json()["id"], 1);
    assert_eq!(late.next_event(), None);
    // A call whose client disconnected does not delay the shutdown.
    let gone = server.send(&modern_request(
        2,
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
    ));
    gone.disconnect();
    let gone = server.send(&slow(60.0));
    gone.disconnect();
    let mut server = server;
    let asked = std::time::Instant::now();
    assert_eq!(server.terminate(), 0);
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "{:?}",
        asked.elapsed()
    );
}

#[test]
fn a_stop_lets_calls_finish_ends_streams_and_takes_nothing_new() {
    let sandbox = Sandbox::new();
    let mut server = ServerProcess::start(&sandbox, &["--conformance"]);
    let listen = modern_request(
        5,
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
    );
    let mut listening = server.send(&listen);
    assert_eq!(
        listening.next_event().unwrap().json()["method"],
        "notifications/subscriptions/acknowledged"
    );
    let session = server.session("2025-11-25", &json!({}), None);
    let standing = crate::http::HttpRequest::new("GET", "/mcp")
        .session(&session)
        .with_header("Accept", "text/event-stream");
    let mut standing = server.send(&standing);
    let slow = json!({"name": "slow_compute", "arguments": {"seconds": 1}});
    let (modern_call, legacy_call) = (
        modern_request(6, "tools/call", slow.clone()),
        crate::http::legacy_request(7, "tools/call", slow),
    );
    std::thread::scope(|scope| {
        let modern_reply = scope.spawn(|| server.fetch(modern_call));
        let legacy_reply = scope.spawn(|| server.fetch(legacy_call.session(&session)));
        std::thread::sleep(Duration::from_millis(300));
        crate::http::send_signal(&server.child, "TERM");
        assert_eq!(modern_reply.join().unwrap().json()["id"], 6);
        assert_eq!(legacy_reply.join().unwrap().json()["id"], 7);
    });
    let ended = listening.next_event().unwrap().json();
    assert_eq!(
        (ended["id"].clone(), ended["result"]["resultType"].clone()),
        (json!(5), json!("complete"))
    );
    assert_eq!(listening.next_event(), None);
    assert_eq!(standing.next_event(), None);
    assert_eq!(crate::stdio::wait_for_exit(&mut server.child), 0);
}

#[test]
fn a_client_that_takes_no_stream_is_not_asked_on_one() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let listen = modern_request(1, "subscriptions/listen", json!({"notifications": {}}));
    assert_eq!(
        server
            .fetch(listen.with_header("Accept", "application/json"))
            .status,
        406
    );
    let session = server.session("2025-11-25", &json!({"elicitation": {}}), None);
    let ask = crate::http::legacy_request(2, "tools/call", json!({"name": "test_elicitation"}))
        .session(&session);
    let failed = server
        .fetch(ask.with_header("Accept", "application/json"))
        .json();
    assert_eq!(
        failed["result"]["structuredContent"]["error"]["code"],
        "missing_capability"
    );
}

#[test]
fn what_is_sent_back_does_not_grow_with_what_came() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let long = "x".repeat(1 << 20);
    let can = json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    let short_header =
        |request: crate::http::HttpRequest| request.with_header("Mcp-Name", "=?base64?eA==?=");
    let mut asks = json!({"name": "test_input_required_result_elicitation"});
    asks["inputResponses"] = json!({"not_asked": {"action": "accept", "content": {"x": long}}});
    let requests = [
        short_header(modern_request_with(
            1,
            "resources/read",
            json!({"uri": long}),
            &can,
        )),
        modern_request_with(
            2,
            "subscriptions/listen",
            json!({"notifications": {"resourceSubscriptions": [long]}}),
            &can,
        ),
        modern_request_with(
            3,
            "subscriptions/listen",
            json!({"notifications": {"taskIds": [long]}}),
            &can,
        ),
        modern_request_with(4, "tools/call", asks, &can),
        short_header(modern_request_with(
            5,
            "tools/call",
            json!({"name": long}),
            &can,
        )),
        short_header(modern_request_with(
            6,
            "prompts/get",
            json!({"name": long}),
            &can,
        )),
        modern_request_with(7, &long[..5_000], json!({}), &can),
    ];
    for request in requests {
        let reply = server.fetch(request);
        assert!(
            reply.text().len() < 5_000,
            "{} bytes: {}",
            reply.text().len(),
            &reply.text()[..300]
        );
    }
    let mut token = json!({"name": "test_tool_with_progress", "_meta": {"progressToken": long}});
    let session = server.session("2025-11-25", &json!({}), None);
    let refused =
        server.fetch(crate::http::legacy_request(2, "tools/call", token.take()).session(&session));
    assert_eq!(refused.json()["error"]["code"], -32602);
}

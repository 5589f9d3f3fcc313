//! Clients that are slow, numerous, send too much, or disconnect.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::http::{HttpRequest, ServerProcess, legacy_request, modern_request};
use crate::sandbox::Sandbox;

#[test]
fn a_body_that_is_too_large_is_refused_without_being_kept() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &[]);
    let before_kb = server.memory_kb();
    let mut stream = server.connect();
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = [
        b"100000\r\n".to_vec(),
        vec![b'x'; 1 << 20],
        b"\r\n".to_vec(),
    ]
    .concat();
    for _ in 0..100 {
        if stream.write_all(&chunk).is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    let _may_be_reset = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 413"),
        "{answer}"
    );
    assert!(server.memory_kb() < before_kb + (16 << 10));
    let large = HttpRequest::from_body(vec![b' '; 5 << 20]);
    assert_eq!(server.fetch(large).status, 413);
    // The error has the request's id, even if the id comes last.
    let text = "x".repeat(5 << 20);
    for large in [
        format!(r#"{{"jsonrpc":"2.0","id":"one","method":"ping","params":{{"x":"{text}"}}}}"#),
        format!(
            r#"{{"method":"ping","params":{{"id":2,"x":"{text}"}},"jsonrpc":"2.0","id":"one"}}"#
        ),
    ] {
        let reply = server.fetch(HttpRequest::from_body(large.into_bytes()));
        assert_eq!(reply.status, 413);
        assert_eq!(reply.json()["id"], "one", "{}", reply.text());
    }
    assert_eq!(
        server
            .fetch(modern_request(1, "server/discover", json!({})))
            .status,
        200
    );
}

#[test]
fn a_client_that_sends_nothing_or_a_byte_at_a_time_is_disconnected_and_blocks_no_other() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &[]);
    let idle: Vec<_> = (0..200).map(|_| server.connect()).collect();
    let mut slow = server.connect();
    let started = Instant::now();
    let mut sent = 0;
    let request = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let ended = loop {
        if slow.write_all(&request[sent..=sent]).is_err() {
            break true;
        }
        sent += 1;
        // Other clients are served meanwhile.
        assert_eq!(server.get("/health").status, 200);
        slow.set_read_timeout(Some(Duration::from_millis(400)))
            .unwrap();
        let mut byte = [0];
        match slow.read(&mut byte) {
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) => {}
            // Any reply or the end of the connection.
            _ => break true,
        }
        if started.elapsed() > Duration::from_secs(40) {
            break false;
        }
    };
    assert!(ended, "the slow one was let go");
    drop(idle);
}

#[test]
fn a_thousand_sessions_leave_nothing_behind() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &[]);
    let round = || {
        let ids: Vec<String> = (0..1_000)
            .map(|_| server.session("2025-11-25", &json!({}), None))
            .collect();
        for id in &ids {
            assert_eq!(
                server
                    .fetch(legacy_request(2, "ping", json!({})).session(id))
                    .status,
                200
            );
        }
        let held_kb = server.memory_kb();
        for id in &ids {
            assert_eq!(
                server
                    .fetch(HttpRequest::new("DELETE", "/mcp").session(id))
                    .status,
                204
            );
        }
        held_kb
    };
    round();
    let after_first_kb = server.memory_kb();
    let held_kb = round();
    round();
    let after_third_kb = server.memory_kb();
    assert!(
        held_kb < after_first_kb + 8_000,
        "a session costs little: {after_first_kb} to {held_kb} kB"
    );
    assert!(
        after_third_kb < after_first_kb + 1_500,
        "{after_first_kb} to {after_third_kb} kB"
    );
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("rung_sessions 0"), "{metrics}");
}

#[test]
fn a_client_that_stops_reading_its_stream_costs_a_bounded_amount() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let listen = modern_request(
        1,
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
    );
    let session = server.session("2025-11-25", &json!({}), None);
    let standing = HttpRequest::new("GET", "/mcp")
        .session(&session)
        .with_header("Accept", "text/event-stream");
    let stuck: Vec<_> = (0..20).map(|_| server.send(&listen)).collect();
    let stuck_session = server.send(&standing);
    let before_kb = server.memory_kb();
    for id in 0..3_000 {
        server.fetch(modern_request(
            id,
            "tools/call",
            json!({"name": "test_trigger_tool_change"}),
        ));
    }
    let after_kb = server.memory_kb();
    assert!(
        after_kb < before_kb + 20_000,
        "{before_kb} to {after_kb} kB"
    );
    drop((stuck, stuck_session));
}

#[test]
fn health_and_metrics_tell_how_it_goes() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &[]);
    let health = server.get("/health").json();
    assert_eq!(
        health,
        json!({"ok": true, "status": "ok", "name": "rung", "version": env!("CARGO_PKG_VERSION")})
    );
    server.fetch(modern_request(
        1,
        "tools/call",
        json!({"name": "rung.about"}),
    ));
    server.fetch(modern_request(2, "made/up", json!({})));
    server.fetch(modern_request(3, "tools/list", json!({})).with_header("Host", "evil.example"));
    let page = server.get("/metrics").text();
    for line in [
        "rung_requests_total{method=\"tools/call\",outcome=\"Answered\"} 1",
        "rung_requests_total{method=\"other\",outcome=\"Refused\"} 1",
        "rung_turned_away_total{why=\"host\"} 1",
        "# EOF",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}

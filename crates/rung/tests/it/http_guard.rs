//! The HTTP guard: host names, origins and tokens.

use serde_json::json;

use crate::http::{HttpRequest, ServerProcess, legacy_request, modern_request};
use crate::sandbox::Sandbox;

fn discover_request() -> HttpRequest {
    modern_request(1, "server/discover", json!({}))
}

#[test]
fn a_host_or_a_page_that_is_not_listed_is_turned_away_from_everything() {
    let sandbox = Sandbox::new();
    let flags = [
        "--dev",
        "--allow-host",
        "door.example",
        "--allow-origin",
        "https://page.example",
    ];
    let server = ServerProcess::start(&sandbox, &flags);
    for request in [
        discover_request(),
        HttpRequest::new("GET", "/health"),
        HttpRequest::new("GET", "/metrics"),
    ] {
        assert_eq!(
            server
                .fetch(request.clone().with_header("Host", "evil.example"))
                .status,
            421
        );
        assert_eq!(
            server
                .fetch(request.clone().with_header("Origin", "http://evil.example"))
                .status,
            403
        );
        assert_eq!(
            server
                .fetch(request.clone().with_header("Origin", "null"))
                .status,
            403
        );
        assert_eq!(
            server
                .fetch(
                    request
                        .clone()
                        .with_header("Host", "localhost")
                        .add_header("Host", "evil.example")
                )
                .status,
            421
        );
        let allowed = request
            .with_header("Host", "door.example")
            .with_header("Origin", "https://page.example");
        let reply = server.fetch(allowed);
        assert_eq!(reply.status, 200);
        assert_eq!(
            reply.header("access-control-allow-origin"),
            Some("https://page.example")
        );
        assert_eq!(reply.header("access-control-allow-credentials"), None);
    }
    // Allowed host names imply a proxy and remote clients, so a token is required.
    let between = ServerProcess::start(&sandbox, &["--allow-host", "door.example"]);
    assert_eq!(between.fetch(discover_request()).status, 401);
    // A browser sends a preflight request first.
    let ask = HttpRequest::new("OPTIONS", "/mcp")
        .with_header("Access-Control-Request-Method", "POST")
        .with_header(
            "Access-Control-Request-Headers",
            "authorization, mcp-method",
        );
    let allowed = server.fetch(ask.clone().with_header("Origin", "http://localhost:6274"));
    assert_eq!(allowed.status, 204);
    let headers = allowed.header("access-control-allow-headers").unwrap();
    assert!(
        headers.contains("Authorization") && headers.contains('*'),
        "{headers}"
    );
    assert_eq!(
        server
            .fetch(ask.with_header("Origin", "https://evil.example"))
            .status,
        403
    );
}

#[test]
fn without_tokens_a_loopback_listener_is_open_and_the_first_token_closes_it_at_once() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &[]);
    assert_eq!(server.fetch(discover_request()).status, 200);
    let about = json!({"name": "rung.about"});
    let reply = server
        .fetch(modern_request(2, "tools/call", about.clone()))
        .json();
    assert_eq!(reply["result"]["structuredContent"]["caller"], "anonymous");
    assert_eq!(reply["result"]["structuredContent"]["access"], "read");

    let token = sandbox.run_ok(&["token", "new", "laptop"]);
    let token = token.trim();
    let refused = server.fetch(discover_request());
    assert_eq!(refused.status, 401);
    let challenge = refused.header("www-authenticate").unwrap();
    let metadata = format!(
        "http://{}/.well-known/oauth-protected-resource/mcp",
        server.address
    );
    assert_eq!(
        challenge,
        format!("Bearer resource_metadata=\"{metadata}\", scope=\"pdpp:read\"")
    );
    for path in [
        "/.well-known/oauth-protected-resource/mcp",
        "/mcp/.well-known/oauth-protected-resource",
    ] {
        let described = server.get(path).json();
        assert_eq!(
            described["resource"],
            format!("http://{}/mcp", server.address)
        );
        assert_eq!(described["bearer_methods_supported"], json!(["header"]));
    }
    assert_eq!(server.get("/metrics").status, 401);
    assert_eq!(server.get("/health").status, 200);

    let reply = server
        .fetch(modern_request(3, "tools/call", about).bearer(token))
        .json();
    assert_eq!(reply["result"]["structuredContent"]["caller"], "laptop");
    for wrong in [
        discover_request().bearer("rung_wrong"),
        discover_request().bearer(&format!("{token}x")),
        discover_request()
            .bearer(token)
            .add_header("Authorization", "Bearer x"),
        discover_request().with_header("Authorization", &format!("Basic {token}")),
        discover_request().with_header("Authorization", token),
    ] {
        let refused = server.fetch(wrong);
        assert_eq!(refused.status, 401);
        assert!(
            refused
                .header("www-authenticate")
                .unwrap()
                .contains("error=\"invalid_token\"")
        );
    }
    // The host of an absolute request URI counts like the header.
    let absolute = HttpRequest::new("GET", "http://evil.example/health");
    assert_eq!(server.fetch(absolute).status, 421);
    // Tokens in the query are not accepted.
    let mut in_query = HttpRequest::new("GET", &format!("/mcp?access_token={token}"));
    in_query = in_query.with_header("Accept", "text/event-stream");
    assert_eq!(server.fetch(in_query).status, 401);
    sandbox.run_ok(&["token", "revoke", "laptop"]);
    assert_eq!(
        server.fetch(discover_request().bearer(token)).status,
        401,
        "revoked at once"
    );
    assert_eq!(
        server.fetch(discover_request()).status,
        200,
        "and the door is open as before"
    );
}

#[test]
fn a_listener_that_others_reach_requires_a_token() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start_at(&sandbox, "0.0.0.0:0", &[]);
    assert!(
        server
            .startup_lines
            .iter()
            .any(|line| line.contains("no_token")),
        "{:?}",
        server.startup_lines
    );
    let request = || discover_request().with_header("Host", "localhost");
    assert_eq!(server.fetch(request()).status, 401);
    let token = sandbox.run_ok(&["token", "new", "phone"]);
    assert_eq!(server.fetch(request().bearer(token.trim())).status, 200);
    // The wildcard address is not an allowed host.
    assert_eq!(
        server
            .fetch(request().with_header("Host", "0.0.0.0"))
            .status,
        421
    );

    let sandbox = Sandbox::new();
    let open = ServerProcess::start_at(&sandbox, "0.0.0.0:0", &["--dev"]);
    assert!(
        open.startup_lines
            .iter()
            .any(|line| line.contains("open_door")),
        "{:?}",
        open.startup_lines
    );
    assert_eq!(open.fetch(request()).status, 200);
}

#[test]
fn sessions_tasks_and_states_belong_to_their_caller() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let mine = sandbox.run_ok(&["token", "new", "mine"]);
    let theirs = sandbox.run_ok(&["token", "new", "theirs"]);
    let (mine, theirs) = (mine.trim(), theirs.trim());

    // A session.
    let session = server.session("2025-11-25", &json!({}), Some(mine));
    let ping = || legacy_request(2, "ping", json!({})).session(&session);
    assert_eq!(server.fetch(ping().bearer(mine)).status, 200);
    for stranger in [ping().bearer(theirs), ping()] {
        assert_eq!(server.fetch(stranger).status, 404);
    }
    let end = HttpRequest::new("DELETE", "/mcp").session(&session);
    assert_eq!(server.fetch(end.clone().bearer(theirs)).status, 404);
    assert_eq!(server.fetch(end.bearer(mine)).status, 204);
    assert_eq!(server.fetch(ping().bearer(mine)).status, 404);

    // A task.
    let can = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}});
    let with = |method: &str, params| crate::http::modern_request_with(3, method, params, &can);
    let slow = json!({"name": "slow_compute", "arguments": {"seconds": 60}});
    let made = server.fetch(with("tools/call", slow).bearer(mine)).json();
    let task = json!({"taskId": made["result"]["taskId"]});
    let absent = server
        .fetch(with("tasks/get", json!({"taskId": "task_no_such"})).bearer(theirs))
        .json();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let refused = server
            .fetch(with(method, task.clone()).bearer(theirs))
            .json();
        assert_eq!(
            refused["error"]["code"], absent["error"]["code"],
            "{refused}"
        );
        assert_eq!(refused["error"]["message"], absent["error"]["message"]);
    }
    assert_eq!(
        server.fetch(with("tasks/get", task).bearer(mine)).json()["result"]["status"],
        "working"
    );

    // A request state.
    let asks = json!({"name": "test_input_required_result_request_state"});
    let asked = server
        .fetch(with("tools/call", asks.clone()).bearer(mine))
        .json();
    let mut again = asks;
    again["requestState"] = asked["result"]["requestState"].clone();
    again["inputResponses"] = json!({"confirm": {"action": "accept", "content": {"ok": true}}});
    let stolen = server
        .fetch(with("tools/call", again.clone()).bearer(theirs))
        .json();
    assert_eq!(stolen["error"]["code"], -32602, "{stolen}");
    let own = server.fetch(with("tools/call", again).bearer(mine)).json();
    assert_eq!(own["result"]["content"][0]["text"], "state-ok");
}

#[test]
fn tokens_are_shown_once_listed_without_their_text_and_end_when_they_should() {
    let sandbox = Sandbox::new();
    let token = sandbox.run_ok(&["token", "new", "laptop", "--write", "--days", "30"]);
    assert!(token.starts_with("rung_") && token.trim().len() > 40);
    sandbox.run_ok(&["token", "new", "a b é"]);
    let listed = sandbox.run_ok(&["token", "list"]);
    assert!(
        listed.contains("laptop") && listed.contains("write") && listed.contains("a b é"),
        "{listed}"
    );
    assert!(!listed.contains(&token[5..15]));
    let rows: serde_json::Value =
        serde_json::from_str(&sandbox.run_ok(&["token", "list", "--json"])).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 2);
    for bad in ["laptop", "local", "anonymous", "", "a\nb", &"x".repeat(200)] {
        let refused = sandbox.run(&["token", "new", bad]);
        assert_eq!(refused.status, 64, "{bad:?}: {}", refused.stderr);
        assert_eq!(refused.stdout, "");
    }
    assert_eq!(sandbox.run(&["token", "revoke", "nobody"]).status, 66);
    sandbox.run_ok(&["token", "revoke", "laptop"]);
    // The data folder does not contain the token.
    for entry in std::fs::read_dir(sandbox.data().join("store")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(
            !bytes
                .windows(20)
                .any(|window| window == &token.as_bytes()[5..25])
        );
    }
}

#[test]
fn a_token_that_ends_takes_its_streams_along() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let token = sandbox.run_ok(&["token", "new", "laptop"]);
    let token = token.trim();
    let listen = modern_request(
        1,
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
    );
    let mut listening = server.send(&listen.bearer(token));
    assert!(listening.next_event().is_some(), "acknowledged");
    let session = server.session("2025-11-25", &json!({}), Some(token));
    let standing = HttpRequest::new("GET", "/mcp")
        .session(&session)
        .with_header("Accept", "text/event-stream");
    let mut standing = server.send(&standing.bearer(token));
    sandbox.run_ok(&["token", "revoke", "laptop"]);
    server.fetch(modern_request(
        2,
        "tools/call",
        json!({"name": "test_trigger_tool_change"}),
    ));
    assert_eq!(listening.next_event(), None);
    assert_eq!(standing.next_event(), None);
}

#[test]
fn a_token_is_valid_from_creation_to_revocation_under_concurrent_requests() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &[]);
    let other = sandbox.run_ok(&["token", "new", "other"]).trim().to_owned();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let reply =
                        server.fetch(modern_request(1, "tools/list", json!({})).bearer(&other));
                    assert_eq!(reply.status, 200);
                }
            });
        }
        for round in 0..40 {
            let token = sandbox.run_ok(&["token", "new", "mine"]).trim().to_owned();
            let come = || {
                server
                    .fetch(modern_request(1, "tools/list", json!({})).bearer(&token))
                    .status
            };
            let made = come();
            sandbox.run_ok(&["token", "revoke", "mine"]);
            let revoked = come();
            if (made, revoked) != (200, 401) {
                over.store(true, std::sync::atomic::Ordering::Relaxed);
                panic!("round {round}: {made} when it was made, {revoked} when it was revoked");
            }
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

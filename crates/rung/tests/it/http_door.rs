//! Who is let in over HTTP: by which name, from which page, with which token.

use serde_json::json;

use crate::http::{Request, Server, legacy, modern};
use crate::sandbox::Sandbox;

fn discover() -> Request {
    modern(1, "server/discover", json!({}))
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
    let server = Server::start(&sandbox, &flags);
    for request in [
        discover(),
        Request::new("GET", "/health"),
        Request::new("GET", "/metrics"),
    ] {
        assert_eq!(
            server
                .post(request.clone().with("Host", "evil.example"))
                .status,
            421
        );
        assert_eq!(
            server
                .post(request.clone().with("Origin", "http://evil.example"))
                .status,
            403
        );
        assert_eq!(
            server.post(request.clone().with("Origin", "null")).status,
            403
        );
        assert_eq!(
            server
                .post(
                    request
                        .clone()
                        .with("Host", "localhost")
                        .and("Host", "evil.example")
                )
                .status,
            421
        );
        let allowed = request
            .with("Host", "door.example")
            .with("Origin", "https://page.example");
        let reply = server.post(allowed);
        assert_eq!(reply.status, 200);
        assert_eq!(
            reply.header("access-control-allow-origin"),
            Some("https://page.example")
        );
        assert_eq!(reply.header("access-control-allow-credentials"), None);
    }
    // Somebody who stands in between brings others along, so they are asked who they are.
    let between = Server::start(&sandbox, &["--allow-host", "door.example"]);
    assert_eq!(between.post(discover()).status, 401);
    // A page asks before it calls.
    let ask = Request::new("OPTIONS", "/mcp")
        .with("Access-Control-Request-Method", "POST")
        .with(
            "Access-Control-Request-Headers",
            "authorization, mcp-method",
        );
    let allowed = server.post(ask.clone().with("Origin", "http://localhost:6274"));
    assert_eq!(allowed.status, 204);
    let headers = allowed.header("access-control-allow-headers").unwrap();
    assert!(
        headers.contains("Authorization") && headers.contains('*'),
        "{headers}"
    );
    assert_eq!(
        server
            .post(ask.with("Origin", "https://evil.example"))
            .status,
        403
    );
}

#[test]
fn without_tokens_a_loopback_door_is_open_and_the_first_token_closes_it_at_once() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &[]);
    assert_eq!(server.post(discover()).status, 200);
    let about = json!({"name": "rung.about"});
    let reply = server.post(modern(2, "tools/call", about.clone())).json();
    assert_eq!(reply["result"]["structuredContent"]["caller"], "anonymous");
    assert_eq!(reply["result"]["structuredContent"]["access"], "read");

    let token = sandbox.ok(&["token", "new", "laptop"]);
    let token = token.trim();
    let refused = server.post(discover());
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
        .post(modern(3, "tools/call", about).bearer(token))
        .json();
    assert_eq!(reply["result"]["structuredContent"]["caller"], "laptop");
    for wrong in [
        discover().bearer("rung_wrong"),
        discover().bearer(&format!("{token}x")),
        discover().bearer(token).and("Authorization", "Bearer x"),
        discover().with("Authorization", &format!("Basic {token}")),
        discover().with("Authorization", token),
    ] {
        let refused = server.post(wrong);
        assert_eq!(refused.status, 401);
        assert!(
            refused
                .header("www-authenticate")
                .unwrap()
                .contains("error=\"invalid_token\"")
        );
    }
    // An address in the request line counts as much as the header.
    let absolute = Request::new("GET", "http://evil.example/health");
    assert_eq!(server.post(absolute).status, 421);
    // No token travels in an address.
    let mut in_query = Request::new("GET", &format!("/mcp?access_token={token}"));
    in_query = in_query.with("Accept", "text/event-stream");
    assert_eq!(server.post(in_query).status, 401);
    sandbox.ok(&["token", "revoke", "laptop"]);
    assert_eq!(
        server.post(discover().bearer(token)).status,
        401,
        "revoked at once"
    );
    assert_eq!(
        server.post(discover()).status,
        200,
        "and the door is open as before"
    );
}

#[test]
fn a_listener_that_others_reach_lets_nobody_in_without_a_token() {
    let sandbox = Sandbox::new();
    let server = Server::at(&sandbox, "0.0.0.0:0", &[]);
    assert!(
        server.said.iter().any(|line| line.contains("no_token")),
        "{:?}",
        server.said
    );
    let request = || discover().with("Host", "localhost");
    assert_eq!(server.post(request()).status, 401);
    let token = sandbox.ok(&["token", "new", "phone"]);
    assert_eq!(server.post(request().bearer(token.trim())).status, 200);
    // By its own address it is called by no name that was allowed.
    assert_eq!(server.post(request().with("Host", "0.0.0.0")).status, 421);

    let sandbox = Sandbox::new();
    let open = Server::at(&sandbox, "0.0.0.0:0", &["--dev"]);
    assert!(
        open.said.iter().any(|line| line.contains("open_door")),
        "{:?}",
        open.said
    );
    assert_eq!(open.post(request()).status, 200);
}

#[test]
fn what_is_one_callers_is_nobody_elses() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &["--conformance"]);
    let mine = sandbox.ok(&["token", "new", "mine"]);
    let theirs = sandbox.ok(&["token", "new", "theirs"]);
    let (mine, theirs) = (mine.trim(), theirs.trim());

    // A session.
    let session = server.session("2025-11-25", &json!({}), Some(mine));
    let ping = || legacy(2, "ping", json!({})).session(&session);
    assert_eq!(server.post(ping().bearer(mine)).status, 200);
    for stranger in [ping().bearer(theirs), ping()] {
        assert_eq!(server.post(stranger).status, 404);
    }
    let end = Request::new("DELETE", "/mcp").session(&session);
    assert_eq!(server.post(end.clone().bearer(theirs)).status, 404);
    assert_eq!(server.post(end.bearer(mine)).status, 204);
    assert_eq!(server.post(ping().bearer(mine)).status, 404);

    // A task.
    let can = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}});
    let with = |method: &str, params| crate::http::modern_with(3, method, params, &can);
    let slow = json!({"name": "slow_compute", "arguments": {"seconds": 60}});
    let made = server.post(with("tools/call", slow).bearer(mine)).json();
    let task = json!({"taskId": made["result"]["taskId"]});
    let absent = server
        .post(with("tasks/get", json!({"taskId": "task_no_such"})).bearer(theirs))
        .json();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let refused = server
            .post(with(method, task.clone()).bearer(theirs))
            .json();
        assert_eq!(
            refused["error"]["code"], absent["error"]["code"],
            "{refused}"
        );
        assert_eq!(refused["error"]["message"], absent["error"]["message"]);
    }
    assert_eq!(
        server.post(with("tasks/get", task).bearer(mine)).json()["result"]["status"],
        "working"
    );

    // A state.
    let asks = json!({"name": "test_input_required_result_request_state"});
    let asked = server
        .post(with("tools/call", asks.clone()).bearer(mine))
        .json();
    let mut again = asks;
    again["requestState"] = asked["result"]["requestState"].clone();
    again["inputResponses"] = json!({"confirm": {"action": "accept", "content": {"ok": true}}});
    let stolen = server
        .post(with("tools/call", again.clone()).bearer(theirs))
        .json();
    assert_eq!(stolen["error"]["code"], -32602, "{stolen}");
    let own = server.post(with("tools/call", again).bearer(mine)).json();
    assert_eq!(own["result"]["content"][0]["text"], "state-ok");
}

#[test]
fn tokens_are_shown_once_listed_without_their_text_and_end_when_they_should() {
    let sandbox = Sandbox::new();
    let token = sandbox.ok(&["token", "new", "laptop", "--write", "--days", "30"]);
    assert!(token.starts_with("rung_") && token.trim().len() > 40);
    sandbox.ok(&["token", "new", "a b é"]);
    let listed = sandbox.ok(&["token", "list"]);
    assert!(
        listed.contains("laptop") && listed.contains("write") && listed.contains("a b é"),
        "{listed}"
    );
    assert!(!listed.contains(&token[5..15]));
    let rows: serde_json::Value =
        serde_json::from_str(&sandbox.ok(&["token", "list", "--json"])).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 2);
    for bad in ["laptop", "local", "anonymous", "", "a\nb", &"x".repeat(200)] {
        let refused = sandbox.run(&["token", "new", bad]);
        assert_eq!(refused.status, 64, "{bad:?}: {}", refused.stderr);
        assert_eq!(refused.stdout, "");
    }
    assert_eq!(sandbox.run(&["token", "revoke", "nobody"]).status, 66);
    sandbox.ok(&["token", "revoke", "laptop"]);
    // Not a byte of it is in the data folder.
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
    let server = Server::start(&sandbox, &["--conformance"]);
    let token = sandbox.ok(&["token", "new", "laptop"]);
    let token = token.trim();
    let listen = modern(
        1,
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
    );
    let mut listening = server.send(&listen.bearer(token));
    assert!(listening.event().is_some(), "acknowledged");
    let session = server.session("2025-11-25", &json!({}), Some(token));
    let standing = Request::new("GET", "/mcp")
        .session(&session)
        .with("Accept", "text/event-stream");
    let mut standing = server.send(&standing.bearer(token));
    sandbox.ok(&["token", "revoke", "laptop"]);
    server.post(modern(
        2,
        "tools/call",
        json!({"name": "test_trigger_tool_change"}),
    ));
    assert_eq!(listening.event(), None);
    assert_eq!(standing.event(), None);
}

#[test]
fn a_token_is_good_from_when_it_is_made_until_it_is_revoked_whoever_else_comes() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &[]);
    let other = sandbox.ok(&["token", "new", "other"]).trim().to_owned();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let reply = server.post(modern(1, "tools/list", json!({})).bearer(&other));
                    assert_eq!(reply.status, 200);
                }
            });
        }
        for round in 0..40 {
            let token = sandbox.ok(&["token", "new", "mine"]).trim().to_owned();
            let come = || {
                server
                    .post(modern(1, "tools/list", json!({})).bearer(&token))
                    .status
            };
            let made = come();
            sandbox.ok(&["token", "revoke", "mine"]);
            let revoked = come();
            if (made, revoked) != (200, 401) {
                over.store(true, std::sync::atomic::Ordering::Relaxed);
                panic!("round {round}: {made} when it was made, {revoked} when it was revoked");
            }
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

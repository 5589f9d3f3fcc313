//! Invalid or unexpected messages: each is refused with the right error code, and the connection continues.

use std::time::Duration;

use serde_json::{Value, json};

use crate::http::{HttpRequest, ServerProcess};
use crate::sandbox::Sandbox;
use crate::stdio::StdioClient;

/// Invalid messages, each with its error code.
fn invalid_messages() -> Vec<(Vec<u8>, i64)> {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    vec![
        (b"{oops".to_vec(), -32700),
        (b"\"\xff\xfe\"".to_vec(), -32700),
        (b"\x00".to_vec(), -32700),
        (b"[]".to_vec(), -32600),
        (
            br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#.to_vec(),
            -32600,
        ),
        (br#"["2.0",2,"ping"]"#.to_vec(), -32600),
        (b"17".to_vec(), -32600),
        (br#"{"id":1,"method":"ping"}"#.to_vec(), -32600),
        (
            br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#.to_vec(),
            -32600,
        ),
        (
            br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#.to_vec(),
            -32600,
        ),
        (
            br#"{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}"#.to_vec(),
            -32602,
        ),
        (
            format!(
                r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#,
                "x".repeat(10_000)
            )
            .into_bytes(),
            -32600,
        ),
        (deep.into_bytes(), -32600),
    ]
}

#[test]
fn bad_lines_are_answered_and_the_stream_goes_on() {
    let sandbox = Sandbox::new();
    let mut client = StdioClient::start(&sandbox, &[]);
    for (bytes, code) in invalid_messages() {
        client.send_bytes(&bytes);
        client.send_bytes(b"\n");
        let refused = client.next_message();
        assert_eq!(refused["error"]["code"], code, "{refused}");
    }
    // Empty lines, and a line that ends with CRLF.
    client.send_bytes(b"\n  \n\r\n");
    client.send_bytes(b"{\"jsonrpc\":\"2.0\",\"id\":\"\\u00e9\",\"method\":\"ping\"}\r\n");
    assert_eq!(client.next_message()["id"], "é");
    client.initialize("2025-11-25", &json!({}));
    assert_eq!(client.finish(), (0, vec![]));
}

#[test]
fn bad_bodies_are_answered_over_http() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &[]);
    for (bytes, code) in invalid_messages() {
        let reply = server.fetch(HttpRequest::from_body(bytes));
        assert_eq!(reply.status, 400);
        assert_eq!(reply.json()["error"]["code"], code, "{}", reply.text());
    }
    assert_eq!(server.get("/health").json()["status"], "ok");
}

#[test]
fn a_line_of_a_hundred_megabytes_is_passed_over_and_costs_no_memory() {
    let sandbox = Sandbox::new();
    let mut client = StdioClient::start(&sandbox, &[]);
    client.initialize("2025-11-25", &json!({}));
    client.send_bytes(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"x\":\"");
    let megabyte = vec![b'x'; 1 << 20];
    for _ in 0..100 {
        client.send_bytes(&megabyte);
    }
    client.send_bytes(b"\"}}\n");
    let refused = client.next_message();
    assert_eq!(refused["id"], 1);
    assert_eq!(refused["error"]["code"], -32600);
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("bytes"),
        "{refused}"
    );
    let status = std::fs::read_to_string(format!("/proc/{}/status", client.child.id())).unwrap();
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let peak_kb: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(peak_kb < 64 << 10, "{peak}");
    assert!(client.request("ping", &json!({}))["result"].is_object());
}

#[test]
fn unknown_methods_and_bad_parameters_have_their_numbers() {
    let sandbox = Sandbox::new();
    let mut client = StdioClient::start(&sandbox, &["--conformance"]);
    client.initialize("2025-11-25", &json!({}));
    let deep: Value = serde_json::from_str(&("[".repeat(100) + &"]".repeat(100))).unwrap();
    let cases = [
        ("no/such", json!({}), -32601),
        ("server/discover/", json!({}), -32601),
        ("", json!({}), -32601),
        ("tools/call", json!({}), -32602),
        ("tools/call", json!([]), -32602),
        ("tools/call", json!({"name": 7}), -32602),
        ("tools/call", json!({"name": "no.such"}), -32602),
        ("tools/call", json!({"name": "greet", "_meta": 7}), -32602),
        ("tools/list", json!({"cursor": "forged"}), -32602),
        ("resources/list", json!({"cursor": ""}), -32602),
        ("resources/read", json!({}), -32602),
        ("resources/read", json!({"uri": "no://such"}), -32002),
        ("prompts/get", json!({"name": "no.such"}), -32602),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/other"}, "argument": {"name": "a", "value": ""}}),
            -32602,
        ),
        ("logging/setLevel", json!({"level": "loud"}), -32602),
    ];
    for (method, params, code) in cases {
        let refused = client.request(method, &params);
        assert_eq!(
            refused["error"]["code"], code,
            "{method} {params}: {refused}"
        );
    }
    // Invalid arguments are refused by the tool.
    for arguments in [json!({"no_such": 1}), json!([]), json!("x"), deep] {
        let refused = client.request(
            "tools/call",
            &json!({"name": "rung.about", "arguments": arguments}),
        );
        assert_eq!(refused["result"]["isError"], true, "{refused}");
        assert_eq!(
            refused["result"]["structuredContent"]["error"]["code"],
            "invalid_arguments"
        );
    }
    // Arguments that are nested too deeply are refused too.
    let deep = "[".repeat(5_000) + &"]".repeat(5_000);
    client.send_bytes(format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{{"name":"rung.about","arguments":{deep}}}}}"#).as_bytes());
    client.send_bytes(b"\n");
    let refused = client.next_message();
    assert_eq!(
        refused["result"]["structuredContent"]["error"]["code"], "invalid_arguments",
        "{refused}"
    );
}

#[test]
fn an_id_that_is_under_way_is_refused_and_answers_to_nothing_are_passed_over() {
    let sandbox = Sandbox::new();
    let mut client = StdioClient::start(&sandbox, &["--conformance"]);
    client.initialize("2025-11-25", &json!({}));
    let call = json!({"name": "slow_compute", "arguments": {"seconds": 0.5, "label": "first"}});
    for _ in 0..2 {
        client
            .send(&json!({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": call}));
    }
    let (refused, answered) = (client.next_message(), client.next_message());
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    assert!(
        answered["result"].is_object(),
        "the first is served: {answered}"
    );
    // The id of a completed request may be reused.
    client.send(&json!({"jsonrpc": "2.0", "id": "same", "method": "ping"}));
    assert!(client.next_message()["result"].is_object());
    for nothing in [
        json!({"jsonrpc": "2.0", "id": 99, "result": {}}),
        json!({"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": "no"}}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 12345}}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled"}),
        json!({"jsonrpc": "2.0", "method": "notifications/no/such", "params": [1]}),
    ] {
        client.send(&nothing);
    }
    assert!(client.is_silent_for(Duration::from_millis(300)));
    assert!(client.request("ping", &json!({}))["result"].is_object());
}

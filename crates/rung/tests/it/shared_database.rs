//! Processes that share one database, each with its own data folder, act as one server.

use serde_json::{Value, json};

use crate::http::{ServerProcess, modern_request_with};
use crate::personal_data_faults::PostgresCluster;
use crate::sandbox::Sandbox;

/// A database cluster and two sandboxes that use it.
fn start_two() -> (PostgresCluster, String, [Sandbox; 2]) {
    let (cluster, address) = PostgresCluster::start();
    let set = format!("records.postgres={address}");
    (cluster, set, [Sandbox::new(), Sandbox::new()])
}

#[test]
fn a_handle_and_a_cursor_are_good_at_every_process() {
    let (_cluster, set, [one, other]) = start_two();
    let text = (0..40_000).fold(String::new(), |text, n| text + &format!("line {n}\n"));
    let file = one.write("long.txt", &text);
    let file = file.to_str().unwrap();
    let handle = one.run_ok(&["--set", &set, "result", "store", "--quiet", file]);
    let handle = handle.trim();
    let read = |sandbox: &Sandbox, args: &[&str]| -> Value {
        let mut all = vec![
            "--set",
            &set,
            "result",
            "read",
            handle,
            "--as",
            "structured",
        ];
        all.extend(args);
        serde_json::from_str(&sandbox.run_ok(&all)).unwrap()
    };
    // The two processes read alternately, by cursor, to the end.
    let mut whole = String::new();
    let mut cursor: Option<String> = None;
    for turn in 0.. {
        let sandbox = [&one, &other][turn % 2];
        let part = match &cursor {
            None => read(sandbox, &["--limit-chars", "16384"]),
            Some(cursor) => read(sandbox, &["--cursor", cursor, "--limit-chars", "16384"]),
        };
        whole.push_str(part["text"].as_str().unwrap());
        cursor = part["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(whole, text);
    let line = read(&other, &["--lines", "30000-30000"]);
    assert_eq!(line["text"], "line 29999\n");
    assert_eq!(
        other.run_ok(&["--set", &set, "result", "export", handle]),
        text
    );
    other.run_ok(&["--set", &set, "result", "remove", handle]);
    let gone = one.run(&["--set", &set, "result", "read", handle]);
    assert!(gone.stderr.contains("error[not_found]"), "{}", gone.stderr);
}

#[test]
fn a_token_and_a_question_are_good_at_every_process() {
    let (_cluster, set, [one, other]) = start_two();
    let token = one.run_ok(&["--set", &set, "token", "new", "agent"]);
    let token = token.trim();
    let flags = ["--set", &set, "--conformance"];
    let (first, second) = (
        ServerProcess::start(&one, &flags),
        ServerProcess::start(&other, &flags),
    );
    let tools = modern_request_with(1, "tools/list", json!({}), &json!({}));
    assert_eq!(
        second.fetch(tools.clone().bearer("rung_nobody")).status,
        401
    );
    assert_eq!(second.fetch(tools.clone().bearer(token)).status, 200);

    // Either process accepts the answer to the other's question.
    let can = json!({"elicitation": {}});
    let name = "test_input_required_result_request_state";
    let ask = |server: &ServerProcess, params: Value| {
        let request = modern_request_with(2, "tools/call", params, &can).bearer(token);
        server.fetch(request).json()["result"].clone()
    };
    let asked = ask(&first, json!({"name": name, "arguments": {}}));
    let answers = json!({"confirm": {"action": "accept", "content": {"ok": true}}});
    let done = ask(
        &second,
        json!({"name": name, "arguments": {}, "inputResponses": answers, "requestState": asked["requestState"]}),
    );
    assert_eq!(done["content"][0]["text"], "state-ok", "{done}");

    // A token revoked at one process is invalid at all.
    one.run_ok(&["--set", &set, "token", "revoke", "agent"]);
    assert_eq!(second.fetch(tools.clone().bearer(token)).status, 401);
    assert_eq!(first.fetch(tools.bearer(token)).status, 401);
}

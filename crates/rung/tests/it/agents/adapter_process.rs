//! The adapter as a process: its flags, its output streams and its exit.

use serde_json::json;

use super::{fake_provider, start_adapter, write_credential};
use crate::sandbox::{Sandbox, run};

const URL: &str = "http://127.0.0.1:9";

fn run_adapter(sandbox: &Sandbox, flags: &[&str]) -> crate::sandbox::CommandOutput {
    run(sandbox.command().args(["pdpp", "mcp"]).args(flags))
}

#[test]
fn it_does_not_start_without_a_provider_or_a_credential_that_is_for_agents() {
    let sandbox = Sandbox::new();
    let ran = run(sandbox
        .command()
        .args(["pdpp", "mcp"])
        .env("PDPP_OWNER_TOKEN", "x"));
    assert_eq!(ran.status, 64, "the provider is asked for first");
    assert!(
        ran.stderr.contains("Missing --provider-url"),
        "{}",
        ran.stderr
    );
    assert_eq!(
        run_adapter(&sandbox, &["--provider-url", "ftp://x"]).status,
        64
    );

    let at = ["--provider-url", URL];
    let status = |credential: serde_json::Value, word: &str| {
        write_credential(&sandbox, "127.0.0.1:9", &credential);
        let ran = run_adapter(&sandbox, &at);
        assert!(ran.stdout.is_empty());
        assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr);
        assert!(
            ran.stderr.contains(&format!("pdpp connect {URL}")),
            "{}",
            ran.stderr
        );
        ran.status
    };
    for kind in ["pdpp_token_kind", "token_kind", "kind", "role"] {
        assert_eq!(
            status(
                json!({"access_token": "x", kind: "owner"}),
                "owner_token_refused"
            ),
            77
        );
    }
    assert_eq!(
        status(
            json!({"access_token": "x", "expires_at": "2020-01-01T00:00:00Z"}),
            "credential_expired"
        ),
        78
    );
    assert_eq!(
        status(json!({"access_token": ""}), "credential_invalid"),
        78
    );
    assert_eq!(status(json!({"no_token": 1}), "credential_invalid"), 78);
    write_credential(
        &sandbox,
        "127.0.0.1:9",
        &json!({"access_token": "x", "grant_id": "grt_1"}),
    );
    let ran = run_adapter(&sandbox, &[&at[..], &["--grant-id", "grt_2"]].concat());
    assert_eq!(ran.status, 78);
    let ran = run_adapter(&sandbox, &[&at[..], &["--grant-id", "grt_1"]].concat());
    assert_eq!(ran.status, 0, "{}", ran.stderr);
}

#[test]
fn what_is_not_a_message_goes_to_stderr() {
    let sandbox = Sandbox::new();
    for flag in ["--help", "-h", "--version"] {
        let ran = run_adapter(&sandbox, &[flag]);
        assert_eq!(ran.status, 0);
        assert!(ran.stdout.is_empty(), "{flag}: {}", ran.stdout);
        assert!(!ran.stderr.is_empty());
    }
    let ran = run_adapter(&sandbox, &["--version"]);
    assert!(
        ran.stderr.contains(env!("CARGO_PKG_VERSION")),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_token_that_ends_is_renewed_and_one_that_was_renewed_elsewhere_is_used() {
    let sandbox = Sandbox::new();
    let provider = fake_provider::FakeProvider::with_json(|asked| {
        (
            200,
            json!({"object": "list", "data": [], "said": asked.authorization.len()}),
        )
    });
    let mut agent = start_adapter(&sandbox, &provider.address, "the-first-token", &[]);
    agent.call_ok("query_records", json!({"stream": "messages"}));
    assert_eq!(
        provider.last_request().authorization,
        "Bearer the-first-token"
    );
    write_credential(
        &sandbox,
        &provider.address,
        &json!({"access_token": "the-second-token"}),
    );
    agent.call_ok("query_records", json!({"stream": "messages"}));
    assert_eq!(
        provider.last_request().authorization,
        "Bearer the-second-token"
    );
    // An expired credential is reported, with what to do.
    write_credential(
        &sandbox,
        &provider.address,
        &json!({"access_token": "x", "expires_at": "2020-01-01T00:00:00Z"}),
    );
    let error = agent.call_error("query_records", json!({"stream": "messages"}));
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("credential_expired"),
        "{error}"
    );
    assert!(
        error["hint"].as_str().unwrap().contains("pdpp connect"),
        "{error}"
    );
}

#[test]
fn requests_that_come_at_once_in_pieces_or_without_an_end_are_all_answered() {
    let sandbox = Sandbox::new();
    let provider =
        fake_provider::FakeProvider::with_json(|_| (200, json!({"object": "list", "data": []})));
    let started = || {
        let super::Agent::Stdio(stdio) =
            start_adapter(&sandbox, &provider.address, "a-scoped-token", &[])
        else {
            unreachable!("it is started over pipes")
        };
        stdio
    };
    let request = |id: usize, stream: &str| {
        let params = json!({"name": "query_records", "arguments": {"stream": stream}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
    };
    // 500 requests before the first answer; the last line has no line break.
    let mut stdio = started();
    let all: Vec<String> = (0..500).map(|id| request(id, "messages")).collect();
    stdio.send_bytes(all.join("\n").as_bytes());
    let (status, answers) = stdio.finish();
    assert_eq!(status, 0);
    let mut ids: Vec<u64> = answers
        .iter()
        .map(|answer| {
            assert_ne!(answer["result"]["isError"], true, "{answer}");
            answer["id"].as_u64().unwrap()
        })
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..500).collect::<Vec<u64>>());
    // A line longer than the pipe buffer, sent in pieces; then a line over the limit.
    let mut stdio = started();
    let long = request(1, &"x".repeat(200_000));
    for piece in long.as_bytes().chunks(7_000) {
        stdio.send_bytes(piece);
    }
    stdio.send_bytes(b"\n");
    let refused = stdio.next_message();
    assert_eq!(
        (&refused["id"], &refused["result"]["isError"]),
        (&json!(1), &json!(true))
    );
    let mut flood = vec![b' '; 70 << 20];
    flood.push(b'\n');
    stdio.send_bytes(&flood);
    assert!(stdio.next_message()["error"]["message"].is_string());
    stdio.send_bytes(format!("\n\n{}\n", request(2, "messages")).as_bytes());
    assert_eq!(stdio.next_message()["id"], 2);
    assert_eq!(stdio.finish().0, 0);
}

#[test]
fn it_serves_whatever_its_input_and_output_are() {
    let sandbox = Sandbox::new();
    let provider =
        fake_provider::FakeProvider::with_json(|_| (200, json!({"object": "list", "data": []})));
    drop(start_adapter(
        &sandbox,
        &provider.address,
        "a-scoped-token",
        &[],
    ));
    let url = format!("http://{}", provider.address);
    let asked = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": crate::stdio::modern_meta(&json!({}))}});
    let (asked, answered) = (
        sandbox.write("asked", format!("{asked}\n")),
        sandbox.home().join("answered"),
    );
    // Regular files cannot be polled, and are served all the same.
    let mut command = sandbox.command();
    command
        .args(["pdpp", "mcp", "--provider-url", &url])
        .stdin(std::fs::File::open(asked).unwrap())
        .stdout(std::fs::File::create(&answered).unwrap())
        .stderr(std::process::Stdio::null());
    let status = crate::stdio::wait_for_exit(&mut command.spawn().unwrap());
    assert_eq!(status, 0);
    let said = std::fs::read_to_string(answered).unwrap();
    assert!(said.contains("read_record_field"), "{said}");
}

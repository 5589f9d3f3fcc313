//! Only protocol messages are written to stdout, at every log level and however slowly the client reads.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Stdio as Pipe};
use std::time::Duration;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::stdio::{StdioClient, wait_for_exit};

#[test]
fn at_every_log_level_stdout_carries_protocol_and_stderr_no_content() {
    let sandbox = Sandbox::new();
    let secret = "do-not-tell-f00d";
    for level in ["off", "error", "warn", "info", "debug", "trace"] {
        let mut command = sandbox.command();
        command
            .args(["mcp", "--conformance"])
            .env("RUNG_LOG", level)
            .stdin(Pipe::piped())
            .stdout(Pipe::piped())
            .stderr(Pipe::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let init = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
        let messages = [
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": init}),
            json!({"jsonrpc": "2.0", "id": 2, "method": "logging/setLevel", "params": {"level": "debug"}}),
            json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "test_tool_with_logging"}}),
            json!({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "greet", "arguments": {"name": secret}}}),
            json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "protocol_error_job"}}),
            json!({"jsonrpc": "2.0", "id": 6, "method": "no/such"}),
            json!("not a message"),
        ];
        for message in messages {
            writeln!(stdin, "{message}").unwrap();
        }
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(stdout.ends_with('\n'));
        for line in stdout.lines() {
            let message: Value =
                serde_json::from_str(line).unwrap_or_else(|_| panic!("{level}: {line}"));
            assert_eq!(message["jsonrpc"], "2.0");
        }
        assert_eq!(stdout.lines().count(), 7 + 3, "{level}: {stdout}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!stderr.contains(secret), "{level}: {stderr}");
        if matches!(level, "debug" | "trace") {
            assert!(stderr.contains("tools/call"), "{level}: {stderr}");
        }
    }
}

/// Starts a server and sends `initialize` without reading the output.
fn start_unread_server(sandbox: &Sandbox) -> (Child, ChildStdin) {
    let mut command = sandbox.command();
    let mut child = command
        .args(["mcp", "--conformance"])
        .stdin(Pipe::piped())
        .stdout(Pipe::piped())
        .stderr(Pipe::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let init = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    writeln!(stdin, "{init}").unwrap();
    (child, stdin)
}

const CALLS: u64 = 4_000;

#[test]
fn a_client_that_stops_reading_is_no_longer_read_and_loses_no_answer() {
    let sandbox = Sandbox::new();
    let (mut child, mut stdin) = start_unread_server(&sandbox);
    // Half a megabyte of requests and more of replies: far more than the pipes hold.
    let writing = std::thread::spawn(move || {
        for id in 1..=CALLS {
            let call = json!({"name": "greet", "arguments": {"name": "x".repeat(100)}});
            let message =
                json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call});
            writeln!(stdin, "{message}").unwrap();
        }
    });
    std::thread::sleep(Duration::from_millis(500));
    assert!(!writing.is_finished(), "who is not read from is not read");
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let memory = status
        .lines()
        .find(|line| line.starts_with("RssAnon:"))
        .unwrap();
    let memory_kb: u64 = memory.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(memory_kb < 32 << 10, "{memory}");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut seen = std::collections::HashSet::new();
    for line in lines.by_ref() {
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert!(seen.insert(message["id"].as_u64().unwrap()));
    }
    writing.join().unwrap();
    assert_eq!(seen.len() as u64, CALLS + 1, "every call was answered once");
    assert_eq!(wait_for_exit(&mut child), 0);
}

#[test]
fn calls_under_way_are_answered_when_the_input_ends_or_a_signal_comes() {
    let sandbox = Sandbox::new();
    let slow = json!({"name": "slow_compute", "arguments": {"seconds": 0.5}});
    let mut client = StdioClient::start(&sandbox, &["--conformance"]);
    client.initialize("2025-11-25", &json!({}));
    let id = client.send_request("tools/call", &slow);
    let (status, rest) = client.finish();
    assert_eq!(status, 0);
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0]["id"], id);

    let mut client = StdioClient::start(&sandbox, &["--conformance"]);
    client.initialize("2025-11-25", &json!({}));
    let id = client.send_request("tools/call", &slow);
    std::thread::sleep(Duration::from_millis(100));
    crate::http::send_signal(&client.child, "TERM");
    assert_eq!(client.next_message()["id"], id);
    assert_eq!(wait_for_exit(&mut client.child), 0);
}

#[test]
fn a_client_that_goes_is_not_outlived() {
    let sandbox = Sandbox::new();
    let (mut child, mut stdin) = start_unread_server(&sandbox);
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 10];
    stdout.read_exact(&mut first).unwrap();
    // The output is closed, while the input stays open.
    drop(stdout);
    let _broken = writeln!(
        stdin,
        "{}",
        json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    );
    assert_eq!(wait_for_exit(&mut child), 0);
}

/// Regression: a reply that could not be written blocked under a lock that the shutdown needed.
#[test]
fn a_client_that_reads_nothing_does_not_keep_a_server_that_is_told_to_stop() {
    let sandbox = Sandbox::new();
    for slow in [false, true] {
        let (mut child, mut stdin) = start_unread_server(&sandbox);
        let mut say = |id: u64, method: &str, params: Value| {
            let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            writeln!(stdin, "{message}").unwrap();
        };
        if slow {
            let call = json!({"name": "slow_compute", "arguments": {"seconds": 0.2}});
            say(1, "tools/call", call);
        }
        // Far more than a pipe holds.
        for id in 2..60 {
            say(id, "tools/list", json!({}));
        }
        std::thread::sleep(Duration::from_millis(600));
        crate::http::send_signal(&child, "TERM");
        assert_eq!(wait_for_exit(&mut child), 0, "slow: {slow}");
    }
}

//! `rung call` and `rung inspect`: any server, from a terminal or a script.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::ServerProcess;
use crate::sandbox::{Sandbox, run};
use crate::stdio::{TIMEOUT, wait_for_exit};

/// The command line of Rung's own server.
fn rung_mcp_command(flags: &str) -> String {
    format!("{} mcp {flags}", env!("CARGO_BIN_EXE_rung"))
}

/// A server as a shell script: answers the legacy handshake, lists one tool, and runs `call` for a tool call, with the request
/// id in `$id`.
fn shell_server(call: &str) -> String {
    let text = format!(
        r#"while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) printf '{{"jsonrpc":"2.0","id":%s,"result":{{"protocolVersion":"2025-06-18","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"shell","version":"1"}}}}}}\n' "$id" ;;
    *'"tools/list"'*) printf '{{"jsonrpc":"2.0","id":%s,"result":{{"tools":[{{"name":"do","inputSchema":{{"type":"object"}}}}]}}}}\n' "$id" ;;
    *'"tools/call"'*) {call} ;;
    *'"method":"notifications'*) ;;
    *) printf '{{"jsonrpc":"2.0","id":%s,"error":{{"code":-32601,"message":"what?"}}}}\n' "$id" ;;
  esac
done"#
    );
    format!("/bin/sh -c '{}'", text.replace('\'', r"'\''"))
}

const PATH: [&str; 2] = ["--env", "PATH=/usr/bin:/bin"];

#[test]
fn a_tool_is_called_over_every_way_there_is() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let url = format!("http://{}/mcp", server.address);
    for target in [rung_mcp_command("--conformance").as_str(), &url] {
        for era in [None, Some("legacy"), Some("modern")] {
            let mut args = vec![
                "call",
                target,
                "slow_compute",
                "--args",
                r#"{"seconds":0.1,"label":"x"}"#,
            ];
            args.extend(era.iter().flat_map(|era| ["--era", era]));
            assert_eq!(sandbox.run_ok(&args), "computed x\n", "{target} {era:?}");
        }
        let result = sandbox.run_ok(&["call", target, "test_simple_text", "--json"]);
        let result: Value = serde_json::from_str(&result).unwrap();
        assert_eq!(result["content"][0]["type"], "text");
    }
}

#[test]
fn rung_on_the_command_line_serves_the_data_folder_of_the_command() {
    let sandbox = Sandbox::new();
    let handle = sandbox.store_result("text/plain", "what was stored");
    let arguments = json!({"handle": handle}).to_string();
    let call = [
        "call",
        &rung_mcp_command(""),
        "rung.read",
        "--args",
        &arguments,
    ];
    assert!(sandbox.run_ok(&call).contains("what was stored"));
}

#[test]
fn a_server_is_shown_to_people_and_to_programs() {
    let sandbox = Sandbox::new();
    let shown = sandbox.run_ok(&["inspect", &rung_mcp_command("")]);
    assert!(shown.starts_with("rung 0."), "{shown}");
    assert!(shown.contains("MCP 2026-07-28 (modern)"), "{shown}");
    assert!(
        shown.contains("rung.read") && shown.contains("TOKENS"),
        "{shown}"
    );
    let seen = sandbox.run_ok(&[
        "inspect",
        &rung_mcp_command(""),
        "--json",
        "--era",
        "legacy",
    ]);
    let seen: Value = serde_json::from_str(&seen).unwrap();
    assert_eq!(
        (&seen["era"], &seen["version"]),
        (&json!("legacy"), &json!("2025-11-25"))
    );
    let tool = &seen["tools"][1];
    assert_eq!(tool["listed"]["name"], "rung.read");
    assert!(
        tool["tokens"].as_u64() > Some(100) && tool["bytes"].as_u64() > tool["tokens"].as_u64()
    );
    assert_eq!(seen["dropped"], json!([]));
}

#[test]
fn a_source_of_the_settings_and_a_server_of_a_configuration_file_go_by_their_names() {
    let sandbox = Sandbox::new();
    let words = json!([env!("CARGO_BIN_EXE_rung"), "mcp"]);
    sandbox.write(
        ".config/rung/config.toml",
        format!("[sources.mirror]\ncommand = {words}\n"),
    );
    assert!(
        sandbox
            .run_ok(&["inspect", "mirror"])
            .contains("rung.about")
    );
    let mistyped = sandbox.run(&["inspect", "miror"]);
    assert_eq!(mistyped.status, 66);
    assert!(
        mistyped.stderr.contains("did you mean `mirror`?"),
        "{}",
        mistyped.stderr
    );
    let config = json!({"mcpServers": {"here": {"command": words[0], "args": ["mcp"], "env": {"RUNG_LOG": "off"}}}});
    let file = sandbox.write("project/.mcp.json", config.to_string());
    let file = file.to_str().unwrap();
    assert!(
        sandbox
            .run_ok(&["inspect", "here", "--config", file])
            .contains("rung.about")
    );
    let absent = sandbox.run(&["inspect", "there", "--config", file]);
    assert!(
        absent.stderr.contains("choose one of: here"),
        "{}",
        absent.stderr
    );
}

#[test]
fn errors_name_the_next_step() {
    let sandbox = Sandbox::new();
    let own = rung_mcp_command("--conformance");
    for (args, status, words) in [
        (
            vec!["call", &own, "test_simple_txt"],
            66,
            "did you mean `test_simple_text`?",
        ),
        (
            vec!["call", &own, "test_simple_text", "--args", "{"],
            64,
            "JSON object",
        ),
        (
            vec!["call", &own, "test_simple_text", "--args", "[1]"],
            64,
            "JSON object",
        ),
        (vec!["call", &own, "test_error_handling"], 69, ""),
        (
            vec!["inspect", "/bin/false"],
            69,
            "it exited (exit status: 1)",
        ),
        (
            vec!["inspect", "/nonexistent/x"],
            69,
            "/nonexistent/x could not be started",
        ),
        (
            vec!["inspect", "http://127.0.0.1:9/mcp"],
            69,
            "Connection refused",
        ),
        (vec!["inspect", "http://"], 64, "does not parse"),
        (vec!["inspect", "a 'b"], 64, "quote"),
        (vec!["call", &own, "failing_job"], 69, ""),
    ] {
        let ran = sandbox.run(&args);
        assert_eq!(ran.status, status, "{args:?}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(words), "{args:?}: {}", ran.stderr);
    }
    // A tool that requires a task is called as one, legacy or modern.
    for era in ["legacy", "modern"] {
        let ran = sandbox.run(&["call", &own, "failing_job", "--era", era]);
        let said = ran.stdout + &ran.stderr;
        assert!(said.contains("the job failed"), "{era}: {said}");
    }
    // With `--json` the error is printed where the result would be.
    let json = sandbox.run(&["call", &own, "no_such_tool", "--json"]);
    let error: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(error["error"]["code"], "unknown_tool");
    assert_eq!(json.status, 66);
    let late = sandbox.run(&[
        "call",
        &own,
        "slow_compute",
        "--args",
        r#"{"seconds":60}"#,
        "--timeout",
        "1",
    ]);
    assert_eq!(late.status, 69, "{}", late.stderr);
    assert!(
        late.stderr.contains("error[outcome_unknown]"),
        "{}",
        late.stderr
    );
    assert!(
        late.stderr
            .contains("check whether the request took effect"),
        "{}",
        late.stderr
    );
}

#[test]
fn a_child_sees_no_more_of_our_environment_than_it_is_given() {
    let sandbox = Sandbox::new();
    let call = r#"printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}\n' "$id" "$(/usr/bin/env | /usr/bin/cut -d= -f1 | /usr/bin/sort | /usr/bin/tr '\n' ' ')""#;
    let mut command = sandbox.command();
    command
        .env("AWS_SECRET_ACCESS_KEY", "never")
        .env("GIVEN", "yes")
        .args([
            "call",
            &shell_server(call),
            "do",
            "--env",
            "GIVEN",
            "--env",
            "MORE=1",
        ])
        .args(PATH);
    let ran = run(&mut command);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let names: Vec<&str> = ran.stdout.split_whitespace().collect();
    assert!(
        names.contains(&"GIVEN") && names.contains(&"MORE") && names.contains(&"HOME"),
        "{names:?}"
    );
    assert!(
        !names
            .iter()
            .any(|name| name.starts_with("AWS") || name.starts_with("RUNG")),
        "{names:?}"
    );
}

/// The result is too large for memory. It is stored, and every part of it can be read.
#[test]
fn a_result_of_200_megabytes_is_kept_with_bounded_memory() {
    const BYTES: usize = 200 << 20;
    let sandbox = Sandbox::new();
    let call = format!(
        r#"printf '{{"jsonrpc":"2.0","id":%s,"result":{{"content":[{{"type":"text","text":"' "$id"; head -c {BYTES} /dev/zero | tr '\0' x; printf 'end"}}]}}}}\n'"#
    );
    let mut command = sandbox.command();
    command
        .args(["call", &shell_server(&call), "do", "--timeout", "300"])
        .args(PATH)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kb = 0;
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse().ok());
        peak_kb = peak.unwrap_or(0).max(peak_kb);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(wait_for_exit(&mut child), 0);
    assert!((1_000..64_000).contains(&peak_kb), "{peak_kb} kB");
    let said = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
    let handle = said
        .split_whitespace()
        .find(|word| word.starts_with("res_"))
        .unwrap();
    let handle = handle.trim_end_matches('.');
    let end = sandbox.read_result(&[
        handle,
        "--path",
        "content[0].text",
        "--offset-chars",
        &(BYTES - 5).to_string(),
    ]);
    assert!(end.to_string().contains("xxxxxend"), "{end}");
}

/// No child process survives Rung, however it ends.
#[cfg(target_os = "linux")]
#[test]
fn nothing_is_left_when_the_parent_is_killed() {
    let sandbox = Sandbox::new();
    let pids = sandbox.home().join("pids");
    // A child that ignores signals, a grandchild, and one that left the process group.
    let server = format!(
        "/bin/sh -c \"trap '' TERM HUP INT; sleep 1000 & one=$!; setsid sleep 1000 & two=$!; echo $$ $one $two > {pids}.new; mv {pids}.new {pids}; while :; do wait; done\"",
        pids = pids.display()
    );
    for signal in ["-KILL", "-TERM"] {
        let _old = std::fs::remove_file(&pids);
        let mut command = sandbox.command();
        command
            .args(["inspect", &server, "--timeout", "600"])
            .args(PATH);
        let mut child = command.stdin(std::process::Stdio::null()).spawn().unwrap();
        let until = Instant::now() + TIMEOUT;
        while !pids.exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let started = std::fs::read_to_string(&pids).unwrap();
        let started: Vec<&str> = started.split_whitespace().collect();
        assert_eq!(started.len(), 3);
        let alive = |pid: &&&str| is_alive(Path::new("/proc").join(pid).as_path());
        assert_eq!(started.iter().filter(alive).count(), 3);
        let id = child.id().to_string();
        assert!(
            std::process::Command::new("kill")
                .args([signal, &id])
                .status()
                .unwrap()
                .success()
        );
        let _ended = child.wait();
        let until = Instant::now() + TIMEOUT;
        while started.iter().any(|pid| alive(&pid)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        let left: Vec<_> = started.iter().filter(alive).collect();
        assert!(left.is_empty(), "{signal}: {left:?} still there");
    }
}

/// Returns true if the process exists and is not a zombie.
pub(crate) fn is_alive(process: &Path) -> bool {
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

#[test]
fn a_tool_result_that_is_no_object_is_an_error() {
    let sandbox = Sandbox::new();
    for (result, kind) in [("5", "a number"), ("[]", "an array"), ("null", "null")] {
        let call = format!(r#"printf '{{"jsonrpc":"2.0","id":%s,"result":{result}}}\n' "$id""#);
        let mut command = sandbox.command();
        command
            .args(["call", &shell_server(&call), "do"])
            .args(PATH);
        let ran = run(&mut command);
        assert_eq!(ran.status, 69, "{result}: {ran:?}");
        for words in ["source_failed", "returned an invalid response", kind] {
            assert!(ran.stderr.contains(words), "{result}: {ran:?}");
        }
    }
}

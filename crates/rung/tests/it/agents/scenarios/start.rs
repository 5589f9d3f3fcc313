//! How the adapter starts, and which credentials it refuses.

use serde_json::json;

use super::super::Agent;
use super::{TOKEN, start_mail_server, start_reference_adapter};
use crate::sandbox::{Sandbox, run};

#[test]
fn cached_grant_token_is_present() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    assert!(
        provider.requests().is_empty(),
        "nobody is asked at the start"
    );
    agent.call_ok("query_records", json!({"stream": "messages"}));
    assert_eq!(
        provider.last_request().authorization,
        format!("Bearer {TOKEN}")
    );
}

#[test]
fn credential_cache_is_empty() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["pdpp", "mcp", "--provider-url", "https://pdpp.example.com"]);
    assert_eq!(ran.status, 78);
    assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    for told in [
        "No scoped PDPP credential",
        "pdpp connect https://pdpp.example.com",
    ] {
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
    }
}

#[test]
fn owner_token_is_present_in_the_environment() {
    let (sandbox, provider, _agent) = start_reference_adapter(&[]);
    let url = format!("http://{}", provider.address);
    for (name, scoped) in [
        ("PDPP_OWNER_TOKEN", true),
        ("PDPP_OWNER_TOKEN", false),
        ("PDPP_OWNER_SESSION_COOKIE", true),
    ] {
        let mut command = sandbox.command();
        command
            .args(["pdpp", "mcp", "--provider-url", &url])
            .env(name, "owner-secret");
        if !scoped {
            command.args(["--cache-root", "elsewhere"]);
        }
        let ran = run(&mut command);
        assert_eq!(ran.status, 77, "{name}");
        assert!(ran.stderr.contains("Refusing to start"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("owner-secret"));
    }
    assert!(provider.requests().is_empty());
}

#[test]
fn adapter_logs_diagnostic_output() {
    let (sandbox, provider, _agent) = start_reference_adapter(&[]);
    let mut command = sandbox.command();
    let url = format!("http://{}", provider.address);
    command.args(["pdpp", "mcp", "--provider-url", &url]);
    let ran = crate::sandbox::run_with_input(&mut command, b"");
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    assert!(
        ran.stderr.contains(&format!("connected to {url}")),
        "{}",
        ran.stderr
    );
}

#[test]
fn stdio_client_remains_supported() {
    let (sandbox, provider, mut agent) = start_reference_adapter(&[]);
    let over_pipes = agent.list_tools();
    let names: Vec<&str> = over_pipes
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "schema",
            "query_records",
            "aggregate",
            "search",
            "fetch",
            "read_record_field"
        ]
    );
    let data = start_mail_server(&[]);
    let token = data.issue_grant(&[]);
    let mut own = Agent::over_http(&data.server, &token).list_tools();
    // A remote provider may support more search modes than Rung.
    let search = |tool: &&mut serde_json::Value| tool["name"] == "search";
    let ours = own.iter_mut().find(search).unwrap();
    let theirs = over_pipes.iter().find(|tool| tool["name"] == "search");
    let theirs = theirs.unwrap();
    let (mode, description) = ("/inputSchema/properties/mode", "/description");
    for place in [mode, description] {
        let (ours, theirs) = (ours.pointer_mut(place), theirs.pointer(place));
        *ours.unwrap() = theirs.unwrap().clone();
    }
    assert_eq!(own, over_pipes, "the same surface, wherever it is");
    // Started under the reference adapter's name.
    let link = sandbox.home().join("pdpp-mcp-server");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rung"), &link).unwrap();
    let mut command = std::process::Command::new(&link);
    command
        .env_clear()
        .env("HOME", sandbox.home())
        .env("RUNG_HOME", sandbox.data())
        .env("PDPP_PROVIDER_URL", format!("http://{}", provider.address))
        .env("PDPP_MCP_SERVER_NAME", "mine")
        .current_dir(sandbox.home().join("project"))
        .stderr(std::process::Stdio::null());
    let mut stdio = crate::stdio::StdioClient::spawn(&mut command);
    let opened = stdio.initialize("2025-06-18", &json!({}));
    assert_eq!(opened["result"]["serverInfo"]["name"], "mine");
    assert_eq!(Agent::Stdio(stdio).list_tools(), over_pipes);
}

//! Errors that name the cause and the next step: server names, handles, listen addresses, unreachable stores and broken files.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::json;

use crate::http::ServerProcess;
use crate::sandbox::{Sandbox, run};

#[test]
fn a_server_of_a_configuration_file_is_reached_by_naming_the_file() {
    let config = json!({"mcpServers": {"notes": {"command": "/bin/false"}}}).to_string();
    for place in [".mcp.json", "project/.mcp.json"] {
        let sandbox = Sandbox::new();
        let file = sandbox.write(place, &config);
        let flag = format!("add `--config {}`", file.display());
        let typed = sandbox.run(&["inspect", "notes"]);
        assert_eq!(typed.status, 66, "{}", typed.stderr);
        assert!(typed.stderr.contains(&flag), "{}", typed.stderr);
        assert!(!typed.stderr.contains("did you mean"), "{}", typed.stderr);
        let near = sandbox.run(&["inspect", "note"]);
        assert!(near.stderr.contains(&flag), "{}", near.stderr);
        assert!(
            near.stderr.contains("did you mean `notes`?"),
            "{}",
            near.stderr
        );
    }
    let sandbox = Sandbox::new();
    sandbox.write(
        ".config/rung/config.toml",
        "[sources.notes]\ndir = \"/tmp\"\n",
    );
    let typed = sandbox.run(&["inspect", "notes"]);
    assert_eq!(typed.status, 66, "{}", typed.stderr);
    let hint = "set sources.notes.command or sources.notes.url";
    assert!(typed.stderr.contains(hint), "{}", typed.stderr);
}

#[test]
fn a_wrong_character_in_a_handle_is_named_with_its_position() {
    let sandbox = Sandbox::new();
    let read = sandbox.run(&["result", "read", "res_abc!def"]);
    assert_eq!(read.status, 64);
    insta::assert_snapshot!(read.stderr, @r"
    error[invalid_handle]: not a handle: it has `!` at position 8; a handle is `res_` and 26 of the characters 0-9 and a-z without i, l, o and u
      next: pass the handle unchanged, as it is in `meta.handle` of the reply
    ");
    let own = format!("{} mcp", env!("CARGO_BIN_EXE_rung"));
    let arguments = r#"{"handle":"res_abc!def"}"#;
    let called = sandbox.run(&["call", &own, "rung.read", "--args", arguments]);
    let message = "not a handle: it has `!` at position 8;";
    assert!(called.stdout.contains(message), "{}", called.stdout);
}

#[test]
fn a_server_listens_at_a_host_name() {
    let sandbox = Sandbox::new();
    let by_flag = ServerProcess::start_at(&sandbox, "localhost:0", &[]);
    assert!(by_flag.address.starts_with("127.0.0.1:"));
    assert_eq!(by_flag.get("/v1/schema").status, 401);
    drop(by_flag);
    let by_variable = ServerProcess::spawn(
        sandbox
            .command()
            .env("RUNG_LISTEN", "localhost:0")
            .arg("serve"),
    );
    assert!(by_variable.address.starts_with("127.0.0.1:"));
    drop(by_variable);
    sandbox.write(".config/rung/config.toml", "listen = \"localhost:0\"\n");
    let by_setting = ServerProcess::spawn(sandbox.command().arg("serve"));
    assert!(by_setting.address.starts_with("127.0.0.1:"));
    assert!(
        sandbox.run_ok(&["config", "show"]).contains("localhost:0"),
        "the setting keeps the name"
    );
    let unknown = sandbox.run(&["serve", "--listen", "no-such-host.invalid:7663"]);
    assert_eq!(unknown.status, 64, "{}", unknown.stderr);
    let why = "cannot listen at no-such-host.invalid:7663: the host name does not resolve";
    assert!(unknown.stderr.contains(why), "{}", unknown.stderr);
    let demo = sandbox.run(&["demo", "--listen", "local host:7663"]);
    assert_eq!(demo.status, 64, "{}", demo.stderr);
    let invalid = sandbox.run(&["serve", "--listen", "local host:7663"]);
    assert!(
        invalid.stderr.contains("must be a host and a port"),
        "{}",
        invalid.stderr
    );
}

#[test]
fn an_unreachable_provider_is_reported_with_its_cause_and_without_credentials() {
    let sandbox = Sandbox::new();
    let connect = |url: &str| {
        let ran = sandbox.run(&["pdpp", "connect", url, "--no-browser"]);
        assert_eq!(ran.status, 69, "{}", ran.stderr);
        assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
        ran.stderr
    };
    let refused = connect("http://me:secret@127.0.0.1:9");
    assert!(refused.contains("http://127.0.0.1:9"), "{refused}");
    assert!(refused.contains("connection refused"), "{refused}");
    let unknown = connect("https://me:secret@no-such-host.invalid");
    assert!(unknown.contains("dns error"), "{unknown}");
    // A server that does not speak TLS.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _hello = stream.read(&mut [0; 1_000]);
            let _sent = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let plain = connect(&format!("https://{address}"));
    assert!(plain.contains("received corrupt message"), "{plain}");
}

#[test]
fn an_unreachable_postgresql_is_reported_with_its_cause_and_without_credentials() {
    let sandbox = Sandbox::new();
    let setting = "records.postgres=postgres://me:secret@127.0.0.1:9/data";
    for command in [["token", "list"], ["pdpp", "disclosures"]] {
        let ran = sandbox.run(&[&["--set", setting][..], &command].concat());
        assert_eq!(ran.status, 75, "{}", ran.stderr);
        for part in ["PostgreSQL at 127.0.0.1:9/data: ", "connection refused"] {
            assert!(ran.stderr.contains(part), "{}", ran.stderr);
        }
        assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    }
}

#[test]
fn a_url_without_the_endpoint_leads_to_it() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--dev"]);
    // A website answers with a page.
    let website = TcpListener::bind("127.0.0.1:0").unwrap();
    let page = website.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in website.incoming() {
            let mut stream = stream.unwrap();
            let _request = stream.read(&mut [0; 10_000]);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
            let _sent = write!(stream, "{head}Content-Length: 6\r\n\r\n<html>");
        }
    });
    for (url, endpoint) in [
        (
            format!("http://{}/", server.address),
            format!("http://{}/mcp", server.address),
        ),
        (
            format!("http://{}/v1/?token=secret", server.address),
            format!("http://{}/v1/mcp", server.address),
        ),
        (format!("http://{page}"), format!("http://{page}/mcp")),
    ] {
        for args in [vec!["inspect", &url], vec!["call", &url, "x"]] {
            let ran = sandbox.run(&args);
            assert_eq!(ran.status, 69, "{args:?}: {}", ran.stderr);
            let hint = format!("next: the MCP endpoint may be {endpoint}: try that URL\n");
            assert!(ran.stderr.contains(&hint), "{args:?}: {}", ran.stderr);
        }
    }
    let url = format!("http://{}/mcp", server.address);
    assert!(sandbox.run_ok(&["inspect", &url]).contains("rung.about"));
}

#[test]
fn a_given_servers_file_that_is_broken_is_an_error() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("broken.json", "{\n  \"mcpServers\": {,\n");
    let file = file.to_str().unwrap();
    let place = format!("{file}:2:");
    for command in [
        &["gateway"][..],
        &["mcp"],
        &["gateway", "status"],
        &["gateway", "why", "a::b"],
    ] {
        let ran = sandbox.run(&[command, &["--config", file]].concat());
        assert_eq!(ran.status, 64, "{command:?}: {}", ran.stderr);
        assert!(
            ran.stderr.starts_with("error[invalid_setting]: ") && ran.stderr.contains(&place),
            "{command:?}: {}",
            ran.stderr
        );
    }
    // A file that is only discovered is reported, and the command continues.
    let found = sandbox.write("project/.mcp.json", "{\n  ,\n");
    let ran = sandbox.run(&["gateway", "status"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let warning = format!("warning: {}:2:", found.display());
    assert!(ran.stderr.contains(&warning), "{}", ran.stderr);
}

#[test]
fn labels_are_styled_on_a_terminal_alone() {
    let sandbox = Sandbox::new();
    let ran = |variables: &[(&str, &str)], args: &[&str]| {
        let mut command = sandbox.command();
        command.envs(variables.iter().copied()).args(args);
        let ran = run(&mut command);
        ran.stdout + &ran.stderr
    };
    // The variable stands for a terminal.
    let forced = [("CLICOLOR_FORCE", "1")];
    let shown = ran(&forced, &["result", "read", "x"]);
    assert!(
        shown.starts_with("\u{1b}[1m\u{1b}[31merror[invalid_handle]\u{1b}[0m: not a handle"),
        "{shown:?}"
    );
    assert!(
        shown.contains("  \u{1b}[1mnext:\u{1b}[0m pass"),
        "{shown:?}"
    );
    let shown = ran(&forced, &["config", "show"]);
    assert!(shown.starts_with("\u{1b}[1mSETTING "), "{shown:?}");
    let shown = ran(&forced, &["pdpp", "connections", "list"]);
    assert!(shown.starts_with("\u{1b}[1mCONNECTION "), "{shown:?}");
    let plain = [("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")];
    for variables in [&plain[..], &[]] {
        for args in [&["result", "read", "x"][..], &["config", "show"]] {
            let shown = ran(variables, args);
            assert!(!shown.contains('\u{1b}'), "{shown:?}");
        }
    }
}

/// Commands and servers survive a reader that closes the stream: `rung … | head -1`.
#[test]
fn a_closed_output_or_error_stream_is_no_panic() {
    let sandbox = Sandbox::new();
    let config = json!({"mcpServers": {"notes": {"command": "/bin/false"}}}).to_string();
    let config = sandbox.write("servers.json", config);
    let config = config.to_str().unwrap();
    for (args, status) in [
        (&["gateway", "status", "--config", config][..], 0),
        (
            &["gateway", "why", "notes", "--config", config, "--json"],
            0,
        ),
        (&["token", "new", "laptop"], 0),
        (&["pdpp", "grant", "revoke", "grt_none"], 66),
    ] {
        let mut child = sandbox
            .command()
            .args(args)
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        assert_eq!(child.wait().unwrap().code(), Some(status), "{args:?}");
    }
}

#[test]
fn an_existing_file_is_no_fault_of_the_store() {
    let sandbox = Sandbox::new();
    let handle = sandbox.store_result("text/plain", "hello");
    let taken = sandbox.write("taken.txt", "mine");
    let ran = sandbox.run(&["result", "export", &handle, "--to", taken.to_str().unwrap()]);
    assert_eq!(ran.status, 64, "{}", ran.stderr);
    assert!(ran.stderr.contains("exists"), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(taken).unwrap(), "mine");
}

#[test]
fn why_allows_nothing_of_a_server_that_cannot_be_used() {
    let sandbox = Sandbox::new();
    let config = json!({"mcpServers": {"notes": {"command": "/bin/false"}}}).to_string();
    sandbox.write("project/.mcp.json", config);
    for (id, reason) in [
        ("notes::read", "not approved: rung gateway trust notes"),
        ("noets::read", "no server has that name"),
    ] {
        let told = sandbox.run_ok(&["gateway", "why", id, "--json"]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["allowed"], false, "{told}");
        assert!(told["why"].as_str().unwrap().contains(reason), "{told}");
    }
}

#[test]
fn a_grant_that_is_revoked_twice_is_reported_as_revoked() {
    let data = crate::authorization::start_open_server();
    let issued = data.sandbox.run(&[
        "pdpp", "grant", "issue", "--client", "agent", "--source", "mail",
    ]);
    let id = issued
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix("grant "));
    let id = id.unwrap().to_owned();
    data.sandbox.run_ok(&["pdpp", "grant", "revoke", &id]);
    let again = data.sandbox.run(&["pdpp", "grant", "revoke", &id]);
    assert_eq!(again.status, 66, "{}", again.stderr);
    assert!(
        again.stderr.contains("is already revoked"),
        "{}",
        again.stderr
    );
}

#[test]
fn the_list_of_databases_tells_which_folders_can_be_opened() {
    let sandbox = Sandbox::new();
    for (flags, any, has_roots) in [("", true, false), (" --root .", false, true)] {
        let server = format!("{} db mcp{flags}", env!("CARGO_BIN_EXE_rung"));
        let listed = sandbox.run_ok(&["call", &server, "rung.db_list"]);
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(listed["anyFolder"], any, "{listed}");
        assert_eq!(listed["roots"].is_array(), has_roots, "{listed}");
    }
}

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

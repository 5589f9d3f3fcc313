//! The gateway over HTTP, compatible with pmcp: port, token, origins, health and metrics.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio as Pipe};

use serde_json::json;

use crate::gateway::{GatewayFixture, LegacyHttpSession, reply_data, tool_error};
use crate::http::{HttpRequest, ServerProcess, legacy_request};

const TOKEN: &str = "a-token-that-somebody-exported-0123456789";

/// The gateway started under the name `pmcp`.
fn pmcp_command(street: &GatewayFixture) -> Command {
    let name = street.sandbox.home().join("pmcp");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rung"), &name).unwrap();
    let ours = street.sandbox.command();
    let mut command = Command::new(name);
    command
        .env_clear()
        .current_dir(ours.get_current_dir().unwrap());
    for (name, value) in ours.get_envs() {
        command.env(name, value.unwrap());
    }
    command.args(["--transport", "http", "--config"]);
    command.arg(street.config_file()).stderr(Pipe::null());
    command
}

/// The line that names the address it listens at, or fails to.
fn port_line(command: &mut Command) -> String {
    first_stderr_line(command, "listen")
}

/// The first line on stderr that contains `about`.
fn first_stderr_line(command: &mut Command, about: &str) -> String {
    let mut child = command
        .stdin(Pipe::null())
        .stdout(Pipe::null())
        .stderr(Pipe::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = lines.map_while(Result::ok);
    let said = said.find(|line| line.contains(about)).unwrap_or_default();
    child.kill().unwrap();
    child.wait().unwrap();
    said
}

fn initialize_request() -> HttpRequest {
    let info = json!({"name": "raw", "version": "0"});
    legacy_request(
        1,
        "initialize",
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}),
    )
}

#[test]
fn the_exported_token_is_accepted_and_no_other() {
    let street = GatewayFixture::with_echo_server();
    let mut command = pmcp_command(&street);
    command.args(["--port", "0"]).env("PMCP_AUTH_TOKEN", TOKEN);
    let server = ServerProcess::spawn(&mut command);
    let refused = server.fetch(initialize_request());
    assert_eq!(refused.status, 401, "{}", refused.text());
    assert!(refused.header("www-authenticate").is_some());
    assert_eq!(
        server
            .fetch(initialize_request().bearer("something-else-altogether-012345"))
            .status,
        401
    );
    assert_eq!(
        server
            .fetch(initialize_request().with_header("Authorization", &format!("bearer {TOKEN}")))
            .status,
        200
    );
    let session = LegacyHttpSession::open(&server, Some(TOKEN));
    let counted = session.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 1, "{counted}");
}

/// The port may be in use by another process: the error names it too.
#[test]
fn the_default_port_is_that_of_pmcp() {
    const AT: &str = "127.0.0.1:3344";
    let street = GatewayFixture::with_echo_server();
    let _taken_now_at_the_latest = std::net::TcpListener::bind(AT);
    let said = port_line(&mut pmcp_command(&street));
    assert!(said.contains(AT), "{said}");
    let said = port_line(&mut street.command(&["--transport", "http"]));
    assert!(said.contains(AT), "{said}");
    let mut exported = street.command(&["--transport", "http", "--port", "1"]);
    let said = port_line(exported.env("PMCP_PORT", "0"));
    let port = said.rsplit_once(':').unwrap().1;
    assert!(
        said.contains("listening at") && port != "0/mcp" && port != "1/mcp",
        "{said}"
    );
}

#[test]
fn health_and_metrics_are_served() {
    let street = GatewayFixture::with_echo_server();
    let server = street.http_server(&[]);
    let health = server.get("/health");
    assert_eq!(health.status, 200, "{}", health.text());
    let metrics = server.get("/metrics");
    assert_eq!(metrics.status, 200);
    assert!(metrics.text().contains("# TYPE"), "{}", metrics.text());
}

#[test]
fn unknown_hosts_and_origins_are_refused() {
    let street = GatewayFixture::with_echo_server();
    let server = street.http_server(&["--allowed-origin", "https://app.example"]);
    assert_eq!(server.fetch(initialize_request()).status, 200);
    let port = server.address.rsplit_once(':').unwrap().1;
    let evil = format!("evil.example:{port}");
    let by_host = server.fetch(initialize_request().with_header("Host", &evil));
    assert!((400..500).contains(&by_host.status), "{}", by_host.status);
    let by_page = server.fetch(initialize_request().with_header("Origin", "http://evil.example"));
    assert_eq!(by_page.status, 403, "{}", by_page.text());
    let both = server.fetch(
        initialize_request()
            .with_header("Host", &evil)
            .with_header("Origin", &format!("http://{evil}")),
    );
    assert!((400..500).contains(&both.status), "{}", both.status);
    let known = server.fetch(initialize_request().with_header("Origin", "https://app.example"));
    assert_eq!(known.status, 200, "{}", known.text());
}

#[test]
fn a_client_over_the_rate_limit_is_told_when_to_retry() {
    let street = GatewayFixture::with_echo_server();
    let (alice, bob) = (street.create_token("alice"), street.create_token("bob"));
    let server = street.http_server(&["--rate-limit", "3"]);
    let mut late = (0..10)
        .map(|_| server.fetch(initialize_request().bearer(&alice)))
        .filter(|reply| reply.status != 200);
    let late = late.next().expect("too many");
    assert_eq!(late.status, 429, "{}", late.text());
    let after: u64 = late.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&after), "{after}");
    assert_eq!(
        server.fetch(initialize_request().bearer(&bob)).status,
        200,
        "another is not meant"
    );
}

#[test]
fn other_machines_reach_it_with_a_token_alone() {
    let street = GatewayFixture::with_echo_server();
    let mut command = street.command(&["--transport", "http", "--port", "0", "--host", "0.0.0.0"]);
    let ran = crate::sandbox::run(command.stderr(Pipe::piped()));
    assert_ne!(ran.status, 0);
    assert!(ran.stderr.contains("PMCP_AUTH_TOKEN"), "{}", ran.stderr);
    assert!(ran.stderr.contains("rung token new"), "{}", ran.stderr);
    // Either of the two remedies in the message works.
    let token = street.create_token("laptop");
    let server = street.http_server(&["--host", "0.0.0.0"]);
    let port = server.address.rsplit_once(':').unwrap().1;
    let here = initialize_request().with_header("Host", &format!("127.0.0.1:{port}"));
    assert_eq!(server.fetch(here.clone()).status, 401);
    assert_eq!(server.fetch(here.bearer(&token)).status, 200);
}

/// As in pmcp: on loopback the gateway is open until the first token is created.
#[test]
fn without_any_token_local_clients_reach_the_servers() {
    let street = GatewayFixture::with_echo_server();
    let mut command = pmcp_command(&street);
    let server = ServerProcess::spawn(command.args(["--port", "0"]));
    let anybody = LegacyHttpSession::open(&server, None);
    let counted = anybody.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 1, "{counted}");
    let token = street.create_token("laptop");
    assert_eq!(server.fetch(initialize_request()).status, 401);
    assert_eq!(
        server.fetch(initialize_request().bearer(&token)).status,
        200
    );
}

#[test]
fn the_open_to_setting_is_applied_and_reported() {
    let street = GatewayFixture::with_echo_server();
    let said = ["--set", "gateway.open_to=tokens"];
    let server = street.http_server(&said);
    let nobody = LegacyHttpSession::open(&server, None);
    let listed = nobody.request("tools/list", json!({}));
    assert!(
        !listed.to_string().contains("\"gateway.invoke\""),
        "{listed}"
    );
    drop(server);
    let at = ["--transport", "http", "--port", "0"];
    let told = first_stderr_line(&mut street.command(&at), "token");
    assert!(told.contains("every client on this machine"), "{told}");
    let told = first_stderr_line(&mut street.command(&[&at[..], &said].concat()), "token");
    assert!(told.contains("clients need a token"), "{told}");
}

/// As in the seed: the metrics are public.
#[test]
fn health_and_metrics_need_no_token() {
    let street = GatewayFixture::with_echo_server();
    let mut command = street.command(&["--transport", "http", "--port", "0"]);
    let server = ServerProcess::spawn(command.env("PMCP_AUTH_TOKEN", TOKEN));
    assert_eq!(server.fetch(initialize_request()).status, 401);
    for path in ["/health", "/metrics"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
}

#[test]
fn call_counts_by_tool_are_shown_to_authorized_clients() {
    let street = GatewayFixture::with_echo_server();
    let mut command = street.command(&["--transport", "http", "--port", "0"]);
    let server = ServerProcess::spawn(command.env("PMCP_AUTH_TOKEN", TOKEN));
    let session = LegacyHttpSession::open(&server, Some(TOKEN));
    session.invoke("house::count", &json!({}));
    session.invoke("house::count", &json!({}));
    session.invoke("house::add", &json!({}));
    session.invoke("house::made_up", &json!({}));
    let page = |request: &HttpRequest| {
        let mut reply = server.send(request);
        reply.read_all();
        reply.text()
    };
    let told = page(&HttpRequest::new("GET", "/metrics").bearer(TOKEN));
    for line in [
        r#"rung_gateway_calls_total{server="house",tool="count",outcome="answered"} 2"#,
        r#"rung_gateway_calls_total{server="house",tool="add",outcome="outcome_unknown"} 1"#,
        r#"rung_gateway_call_seconds_count{server="house",tool="count"} 2"#,
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    assert!(!told.contains("made_up"), "nobody makes up a label: {told}");
    let told = page(&HttpRequest::new("GET", "/metrics"));
    assert!(
        told.contains("rung_requests_total") && !told.contains("house"),
        "{told}"
    );
}

#[test]
fn recent_calls_are_shown_to_their_caller() {
    let street = GatewayFixture::with_echo_server();
    let (alice, bob) = (street.create_token("alice"), street.create_token("bob"));
    let server = street.http_server(&[]);
    let (alice, bob) = (
        LegacyHttpSession::open(&server, Some(&alice)),
        LegacyHttpSession::open(&server, Some(&bob)),
    );
    alice.invoke("house::count", &json!({}));
    alice.invoke("house::add", &json!({}));
    bob.invoke("house::say", &json!({}));
    let told = |session: &LegacyHttpSession<'_>, arguments| {
        let health = session.call("gateway.health", &arguments);
        reply_data(&health)
    };
    let all = told(&alice, json!({"all": true}));
    let events = all["audit_events"].as_array().unwrap();
    let of = |at: usize| (&events[at]["tool_id"], &events[at]["outcome"]);
    assert_eq!(events.len(), 2, "{all}");
    assert_eq!(of(0), (&json!("house::add"), &json!("outcome_unknown")));
    assert_eq!(of(1), (&json!("house::count"), &json!("answered")));
    assert!(events[0]["error"].is_string(), "{all}");
    assert!(all["gateway_diagnostics"]["version"].is_string(), "{all}");
    let hers = told(&bob, json!({"server": "house"}));
    assert_eq!(hers["audit_events"].as_array().unwrap().len(), 1, "{hers}");
    let usual = told(&alice, json!({}));
    assert!(usual.get("audit_events").is_none(), "{usual}");
    assert!(usual.get("gateway_diagnostics").is_none(), "{usual}");
}

#[test]
fn a_proxy_may_keep_the_name_that_was_called() {
    let street = GatewayFixture::with_echo_server();
    let mut command = street.command(&["--transport", "http", "--port", "0"]);
    command.args(["--allow-host", "door.example"]).env(
        "PMCP_ALLOWED_ORIGINS",
        "https://a.example, https://b.example",
    );
    let server = ServerProcess::spawn(&mut command);
    let by = |name: &str, value: &str| server.fetch(initialize_request().with_header(name, value));
    assert_eq!(by("Host", "door.example").status, 200);
    let refused = by("Host", "other.example");
    assert!(
        refused.text().contains("`--allow-host"),
        "{}",
        refused.text()
    );
    assert_eq!(by("Origin", "https://b.example").status, 200);
    let refused = by("Origin", "https://c.example");
    assert!(
        refused.text().contains("`--allow-origin"),
        "{}",
        refused.text()
    );
}

#[test]
fn what_is_exported_wrongly_is_refused() {
    let street = GatewayFixture::with_echo_server();
    let empty = street.sandbox.write("token", "\n");
    let empty = empty.to_str().unwrap();
    for (flags, exported) in [
        (&[][..], ("PMCP_RATE_LIMIT", "abc")),
        (&[], ("PMCP_MAX_SPAWNS", "many")),
        (&[], ("PMCP_REQUEST_TIMEOUT", "-1")),
        (&[], ("PMCP_TRANSPORT", "sse")),
        (&["--auth-token-file", empty], ("PMCP_PORT", "0")),
    ] {
        let mut command = street.command(&["--transport", "http", "--port", "0"]);
        command.args(flags).env(exported.0, exported.1);
        let ran = crate::sandbox::run(command.stderr(Pipe::piped()));
        assert_eq!(ran.status, 64, "{exported:?}: {}", ran.stderr);
        let named = flags.last().unwrap_or(&exported.0);
        assert!(ran.stderr.contains(named), "{exported:?}: {}", ran.stderr);
    }
}

#[test]
fn the_flags_of_pmcp_are_accepted() {
    let street = GatewayFixture::with_echo_server();
    let version = crate::sandbox::run(Command::new(env!("CARGO_BIN_EXE_rung")).arg("--version"));
    let number = version.stdout.trim().rsplit_once(' ').unwrap().1.to_owned();
    let mut command = pmcp_command(&street);
    let told = crate::sandbox::run(command.arg("--version"));
    assert!(told.stdout.contains(&number), "{told:?}");
    let flags = "-q --log-format json --lock-dir . --max-concurrent-spawns 1 --request-timeout 1";
    let flags: Vec<&str> = flags.split(' ').collect();
    let mut client = street.client(&flags);
    let late = client.invoke("house::wait", &json!({}));
    assert_eq!(tool_error(&late)["code"], "deadline_exceeded", "{late}");
    let mut loud = street.command(&["--transport", "http", "--port", "0", "--debug"]);
    let said = first_stderr_line(loud.args(["--log-format", "json"]), "listen");
    assert!(!said.is_empty());
}

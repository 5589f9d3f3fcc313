//! `pdpp connect`, and the demo that shows it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::authorization::{
    approve_request, post_json, post_json_ok, query_param, start_open_server,
};
use crate::personal_data::PersonalDataFixture;
use crate::sandbox::Sandbox;

/// Starts a command that asks for access, under some program name. Returns the process and the URL to approve at.
fn start_connect_command(data: &PersonalDataFixture, args: &[&str], name: &str) -> (Child, String) {
    let program = data.sandbox.home().join(name);
    if !program.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rung"), &program).unwrap();
    }
    let mut command = Command::new(program);
    command
        .current_dir(data.sandbox.home())
        .env_clear()
        .env("HOME", data.sandbox.home());
    command
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let url = loop {
        let mut line = String::new();
        assert_ne!(
            std::io::BufRead::read_line(&mut stderr, &mut line).unwrap(),
            0
        );
        if let Some(url) = line.trim().strip_prefix("approve the request at ") {
            break url.to_owned();
        }
    };
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::stderr()));
    (child, url)
}

/// Starts a proxy to our server that accepts only pushed authorization requests (PAR). Returns its address.
fn start_strict_proxy(server: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = server.to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 4_096];
            let whole = |request: &[u8]| {
                let text = String::from_utf8_lossy(request).to_ascii_lowercase();
                let (head, body) = text.split_once("\r\n\r\n")?;
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
                (body.len() >= length).then_some(())
            };
            while whole(&request).is_none() {
                let got = client.read(&mut buffer).unwrap();
                assert_ne!(got, 0, "the request is whole");
                request.extend_from_slice(&buffer[..got]);
            }
            let text = String::from_utf8(request).unwrap();
            if text.starts_with("POST /agent-connect HTTP") && !text.contains("request_uri") {
                let body =
                    r#"{"error":"invalid_request","error_description":"request_uri is needed"}"#;
                let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close";
                write!(
                    client,
                    "{head}\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                )
                .unwrap();
                continue;
            }
            let mut behind = TcpStream::connect(&server).unwrap();
            let (first, rest) = text.split_once("\r\n").unwrap();
            write!(behind, "{first}\r\nConnection: close\r\n{rest}").unwrap();
            let mut reply = String::new();
            behind.read_to_string(&mut reply).unwrap();
            client.write_all(reply.as_bytes()).unwrap();
        }
    });
    address
}

#[test]
fn a_provider_that_requires_pushed_requests_gets_them() {
    let data = start_open_server();
    let provider = format!("http://{}", start_strict_proxy(&data.server.address));
    let refused = data
        .sandbox
        .run(&["pdpp", "connect", &provider, "--no-browser"]);
    assert!(
        refused.status == 64 && refused.stderr.contains("--source"),
        "{}",
        refused.stderr
    );
    let args = [
        "connect",
        &provider,
        "--no-browser",
        "--source",
        "mail",
        "--streams",
        "messages",
    ];
    let (child, url) = start_connect_command(&data, &args, "pdpp");
    assert!(url.starts_with(&provider), "{url}");
    let approved = approve_request(&data, &query_param(&url, "request_uri").unwrap());
    assert_eq!(approved.json()["status"], "approved", "{}", approved.text());
    let done = child.wait_with_output().unwrap();
    assert!(
        String::from_utf8_lossy(&done.stdout).contains("mail/messages"),
        "{done:?}"
    );
}

#[test]
fn a_command_asks_for_access_and_keeps_and_gives_back_what_it_was_given() {
    let data = start_open_server();
    let provider = format!("http://{}", data.server.address);
    let (child, url) =
        start_connect_command(&data, &["connect", &provider, "--no-browser"], "pdpp");
    let request_uri = query_param(&url, "request_uri").unwrap();
    let review = post_json_ok(
        &data,
        "/consent/review",
        &json!({"request_uri": request_uri, "sources": [{"connector_id": "mail", "streams": ["messages"]}]}),
    );
    post_json_ok(
        &data,
        "/consent/approve",
        &json!({"request_uri": request_uri, "approval_review_revision": review["approval_review_revision"]}),
    );
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let key = data.server.address.replace(':', "_");
    let path = data
        .sandbox
        .home()
        .join(format!(".pdpp/clients/{key}.json"));
    let mut kept: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(kept["provider_url"], provider);
    assert_eq!(kept["client"]["client_name"], "PDPP CLI");
    assert!(kept["credential"]["refresh_token"].is_string());

    // Concurrent commands whose token is about to expire refresh it once.
    kept["credential"]["expires_at"] = json!("2026-01-01T00:00:00Z");
    std::fs::write(&path, kept.to_string()).unwrap();
    let root = data.sandbox.home().join(".pdpp");
    let root = root.to_str().unwrap();
    let whoami = || {
        data.sandbox
            .run(&["pdpp", "whoami", &provider, "--cache-root", root, "--json"])
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(whoami)).collect();
        for one in all {
            let ran = one.join().unwrap();
            assert_eq!(ran.status, 0, "{}", ran.stderr);
            let told: Value = serde_json::from_str(&ran.stdout).unwrap();
            assert_eq!(told["streams"], json!(["mail/messages"]));
        }
    });
    let renewed: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_ne!(
        renewed["credential"]["access_token"],
        kept["credential"]["access_token"]
    );
    assert_eq!(
        renewed["credential"]["grant_id"],
        kept["credential"]["grant_id"]
    );

    // With a provider that requires PAR, the request for one source is pushed first.
    let args = [
        "pdpp",
        "connect",
        &provider,
        "--no-browser",
        "--source",
        "mail",
        "--streams",
        "messages",
        "--cache-root",
        root,
    ];
    let (child, url) = start_connect_command(&data, &args, "rung");
    let back = approve_request(&data, &query_param(&url, "request_uri").unwrap());
    assert_eq!(back.json()["status"], "approved");
    assert!(child.wait_with_output().unwrap().status.success());

    let listed = data
        .sandbox
        .run_ok(&["pdpp", "grants", "--cache-root", root]);
    assert!(
        listed.contains(&provider) && !listed.contains("rung_"),
        "{listed}"
    );
    let last: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    data.sandbox
        .run_ok(&["pdpp", "revoke", &provider, "--cache-root", root]);
    assert!(!path.exists());
    let token = last["credential"]["access_token"].as_str().unwrap();
    assert_eq!(
        data.get_error(token, "/v1/schema"),
        (403, "grant_revoked".to_owned())
    );
    let gone = whoami();
    assert!(gone.stderr.contains("rung pdpp connect"), "{}", gone.stderr);
    let wrong = data.sandbox.run(&["pdpp", "connect", "ftp://x"]);
    assert_eq!(wrong.status, 64, "{}", wrong.stderr);
}

#[test]
fn a_denied_command_reports_the_denial() {
    let data = start_open_server();
    let attempt = post_json_ok(
        &data,
        "/agent-connect",
        &json!({"client_name": "Tool", "scope": "pdpp:read"}),
    );
    assert_eq!(attempt["interval_ms"], 2_000);
    let path = format!("/agent-connect/{}/token", attempt["id"].as_str().unwrap());
    let poll = |code: &Value| post_json(&data, &path, &json!({"polling_code": code}));
    let pending = poll(&attempt["polling_code"]);
    assert_eq!(
        (pending.status, pending.json()["status"].as_str()),
        (202, Some("pending"))
    );
    assert_eq!(poll(&json!("rung_guess")).status, 401);
    let request_uri =
        query_param(attempt["approval_url"].as_str().unwrap(), "request_uri").unwrap();
    post_json_ok(&data, "/consent/deny", &json!({"request_uri": request_uri}));
    let denied = poll(&attempt["polling_code"]);
    assert_eq!(
        (denied.status, denied.json()["error"].as_str()),
        (403, Some("access_denied"))
    );
}

#[test]
fn what_is_kept_of_one_provider_is_sent_to_no_other() {
    let sandbox = Sandbox::new();
    let kept = json!({"provider_url": "https://127.0.0.1:1", "credential": {"access_token": "x"}});
    sandbox.write("project/.pdpp/clients/127.0.0.1_1.json", kept.to_string());
    let ran = sandbox.run(&["pdpp", "whoami", "http://127.0.0.1:1"]);
    assert!(
        ran.status == 77 && ran.stderr.contains("is not sent to"),
        "{}",
        ran.stderr
    );
}

#[test]
fn the_demo_is_one_command_from_nothing_to_an_answer_and_touches_nothing_else() {
    let sandbox = Sandbox::new();
    let demo = ["demo", "--prepare", "--listen", "127.0.0.1:7999"];
    let said = sandbox.run_ok(&demo);
    let again = sandbox.run_ok(&demo);
    let grant = |said: &str| {
        said.split("grant grt_")
            .nth(1)
            .map(|rest| rest[..10].to_owned())
    };
    assert!(grant(&said).is_some(), "{said}");
    assert_eq!(
        grant(&said),
        grant(&again),
        "the second time it finds what it made"
    );
    assert!(
        again.contains("as printed by the first `rung demo`"),
        "nobody is shut out: {again}"
    );
    // If the port is taken or the folder holds other data, the demo changes nothing.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = sandbox.run(&["demo", "--listen", &taken.local_addr().unwrap().to_string()]);
    assert!(
        busy.status == 64 && busy.stdout.is_empty(),
        "{}{}",
        busy.stdout,
        busy.stderr
    );
    let data = PersonalDataFixture::start(&[]);
    data.create_connection("home");
    let home = data.sandbox.data();
    let refused = data
        .sandbox
        .run(&["demo", "--prepare", "--home", home.to_str().unwrap()]);
    assert!(
        refused.stderr.contains("holds other data"),
        "{}",
        refused.stderr
    );
}

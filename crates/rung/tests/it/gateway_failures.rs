//! Servers that cannot start, hang, or die during a call: the caller learns what happened and what to do, and other calls are
//! unaffected.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::gateway::{
    GatewayFixture, LegacyHttpSession, first_text, reply_data, tool_error, wait_until, with_role,
};

/// Enough for a busy machine, and far below the time any server hangs here.
const MAX_DELAY: Duration = Duration::from_secs(10);

#[test]
fn a_server_that_cannot_start_is_named_with_its_last_words_and_what_to_do() {
    let street = GatewayFixture::new();
    street.configure(&json!({
        "missing": {"command": "/nonexistent/server"},
        "dies": with_role("dies"),
        "hangs": with_role("hang"),
    }));
    let mut client = street.client(&["--set", "gateway.start_s=1"]);
    for (server, words) in [
        ("missing", "/nonexistent/server could not be started"),
        ("dies", "there is no configuration"),
        ("hangs", "was not ready in time"),
    ] {
        for (tool, arguments) in [
            ("gateway.invoke", json!({"tool_id": format!("{server}::a")})),
            (
                "gateway.describe",
                json!({"tool_id": format!("{server}::a")}),
            ),
            ("gateway.connect_server", json!({"server_name": server})),
        ] {
            let failed = client.call(tool, &arguments);
            let failed = tool_error(&failed);
            assert_eq!(failed["code"], "source_unavailable", "{tool}: {failed}");
            let message = failed["message"].as_str().unwrap();
            assert!(message.contains(server), "{tool}: {message}");
            assert!(message.contains(words), "{tool}: {message}");
            let hint = failed["hint"].as_str().unwrap();
            assert!(hint.contains("gateway.health"), "{tool}: {hint}");
        }
    }
    let health = client.call("gateway.health", &json!({}));
    let health = &reply_data(&health);
    assert_eq!(health["counts"], json!({"error": 3}));
    let one = client.call("gateway.health", &json!({"server": "dies"}));
    let row = &reply_data(&one)["servers"][0];
    assert_eq!(row["status"], "error");
    assert!(
        row["error"]
            .as_str()
            .unwrap()
            .contains("there is no configuration"),
        "{row}"
    );
}

#[test]
fn a_server_that_ends_while_idle_is_reported_until_it_is_called() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let counted = client.invoke("house::count", &json!({}));
    let pid = &reply_data(&counted)["result"]["pid"];
    let killed = std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status();
    assert!(killed.unwrap().success());
    let health = wait_until("its end is noticed", || {
        let health = client.call("gateway.health", &json!({}));
        let health = reply_data(&health);
        (health["servers"][0]["status"] == "error").then_some(health)
    });
    let why = health["servers"][0]["error"].as_str().unwrap();
    assert!(
        why.contains("exited; the next call starts it again"),
        "{health}"
    );
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 1);
    let health = client.call("gateway.health", &json!({}));
    let row = &reply_data(&health)["servers"][0];
    assert_eq!(row["status"], "online", "{health}");
    assert!(row.get("error").is_none(), "{health}");
    // A stopped server is not reported as having died.
    client.call(
        "gateway.disconnect_server",
        &json!({"server_name": "house"}),
    );
    let health = client.call("gateway.health", &json!({"server": "house"}));
    let row = &reply_data(&health)["servers"][0];
    assert_eq!(row["status"], "lazy", "{health}");
}

#[test]
fn a_server_that_was_mended_is_used_by_the_next_call() {
    let street = GatewayFixture::new();
    let script = street.sandbox.home().join("server");
    street.configure(&json!({"house": {"command": script, "env": {}}}));
    let mut client = street.client(&[]);
    let failed = client.invoke("house::count", &json!({}));
    assert_eq!(tool_error(&failed)["code"], "source_unavailable");
    std::os::unix::fs::symlink(wrapper_script(&street), &script).unwrap();
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 1, "{counted}");
    let health = client.call("gateway.health", &json!({}));
    assert_eq!(reply_data(&health)["counts"], json!({"online": 1}));
}

/// A script without arguments that runs the echo server.
fn wrapper_script(street: &GatewayFixture) -> std::path::PathBuf {
    wrapper_script_after(street, "true")
}

/// A script that runs a command and then the echo server.
fn wrapper_script_after(street: &GatewayFixture, first: &str) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let house = crate::gateway::faulty_server();
    let script = format!("#!/bin/sh\n{first}\nexec {} house\n", house.display());
    let path = street.sandbox.write("house.sh", script);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

#[test]
fn a_server_that_hangs_in_its_start_delays_no_other() {
    let street = GatewayFixture::new();
    street.configure(&json!({
        "hangs": street.traced_role("hang", "hangs"),
        "house": street.echo_server("house"),
    }));
    let mut client = street.client(&[]);
    let began = Instant::now();
    let hung = client.send_invoke("hangs::a", &json!({}));
    street.wait_for_trace("hangs", "started", 1);
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 1, "{counted}");
    let found = client.call("gateway.catalog_search", &json!({"query": "count"}));
    assert_eq!(reply_data(&found)["results"][0]["tool_id"], "house::count");
    client.call("gateway.health", &json!({"all": true}));
    assert!(began.elapsed() < MAX_DELAY, "{:?}", began.elapsed());
    // A caller can cancel its wait for a starting server.
    client.stdio.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": hung}}));
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 2);
}

#[test]
fn over_http_the_hung_start_of_one_client_delays_no_other() {
    let street = GatewayFixture::new();
    street.configure(&json!({
        "hangs": street.traced_role("hang", "hangs"),
        "house": street.echo_server("house"),
    }));
    let (alice, bob) = (street.create_token("alice"), street.create_token("bob"));
    let server = street.http_server(&["--set", "gateway.start_s=5"]);
    let alice = LegacyHttpSession::open(&server, Some(&alice));
    let bob = LegacyHttpSession::open(&server, Some(&bob));
    std::thread::scope(|scope| {
        let hung = scope.spawn(move || alice.invoke("hangs::a", &json!({})));
        street.wait_for_trace("hangs", "started", 1);
        let counted = bob.invoke("house::count", &json!({}));
        assert_eq!(reply_data(&counted)["result"]["count"], 1, "{counted}");
        assert!(!hung.is_finished(), "it hangs all the while");
        let failed = hung.join().unwrap();
        assert_eq!(
            tool_error(&failed)["code"],
            "source_unavailable",
            "{failed}"
        );
    });
}

#[test]
fn a_call_that_may_have_been_done_is_not_repeated_and_the_next_one_works() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let lost = client.invoke("house::add", &json!({}));
    let lost = tool_error(&lost);
    assert_eq!(lost["code"], "outcome_unknown", "{lost}");
    let message = lost["message"].as_str().unwrap();
    assert!(message.contains("house"), "{message}");
    assert!(message.contains("segmentation something"), "{message}");
    assert!(
        lost["hint"]
            .as_str()
            .unwrap()
            .contains("check whether the call took effect"),
        "{lost}"
    );
    assert_eq!(street.trace_count("house", "add"), 1);
    let health = client.call("gateway.health", &json!({}));
    let health = &reply_data(&health);
    assert_eq!(health["counts"], json!({"error": 1}), "{health}");
    let why = health["servers"][0]["error"].as_str().unwrap();
    assert!(why.contains("segmentation something"), "{why}");
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 1, "{counted}");
    assert_eq!(street.start_count("house"), 2);
    let health = client.call("gateway.health", &json!({}));
    assert_eq!(reply_data(&health)["counts"], json!({"online": 1}));
    let row = &reply_data(&health)["servers"][0];
    assert_eq!(row["error"], Value::Null, "{row}");
}

#[test]
fn a_call_that_can_be_done_twice_is_repeated_once() {
    for tool in ["look", "put"] {
        let street = GatewayFixture::with_echo_server();
        let mut client = street.client(&[]);
        let done = client.invoke(&format!("house::{tool}"), &json!({}));
        assert_eq!(done["isError"], Value::Null, "{done}");
        assert_eq!(first_text(&done), "done");
        assert_eq!(street.trace_count("house", tool), 2);
        assert_eq!(street.start_count("house"), 2);
    }
}

/// The call is retried once at most.
#[test]
fn a_call_that_always_kills_its_server_is_tried_twice_at_most() {
    let street = GatewayFixture::new();
    street.configure(&json!({"crash": street.traced_role("crash", "crash")}));
    let mut client = street.client(&[]);
    let lost = client.invoke("crash::a", &json!({}));
    assert_eq!(tool_error(&lost)["code"], "outcome_unknown", "{lost}");
    assert_eq!(street.trace_count("crash", "tools/call"), 2);
}

/// When one call kills the server, the other calls at that server fail too, and their client continues.
#[test]
fn a_crash_is_reported_to_every_caller_whose_call_it_ended() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    // The waiting call is one that is not retried. The count shows later that the server was restarted.
    client.invoke("house::count", &json!({}));
    let one = client.send_invoke("house::ask", &json!({}));
    let lost = client.invoke("house::add", &json!({}));
    assert_eq!(tool_error(&lost)["code"], "outcome_unknown");
    let answer = client.wait_for_reply(one);
    assert!(answer["result"]["isError"] == true, "{answer}");
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 1);
}

#[test]
fn a_call_that_takes_too_long_ends_by_itself_and_its_server_is_told() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let late = client.call(
        "gateway.invoke",
        &json!({"tool_id": "house::wait", "options": {"timeout_ms": 1_000}}),
    );
    let late = tool_error(&late);
    assert_eq!(late["code"], "deadline_exceeded", "it only reads: {late}");
    street.wait_for_trace("house", "notifications/cancelled", 1);
    let late = client.call(
        "gateway.invoke",
        &json!({"tool_id": "house::hold", "options": {"timeout_ms": 1_000}}),
    );
    let late = tool_error(&late);
    assert_eq!(late["code"], "outcome_unknown", "{late}");
    assert!(
        !late["hint"].as_str().unwrap().contains("started"),
        "{late}"
    );
    street.wait_for_trace("house", "notifications/cancelled", 2);
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 1);
    assert_eq!(street.start_count("house"), 1, "it goes on as it was");
}

#[test]
fn an_address_that_does_not_answer_is_reported() {
    let street = GatewayFixture::new();
    street.configure(&json!({"away": {"url": "http://127.0.0.1:9/mcp"}}));
    let mut client = street.client(&[]);
    let failed = client.invoke("away::a", &json!({}));
    let failed = tool_error(&failed);
    assert_eq!(failed["code"], "source_unavailable", "{failed}");
    assert!(
        failed["message"].as_str().unwrap().contains("away"),
        "{failed}"
    );
}

/// The timeout of a call includes the start of its server.
#[test]
fn the_time_of_a_call_is_also_that_of_its_servers_start() {
    let street = GatewayFixture::new();
    let door = street.sandbox.home().join("door");
    let first = format!("while [ ! -e {} ]; do sleep 0.05; done", door.display());
    let mut slow = street.echo_server("slow");
    slow["command"] = wrapper_script_after(&street, &first).to_str().into();
    street.configure(&json!({"slow": slow}));
    let mut client = street.client(&[]);
    let soon = json!({"tool_id": "slow::count", "options": {"timeout_ms": 1_000}});
    let began = Instant::now();
    let late = client.call("gateway.invoke", &soon);
    assert!(began.elapsed() < MAX_DELAY, "{:?}", began.elapsed());
    let late = tool_error(&late);
    assert_eq!(late["code"], "source_unavailable", "{late}");
    let message = late["message"].as_str().unwrap();
    assert!(
        message.contains("slow") && message.contains("the call was not sent"),
        "{message}"
    );
    let hint = late["hint"].as_str().unwrap();
    assert!(
        hint.contains("timeout_ms") && hint.contains("gateway.health"),
        "{hint}"
    );
    let health = client.call("gateway.health", &json!({"server": "slow"}));
    let row = &reply_data(&health)["servers"][0];
    assert_eq!(row["starting"], true, "{row}");
    // The start has continued in the background.
    std::fs::write(&door, "").unwrap();
    let counted = client.invoke("slow::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 1, "{counted}");
    assert_eq!(street.start_count("slow"), 1);
}

#[test]
fn servers_that_hang_do_not_keep_others_from_being_started() {
    let street = GatewayFixture::new();
    let hangs = (0..9).map(|n| (format!("hangs{n}"), with_role("hang")));
    let mut servers: serde_json::Map<String, Value> = hangs.collect();
    servers.insert("last".to_owned(), street.echo_server("house"));
    let names: Vec<&String> = servers.keys().collect();
    let file = json!({"autoStart": names, "mcpServers": servers});
    street.sandbox.write("servers.json", file.to_string());
    let began = Instant::now();
    let _client = street.client(&[]);
    street.wait_for_trace("house", "notifications/initialized", 1);
    assert!(began.elapsed() < MAX_DELAY, "{:?}", began.elapsed());
}

#[test]
fn a_refresh_does_not_wait_for_servers_that_hang() {
    let street = GatewayFixture::new();
    street.configure(&json!({"hangs": with_role("hang"), "house": street.echo_server("house")}));
    let mut client = street.client(&[]);
    let began = Instant::now();
    let refreshed = client.call("gateway.refresh", &json!({}));
    assert!(began.elapsed() < MAX_DELAY / 2, "{:?}", began.elapsed());
    let refreshed = &reply_data(&refreshed);
    assert_eq!(refreshed["still_starting"], json!(["hangs"]), "{refreshed}");
    // A server started only to list its tools is stopped again.
    assert_eq!(refreshed["servers_online"], 0, "{refreshed}");
    assert_eq!(refreshed["tools_indexed"], 20, "{refreshed}");
    assert_eq!(refreshed["servers_seen"], 2, "{refreshed}");
    for what in ["pending_requests", "mcp_tasks"] {
        for how in ["seen", "cancelled", "refused", "remaining"] {
            assert_eq!(refreshed[format!("{what}_{how}")], 0, "{refreshed}");
        }
    }
}

/// A search does not ask the agent to wait for servers that failed.
#[test]
fn failed_servers_are_listed_apart_from_servers_not_seen_yet() {
    let street = GatewayFixture::new();
    street.configure(&json!({"dies": with_role("dies")}));
    let mut client = street.client(&[]);
    let found = wait_until("it is known to fail", || {
        let found = client.call("gateway.catalog_search", &json!({"query": "x"}));
        let found = reply_data(&found);
        (found["failed"] == json!(["dies"])).then_some(found)
    });
    assert_eq!(found["not_seen_yet"], Value::Null, "{found}");
    let hint = found["hint"].as_str().unwrap();
    assert!(
        hint.contains("gateway.health {\"server\":\"dies\"}") && !hint.contains("again"),
        "{hint}"
    );
}

#[test]
fn a_call_of_a_server_ends_at_its_deadline() {
    let street = GatewayFixture::with_echo_server();
    let flags = ["--set", "calls.gateway_invoke.deadline_s=1"];
    let mut client = street.client(&flags);
    let waits = json!({"tool_id": "house::wait", "options": {"timeout_ms": 60_000}});
    let late = client.call("gateway.invoke", &waits);
    assert_eq!(tool_error(&late)["code"], "outcome_unknown", "{late}");
    street.wait_for_trace("house", "notifications/cancelled", 1);
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 1);
    // The tools of the direct surface have the same time. This one only reads, so it may be called again.
    let flags = ["--surface", "direct", "--set", "calls.deadline_s=1"];
    let mut client = street.client(&flags);
    let late = client.call("wait", &json!({}));
    assert_eq!(tool_error(&late)["code"], "deadline_exceeded", "{late}");
    street.wait_for_trace("house", "notifications/cancelled", 2);
}

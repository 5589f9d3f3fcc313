//! Servers that cannot start, hang, or die in the middle of a call: whoever asked is told what happened and what to do, and
//! nobody else notices.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::gateway::{Session, Street, error, plays, text, until};

/// Long enough for a busy machine, and far from how long anything hangs here.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_server_that_cannot_start_is_named_with_its_last_words_and_what_to_do() {
    let street = Street::new();
    street.configure(&json!({
        "missing": {"command": "/nonexistent/server"},
        "dies": plays("dies"),
        "hangs": plays("hang"),
    }));
    let mut client = street.client(&["--set", "gateway.start_s=1"]);
    for (server, words) in [
        ("missing", "/nonexistent/server could not be started"),
        ("dies", "there is no configuration"),
        ("hangs", "did not get ready in time"),
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
            let failed = error(&failed);
            assert_eq!(failed["code"], "source_unavailable", "{tool}: {failed}");
            let message = failed["message"].as_str().unwrap();
            assert!(message.contains(server), "{tool}: {message}");
            assert!(message.contains(words), "{tool}: {message}");
            let hint = failed["hint"].as_str().unwrap();
            assert!(hint.contains("gateway.health"), "{tool}: {hint}");
        }
    }
    let health = client.call("gateway.health", &json!({}));
    let health = &health["structuredContent"];
    assert_eq!(health["counts"], json!({"error": 3}));
    let one = client.call("gateway.health", &json!({"server": "dies"}));
    let row = &one["structuredContent"]["servers"][0];
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
fn a_server_that_ends_while_nobody_calls_is_told_of_until_it_is_called() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    let counted = client.invoke("house::count", &json!({}));
    let pid = &counted["structuredContent"]["result"]["pid"];
    let killed = std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status();
    assert!(killed.unwrap().success());
    let health = until("its end is noticed", || {
        let health = client.call("gateway.health", &json!({}));
        let health = health["structuredContent"].clone();
        (health["servers"][0]["status"] == "error").then_some(health)
    });
    let why = health["servers"][0]["error"].as_str().unwrap();
    assert!(why.contains("ended by itself"), "{health}");
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(counted["structuredContent"]["result"]["count"], 1);
    let health = client.call("gateway.health", &json!({}));
    let row = &health["structuredContent"]["servers"][0];
    assert_eq!(row["status"], "online", "{health}");
    assert!(row.get("error").is_none(), "{health}");
    // One that was stopped has not ended by itself.
    client.call(
        "gateway.disconnect_server",
        &json!({"server_name": "house"}),
    );
    let health = client.call("gateway.health", &json!({"server": "house"}));
    let row = &health["structuredContent"]["servers"][0];
    assert_eq!(row["status"], "lazy", "{health}");
}

#[test]
fn a_server_that_was_mended_is_used_by_the_next_call() {
    let street = Street::new();
    let script = street.sandbox.home().join("server");
    street.configure(&json!({"house": {"command": script, "env": {}}}));
    let mut client = street.client(&[]);
    let failed = client.invoke("house::count", &json!({}));
    assert_eq!(error(&failed)["code"], "source_unavailable");
    std::os::unix::fs::symlink(wrapper(&street), &script).unwrap();
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(
        counted["structuredContent"]["result"]["count"], 1,
        "{counted}"
    );
    let health = client.call("gateway.health", &json!({}));
    assert_eq!(health["structuredContent"]["counts"], json!({"online": 1}));
}

/// A program without arguments that is the house.
fn wrapper(street: &Street) -> std::path::PathBuf {
    wrapper_after(street, "true")
}

/// The same, once something was done.
fn wrapper_after(street: &Street, first: &str) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let house = crate::gateway::mischief();
    let script = format!("#!/bin/sh\n{first}\nexec {} house\n", house.display());
    let path = street.sandbox.write("house.sh", script);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

#[test]
fn a_server_that_hangs_in_its_start_holds_up_nobody_else() {
    let street = Street::new();
    street.configure(&json!({
        "hangs": street.traced("hang", "hangs"),
        "house": street.house("house"),
    }));
    let mut client = street.client(&[]);
    let began = Instant::now();
    let hung = client.begin_invoke("hangs::a", &json!({}));
    street.wait_for("hangs", "started", 1);
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(
        counted["structuredContent"]["result"]["count"], 1,
        "{counted}"
    );
    let found = client.call("gateway.catalog_search", &json!({"query": "count"}));
    assert_eq!(
        found["structuredContent"]["results"][0]["tool_id"],
        "house::count"
    );
    client.call("gateway.health", &json!({"all": true}));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    // Whoever waits for it can stop waiting.
    client.stdio.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": hung}}));
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(counted["structuredContent"]["result"]["count"], 2);
}

#[test]
fn over_http_the_hung_start_of_one_client_delays_no_other() {
    let street = Street::new();
    street.configure(&json!({
        "hangs": street.traced("hang", "hangs"),
        "house": street.house("house"),
    }));
    let (alice, bob) = (street.token("alice"), street.token("bob"));
    let server = street.listening(&["--set", "gateway.start_s=5"]);
    let alice = Session::open(&server, Some(&alice));
    let bob = Session::open(&server, Some(&bob));
    std::thread::scope(|scope| {
        let hung = scope.spawn(move || alice.invoke("hangs::a", &json!({})));
        street.wait_for("hangs", "started", 1);
        let counted = bob.invoke("house::count", &json!({}));
        assert_eq!(
            counted["structuredContent"]["result"]["count"], 1,
            "{counted}"
        );
        assert!(!hung.is_finished(), "it hangs all the while");
        let failed = hung.join().unwrap();
        assert_eq!(error(&failed)["code"], "source_unavailable", "{failed}");
    });
}

#[test]
fn a_call_that_may_have_been_done_is_not_repeated_and_the_next_one_works() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    let lost = client.invoke("house::add", &json!({}));
    let lost = error(&lost);
    assert_eq!(lost["code"], "outcome_unknown", "{lost}");
    let message = lost["message"].as_str().unwrap();
    assert!(message.contains("house"), "{message}");
    assert!(message.contains("segmentation something"), "{message}");
    assert!(
        lost["hint"]
            .as_str()
            .unwrap()
            .contains("look whether it was done"),
        "{lost}"
    );
    assert_eq!(street.times("house", "add"), 1);
    let health = client.call("gateway.health", &json!({}));
    let health = &health["structuredContent"];
    assert_eq!(health["counts"], json!({"error": 1}), "{health}");
    let why = health["servers"][0]["error"].as_str().unwrap();
    assert!(why.contains("segmentation something"), "{why}");
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(
        counted["structuredContent"]["result"]["count"], 1,
        "{counted}"
    );
    assert_eq!(street.starts("house"), 2);
    let health = client.call("gateway.health", &json!({}));
    assert_eq!(health["structuredContent"]["counts"], json!({"online": 1}));
    let row = &health["structuredContent"]["servers"][0];
    assert_eq!(row["error"], Value::Null, "{row}");
}

#[test]
fn a_call_that_can_be_done_twice_is_repeated_once() {
    for tool in ["look", "put"] {
        let street = Street::with_a_house();
        let mut client = street.client(&[]);
        let done = client.invoke(&format!("house::{tool}"), &json!({}));
        assert_eq!(done["isError"], Value::Null, "{done}");
        assert_eq!(text(&done), "done");
        assert_eq!(street.times("house", tool), 2);
        assert_eq!(street.starts("house"), 2);
    }
}

/// It is not tried over and over.
#[test]
fn a_call_that_always_kills_its_server_is_tried_twice_at_most() {
    let street = Street::new();
    street.configure(&json!({"crash": street.traced("crash", "crash")}));
    let mut client = street.client(&[]);
    let lost = client.invoke("crash::a", &json!({}));
    assert_eq!(error(&lost)["code"], "outcome_unknown", "{lost}");
    assert_eq!(street.times("crash", "tools/call"), 2);
}

/// What others have under way at a server that one client kills is lost, and they are told so; they go on.
#[test]
fn a_crash_is_told_to_everybody_whose_call_it_ended() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    // Not something that could be repeated: counted once, then waiting as the same server.
    client.invoke("house::count", &json!({}));
    let one = client.begin_invoke("house::ask", &json!({}));
    let lost = client.invoke("house::add", &json!({}));
    assert_eq!(error(&lost)["code"], "outcome_unknown");
    let answer = client.answer(one);
    assert!(answer["result"]["isError"] == true, "{answer}");
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(counted["structuredContent"]["result"]["count"], 1);
}

#[test]
fn a_call_that_takes_too_long_ends_by_itself_and_its_server_is_told() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    let late = client.call(
        "gateway.invoke",
        &json!({"tool_id": "house::wait", "options": {"timeout_ms": 1_000}}),
    );
    let late = error(&late);
    assert_eq!(late["code"], "deadline_exceeded", "it only reads: {late}");
    street.wait_for("house", "notifications/cancelled", 1);
    let late = client.call(
        "gateway.invoke",
        &json!({"tool_id": "house::hold", "options": {"timeout_ms": 1_000}}),
    );
    let late = error(&late);
    assert_eq!(late["code"], "outcome_unknown", "{late}");
    assert!(
        !late["hint"].as_str().unwrap().contains("started"),
        "{late}"
    );
    street.wait_for("house", "notifications/cancelled", 2);
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(counted["structuredContent"]["result"]["count"], 1);
    assert_eq!(street.starts("house"), 1, "it goes on as it was");
}

#[test]
fn an_address_that_nobody_answers_at_is_told_as_such() {
    let street = Street::new();
    street.configure(&json!({"away": {"url": "http://127.0.0.1:9/mcp"}}));
    let mut client = street.client(&[]);
    let failed = client.invoke("away::a", &json!({}));
    let failed = error(&failed);
    assert_eq!(failed["code"], "source_unavailable", "{failed}");
    assert!(
        failed["message"].as_str().unwrap().contains("away"),
        "{failed}"
    );
}

/// How long a call may take is how long its caller waits, whatever its server does meanwhile.
#[test]
fn the_time_of_a_call_is_also_that_of_its_servers_start() {
    let street = Street::new();
    let door = street.sandbox.home().join("door");
    let first = format!("while [ ! -e {} ]; do sleep 0.05; done", door.display());
    let mut slow = street.house("slow");
    slow["command"] = wrapper_after(&street, &first).to_str().into();
    street.configure(&json!({"slow": slow}));
    let mut client = street.client(&[]);
    let soon = json!({"tool_id": "slow::count", "options": {"timeout_ms": 1_000}});
    let began = Instant::now();
    let late = client.call("gateway.invoke", &soon);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let late = error(&late);
    assert_eq!(late["code"], "source_unavailable", "{late}");
    let message = late["message"].as_str().unwrap();
    assert!(
        message.contains("slow") && message.contains("nothing was sent"),
        "{message}"
    );
    let hint = late["hint"].as_str().unwrap();
    assert!(
        hint.contains("timeout_ms") && hint.contains("gateway.health"),
        "{hint}"
    );
    let health = client.call("gateway.health", &json!({"server": "slow"}));
    let row = &health["structuredContent"]["servers"][0];
    assert_eq!(row["starting"], true, "{row}");
    // Its start has gone on.
    std::fs::write(&door, "").unwrap();
    let counted = client.invoke("slow::count", &json!({}));
    assert_eq!(
        counted["structuredContent"]["result"]["count"], 1,
        "{counted}"
    );
    assert_eq!(street.starts("slow"), 1);
}

#[test]
fn servers_that_hang_keep_nobody_from_being_started() {
    let street = Street::new();
    let hangs = (0..9).map(|n| (format!("hangs{n}"), plays("hang")));
    let mut servers: serde_json::Map<String, Value> = hangs.collect();
    servers.insert("last".to_owned(), street.house("house"));
    let names: Vec<&String> = servers.keys().collect();
    let file = json!({"autoStart": names, "mcpServers": servers});
    street.sandbox.write("servers.json", file.to_string());
    let began = Instant::now();
    let _client = street.client(&[]);
    street.wait_for("house", "notifications/initialized", 1);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[test]
fn a_refresh_waits_for_nobody_who_hangs() {
    let street = Street::new();
    street.configure(&json!({"hangs": plays("hang"), "house": street.house("house")}));
    let mut client = street.client(&[]);
    let began = Instant::now();
    let refreshed = client.call("gateway.refresh", &json!({}));
    assert!(began.elapsed() < SOON / 2, "{:?}", began.elapsed());
    let refreshed = &refreshed["structuredContent"];
    assert_eq!(refreshed["still_starting"], json!(["hangs"]), "{refreshed}");
    // What was started only to be listed is stopped again.
    assert_eq!(refreshed["servers_online"], 0, "{refreshed}");
    assert_eq!(refreshed["tools_indexed"], 20, "{refreshed}");
    assert_eq!(refreshed["servers_seen"], 2, "{refreshed}");
    for what in ["pending_requests", "mcp_tasks"] {
        for how in ["seen", "cancelled", "refused", "remaining"] {
            assert_eq!(refreshed[format!("{what}_{how}")], 0, "{refreshed}");
        }
    }
}

/// Whoever searches is not told to wait for what will not come.
#[test]
fn a_server_that_fails_is_named_apart_from_those_that_nobody_has_seen() {
    let street = Street::new();
    street.configure(&json!({"dies": plays("dies")}));
    let mut client = street.client(&[]);
    let found = until("it is known to fail", || {
        let found = client.call("gateway.catalog_search", &json!({"query": "x"}));
        let found = found["structuredContent"].clone();
        (found["failed"] == json!(["dies"])).then_some(found)
    });
    assert_eq!(found["not_seen_yet"], Value::Null, "{found}");
    let hint = found["hint"].as_str().unwrap();
    assert!(
        hint.contains("gateway.health {\"server\":\"dies\"}") && !hint.contains("again"),
        "{hint}"
    );
}

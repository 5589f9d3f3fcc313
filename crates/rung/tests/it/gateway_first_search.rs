//! The first search over servers that were never listed: what it waits for, what it stores on disk and which processes it
//! leaves.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::call_and_inspect::is_alive;
use crate::gateway::{
    GatewayClient, GatewayFixture, faulty_server, reply_data, tool_error, wait_until, with_role,
};
use crate::sandbox::run;

fn search(client: &mut GatewayClient, arguments: &Value) -> Value {
    reply_data(&client.call("gateway.catalog_search", arguments))
}

fn server_health(client: &mut GatewayClient, server: &str) -> Value {
    let health = client.call("gateway.health", &json!({"server": server}));
    reply_data(&health)["servers"][0].clone()
}

fn tool_ids(found: &Value) -> Vec<&str> {
    let results = found["results"].as_array().unwrap().iter();
    results
        .map(|card| card["tool_id"].as_str().unwrap())
        .collect()
}

/// Returns true if any process of this server is running.
fn is_server_running(street: &GatewayFixture, name: &str) -> bool {
    let trace = street.trace(name);
    let mut started = trace
        .iter()
        .filter_map(|line| line.strip_prefix("started "));
    started.any(|pid| is_alive(&Path::new("/proc").join(pid)))
}

#[test]
fn the_first_search_finds_tools_and_leaves_no_server_running() {
    let street = GatewayFixture::new();
    let names = ["north", "south", "west"];
    let servers: Map<String, Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), street.echo_server(name)))
        .collect();
    street.configure(&servers.into());
    let mut client = street.client(&[]);
    let found = search(&mut client, &json!({"query": "book a hotel"}));
    assert_eq!(
        tool_ids(&found)[..3],
        ["north::book", "south::book", "west::book"],
        "{found}"
    );
    assert_eq!(found["not_seen_yet"], Value::Null, "{found}");
    wait_until("all of them are stopped", || {
        names
            .iter()
            .all(|name| !is_server_running(&street, name))
            .then_some(())
    });
    for name in names {
        let row = server_health(&mut client, name);
        assert_eq!(
            (&row["status"], &row["tool_count"], row.get("error")),
            (&json!("lazy"), &json!(20), None),
            "{row}"
        );
    }
    // A call starts the server again, and it stays.
    client.invoke("north::count", &json!({}));
    let counted = client.invoke("north::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 2);
    assert_eq!(
        (street.start_count("north"), street.start_count("south")),
        (2, 1)
    );
}

#[test]
fn a_server_that_is_to_start_with_the_gateway_stays() {
    let street = GatewayFixture::new();
    let servers =
        json!({"house": street.echo_server("house"), "other": street.echo_server("other")});
    let file = json!({"mcpServers": servers, "autoStart": ["house"]});
    street.sandbox.write("servers.json", file.to_string());
    let mut client = street.client(&[]);
    search(&mut client, &json!({"query": "hotel"}));
    wait_until("the other one is stopped", || {
        (street.start_count("other") == 1 && !is_server_running(&street, "other")).then_some(())
    });
    assert!(is_server_running(&street, "house"));
    assert_eq!(server_health(&mut client, "house")["status"], "online");
}

/// Calls during a listing use the process that is already there, and the listing does not stop it.
#[test]
fn a_search_ends_no_server_that_is_called_meanwhile() {
    let street = GatewayFixture::new();
    let names: Vec<String> = (0..6).map(|n| format!("house{n}")).collect();
    let servers: Map<String, Value> = names
        .iter()
        .map(|name| (name.clone(), street.echo_server(name)))
        .collect();
    street.configure(&servers.into());
    let mut client = street.client(&[]);
    let searching = client.send_call("gateway.catalog_search", &json!({"query": "count"}));
    let mut calls = Vec::new();
    for _ in 0..3 {
        for name in &names {
            calls.push(client.send_invoke(&format!("{name}::count"), &json!({})));
        }
    }
    for call in calls {
        let answer = client.wait_for_reply(call);
        assert_eq!(reply_data(&answer["result"])["ok"], true, "{answer}");
    }
    client.wait_for_reply(searching);
    for name in &names {
        assert_eq!(server_health(&mut client, name)["status"], "online");
        assert!(is_server_running(&street, name));
    }
}

#[test]
fn a_server_that_does_not_answer_its_list_is_not_online() {
    let street = GatewayFixture::new();
    street.configure(&json!({
        "hangs": street.traced_role("never-lists", "hangs"),
        "house": street.echo_server("house"),
    }));
    let mut client = street.client(&["--set", "gateway.start_s=4"]);
    let found = search(&mut client, &json!({"query": "hotel"}));
    assert_eq!(tool_ids(&found), ["house::book"], "{found}");
    assert_eq!(found["not_seen_yet"], json!(["hangs"]), "{found}");
    assert_eq!(street.trace_count("hangs", "tools/list"), 1);
    let row = server_health(&mut client, "hangs");
    assert_eq!(
        (&row["status"], &row["starting"]),
        (&json!("lazy"), &json!(true)),
        "{row}"
    );
    let failed = wait_until("its time is over", || {
        let row = server_health(&mut client, "hangs");
        assert_ne!(row["status"], "online", "{row}");
        (row["status"] == "error").then_some(row)
    });
    let why = failed["error"].as_str().unwrap();
    assert!(why.contains("hangs") && why.contains("tools/list"), "{why}");
    let found = search(&mut client, &json!({"query": "hotel"}));
    assert_eq!(found["failed"], json!(["hangs"]), "{found}");
    // The caller learns the same reason, and that its call was not sent.
    let called = client.invoke("hangs::a", &json!({}));
    let called = tool_error(&called);
    assert_eq!(called["code"], "source_unavailable", "{called}");
    assert!(
        called["message"].as_str().unwrap().contains("tools/list"),
        "{called}"
    );
}

/// A catalog entry from an earlier process does not make the current one online.
#[test]
fn a_known_server_that_does_not_answer_its_list_any_more_is_not_online() {
    let street = GatewayFixture::new();
    street.configure(&json!({"once": street.traced_role("lists-once", "once")}));
    let mut before = street.client(&[]);
    let connected = before.call("gateway.connect_server", &json!({"server_name": "once"}));
    assert_ne!(connected["isError"], true, "{connected}");
    assert_eq!(server_health(&mut before, "once")["status"], "online");
    assert_eq!(before.stdio.finish().0, 0);
    let mut client = street.client(&["--set", "gateway.start_s=4"]);
    // The cached definition suffices for the call, which returns before the list does.
    let id = client.send_invoke("once::a", &json!({}));
    street.wait_for_trace("once", "tools/list", 2);
    client.wait_for_reply(id);
    let row = wait_until("it is no longer taken for online", || {
        let row = server_health(&mut client, "once");
        (row["status"] != "online").then_some(row)
    });
    assert!(row["status"] == "error" || row["starting"] == true, "{row}");
}

/// An echo server that starts after 3 s.
fn slow_echo_server(street: &GatewayFixture) -> Value {
    let script = format!(
        "#!/bin/sh\nsleep 3\nexec {} house\n",
        faulty_server().display()
    );
    let path = street.sandbox.write("slow.sh", script);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut entry = street.echo_server("slow");
    entry["command"] = path.to_str().into();
    entry["args"] = json!([]);
    entry
}

/// Runs a search in a process that exits afterwards.
fn search_one_shot(street: &GatewayFixture, flags: &str, query: &str) -> Value {
    let (rung, file) = (env!("CARGO_BIN_EXE_rung"), street.config_file());
    let server = format!("{rung} gateway --config {} {flags}", file.display());
    let asked = json!({"query": query}).to_string();
    let mut command = street.sandbox.command();
    command
        .args(["call", &server, "gateway.catalog_search", "--args", &asked])
        .args(["--json", "--env", "HOME", "--env", "RUNG_HOME"])
        .env("PATH", std::env::var_os("PATH").unwrap());
    let ran = run(&mut command);
    assert_eq!(ran.status, 0, "{ran:?}");
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    reply_data(&result)
}

#[test]
fn a_single_call_waits_for_every_server_and_keeps_what_they_list() {
    let street = GatewayFixture::new();
    street.configure(&json!({
        "slow": slow_echo_server(&street),
        "dies": with_role("dies"),
        "hangs": street.traced_role("never-lists", "hangs"),
    }));
    let flags = "--set gateway.start_s=8";
    let found = search_one_shot(&street, flags, "hotel");
    assert_eq!(tool_ids(&found), ["slow::book"], "{found}");
    assert_eq!(found["not_seen_yet"], Value::Null, "{found}");
    assert_eq!(found["failed"], json!(["dies", "hangs"]), "{found}");
    assert_eq!(street.start_count("slow"), 1);
    // The next process reads the stored catalog.
    street.configure(&json!({"slow": slow_echo_server(&street)}));
    let found = search_one_shot(&street, flags, "hotel");
    assert_eq!(tool_ids(&found), ["slow::book"], "{found}");
    assert_eq!(street.start_count("slow"), 1);
}

#[test]
fn one_oversized_tool_is_left_out_and_the_others_are_there() {
    let street = GatewayFixture::new();
    street.configure(&json!({"big": with_role("oversized")}));
    let mut client = street.client(&[]);
    let connected = client.call("gateway.connect_server", &json!({"server_name": "big"}));
    assert_ne!(connected["isError"], true, "{connected}");
    let found = search(&mut client, &json!({}));
    assert_eq!(tool_ids(&found), ["big::a", "big::b"], "{found}");
    let done = client.invoke("big::b", &json!({}));
    assert_ne!(done["isError"], true, "{done}");
    let row = server_health(&mut client, "big");
    assert_eq!(row["tool_count"], 2, "{row}");
    let left_out: Vec<&str> = row["unusable_tools"]
        .as_array()
        .map_or_else(Vec::new, |all| {
            all.iter().filter_map(Value::as_str).collect()
        });
    assert_eq!(left_out.len(), 2, "{row}");
    for (name, why) in ["huge", "wordy"].iter().zip(&left_out) {
        assert!(why.starts_with(&format!("{name}: ")), "{row}");
        assert!(why.contains("bytes"), "{row}");
        for tool in ["gateway.describe", "gateway.invoke"] {
            let refused = client.call(tool, &json!({"tool_id": format!("big::{name}")}));
            let refused = tool_error(&refused);
            let message = refused["message"].as_str().unwrap();
            assert!(
                message.contains(name) && message.contains("bytes"),
                "{refused}"
            );
        }
    }
    // The next gateway reads the tools from disk.
    assert_eq!(client.stdio.finish().0, 0);
    let mut client = street.client(&[]);
    let found = search(&mut client, &json!({}));
    assert_eq!(tool_ids(&found), ["big::a", "big::b"], "{found}");
}

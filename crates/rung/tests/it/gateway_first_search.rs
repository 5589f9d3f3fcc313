//! The first search over servers that were never listed: what it waits for, what it keeps on disk and what it leaves running.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::gateway::{Client, Street, error, mischief, plays, until};
use crate::other_servers::is_alive;
use crate::sandbox::run;

fn search(client: &mut Client, arguments: &Value) -> Value {
    client.call("gateway.catalog_search", arguments)["structuredContent"].clone()
}

fn health(client: &mut Client, server: &str) -> Value {
    let health = client.call("gateway.health", &json!({"server": server}));
    health["structuredContent"]["servers"][0].clone()
}

fn ids(found: &Value) -> Vec<&str> {
    let results = found["results"].as_array().unwrap().iter();
    results
        .map(|card| card["tool_id"].as_str().unwrap())
        .collect()
}

/// Whether any process of this server is left.
fn runs(street: &Street, name: &str) -> bool {
    let trace = street.trace(name);
    let mut started = trace
        .iter()
        .filter_map(|line| line.strip_prefix("started "));
    started.any(|pid| is_alive(&Path::new("/proc").join(pid)))
}

#[test]
fn the_first_search_finds_tools_and_leaves_no_server_running() {
    let street = Street::new();
    let names = ["north", "south", "west"];
    let servers: Map<String, Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), street.house(name)))
        .collect();
    street.configure(&servers.into());
    let mut client = street.client(&[]);
    let found = search(&mut client, &json!({"query": "book a hotel"}));
    assert_eq!(
        ids(&found)[..3],
        ["north::book", "south::book", "west::book"],
        "{found}"
    );
    assert_eq!(found["not_seen_yet"], Value::Null, "{found}");
    until("all of them are stopped", || {
        names.iter().all(|name| !runs(&street, name)).then_some(())
    });
    for name in names {
        let row = health(&mut client, name);
        assert_eq!(
            (&row["status"], &row["tool_count"], row.get("error")),
            (&json!("lazy"), &json!(20), None),
            "{row}"
        );
    }
    // What is called starts again, and stays.
    client.invoke("north::count", &json!({}));
    let counted = client.invoke("north::count", &json!({}));
    assert_eq!(counted["structuredContent"]["result"]["count"], 2);
    assert_eq!((street.starts("north"), street.starts("south")), (2, 1));
}

#[test]
fn a_server_that_is_to_start_with_the_gateway_stays() {
    let street = Street::new();
    let servers = json!({"house": street.house("house"), "other": street.house("other")});
    let file = json!({"mcpServers": servers, "autoStart": ["house"]});
    street.sandbox.write("servers.json", file.to_string());
    let mut client = street.client(&[]);
    search(&mut client, &json!({"query": "hotel"}));
    until("the other one is stopped", || {
        (street.starts("other") == 1 && !runs(&street, "other")).then_some(())
    });
    assert!(runs(&street, "house"));
    assert_eq!(health(&mut client, "house")["status"], "online");
}

/// Calls that come while a server is being listed use the process that is there, and do not lose it.
#[test]
fn a_search_ends_no_server_that_is_called_meanwhile() {
    let street = Street::new();
    let names: Vec<String> = (0..6).map(|n| format!("house{n}")).collect();
    let servers: Map<String, Value> = names
        .iter()
        .map(|name| (name.clone(), street.house(name)))
        .collect();
    street.configure(&servers.into());
    let mut client = street.client(&[]);
    let searching = client.begin("gateway.catalog_search", &json!({"query": "count"}));
    let mut calls = Vec::new();
    for _ in 0..3 {
        for name in &names {
            calls.push(client.begin_invoke(&format!("{name}::count"), &json!({})));
        }
    }
    for call in calls {
        let answer = client.answer(call);
        assert_eq!(
            answer["result"]["structuredContent"]["ok"], true,
            "{answer}"
        );
    }
    client.answer(searching);
    for name in &names {
        assert_eq!(health(&mut client, name)["status"], "online");
        assert!(runs(&street, name));
    }
}

#[test]
fn a_server_that_does_not_answer_its_list_is_not_online() {
    let street = Street::new();
    street.configure(&json!({
        "hangs": street.traced("never-lists", "hangs"),
        "house": street.house("house"),
    }));
    let mut client = street.client(&["--set", "gateway.start_s=4"]);
    let found = search(&mut client, &json!({"query": "hotel"}));
    assert_eq!(ids(&found), ["house::book"], "{found}");
    assert_eq!(found["not_seen_yet"], json!(["hangs"]), "{found}");
    assert_eq!(street.times("hangs", "tools/list"), 1);
    let row = health(&mut client, "hangs");
    assert_eq!(
        (&row["status"], &row["starting"]),
        (&json!("lazy"), &json!(true)),
        "{row}"
    );
    let failed = until("its time is over", || {
        let row = health(&mut client, "hangs");
        assert_ne!(row["status"], "online", "{row}");
        (row["status"] == "error").then_some(row)
    });
    let why = failed["error"].as_str().unwrap();
    assert!(why.contains("hangs") && why.contains("tools/list"), "{why}");
    let found = search(&mut client, &json!({"query": "hotel"}));
    assert_eq!(found["failed"], json!(["hangs"]), "{found}");
    // A caller learns the same, and not that its call may have been made.
    let called = client.invoke("hangs::a", &json!({}));
    let called = error(&called);
    assert_eq!(called["code"], "source_unavailable", "{called}");
    assert!(
        called["message"].as_str().unwrap().contains("tools/list"),
        "{called}"
    );
}

/// That a process listed its tools last week does not make the one of today online.
#[test]
fn a_known_server_that_does_not_answer_its_list_any_more_is_not_online() {
    let street = Street::new();
    street.configure(&json!({"once": street.traced("lists-once", "once")}));
    let mut before = street.client(&[]);
    let connected = before.call("gateway.connect_server", &json!({"server_name": "once"}));
    assert_ne!(connected["isError"], true, "{connected}");
    assert_eq!(health(&mut before, "once")["status"], "online");
    assert_eq!(before.stdio.finish().0, 0);
    let mut client = street.client(&["--set", "gateway.start_s=4"]);
    // What was known is good enough to make the call; it comes back while the list does not.
    let id = client.begin_invoke("once::a", &json!({}));
    street.wait_for("once", "tools/list", 2);
    client.answer(id);
    let row = until("it is no longer taken for online", || {
        let row = health(&mut client, "once");
        (row["status"] != "online").then_some(row)
    });
    assert!(row["status"] == "error" || row["starting"] == true, "{row}");
}

/// The program of a house that takes its time to start.
fn slow_house(street: &Street) -> Value {
    let script = format!("#!/bin/sh\nsleep 3\nexec {} house\n", mischief().display());
    let path = street.sandbox.write("slow.sh", script);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut entry = street.house("slow");
    entry["command"] = path.to_str().into();
    entry["args"] = json!([]);
    entry
}

/// One search by a process that ends with it.
fn one_shot(street: &Street, flags: &str, query: &str) -> Value {
    let (rung, file) = (env!("CARGO_BIN_EXE_rung"), street.file());
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
    result["structuredContent"].clone()
}

#[test]
fn a_single_call_waits_for_every_server_and_keeps_what_they_list() {
    let street = Street::new();
    street.configure(&json!({
        "slow": slow_house(&street),
        "dies": plays("dies"),
        "hangs": street.traced("never-lists", "hangs"),
    }));
    let flags = "--set gateway.start_s=8";
    let found = one_shot(&street, flags, "hotel");
    assert_eq!(ids(&found), ["slow::book"], "{found}");
    assert_eq!(found["not_seen_yet"], Value::Null, "{found}");
    assert_eq!(found["failed"], json!(["dies", "hangs"]), "{found}");
    assert_eq!(street.starts("slow"), 1);
    // The next process knows what this one learnt.
    street.configure(&json!({"slow": slow_house(&street)}));
    let found = one_shot(&street, flags, "hotel");
    assert_eq!(ids(&found), ["slow::book"], "{found}");
    assert_eq!(street.starts("slow"), 1);
}

#[test]
fn one_oversized_tool_is_left_out_and_the_others_are_there() {
    let street = Street::new();
    street.configure(&json!({"big": plays("oversized")}));
    let mut client = street.client(&[]);
    let connected = client.call("gateway.connect_server", &json!({"server_name": "big"}));
    assert_ne!(connected["isError"], true, "{connected}");
    let found = search(&mut client, &json!({}));
    assert_eq!(ids(&found), ["big::a", "big::b"], "{found}");
    let done = client.invoke("big::b", &json!({}));
    assert_ne!(done["isError"], true, "{done}");
    let row = health(&mut client, "big");
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
            let refused = error(&refused);
            let message = refused["message"].as_str().unwrap();
            assert!(
                message.contains(name) && message.contains("bytes"),
                "{refused}"
            );
        }
    }
    // The next gateway knows it from disk.
    assert_eq!(client.stdio.finish().0, 0);
    let mut client = street.client(&[]);
    let found = search(&mut client, &json!({}));
    assert_eq!(ids(&found), ["big::a", "big::b"], "{found}");
}

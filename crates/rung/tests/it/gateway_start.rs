//! How the gateway begins: at once, whatever its servers do, and without starting anything that nobody asked for.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::gateway::{Street, error};

/// Far less than anything that hangs here, and enough for a busy machine.
const AT_ONCE: Duration = Duration::from_secs(5);
/// How long one that hangs keeps others from being started.
const HELD: Duration = Duration::from_secs(2);
/// What the fourteen tools may cost.
const DEFINITIONS_BYTES: usize = 6_000;

#[test]
fn everything_is_answered_at_once_while_forty_servers_hang() {
    let street = Street::new();
    let mut servers: Map<String, Value> = (0..40)
        .map(|n| (format!("hangs{n}"), street.traced("hang", "hangs")))
        .collect();
    servers.insert("house".to_owned(), street.house("house"));
    street.configure(&servers.into());
    let began = Instant::now();
    let mut client = street.client(&[]);
    let told = client.greeted["result"]["instructions"].to_string();
    assert!(told.contains("gateway.catalog_search"), "{told}");
    let listed = client.request("tools/list", &json!({}));
    let health = client.call("gateway.health", &json!({}));
    // All 41 are listed, with no more of each than matters.
    let rows = health["structuredContent"]["servers"].as_array().unwrap();
    assert_eq!(rows.len(), 41, "{health}");
    assert!(
        health.to_string().len() < 6_144 && health["structuredContent"].to_string().len() < 2_048,
        "{health}"
    );
    assert_eq!(health["structuredContent"]["counts"], json!({"lazy": 41}));
    assert_eq!(street.starts("hangs"), 0, "nobody asked for them");
    let found = client.call("gateway.catalog_search", &json!({"query": "count"}));
    // Up to eight that hang stand before it, and it may not have had its turn.
    let unseen = found["structuredContent"]["not_seen_yet"]
        .as_array()
        .unwrap();
    assert!((40..=41).contains(&unseen.len()), "{found}");
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(
        counted["structuredContent"]["result"]["count"], 1,
        "{counted}"
    );
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    assert!(
        street.starts("hangs") <= 8 || began.elapsed() > HELD,
        "not all at once"
    );
    let tools = listed["result"]["tools"].as_array().unwrap();
    let ours: Vec<&Value> = tools
        .iter()
        .filter(|tool| tool["name"].as_str().unwrap().starts_with("gateway."))
        .collect();
    assert_eq!(ours.len(), 14);
    let bytes: usize = ours.iter().map(|tool| tool.to_string().len()).sum();
    assert!(bytes <= DEFINITIONS_BYTES, "{bytes} bytes");
    // It ends as soon as it is asked to.
    let began = Instant::now();
    assert_eq!(client.stdio.finish().0, 0);
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
}

#[test]
fn what_is_listed_to_start_starts_and_nothing_else_does() {
    let street = Street::new();
    let servers = json!({"house": street.house("house"), "other": street.house("other")});
    let file = json!({"mcpServers": servers, "autoStart": ["house", "nobody"]});
    street.sandbox.write("servers.json", file.to_string());
    let mut client = street.client(&[]);
    street.wait_for("house", "notifications/initialized", 1);
    let health = client.call("gateway.health", &json!({}));
    let problems = health["structuredContent"]["problems"].to_string();
    assert!(problems.contains("nobody"), "{health}");
    assert_eq!((street.starts("house"), street.starts("other")), (1, 0));
}

/// Many who come at once to one that is not there yet start it once.
#[test]
fn a_server_is_started_once_however_many_ask_for_it() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    let calls: Vec<u64> = (0..20)
        .map(|_| client.begin_invoke("house::count", &json!({})))
        .collect();
    let mut counts: Vec<u64> = calls
        .into_iter()
        .map(|id| {
            client.answer(id)["result"]["structuredContent"]["result"]["count"]
                .as_u64()
                .unwrap()
        })
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=20).collect::<Vec<u64>>());
    assert_eq!(street.starts("house"), 1);
}

#[test]
fn a_server_that_nobody_uses_is_stopped_and_comes_back() {
    let street = Street::with_a_house();
    let mut client = street.client(&["--set", "gateway.idle_s=1"]);
    client.invoke("house::count", &json!({}));
    crate::gateway::until("it is stopped", || {
        let health = client.call("gateway.health", &json!({}));
        (health["structuredContent"]["counts"] == json!({"lazy": 1})).then_some(())
    });
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(
        counted["structuredContent"]["result"]["count"], 1,
        "{counted}"
    );
    // One that is used is not unused, however long that takes.
    let waiting = client.begin_invoke("house::wait", &json!({}));
    street.wait_for("house", "wait", 1);
    let late = client.call(
        "gateway.invoke",
        &json!({"tool_id": "house::wait", "options": {"timeout_ms": 3_000}}),
    );
    assert_eq!(error(&late)["code"], "deadline_exceeded");
    client.invoke("house::release", &json!({}));
    assert_eq!(
        crate::gateway::text(&client.answer(waiting)["result"]),
        "released"
    );
}

#[test]
fn the_gateway_serves_without_any_server() {
    let street = Street::new();
    street.configure(&json!({}));
    let mut client = street.client(&[]);
    let found = client.call("gateway.catalog_search", &json!({"query": "x"}));
    assert_eq!(found["structuredContent"]["total"], 0, "{found}");
}

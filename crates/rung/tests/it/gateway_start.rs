//! Startup of the gateway: immediate, whatever the servers do, and no server starts before it is needed.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::gateway::{GatewayFixture, reply_data, tool_error};

/// Far below the time any server hangs here, and enough for a busy machine.
const MAX_DELAY: Duration = Duration::from_secs(5);
/// How long a hanging server may delay the start of others.
const MAX_START_DELAY: Duration = Duration::from_secs(2);
/// Size limit of the 14 tool definitions.
const DEFINITIONS_BYTES: usize = 6_000;

#[test]
fn everything_is_answered_at_once_while_forty_servers_hang() {
    let street = GatewayFixture::new();
    let mut servers: Map<String, Value> = (0..40)
        .map(|n| (format!("hangs{n}"), street.traced_role("hang", "hangs")))
        .collect();
    servers.insert("house".to_owned(), street.echo_server("house"));
    street.configure(&servers.into());
    let began = Instant::now();
    let mut client = street.client(&[]);
    let told = client.initialize_reply["result"]["instructions"].to_string();
    assert!(told.contains("gateway.catalog_search"), "{told}");
    let listed = client.request("tools/list", &json!({}));
    let health = client.call("gateway.health", &json!({}));
    // All 41 are listed, briefly.
    let health = reply_data(&health);
    let rows = health["servers"].as_array().unwrap();
    assert_eq!(rows.len(), 41, "{health}");
    assert!(health.to_string().len() < 2_048, "{health}");
    assert_eq!(health["counts"], json!({"lazy": 41}));
    assert_eq!(street.start_count("hangs"), 0, "nobody asked for them");
    let found = client.call("gateway.catalog_search", &json!({"query": "count"}));
    // Up to eight hanging servers come first, so the working one may not have been listed yet.
    let found = reply_data(&found);
    let unseen = found["not_seen_yet"].as_array().unwrap();
    assert!((40..=41).contains(&unseen.len()), "{found}");
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 1, "{counted}");
    assert!(began.elapsed() < MAX_DELAY, "{:?}", began.elapsed());
    assert!(
        street.start_count("hangs") <= 8 || began.elapsed() > MAX_START_DELAY,
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
    // The gateway exits promptly.
    let began = Instant::now();
    assert_eq!(client.stdio.finish().0, 0);
    assert!(began.elapsed() < MAX_DELAY, "{:?}", began.elapsed());
}

#[test]
fn what_is_listed_to_start_starts_and_nothing_else_does() {
    let street = GatewayFixture::new();
    let servers =
        json!({"house": street.echo_server("house"), "other": street.echo_server("other")});
    let file = json!({"mcpServers": servers, "autoStart": ["house", "nobody"]});
    street.sandbox.write("servers.json", file.to_string());
    let mut client = street.client(&[]);
    street.wait_for_trace("house", "notifications/initialized", 1);
    let health = client.call("gateway.health", &json!({}));
    let problems = reply_data(&health)["problems"].to_string();
    assert!(problems.contains("nobody"), "{health}");
    assert_eq!(
        (street.start_count("house"), street.start_count("other")),
        (1, 0)
    );
}

/// Concurrent calls to a stopped server start it once.
#[test]
fn a_server_is_started_once_however_many_ask_for_it() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let calls: Vec<u64> = (0..20)
        .map(|_| client.send_invoke("house::count", &json!({})))
        .collect();
    let mut counts: Vec<u64> = calls
        .into_iter()
        .map(|id| {
            reply_data(&client.wait_for_reply(id)["result"])["result"]["count"]
                .as_u64()
                .unwrap()
        })
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=20).collect::<Vec<u64>>());
    assert_eq!(street.start_count("house"), 1);
}

#[test]
fn an_idle_server_is_stopped_and_restarts_on_use() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&["--set", "gateway.idle_s=1"]);
    client.invoke("house::count", &json!({}));
    crate::gateway::wait_until("it is stopped", || {
        let health = client.call("gateway.health", &json!({}));
        (reply_data(&health)["counts"] == json!({"lazy": 1})).then_some(())
    });
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 1, "{counted}");
    // A server with an active call is not idle, however long the call takes.
    let waiting = client.send_invoke("house::wait", &json!({}));
    street.wait_for_trace("house", "wait", 1);
    let late = client.call(
        "gateway.invoke",
        &json!({"tool_id": "house::wait", "options": {"timeout_ms": 3_000}}),
    );
    assert_eq!(tool_error(&late)["code"], "deadline_exceeded");
    client.invoke("house::release", &json!({}));
    assert_eq!(
        crate::gateway::first_text(&client.wait_for_reply(waiting)["result"]),
        "released"
    );
}

#[test]
fn the_gateway_serves_without_any_server() {
    let street = GatewayFixture::new();
    street.configure(&json!({}));
    let mut client = street.client(&[]);
    let found = client.call("gateway.catalog_search", &json!({"query": "x"}));
    assert_eq!(reply_data(&found)["total"], 0, "{found}");
}

//! The server registry: downloaded as a whole, searched locally, and never waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::agents::fake_provider::{FakeProvider, RecordedRequest, write_response};
use crate::gateway::{GatewayClient, GatewayFixture, reply_data, wait_until};
use crate::stdio::StdioClient;

fn registry_entry(name: &str, description: &str, package: &str) -> Value {
    json!({
        "server": {"name": format!("io.github.somebody/{name}"), "description": description, "version": "1.2.0", "packages": [{
            "registryType": "npm", "identifier": package, "version": "1.2.0", "transport": {"type": "stdio"},
            "environmentVariables": [{"name": "WEATHER_KEY", "isRequired": true, "isSecret": true}]}]},
        "_meta": {"io.modelcontextprotocol.registry/official": {"status": "active", "isLatest": true}},
    })
}

/// A registry with two pages.
fn registry_response(asked: &RecordedRequest) -> (u16, Value) {
    if asked.has_param_named("cursor") {
        let one = registry_entry(
            "weather",
            "Weather forecasts for any city",
            "@somebody/weather",
        );
        return (
            200,
            json!({"servers": [7, {}, one], "metadata": {"count": 3}}),
        );
    }
    let one = registry_entry(
        "recipes",
        "Finds recipes by what is in the fridge",
        "@somebody/recipes",
    );
    (
        200,
        json!({"servers": [one], "metadata": {"nextCursor": "next page & more"}}),
    )
}

fn start_client(street: &GatewayFixture, registry: &str, flags: &[&str]) -> GatewayClient {
    let mut command = street.command(flags);
    command.env("RUNG_GATEWAY_REGISTRY", format!("http://{registry}"));
    GatewayClient::open(StdioClient::spawn(&mut command), &json!({}))
}

const QUERY: &str = "weather forecast for a city";

fn search(client: &mut GatewayClient) -> Value {
    let found = client.call("gateway.catalog_search", &json!({"query": QUERY}));
    reply_data(&found)
}

fn wait_for_candidates(client: &mut GatewayClient) -> Value {
    wait_until("the registry is known", || {
        let found = search(client);
        let candidates = found.get("registry_candidates").cloned();
        candidates.filter(|one| one[0]["package"] == "npm:@somebody/weather")
    })
}

#[test]
fn published_servers_are_found_locally_and_queries_are_not_sent() {
    let street = GatewayFixture::with_echo_server();
    let registry = FakeProvider::with_json(registry_response);
    let mut first = start_client(&street, &registry.address, &[]);
    let found = wait_for_candidates(&mut first);
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    let one = &found[0];
    assert_eq!(one["name"], "io.github.somebody/weather", "{found}");
    assert_eq!(one["source"], "registry", "{found}");
    assert_eq!(one["env_var"], "MCP_WEATHER_WEATHER_KEY", "{found}");
    assert_eq!(one["api_key_available"], false, "{found}");
    assert_eq!(
        one["entry"],
        json!({"command": "npx", "args": ["-y", "@somebody/weather@1.2.0"], "env": {"WEATHER_KEY": "${MCP_WEATHER_WEATHER_KEY}"}}),
    );
    let asked = registry.requests();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(
        asked.iter().all(|one| one.path() == "/v0.1/servers"),
        "{asked:?}"
    );
    assert!(
        asked[1].has_param("cursor", "next page & more"),
        "{asked:?}"
    );
    let said = format!("{asked:?}").to_lowercase();
    assert!(
        !said.contains("weather") && !said.contains("city"),
        "{said}"
    );
    drop(first);
    // The next gateway reads it from disk.
    let mut second = start_client(&street, &registry.address, &[]);
    wait_for_candidates(&mut second);
    assert_eq!(registry.requests().len(), 2);
    // Configured or denied servers are not suggested.
    let mut entries = json!({"house": street.echo_server("house")});
    entries["forecast"] = one["entry"].clone();
    street.configure(&entries);
    let gone = |client: &mut GatewayClient| {
        wait_until("it is not proposed", || {
            let found = search(client);
            found.get("registry_candidates").is_none().then_some(())
        });
    };
    gone(&mut second);
    street.configure(&json!({"house": street.echo_server("house")}));
    let policy = street
        .sandbox
        .write("policy.yaml", "packages: {denylist: ['@somebody/*']}");
    let mut third = start_client(
        &street,
        &registry.address,
        &["--policy", policy.to_str().unwrap()],
    );
    // The index is loaded from disk by the time a server has started.
    third.invoke("house::count", &json!({}));
    gone(&mut third);
}

#[test]
fn the_registry_is_off_by_default() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let found = search(&mut client);
    assert!(found.get("registry_candidates").is_none(), "{found}");
    assert!(!found.to_string().contains("registry"), "{found}");
    for odd in [
        "http://registry.example",
        "https://me:secret@registry.example",
        "ftp://127.0.0.1",
    ] {
        let mut command = street.command(&[]);
        command
            .env("RUNG_GATEWAY_REGISTRY", odd)
            .stderr(std::process::Stdio::piped());
        let ran = command.stdin(std::process::Stdio::null()).output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        assert!(
            !ran.status.success() && said.contains("invalid_setting"),
            "{odd}: {said}"
        );
        assert!(!said.contains("me:secret"), "{said}");
    }
}

#[test]
fn a_registry_that_lies_or_fails_is_reported_and_delays_no_search() {
    type Says = fn(&RecordedRequest) -> (u16, Value);
    let endless: Says = |asked| {
        let page = asked
            .query_pairs()
            .iter()
            .find(|(name, _)| name == "cursor")
            .map_or(0, |(_, page)| page.parse().unwrap());
        (
            200,
            json!({"servers": [], "metadata": {"nextCursor": (page + 1).to_string()}}),
        )
    };
    let stuck: Says = |_| {
        (
            200,
            json!({"servers": [], "metadata": {"nextCursor": "here"}}),
        )
    };
    let huge: Says = |_| (200, json!({"servers": ["x".repeat(9 << 20)]}));
    let wrong: Says = |_| (200, json!(["no", "list"]));
    let refuses: Says = |_| (503, json!({}));
    for (says, why) in [
        (endless, "pages"),
        (stuck, "repeats a cursor"),
        (huge, "bytes"),
        (wrong, "not a list of servers"),
        (refuses, "503"),
    ] {
        let street = GatewayFixture::with_echo_server();
        let registry = FakeProvider::with_json(says);
        let mut client = start_client(&street, &registry.address, &[]);
        search(&mut client);
        let hint = wait_until("it is told of", || {
            let found = search(&mut client);
            let hint = found["hint"].as_str().unwrap_or_default().to_owned();
            hint.contains("cannot be read").then_some(hint)
        });
        assert!(hint.contains(why), "{why}: {hint}");
        let health = client.call("gateway.health", &json!({}));
        let problems = reply_data(&health)["problems"].to_string();
        assert!(problems.contains(why), "{health}");
        let counted = client.invoke("house::count", &json!({}));
        assert_ne!(counted["isError"], true, "{counted}");
    }
}

#[test]
fn a_registry_that_is_gone_or_silent_leaves_what_was_known() {
    let street = GatewayFixture::with_echo_server();
    let silent = Arc::new(AtomicBool::new(false));
    let hushed = silent.clone();
    let registry = FakeProvider::with_responder(move |asked, stream| {
        if hushed.load(Ordering::Acquire) {
            std::thread::sleep(std::time::Duration::from_hours(1));
        }
        let (status, body) = registry_response(asked);
        write_response(
            stream,
            status,
            "application/json",
            "",
            body.to_string().as_bytes(),
        );
    });
    let mut first = start_client(&street, &registry.address, &[]);
    wait_for_candidates(&mut first);
    drop(first);
    silent.store(true, Ordering::Release);
    let mut second = start_client(&street, &registry.address, &[]);
    wait_for_candidates(&mut second);
    // A new registry that does not respond delays no search.
    let other =
        FakeProvider::with_responder(|_, _| std::thread::sleep(std::time::Duration::from_hours(1)));
    let mut third = start_client(&street, &other.address, &[]);
    let found = search(&mut third);
    assert!(found.get("registry_candidates").is_none(), "{found}");
    let hint = found["hint"].as_str().unwrap();
    assert!(hint.contains("registry is loading"), "{found}");
    let counted = third.invoke("house::count", &json!({}));
    assert_ne!(counted["isError"], true, "{counted}");
}

//! Sharing of stateful servers between clients, and what a token with a grant for servers can reach.

use serde_json::{Value, json};

use crate::gateway::{
    GatewayFixture, LegacyHttpSession, first_text, pending_request_ids, reply_data, result_handle,
    tool_error, wait_until,
};
use crate::http::{ServerProcess, legacy_request};

fn call_count(session: &LegacyHttpSession<'_>) -> Value {
    let counted = session.invoke("house::count", &json!({}));
    reply_data(&counted)["result"]["count"].clone()
}

#[test]
fn a_server_is_shared_by_all_by_a_client_or_by_a_session() {
    for (sharing, counts) in [
        (None, [1, 2, 3, 4]),
        (Some("shared"), [1, 2, 3, 4]),
        (Some("client"), [1, 2, 1, 3]),
        (Some("session"), [1, 1, 1, 2]),
    ] {
        let street = GatewayFixture::new();
        let mut house = street.echo_server("house");
        if let Some(sharing) = sharing {
            house["sharing"] = sharing.into();
        }
        street.configure(&json!({"house": house}));
        let (alice, bob) = (street.create_token("alice"), street.create_token("bob"));
        let server = street.http_server(&[]);
        let first = LegacyHttpSession::open(&server, Some(&alice));
        let second = LegacyHttpSession::open(&server, Some(&alice));
        let third = LegacyHttpSession::open(&server, Some(&bob));
        let counted = [&first, &second, &third, &first].map(call_count);
        assert_eq!(counted, counts.map(Value::from), "{sharing:?}");
    }
}

/// Stopping an unshared server does not affect the other clients' instances.
#[test]
fn a_server_of_ones_own_is_stopped_for_oneself_alone() {
    let street = GatewayFixture::new();
    let mut house = street.echo_server("house");
    house["sharing"] = "client".into();
    street.configure(&json!({"house": house}));
    let (alice, bob) = (street.create_token("alice"), street.create_token("bob"));
    let server = street.http_server(&[]);
    let alice = LegacyHttpSession::open(&server, Some(&alice));
    let bob = LegacyHttpSession::open(&server, Some(&bob));
    assert_eq!(
        (call_count(&alice), call_count(&bob), call_count(&bob)),
        (json!(1), json!(1), json!(2))
    );
    let stopped = alice.call("gateway.restart_server", &json!({"server_name": "house"}));
    assert_eq!(reply_data(&stopped)["ok"], true, "{stopped}");
    assert_eq!((call_count(&alice), call_count(&bob)), (json!(1), json!(3)));
}

/// An instance started only for listing belongs to no client, and is stopped.
#[test]
fn a_server_that_is_not_shared_runs_for_those_who_use_it_alone() {
    let street = GatewayFixture::new();
    let mut house = street.echo_server("house");
    house["sharing"] = "session".into();
    street.configure(&json!({"house": house}));
    let mut client = street.client(&[]);
    wait_until("it was looked at", || {
        let found = client.call("gateway.catalog_search", &json!({"query": "count"}));
        (reply_data(&found)["total"] != 0).then_some(())
    });
    let mut running = || {
        let health = client.call("gateway.health", &json!({"server": "house"}));
        reply_data(&health)["servers"][0]["running"].clone()
    };
    wait_until("that one is stopped", || (running() == 0).then_some(()));
    client.invoke("house::count", &json!({}));
    let health = client.call("gateway.health", &json!({"server": "house"}));
    assert_eq!(reply_data(&health)["servers"][0]["running"], 1);
    let stopped = client.call(
        "gateway.disconnect_server",
        &json!({"server_name": "house"}),
    );
    assert_eq!(reply_data(&stopped)["new_status"], "lazy", "{stopped}");
}

#[test]
fn a_grant_shows_the_servers_and_tools_it_names_and_no_others() {
    let street = GatewayFixture::new();
    street.configure(
        &json!({"house": street.echo_server("house"), "other": street.echo_server("other")}),
    );
    let file = street.config_file();
    let grant = "[[servers]]\nname = \"house\"\ntools = [\"count\", \"s*\"]\n";
    let grant = street.sandbox.write("grant.toml", grant);
    // If the servers are configured, creating the grant checks their names.
    street
        .sandbox
        .write(".mcp.json", std::fs::read(&file).unwrap());
    let narrow =
        street
            .sandbox
            .run_ok(&["token", "new", "narrow", "--grant", grant.to_str().unwrap()]);
    let full = street.create_token("full");
    let server = street.http_server(&[]);
    let full = LegacyHttpSession::open(&server, Some(&full));
    for name in ["house", "other"] {
        full.call("gateway.connect_server", &json!({"server_name": name}));
    }
    let narrow = LegacyHttpSession::open(&server, Some(narrow.trim()));
    let found = narrow.call("gateway.catalog_search", &json!({"limit": 100}));
    let found = &reply_data(&found);
    let ids: Vec<&str> = found["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|card| card["tool_id"].as_str().unwrap())
        .collect();
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    assert_eq!(
        sorted,
        ["house::count", "house::say", "house::steps"],
        "{found}"
    );
    assert_eq!(found["total_available"], 3);
    assert_eq!(call_count(&narrow), 1);
    for id in ["house::env", "other::count", "house::release"] {
        let denied = narrow.invoke(id, &json!({}));
        assert_eq!(
            tool_error(&denied)["code"],
            "unknown_tool",
            "{id}: {denied}"
        );
    }
    let listed = narrow.request("tools/list", json!({}));
    let names: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert!(
        names.contains(&"gateway.invoke") && !names.contains(&"gateway.restart_server"),
        "{names:?}"
    );
    let health = narrow.call("gateway.health", &json!({"all": true}));
    assert!(!health.to_string().contains("other"), "{health}");
    let resources = narrow.request("resources/list", json!({}));
    assert!(!resources.to_string().contains("house:note"), "{resources}");
    let why = street.sandbox.run_ok(&[
        "gateway",
        "why",
        "other::count",
        "--token",
        "narrow",
        "--config",
        file.to_str().unwrap(),
    ]);
    assert!(why.contains("the grant does not include it"), "{why}");
}

#[test]
fn a_grant_for_a_server_that_is_nowhere_is_refused() {
    let street = GatewayFixture::new();
    street.sandbox.write(
        ".mcp.json",
        json!({"mcpServers": {"house": street.echo_server("house")}}).to_string(),
    );
    let grant = street
        .sandbox
        .write("grant.toml", "[[servers]]\nname = \"huose\"\n");
    let ran = street
        .sandbox
        .run(&["token", "new", "narrow", "--grant", grant.to_str().unwrap()]);
    assert_ne!(ran.status, 0);
    assert!(
        ran.stderr.contains("did you mean `house`?"),
        "{}",
        ran.stderr
    );
}

/// A token without a server grant reaches no downstream server.
#[test]
fn a_token_that_only_reads_reaches_no_other_server() {
    let street = GatewayFixture::with_echo_server();
    let reader = street.sandbox.run_ok(&["token", "new", "reader"]);
    let server = street.http_server(&[]);
    let reader = LegacyHttpSession::open(&server, Some(reader.trim()));
    let listed = reader.request("tools/list", json!({}));
    assert!(!listed.to_string().contains("\"gateway."), "{listed}");
    let called = reader.request(
        "tools/call",
        json!({"name": "gateway.invoke", "arguments": {"tool_id": "house::count"}}),
    );
    assert!(
        called.get("error").is_some() || called["result"]["isError"] == true,
        "{called}"
    );
    assert_eq!(street.start_count("house"), 0);
}

/// A stored result is readable by its caller alone, even if others learn the handle.
#[test]
fn a_handle_of_another_token_is_as_one_that_is_not_there() {
    let street = GatewayFixture::with_echo_server();
    let (alice, bob) = (street.create_token("alice"), street.create_token("bob"));
    let server = street.http_server(&[]);
    let alice = LegacyHttpSession::open(&server, Some(&alice));
    let bob = LegacyHttpSession::open(&server, Some(&bob));
    let long = json!({"bytes": 100_000});
    let shown = alice.invoke("house::text", &long);
    let kept = result_handle(&shown);
    let next = &json!({"handle": kept, "path": "content[0].text"});
    let nowhere = crate::sandbox::Sandbox::new().store_result("text/plain", "x");
    // The replies about a handle from every way to read it, with the handle itself replaced.
    let told = |session: &LegacyHttpSession<'_>, handle: &str| {
        let uri = format!("rung://result/{handle}");
        let part = json!({"handle": handle, "path": "content[0].text"});
        [
            session.call("rung.read", &json!({"handle": handle})),
            session.call("rung.read", &part),
            session.request("resources/read", json!({"uri": uri}))["error"].clone(),
        ]
        .map(|said| said.to_string().replace(handle, "HANDLE"))
    };
    let denied = told(&bob, kept);
    assert_eq!(denied, told(&bob, &nowhere));
    assert!(denied[0].contains("not_found"), "{denied:?}");
    let listed = bob.request("resources/list", json!({}));
    assert!(!listed.to_string().contains(kept), "{listed}");
    // A cursor of another caller gives no access either.
    let read = alice.call("rung.read", next);
    let read = reply_data(&read);
    let cursor = read["next_cursor"].as_str().unwrap();
    let with_cursor = |handle: &str| {
        let arguments = json!({"handle": handle, "cursor": cursor});
        let said = bob.call("rung.read", &arguments);
        tool_error(&said).to_string().replace(handle, "HANDLE")
    };
    assert_eq!(with_cursor(kept), with_cursor(&nowhere));
    // Nor does making the same call.
    bob.invoke("house::text", &long);
    assert_eq!(told(&bob, kept), denied);
    let uri = format!("rung://result/{kept}");
    let read = alice.request("resources/read", json!({"uri": uri}));
    assert!(read["result"]["contents"][0].is_object(), "{read}");
    let nobody = legacy_request(1, "resources/read", json!({"uri": uri}));
    assert_eq!(server.fetch(nobody).status, 401);
}

/// A token shared by everyone grants access and does not identify the client.
#[test]
fn clients_that_share_the_exported_token_are_separated_by_session() {
    const TOKEN: &str = "a-token-that-everybody-was-given-0123456789";
    let street = GatewayFixture::new();
    let mut own = street.echo_server("own");
    own["sharing"] = "client".into();
    street.configure(&json!({"house": street.echo_server("house"), "own": own}));
    let mut command = street.command(&["--transport", "http", "--port", "0"]);
    let server = ServerProcess::spawn(command.env("PMCP_AUTH_TOKEN", TOKEN));
    let first = LegacyHttpSession::open(&server, Some(TOKEN));
    let second = LegacyHttpSession::open(&server, Some(TOKEN));
    let mine = |session: &LegacyHttpSession<'_>| {
        let counted = session.invoke("own::count", &json!({}));
        reply_data(&counted)["result"]["count"].clone()
    };
    assert_eq!((mine(&first), mine(&second)), (json!(1), json!(1)));
    let also = first.clone_session();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || also.invoke("house::wait", &json!({})));
        street.wait_for_trace("house", "wait", 1);
        let [request] = pending_request_ids(&first.call("gateway.list_pending", &json!({})))
            .try_into()
            .unwrap();
        let request: String = request;
        assert!(pending_request_ids(&second.call("gateway.list_pending", &json!({}))).is_empty());
        let ended = second.call(
            "gateway.cancel",
            &json!({"request_id": request, "force": true}),
        );
        assert_ne!(reply_data(&ended)["status"], "cancelled", "{ended}");
        second.invoke("house::release", &json!({}));
        assert_eq!(first_text(&waiting.join().unwrap()), "released");
    });
}

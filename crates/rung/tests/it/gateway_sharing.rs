//! Who shares a server that remembers something, and what a token that was granted servers sees.

use serde_json::{Value, json};

use crate::gateway::{Session, Street, error, handle, pending, text, until};
use crate::http::{Server, legacy};

fn count(session: &Session<'_>) -> Value {
    let counted = session.invoke("house::count", &json!({}));
    counted["structuredContent"]["result"]["count"].clone()
}

#[test]
fn a_server_is_shared_by_all_by_a_client_or_by_a_session() {
    for (sharing, counts) in [
        (None, [1, 2, 3, 4]),
        (Some("shared"), [1, 2, 3, 4]),
        (Some("client"), [1, 2, 1, 3]),
        (Some("session"), [1, 1, 1, 2]),
    ] {
        let street = Street::new();
        let mut house = street.house("house");
        if let Some(sharing) = sharing {
            house["sharing"] = sharing.into();
        }
        street.configure(&json!({"house": house}));
        let (alice, bob) = (street.token("alice"), street.token("bob"));
        let server = street.listening(&[]);
        let first = Session::open(&server, Some(&alice));
        let second = Session::open(&server, Some(&alice));
        let third = Session::open(&server, Some(&bob));
        let counted = [&first, &second, &third, &first].map(count);
        assert_eq!(counted, counts.map(Value::from), "{sharing:?}");
    }
}

/// Stopping one's own is nobody else's matter.
#[test]
fn a_server_of_ones_own_is_stopped_for_oneself_alone() {
    let street = Street::new();
    let mut house = street.house("house");
    house["sharing"] = "client".into();
    street.configure(&json!({"house": house}));
    let (alice, bob) = (street.token("alice"), street.token("bob"));
    let server = street.listening(&[]);
    let alice = Session::open(&server, Some(&alice));
    let bob = Session::open(&server, Some(&bob));
    assert_eq!(
        (count(&alice), count(&bob), count(&bob)),
        (json!(1), json!(1), json!(2))
    );
    let stopped = alice.call("gateway.restart_server", &json!({"server_name": "house"}));
    assert_eq!(stopped["structuredContent"]["ok"], true, "{stopped}");
    assert_eq!((count(&alice), count(&bob)), (json!(1), json!(3)));
}

/// One that was started to be looked at is nobody's: it does not stay beside one's own.
#[test]
fn a_server_that_is_not_shared_runs_for_those_who_use_it_alone() {
    let street = Street::new();
    let mut house = street.house("house");
    house["sharing"] = "session".into();
    street.configure(&json!({"house": house}));
    let mut client = street.client(&[]);
    until("it was looked at", || {
        let found = client.call("gateway.catalog_search", &json!({"query": "count"}));
        (found["structuredContent"]["total"] != 0).then_some(())
    });
    let mut running = || {
        let health = client.call("gateway.health", &json!({"server": "house"}));
        health["structuredContent"]["servers"][0]["running"].clone()
    };
    until("that one is stopped", || (running() == 0).then_some(()));
    client.invoke("house::count", &json!({}));
    let health = client.call("gateway.health", &json!({"server": "house"}));
    assert_eq!(health["structuredContent"]["servers"][0]["running"], 1);
    let stopped = client.call(
        "gateway.disconnect_server",
        &json!({"server_name": "house"}),
    );
    assert_eq!(
        stopped["structuredContent"]["new_status"], "lazy",
        "{stopped}"
    );
}

#[test]
fn a_grant_shows_the_servers_and_tools_it_names_and_no_others() {
    let street = Street::new();
    street.configure(&json!({"house": street.house("house"), "other": street.house("other")}));
    let file = street.file();
    let grant = "[[servers]]\nname = \"house\"\ntools = [\"count\", \"s*\"]\n";
    let grant = street.sandbox.write("grant.toml", grant);
    // Where its servers are named, it can be checked that they are there.
    street
        .sandbox
        .write(".mcp.json", std::fs::read(&file).unwrap());
    let narrow = street
        .sandbox
        .ok(&["token", "new", "narrow", "--grant", grant.to_str().unwrap()]);
    let full = street.token("full");
    let server = street.listening(&[]);
    let full = Session::open(&server, Some(&full));
    for name in ["house", "other"] {
        full.call("gateway.connect_server", &json!({"server_name": name}));
    }
    let narrow = Session::open(&server, Some(narrow.trim()));
    let found = narrow.call("gateway.catalog_search", &json!({"limit": 100}));
    let found = &found["structuredContent"];
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
    assert_eq!(count(&narrow), 1);
    for id in ["house::env", "other::count", "house::release"] {
        let denied = narrow.invoke(id, &json!({}));
        assert_eq!(error(&denied)["code"], "unknown_tool", "{id}: {denied}");
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
    let why = street.sandbox.ok(&[
        "gateway",
        "why",
        "other::count",
        "--token",
        "narrow",
        "--config",
        file.to_str().unwrap(),
    ]);
    assert!(why.contains("the grant does not name it"), "{why}");
}

#[test]
fn a_grant_for_a_server_that_is_nowhere_is_refused() {
    let street = Street::new();
    street.sandbox.write(
        ".mcp.json",
        json!({"mcpServers": {"house": street.house("house")}}).to_string(),
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

/// Whoever may only read what is ours reaches nothing that is somebody else's.
#[test]
fn a_token_that_only_reads_reaches_no_other_server() {
    let street = Street::with_a_house();
    let reader = street.sandbox.ok(&["token", "new", "reader"]);
    let server = street.listening(&[]);
    let reader = Session::open(&server, Some(reader.trim()));
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
    assert_eq!(street.starts("house"), 0);
}

/// What came of a call is its caller's, whoever else learns what it is kept under.
#[test]
fn a_handle_of_another_token_is_as_one_that_is_not_there() {
    let street = Street::with_a_house();
    let (alice, bob) = (street.token("alice"), street.token("bob"));
    let server = street.listening(&[]);
    let alice = Session::open(&server, Some(&alice));
    let bob = Session::open(&server, Some(&bob));
    let long = json!({"bytes": 100_000});
    let shown = alice.invoke("house::text", &long);
    let kept = handle(&shown);
    let next = &json!({"handle": kept, "path": "content[0].text"});
    let nowhere = crate::sandbox::Sandbox::new().store("text/plain", "x");
    // All that is told of a handle, by each way to read it, without the handle itself.
    let told = |session: &Session<'_>, handle: &str| {
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
    // A cursor of hers is no key, either.
    let read = alice.call("rung.read", next);
    let cursor = read["structuredContent"]["next_cursor"].as_str().unwrap();
    let with_cursor = |handle: &str| {
        let arguments = json!({"handle": handle, "cursor": cursor});
        let said = bob.call("rung.read", &arguments);
        error(&said).to_string().replace(handle, "HANDLE")
    };
    assert_eq!(with_cursor(kept), with_cursor(&nowhere));
    // Neither is having called the same.
    bob.invoke("house::text", &long);
    assert_eq!(told(&bob, kept), denied);
    let uri = format!("rung://result/{kept}");
    let read = alice.request("resources/read", json!({"uri": uri}));
    assert!(read["result"]["contents"][0].is_object(), "{read}");
    let nobody = legacy(1, "resources/read", json!({"uri": uri}));
    assert_eq!(server.post(nobody).status, 401);
}

/// The one token that everybody was given says that they may come, and not who they are.
#[test]
fn whoever_shares_the_exported_token_is_kept_apart_by_session() {
    const TOKEN: &str = "a-token-that-everybody-was-given-0123456789";
    let street = Street::new();
    let mut own = street.house("own");
    own["sharing"] = "client".into();
    street.configure(&json!({"house": street.house("house"), "own": own}));
    let mut command = street.command(&["--transport", "http", "--port", "0"]);
    let server = Server::of(command.env("PMCP_AUTH_TOKEN", TOKEN));
    let first = Session::open(&server, Some(TOKEN));
    let second = Session::open(&server, Some(TOKEN));
    let mine = |session: &Session<'_>| {
        let counted = session.invoke("own::count", &json!({}));
        counted["structuredContent"]["result"]["count"].clone()
    };
    assert_eq!((mine(&first), mine(&second)), (json!(1), json!(1)));
    let also = first.also();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || also.invoke("house::wait", &json!({})));
        street.wait_for("house", "wait", 1);
        let [request] = pending(&first.call("gateway.list_pending", &json!({})))
            .try_into()
            .unwrap();
        let request: String = request;
        assert!(pending(&second.call("gateway.list_pending", &json!({}))).is_empty());
        let ended = second.call(
            "gateway.cancel",
            &json!({"request_id": request, "force": true}),
        );
        assert_ne!(ended["structuredContent"]["status"], "cancelled", "{ended}");
        second.invoke("house::release", &json!({}));
        assert_eq!(text(&waiting.join().unwrap()), "released");
    });
}

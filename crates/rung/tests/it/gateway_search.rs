//! Tool search, whether the servers run or not.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::gateway::{
    GatewayClient, GatewayFixture, LegacyHttpSession, faulty_server, first_text, reply_data,
    tool_error, wait_until, with_role,
};
use crate::http::ServerProcess;
use crate::stdio::StdioClient;

fn search(client: &mut GatewayClient, arguments: &Value) -> Value {
    reply_data(&client.call("gateway.catalog_search", arguments))
}

fn tool_ids(found: &Value) -> Vec<&str> {
    let results = found["results"].as_array().unwrap().iter();
    results
        .map(|card| card["tool_id"].as_str().unwrap())
        .collect()
}

#[test]
fn a_server_that_takes_longer_than_a_search_waits_is_named_and_then_found() {
    let street = GatewayFixture::new();
    let door = street.sandbox.home().join("door");
    let (door_path, house) = (door.display(), faulty_server());
    let script = format!(
        "while [ ! -e {door_path} ]; do sleep 0.05; done; exec {} house",
        house.display()
    );
    let mut slow = street.echo_server("slow");
    slow["command"] = "/bin/sh".into();
    slow["args"] = json!(["-c", script]);
    street.configure(&json!({"slow": slow}));
    let mut client = street.client(&[]);
    let first = search(&mut client, &json!({"query": "book a hotel"}));
    assert_eq!(first["not_seen_yet"], json!(["slow"]), "{first}");
    assert!(
        first["hint"].as_str().unwrap().contains("search again"),
        "{first}"
    );
    std::fs::write(&door, "").unwrap();
    let found = wait_until("the server is seen", || {
        let found = search(&mut client, &json!({"query": "book a hotel"}));
        found.get("not_seen_yet").is_none().then_some(found)
    });
    assert_eq!(tool_ids(&found)[0], "slow::book", "{found}");
}

#[test]
fn servers_that_do_not_run_are_left_out_on_request() {
    let street = GatewayFixture::new();
    street.configure(
        &json!({"house": street.echo_server("house"), "other": street.echo_server("other")}),
    );
    let mut client = street.client(&[]);
    for name in ["house", "other"] {
        client.call("gateway.connect_server", &json!({"server_name": name}));
    }
    client.call(
        "gateway.disconnect_server",
        &json!({"server_name": "other"}),
    );
    let both = search(&mut client, &json!({"query": "hotel"}));
    assert_eq!(both["total"], 2, "{both}");
    let online = search(
        &mut client,
        &json!({"query": "hotel", "include_offline": false}),
    );
    assert_eq!(tool_ids(&online), ["house::book"], "{online}");
    assert_eq!(online["total"], 1, "{online}");
    let hint = online["hint"].as_str().unwrap();
    assert!(hint.contains("include_offline"), "{online}");
}

#[test]
fn servers_that_could_be_added_are_named_where_nothing_here_will_do() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let asked = json!({"query": "list pull requests on github"});
    let found = search(&mut client, &asked);
    let one = &found["manifest_candidates"][0];
    assert_eq!(one["name"], "github", "{found}");
    assert_eq!(one["candidate_type"], "server", "{found}");
    assert_eq!(one["relevance_score"], 1.0, "{found}");
    assert_eq!(one["requires_api_key"], true, "{found}");
    assert_eq!(one["is_installed"], false, "{found}");
    assert!(one["entry"]["command"].is_string(), "{found}");
    let hint = found["hint"].as_str().unwrap();
    assert!(hint.contains("manifest_candidates"), "{found}");
    // A suggested server is not configured and cannot be used.
    let called = client.call("gateway.connect_server", &json!({"server_name": "github"}));
    assert_eq!(tool_error(&called)["code"], "unknown_server", "{called}");
    for arguments in [
        json!({"query": "hotel"}),
        json!({}),
        json!({"query": "github", "filters": {"server": "house"}}),
    ] {
        let found = search(&mut client, &arguments);
        assert!(found.get("manifest_candidates").is_none(), "{found}");
    }
    // A configured server is not suggested again, whatever its name.
    let mut entries = json!({"house": with_role("house")});
    entries["gh"] = one["entry"].clone();
    street.configure(&entries);
    let mut client = street.client(&[]);
    let found = search(&mut client, &asked);
    let names = found["manifest_candidates"].as_array();
    let mut names = names.into_iter().flatten();
    assert!(names.all(|one| one["name"] != "github"), "{found}");
    // A server that the policy denies is not suggested.
    let policy = street
        .sandbox
        .write("policy.yaml", "servers: {denylist: ['git*']}");
    let mut client = street.client(&["--policy", policy.to_str().unwrap()]);
    let found = search(&mut client, &asked);
    assert!(found.get("manifest_candidates").is_none(), "{found}");
    // Remote callers get no suggestions, as they cannot add servers.
    let token = street.create_token("elsewhere");
    let server = ServerProcess::spawn(&mut street.command(&["--transport", "http", "--port", "0"]));
    let session = LegacyHttpSession::open(&server, Some(&token));
    let found = session.call("gateway.catalog_search", &asked);
    let found = &reply_data(&found);
    assert!(found["results"].is_array(), "{found}");
    assert!(found.get("manifest_candidates").is_none(), "{found}");
}

#[test]
fn commands_of_this_machine_are_suggested_to_the_local_process_alone() {
    let street = GatewayFixture::with_echo_server();
    let bin = street.sandbox.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("jq"), "").unwrap();
    let mut command = street.command(&[]);
    let mut client = GatewayClient::open(StdioClient::spawn(command.env("PATH", &bin)), &json!({}));
    let found = search(&mut client, &json!({"query": "take json apart"}));
    let hints = &found["cli_hints"];
    assert_eq!(hints.as_array().unwrap().len(), 1, "{found}");
    assert_eq!(hints[0]["name"], "jq", "{found}");
    assert_eq!(hints[0]["available"], true, "{found}");
    assert_eq!(hints[0]["path"], json!(bin.join("jq")), "{found}");
    assert_eq!(hints[0]["help_command"], json!(["jq", "--help"]), "{found}");
    // A suggested command is not a tool, and a missing command is not suggested.
    let called = client.call("gateway.describe", &json!({"tool_id": "jq"}));
    assert_eq!(tool_error(&called)["code"], "unknown_tool", "{called}");
    for arguments in [
        json!({"query": "git commits"}),
        json!({"query": "hotel"}),
        json!({"query": "json", "filters": {"server": "house"}}),
    ] {
        let found = search(&mut client, &arguments);
        assert!(found.get("cli_hints").is_none(), "{found}");
    }
    let token = street.create_token("elsewhere");
    let flags = ["--transport", "http", "--port", "0"];
    let server = ServerProcess::spawn(street.command(&flags).env("PATH", &bin));
    let found = LegacyHttpSession::open(&server, Some(&token)).call(
        "gateway.catalog_search",
        &json!({"query": "take json apart"}),
    );
    let found = &reply_data(&found);
    assert!(found["results"].is_array(), "{found}");
    assert!(found.get("cli_hints").is_none(), "{found}");
}

#[test]
fn what_was_seen_once_is_found_without_starting_anything() {
    let street = GatewayFixture::with_echo_server();
    let mut before = street.client(&[]);
    before.call("gateway.connect_server", &json!({"server_name": "house"}));
    assert_eq!(before.stdio.finish().0, 0);
    let mut client = street.client(&[]);
    let found = search(&mut client, &json!({"query": "hotel"}));
    let card = &found["results"][0];
    assert_eq!(card["tool_id"], "house::book", "{found}");
    assert_eq!(
        (&card["availability"], &card["title"]),
        (&json!("offline"), &json!("Book a room"))
    );
    assert!(found.get("not_seen_yet").is_none(), "{found}");
    let described = client.call(
        "gateway.describe",
        &json!({"tool_id": "house::book", "full": true}),
    );
    assert_eq!(
        reply_data(&described)["input_schema"]["required"],
        json!(["when"])
    );
    let resources = client.request("resources/list", &json!({}));
    assert!(resources.to_string().contains("house:note"), "{resources}");
    assert_eq!(street.start_count("house"), 1, "only by the gateway before");
    client.invoke("house::count", &json!({}));
    let found = search(&mut client, &json!({"query": "hotel"}));
    assert_eq!(found["results"][0]["availability"], "online");
}

#[test]
fn totals_limits_and_filters_are_true() {
    let street = GatewayFixture::new();
    street.configure(&json!({"house": street.echo_server("house"), "odd": with_role("odd")}));
    let mut client = street.client(&[]);
    for server in ["house", "odd"] {
        client.call("gateway.connect_server", &json!({"server_name": server}));
    }
    let all = search(&mut client, &json!({"limit": 100}));
    let total = tool_ids(&all).len();
    assert_eq!(all["total"], total);
    assert_eq!(
        (&all["total_available"], &all["truncated"]),
        (&json!(total), &json!(false))
    );
    let few = search(&mut client, &json!({"limit": 2}));
    assert_eq!(
        (tool_ids(&few).len(), &few["total"], &few["truncated"]),
        (2, &json!(total), &json!(true))
    );
    let some = search(&mut client, &json!({"query": "hotel"}));
    assert_eq!(
        (&some["total"], &some["total_available"]),
        (&json!(1), &json!(total)),
        "{some}"
    );
    let none = search(&mut client, &json!({"query": "zebra crossing quantum"}));
    assert_eq!(
        (&none["total"], &none["results"]),
        (&json!(0), &json!([])),
        "{none}"
    );
    let odd = search(&mut client, &json!({"filters": {"server": "odd"}}));
    assert!(
        !tool_ids(&odd).is_empty() && tool_ids(&odd).iter().all(|id| id.starts_with("odd::")),
        "{odd}"
    );
    let low = search(
        &mut client,
        &json!({"filters": {"risk_max": "low"}, "limit": 100}),
    );
    assert!(
        tool_ids(&low).contains(&"house::look") && !tool_ids(&low).contains(&"house::count"),
        "{low}"
    );
    assert!(
        low["results"]
            .as_array()
            .unwrap()
            .iter()
            .all(|card| card["risk_hint"] == "low")
    );
    let cards = all["results"].as_array().unwrap().iter();
    let tags = cards.flat_map(|card| card["tags"].as_array().into_iter().flatten());
    let tags: BTreeSet<&str> = tags.filter_map(Value::as_str).collect();
    assert!(!tags.is_empty());
    for tag in tags {
        let tagged = search(
            &mut client,
            &json!({"filters": {"tags": [tag]}, "limit": 100}),
        );
        let cards = tagged["results"].as_array().unwrap();
        let has = |card: &Value| card["tags"].as_array().unwrap().contains(&tag.into());
        assert!(
            !cards.is_empty() && cards.iter().all(has),
            "{tag}: {tagged}"
        );
    }
    let unknown = client.call(
        "gateway.catalog_search",
        &json!({"filters": {"server": "huose"}}),
    );
    assert_eq!(tool_error(&unknown)["code"], "unknown_server");
}

/// A new tool is found as soon as its server announces it.
#[test]
fn a_server_that_changes_is_looked_at_again() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    client.invoke("house::grow", &json!({}));
    wait_until("the new tool is found", || {
        let found = search(&mut client, &json!({"query": "harvest"}));
        tool_ids(&found).contains(&"house::harvest").then_some(())
    });
    // A client that knows the name can call it without searching.
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    client.invoke("house::grow", &json!({}));
    let done = client.invoke("house::harvest", &json!({}));
    assert_eq!(first_text(&done), "done", "{done}");
}

#[test]
fn mistyped_and_inflected_words_find_what_is_meant() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    client.call("gateway.connect_server", &json!({"server_name": "house"}));
    for query in ["hotels", "booking", "hotle", "book_room", "bookRoom"] {
        let found = search(&mut client, &json!({"query": query}));
        assert_eq!(
            tool_ids(&found).first(),
            Some(&"house::book"),
            "{query}: {found}"
        );
    }
}

/// Search, description and validation follow the server's current definition: after it announced a change, and after a restart
/// without an announcement.
#[test]
fn a_tool_that_becomes_another_under_its_name_is_that_one_everywhere() {
    let cabin = json!({"deck": 3});
    for quietly in [false, true] {
        let street = GatewayFixture::with_echo_server();
        let mut client = street.client(&[]);
        let room = client.invoke("house::book", &json!({"when": "today"}));
        assert_eq!(first_text(&room), "booked", "{room}");
        client.invoke("house::rebuild", &json!({"quietly": quietly}));
        if quietly {
            let restart = json!({"server_name": "house"});
            client.call("gateway.restart_server", &restart);
        }
        // A call with the new arguments works without a search, and is not checked against the old schema.
        let booked = client.invoke("house::book", &cabin);
        assert_eq!(first_text(&booked), "booked", "{booked}");
        let described = client.call("gateway.describe", &json!({"tool_id": "house::book"}));
        let described = &reply_data(&described);
        assert_eq!(
            (&described["title"], &described["args"][0]["name"]),
            (&json!("Book a cabin"), &json!("deck")),
            "{described}"
        );
        let ship = search(&mut client, &json!({"query": "cabin on a ship"}));
        assert_eq!(tool_ids(&ship), ["house::book"], "{ship}");
        let hotel = search(&mut client, &json!({"query": "hotel"}));
        assert!(!tool_ids(&hotel).contains(&"house::book"), "{hotel}");
        for before in [
            json!({"when": "today"}),
            json!({"when": "today", "deck": 3}),
        ] {
            let refused = client.invoke("house::book", &before);
            assert_eq!(
                tool_error(&refused)["code"],
                "invalid_arguments",
                "{refused}"
            );
        }
        // The next gateway knows only the new definition.
        assert_eq!(client.stdio.finish().0, 0);
        let mut client = street.client(&[]);
        let hotel = search(&mut client, &json!({"query": "hotel"}));
        assert!(!tool_ids(&hotel).contains(&"house::book"), "{hotel}");
    }
}

/// A stored schema may be outdated and is no reason to refuse a call.
#[test]
fn nothing_is_refused_for_what_a_server_took_before_it_was_started_again() {
    let street = GatewayFixture::with_echo_server();
    let mut before = street.client(&[]);
    before.invoke("house::rebuild", &json!({"quietly": true}));
    assert_eq!(before.stdio.finish().0, 0);
    let mut client = street.client(&[]);
    let booked = client.invoke("house::book", &json!({"deck": 3}));
    assert_eq!(first_text(&booked), "booked", "{booked}");
    let refused = client.invoke("house::book", &json!({"when": "today"}));
    assert_eq!(
        tool_error(&refused)["code"],
        "invalid_arguments",
        "{refused}"
    );
}

#[test]
fn a_tool_that_is_not_there_is_taken_for_one_that_is_called_nearly_so() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    client.call("gateway.connect_server", &json!({"server_name": "house"}));
    for (id, meant) in [
        ("house::cuont", Some("house::count")),
        ("house::boook", Some("house::book")),
        // The right server name alone does not suggest a tool.
        ("house::nope", None),
        ("house::zzzzz", None),
    ] {
        let failed = client.invoke(id, &json!({}));
        let failed = tool_error(&failed);
        assert_eq!(failed["code"], "unknown_tool", "{failed}");
        let near = failed["details"]["nearest"].as_str();
        assert_eq!(near, meant, "{failed}");
    }
}

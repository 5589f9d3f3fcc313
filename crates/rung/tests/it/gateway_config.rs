//! Files that name servers, as people have them: whose word counts, what is left out and why, and what has to be approved.

use std::process::{Command, Stdio as Pipe};

use serde_json::{Value, json};

use crate::gateway::{Client, Street, error, text, until};
use crate::http::Server;
use crate::stdio::Stdio;

/// The gateway, with whatever files are found.
fn command(street: &Street, flags: &[&str]) -> Command {
    let mut command = street.sandbox.command();
    command.arg("gateway").args(flags).stderr(Pipe::null());
    command
}

fn client(street: &Street, flags: &[&str]) -> Client {
    Client::open(Stdio::of(&mut command(street, flags)), &json!({}))
}

fn variable(client: &mut Client, name: &str) -> String {
    text(&client.invoke("house::env", &json!({"name": name}))).to_owned()
}

/// A house that has a word.
fn house(street: &Street, word: &str) -> Value {
    let mut house = street.house("house");
    house["env"]["WORD"] = word.into();
    house
}

fn write(street: &Street, file: &str, servers: &Value) {
    street
        .sandbox
        .write(file, json!({"mcpServers": servers}).to_string());
}

#[test]
fn a_file_as_people_have_it_is_taken_and_what_is_left_out_is_named() {
    let street = Street::new();
    let rooms = street.sandbox.home().join("rooms");
    std::fs::create_dir(&rooms).unwrap();
    let mut house = house(&street, "plain");
    house["type"] = "stdio".into();
    house["cwd"] = rooms.to_str().into();
    house["env"]["GREETING"] = "${UNSET_WORD:-hello}".into();
    house["env"]["PLACE"] = "to ${OUTSIDE} and back".into();
    let mut off = street.house("off");
    off["disabled"] = true.into();
    let mut needs = street.house("needs");
    needs["env"]["NEEDED"] = "${NOT_SET_ANYWHERE}".into();
    street.configure(&json!({
        "house": house, "off": off, "needs": needs, "odd": {"command": 7}, "empty": {},
    }));
    let mut command = street.command(&[]);
    command.env("OUTSIDE", "the moon");
    let mut client = Client::open(Stdio::of(&mut command), &json!({}));
    assert_eq!(variable(&mut client, "WORD"), "plain");
    assert_eq!(variable(&mut client, "GREETING"), "hello");
    assert_eq!(variable(&mut client, "PLACE"), "to the moon and back");
    assert_eq!(
        variable(&mut client, "OUTSIDE"),
        "",
        "a server has what it is given, and no more"
    );
    let folder = client.invoke("house::folder", &json!({}));
    assert_eq!(
        text(&folder),
        rooms.canonicalize().unwrap().to_str().unwrap()
    );
    let unset = client.invoke("needs::count", &json!({}));
    let unset = error(&unset);
    assert_eq!(unset["code"], "source_unauthorized", "{unset}");
    assert!(
        unset["message"]
            .as_str()
            .unwrap()
            .contains("NOT_SET_ANYWHERE"),
        "{unset}"
    );
    let health = client.call("gateway.health", &json!({"all": true}));
    let health = &health["structuredContent"];
    assert_eq!(
        health["counts"],
        json!({"online": 1, "withheld": 4}),
        "{health}"
    );
    let problems = health["problems"].to_string();
    for (name, why) in [("off", "disabled"), ("odd", "command"), ("empty", "")] {
        assert!(
            problems.contains(name) && problems.contains(why),
            "{name}: {problems}"
        );
    }
    let config = street.file();
    let ran = street
        .sandbox
        .run(&["gateway", "status", "--config", config.to_str().unwrap()]);
    assert!(
        ran.stdout.contains("house") && ran.stderr.contains("disabled"),
        "{ran:?}"
    );
}

#[test]
fn a_server_at_an_address_gets_the_headers_it_is_given() {
    let street = Street::new();
    let token = street.token("gateway");
    let elsewhere = crate::sandbox::Sandbox::new();
    let own = elsewhere.ok(&["token", "new", "guest", "--write"]);
    let server = Server::start(&elsewhere, &[]);
    street.configure(&json!({
        "served": {"type": "http", "url": format!("http://{}/mcp", server.address), "headers": {"Authorization": "Bearer ${SERVED}"}},
        "refused": {"url": format!("http://{}/mcp", server.address), "headers": {"Authorization": format!("Bearer {token}")}},
    }));
    let mut command = street.command(&[]);
    command.env("SERVED", own.trim());
    let mut client = Client::open(Stdio::of(&mut command), &json!({}));
    let about = client.invoke("served::rung.about", &json!({}));
    assert_ne!(about["isError"], true, "{about}");
    let refused = client.invoke("refused::rung.about", &json!({}));
    let refused = error(&refused);
    assert_eq!(refused["code"], "source_unauthorized", "{refused}");
    assert!(!refused.to_string().contains(&token), "{refused}");
    let auth = &refused["details"]["auth"];
    assert_eq!(auth["auth_state"], "missing_auth", "{refused}");
    let challenge = auth["auth_challenge"].as_str().expect("how it asked");
    assert!(challenge.starts_with("Bearer"), "{refused}");
    assert_eq!(auth["auth_methods"], json!(["oauth"]), "{refused}");
    let metadata = auth["auth_metadata"]["protected_resource_metadata_url"].as_str();
    let metadata = metadata.expect("where it says how one signs in");
    assert!(challenge.contains(metadata), "{refused}");
    assert!(metadata.starts_with(&format!("http://{}/", server.address)));
    let health = client.call("gateway.health", &json!({"server": "refused"}));
    assert_eq!(
        health["structuredContent"]["servers"][0]["auth_state"], "missing_auth",
        "{health}"
    );
    assert_eq!(
        &health["structuredContent"]["servers"][0]["auth_challenge"], challenge,
        "{health}"
    );
}

#[test]
fn what_a_file_says_of_signing_in_is_told_with_what_is_wanted() {
    let street = Street::new();
    let mut house = street.house("house");
    house["env"]["KEY"] = "${NOT_SET_ANYWHERE}".into();
    house["protected_resource_metadata_url"] = "https://house.example/.well-known/x".into();
    house["declared_scopes"] = json!(["rooms.read"]);
    house["supports_url_elicitation"] = true.into();
    let mut odd = street.house("odd");
    odd["oidc_issuer_url"] = "https://me:secret@house.example".into();
    street.configure(&json!({"house": house, "odd": odd}));
    let mut client = street.client(&[]);
    let refused = client.invoke("house::count", &json!({}));
    let told = json!({
        "auth_state": "missing_auth",
        "missing_env_vars": ["NOT_SET_ANYWHERE"],
        "auth_methods": ["api_key", "url_elicitation"],
        "auth_metadata": {
            "protected_resource_metadata_url": "https://house.example/.well-known/x",
            "declared_scopes": ["rooms.read"],
        },
    });
    assert_eq!(error(&refused)["details"]["auth"], told, "{refused}");
    let health = client.call("gateway.health", &json!({"server": "house"}));
    let row = &health["structuredContent"]["servers"][0];
    for (name, expected) in told.as_object().unwrap() {
        assert_eq!(&row[name], expected, "{health}");
    }
    assert_eq!(row["startup_env_var"], "NOT_SET_ANYWHERE", "{health}");
    let health = client.call("gateway.health", &json!({}));
    let problems = health["structuredContent"]["problems"].to_string();
    assert!(problems.contains("oidc_issuer_url"), "{health}");
    assert!(!problems.contains("secret"), "{health}");
    // An edit of it alone is taken up, and starts nothing anew.
    let mut house = street.house("house");
    street.configure(&json!({"house": house}));
    until("the edit is taken up", || {
        let counted = client.invoke("house::count", &json!({}));
        (counted["isError"] != true).then_some(())
    });
    house["declared_scopes"] = json!(["rooms.write"]);
    street.configure(&json!({"house": house}));
    client.call("gateway.refresh", &json!({}));
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(
        counted["structuredContent"]["result"]["count"], 2,
        "{counted}"
    );
}

#[test]
fn a_page_that_a_server_sends_somebody_to_is_told_to_the_caller_alone() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    let refused = client.invoke("house::visit", &json!({}));
    let refused = error(&refused);
    let page = json!({
        "elicitation_id": "e-1",
        "url": "https://house.example/in?id=e-1",
        "message": "Sign in first",
    });
    let auth = &refused["details"]["auth"];
    assert_eq!(auth["auth_state"], "elicitation_required", "{refused}");
    assert_eq!(
        auth["auth_methods"],
        json!(["url_elicitation"]),
        "{refused}"
    );
    assert_eq!(auth["url_elicitations"], json!([page]), "{refused}");
    assert!(
        refused["hint"]
            .as_str()
            .unwrap()
            .contains("url_elicitations"),
        "{refused}"
    );
    let health = client.call("gateway.health", &json!({"server": "house"}));
    assert!(!health.to_string().contains("house.example"), "{health}");
}

#[test]
fn servers_that_come_later_are_taken_up_where_there_were_none() {
    let street = Street::new();
    let mut command = street.sandbox.command();
    command.arg("mcp").stderr(Pipe::null());
    let mut client = Client::open(Stdio::of(&mut command), &json!({}));
    let tools = |client: &mut Client| {
        let listed = client.request("tools/list", &json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        let named = |tool: &Value| tool["name"].as_str().unwrap().starts_with("gateway.");
        tools.iter().filter(|tool| named(tool)).count()
    };
    let told = |greeted: &Value| {
        let told = greeted["result"]["instructions"].as_str().unwrap();
        told.contains("gateway.catalog_search")
    };
    assert_eq!(tools(&mut client), 0);
    assert!(!told(&client.greeted), "{}", client.greeted);
    let called = client.request("tools/call", &json!({"name": "gateway.health"}));
    assert_eq!(called["error"]["data"]["code"], "unknown_tool", "{called}");
    let listed = client.request("resources/list", &json!({}));
    assert!(!listed.to_string().contains("guidance"), "{listed}");
    let token = street.token("guest");
    let server = Server::start(&street.sandbox, &["--dev"]);
    let greeting = |token: Option<&str>| {
        let begin = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let mut begin = crate::http::legacy(1, "initialize", begin);
        if let Some(token) = token {
            begin = begin.bearer(token);
        }
        crate::gateway::answer(&server.post(begin), 1)
    };
    assert!(!told(&greeting(Some(&token))));
    write(
        &street,
        ".mcp.json",
        &json!({"house": street.house("house")}),
    );
    let changed = |message: &Value| message["method"] == "notifications/tools/list_changed";
    client.hear(changed);
    assert_eq!(tools(&mut client), 14);
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(
        counted["structuredContent"]["result"]["count"], 1,
        "{counted}"
    );
    until("the server over HTTP knows it, too", || {
        told(&greeting(Some(&token))).then_some(())
    });
    assert!(!told(&greeting(None)), "who calls none is not told of them");
    // And when the last one is gone, so are they.
    write(&street, ".mcp.json", &json!({}));
    client.hear(changed);
    assert_eq!(tools(&mut client), 0);
}

#[test]
fn what_is_given_counts_before_the_project_and_that_before_the_user() {
    let street = Street::new();
    write(
        &street,
        "servers.json",
        &json!({"house": house(&street, "given")}),
    );
    write(
        &street,
        "project/.mcp.json",
        &json!({"house": house(&street, "project")}),
    );
    write(
        &street,
        ".mcp.json",
        &json!({"house": house(&street, "user"), "only": house(&street, "users")}),
    );
    let given = street.file();
    let mut first = client(
        &street,
        &["--config", given.to_str().unwrap(), "--trust-project"],
    );
    assert_eq!(variable(&mut first, "WORD"), "given");
    let all = first.call("gateway.health", &json!({"all": true}));
    assert!(all.to_string().contains("\"only\""), "{all}");
    let mut second = client(&street, &["--trust-project"]);
    assert_eq!(variable(&mut second, "WORD"), "project");
    std::fs::remove_file(street.sandbox.home().join("project/.mcp.json")).unwrap();
    let mut third = client(&street, &[]);
    assert_eq!(variable(&mut third, "WORD"), "user");
}

#[test]
fn a_project_starts_nothing_before_it_is_approved() {
    let street = Street::new();
    write(
        &street,
        "project/.mcp.json",
        &json!({"house": house(&street, "first")}),
    );
    let mut client = client(&street, &[]);
    for (tool, arguments) in [
        ("gateway.catalog_search", json!({"query": "count"})),
        ("gateway.health", json!({})),
    ] {
        let told = client.call(tool, &arguments);
        let hint = &told["structuredContent"]["hint"];
        let hint = hint.as_str().unwrap_or_default();
        assert!(
            hint.contains("rung gateway trust") && hint.contains("house"),
            "{tool}: {told}"
        );
        assert!(told["structuredContent"].to_string().len() < 1_024);
    }
    for (tool, arguments) in [
        ("gateway.invoke", json!({"tool_id": "house::count"})),
        ("gateway.connect_server", json!({"server_name": "house"})),
        ("gateway.restart_server", json!({"server_name": "house"})),
    ] {
        let withheld = client.call(tool, &arguments);
        let withheld = error(&withheld);
        assert_eq!(withheld["code"], "source_unavailable", "{tool}: {withheld}");
        assert!(
            withheld["hint"]
                .as_str()
                .unwrap()
                .contains("rung gateway trust house"),
            "{tool}: {withheld}"
        );
    }
    assert_eq!(street.starts("house"), 0);
    let listed = street.sandbox.ok(&["gateway", "trust", "--list"]);
    assert!(listed.contains("house\twaits"), "{listed}");
    street.sandbox.ok(&["gateway", "trust", "house", "--yes"]);
    until("the approval is taken up", || {
        (variable(&mut client, "WORD") == "first").then_some(())
    });
    let starts = street.starts("house");
    // An edit waits, and what was approved goes on.
    write(
        &street,
        "project/.mcp.json",
        &json!({"house": house(&street, "second"), "new": street.house("new")}),
    );
    until("it is told that the edit waits", || {
        let health = client.call("gateway.health", &json!({"server": "house"}));
        health.to_string().contains("an edit waits").then_some(())
    });
    assert_eq!(variable(&mut client, "WORD"), "first");
    assert_eq!(street.starts("house"), starts, "it is the one that it was");
    assert_eq!(
        error(&client.invoke("new::count", &json!({})))["code"],
        "source_unavailable"
    );
    street.sandbox.ok(&["gateway", "trust", "--yes"]);
    until("the edit is taken up", || {
        (variable(&mut client, "WORD") == "second").then_some(())
    });
    street
        .sandbox
        .ok(&["gateway", "trust", "--revoke", "house"]);
    until("it is taken back", || {
        let called = client.invoke("house::count", &json!({}));
        (called["isError"] == true).then_some(())
    });
}

#[test]
fn servers_of_the_settings_are_there_as_well() {
    let street = Street::new();
    let words = json!([crate::gateway::mischief(), "house"]);
    street.sandbox.write(
        ".config/rung/config.toml",
        format!("[sources.house]\ncommand = {words}\n"),
    );
    let mut client = client(&street, &[]);
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(
        counted["structuredContent"]["result"]["count"], 1,
        "{counted}"
    );
}

#[test]
fn values_of_the_project_and_of_the_user_fill_in_what_is_not_exported() {
    let street = Street::new();
    let mut house = street.house("house");
    for (name, variable) in [("A", "${A}"), ("B", "${B}"), ("C", "${C}"), ("D", "${D}")] {
        house["env"][name] = variable.into();
    }
    house["env"]["API_TOKEN"] = "${API_TOKEN}".into();
    write(&street, "project/.mcp.json", &json!({"house": house}));
    let user = "A=user\nB=user\nexport C='of the user' # said so\n";
    street.sandbox.write(".config/pmcp/pmcp.env", user);
    let project = "A=project\nB=project\nAPI_TOKEN=hunter2-hunter2\n";
    street.sandbox.write("project/.env.pmcp", project);
    let trust = || {
        let mut command = command(&street, &["trust", "--yes"]);
        let ran = crate::sandbox::run(command.env("A", "exported"));
        assert_eq!(ran.status, 0, "{ran:?}");
    };
    trust();
    let mut command = command(&street, &[]);
    command.env("A", "exported");
    let mut client = Client::open(Stdio::of(&mut command), &json!({}));
    // What is in no file is named, and the server waits for it.
    let unset = client.invoke("house::count", &json!({}));
    let unset = error(&unset);
    assert_eq!(unset["code"], "source_unauthorized", "{unset}");
    assert!(unset["message"].as_str().unwrap().contains('D'), "{unset}");
    street
        .sandbox
        .write("project/.env.pmcp", format!("{project}D=late\n"));
    trust();
    until("the edit is taken up", || {
        (variable(&mut client, "D") == "late").then_some(())
    });
    assert_eq!(variable(&mut client, "A"), "exported");
    assert_eq!(variable(&mut client, "B"), "project");
    assert_eq!(variable(&mut client, "C"), "of the user");
    // A secret is handed over, and does not come back.
    let secret = variable(&mut client, "API_TOKEN");
    assert!(
        !secret.is_empty() && !secret.contains("hunter2"),
        "{secret}"
    );
}

/// Who wrote a checkout must not have the user's own servers, and what they are given, go elsewhere.
#[test]
fn values_of_the_project_do_not_say_what_the_users_servers_are() {
    let street = Street::new();
    let mut house = street.house("house");
    house["command"] = "${PROGRAM}".into();
    write(&street, ".mcp.json", &json!({"house": house}));
    street.sandbox.write("project/.mcp.json", "{}");
    let line = format!("PROGRAM={}\n", crate::gateway::mischief().display());
    street.sandbox.write("project/.env.pmcp", &line);
    let mut client = client(&street, &[]);
    let unset = client.invoke("house::count", &json!({}));
    assert_eq!(error(&unset)["code"], "source_unauthorized", "{unset}");
    assert!(error(&unset).to_string().contains("PROGRAM"), "{unset}");
    assert_eq!(street.starts("house"), 0);
    // Where the user says the same, it is so.
    street.sandbox.write(".config/pmcp/pmcp.env", &line);
    until("the user's word is taken up", || {
        let counted = client.invoke("house::count", &json!({}));
        (counted["isError"] != true).then_some(())
    });
}

/// The user's own goes on, and that the project has another waits, where it is seen.
#[test]
fn a_projects_server_of_the_same_name_is_told_to_wait() {
    let street = Street::new();
    write(
        &street,
        ".mcp.json",
        &json!({"house": house(&street, "user")}),
    );
    write(
        &street,
        "project/.mcp.json",
        &json!({"house": house(&street, "project")}),
    );
    let told = street.sandbox.run(&["gateway", "status"]);
    assert!(
        told.stderr.contains("project/.mcp.json") && told.stderr.contains("trust house"),
        "{told:?}"
    );
    let mut client = client(&street, &[]);
    assert_eq!(variable(&mut client, "WORD"), "user");
    let health = client.call("gateway.health", &json!({}));
    let problems = health["structuredContent"]["problems"].to_string();
    assert!(problems.contains("waits for approval"), "{health}");
    street.sandbox.ok(&["gateway", "trust", "house", "--yes"]);
    until("the approval is taken up", || {
        (variable(&mut client, "WORD") == "project").then_some(())
    });
}

/// What is written alike in two projects is not the same.
#[test]
fn what_one_project_was_seen_to_have_is_not_told_of_another() {
    let street = Street::new();
    for project in ["a", "b"] {
        let file = json!({"mcpServers": {"local": {"command": "/bin/sh", "args": ["run.sh"]}}});
        let place = |name: &str| format!("{project}/{name}");
        street.sandbox.write(&place(".mcp.json"), file.to_string());
        let house = crate::gateway::mischief();
        let script = format!("exec {} house\n", house.display());
        street.sandbox.write(&place("run.sh"), script);
    }
    let at = |project: &str, flags: &[&str]| {
        let mut command = command(&street, flags);
        command
            .arg("--trust-project")
            .current_dir(street.sandbox.home().join(project));
        command
    };
    let tools = |project: &str| {
        let ran = crate::sandbox::run(&mut at(project, &["status", "--json"]));
        let told: Value = serde_json::from_str(&ran.stdout).unwrap();
        told["servers"][0]["tools"].clone()
    };
    let mut client = Client::open(Stdio::of(&mut at("a", &[])), &json!({}));
    client.call("gateway.connect_server", &json!({"server_name": "local"}));
    assert!(tools("a").is_u64());
    assert_eq!(tools("b"), Value::Null);
}

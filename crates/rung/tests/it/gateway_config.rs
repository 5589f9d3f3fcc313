//! Configuration files as users have them: precedence, skipped entries with reasons, and approval.

use std::process::{Command, Stdio as Pipe};

use serde_json::{Value, json};

use crate::gateway::{
    GatewayClient, GatewayFixture, first_text, reply_data, tool_error, wait_until,
};
use crate::http::ServerProcess;
use crate::stdio::StdioClient;

/// Starts the gateway with the configuration files it discovers.
fn gateway_command(street: &GatewayFixture, flags: &[&str]) -> Command {
    let mut command = street.sandbox.command();
    command.arg("gateway").args(flags).stderr(Pipe::null());
    command
}

fn start_client(street: &GatewayFixture, flags: &[&str]) -> GatewayClient {
    GatewayClient::open(
        StdioClient::spawn(&mut gateway_command(street, flags)),
        &json!({}),
    )
}

fn read_variable(client: &mut GatewayClient, name: &str) -> String {
    first_text(&client.invoke("house::env", &json!({"name": name}))).to_owned()
}

/// The echo server with a `WORD` variable.
fn echo_server_with_word(street: &GatewayFixture, word: &str) -> Value {
    let mut house = street.echo_server("house");
    house["env"]["WORD"] = word.into();
    house
}

fn write_servers(street: &GatewayFixture, file: &str, servers: &Value) {
    street
        .sandbox
        .write(file, json!({"mcpServers": servers}).to_string());
}

#[test]
fn a_file_as_people_have_it_is_taken_and_what_is_left_out_is_named() {
    let street = GatewayFixture::new();
    let rooms = street.sandbox.home().join("rooms");
    std::fs::create_dir(&rooms).unwrap();
    let mut house = echo_server_with_word(&street, "plain");
    house["type"] = "stdio".into();
    house["cwd"] = rooms.to_str().into();
    house["env"]["GREETING"] = "${UNSET_WORD:-hello}".into();
    house["env"]["PLACE"] = "to ${OUTSIDE} and back".into();
    let mut off = street.echo_server("off");
    off["disabled"] = true.into();
    let mut needs = street.echo_server("needs");
    needs["env"]["NEEDED"] = "${NOT_SET_ANYWHERE}".into();
    street.configure(&json!({
        "house": house, "off": off, "needs": needs, "odd": {"command": 7}, "empty": {},
    }));
    let mut command = street.command(&[]);
    command.env("OUTSIDE", "the moon");
    let mut client = GatewayClient::open(StdioClient::spawn(&mut command), &json!({}));
    assert_eq!(read_variable(&mut client, "WORD"), "plain");
    assert_eq!(read_variable(&mut client, "GREETING"), "hello");
    assert_eq!(read_variable(&mut client, "PLACE"), "to the moon and back");
    assert_eq!(
        read_variable(&mut client, "OUTSIDE"),
        "",
        "a server has what it is given, and no more"
    );
    let folder = client.invoke("house::folder", &json!({}));
    assert_eq!(
        first_text(&folder),
        rooms.canonicalize().unwrap().to_str().unwrap()
    );
    let unset = client.invoke("needs::count", &json!({}));
    let unset = tool_error(&unset);
    assert_eq!(unset["code"], "source_unauthorized", "{unset}");
    assert!(
        unset["message"]
            .as_str()
            .unwrap()
            .contains("NOT_SET_ANYWHERE"),
        "{unset}"
    );
    let health = client.call("gateway.health", &json!({"all": true}));
    let health = &reply_data(&health);
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
    let config = street.config_file();
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
    let street = GatewayFixture::new();
    let token = street.create_token("gateway");
    let elsewhere = crate::sandbox::Sandbox::new();
    let own = elsewhere.run_ok(&["token", "new", "guest", "--write"]);
    let server = ServerProcess::start(&elsewhere, &[]);
    street.configure(&json!({
        "served": {"type": "http", "url": format!("http://{}/mcp", server.address), "headers": {"Authorization": "Bearer ${SERVED}"}},
        "refused": {"url": format!("http://{}/mcp", server.address), "headers": {"Authorization": format!("Bearer {token}")}},
    }));
    let mut command = street.command(&[]);
    command.env("SERVED", own.trim());
    let mut client = GatewayClient::open(StdioClient::spawn(&mut command), &json!({}));
    let about = client.invoke("served::rung.about", &json!({}));
    assert_ne!(about["isError"], true, "{about}");
    let refused = client.invoke("refused::rung.about", &json!({}));
    let refused = tool_error(&refused);
    assert_eq!(refused["code"], "source_unauthorized", "{refused}");
    assert!(!refused.to_string().contains(&token), "{refused}");
    let hint = refused["hint"].as_str().unwrap();
    assert!(
        hint.contains("`headers`") && hint.contains("~/.config/pmcp/pmcp.env"),
        "{refused}"
    );
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
        reply_data(&health)["servers"][0]["auth_state"],
        "missing_auth",
        "{health}"
    );
    assert_eq!(
        &reply_data(&health)["servers"][0]["auth_challenge"],
        challenge,
        "{health}"
    );
}

#[test]
fn what_a_file_says_of_signing_in_is_told_with_what_is_wanted() {
    let street = GatewayFixture::new();
    let mut house = street.echo_server("house");
    house["env"]["KEY"] = "${NOT_SET_ANYWHERE}".into();
    house["protected_resource_metadata_url"] = "https://house.example/.well-known/x".into();
    house["declared_scopes"] = json!(["rooms.read"]);
    house["supports_url_elicitation"] = true.into();
    let mut odd = street.echo_server("odd");
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
    assert_eq!(tool_error(&refused)["details"]["auth"], told, "{refused}");
    let wanted = "set NOT_SET_ANYWHERE in ~/.config/pmcp/pmcp.env";
    let hint = tool_error(&refused)["hint"].as_str().unwrap();
    assert!(hint.contains(wanted), "{refused}");
    let health = client.call("gateway.health", &json!({"server": "house"}));
    let row = &reply_data(&health)["servers"][0];
    assert_eq!(row["next_step"], wanted, "{health}");
    for (name, expected) in told.as_object().unwrap() {
        assert_eq!(&row[name], expected, "{health}");
    }
    assert_eq!(row["startup_env_var"], "NOT_SET_ANYWHERE", "{health}");
    let health = client.call("gateway.health", &json!({}));
    let problems = reply_data(&health)["problems"].to_string();
    assert!(problems.contains("oidc_issuer_url"), "{health}");
    assert!(!problems.contains("secret"), "{health}");
    // An edit of the auth metadata alone is applied without restarting the server.
    let mut house = street.echo_server("house");
    street.configure(&json!({"house": house}));
    wait_until("the edit is taken up", || {
        let counted = client.invoke("house::count", &json!({}));
        (counted["isError"] != true).then_some(())
    });
    house["declared_scopes"] = json!(["rooms.write"]);
    street.configure(&json!({"house": house}));
    client.call("gateway.refresh", &json!({}));
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 2, "{counted}");
}

#[test]
fn a_sign_in_page_is_named_to_its_caller_alone() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let refused = client.invoke("house::visit", &json!({}));
    let refused = tool_error(&refused);
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
    let street = GatewayFixture::new();
    let mut command = street.sandbox.command();
    command.arg("mcp").stderr(Pipe::null());
    let mut client = GatewayClient::open(StdioClient::spawn(&mut command), &json!({}));
    let tools = |client: &mut GatewayClient| {
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
    assert!(
        !told(&client.initialize_reply),
        "{}",
        client.initialize_reply
    );
    let called = client.request("tools/call", &json!({"name": "gateway.health"}));
    assert_eq!(called["error"]["data"]["code"], "unknown_tool", "{called}");
    let listed = client.request("resources/list", &json!({}));
    assert!(!listed.to_string().contains("guidance"), "{listed}");
    let token = street.create_token("guest");
    let server = ServerProcess::start(&street.sandbox, &["--dev"]);
    let greeting = |token: Option<&str>| {
        let begin = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let mut begin = crate::http::legacy_request(1, "initialize", begin);
        if let Some(token) = token {
            begin = begin.bearer(token);
        }
        crate::gateway::reply_message(&server.fetch(begin), 1)
    };
    assert!(!told(&greeting(Some(&token))));
    write_servers(
        &street,
        ".mcp.json",
        &json!({"house": street.echo_server("house")}),
    );
    let changed = |message: &Value| message["method"] == "notifications/tools/list_changed";
    client.wait_for_message(changed);
    assert_eq!(tools(&mut client), 14);
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 1, "{counted}");
    wait_until("the server over HTTP knows it, too", || {
        told(&greeting(Some(&token))).then_some(())
    });
    assert!(!told(&greeting(None)), "who calls none is not told of them");
    // When the last server is removed, its tools disappear.
    write_servers(&street, ".mcp.json", &json!({}));
    client.wait_for_message(changed);
    assert_eq!(tools(&mut client), 0);
}

#[test]
fn what_is_given_counts_before_the_project_and_that_before_the_user() {
    let street = GatewayFixture::new();
    write_servers(
        &street,
        "servers.json",
        &json!({"house": echo_server_with_word(&street, "given")}),
    );
    write_servers(
        &street,
        "project/.mcp.json",
        &json!({"house": echo_server_with_word(&street, "project")}),
    );
    write_servers(
        &street,
        ".mcp.json",
        &json!({"house": echo_server_with_word(&street, "user"), "only": echo_server_with_word(&street, "users")}),
    );
    let given = street.config_file();
    let mut first = start_client(
        &street,
        &["--config", given.to_str().unwrap(), "--trust-project"],
    );
    assert_eq!(read_variable(&mut first, "WORD"), "given");
    let all = first.call("gateway.health", &json!({"all": true}));
    assert!(reply_data(&all).to_string().contains("\"only\""), "{all}");
    let mut second = start_client(&street, &["--trust-project"]);
    assert_eq!(read_variable(&mut second, "WORD"), "project");
    std::fs::remove_file(street.sandbox.home().join("project/.mcp.json")).unwrap();
    let mut third = start_client(&street, &[]);
    assert_eq!(read_variable(&mut third, "WORD"), "user");
}

#[test]
fn a_project_starts_nothing_before_it_is_approved() {
    let street = GatewayFixture::new();
    write_servers(
        &street,
        "project/.mcp.json",
        &json!({"house": echo_server_with_word(&street, "first")}),
    );
    let mut client = start_client(&street, &[]);
    for (tool, arguments) in [
        ("gateway.catalog_search", json!({"query": "count"})),
        ("gateway.health", json!({})),
    ] {
        let told = client.call(tool, &arguments);
        let hint = &reply_data(&told)["hint"];
        let hint = hint.as_str().unwrap_or_default();
        assert!(
            hint.contains("rung gateway trust") && hint.contains("house"),
            "{tool}: {told}"
        );
        assert!(reply_data(&told).to_string().len() < 1_024);
    }
    for (tool, arguments) in [
        ("gateway.invoke", json!({"tool_id": "house::count"})),
        ("gateway.connect_server", json!({"server_name": "house"})),
        ("gateway.restart_server", json!({"server_name": "house"})),
    ] {
        let withheld = client.call(tool, &arguments);
        let withheld = tool_error(&withheld);
        assert_eq!(withheld["code"], "source_unavailable", "{tool}: {withheld}");
        assert!(
            withheld["hint"]
                .as_str()
                .unwrap()
                .contains("rung gateway trust house"),
            "{tool}: {withheld}"
        );
    }
    assert_eq!(street.start_count("house"), 0);
    let listed = street.sandbox.run_ok(&["gateway", "trust", "--list"]);
    assert!(listed.contains("house\twaits"), "{listed}");
    street
        .sandbox
        .run_ok(&["gateway", "trust", "house", "--yes"]);
    wait_until("the approval is taken up", || {
        (read_variable(&mut client, "WORD") == "first").then_some(())
    });
    let starts = street.start_count("house");
    // An edit waits for approval, and the approved entry stays in use.
    write_servers(
        &street,
        "project/.mcp.json",
        &json!({"house": echo_server_with_word(&street, "second"), "new": street.echo_server("new")}),
    );
    wait_until("it is told that the edit waits", || {
        let health = client.call("gateway.health", &json!({"server": "house"}));
        health
            .to_string()
            .contains("an edit waits for approval")
            .then_some(())
    });
    assert_eq!(read_variable(&mut client, "WORD"), "first");
    assert_eq!(
        street.start_count("house"),
        starts,
        "it is the one that it was"
    );
    assert_eq!(
        tool_error(&client.invoke("new::count", &json!({})))["code"],
        "source_unavailable"
    );
    street.sandbox.run_ok(&["gateway", "trust", "--yes"]);
    wait_until("the edit is taken up", || {
        (read_variable(&mut client, "WORD") == "second").then_some(())
    });
    street
        .sandbox
        .run_ok(&["gateway", "trust", "--revoke", "house"]);
    wait_until("it is taken back", || {
        let called = client.invoke("house::count", &json!({}));
        (called["isError"] == true).then_some(())
    });
}

#[test]
fn servers_of_the_settings_are_there_as_well() {
    let street = GatewayFixture::new();
    let words = json!([crate::gateway::faulty_server(), "house"]);
    street.sandbox.write(
        ".config/rung/config.toml",
        format!("[sources.house]\ncommand = {words}\n"),
    );
    let mut client = start_client(&street, &[]);
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 1, "{counted}");
}

#[test]
fn values_of_the_project_and_of_the_user_fill_in_what_is_not_exported() {
    let street = GatewayFixture::new();
    let mut house = street.echo_server("house");
    for (name, variable) in [("A", "${A}"), ("B", "${B}"), ("C", "${C}"), ("D", "${D}")] {
        house["env"][name] = variable.into();
    }
    house["env"]["API_TOKEN"] = "${API_TOKEN}".into();
    write_servers(&street, "project/.mcp.json", &json!({"house": house}));
    let user = "A=user\nB=user\nexport C='of the user' # said so\n";
    street.sandbox.write(".config/pmcp/pmcp.env", user);
    let project = "A=project\nB=project\nAPI_TOKEN=hunter2-hunter2\n";
    street.sandbox.write("project/.env.pmcp", project);
    let trust = || {
        let mut command = gateway_command(&street, &["trust", "--yes"]);
        let ran = crate::sandbox::run(command.env("A", "exported"));
        assert_eq!(ran.status, 0, "{ran:?}");
    };
    trust();
    let mut command = gateway_command(&street, &[]);
    command.env("A", "exported");
    let mut client = GatewayClient::open(StdioClient::spawn(&mut command), &json!({}));
    // A variable that no file sets is named in the error, and the server is not started.
    let unset = client.invoke("house::count", &json!({}));
    let unset = tool_error(&unset);
    assert_eq!(unset["code"], "source_unauthorized", "{unset}");
    assert!(unset["message"].as_str().unwrap().contains('D'), "{unset}");
    street
        .sandbox
        .write("project/.env.pmcp", format!("{project}D=late\n"));
    trust();
    wait_until("the edit is taken up", || {
        (read_variable(&mut client, "D") == "late").then_some(())
    });
    assert_eq!(read_variable(&mut client, "A"), "exported");
    assert_eq!(read_variable(&mut client, "B"), "project");
    assert_eq!(read_variable(&mut client, "C"), "of the user");
    // A secret is passed to the server and masked in its output.
    let secret = read_variable(&mut client, "API_TOKEN");
    assert!(
        !secret.is_empty() && !secret.contains("hunter2"),
        "{secret}"
    );
}

/// The author of a checkout must not be able to redirect the user's own servers or the values they get.
#[test]
fn values_of_the_project_do_not_say_what_the_users_servers_are() {
    let street = GatewayFixture::new();
    let mut house = street.echo_server("house");
    house["command"] = "${PROGRAM}".into();
    write_servers(&street, ".mcp.json", &json!({"house": house}));
    street.sandbox.write("project/.mcp.json", "{}");
    let line = format!("PROGRAM={}\n", crate::gateway::faulty_server().display());
    street.sandbox.write("project/.env.pmcp", &line);
    let mut client = start_client(&street, &[]);
    let unset = client.invoke("house::count", &json!({}));
    assert_eq!(tool_error(&unset)["code"], "source_unauthorized", "{unset}");
    assert!(
        tool_error(&unset).to_string().contains("PROGRAM"),
        "{unset}"
    );
    assert_eq!(street.start_count("house"), 0);
    // The same value from the user is applied.
    street.sandbox.write(".config/pmcp/pmcp.env", &line);
    wait_until("the user's word is taken up", || {
        let counted = client.invoke("house::count", &json!({}));
        (counted["isError"] != true).then_some(())
    });
}

/// The user's server stays in use; the project's server of the same name waits and is reported.
#[test]
fn a_projects_server_of_the_same_name_is_told_to_wait() {
    let street = GatewayFixture::new();
    write_servers(
        &street,
        ".mcp.json",
        &json!({"house": echo_server_with_word(&street, "user")}),
    );
    write_servers(
        &street,
        "project/.mcp.json",
        &json!({"house": echo_server_with_word(&street, "project")}),
    );
    let told = street.sandbox.run(&["gateway", "status"]);
    assert!(
        told.stderr.contains("project/.mcp.json") && told.stderr.contains("trust house"),
        "{told:?}"
    );
    let mut client = start_client(&street, &[]);
    assert_eq!(read_variable(&mut client, "WORD"), "user");
    let health = client.call("gateway.health", &json!({}));
    let problems = reply_data(&health)["problems"].to_string();
    assert!(problems.contains("waits for approval"), "{health}");
    street
        .sandbox
        .run_ok(&["gateway", "trust", "house", "--yes"]);
    wait_until("the approval is taken up", || {
        (read_variable(&mut client, "WORD") == "project").then_some(())
    });
}

/// Equal entries in two projects do not share catalog data.
#[test]
fn what_one_project_was_seen_to_have_is_not_told_of_another() {
    let street = GatewayFixture::new();
    for project in ["a", "b"] {
        let file = json!({"mcpServers": {"local": {"command": "/bin/sh", "args": ["run.sh"]}}});
        let place = |name: &str| format!("{project}/{name}");
        street.sandbox.write(&place(".mcp.json"), file.to_string());
        let house = crate::gateway::faulty_server();
        let script = format!("exec {} house\n", house.display());
        street.sandbox.write(&place("run.sh"), script);
    }
    let at = |project: &str, flags: &[&str]| {
        let mut command = gateway_command(&street, flags);
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
    let mut client = GatewayClient::open(StdioClient::spawn(&mut at("a", &[])), &json!({}));
    client.call("gateway.connect_server", &json!({"server_name": "local"}));
    assert!(tools("a").is_u64());
    assert_eq!(tools("b"), Value::Null);
}

/// A variable that a server's entry uses is named where the server refuses its value.
#[test]
fn a_refused_credential_is_named_with_its_file() {
    let street = GatewayFixture::new();
    let elsewhere = crate::sandbox::Sandbox::new();
    let server = ServerProcess::start(&elsewhere, &[]);
    elsewhere.run_ok(&["token", "new", "guest", "--write"]);
    let url = format!("http://{}/mcp", server.address);
    street.configure(&json!({
        "refused": {"url": url, "headers": {"Authorization": "Bearer ${REFUSED_TOKEN}"}},
    }));
    let values = "REFUSED_TOKEN=not-the-right-token-1\n";
    street.sandbox.write(".config/pmcp/pmcp.env", values);
    let mut client = street.client(&[]);
    let refused = client.invoke("refused::rung.about", &json!({}));
    let hint = tool_error(&refused)["hint"].as_str().unwrap();
    assert!(
        hint.contains("REFUSED_TOKEN in ~/.config/pmcp/pmcp.env"),
        "{refused}"
    );
    assert!(!refused.to_string().contains("not-the-right-token-1"));
}

#[test]
fn an_unapproved_rung_toml_is_approved_with_config_trust() {
    let sandbox = crate::sandbox::Sandbox::new();
    sandbox.write(
        "project/rung.toml",
        "[sources.far]\nurl = \"https://far.example/mcp\"\n",
    );
    let status = sandbox.run_ok(&["gateway", "status"]);
    assert!(status.contains("rung config trust"), "{status}");
    assert!(!status.contains("rung gateway trust"), "{status}");
    let mut command = sandbox.command();
    command.args(["gateway"]).env("RUNG_LOG", "off");
    let mut client = GatewayClient::open(StdioClient::spawn(&mut command), &json!({}));
    let refused = client.invoke("far::x", &json!({}));
    let health = client.call("gateway.health", &json!({}));
    let health = &reply_data(&health);
    assert_eq!(health["servers"][0]["next_step"], "rung config trust");
    for told in [&refused, health] {
        assert!(told.to_string().contains("rung config trust"), "{told}");
        assert!(!told.to_string().contains("rung gateway trust"), "{told}");
    }
}

#[test]
fn an_empty_variable_names_no_file() {
    let sandbox = crate::sandbox::Sandbox::new();
    let mut command = sandbox.command();
    command
        .args(["gateway", "status"])
        .env("PMCP_CONFIG", "")
        .env("PMCP_POLICY", "");
    let ran = crate::sandbox::run(&mut command);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{ran:?}");
}

//! Access policy: a hidden tool or server cannot be listed, found, described, called, started or read, and an edit of the
//! policy is applied or refused without a restart.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::call_and_inspect::is_alive;
use crate::gateway::{
    GatewayClient, GatewayFixture, first_text, reply_data, result_handle, tool_error, wait_until,
};

const DENY_POLICY: &str = "\
servers: {denylist: [secret]}
tools: {denylist: ['house::env', 'house::b*']}
resources: {denylist: ['house::*']}
prompts: {denylist: ['house::*']}
";

/// A fixture, and a policy that hides one server wholly and another in part.
fn policy_fixture() -> (GatewayFixture, String) {
    let street = GatewayFixture::new();
    street.configure(
        &json!({"house": street.echo_server("house"), "secret": street.echo_server("secret")}),
    );
    let file = street.sandbox.write("policy.yaml", DENY_POLICY);
    let file = file.to_str().unwrap().to_owned();
    (street, file)
}

fn connect_server(client: &mut GatewayClient, server: &str) -> Value {
    client.call("gateway.connect_server", &json!({"server_name": server}))
}

fn find_tool_ids(client: &mut GatewayClient, query: &str) -> Vec<String> {
    let found = client.call(
        "gateway.catalog_search",
        &json!({"query": query, "limit": 100}),
    );
    let results = reply_data(&found)["results"].as_array().unwrap().clone();
    let ids = results
        .iter()
        .map(|card| card["tool_id"].as_str().unwrap().to_owned());
    ids.collect()
}

/// A denied tool is absent. A denied server is named with its reason to the local process, and cannot be used.
#[test]
fn what_is_denied_is_used_in_no_way() {
    let (street, policy) = policy_fixture();
    // The servers are in the catalog from before the policy.
    let mut before = street.client(&[]);
    for server in ["house", "secret"] {
        assert_ne!(connect_server(&mut before, server)["isError"], true);
    }
    assert_eq!(before.stdio.finish().0, 0);
    let starts = street.start_count("secret");
    let mut client = street.client(&["--policy", &policy]);
    connect_server(&mut client, "house");
    let all = find_tool_ids(&mut client, "");
    assert!(all.contains(&"house::count".to_owned()), "{all:?}");
    for hidden in ["house::env", "house::book", "secret::count"] {
        assert!(!all.contains(&hidden.to_owned()), "{hidden}: {all:?}");
    }
    assert!(
        find_tool_ids(&mut client, "hotel room")
            .iter()
            .all(|id| id != "house::book")
    );
    for id in ["house::env", "house::book", "env", "book"] {
        let nothing = format!("house::nothing{}", id.len());
        for tool in ["gateway.describe", "gateway.invoke"] {
            let denied = client.call(tool, &json!({"tool_id": id}));
            let denied = tool_error(&denied);
            let absent = client.call(tool, &json!({"tool_id": nothing}));
            assert_eq!(
                denied["code"],
                tool_error(&absent)["code"],
                "{tool} {id}: {denied}"
            );
            let others = denied.to_string().replace(id, "");
            assert!(
                !others.contains("secret::") && !others.contains("house::env"),
                "{others}"
            );
        }
    }
    for tool in [
        "gateway.connect_server",
        "gateway.disconnect_server",
        "gateway.restart_server",
    ] {
        let denied = client.call(
            tool,
            &json!({"server_name": "secret", "force": true})
                .as_object()
                .map(|all| {
                    let mut all = all.clone();
                    if tool == "gateway.connect_server" {
                        all.remove("force");
                    }
                    Value::from(all)
                })
                .unwrap(),
        );
        assert_denied(&denied);
    }
    for (tool, arguments) in [
        ("gateway.describe", json!({"tool_id": "secret::count"})),
        ("gateway.invoke", json!({"tool_id": "secret::count"})),
        (
            "gateway.catalog_search",
            json!({"filters": {"server": "secret"}}),
        ),
        ("gateway.list_pending", json!({"server": "secret"})),
        ("gateway.tasks_list", json!({"server_name": "secret"})),
    ] {
        assert_denied(&client.call(tool, &arguments));
    }
    let health = client.call("gateway.health", &json!({"server": "secret"}));
    let row = &reply_data(&health)["servers"][0];
    assert_eq!(
        (&row["status"], &row["auth_state"]),
        (&json!("withheld"), &json!("policy_denied")),
        "{health}"
    );
    assert!(row.get("tool_count").is_none(), "{health}");
    let refreshed = client.call("gateway.refresh", &json!({}));
    let refreshed = &reply_data(&refreshed);
    assert_eq!(refreshed["servers_seen"], 1, "{refreshed}");
    assert_eq!(refreshed["tools_indexed"], all.len(), "{refreshed}");
    let resources = client.request("resources/list", &json!({}));
    assert!(!resources.to_string().contains("house:note"), "{resources}");
    let prompts = client.request("prompts/list", &json!({}));
    assert!(!prompts.to_string().contains("greet"), "{prompts}");
    for uri in ["house:note", "house:room/1"] {
        let read = client.request("resources/read", &json!({"uri": uri}));
        assert!(read.get("error").is_some(), "{uri}: {read}");
    }
    for name in ["house::greet", "secret::greet", "greet"] {
        let got = client.request("prompts/get", &json!({"name": name}));
        assert!(got.get("error").is_some(), "{name}: {got}");
    }
    assert_eq!(street.start_count("secret"), starts, "nobody started it");
    assert_eq!(
        (
            street.trace_count("house", "env"),
            street.trace_count("house", "read")
        ),
        (0, 0)
    );
}

fn assert_denied(reply: &Value) {
    let denied = tool_error(reply);
    assert_eq!(denied["code"], "source_unavailable", "{denied}");
    let message = denied["message"].as_str().unwrap();
    assert!(
        message.contains("secret") && message.contains("policy denies it"),
        "{denied}"
    );
}

#[test]
fn gateway_why_explains_access_to_the_operator() {
    let (street, policy) = policy_fixture();
    let config = street.config_file();
    let config = config.to_str().unwrap();
    let why = |id: &str| {
        street.sandbox.run_ok(&[
            "gateway", "why", id, "--config", config, "--policy", &policy,
        ])
    };
    assert!(
        why("house::book").contains("denied by") && why("house::book").contains("house::b*"),
        "{}",
        why("house::book")
    );
    assert!(
        why("secret::count").contains("denied by"),
        "{}",
        why("secret::count")
    );
    assert!(
        why("house::count").contains("allowed"),
        "{}",
        why("house::count")
    );
    let told = street.sandbox.run_ok(&[
        "gateway",
        "why",
        "house::book",
        "--config",
        config,
        "--policy",
        &policy,
        "--json",
    ]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["allowed"], false, "{told}");
}

/// A tool or server that any rule hides is never reported as allowed.
#[test]
fn gateway_why_covers_everything_a_policy_hides() {
    let street = GatewayFixture::with_echo_server();
    let policy = "\
gateway_tools: {denylist: [gateway.refresh]}
resources: {denylist: ['house::house:n*']}
prompts: {denylist: ['house::g*']}
limits: {max_tools_per_server: 1}
";
    let policy = street.sandbox.write("policy.yaml", policy);
    let flags = ["--policy", policy.to_str().unwrap()];
    let mut client = street.client(&flags);
    connect_server(&mut client, "house");
    let shown = find_tool_ids(&mut client, "");
    let [shown] = shown.as_slice() else {
        panic!("{shown:?}")
    };
    let hidden = ["house::count", "house::say"];
    let hidden = hidden.into_iter().find(|id| id != shown).unwrap();
    let reader = street.sandbox.run_ok(&["token", "new", "reader"]);
    assert!(!reader.is_empty());
    let config = street.config_file();
    let config = ["--config", config.to_str().unwrap(), "--json"];
    let why = |asked: &[&str]| {
        let all = [&["gateway", "why"][..], asked, &flags, &config].concat();
        let told: Value = serde_json::from_str(&street.sandbox.run_ok(&all)).unwrap();
        (
            told["allowed"].as_bool().unwrap(),
            told["why"].as_str().unwrap().to_owned(),
        )
    };
    for (asked, allowed, reason) in [
        (&["gateway.refresh"][..], false, "gateway_tools.denylist"),
        (&["gateway.invoke"], true, ""),
        (&["gateway.invoke", "--token", "reader"], false, ""),
        (&[hidden], false, "max_tools_per_server"),
        (&[shown], true, ""),
        (&["house::house:note", "--resource"], false, "resources"),
        (&["house::house:room/1", "--resource"], true, ""),
        (&["house::greet", "--prompt"], false, "prompts.denylist"),
        (&["house"], true, ""),
    ] {
        let told = why(asked);
        assert_eq!(told.0, allowed, "{asked:?}: {}", told.1);
        assert!(told.1.contains(reason), "{asked:?}: {}", told.1);
    }
}

#[test]
fn an_edited_policy_is_taken_up_and_a_broken_one_is_refused() {
    let street = GatewayFixture::with_echo_server();
    let file = street
        .sandbox
        .write("policy.yaml", "tools: {denylist: ['house::env']}");
    let mut client = street.client(&["--policy", file.to_str().unwrap()]);
    connect_server(&mut client, "house");
    assert!(!find_tool_ids(&mut client, "").contains(&"house::env".to_owned()));
    street
        .sandbox
        .write("policy.yaml", "tools: {denylist: ['house::say']}");
    wait_until("the edit is taken up", || {
        let all = find_tool_ids(&mut client, "");
        (all.contains(&"house::env".to_owned()) && !all.contains(&"house::say".to_owned()))
            .then_some(())
    });
    for broken in ["tools: {denylst: [a]}", "tools: [", ""] {
        street.sandbox.write("policy.yaml", broken);
        let problem = wait_until("it is told that the edit is refused", || {
            let health = client.call("gateway.health", &json!({}));
            let problems = reply_data(&health)["problems"].to_string();
            problems
                .contains("the previous policy applies")
                .then_some(problems)
        });
        assert!(problem.contains("policy.yaml"), "{problem}");
        assert!(!find_tool_ids(&mut client, "").contains(&"house::say".to_owned()));
        let denied = client.invoke("house::say", &json!({}));
        assert_eq!(tool_error(&denied)["code"], "unknown_tool");
    }
    street.sandbox.write("policy.yaml", "{}");
    wait_until("the mended one is taken up", || {
        find_tool_ids(&mut client, "")
            .contains(&"house::say".to_owned())
            .then_some(())
    });
    let health = client.call("gateway.health", &json!({}));
    assert_eq!(reply_data(&health)["problems"], Value::Null, "{health}");
    assert_eq!(
        street.start_count("house"),
        1,
        "nothing was started anew for it"
    );
}

#[test]
fn a_broken_policy_keeps_the_gateway_from_starting() {
    let street = GatewayFixture::with_echo_server();
    let file = street.sandbox.write("policy.yaml", "tools: {denylst: [a]}");
    let ran = crate::sandbox::run(
        street
            .command(&["--policy", file.to_str().unwrap()])
            .stderr(std::process::Stdio::piped()),
    );
    assert_ne!(ran.status, 0);
    assert!(ran.stderr.contains("denylist"), "{}", ran.stderr);
}

#[test]
fn an_edited_configuration_is_taken_up_server_by_server() {
    let street = GatewayFixture::new();
    street.configure(
        &json!({"house": street.echo_server("house"), "old": street.echo_server("old")}),
    );
    let mut client = street.client(&[]);
    client.invoke("house::count", &json!({}));
    client.invoke("old::count", &json!({}));
    let waiting = client.send_invoke("old::wait", &json!({}));
    street.wait_for_trace("old", "wait", 1);
    street.configure(
        &json!({"house": street.echo_server("house"), "new": street.echo_server("new")}),
    );
    wait_until("the new server is there", || {
        let all = client.call("gateway.health", &json!({"all": true}));
        reply_data(&all)
            .to_string()
            .contains("\"new\"")
            .then_some(())
    });
    let gone = client.invoke("old::count", &json!({}));
    assert_eq!(tool_error(&gone)["code"], "unknown_tool", "{gone}");
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(
        reply_data(&counted)["result"]["count"],
        2,
        "it is the same one"
    );
    assert_eq!(
        first_text(&client.invoke("new::release", &json!({}))),
        "all are released"
    );
    // The active call there continues until it is cancelled.
    let listed = client.call("gateway.list_pending", &json!({}));
    let [request] = crate::gateway::pending_request_ids(&listed)
        .try_into()
        .unwrap();
    let request: String = request;
    client.call(
        "gateway.cancel",
        &json!({"request_id": request, "force": true}),
    );
    let ended = client.wait_for_reply(waiting);
    assert_eq!(tool_error(&ended["result"])["code"], "call_cancelled");
    // An invalid file changes nothing.
    street.sandbox.write("servers.json", "{\"mcpServers\": {");
    wait_until("it is told that the file is broken", || {
        let health = client.call("gateway.health", &json!({}));
        reply_data(&health)["problems"]
            .to_string()
            .contains("servers.json")
            .then_some(())
    });
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 3);
}

/// The start mode is not part of a server's identity.
#[test]
fn a_server_that_is_to_start_by_itself_from_now_on_does_and_one_that_runs_goes_on() {
    let street = GatewayFixture::new();
    let servers =
        json!({"house": street.echo_server("house"), "other": street.echo_server("other")});
    let write = |start: Value| {
        let file = json!({"mcpServers": servers, "autoStart": start});
        street.sandbox.write("servers.json", file.to_string());
    };
    write(json!([]));
    let mut client = street.client(&[]);
    client.invoke("house::count", &json!({}));
    write(json!(["house", "other"]));
    street.wait_for_trace("other", "notifications/initialized", 1);
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 2);
    let mut start = |server: &str| {
        let health = client.call("gateway.health", &json!({"server": server}));
        reply_data(&health)["servers"][0]["startup_policy"].clone()
    };
    assert_eq!(
        (start("house"), start("other")),
        (json!("eager"), json!("eager"))
    );
    write(json!(["other"]));
    wait_until("it is told", || (start("house") == "lazy").then_some(()));
    assert_eq!(
        (street.start_count("house"), street.start_count("other")),
        (1, 1)
    );
}

#[test]
fn secrets_are_masked_before_anything_is_cut() {
    let street = GatewayFixture::with_echo_server();
    let file = street.sandbox.write(
        "policy.yaml",
        "redaction: {patterns: ['key-[0-9]+']}\nlimits: {max_output_bytes: 4000}",
    );
    let mut client = street.client(&["--policy", file.to_str().unwrap()]);
    let said = client.invoke("house::say", &json!({"text": "a key-123456 here"}));
    assert_eq!(first_text(&said), "a [REDACTED] here", "{said}");
    // No part of a secret survives, wherever the text is cut.
    let long = "key-9999999999999999999999 ".repeat(4_000);
    let said = client.invoke("house::say", &json!({"text": long}));
    assert!(!said.to_string().contains("key-"), "{said}");
    let kept = String::from_utf8(street.sandbox.export_result(result_handle(&said))).unwrap();
    assert!(
        kept.contains("[REDACTED]") && !kept.contains("key-9"),
        "what is kept is masked, too"
    );
    let said = client.call("gateway.invoke", &json!({"tool_id": "house::say", "arguments": {"text": "token ghp_0123456789abcdefghijABCDEFGHIJ012345"}, "options": {"redact_secrets": true}}));
    assert!(!said.to_string().contains("ghp_0123"), "{said}");
}

#[test]
fn values_of_the_configuration_never_come_back() {
    let street = GatewayFixture::new();
    let mut house = street.echo_server("house");
    house["env"]["API_TOKEN"] = "hunter2-hunter2".into();
    house["env"]["FROM_OUTSIDE_KEY"] = "${OUTSIDE}".into();
    street.configure(&json!({
        "house": house,
        "away": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer tr0ub4dor-and-3"}},
    }));
    let mut command = street.command(&[]);
    command.env("OUTSIDE", "correct-horse-battery");
    let mut client =
        GatewayClient::open(crate::stdio::StdioClient::spawn(&mut command), &json!({}));
    let mut said = String::new();
    for name in ["API_TOKEN", "FROM_OUTSIDE_KEY"] {
        let told = client.invoke("house::env", &json!({"name": name}));
        assert_eq!(first_text(&told), "[REDACTED]", "{told}");
        said += &told.to_string();
    }
    said += &client.invoke("away::a", &json!({})).to_string();
    for (tool, arguments) in [
        ("gateway.health", json!({"all": true})),
        ("gateway.health", json!({"server": "away"})),
        ("gateway.health", json!({"server": "house"})),
        ("gateway.refresh", json!({})),
        ("gateway.connect_server", json!({"server_name": "away"})),
    ] {
        said += &client.call(tool, &arguments).to_string();
    }
    let config = street.config_file();
    said += &street.sandbox.run_ok(&[
        "gateway",
        "status",
        "--json",
        "--config",
        config.to_str().unwrap(),
    ]);
    for secret in ["hunter2", "correct-horse", "tr0ub4dor"] {
        assert!(!said.contains(secret), "{secret}: {said}");
    }
}

#[test]
fn an_allowlist_lets_nothing_else_through() {
    let street = GatewayFixture::new();
    street.configure(
        &json!({"house": street.echo_server("house"), "other": street.echo_server("other")}),
    );
    let policy = "servers: {allowlist: [house]}\ntools: {allowlist: ['house::c*', 'house::say'], denylist: ['*::say']}\n";
    let file = street.sandbox.write("policy.yaml", policy);
    let mut client = street.client(&["--policy", file.to_str().unwrap()]);
    connect_server(&mut client, "house");
    assert_eq!(find_tool_ids(&mut client, ""), ["house::count"]);
    for (id, code) in [
        ("house::say", "unknown_tool"),
        ("house::env", "unknown_tool"),
        ("other::count", "source_unavailable"),
    ] {
        let denied = client.invoke(id, &json!({}));
        assert_eq!(tool_error(&denied)["code"], code, "{id}: {denied}");
    }
    assert_eq!(street.start_count("other"), 0);
}

#[test]
fn a_policy_takes_tools_of_the_gateway_itself_away() {
    let street = GatewayFixture::with_echo_server();
    let policy = "gateway_tools: {denylist: ['gateway.re*']}";
    let file = street.sandbox.write("policy.yaml", policy);
    let mut client = street.client(&["--policy", file.to_str().unwrap()]);
    let listed = client.request("tools/list", &json!({}));
    assert!(!listed.to_string().contains("\"gateway.re"), "{listed}");
    let params = json!({"name": "gateway.restart_server", "arguments": {"server_name": "house"}});
    let denied = client.request("tools/call", &params);
    let nothing = client.request("tools/call", &json!({"name": "gateway.nothing"}));
    assert_eq!(
        denied["error"]["code"], nothing["error"]["code"],
        "{denied}"
    );
    assert_eq!(street.start_count("house"), 0);
}

/// A denied server is neither started nor kept running.
#[test]
fn what_is_denied_does_not_run() {
    let street = GatewayFixture::new();
    let servers =
        json!({"house": street.echo_server("house"), "secret": street.echo_server("secret")});
    let file = json!({"mcpServers": servers, "autoStart": ["house", "secret"]});
    street.sandbox.write("servers.json", file.to_string());
    let policy = street
        .sandbox
        .write("policy.yaml", "servers: {denylist: [secret]}");
    let policy = policy.to_str().unwrap();
    let _client = street.client(&["--policy", policy]);
    street.wait_for_trace("house", "notifications/initialized", 1);
    let config = street.config_file();
    let config = config.to_str().unwrap();
    let files = ["--config", config, "--policy", policy];
    let told = street
        .sandbox
        .run_ok(&[&["gateway", "status"][..], &files].concat());
    assert!(told.contains("servers.denylist"), "{told}");
    let told = street
        .sandbox
        .run_ok(&[&["gateway", "status", "--json"][..], &files].concat());
    assert!(told.contains("\"policy_denied\""), "{told}");
    assert_eq!(street.start_count("secret"), 0);
    // The policy changes: this server may start now, and the other must end.
    let running = process_dir(&street, "house");
    street
        .sandbox
        .write("policy.yaml", "servers: {denylist: [house]}");
    street.wait_for_trace("secret", "notifications/initialized", 1);
    wait_until("the one that is denied now has ended", || {
        (!is_alive(&running)).then_some(())
    });
    street.sandbox.write("policy.yaml", "{}");
    street.wait_for_trace("house", "notifications/initialized", 2);
    assert_eq!(
        (street.start_count("house"), street.start_count("secret")),
        (2, 1)
    );
}

/// The `/proc` folder of the server's process.
fn process_dir(street: &GatewayFixture, name: &str) -> PathBuf {
    let trace = street.trace(name);
    let pid = trace.iter().find_map(|line| line.strip_prefix("started "));
    Path::new("/proc").join(pid.unwrap())
}

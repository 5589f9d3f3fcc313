//! Configured servers that cannot be used: who learns of them, and how much. And names that are nearly right, which never lead
//! to another server.

use serde_json::{Value, json};

use crate::gateway::{
    GatewayClient, GatewayFixture, LegacyHttpSession, reply_data, tool_error, with_role,
};

const GRANT: &str = "\
[[servers]]
name = \"house\"

[[servers]]
name = \"broken\"

[[servers]]
name = \"off\"

[[servers]]
name = \"denied\"
";

/// Servers that cannot be used, each with a part of its reason.
const UNUSABLE: [(&str, &str); 3] = [
    ("broken", "neither a command nor a url"),
    ("off", "disabled"),
    ("denied", "policy"),
];

/// One working server and one of every unusable kind, and three tokens: one granted all of them while they worked, one granted
/// only the first, and one without a grant.
struct UnavailableServers {
    gateway: GatewayFixture,
    policy: String,
    granted: String,
    narrow: String,
    plain: String,
}

impl UnavailableServers {
    fn new() -> Self {
        let gateway = GatewayFixture::new();
        let house = |name: &str| gateway.echo_server(name);
        gateway.configure(&json!({
            "house": house("house"), "broken": house("broken"), "off": house("off"), "denied": house("denied"),
        }));
        let token = |name: &str, grant: &str| {
            let file = gateway.sandbox.write(&format!("{name}.toml"), grant);
            let mut command = gateway.sandbox.command();
            command
                .args(["token", "new", name, "--grant"])
                .arg(file)
                .env("PMCP_CONFIG", gateway.config_file());
            let ran = crate::sandbox::run(&mut command);
            assert_eq!(ran.status, 0, "{ran:?}");
            ran.stdout.trim().to_owned()
        };
        let granted = token("granted", GRANT);
        let narrow = token("narrow", "[[servers]]\nname = \"house\"\n");
        let plain = gateway.create_token("plain");
        let mut off = house("off");
        off["disabled"] = true.into();
        gateway.configure(&json!({
            "house": house("house"), "broken": {"args": []}, "off": off, "denied": house("denied"),
        }));
        let policy = gateway
            .sandbox
            .write("policy.yaml", "servers: {denylist: [denied]}");
        let policy = policy.to_str().unwrap().to_owned();
        Self {
            gateway,
            policy,
            granted,
            narrow,
            plain,
        }
    }
}

/// A server with an invalid URL stays listed: its callers learn the reason, only the local process the file.
#[test]
fn the_file_of_a_server_that_cannot_be_reached_is_for_the_local_process() {
    let place = UnavailableServers::new();
    let street = &place.gateway;
    street
        .configure(&json!({"house": street.echo_server("house"), "broken": {"url": "http://a b"}}));
    let mut client = street.client(&[]);
    let refused = client.invoke("broken::count", &json!({}));
    let refused = tool_error(&refused).to_string();
    assert!(
        refused.contains("its url") && refused.contains("servers.json"),
        "{refused}"
    );
    let health = client.call("gateway.health", &json!({"server": "broken"}));
    assert!(health.to_string().contains("servers.json"), "{health}");
    let server = street.http_server(&[]);
    let session = LegacyHttpSession::open(&server, Some(&place.granted));
    let refused = session.invoke("broken::count", &json!({}));
    let refused = tool_error(&refused).to_string();
    assert!(
        refused.contains("its url") && !refused.contains("servers.json"),
        "{refused}"
    );
    for server in ["broken", "house"] {
        let health = session.call("gateway.health", &json!({"server": server}));
        assert_eq!(reply_data(&health)["servers"][0]["name"], server);
        assert!(!health.to_string().contains("servers.json"), "{health}");
    }
}

#[test]
fn files_with_problems_are_named_to_the_local_process_alone() {
    let fixture = UnavailableServers::new();
    let gateway = &fixture.gateway;
    let server = gateway.http_server(&[]);
    let session = LegacyHttpSession::open(&server, Some(&fixture.plain));
    let mut client = gateway.client(&[]);
    // A file that breaks while the gateway runs keeps its last good state.
    gateway.sandbox.write("servers.json", "{\"mcpServers\": {");
    for tool in ["gateway.refresh", "gateway.health"] {
        let reply = session.call(tool, &json!({})).to_string();
        assert!(
            reply.contains("configuration files have problems (1)"),
            "{tool}: {reply}"
        );
        assert!(!reply.contains("servers.json"), "{tool}: {reply}");
    }
    client.call("gateway.refresh", &json!({}));
    let health = client.call("gateway.health", &json!({}));
    assert!(health.to_string().contains("servers.json"), "{health}");
}

/// Every call that names a server, except its health.
fn calls_naming_server(server: &str) -> Vec<(&'static str, Value)> {
    let id = format!("{server}::count");
    vec![
        ("gateway.invoke", json!({"tool_id": id})),
        ("gateway.describe", json!({"tool_id": id})),
        (
            "gateway.catalog_search",
            json!({"filters": {"server": server}}),
        ),
    ]
}

#[test]
fn the_local_process_learns_the_reason_and_the_file() {
    let place = UnavailableServers::new();
    let mut client = place.gateway.client(&["--policy", &place.policy]);
    for (server, reason) in UNUSABLE {
        let file = if server == "denied" {
            "policy.yaml"
        } else {
            "servers.json"
        };
        let mut all = calls_naming_server(server);
        all.push(("gateway.connect_server", json!({"server_name": server})));
        for (tool, arguments) in all {
            let refused = client.call(tool, &arguments);
            let refused = tool_error(&refused);
            assert_eq!(refused["code"], "source_unavailable", "{tool}: {refused}");
            let message = refused["message"].as_str().unwrap();
            for part in [server, reason, file] {
                assert!(message.contains(part), "{tool}: {refused}");
            }
        }
        let health = client.call("gateway.health", &json!({"server": server}));
        let row = &reply_data(&health)["servers"][0];
        assert_eq!(
            (&row["name"], &row["status"]),
            (&json!(server), &json!("withheld")),
            "{health}"
        );
        assert!(row["error"].as_str().unwrap().contains(reason), "{row}");
        assert!(row.to_string().contains(file), "{row}");
    }
    let health = client.call("gateway.health", &json!({}));
    let health = &reply_data(&health);
    assert_eq!(
        health["counts"],
        json!({"lazy": 1, "withheld": 3}),
        "{health}"
    );
    for (server, _) in UNUSABLE {
        assert_eq!(place.gateway.start_count(server), 0, "{server}");
    }
}

#[test]
fn a_caller_whose_grant_names_a_server_learns_the_reason_and_no_file() {
    let place = UnavailableServers::new();
    let server = place.gateway.http_server(&["--policy", &place.policy]);
    let session = LegacyHttpSession::open(&server, Some(&place.granted));
    for (server, reason) in UNUSABLE {
        for (tool, arguments) in calls_naming_server(server) {
            let refused = session.call(tool, &arguments);
            let refused = tool_error(&refused);
            assert_eq!(refused["code"], "source_unavailable", "{tool}: {refused}");
            let message = refused["message"].as_str().unwrap();
            assert!(
                message.contains(server) && message.contains(reason),
                "{tool}: {refused}"
            );
            let told = refused.to_string();
            for file in ["servers.json", "policy.yaml", "/"] {
                assert!(!told.contains(file), "{tool}: {refused}");
            }
        }
        let health = session.call("gateway.health", &json!({"server": server}));
        let row = &reply_data(&health)["servers"][0];
        assert!(row["error"].as_str().unwrap().contains(reason), "{row}");
        assert!(
            !row.to_string().contains(".json") && !row.to_string().contains(".yaml"),
            "{row}"
        );
    }
    let health = session.call("gateway.health", &json!({}));
    let health = reply_data(&health);
    let rows = health["servers"].as_array().unwrap();
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["broken", "denied", "house", "off"], "{health}");
}

#[test]
fn to_every_other_caller_such_a_server_is_absent() {
    let place = UnavailableServers::new();
    let server = place.gateway.http_server(&["--policy", &place.policy]);
    for token in [&place.narrow, &place.plain] {
        let session = LegacyHttpSession::open(&server, Some(token));
        for (server, _) in UNUSABLE {
            let mut all = calls_naming_server(server);
            all.push(("gateway.health", json!({"server": server})));
            for (tool, arguments) in all {
                let nothing = "x".repeat(server.len());
                let other = arguments.to_string().replace(server, &nothing);
                let other: Value = serde_json::from_str(&other).unwrap();
                let refused = session.call(tool, &arguments).to_string();
                let absent = session.call(tool, &other).to_string();
                assert_eq!(refused.replace(server, &nothing), absent, "{tool}");
            }
        }
        for tool in ["gateway.health", "gateway.catalog_search"] {
            let told = session.call(tool, &json!({})).to_string();
            for (server, _) in UNUSABLE {
                // Compared as whole words: one of the names is also the beginning of a status.
                let word = |part: &str| part == server;
                let mut words = told.split(|c: char| !c.is_alphanumeric());
                assert!(!words.any(word), "{tool}: {told}");
            }
        }
    }
}

#[test]
fn a_source_that_the_settings_switch_off_is_named() {
    let street = GatewayFixture::with_echo_server();
    let command = with_role("house")["command"].as_str().unwrap().to_owned();
    let settings = format!("[sources.notes]\ncommand = [{command:?}, \"house\"]\noff = true\n");
    street.sandbox.write(".config/rung/config.toml", settings);
    let mut client = street.client(&[]);
    let refused = client.invoke("notes::count", &json!({}));
    let refused = tool_error(&refused);
    assert_eq!(refused["code"], "source_unavailable", "{refused}");
    let message = refused["message"].as_str().unwrap();
    for part in ["notes", "sources.notes.off", "config.toml"] {
        assert!(message.contains(part), "{refused}");
    }
}

fn call_error_text(client: &mut GatewayClient, tool: &str, arguments: &Value) -> String {
    let refused = client.call(tool, arguments);
    tool_error(&refused).to_string()
}

#[test]
fn a_name_that_is_nearly_right_never_leads_to_another_server() {
    let street = GatewayFixture::new();
    street.configure(&json!({"house": street.echo_server("house"), "odd": with_role("odd")}));
    let mut client = street.client(&[]);
    for server in ["house", "odd"] {
        client.call("gateway.connect_server", &json!({"server_name": server}));
    }
    for tool in ["gateway.invoke", "gateway.describe"] {
        // This tool belongs to another server.
        let told = call_error_text(&mut client, tool, &json!({"tool_id": "odd::cuont"}));
        assert!(!told.contains("house"), "{told}");
        let told = call_error_text(&mut client, tool, &json!({"tool_id": "odd::count"}));
        assert!(!told.contains("house"), "{told}");
        // There is no such server.
        for id in ["huose::count", "hous::cuont"] {
            let told = call_error_text(&mut client, tool, &json!({"tool_id": id}));
            assert!(!told.contains("house::"), "{told}");
            assert!(!told.contains("did you mean"), "{told}");
            assert!(told.contains("gateway.health"), "{told}");
        }
        // Tools of the named server are still suggested.
        let told = call_error_text(&mut client, tool, &json!({"tool_id": "house::cuont"}));
        assert!(told.contains("did you mean `house::count`?"), "{told}");
        let told = call_error_text(&mut client, tool, &json!({"tool_id": "odd::bettr"}));
        assert!(told.contains("did you mean `odd::better`?"), "{told}");
    }
    let told = call_error_text(
        &mut client,
        "gateway.connect_server",
        &json!({"server_name": "huose"}),
    );
    assert!(!told.contains("did you mean"), "{told}");
}

#[test]
fn health_lists_every_server_of_the_caller() {
    let place = UnavailableServers::new();
    let street = &place.gateway;
    street.configure(&json!({"house": street.echo_server("house"), "other": street.echo_server("other"), "dies": with_role("dies")}));
    let mut client = street.client(&[]);
    client.invoke("house::count", &json!({}));
    client.invoke("dies::count", &json!({}));
    let health = client.call("gateway.health", &json!({}));
    let health = reply_data(&health);
    let rows = health["servers"].as_array().unwrap();
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["name"].as_str().unwrap(),
                row["status"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [("dies", "error"), ("house", "online"), ("other", "lazy")],
        "{health}"
    );
    let server = street.http_server(&[]);
    let session = LegacyHttpSession::open(&server, Some(&place.narrow));
    let health = session.call("gateway.health", &json!({}));
    let health = reply_data(&health);
    let rows = health["servers"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{health}");
    assert_eq!(rows[0]["name"], "house", "{health}");
}

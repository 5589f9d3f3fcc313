//! Secrets passed to a server are masked in all of its output.

use serde_json::{Value, json};

use crate::agents::fake_provider::{FakeProvider, write_response};
use crate::gateway::{GatewayClient, GatewayFixture, reply_data, tool_error, with_role};

const SECRETS: [&str; 2] = ["supersecret-98765", "swordfish"];
const MASK: &str = "[REDACTED]";

/// A fixture with a server that repeats its secrets in every text it sends.
fn leaking_fixture(flags: &[&str]) -> (GatewayFixture, GatewayClient) {
    let street = GatewayFixture::new();
    let mut leaks = with_role("leaks");
    leaks["env"] = json!({"MY_TOKEN": SECRETS[0]});
    street.configure(&json!({"leaks": leaks}));
    let patterns = "redaction: {patterns: ['password\"?\\s*[:=]\\s*\"?([^\\s\"]+)']}";
    let file = street.sandbox.write("policy.yaml", patterns);
    let mut all = vec!["--policy", file.to_str().unwrap()];
    all.extend(flags);
    let client = street.client_with_capabilities(&all, &json!({"elicitation": {}}));
    (street, client)
}

/// Asserts that the value has a masked part and no secret.
#[track_caller]
fn assert_masked(what: &str, said: &Value) {
    let text = said.to_string();
    for secret in SECRETS {
        assert!(!text.contains(secret), "{what} tells {secret}: {text}");
    }
    assert!(text.contains(MASK), "{what}: {text}");
}

#[test]
fn no_answer_of_a_tool_tells_a_secret() {
    let (_street, mut client) = leaking_fixture(&[]);
    for (tool, arguments) in [
        ("gateway.invoke", json!({"tool_id": "leaks::tell"})),
        ("gateway.invoke", json!({"tool_id": "leaks::refuse"})),
        ("gateway.invoke", json!({"tool_id": "leaks::lengthy"})),
        ("gateway.health", json!({"server": "leaks"})),
        ("gateway.catalog_search", json!({"query": "ask"})),
        ("gateway.describe", json!({"tool_id": "leaks::ask"})),
        (
            "gateway.describe",
            json!({"tool_id": "leaks::ask", "full": true}),
        ),
        (
            "gateway.invoke",
            json!({"tool_id": "leaks::work", "task": {}}),
        ),
        ("gateway.tasks_list", json!({})),
        (
            "gateway.tasks_get",
            json!({"server_name": "leaks", "task_id": "t1"}),
        ),
        (
            "gateway.tasks_cancel",
            json!({"server_name": "leaks", "task_id": "t1"}),
        ),
    ] {
        let said = client.call(tool, &arguments);
        assert_masked(&format!("{tool} {arguments}"), &said);
    }
    let died = client.invoke("leaks::die", &json!({}));
    assert_eq!(tool_error(&died)["code"], "outcome_unknown", "{died}");
    assert_masked("what it died with", &died);
}

#[test]
fn a_server_that_does_not_start_tells_no_secret() {
    let street = GatewayFixture::new();
    street.configure(&json!({"leaks": {
        "command": "/bin/sh",
        "args": ["-c", "echo my token is $MY_TOKEN >&2; exit 1"],
        "env": {"MY_TOKEN": SECRETS[0]},
    }}));
    let mut client = street.client(&[]);
    let failed = client.invoke("leaks::tell", &json!({}));
    assert_eq!(
        tool_error(&failed)["code"],
        "source_unavailable",
        "{failed}"
    );
    assert_masked("what it failed with", &failed);
    let health = client.call("gateway.health", &json!({"server": "leaks"}));
    assert_masked("its health", &health);
}

#[test]
fn a_server_that_refuses_tells_no_part_of_what_it_was_given() {
    // Repeats its credential after `before` bytes, so that the cut falls at different places.
    let place = FakeProvider::with_responder(|asked, stream| {
        let before = asked.path().trim_matches('/').parse().unwrap_or(0);
        let (before, given) = ("x".repeat(before), &asked.authorization);
        let asks = format!(
            "WWW-Authenticate: Basic realm=\"{before}\"\r\nWWW-Authenticate: Bearer error_description=\"{given} is unknown\"\r\n"
        );
        let body = format!("{before} {given}");
        write_response(stream, 401, "text/plain", &asks, body.as_bytes());
    });
    let street = GatewayFixture::new();
    let lengths = [0, 260, 285, 290, 295, 400, 425, 430, 435, 440, 445, 600];
    let entries = lengths.iter().map(|length| {
        let url = format!("http://{}/{length}", place.address);
        let headers = json!({"Authorization": format!("Bearer {}", SECRETS[0])});
        (
            format!("s{length}"),
            json!({"url": url, "headers": headers}),
        )
    });
    street.configure(&Value::Object(entries.collect()));
    let mut client = street.client(&[]);
    for length in lengths {
        let refused = client.invoke(&format!("s{length}::any"), &json!({}));
        assert_eq!(
            tool_error(&refused)["code"],
            "source_unauthorized",
            "{refused}"
        );
        let name = json!({"server": format!("s{length}")});
        let health = client.call("gateway.health", &name);
        for said in [&refused, &health] {
            let told = said.to_string();
            assert!(!told.contains(&SECRETS[0][..4]), "{length}: {told}");
        }
        let asked = &tool_error(&refused)["details"]["auth"]["auth_challenge"];
        assert!(
            asked
                .as_str()
                .is_some_and(|asked| asked.starts_with("Basic")),
            "{refused}"
        );
        if length == 0 {
            assert_masked("how it refused", &refused);
            assert!(
                asked.as_str().is_some_and(|asked| asked.contains("Bearer")),
                "{refused}"
            );
        }
    }
}

#[test]
fn nothing_on_the_way_tells_a_secret() {
    let (_street, mut client) = leaking_fixture(&[]);
    let arguments = json!({"tool_id": "leaks::steps"});
    let params =
        json!({"name": "gateway.invoke", "arguments": arguments, "_meta": {"progressToken": "p"}});
    client.request("tools/call", &params);
    for method in ["notifications/progress", "notifications/message"] {
        let said = client.wait_for_message(|message| message["method"] == method);
        assert_masked(method, &said);
    }
    let asking = client.send_invoke("leaks::ask", &json!({}));
    let question = client.wait_for_message(|message| message["method"] == "elicitation/create");
    assert_masked("a question", &question);
    let declined = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}});
    client.stdio.send(&declined);
    client.wait_for_reply(asking);
}

#[test]
fn neither_resources_nor_prompts_tell_a_secret() {
    let (_street, mut client) = leaking_fixture(&[]);
    client.call("gateway.connect_server", &json!({"server_name": "leaks"}));
    for (method, params) in [
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "leak:note"})),
        ("resources/read", json!({"uri": "leak:room/1"})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "leaks::greet"})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "leaks::greet"}, "argument": {"name": "who", "value": "w"}}),
        ),
    ] {
        let said = client.request(method, &params);
        assert_masked(&format!("{method} {params}"), &said);
    }
}

#[test]
fn tools_under_their_own_names_tell_no_secret() {
    let (_street, mut client) = leaking_fixture(&["--surface", "direct"]);
    assert_masked("the list", &client.request("tools/list", &json!({})));
    for tool in ["tell", "refuse", "die"] {
        assert_masked(tool, &client.call(tool, &json!({})));
    }
}

/// A credential in every part of an entry that can hold one.
const ENTRY_SECRETS: [&str; 6] = [
    "env-secret-11111",
    "flag-secret-22222",
    "word-secret-33333",
    "url-secret-44444",
    "query-secret-55555",
    "header-secret-66666",
];

#[track_caller]
fn assert_no_secret(what: &str, said: &str) {
    for secret in ENTRY_SECRETS {
        assert!(!said.contains(secret), "{what} tells {secret}: {said}");
    }
}

/// Servers that print all they were given, and fail.
fn failing_servers(address: &str) -> Value {
    let script = "echo \"given $MY_TOKEN $0 $1 $2\" >&2; exit 1";
    let flag = format!("--api-key={}", ENTRY_SECRETS[1]);
    let url = format!(
        "http://bob:{}@{address}/mcp?token={}",
        ENTRY_SECRETS[3], ENTRY_SECRETS[4]
    );
    json!({
        "process": {
            "command": "/bin/sh",
            "args": ["-c", script, flag, "--password", ENTRY_SECRETS[2]],
            "env": {"MY_TOKEN": ENTRY_SECRETS[0]},
        },
        "address": {"url": url, "headers": {"X-Api-Key": ENTRY_SECRETS[5]}},
    })
}

#[test]
fn neither_the_log_nor_the_status_tells_what_an_entry_holds() {
    let place = FakeProvider::with_responder(|asked, stream| {
        let said = format!("{} {ENTRY_SECRETS:?}", asked.path());
        write_response(stream, 500, "text/plain", "", said.as_bytes());
    });
    let street = GatewayFixture::new();
    street.configure(&failing_servers(&place.address));
    for format in ["text", "json"] {
        let log = street.sandbox.home().join(format!("{format}.log"));
        let mut command = street.command(&["--log-format", format]);
        command
            .env("RUNG_LOG", "trace")
            .stderr(std::fs::File::create(&log).unwrap());
        let mut client =
            GatewayClient::open(crate::stdio::StdioClient::spawn(&mut command), &json!({}));
        for server in ["process", "address"] {
            let failed = client.invoke(&format!("{server}::any"), &json!({}));
            assert_no_secret("a failed call", &tool_error(&failed).to_string());
            let health = client.call("gateway.health", &json!({"server": server}));
            assert_no_secret("health", &health.to_string());
        }
        let health = client.call("gateway.health", &json!({"all": true}));
        assert_no_secret("health", &health.to_string());
        drop(client);
        let log = std::fs::read_to_string(log).unwrap();
        assert_no_secret("the log", &log);
        let given = format!("given {MASK} --api-key={MASK} --password {MASK}");
        assert!(log.contains(&given), "{log}");
    }
    let file = street.config_file();
    let file = file.to_str().unwrap();
    let table = street.sandbox.run(&["gateway", "status", "--config", file]);
    let json = street
        .sandbox
        .run(&["gateway", "status", "--json", "--config", file]);
    for ran in [table, json] {
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert!(ran.stdout.contains("process"), "{}", ran.stdout);
        assert_no_secret("the status", &ran.stdout);
        assert_no_secret("the status", &ran.stderr);
    }
}

/// The same for a server named in the settings.
#[test]
fn the_status_of_a_server_of_the_settings_tells_no_secret() {
    let street = GatewayFixture::new();
    let flag = format!("--api-key={}", ENTRY_SECRETS[1]);
    let url = format!(
        "http://bob:{}@localhost:9/?token={}",
        ENTRY_SECRETS[3], ENTRY_SECRETS[4]
    );
    let settings = format!(
        "[sources.process]\ncommand = [\"/bin/false\", \"{flag}\"]\n[sources.address]\nurl = \"{url}\"\n"
    );
    street.sandbox.write(".config/rung/config.toml", settings);
    let ran = street.sandbox.run(&["gateway", "status", "--json"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    for part in ["process", "address", "/bin/false", "localhost"] {
        assert!(ran.stdout.contains(part), "{}", ran.stdout);
    }
    assert_no_secret("the status", &ran.stdout);
    assert_no_secret("the status", &ran.stderr);
}

#[test]
fn a_secret_is_masked_in_the_name_of_a_member_as_well() {
    let (_street, mut client) = leaking_fixture(&[]);
    let value = json!({SECRETS[0]: 1, "kept": {"a supersecret-98765 b": "x"}});
    let given = client.invoke("leaks::give", &json!({"value": value}));
    assert_masked("the names", &given);
    let result = &reply_data(&given)["result"];
    assert_eq!(result[MASK], 1, "{given}");
    assert_eq!(result["kept"]["a [REDACTED] b"], "x", "{given}");
}

//! How a session with `rung db mcp` begins and which requests it accepts, compared with Datalevin's server case by case. A row
//! that differs on purpose says so.

use serde_json::{Value, json};

use crate::database_client::DatabaseClient;
use crate::sandbox::Sandbox;
use crate::stdio::{modern_meta, with_modern_meta};

/// The session's state when a row begins.
#[derive(Clone, Copy, Debug)]
enum SessionPhase {
    New,
    Initializing,
    Ready,
}
use SessionPhase::{Initializing, New, Ready};

/// The expected reply.
enum ExpectedReply {
    /// An error: its code, the id it answers, and all members of its data whose key begins with a colon.
    Error(i64, Value, Value),
    /// A result for the request with this id.
    Result(Value),
    Nothing,
}
use ExpectedReply::{Nothing, Result as Answered};

fn expected_error(code: i64, id: impl Into<Value>, data: Value) -> ExpectedReply {
    ExpectedReply::Error(code, id.into(), data)
}

fn initialize_params() -> Value {
    json!({
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "raw", "version": "0"},
    })
}

fn request_line(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

/// `initialize` with one member replaced or left out.
fn initialize_with(part: &str, value: Option<Value>) -> String {
    let mut params = initialize_params();
    let (above, name) = part.rsplit_once('.').unwrap_or(("", part));
    let above = match above {
        "" => &mut params,
        above => &mut params[above],
    };
    match value {
        Some(value) => above[name] = value,
        None => drop(above.as_object_mut().unwrap().remove(name)),
    }
    request_line("initialize", &params)
}

const INVALID: &str = ":invalid-request";

/// The cases: description, state of the session, line sent, expected reply.
fn lifecycle_cases() -> Vec<(&'static str, SessionPhase, String, ExpectedReply)> {
    let mut rows = Vec::new();
    let mut row = |what, phase, sent: String, reply| rows.push((what, phase, sent, reply));

    let what = "any request but initialize while new, also ping";
    for method in [
        "ping",
        "tools/list",
        "tools/call",
        "resources/read",
        "no/such",
    ] {
        let data = json!({":code": INVALID, ":method": method, ":phase": "uninitialized"});
        row(
            what,
            New,
            request_line(method, &json!({})),
            expected_error(-32600, 1, data),
        );
    }

    let what = "initialize lacking a part, or with one of a wrong type";
    let parts = [
        ("protocolVersion", json!(5)),
        ("capabilities", json!("all")),
        ("clientInfo", json!([])),
        ("clientInfo.name", json!(7)),
        ("clientInfo.version", json!({})),
    ];
    for (part, wrong) in parts {
        for value in [None, Some(wrong)] {
            let data = json!({":code": ":invalid-params", ":field": part});
            row(
                what,
                New,
                initialize_with(part, value),
                expected_error(-32602, 1, data),
            );
        }
    }
    let data = json!({":code": ":invalid-params", ":field": "protocolVersion"});
    let none = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize"}).to_string();
    row(what, New, none, expected_error(-32602, 1, data));

    // Differs on purpose: the version is negotiated, see the next test.
    let what = "any protocolVersion";
    for version in ["2024-11-05", "2025-06-18", "1999-01-01", ""] {
        let sent = initialize_with("protocolVersion", Some(version.into()));
        row(what, New, sent, Answered(json!(1)));
    }

    let what = "ping while initializing";
    row(
        what,
        Initializing,
        request_line("ping", &json!({})),
        Answered(json!(1)),
    );

    let what = "other requests while initializing";
    for method in ["tools/list", "tools/call", "no/such", "notifications/x"] {
        let data = json!({":code": INVALID, ":method": method, ":phase": "initializing"});
        let sent = request_line(method, &json!({}));
        row(what, Initializing, sent, expected_error(-32600, 1, data));
    }

    let what = "a second initialize, in either phase";
    for (phase, name) in [(Initializing, "initializing"), (Ready, "ready")] {
        let data = json!({":code": INVALID, ":method": "initialize", ":phase": name});
        let sent = request_line("initialize", &initialize_params());
        row(what, phase, sent, expected_error(-32600, 1, data));
    }

    let what = "a request without an id, with null or with an object for it";
    for phase in [New, Initializing, Ready] {
        for id in [
            r#""x":0"#,
            r#""id":null"#,
            r#""id":{}"#,
            r#""id":[1]"#,
            r#""id":true"#,
        ] {
            let sent = format!(r#"{{"jsonrpc":"2.0",{id},"method":"tools/list"}}"#);
            let data = json!({":code": INVALID, ":field": "id"});
            row(what, phase, sent, expected_error(-32600, Value::Null, data));
        }
    }

    let what = "ids that are fractions or strings";
    for id in [json!(1.5), json!(-7), json!("x"), json!(""), json!(":k")] {
        let sent = json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string();
        row(what, Ready, sent, Answered(id));
    }

    let what = "no jsonrpc 2.0, no method, or a stray response";
    for sent in [
        r#"{"id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
        r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}"#,
    ] {
        let data = json!({":code": INVALID});
        row(
            what,
            Ready,
            sent.to_owned(),
            expected_error(-32600, 1, data),
        );
    }

    let what = "params that are no object, where null is none";
    for params in [json!(5), json!("x"), json!(true), json!([]), json!([{}])] {
        let data = json!({":code": ":invalid-params", ":field": "params"});
        row(
            what,
            Ready,
            request_line("ping", &params),
            expected_error(-32602, 1, data),
        );
    }
    row(
        what,
        Ready,
        request_line("ping", &Value::Null),
        Answered(json!(1)),
    );
    row(
        what,
        Ready,
        request_line("tools/list", &Value::Null),
        Answered(json!(1)),
    );

    let what = "a batch";
    for sent in ["[]", r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#] {
        let data = json!({":code": INVALID});
        row(
            what,
            Ready,
            sent.to_owned(),
            expected_error(-32600, Value::Null, data),
        );
    }

    let what = "an unknown method";
    for method in ["no/such", "", "tools", "TOOLS/LIST"] {
        let data = json!({":code": ":method-not-found", ":method": method});
        row(
            what,
            Ready,
            request_line(method, &json!({})),
            expected_error(-32601, 1, data),
        );
    }

    let what = "notifications, without an id and with one";
    for method in [
        "notifications/x",
        "notifications/initialized",
        "notifications/cancelled",
    ] {
        for phase in [New, Initializing, Ready] {
            let sent = json!({"jsonrpc": "2.0", "method": method}).to_string();
            row(what, phase, sent, Nothing);
        }
        let data = json!({":code": ":method-not-found", ":method": method});
        row(
            what,
            Ready,
            request_line(method, &json!({})),
            expected_error(-32601, 1, data),
        );
    }

    // Differs on purpose: Datalevin's process exits.
    let what = "a line that cannot be parsed, or is a bare scalar";
    for phase in [New, Ready] {
        for sent in ["{", "no json", "{}{}", "\u{0}", "nul"] {
            let data = json!({":code": ":parse-error"});
            row(
                what,
                phase,
                sent.to_owned(),
                expected_error(-32700, Value::Null, data),
            );
        }
        for sent in ["17", "\"x\"", "null", "true"] {
            let data = json!({":code": INVALID});
            row(
                what,
                phase,
                sent.to_owned(),
                expected_error(-32600, Value::Null, data),
            );
        }
    }
    rows
}

/// The members of an error's data whose key begins with a colon.
fn colon_members(data: &Value) -> Value {
    let members = data.as_object().into_iter().flatten();
    let own = members.filter(|(key, _)| key.starts_with(':'));
    own.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[test]
fn every_situation_is_answered_as_it_is_known() {
    let sandbox = Sandbox::new();
    for (what, phase, sent, reply) in lifecycle_cases() {
        let what = format!("{what}, {phase:?}: {sent}");
        let mut client = DatabaseClient::start_uninitialized(&sandbox, &[]).stdio;
        match phase {
            New => {}
            Initializing => drop(client.request("initialize", &initialize_params())),
            Ready => drop(client.initialize("2025-06-18", &json!({}))),
        }
        client.send_bytes(format!("{sent}\n").as_bytes());
        match reply {
            ExpectedReply::Error(code, id, data) => {
                let told = client.next_message();
                assert_eq!(told["error"]["code"], code, "{what}: {told}");
                assert_eq!(told["id"], id, "{what}: {told}");
                assert_eq!(
                    colon_members(&told["error"]["data"]),
                    data,
                    "{what}: {told}"
                );
            }
            Answered(id) => {
                let told = client.next_message();
                assert!(told["result"].is_object(), "{what}: {told}");
                assert_eq!(told["id"], id, "{what}: {told}");
            }
            // The next request gets its own reply.
            Nothing => {}
        }
        // The server still runs, and its session state is unchanged.
        let found = client.request("server/discover", &with_modern_meta(json!({})));
        assert!(found["result"].is_object(), "{what}: {found}");
        if what.starts_with("initialize lacking") {
            client.initialize("2025-06-18", &json!({}));
            assert!(client.request("tools/list", &json!({}))["result"].is_object());
        }
        assert_eq!(client.finish(), (0, vec![]), "{what}");
    }
}

#[test]
fn a_version_is_agreed_on() {
    let sandbox = Sandbox::new();
    for (asked, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let mut client = DatabaseClient::start_uninitialized(&sandbox, &[]).stdio;
        let told = client.initialize(asked, &json!({}));
        assert_eq!(told["result"]["protocolVersion"], agreed);
        let call = json!({"name": "datalevin_api_info", "arguments": {}});
        let told = client.request("tools/call", &call);
        let text = told["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("json-api-version"), "{told}");
    }
}

#[test]
fn a_modern_request_needs_nothing_before_it() {
    let sandbox = Sandbox::new();
    for phase in [New, Initializing, Ready] {
        let mut client = DatabaseClient::start_uninitialized(&sandbox, &[]).stdio;
        match phase {
            New => {}
            Initializing => drop(client.request("initialize", &initialize_params())),
            Ready => drop(client.initialize("2025-11-25", &json!({}))),
        }
        let listed = client.request("tools/list", &with_modern_meta(json!({})));
        let tools = listed["result"]["tools"].as_array().unwrap();
        assert!(tools.iter().any(|tool| tool["name"] == "datalevin_query"));
        let call = json!({"name": "datalevin_api_info", "arguments": {}});
        let told = client.request("tools/call", &with_modern_meta(call));
        let info = &told["result"]["structuredContent"];
        assert_eq!(info["mcp"]["allowWrites"], false, "{phase:?}: {told}");
        // The data of a modern error has the members that modern clients expect.
        let mut other = modern_meta(&json!({}));
        other["io.modelcontextprotocol/protocolVersion"] = "v999".into();
        let told = client.request("tools/list", &json!({"_meta": other}));
        assert_eq!(told["error"]["code"], -32022);
        let data = &told["error"]["data"];
        assert_eq!(data["supported"], json!(["2026-07-28"]), "{told}");
        assert_eq!(data["requested"], "v999", "{told}");
    }
}

#[test]
fn a_tool_that_is_not_there_has_its_code() {
    let sandbox = Sandbox::new();
    let mut client = DatabaseClient::start(&sandbox, &[]).stdio;
    let told = client.request("tools/call", &json!({"name": "datalevin_nothing"}));
    assert_eq!(told["error"]["code"], -32602, "{told}");
    let data = &told["error"]["data"];
    assert_eq!(data[":code"], ":unknown-tool", "{told}");
    assert!(data["hint"].is_string(), "{told}");
}

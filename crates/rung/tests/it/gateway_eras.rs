//! Legacy and modern clients and servers in every combination, and everything besides results: elicitation, progress, logs,
//! resources, prompts and completions.

use serde_json::{Value, json};

use crate::gateway::{GatewayClient, GatewayFixture, first_text, reply_data, with_role};
use crate::stdio::{StdioClient, modern_meta};

/// A fixture with the echo server (legacy) and Rung's own conformance server (modern).
fn fixture_with_modern_server() -> GatewayFixture {
    let street = GatewayFixture::new();
    let own = json!({"command": env!("CARGO_BIN_EXE_rung"), "args": ["mcp", "--conformance"], "env": {"RUNG_HOME": street.sandbox.home().join("own")}});
    street.configure(&json!({"own": own, "house": street.echo_server("house")}));
    street
}

fn is_method(method: &'static str) -> impl Fn(&Value) -> bool {
    move |message| message["method"] == method
}

/// Invokes a tool as a legacy client and answers its elicitation.
fn invoke_with_legacy_answer(
    client: &mut GatewayClient,
    tool_id: &str,
    arguments: &Value,
    content: &Value,
) -> Value {
    let id = client.send_invoke(tool_id, arguments);
    let asked = client.wait_for_message(is_method("elicitation/create"));
    assert!(asked["params"]["message"].is_string(), "{asked}");
    let result = json!({"action": "accept", "content": content});
    client
        .stdio
        .send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
    client.wait_for_reply(id)["result"].clone()
}

/// Invokes a tool as a modern client and repeats the call with the answer to its elicitation.
fn invoke_with_modern_answer(
    client: &mut StdioClient,
    tool_id: &str,
    arguments: &Value,
    content: &Value,
) -> Value {
    let arguments = json!({"tool_id": tool_id, "arguments": arguments});
    let mut params = json!({"name": "gateway.invoke", "arguments": arguments, "_meta": modern_meta(&json!({"elicitation": {}}))});
    let asked = client.request("tools/call", &params)["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let questions = asked["inputRequests"].as_object().unwrap();
    let (key, question) = questions.iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create", "{asked}");
    params["requestState"] = asked["requestState"].clone();
    params["inputResponses"] = json!({key: {"action": "accept", "content": content}});
    client.request("tools/call", &params)["result"].clone()
}

#[test]
fn what_a_server_asks_is_asked_of_the_client_whichever_era_they_are_of() {
    let street = fixture_with_modern_server();
    let content = json!({"room": "seven"});
    let can = json!({"elicitation": {}});
    let mut legacy = street.client_with_capabilities(&[], &can);
    for (tool, arguments) in [
        ("house::ask", json!({})),
        ("own::test_elicitation", json!({"message": "Well?"})),
    ] {
        let done = invoke_with_legacy_answer(&mut legacy, tool, &arguments, &content);
        assert!(first_text(&done).contains("seven"), "{tool}: {done}");
        let mut modern = StdioClient::spawn(&mut street.command(&[]));
        let done = invoke_with_modern_answer(&mut modern, tool, &arguments, &content);
        assert!(first_text(&done).contains("seven"), "{tool}: {done}");
    }
    assert_eq!(street.trace_count("house", "ask"), 2, "once by each client");
}

/// A legacy server's request over stdio names no call. If all active calls belong to one client, the request is that client's.
#[test]
fn a_question_among_several_calls_of_one_client_is_asked_of_that_client() {
    let street = GatewayFixture::with_echo_server();
    let content = json!({"room": "seven"});
    let mut legacy = street.client_with_capabilities(&[], &json!({"elicitation": {}}));
    let waiting: Vec<u64> = (0..3)
        .map(|_| legacy.send_invoke("house::wait", &json!({})))
        .collect();
    street.wait_for_trace("house", "wait", 3);
    let done = invoke_with_legacy_answer(&mut legacy, "house::ask", &json!({}), &content);
    assert!(first_text(&done).contains("seven"), "{done}");
    legacy.invoke("house::release", &json!({}));
    for id in waiting {
        assert_eq!(first_text(&legacy.wait_for_reply(id)["result"]), "released");
    }
    drop(legacy);
    let mut modern = StdioClient::spawn(&mut street.command(&[]));
    let arguments = json!({"tool_id": "house::wait", "arguments": {}});
    let params = json!({"name": "gateway.invoke", "arguments": arguments, "_meta": modern_meta(&json!({"elicitation": {}}))});
    let waits = modern.send_request("tools/call", &params);
    street.wait_for_trace("house", "wait", 4);
    let done = invoke_with_modern_answer(&mut modern, "house::ask", &json!({}), &content);
    assert!(first_text(&done).contains("seven"), "{done}");
    let arguments = json!({"tool_id": "house::release", "arguments": {}});
    let params =
        json!({"name": "gateway.invoke", "arguments": arguments, "_meta": modern_meta(&json!({}))});
    modern.send_request("tools/call", &params);
    let first = modern.next_message();
    let first = if first["id"] == waits {
        first
    } else {
        modern.next_message()
    };
    assert_eq!(first_text(&first["result"]), "released", "{first}");
}

/// If calls of several clients are active, the request cannot be attributed and no client gets it.
#[test]
fn a_question_among_calls_of_several_clients_is_asked_of_none() {
    let street = GatewayFixture::with_echo_server();
    let mut first = street.client_with_capabilities(&[], &json!({"elicitation": {}}));
    let mut second = street.client_with_capabilities(&[], &json!({"elicitation": {}}));
    let waits = first.send_invoke("house::wait", &json!({}));
    street.wait_for_trace("house", "wait", 1);
    let answer = second.invoke("house::ask", &json!({}));
    assert!(!answer.to_string().contains("\"accept\""), "{answer}");
    second.invoke("house::release", &json!({}));
    assert_eq!(
        first_text(&first.wait_for_reply(waits)["result"]),
        "released"
    );
    for client in [&first, &second] {
        assert!(
            !client
                .unsolicited
                .iter()
                .any(is_method("elicitation/create"))
        );
    }
}

/// Any called server may use the client's sampling; only a server that is not shared receives the client's roots.
#[test]
fn a_model_and_folders_are_asked_of_the_client_whose_server_it_is() {
    let street = GatewayFixture::new();
    let mut own = street.echo_server("own");
    own["sharing"] = "client".into();
    street.configure(&json!({"own": own, "shared": street.echo_server("shared")}));
    let can = json!({"sampling": {}, "roots": {}});
    let mut client = street.client_with_capabilities(&[], &can);
    let mut ask = |tool_id: &str, of: &str, method: &'static str, result: Value| {
        let id = client.send_invoke(tool_id, &json!({"of": of}));
        let asked = client.wait_for_message(is_method(method));
        client
            .stdio
            .send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
        first_text(&client.wait_for_reply(id)["result"]).to_owned()
    };
    let content = json!({"type": "text", "text": "seven"});
    let written = json!({"role": "assistant", "content": content, "model": "m"});
    for server in ["own::ask", "shared::ask"] {
        let said = ask(server, "model", "sampling/createMessage", written.clone());
        assert!(said.contains("seven"), "{server}: {said}");
    }
    let folders = json!({"roots": [{"uri": "file:///work", "name": "work"}]});
    let said = ask("own::ask", "client", "roots/list", folders);
    assert!(said.contains("file:///work"), "{said}");
    let told = client.invoke("shared::ask", &json!({"of": "client"}));
    assert!(!told.to_string().contains("file:///"), "{told}");
    assert!(
        !client.unsolicited.iter().any(is_method("roots/list")),
        "{:?}",
        client.unsolicited
    );
}

/// Elicitation is declined at once for clients that do not support it.
#[test]
fn a_question_to_a_client_that_takes_none_is_declined() {
    let street = fixture_with_modern_server();
    let mut legacy = street.client(&[]);
    for (tool, arguments) in [
        ("house::ask", json!({})),
        ("own::test_elicitation", json!({"message": "Well?"})),
    ] {
        let answer = legacy.invoke(tool, &arguments);
        assert!(
            !answer.to_string().contains("\"accept\""),
            "{tool}: {answer}"
        );
    }
    assert!(
        legacy
            .unsolicited
            .iter()
            .all(|said| said.get("id").is_none()),
        "{:?}",
        legacy.unsolicited
    );
}

#[test]
fn progress_goes_to_the_call_that_wants_it() {
    let street = fixture_with_modern_server();
    let mut client = street.client(&[]);
    for tool in ["house::steps", "own::test_tool_with_progress"] {
        let params = json!({"name": "gateway.invoke", "arguments": {"tool_id": tool}, "_meta": {"progressToken": tool}});
        let id = client.stdio.send_request("tools/call", &params);
        let said = client.wait_for_message(is_method("notifications/progress"));
        assert_eq!(said["params"]["progressToken"], tool, "{said}");
        assert_ne!(client.wait_for_reply(id)["result"]["isError"], true);
        client.unsolicited.clear();
        client.invoke(tool, &json!({}));
        assert!(
            !client
                .unsolicited
                .iter()
                .any(is_method("notifications/progress")),
            "{tool}: nobody wanted it"
        );
    }
}

#[test]
fn what_a_server_logs_is_told_to_a_client_that_wants_logs() {
    let street = fixture_with_modern_server();
    let mut client = street.client(&[]);
    client.request("logging/setLevel", &json!({"level": "info"}));
    let done = client.invoke("house::steps", &json!({}));
    assert_eq!(first_text(&done), "stepped");
    let said = client.wait_for_message(is_method("notifications/message"));
    assert_eq!(
        (&said["params"]["level"], &said["params"]["data"]),
        (&json!("warning"), &json!("careful")),
        "{said}"
    );
    client.invoke("own::test_tool_with_logging", &json!({}));
    client.wait_for_message(is_method("notifications/message"));
    // Messages below the requested level are not forwarded.
    client.request("logging/setLevel", &json!({"level": "error"}));
    client.unsolicited.clear();
    client.invoke("house::steps", &json!({}));
    assert!(
        !client
            .unsolicited
            .iter()
            .any(is_method("notifications/message")),
        "{:?}",
        client.unsolicited
    );
}

#[test]
fn a_log_message_goes_to_the_one_client_whose_calls_run() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    client.request("logging/setLevel", &json!({"level": "info"}));
    let waits = client.send_invoke("house::wait", &json!({}));
    street.wait_for_trace("house", "wait", 1);
    // Both active calls belong to this client.
    client.invoke("house::steps", &json!({}));
    client.wait_for_message(is_method("notifications/message"));
    client.invoke("house::release", &json!({}));
    client.wait_for_reply(waits);
    client.unsolicited.clear();
    // With calls of two clients active, a log message cannot be attributed.
    let mut other = street.client(&[]);
    other.request("logging/setLevel", &json!({"level": "info"}));
    let waits = client.send_invoke("house::wait", &json!({}));
    street.wait_for_trace("house", "wait", 2);
    other.invoke("house::steps", &json!({}));
    other.invoke("house::release", &json!({}));
    client.wait_for_reply(waits);
    for heard in [&client.unsolicited, &other.unsolicited] {
        assert!(
            !heard.iter().any(is_method("notifications/message")),
            "{heard:?}"
        );
    }
    assert_eq!(street.start_count("house"), 1, "both use the same one");
}

#[test]
fn resources_and_prompts_of_servers_are_there_beside_our_own() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    client.call("gateway.connect_server", &json!({"server_name": "house"}));
    client.wait_for_message(is_method("notifications/resources/list_changed"));
    let listed = client.request("resources/list", &json!({}));
    assert!(listed.to_string().contains("house:note"), "{listed}");
    let templates = client.request("resources/templates/list", &json!({}));
    assert!(
        templates.to_string().contains("house:room/{n}"),
        "{templates}"
    );
    for uri in ["house:note", "house:room/7"] {
        let read = client.request("resources/read", &json!({"uri": uri}));
        assert_eq!(
            read["result"]["contents"][0]["text"], "what is noted",
            "{uri}: {read}"
        );
        assert_eq!(read["result"]["contents"][0]["uri"], uri);
    }
    let unknown = client.request("resources/read", &json!({"uri": "house:cellar"}));
    assert!(unknown["error"]["code"].is_i64(), "{unknown}");
    let prompts = client.request("prompts/list", &json!({}));
    assert!(prompts.to_string().contains("house::greet"), "{prompts}");
    let got = client.request("prompts/get", &json!({"name": "house::greet"}));
    assert_eq!(
        got["result"]["messages"][0]["content"]["text"], "Say hello.",
        "{got}"
    );
    let of = json!({"type": "ref/prompt", "name": "house::greet"});
    let completed = client.request(
        "completion/complete",
        &json!({"ref": of, "argument": {"name": "who", "value": "w"}}),
    );
    assert_eq!(
        completed["result"]["completion"]["values"],
        json!(["world"]),
        "{completed}"
    );
    client.request("resources/subscribe", &json!({"uri": "house:note"}));
    let updated = client.wait_for_message(is_method("notifications/resources/updated"));
    assert_eq!(updated["params"]["uri"], "house:note", "{updated}");
}

#[test]
fn a_modern_server_behind_the_gateway_is_as_it_is_alone() {
    let street = fixture_with_modern_server();
    let mut client = street.client(&[]);
    let picture = client.invoke("own::test_image_content", &json!({}));
    assert_eq!(picture["content"][0]["type"], "image", "{picture}");
    let sound = client.invoke("own::test_audio_content", &json!({}));
    assert_eq!(sound["content"][0]["type"], "audio", "{sound}");
    let failed = client.invoke("own::test_error_handling", &json!({}));
    assert_eq!(failed["isError"], true, "{failed}");
    let health = client.call("gateway.health", &json!({"server": "own"}));
    assert_eq!(
        reply_data(&health)["servers"][0]["protocol_version"],
        "2026-07-28",
        "{health}"
    );
}

#[test]
fn what_a_caller_says_of_a_call_goes_along_with_it() {
    let street = GatewayFixture::new();
    street.configure(
        &json!({"mirror": {"command": crate::gateway::faulty_server(), "args": ["mirror"]}}),
    );
    let mut client = street.client(&[]);
    let given =
        json!({"z": 1, "a": {"deep": [1.5, null]}, "content": [{"type": "text", "text": "x"}]});
    let back = client.invoke("mirror::a", &given);
    assert_eq!(back["z"], 1, "{back}");
    assert_eq!(back["a"], given["a"]);
}

#[test]
fn what_is_said_of_a_call_arrives_beside_what_the_protocol_says() {
    let street = GatewayFixture::new();
    street.configure(&json!({"old": with_role("meta"), "new": with_role("modern-meta")}));
    let mut client = street.client(&[]);
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let digest = "ab".repeat(32);
    for (tool_id, version) in [("old::a", Value::Null), ("new::a", json!("2026-07-28"))] {
        let arguments = json!({
            "tool_id": tool_id,
            "trace_context": {"traceparent": parent, "tracestate": "a=1,b=\"2\"", "baggage": "k=v"},
            "run_correlation_id": "run 7",
            "seat_correlation_id": "seat \"8\"",
            "evidence_label_digest": digest,
            "_meta": {"vendor/own": {"deep": [1.5, null]}, "traceparent": "mine", "io.modelcontextprotocol/protocolVersion": "1999"},
        });
        let told = client.call("gateway.invoke", &arguments);
        let told: Value = serde_json::from_str(first_text(&told)).unwrap();
        // The arguments for tracing and correlation take precedence over `_meta`.
        for (name, value) in [
            ("traceparent", json!(parent)),
            ("tracestate", json!("a=1,b=\"2\"")),
            ("baggage", json!("k=v")),
            ("rung/run_correlation_id", json!("run 7")),
            ("rung/seat_correlation_id", json!("seat \"8\"")),
            ("rung/evidence_label_digest", json!(digest)),
            ("vendor/own", json!({"deep": [1.5, null]})),
        ] {
            assert_eq!(told[name], value, "{tool_id} {name}: {told}");
        }
        // The gateway sets the protocol version.
        if !version.is_null() {
            assert_eq!(told["io.modelcontextprotocol/protocolVersion"], version);
        }
        let bare = client.invoke(tool_id, &json!({}));
        assert!(!first_text(&bare).contains("rung/"), "{bare}");
        assert!(!first_text(&bare).contains("trace"), "{bare}");
    }
}

/// A URI that several servers have is qualified by the server's name, for reading and for subscribing.
#[test]
fn an_address_of_two_servers_is_answered_as_it_was_asked() {
    let street = GatewayFixture::new();
    street.configure(&json!({"a": street.echo_server("a"), "b/c": street.echo_server("b")}));
    let mut client = street.client(&[]);
    for server in ["a", "b/c"] {
        client.call("gateway.connect_server", &json!({"server_name": server}));
    }
    let listed = client.request("resources/list", &json!({}));
    let uris = listed["result"]["resources"].as_array().unwrap().iter();
    let uris: Vec<&str> = uris.map(|one| one["uri"].as_str().unwrap()).collect();
    let page = "pmcp://guidance/code-execution";
    assert_eq!(uris, ["house:note", "gateway://b%2Fc/house:note", page]);
    let uris = uris.into_iter().filter(|uri| *uri != page);
    for uri in uris {
        let read = client.request("resources/read", &json!({"uri": uri}));
        assert_eq!(read["result"]["contents"][0]["uri"], uri, "{read}");
        client.request("resources/subscribe", &json!({"uri": uri}));
        client.wait_for_message(|message| {
            message["method"] == "notifications/resources/updated"
                && message["params"]["uri"] == uri
        });
    }
    assert_eq!(
        (
            street.trace_count("a", "read"),
            street.trace_count("b", "read")
        ),
        (1, 1)
    );
}

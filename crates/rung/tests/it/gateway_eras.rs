//! Clients and servers of different eras, and everything that goes between them beside results: questions, progress, logs,
//! resources, prompts and completions.

use serde_json::{Value, json};

use crate::gateway::{Client, Street, plays, text};
use crate::stdio::{Stdio, meta};

/// Our own server, which is modern, with what the protocol's own suite calls.
fn modern_street() -> Street {
    let street = Street::new();
    let own = json!({"command": env!("CARGO_BIN_EXE_rung"), "args": ["mcp", "--conformance"], "env": {"RUNG_HOME": street.sandbox.home().join("own")}});
    street.configure(&json!({"own": own, "house": street.house("house")}));
    street
}

fn is(method: &'static str) -> impl Fn(&Value) -> bool {
    move |message| message["method"] == method
}

/// A legacy client is asked, and answers.
fn ask_legacy(client: &mut Client, tool_id: &str, arguments: &Value, content: &Value) -> Value {
    let id = client.begin_invoke(tool_id, arguments);
    let asked = client.hear(is("elicitation/create"));
    assert!(asked["params"]["message"].is_string(), "{asked}");
    let result = json!({"action": "accept", "content": content});
    client
        .stdio
        .send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
    client.answer(id)["result"].clone()
}

/// A modern client is asked, and comes back with the answer.
fn ask_modern(client: &mut Stdio, tool_id: &str, arguments: &Value, content: &Value) -> Value {
    let arguments = json!({"tool_id": tool_id, "arguments": arguments});
    let mut params = json!({"name": "gateway.invoke", "arguments": arguments, "_meta": meta(&json!({"elicitation": {}}))});
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
    let street = modern_street();
    let content = json!({"room": "seven"});
    let can = json!({"elicitation": {}});
    let mut legacy = street.client_that_can(&[], &can);
    for (tool, arguments) in [
        ("house::ask", json!({})),
        ("own::test_elicitation", json!({"message": "Well?"})),
    ] {
        let done = ask_legacy(&mut legacy, tool, &arguments, &content);
        assert!(text(&done).contains("seven"), "{tool}: {done}");
        let mut modern = Stdio::of(&mut street.command(&[]));
        let done = ask_modern(&mut modern, tool, &arguments, &content);
        assert!(text(&done).contains("seven"), "{tool}: {done}");
    }
    assert_eq!(street.times("house", "ask"), 2, "once by each client");
}

/// On a pipe of the older era a question names no call. While all calls are one client's, it can only be theirs.
#[test]
fn a_question_among_several_calls_of_one_client_is_asked_of_that_client() {
    let street = Street::with_a_house();
    let content = json!({"room": "seven"});
    let mut legacy = street.client_that_can(&[], &json!({"elicitation": {}}));
    let waiting: Vec<u64> = (0..3)
        .map(|_| legacy.begin_invoke("house::wait", &json!({})))
        .collect();
    street.wait_for("house", "wait", 3);
    let done = ask_legacy(&mut legacy, "house::ask", &json!({}), &content);
    assert!(text(&done).contains("seven"), "{done}");
    legacy.invoke("house::release", &json!({}));
    for id in waiting {
        assert_eq!(text(&legacy.answer(id)["result"]), "released");
    }
    drop(legacy);
    let mut modern = Stdio::of(&mut street.command(&[]));
    let arguments = json!({"tool_id": "house::wait", "arguments": {}});
    let params = json!({"name": "gateway.invoke", "arguments": arguments, "_meta": meta(&json!({"elicitation": {}}))});
    let waits = modern.begin("tools/call", &params);
    street.wait_for("house", "wait", 4);
    let done = ask_modern(&mut modern, "house::ask", &json!({}), &content);
    assert!(text(&done).contains("seven"), "{done}");
    let arguments = json!({"tool_id": "house::release", "arguments": {}});
    let params =
        json!({"name": "gateway.invoke", "arguments": arguments, "_meta": meta(&json!({}))});
    modern.begin("tools/call", &params);
    let first = modern.next();
    let first = if first["id"] == waits {
        first
    } else {
        modern.next()
    };
    assert_eq!(text(&first["result"]), "released", "{first}");
}

/// Where others call, too, nobody knows whose question it is, and nobody is asked a stranger's.
#[test]
fn a_question_among_calls_of_several_clients_is_asked_of_none() {
    let street = Street::with_a_house();
    let mut first = street.client_that_can(&[], &json!({"elicitation": {}}));
    let mut second = street.client_that_can(&[], &json!({"elicitation": {}}));
    let waits = first.begin_invoke("house::wait", &json!({}));
    street.wait_for("house", "wait", 1);
    let answer = second.invoke("house::ask", &json!({}));
    assert!(!answer.to_string().contains("\"accept\""), "{answer}");
    second.invoke("house::release", &json!({}));
    assert_eq!(text(&first.answer(waits)["result"]), "released");
    for client in [&first, &second] {
        assert!(!client.heard.iter().any(is("elicitation/create")));
    }
}

/// The client's model is asked by whoever it calls; its folders are told to a server that is its own, and to no other.
#[test]
fn a_model_and_folders_are_asked_of_the_client_whose_server_it_is() {
    let street = Street::new();
    let mut own = street.house("own");
    own["sharing"] = "client".into();
    street.configure(&json!({"own": own, "shared": street.house("shared")}));
    let can = json!({"sampling": {}, "roots": {}});
    let mut client = street.client_that_can(&[], &can);
    let mut ask = |tool_id: &str, of: &str, method: &'static str, result: Value| {
        let id = client.begin_invoke(tool_id, &json!({"of": of}));
        let asked = client.hear(is(method));
        client
            .stdio
            .send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
        text(&client.answer(id)["result"]).to_owned()
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
        !client.heard.iter().any(is("roots/list")),
        "{:?}",
        client.heard
    );
}

/// Whoever cannot be asked is not left waiting.
#[test]
fn a_question_to_a_client_that_takes_none_is_declined() {
    let street = modern_street();
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
        legacy.heard.iter().all(|said| said.get("id").is_none()),
        "{:?}",
        legacy.heard
    );
}

#[test]
fn progress_goes_to_the_call_that_wants_it() {
    let street = modern_street();
    let mut client = street.client(&[]);
    for tool in ["house::steps", "own::test_tool_with_progress"] {
        let params = json!({"name": "gateway.invoke", "arguments": {"tool_id": tool}, "_meta": {"progressToken": tool}});
        let id = client.stdio.begin("tools/call", &params);
        let said = client.hear(is("notifications/progress"));
        assert_eq!(said["params"]["progressToken"], tool, "{said}");
        assert_ne!(client.answer(id)["result"]["isError"], true);
        client.heard.clear();
        client.invoke(tool, &json!({}));
        assert!(
            !client.heard.iter().any(is("notifications/progress")),
            "{tool}: nobody wanted it"
        );
    }
}

#[test]
fn what_a_server_logs_is_told_to_a_client_that_wants_logs() {
    let street = modern_street();
    let mut client = street.client(&[]);
    client.request("logging/setLevel", &json!({"level": "info"}));
    let done = client.invoke("house::steps", &json!({}));
    assert_eq!(text(&done), "stepped");
    let said = client.hear(is("notifications/message"));
    assert_eq!(
        (&said["params"]["level"], &said["params"]["data"]),
        (&json!("warning"), &json!("careful")),
        "{said}"
    );
    client.invoke("own::test_tool_with_logging", &json!({}));
    client.hear(is("notifications/message"));
    // What is of less weight than wanted is not told.
    client.request("logging/setLevel", &json!({"level": "error"}));
    client.heard.clear();
    client.invoke("house::steps", &json!({}));
    assert!(
        !client.heard.iter().any(is("notifications/message")),
        "{:?}",
        client.heard
    );
}

#[test]
fn a_log_is_told_to_the_one_client_whose_calls_run_and_to_nobody_else() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    client.request("logging/setLevel", &json!({"level": "info"}));
    let waits = client.begin_invoke("house::wait", &json!({}));
    street.wait_for("house", "wait", 1);
    // Two calls run, and both are this client's.
    client.invoke("house::steps", &json!({}));
    client.hear(is("notifications/message"));
    client.invoke("house::release", &json!({}));
    client.answer(waits);
    client.heard.clear();
    // Of two clients' calls nobody knows whose it is.
    let mut other = street.client(&[]);
    other.request("logging/setLevel", &json!({"level": "info"}));
    let waits = client.begin_invoke("house::wait", &json!({}));
    street.wait_for("house", "wait", 2);
    other.invoke("house::steps", &json!({}));
    other.invoke("house::release", &json!({}));
    client.answer(waits);
    for heard in [&client.heard, &other.heard] {
        assert!(!heard.iter().any(is("notifications/message")), "{heard:?}");
    }
    assert_eq!(street.starts("house"), 1, "both use the same one");
}

#[test]
fn resources_and_prompts_of_servers_are_there_beside_our_own() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    client.call("gateway.connect_server", &json!({"server_name": "house"}));
    client.hear(is("notifications/resources/list_changed"));
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
    let updated = client.hear(is("notifications/resources/updated"));
    assert_eq!(updated["params"]["uri"], "house:note", "{updated}");
}

#[test]
fn a_modern_server_behind_the_gateway_is_as_it_is_alone() {
    let street = modern_street();
    let mut client = street.client(&[]);
    let picture = client.invoke("own::test_image_content", &json!({}));
    assert_eq!(picture["content"][0]["type"], "image", "{picture}");
    let sound = client.invoke("own::test_audio_content", &json!({}));
    assert_eq!(sound["content"][0]["type"], "audio", "{sound}");
    let failed = client.invoke("own::test_error_handling", &json!({}));
    assert_eq!(failed["isError"], true, "{failed}");
    let health = client.call("gateway.health", &json!({"server": "own"}));
    assert_eq!(
        health["structuredContent"]["servers"][0]["protocol_version"], "2026-07-28",
        "{health}"
    );
}

#[test]
fn what_a_caller_says_of_a_call_goes_along_with_it() {
    let street = Street::new();
    street
        .configure(&json!({"mirror": {"command": crate::gateway::mischief(), "args": ["mirror"]}}));
    let mut client = street.client(&[]);
    let given =
        json!({"z": 1, "a": {"deep": [1.5, null]}, "content": [{"type": "text", "text": "x"}]});
    let back = client.invoke("mirror::a", &given);
    assert_eq!(back["z"], 1, "{back}");
    assert_eq!(back["a"], given["a"]);
}

#[test]
fn what_is_said_of_a_call_arrives_beside_what_the_protocol_says() {
    let street = Street::new();
    street.configure(&json!({"old": plays("meta"), "new": plays("modern-meta")}));
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
        let told: Value = serde_json::from_str(text(&told)).unwrap();
        // What is said in its own place counts before what is said among others.
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
        // Which protocol is spoken is not the caller's to say.
        if !version.is_null() {
            assert_eq!(told["io.modelcontextprotocol/protocolVersion"], version);
        }
        let bare = client.invoke(tool_id, &json!({}));
        assert!(!text(&bare).contains("rung/"), "{bare}");
        assert!(!text(&bare).contains("trace"), "{bare}");
    }
}

/// An address that several servers have is theirs by the name of the server: to be read, and to be listened to.
#[test]
fn an_address_of_two_servers_is_answered_as_it_was_asked() {
    let street = Street::new();
    street.configure(&json!({"a": street.house("a"), "b/c": street.house("b")}));
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
        client.hear(|message| {
            message["method"] == "notifications/resources/updated"
                && message["params"]["uri"] == uri
        });
    }
    assert_eq!(
        (street.times("a", "read"), street.times("b", "read")),
        (1, 1)
    );
}

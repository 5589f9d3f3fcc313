//! Events during a call over stdio: progress, log messages, elicitation, cancellation, tasks.

use std::time::Duration;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::stdio::{StdioClient, modern_meta};

fn start_legacy_client(sandbox: &Sandbox, capabilities: &Value) -> StdioClient {
    let mut client = StdioClient::start(sandbox, &["--conformance"]);
    client.initialize("2025-11-25", capabilities);
    client
}

fn modern_call_params(name: &str, capabilities: &Value) -> Value {
    json!({"name": name, "arguments": {}, "_meta": modern_meta(capabilities)})
}

#[test]
fn progress_grows_carries_its_token_and_comes_before_the_answer() {
    let sandbox = Sandbox::new();
    let mut client = start_legacy_client(&sandbox, &json!({}));
    for token in [json!("abc"), json!(7)] {
        let params = json!({"name": "test_tool_with_progress", "_meta": {"progressToken": token}});
        let id = client.send_request("tools/call", &params);
        let mut last = -1;
        loop {
            let message = client.next_message();
            if message["id"] == id {
                break;
            }
            assert_eq!(message["method"], "notifications/progress");
            assert_eq!(message["params"]["progressToken"], token);
            let done = message["params"]["progress"]
                .as_i64()
                .expect("a whole number stays one");
            assert!(done > last);
            last = done;
        }
        assert_eq!(last, 100);
    }
    // Without a progress token no progress is sent.
    client.request("tools/call", &json!({"name": "test_tool_with_progress"}));
}

#[test]
fn messages_are_told_at_the_level_that_was_asked_for() {
    let sandbox = Sandbox::new();
    let mut client = start_legacy_client(&sandbox, &json!({}));
    let call = json!({"name": "test_tool_with_logging"});
    assert_eq!(
        client.request("logging/setLevel", &json!({"level": "warning"}))["result"],
        json!({})
    );
    client.request("tools/call", &call);
    client.request("logging/setLevel", &json!({"level": "debug"}));
    client.send_request("tools/call", &call);
    for _ in 0..3 {
        let message = client.next_message();
        assert_eq!(message["method"], "notifications/message");
        assert_eq!(message["params"]["level"], "info");
    }
    assert!(client.next_message()["result"].is_object());
    // A modern request sets the log level itself; the default is none.
    client.request(
        "tools/call",
        &modern_call_params("test_logging_tool", &json!({})),
    );
    let mut loud = modern_call_params("test_logging_tool", &json!({}));
    loud["_meta"]["io.modelcontextprotocol/logLevel"] = "info".into();
    client.send_request("tools/call", &loud);
    assert_eq!(client.next_message()["method"], "notifications/message");
}

#[test]
fn a_legacy_client_is_asked_and_its_answer_reaches_the_tool() {
    let sandbox = Sandbox::new();
    let mut client = start_legacy_client(&sandbox, &json!({"elicitation": {}, "sampling": {}}));
    let id = client.send_request(
        "tools/call",
        &json!({"name": "test_elicitation", "arguments": {"message": "Who?"}}),
    );
    let asked = client.next_message();
    assert_eq!(asked["method"], "elicitation/create");
    assert_eq!(asked["params"]["message"], "Who?");
    // Other requests are served meanwhile.
    assert!(client.request("ping", &json!({}))["result"].is_object());
    let answer =
        json!({"action": "accept", "content": {"username": "Ada", "email": "ada@example.org"}});
    client.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": answer}));
    let answered = client.next_message();
    assert_eq!(answered["id"], id);
    assert!(
        answered["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("Ada")
    );
    // An error from the client fails the call and nothing else.
    client.send_request(
        "tools/call",
        &json!({"name": "test_sampling", "arguments": {"prompt": "Say hi"}}),
    );
    let asked = client.next_message();
    assert_eq!(asked["method"], "sampling/createMessage");
    client.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "no model here"}}));
    let failed = client.next_message();
    assert_eq!(failed["result"]["isError"], true);
    assert!(failed.to_string().contains("no model here"));
}

#[test]
fn a_client_that_cannot_be_asked_is_told_so() {
    let sandbox = Sandbox::new();
    let mut client = start_legacy_client(&sandbox, &json!({}));
    let failed = client.request(
        "tools/call",
        &json!({"name": "test_sampling", "arguments": {"prompt": ""}}),
    );
    assert_eq!(
        failed["result"]["structuredContent"]["error"]["code"],
        "missing_capability"
    );
    let refused = client.request(
        "tools/call",
        &modern_call_params("test_missing_capability", &json!({})),
    );
    assert_eq!(refused["error"]["code"], -32021);
    assert_eq!(
        refused["error"]["data"]["requiredCapabilities"],
        json!({"sampling": {}})
    );
    // A client that supports only URL elicitation cannot fill in forms.
    let refused = client.request(
        "tools/call",
        &modern_call_params(
            "test_input_required_result_elicitation",
            &json!({"elicitation": {"url": {}}}),
        ),
    );
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
}

#[test]
fn a_modern_client_comes_back_with_what_it_was_asked_for_round_after_round() {
    let sandbox = Sandbox::new();
    let mut client = StdioClient::start(&sandbox, &["--conformance"]);
    let mut params = modern_call_params(
        "test_input_required_result_multi_round",
        &json!({"elicitation": {}}),
    );
    for (key, content) in [
        ("step1", json!({"name": "Ada"})),
        ("step2", json!({"color": "red"})),
    ] {
        let asked = client.request("tools/call", &params);
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
        assert_eq!(
            asked["result"]["inputRequests"][key]["method"],
            "elicitation/create"
        );
        params["requestState"] = asked["result"]["requestState"].clone();
        params["inputResponses"] = json!({key: {"action": "accept", "content": content}});
    }
    let done = client.request("tools/call", &params);
    assert_eq!(done["result"]["resultType"], "complete");
    let text = done["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("Ada") && text.contains("red"),
        "the answers of all rounds: {text}"
    );

    // The request state is bound to this request, and is authenticated.
    let state = params["requestState"].as_str().unwrap().to_owned();
    let mut flipped = state.clone().into_bytes();
    flipped[10] = if flipped[10] == b'A' { b'B' } else { b'A' };
    for forged in [
        String::from_utf8(flipped).unwrap(),
        state.clone() + "x",
        String::new(),
        "x".repeat(100),
    ] {
        let mut params = params.clone();
        params["requestState"] = forged.into();
        assert_eq!(
            client.request("tools/call", &params)["error"]["code"],
            -32602
        );
    }
    let mut other = modern_call_params(
        "test_input_required_result_elicitation",
        &json!({"elicitation": {}}),
    );
    other["requestState"] = state.into();
    assert_eq!(
        client.request("tools/call", &other)["error"]["code"],
        -32602
    );
}

#[test]
fn a_cancelled_call_stops_and_gets_no_answer() {
    let sandbox = Sandbox::new();
    let mut client = start_legacy_client(&sandbox, &json!({"elicitation": {}}));
    let slow = json!({"name": "slow_compute", "arguments": {"seconds": 60}});
    let modern_slow = json!({"name": "slow_compute", "arguments": {"seconds": 60}, "_meta": modern_meta(&json!({}))});
    for params in [slow, modern_slow] {
        let id = client.send_request("tools/call", &params);
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    }
    // Cancelling a call that waits for the client also cancels its elicitation.
    let id = client.send_request(
        "tools/call",
        &json!({"name": "test_elicitation", "arguments": {"message": "?"}}),
    );
    let asked = client.next_message();
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    let taken_back = client.next_message();
    assert_eq!(taken_back["method"], "notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], asked["id"]);
    assert!(client.is_silent_for(Duration::from_millis(300)));
    // Nothing remains that would keep the process running.
    assert_eq!(client.finish(), (0, vec![]));
}

#[test]
fn a_listener_is_told_what_it_asked_for_and_nothing_else() {
    let sandbox = Sandbox::new();
    let mut client = StdioClient::start(&sandbox, &["--conformance"]);
    let wanted =
        json!({"toolsListChanged": true, "resourceSubscriptions": ["test://watched-resource"]});
    let params = json!({"notifications": wanted, "_meta": modern_meta(&json!({}))});
    let id = client.send_request("subscriptions/listen", &params);
    let first = client.next_message();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], wanted);
    let tag = |message: &Value| {
        message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone()
    };
    assert_eq!(tag(&first), json!(id));
    let call = |name: &str| json!({"name": name, "_meta": modern_meta(&json!({}))});
    for (tool, told) in [
        (
            "test_trigger_tool_change",
            Some("notifications/tools/list_changed"),
        ),
        ("test_trigger_prompt_change", None),
        (
            "test_trigger_resource_update",
            Some("notifications/resources/updated"),
        ),
    ] {
        let call_id = client.send_request("tools/call", &call(tool));
        let mut said = vec![client.next_message()];
        if told.is_some() {
            said.push(client.next_message());
        }
        let answered = said
            .iter()
            .position(|message| message["id"] == call_id)
            .unwrap();
        said.remove(answered);
        assert_eq!(
            said.first().and_then(|message| message["method"].as_str()),
            told
        );
        assert!(said.iter().all(|message| tag(message) == json!(id)));
    }
    // When the input ends, the subscription is completed.
    let (status, rest) = client.finish();
    assert_eq!(status, 0);
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0]["id"], id);
    assert_eq!(rest[0]["result"]["resultType"], "complete");
}

#[test]
fn a_legacy_subscription_is_told_until_it_ends() {
    let sandbox = Sandbox::new();
    let mut client = start_legacy_client(&sandbox, &json!({}));
    let watched = json!({"uri": "test://watched-resource"});
    let trigger = json!({"name": "test_trigger_resource_update"});
    client.request("tools/call", &trigger);
    client.request("resources/subscribe", &watched);
    client.send_request("tools/call", &trigger);
    let said = [client.next_message(), client.next_message()];
    let updated = said
        .iter()
        .find(|message| message["method"] == "notifications/resources/updated");
    assert_eq!(updated.unwrap()["params"], watched);
    let id = client.send_request("resources/unsubscribe", &watched);
    // A change just before the request may still be notified.
    while client.next_message()["id"] != id {}
    client.request("tools/call", &trigger);
    assert!(client.is_silent_for(Duration::from_millis(200)));
}

#[test]
fn a_task_is_followed_answered_and_told_of() {
    let sandbox = Sandbox::new();
    let mut client = StdioClient::start(&sandbox, &["--conformance"]);
    let can = json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    let made = client.request("tools/call", &modern_call_params("multi_input", &can));
    assert_eq!(made["result"]["resultType"], "task");
    let id = made["result"]["taskId"].as_str().unwrap().to_owned();
    let of_task = |extra: Value| {
        let mut params = json!({"taskId": id, "_meta": modern_meta(&can)});
        params
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        params
    };
    // The task asks shortly after its creation.
    let waiting = loop {
        let task = client.request("tasks/get", &of_task(json!({})));
        if task["result"]["status"] != "working" {
            break task;
        }
    };
    assert_eq!(waiting["result"]["status"], "input_required");
    assert_eq!(
        waiting["result"]["inputRequests"]
            .as_object()
            .unwrap()
            .len(),
        2
    );
    let listen = json!({"notifications": {"taskIds": [id]}, "_meta": modern_meta(&can)});
    client.send_request("subscriptions/listen", &listen);
    assert_eq!(
        client.next_message()["params"]["notifications"]["taskIds"],
        json!([id])
    );
    let accept = json!({"action": "accept", "content": {"confirm": true}});
    // A partial answer leaves the task waiting; an answer to an unknown question changes nothing.
    client.send_request(
        "tasks/update",
        &of_task(json!({"inputResponses": {"first": accept, "no_such": accept, "second": 7}})),
    );
    // The state is notified at the start of the subscription, and again now.
    let mut said: Vec<Value> = (0..3).map(|_| client.next_message()).collect();
    said.retain(|message| message["method"] == "notifications/tasks");
    let open = |told: &Value| told["params"]["inputRequests"].as_object().unwrap().len();
    assert_eq!(said.iter().map(open).collect::<Vec<_>>(), [2, 1]);
    assert!(
        said.iter()
            .all(|told| told["params"]["status"] == "input_required")
    );
    client.send_request(
        "tasks/update",
        &of_task(json!({"inputResponses": {"second": accept}})),
    );
    // The acknowledgement and the notification may come in any order.
    let (mut acknowledged, mut completed) = (false, false);
    while !(acknowledged && completed) {
        let message = client.next_message();
        acknowledged |= message["id"].is_u64();
        completed |= message["params"]["status"] == "completed";
    }
    let done = client.request("tasks/get", &of_task(json!({})));
    assert_eq!(done["result"]["result"]["content"][0]["text"], "2 answers");
    assert_eq!(done["result"]["resultType"], "complete");
}

#[test]
fn a_tool_that_breaks_breaks_its_call_alone() {
    let sandbox = Sandbox::new();
    let mut client = start_legacy_client(&sandbox, &json!({}));
    let broken = client.request("tools/call", &json!({"name": "protocol_error_job"}));
    assert_eq!(broken["error"]["code"], -32603);
    assert!(client.request("ping", &json!({}))["result"].is_object());
}

#[test]
fn pages_follow_each_other_to_the_end() {
    let sandbox = Sandbox::new();
    // A small reply budget makes small pages.
    let mut client = StdioClient::start(
        &sandbox,
        &["--conformance", "--set", "reply.max_bytes=4000"],
    );
    client.initialize("2025-11-25", &json!({}));
    let mut names = Vec::new();
    let mut cursor = None;
    let mut pages = 0;
    loop {
        let params = cursor.map_or_else(|| json!({}), |cursor: Value| json!({"cursor": cursor}));
        let line = {
            client.send_request("tools/list", &params);
            client.next_line().unwrap()
        };
        let page: Value = serde_json::from_str(&line).unwrap();
        let tools = page["result"]["tools"].as_array().unwrap();
        assert!(
            line.len() <= 4_000 || tools.len() == 1,
            "{} bytes",
            line.len()
        );
        names.extend(tools.iter().map(|tool| tool["name"].clone()));
        pages += 1;
        match page["result"].get("nextCursor") {
            Some(next) => cursor = Some(next.clone()),
            None => break,
        }
    }
    assert!(pages > 3);
    let mut unique = names.clone();
    unique.dedup();
    assert_eq!(names, unique);
    assert_eq!(names.len(), 38, "every tool, once");
}

const BURST: u64 = 3_000;

#[test]
fn a_client_that_missed_changes_is_notified_that_anything_may_have_changed_and_of_later_ones() {
    let sandbox = Sandbox::new();
    let mut client = start_legacy_client(&sandbox, &json!({}));
    client.request(
        "resources/subscribe",
        &json!({"uri": "test://watched-resource"}),
    );
    let trigger = |name: &str| json!({"name": name});
    let first = client.send_request("tools/call", &trigger("test_trigger_prompt_change"));
    for _ in 1..BURST {
        client.send_request("tools/call", &trigger("test_trigger_prompt_change"));
    }
    let mut answered = 0;
    while answered < BURST {
        answered += u64::from(
            client.next_message()["id"]
                .as_u64()
                .is_some_and(|id| id >= first),
        );
    }
    while !client.is_silent_for(Duration::from_millis(300)) {}
    client.send_request("tools/call", &trigger("test_trigger_resource_update"));
    let said = [client.next_message(), client.next_message()];
    assert!(
        said.iter()
            .any(|message| message["method"] == "notifications/resources/updated")
    );
}

#[test]
fn an_id_may_be_used_again_as_soon_as_its_answer_is_read() {
    let sandbox = Sandbox::new();
    let handle = sandbox.store_result("text/plain", "short");
    let mut client = start_legacy_client(&sandbox, &json!({}));
    let read = json!({"uri": format!("rung://result/{handle}")});
    for _ in 0..500 {
        client.send(
            &json!({"jsonrpc": "2.0", "id": "same", "method": "resources/read", "params": read}),
        );
        let answer = client.next_message();
        assert!(answer["result"].is_object(), "{answer}");
    }
}

#[test]
fn a_question_that_cannot_be_answered_is_not_waited_for() {
    let sandbox = Sandbox::new();
    let mut client = start_legacy_client(&sandbox, &json!({"elicitation": {}}));
    client.send_request(
        "tools/call",
        &json!({"name": "test_elicitation", "arguments": {"message": "?"}}),
    );
    assert_eq!(client.next_message()["method"], "elicitation/create");
    let asked = std::time::Instant::now();
    let (status, rest) = client.finish();
    assert_eq!(status, 0);
    assert_eq!(rest[0]["result"]["isError"], true, "{rest:?}");
    assert!(asked.elapsed() < Duration::from_secs(5));
}

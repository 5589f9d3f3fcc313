//! What happens while a call runs, over stdio: progress, messages, questions, cancellation, tasks.

use std::time::Duration;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::stdio::{Stdio, meta};

fn legacy(sandbox: &Sandbox, capabilities: &Value) -> Stdio {
    let mut client = Stdio::start(sandbox, &["--conformance"]);
    client.initialize("2025-11-25", capabilities);
    client
}

fn called(name: &str, capabilities: &Value) -> Value {
    json!({"name": name, "arguments": {}, "_meta": meta(capabilities)})
}

#[test]
fn progress_grows_carries_its_token_and_comes_before_the_answer() {
    let sandbox = Sandbox::new();
    let mut client = legacy(&sandbox, &json!({}));
    for token in [json!("abc"), json!(7)] {
        let params = json!({"name": "test_tool_with_progress", "_meta": {"progressToken": token}});
        let id = client.begin("tools/call", &params);
        let mut last = -1;
        loop {
            let message = client.next();
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
    // Who does not ask is not told.
    client.request("tools/call", &json!({"name": "test_tool_with_progress"}));
}

#[test]
fn messages_are_told_at_the_level_that_was_asked_for() {
    let sandbox = Sandbox::new();
    let mut client = legacy(&sandbox, &json!({}));
    let call = json!({"name": "test_tool_with_logging"});
    assert_eq!(
        client.request("logging/setLevel", &json!({"level": "warning"}))["result"],
        json!({})
    );
    client.request("tools/call", &call);
    client.request("logging/setLevel", &json!({"level": "debug"}));
    client.begin("tools/call", &call);
    for _ in 0..3 {
        let message = client.next();
        assert_eq!(message["method"], "notifications/message");
        assert_eq!(message["params"]["level"], "info");
    }
    assert!(client.next()["result"].is_object());
    // In the modern era each request says it, and silence is the default.
    client.request("tools/call", &called("test_logging_tool", &json!({})));
    let mut loud = called("test_logging_tool", &json!({}));
    loud["_meta"]["io.modelcontextprotocol/logLevel"] = "info".into();
    client.begin("tools/call", &loud);
    assert_eq!(client.next()["method"], "notifications/message");
}

#[test]
fn a_legacy_client_is_asked_and_its_answer_reaches_the_tool() {
    let sandbox = Sandbox::new();
    let mut client = legacy(&sandbox, &json!({"elicitation": {}, "sampling": {}}));
    let id = client.begin(
        "tools/call",
        &json!({"name": "test_elicitation", "arguments": {"message": "Who?"}}),
    );
    let asked = client.next();
    assert_eq!(asked["method"], "elicitation/create");
    assert_eq!(asked["params"]["message"], "Who?");
    // Other requests are served meanwhile.
    assert!(client.request("ping", &json!({}))["result"].is_object());
    let answer =
        json!({"action": "accept", "content": {"username": "Ada", "email": "ada@example.org"}});
    client.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": answer}));
    let answered = client.next();
    assert_eq!(answered["id"], id);
    assert!(
        answered["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("Ada")
    );
    // A client that answers with an error makes the call fail, and nothing else.
    client.begin(
        "tools/call",
        &json!({"name": "test_sampling", "arguments": {"prompt": "Say hi"}}),
    );
    let asked = client.next();
    assert_eq!(asked["method"], "sampling/createMessage");
    client.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "no model here"}}));
    let failed = client.next();
    assert_eq!(failed["result"]["isError"], true);
    assert!(failed.to_string().contains("no model here"));
}

#[test]
fn a_client_that_cannot_be_asked_is_told_so() {
    let sandbox = Sandbox::new();
    let mut client = legacy(&sandbox, &json!({}));
    let failed = client.request(
        "tools/call",
        &json!({"name": "test_sampling", "arguments": {"prompt": ""}}),
    );
    assert_eq!(
        failed["result"]["structuredContent"]["error"]["code"],
        "missing_capability"
    );
    let refused = client.request("tools/call", &called("test_missing_capability", &json!({})));
    assert_eq!(refused["error"]["code"], -32021);
    assert_eq!(
        refused["error"]["data"]["requiredCapabilities"],
        json!({"sampling": {}})
    );
    // A client that can only visit addresses cannot fill in forms.
    let refused = client.request(
        "tools/call",
        &called(
            "test_input_required_result_elicitation",
            &json!({"elicitation": {"url": {}}}),
        ),
    );
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
}

#[test]
fn a_modern_client_comes_back_with_what_it_was_asked_for_round_after_round() {
    let sandbox = Sandbox::new();
    let mut client = Stdio::start(&sandbox, &["--conformance"]);
    let mut params = called(
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

    // The state belongs to this very request, and to nobody who changes a bit of it.
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
    let mut other = called(
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
    let mut client = legacy(&sandbox, &json!({"elicitation": {}}));
    let slow = json!({"name": "slow_compute", "arguments": {"seconds": 60}});
    let modern_slow =
        json!({"name": "slow_compute", "arguments": {"seconds": 60}, "_meta": meta(&json!({}))});
    for params in [slow, modern_slow] {
        let id = client.begin("tools/call", &params);
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    }
    // A call that waits for an answer takes its question back.
    let id = client.begin(
        "tools/call",
        &json!({"name": "test_elicitation", "arguments": {"message": "?"}}),
    );
    let asked = client.next();
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    let taken_back = client.next();
    assert_eq!(taken_back["method"], "notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], asked["id"]);
    assert!(client.is_silent_for(Duration::from_millis(300)));
    // Nothing is left that would keep the process.
    assert_eq!(client.finish(), (0, vec![]));
}

#[test]
fn a_listener_is_told_what_it_asked_for_and_nothing_else() {
    let sandbox = Sandbox::new();
    let mut client = Stdio::start(&sandbox, &["--conformance"]);
    let wanted =
        json!({"toolsListChanged": true, "resourceSubscriptions": ["test://watched-resource"]});
    let params = json!({"notifications": wanted, "_meta": meta(&json!({}))});
    let id = client.begin("subscriptions/listen", &params);
    let first = client.next();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], wanted);
    let tag = |message: &Value| {
        message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone()
    };
    assert_eq!(tag(&first), json!(id));
    let call = |name: &str| json!({"name": name, "_meta": meta(&json!({}))});
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
        let call_id = client.begin("tools/call", &call(tool));
        let mut said = vec![client.next()];
        if told.is_some() {
            said.push(client.next());
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
    // When we go, it is told that it has ended.
    let (status, rest) = client.finish();
    assert_eq!(status, 0);
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0]["id"], id);
    assert_eq!(rest[0]["result"]["resultType"], "complete");
}

#[test]
fn a_legacy_subscription_is_told_until_it_ends() {
    let sandbox = Sandbox::new();
    let mut client = legacy(&sandbox, &json!({}));
    let watched = json!({"uri": "test://watched-resource"});
    let trigger = json!({"name": "test_trigger_resource_update"});
    client.request("tools/call", &trigger);
    client.request("resources/subscribe", &watched);
    client.begin("tools/call", &trigger);
    let said = [client.next(), client.next()];
    let updated = said
        .iter()
        .find(|message| message["method"] == "notifications/resources/updated");
    assert_eq!(updated.unwrap()["params"], watched);
    let id = client.begin("resources/unsubscribe", &watched);
    // What changed just before it was asked for may be told as well.
    while client.next()["id"] != id {}
    client.request("tools/call", &trigger);
    assert!(client.is_silent_for(Duration::from_millis(200)));
}

#[test]
fn a_task_is_followed_answered_and_told_of() {
    let sandbox = Sandbox::new();
    let mut client = Stdio::start(&sandbox, &["--conformance"]);
    let can = json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    let made = client.request("tools/call", &called("multi_input", &can));
    assert_eq!(made["result"]["resultType"], "task");
    let id = made["result"]["taskId"].as_str().unwrap().to_owned();
    let of_task = |extra: Value| {
        let mut params = json!({"taskId": id, "_meta": meta(&can)});
        params
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        params
    };
    // It asks a moment after it was made.
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
    let listen = json!({"notifications": {"taskIds": [id]}, "_meta": meta(&can)});
    client.begin("subscriptions/listen", &listen);
    assert_eq!(
        client.next()["params"]["notifications"]["taskIds"],
        json!([id])
    );
    let accept = json!({"action": "accept", "content": {"confirm": true}});
    // Half an answer leaves it waiting; an answer to nothing changes nothing.
    client.begin(
        "tasks/update",
        &of_task(json!({"inputResponses": {"first": accept, "no_such": accept, "second": 7}})),
    );
    // It is told where it stands when the listening begins, and again now.
    let mut said: Vec<Value> = (0..3).map(|_| client.next()).collect();
    said.retain(|message| message["method"] == "notifications/tasks");
    let open = |told: &Value| told["params"]["inputRequests"].as_object().unwrap().len();
    assert_eq!(said.iter().map(open).collect::<Vec<_>>(), [2, 1]);
    assert!(
        said.iter()
            .all(|told| told["params"]["status"] == "input_required")
    );
    client.begin(
        "tasks/update",
        &of_task(json!({"inputResponses": {"second": accept}})),
    );
    // The acknowledgement and what is told of the task come in any order.
    let (mut acknowledged, mut completed) = (false, false);
    while !(acknowledged && completed) {
        let message = client.next();
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
    let mut client = legacy(&sandbox, &json!({}));
    let broken = client.request("tools/call", &json!({"name": "protocol_error_job"}));
    assert_eq!(broken["error"]["code"], -32603);
    assert!(client.request("ping", &json!({}))["result"].is_object());
}

#[test]
fn pages_follow_each_other_to_the_end() {
    let sandbox = Sandbox::new();
    // A small budget makes small pages.
    let mut client = Stdio::start(
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
            client.begin("tools/list", &params);
            client.line().unwrap()
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
fn whoever_missed_changes_is_told_that_anything_may_have_changed_and_of_later_ones() {
    let sandbox = Sandbox::new();
    let mut client = legacy(&sandbox, &json!({}));
    client.request(
        "resources/subscribe",
        &json!({"uri": "test://watched-resource"}),
    );
    let trigger = |name: &str| json!({"name": name});
    let first = client.begin("tools/call", &trigger("test_trigger_prompt_change"));
    for _ in 1..BURST {
        client.begin("tools/call", &trigger("test_trigger_prompt_change"));
    }
    let mut answered = 0;
    while answered < BURST {
        answered += u64::from(client.next()["id"].as_u64().is_some_and(|id| id >= first));
    }
    while !client.is_silent_for(Duration::from_millis(300)) {}
    client.begin("tools/call", &trigger("test_trigger_resource_update"));
    let said = [client.next(), client.next()];
    assert!(
        said.iter()
            .any(|message| message["method"] == "notifications/resources/updated")
    );
}

#[test]
fn an_id_may_be_used_again_as_soon_as_its_answer_is_read() {
    let sandbox = Sandbox::new();
    let handle = sandbox.store("text/plain", "short");
    let mut client = legacy(&sandbox, &json!({}));
    let read = json!({"uri": format!("rung://result/{handle}")});
    for _ in 0..500 {
        client.send(
            &json!({"jsonrpc": "2.0", "id": "same", "method": "resources/read", "params": read}),
        );
        let answer = client.next();
        assert!(answer["result"].is_object(), "{answer}");
    }
}

#[test]
fn nobody_waits_for_a_question_that_nobody_will_answer() {
    let sandbox = Sandbox::new();
    let mut client = legacy(&sandbox, &json!({"elicitation": {}}));
    client.begin(
        "tools/call",
        &json!({"name": "test_elicitation", "arguments": {"message": "?"}}),
    );
    assert_eq!(client.next()["method"], "elicitation/create");
    let asked = std::time::Instant::now();
    let (status, rest) = client.finish();
    assert_eq!(status, 0);
    assert_eq!(rest[0]["result"]["isError"], true, "{rest:?}");
    assert!(asked.elapsed() < Duration::from_secs(5));
}

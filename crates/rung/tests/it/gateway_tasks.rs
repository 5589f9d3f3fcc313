//! Calls that run as tasks at downstream servers, both legacy and modern.

use serde_json::{Value, json};

use crate::gateway::{
    GatewayClient, GatewayFixture, LegacyHttpSession, first_text, reply_data, tool_error, with_role,
};
use crate::stdio::{StdioClient, modern_meta};

fn begin_task(session: &LegacyHttpSession<'_>) -> Value {
    let begun = session.call(
        "gateway.invoke",
        &json!({"tool_id": "works::a", "task": {"ttl": 60}}),
    );
    reply_data(&begun)
}

const TASK_ARGUMENTS: &str = r#"{"server_name": "works", "task_id": "t1"}"#;

fn task_arguments() -> Value {
    serde_json::from_str(TASK_ARGUMENTS).unwrap()
}

#[test]
fn a_task_is_begun_listed_looked_at_and_its_result_fetched() {
    for part in ["tasks", "modern-tasks"] {
        let street = GatewayFixture::new();
        street.configure(&json!({"works": with_role(part)}));
        let alice = street.create_token("alice");
        let server = street.http_server(&[]);
        let alice = LegacyHttpSession::open(&server, Some(&alice));
        let begun = begin_task(&alice);
        assert_eq!(
            (&begun["task"]["task_id"], &begun["task"]["status"]),
            (&json!("t1"), &json!("working")),
            "{part}: {begun}"
        );
        let listed = alice.call("gateway.tasks_list", &json!({}));
        let listed = reply_data(&listed);
        let [task] = listed["tasks"].as_array().unwrap().as_slice() else {
            panic!("{part}: {listed}");
        };
        assert_eq!(
            (&task["task_id"], &task["tool_id"]),
            (&json!("t1"), &json!("works::a"))
        );
        let looked = alice.call("gateway.tasks_get", &task_arguments());
        assert_eq!(
            reply_data(&looked)["task"]["status"],
            "working",
            "{part}: {looked}"
        );
        let result = alice.call("gateway.tasks_result", &task_arguments());
        assert_eq!(first_text(&result), "in the end", "{part}: {result}");
        assert_eq!(result["_meta"]["rung/call"]["tool_id"], "works::a");
        let listed = alice.call("gateway.tasks_list", &json!({"server_name": "works"}));
        assert_eq!(
            reply_data(&listed)["tasks"][0]["status"],
            "completed",
            "{part}: {listed}"
        );
        let over = alice.call("gateway.tasks_cancel", &task_arguments());
        assert_eq!(tool_error(&over)["code"], "not_found", "{part}: {over}");
    }
}

#[test]
fn the_task_of_another_client_is_as_one_that_is_not_there() {
    for part in ["tasks", "modern-tasks"] {
        let street = GatewayFixture::new();
        street.configure(&json!({"works": with_role(part)}));
        let (alice, bob) = (street.create_token("alice"), street.create_token("bob"));
        let server = street.http_server(&[]);
        let alice = LegacyHttpSession::open(&server, Some(&alice));
        let bob = LegacyHttpSession::open(&server, Some(&bob));
        begin_task(&alice);
        let listed = bob.call("gateway.tasks_list", &json!({}));
        assert_eq!(reply_data(&listed)["tasks"], json!([]), "{part}: {listed}");
        for tool in [
            "gateway.tasks_get",
            "gateway.tasks_result",
            "gateway.tasks_cancel",
        ] {
            let denied = bob.call(tool, &task_arguments());
            assert_eq!(
                tool_error(&denied)["code"],
                "unknown_task",
                "{part} {tool}: {denied}"
            );
        }
        let refused = bob.call(
            "gateway.disconnect_server",
            &json!({"server_name": "works", "force": true}),
        );
        assert_eq!(
            tool_error(&refused)["code"],
            "work_pending",
            "{part}: {refused}"
        );
        let cancelled = alice.call("gateway.tasks_cancel", &task_arguments());
        assert_eq!(
            reply_data(&cancelled)["status"],
            "cancelled",
            "{part}: {cancelled}"
        );
    }
}

/// Servers number their tasks, so two unshared instances use the same ids.
#[test]
fn tasks_of_two_clients_servers_are_two_whatever_they_are_called() {
    let street = GatewayFixture::new();
    let mut works = with_role("tasks-last");
    works["sharing"] = "client".into();
    street.configure(&json!({"works": works}));
    let (alice, bob) = (street.create_token("alice"), street.create_token("bob"));
    let server = street.http_server(&[]);
    let alice = LegacyHttpSession::open(&server, Some(&alice));
    let bob = LegacyHttpSession::open(&server, Some(&bob));
    begin_task(&alice);
    begin_task(&bob);
    let stopped = bob.call("gateway.tasks_cancel", &task_arguments());
    assert_eq!(reply_data(&stopped)["status"], "cancelled", "{stopped}");
    let looked = alice.call("gateway.tasks_get", &task_arguments());
    assert_eq!(reply_data(&looked)["task"]["status"], "working", "{looked}");
    let listed = alice.call("gateway.tasks_list", &json!({}));
    let listed = reply_data(&listed);
    let tasks = listed["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 1, "{listed}");
}

/// Waiting for a task is an active call: it is listed with the task, and cancelling it does not cancel the task.
#[test]
fn a_wait_for_a_task_is_listed_and_ended_and_the_task_goes_on() {
    let street = GatewayFixture::new();
    street.configure(&json!({"works": street.traced_role("tasks-last", "works")}));
    let mut client = street.client(&[]);
    client.call(
        "gateway.invoke",
        &json!({"tool_id": "works::a", "task": {"ttl": 60}}),
    );
    let waiting = client.send_call("gateway.tasks_result", &task_arguments());
    street.wait_for_trace("works", "tasks/get", 2);
    let listed = client.call("gateway.list_pending", &json!({}));
    let request = &reply_data(&listed)["requests"][0];
    assert_eq!(
        (&request["task_id"], &request["task_status"]),
        (&json!("t1"), &json!("working")),
        "{listed}"
    );
    assert_eq!(request["tool_id"], "works::a");
    let ended = client.call(
        "gateway.cancel",
        &json!({"request_id": request["request_id"], "force": true}),
    );
    assert_eq!(reply_data(&ended)["status"], "cancelled", "{ended}");
    let told = client.wait_for_reply(waiting);
    assert_eq!(
        tool_error(&told["result"])["code"],
        "call_cancelled",
        "{told}"
    );
    assert_eq!(street.trace_count("works", "tasks/cancel"), 0);
    let looked = client.call("gateway.tasks_get", &task_arguments());
    assert_eq!(reply_data(&looked)["task"]["status"], "working", "{looked}");
}

#[test]
fn a_server_with_a_task_is_stopped_with_force_alone() {
    let street = GatewayFixture::new();
    street.configure(&json!({"works": with_role("tasks")}));
    let mut client = street.client(&[]);
    let begun = client.call(
        "gateway.invoke",
        &json!({"tool_id": "works::a", "task": {}}),
    );
    assert_eq!(reply_data(&begun)["task"]["task_id"], "t1", "{begun}");
    let refused = client.call(
        "gateway.disconnect_server",
        &json!({"server_name": "works"}),
    );
    assert_eq!(tool_error(&refused)["code"], "work_pending", "{refused}");
    let stopped = client.call(
        "gateway.disconnect_server",
        &json!({"server_name": "works", "force": true}),
    );
    let stopped = &reply_data(&stopped);
    assert_eq!(
        (
            &stopped["active_task_count"],
            &stopped["cancelled_task_count"]
        ),
        (&json!(1), &json!(1)),
        "{stopped}"
    );
    let listed = client.call("gateway.tasks_list", &json!({}));
    assert_eq!(reply_data(&listed)["tasks"], json!([]));
}

/// Without a request for a task the caller gets the result, even if the server creates a task.
#[test]
fn without_a_wish_for_a_task_the_result_comes_by_itself() {
    for (part, said) in [("tasks", "at once"), ("modern-tasks", "in the end")] {
        let street = GatewayFixture::new();
        street.configure(&json!({"works": with_role(part)}));
        let mut client = street.client(&[]);
        let done = client.invoke("works::a", &json!({}));
        assert_eq!(first_text(&done), said, "{part}: {done}");
    }
}

const ASKING_ROLES: [&str; 2] = ["tasks-ask", "modern-tasks-ask"];

fn fixture_with_role(part: &str) -> GatewayFixture {
    let street = GatewayFixture::new();
    street.configure(&json!({"works": street.traced_role(part, "works")}));
    street
}

/// Returns true if no request from the server is unanswered.
fn has_no_open_question(client: &GatewayClient) -> bool {
    client
        .unsolicited
        .iter()
        .all(|said| said.get("id").is_none())
}

/// Answers the question for a room and returns the awaited result.
fn answer_room_question(client: &mut GatewayClient, waiting: u64) -> Value {
    let asked = client.wait_for_message(|message| message["method"] == "elicitation/create");
    assert_eq!(asked["params"]["message"], "Which room?", "{asked}");
    assert!(
        !asked.to_string().contains("t1"),
        "no task of theirs: {asked}"
    );
    let result = json!({"action": "accept", "content": {"room": "seven"}});
    client
        .stdio
        .send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
    client.wait_for_reply(waiting)["result"].clone()
}

fn task_call() -> Value {
    json!({"tool_id": "works::a", "task": {}})
}

#[test]
fn a_question_of_a_task_goes_to_the_client_that_waits_for_its_result() {
    for part in ASKING_ROLES {
        let street = fixture_with_role(part);
        let mut client = street.client_with_capabilities(&[], &json!({"elicitation": {}}));
        let begun = client.call("gateway.invoke", &task_call());
        assert_eq!(
            reply_data(&begun)["task"]["status"],
            "working",
            "{part}: {begun}"
        );
        let looked = client.call("gateway.tasks_get", &task_arguments());
        assert_eq!(
            reply_data(&looked)["task"]["status"],
            "input_required",
            "{part}: {looked}"
        );
        assert!(has_no_open_question(&client), "{:?}", client.unsolicited);
        let waiting = client.send_call("gateway.tasks_result", &task_arguments());
        let result = answer_room_question(&mut client, waiting);
        assert!(first_text(&result).contains("seven"), "{part}: {result}");
        assert_eq!(result["_meta"]["rung/call"]["tool_id"], "works::a");
        assert!(
            has_no_open_question(&client),
            "once: {:?}",
            client.unsolicited
        );
    }
}

#[test]
fn what_a_task_asks_is_asked_of_a_modern_client_as_well() {
    for part in ASKING_ROLES {
        let street = fixture_with_role(part);
        let mut client = StdioClient::spawn(&mut street.command(&[]));
        let can = modern_meta(&json!({"elicitation": {}}));
        let call = json!({"name": "gateway.invoke", "arguments": task_call(), "_meta": can});
        let begun = client.request("tools/call", &call)["result"].clone();
        assert_eq!(
            reply_data(&begun)["task"]["task_id"],
            "t1",
            "{part}: {begun}"
        );
        let mut wait =
            json!({"name": "gateway.tasks_result", "arguments": task_arguments(), "_meta": can});
        let asked = client.request("tools/call", &wait)["result"].clone();
        assert_eq!(asked["resultType"], "input_required", "{part}: {asked}");
        let questions = asked["inputRequests"].as_object().unwrap();
        let key = questions.keys().next().unwrap();
        wait["requestState"] = asked["requestState"].clone();
        wait["inputResponses"] = json!({key: {"action": "accept", "content": {"room": "seven"}}});
        let result = client.request("tools/call", &wait)["result"].clone();
        assert!(first_text(&result).contains("seven"), "{part}: {result}");
    }
}

/// The wait fails at once, and the task waits for a client that can answer.
#[test]
fn a_question_of_a_task_to_a_client_without_elicitation_fails_at_once() {
    for part in ASKING_ROLES {
        let street = fixture_with_role(part);
        let mut client = street.client(&[]);
        client.call("gateway.invoke", &task_call());
        let looked = client.call("gateway.tasks_get", &task_arguments());
        let task = &reply_data(&looked)["task"];
        assert_eq!(task["status"], "input_required", "{part}: {looked}");
        let result = client.call("gateway.tasks_result", &task_arguments());
        if part.starts_with("modern") {
            let asks = &task["input_requests"]["room"]["params"]["message"];
            assert_eq!(asks, "Which room?", "{looked}");
            let told = tool_error(&result);
            assert_eq!(told["code"], "missing_capability", "{told}");
            assert!(told.to_string().contains("elicitation/create"), "{told}");
            let still = client.call("gateway.tasks_get", &task_arguments());
            assert_eq!(&reply_data(&still)["task"], task);
        } else {
            // The server got a negative answer and ended the task.
            assert!(!result.to_string().contains("accept"), "{result}");
            assert_eq!(street.trace_count("works", "answered"), 1);
        }
        assert_eq!(street.trace_count("works", "tasks/cancel"), 0, "{part}");
        assert!(
            has_no_open_question(&client),
            "{part}: {:?}",
            client.unsolicited
        );
    }
}

/// On stdio a server's request names no call. A client with other active calls does not get it.
#[test]
fn a_question_of_a_task_goes_to_its_owner_alone() {
    let can = json!({"elicitation": {}});
    // The task's owner waits for it, while another client has a call active.
    let street = fixture_with_role("tasks-ask-one");
    let mut alice = street.client_with_capabilities(&[], &can);
    let mut bob = street.client_with_capabilities(&[], &can);
    alice.call("gateway.invoke", &task_call());
    bob.send_invoke("works::a", &json!({}));
    street.wait_for_trace("works", "tools/call", 2);
    let waiting = alice.send_call("gateway.tasks_result", &task_arguments());
    let result = answer_room_question(&mut alice, waiting);
    assert!(first_text(&result).contains("seven"), "{result}");
    // Only another client has a call active.
    let street = fixture_with_role("tasks-ask-aloud");
    let mut alice = street.client_with_capabilities(&[], &can);
    let mut bob = street.client_with_capabilities(&[], &can);
    alice.call("gateway.invoke", &task_call());
    let done = bob.invoke("works::a", &json!({}));
    assert_eq!(first_text(&done), "null", "{done}");
    assert!(has_no_open_question(&bob), "{:?}", bob.unsolicited);
}

#[test]
fn a_task_of_a_shared_server_never_receives_roots() {
    for (sharing, told) in [("client", true), ("shared", false)] {
        let street = GatewayFixture::new();
        let mut works = with_role("tasks-ask-folders");
        works["sharing"] = sharing.into();
        street.configure(&json!({"works": works}));
        let mut client = street.client_with_capabilities(&[], &json!({"roots": {}}));
        client.call("gateway.invoke", &task_call());
        let waiting = client.send_call("gateway.tasks_result", &task_arguments());
        if told {
            let asked = client.wait_for_message(|message| message["method"] == "roots/list");
            let result = json!({"roots": [{"uri": "file:///work"}]});
            client
                .stdio
                .send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
        }
        let result = client.wait_for_reply(waiting)["result"].clone();
        assert_eq!(
            first_text(&result).contains("file:///work"),
            told,
            "{sharing}: {result}"
        );
        assert!(
            has_no_open_question(&client),
            "{sharing}: {:?}",
            client.unsolicited
        );
    }
}

/// The server's data about a task is complete and unchanged.
#[test]
fn a_task_is_told_with_everything_its_server_says() {
    let street = GatewayFixture::new();
    street.configure(&json!({"works": with_role("tasks")}));
    let mut client = street.client(&[]);
    client.call("gateway.invoke", &task_call());
    let connected = client.call("gateway.connect_server", &json!({"server_name": "works"}));
    assert_eq!(
        reply_data(&connected)["active_task_count"],
        1,
        "{connected}"
    );
    let looked = client.call("gateway.tasks_get", &task_arguments());
    let task = &reply_data(&looked)["task"];
    assert_eq!(
        (&task["raw"], &task["unusable_fields"]),
        (&json!({"vendor": 1}), &Value::Null),
        "{looked}"
    );
    let listed = client.call("gateway.tasks_list", &json!({}));
    let task = &reply_data(&listed)["tasks"][0];
    assert_eq!(task["raw"]["vendor"], 1, "{listed}");
    let result = client.call("gateway.tasks_result", &task_arguments());
    let said = &result["_meta"]["rung/call"];
    assert_eq!(
        said["task"],
        json!({"task_id": "t1", "status": "completed"}),
        "{result}"
    );
    let street = GatewayFixture::new();
    street.configure(&json!({"works": with_role("tasks-last")}));
    let mut client = street.client(&[]);
    client.call("gateway.invoke", &task_call());
    let told = client.call("gateway.tasks_cancel", &task_arguments());
    let said = &reply_data(&told);
    assert_eq!(said["status"], said["task"]["status"], "{told}");
    assert!(said["message"].as_str().unwrap().contains("t1"), "{told}");
}

/// A wait that times out reports that the task continues.
#[test]
fn a_task_outlives_the_wait_for_it() {
    let street = GatewayFixture::new();
    street.configure(&json!({"works": street.traced_role("tasks-last", "works")}));
    let mut client = street.client(&[]);
    client.call("gateway.invoke", &task_call());
    let waiting = |ms: u64| {
        let mut wait = task_arguments();
        wait["options"] = json!({"timeout_ms": ms});
        wait
    };
    let refused = client.call("gateway.tasks_result", &waiting(1));
    assert_eq!(
        tool_error(&refused)["code"],
        "invalid_arguments",
        "{refused}"
    );
    assert_eq!(
        tool_error(&refused)["details"]["path"],
        "options.timeout_ms",
        "{refused}"
    );
    let late = client.call("gateway.tasks_result", &waiting(1_000));
    let told = tool_error(&late);
    assert_eq!(told["code"], "deadline_exceeded", "{late}");
    assert!(
        told["message"].as_str().unwrap().contains("it continues"),
        "{late}"
    );
    assert!(!late.to_string().contains("asked to cancel"), "{late}");
    assert_eq!(street.trace_count("works", "tasks/cancel"), 0);
    let looked = client.call("gateway.tasks_get", &task_arguments());
    assert_eq!(reply_data(&looked)["task"]["status"], "working", "{looked}");
}

#[test]
fn a_server_that_does_not_listen_is_stopped_soon() {
    let street = GatewayFixture::new();
    street.configure(&json!({"works": with_role("tasks-deaf")}));
    let mut client = street.client(&[]);
    client.call("gateway.invoke", &task_call());
    let began = std::time::Instant::now();
    let stopped = client.call(
        "gateway.disconnect_server",
        &json!({"server_name": "works", "force": true}),
    );
    let said = &reply_data(&stopped);
    assert_eq!(
        (&said["active_task_count"], &said["cancelled_task_count"]),
        (&json!(1), &json!(0)),
        "{stopped}"
    );
    assert!(began.elapsed() < std::time::Duration::from_secs(20));
}

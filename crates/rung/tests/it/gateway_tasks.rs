//! Calls that go on as tasks at their servers, of both kinds.

use serde_json::{Value, json};

use crate::gateway::{Client, Session, Street, error, plays, text};
use crate::stdio::{Stdio, meta};

fn begin(session: &Session<'_>) -> Value {
    let begun = session.call(
        "gateway.invoke",
        &json!({"tool_id": "works::a", "task": {"ttl": 60}}),
    );
    begun["structuredContent"].clone()
}

const NAMED: &str = r#"{"server_name": "works", "task_id": "t1"}"#;

fn named() -> Value {
    serde_json::from_str(NAMED).unwrap()
}

#[test]
fn a_task_is_begun_listed_looked_at_and_its_result_fetched() {
    for part in ["tasks", "modern-tasks"] {
        let street = Street::new();
        street.configure(&json!({"works": plays(part)}));
        let alice = street.token("alice");
        let server = street.listening(&[]);
        let alice = Session::open(&server, Some(&alice));
        let begun = begin(&alice);
        assert_eq!(
            (&begun["task"]["task_id"], &begun["task"]["status"]),
            (&json!("t1"), &json!("working")),
            "{part}: {begun}"
        );
        let listed = alice.call("gateway.tasks_list", &json!({}));
        let [task] = listed["structuredContent"]["tasks"]
            .as_array()
            .unwrap()
            .as_slice()
        else {
            panic!("{part}: {listed}");
        };
        assert_eq!(
            (&task["task_id"], &task["tool_id"]),
            (&json!("t1"), &json!("works::a"))
        );
        let looked = alice.call("gateway.tasks_get", &named());
        assert_eq!(
            looked["structuredContent"]["task"]["status"], "working",
            "{part}: {looked}"
        );
        let result = alice.call("gateway.tasks_result", &named());
        assert_eq!(text(&result), "in the end", "{part}: {result}");
        assert_eq!(result["_meta"]["rung/call"]["tool_id"], "works::a");
        let listed = alice.call("gateway.tasks_list", &json!({"server_name": "works"}));
        assert_eq!(
            listed["structuredContent"]["tasks"][0]["status"], "completed",
            "{part}: {listed}"
        );
        let over = alice.call("gateway.tasks_cancel", &named());
        assert_eq!(error(&over)["code"], "not_found", "{part}: {over}");
    }
}

#[test]
fn the_task_of_another_client_is_as_one_that_is_not_there() {
    for part in ["tasks", "modern-tasks"] {
        let street = Street::new();
        street.configure(&json!({"works": plays(part)}));
        let (alice, bob) = (street.token("alice"), street.token("bob"));
        let server = street.listening(&[]);
        let alice = Session::open(&server, Some(&alice));
        let bob = Session::open(&server, Some(&bob));
        begin(&alice);
        let listed = bob.call("gateway.tasks_list", &json!({}));
        assert_eq!(
            listed["structuredContent"]["tasks"],
            json!([]),
            "{part}: {listed}"
        );
        for tool in [
            "gateway.tasks_get",
            "gateway.tasks_result",
            "gateway.tasks_cancel",
        ] {
            let denied = bob.call(tool, &named());
            assert_eq!(
                error(&denied)["code"],
                "unknown_task",
                "{part} {tool}: {denied}"
            );
        }
        let refused = bob.call(
            "gateway.disconnect_server",
            &json!({"server_name": "works", "force": true}),
        );
        assert_eq!(error(&refused)["code"], "work_pending", "{part}: {refused}");
        let cancelled = alice.call("gateway.tasks_cancel", &named());
        assert_eq!(
            cancelled["structuredContent"]["status"], "cancelled",
            "{part}: {cancelled}"
        );
    }
}

/// Servers count their tasks, and one that is each client's own counts from the beginning for each.
#[test]
fn tasks_of_two_clients_servers_are_two_whatever_they_are_called() {
    let street = Street::new();
    let mut works = plays("tasks-last");
    works["sharing"] = "client".into();
    street.configure(&json!({"works": works}));
    let (alice, bob) = (street.token("alice"), street.token("bob"));
    let server = street.listening(&[]);
    let alice = Session::open(&server, Some(&alice));
    let bob = Session::open(&server, Some(&bob));
    begin(&alice);
    begin(&bob);
    let stopped = bob.call("gateway.tasks_cancel", &named());
    assert_eq!(
        stopped["structuredContent"]["status"], "cancelled",
        "{stopped}"
    );
    let looked = alice.call("gateway.tasks_get", &named());
    assert_eq!(
        looked["structuredContent"]["task"]["status"], "working",
        "{looked}"
    );
    let listed = alice.call("gateway.tasks_list", &json!({}));
    let tasks = listed["structuredContent"]["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 1, "{listed}");
}

/// Waiting for a task is a call under way: it is listed with the task, and ended without the task.
#[test]
fn a_wait_for_a_task_is_listed_and_ended_and_the_task_goes_on() {
    let street = Street::new();
    street.configure(&json!({"works": street.traced("tasks-last", "works")}));
    let mut client = street.client(&[]);
    client.call(
        "gateway.invoke",
        &json!({"tool_id": "works::a", "task": {"ttl": 60}}),
    );
    let waiting = client.begin("gateway.tasks_result", &named());
    street.wait_for("works", "tasks/get", 2);
    let listed = client.call("gateway.list_pending", &json!({}));
    let request = &listed["structuredContent"]["requests"][0];
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
    assert_eq!(ended["structuredContent"]["status"], "cancelled", "{ended}");
    let told = client.answer(waiting);
    assert_eq!(error(&told["result"])["code"], "call_cancelled", "{told}");
    assert_eq!(street.times("works", "tasks/cancel"), 0);
    let looked = client.call("gateway.tasks_get", &named());
    assert_eq!(
        looked["structuredContent"]["task"]["status"], "working",
        "{looked}"
    );
}

#[test]
fn a_server_with_a_task_is_stopped_with_force_alone() {
    let street = Street::new();
    street.configure(&json!({"works": plays("tasks")}));
    let mut client = street.client(&[]);
    let begun = client.call(
        "gateway.invoke",
        &json!({"tool_id": "works::a", "task": {}}),
    );
    assert_eq!(
        begun["structuredContent"]["task"]["task_id"], "t1",
        "{begun}"
    );
    let refused = client.call(
        "gateway.disconnect_server",
        &json!({"server_name": "works"}),
    );
    assert_eq!(error(&refused)["code"], "work_pending", "{refused}");
    let stopped = client.call(
        "gateway.disconnect_server",
        &json!({"server_name": "works", "force": true}),
    );
    let stopped = &stopped["structuredContent"];
    assert_eq!(
        (
            &stopped["active_task_count"],
            &stopped["cancelled_task_count"]
        ),
        (&json!(1), &json!(1)),
        "{stopped}"
    );
    let listed = client.call("gateway.tasks_list", &json!({}));
    assert_eq!(listed["structuredContent"]["tasks"], json!([]));
}

/// Whoever wants no task gets the result, whatever the server makes of it.
#[test]
fn without_a_wish_for_a_task_the_result_comes_by_itself() {
    for (part, said) in [("tasks", "at once"), ("modern-tasks", "in the end")] {
        let street = Street::new();
        street.configure(&json!({"works": plays(part)}));
        let mut client = street.client(&[]);
        let done = client.invoke("works::a", &json!({}));
        assert_eq!(text(&done), said, "{part}: {done}");
    }
}

const ASKING: [&str; 2] = ["tasks-ask", "modern-tasks-ask"];

fn asking_street(part: &str) -> Street {
    let street = Street::new();
    street.configure(&json!({"works": street.traced(part, "works")}));
    street
}

/// Whether there is no question that was not answered.
fn is_asked_nothing(client: &Client) -> bool {
    client.heard.iter().all(|said| said.get("id").is_none())
}

/// Says which room, and gives the result that was waited for.
fn answer_room(client: &mut Client, waiting: u64) -> Value {
    let asked = client.hear(|message| message["method"] == "elicitation/create");
    assert_eq!(asked["params"]["message"], "Which room?", "{asked}");
    assert!(
        !asked.to_string().contains("t1"),
        "no task of theirs: {asked}"
    );
    let result = json!({"action": "accept", "content": {"room": "seven"}});
    client
        .stdio
        .send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
    client.answer(waiting)["result"].clone()
}

fn wish() -> Value {
    json!({"tool_id": "works::a", "task": {}})
}

#[test]
fn what_a_task_asks_is_asked_of_whoever_waits_for_its_result() {
    for part in ASKING {
        let street = asking_street(part);
        let mut client = street.client_that_can(&[], &json!({"elicitation": {}}));
        let begun = client.call("gateway.invoke", &wish());
        assert_eq!(
            begun["structuredContent"]["task"]["status"], "working",
            "{part}: {begun}"
        );
        let looked = client.call("gateway.tasks_get", &named());
        assert_eq!(
            looked["structuredContent"]["task"]["status"], "input_required",
            "{part}: {looked}"
        );
        assert!(is_asked_nothing(&client), "{:?}", client.heard);
        let waiting = client.begin("gateway.tasks_result", &named());
        let result = answer_room(&mut client, waiting);
        assert!(text(&result).contains("seven"), "{part}: {result}");
        assert_eq!(result["_meta"]["rung/call"]["tool_id"], "works::a");
        assert!(is_asked_nothing(&client), "once: {:?}", client.heard);
    }
}

#[test]
fn what_a_task_asks_is_asked_of_a_modern_client_as_well() {
    for part in ASKING {
        let street = asking_street(part);
        let mut client = Stdio::of(&mut street.command(&[]));
        let can = meta(&json!({"elicitation": {}}));
        let call = json!({"name": "gateway.invoke", "arguments": wish(), "_meta": can});
        let begun = client.request("tools/call", &call)["result"].clone();
        assert_eq!(
            begun["structuredContent"]["task"]["task_id"], "t1",
            "{part}: {begun}"
        );
        let mut wait = json!({"name": "gateway.tasks_result", "arguments": named(), "_meta": can});
        let asked = client.request("tools/call", &wait)["result"].clone();
        assert_eq!(asked["resultType"], "input_required", "{part}: {asked}");
        let questions = asked["inputRequests"].as_object().unwrap();
        let key = questions.keys().next().unwrap();
        wait["requestState"] = asked["requestState"].clone();
        wait["inputResponses"] = json!({key: {"action": "accept", "content": {"room": "seven"}}});
        let result = client.request("tools/call", &wait)["result"].clone();
        assert!(text(&result).contains("seven"), "{part}: {result}");
    }
}

/// Nobody hangs, and the task waits for whoever can answer.
#[test]
fn what_a_task_asks_of_a_client_that_takes_no_questions_is_told_and_not_awaited() {
    for part in ASKING {
        let street = asking_street(part);
        let mut client = street.client(&[]);
        client.call("gateway.invoke", &wish());
        let looked = client.call("gateway.tasks_get", &named());
        let task = &looked["structuredContent"]["task"];
        assert_eq!(task["status"], "input_required", "{part}: {looked}");
        let result = client.call("gateway.tasks_result", &named());
        if part.starts_with("modern") {
            let asks = &task["input_requests"]["room"]["params"]["message"];
            assert_eq!(asks, "Which room?", "{looked}");
            let told = error(&result);
            assert_eq!(told["code"], "missing_capability", "{told}");
            assert!(told.to_string().contains("elicitation/create"), "{told}");
            let still = client.call("gateway.tasks_get", &named());
            assert_eq!(&still["structuredContent"]["task"], task);
        } else {
            // It was told that there is no answer, and ended by itself.
            assert!(!result.to_string().contains("accept"), "{result}");
            assert_eq!(street.times("works", "answered"), 1);
        }
        assert_eq!(street.times("works", "tasks/cancel"), 0, "{part}");
        assert!(is_asked_nothing(&client), "{part}: {:?}", client.heard);
    }
}

/// On a pipe, questions come with no request. Who is in the middle of something else is not asked them.
#[test]
fn what_a_task_asks_is_asked_of_nobody_but_its_owner() {
    let can = json!({"elicitation": {}});
    // While its owner waits for it, and somebody for something else.
    let street = asking_street("tasks-ask-one");
    let mut alice = street.client_that_can(&[], &can);
    let mut bob = street.client_that_can(&[], &can);
    alice.call("gateway.invoke", &wish());
    bob.begin_invoke("works::a", &json!({}));
    street.wait_for("works", "tools/call", 2);
    let waiting = alice.begin("gateway.tasks_result", &named());
    let result = answer_room(&mut alice, waiting);
    assert!(text(&result).contains("seven"), "{result}");
    // While nobody waits but somebody else.
    let street = asking_street("tasks-ask-aloud");
    let mut alice = street.client_that_can(&[], &can);
    let mut bob = street.client_that_can(&[], &can);
    alice.call("gateway.invoke", &wish());
    let done = bob.invoke("works::a", &json!({}));
    assert_eq!(text(&done), "null", "{done}");
    assert!(is_asked_nothing(&bob), "{:?}", bob.heard);
}

#[test]
fn a_task_of_a_server_that_is_everybodys_is_not_told_anybodys_folders() {
    for (sharing, told) in [("client", true), ("shared", false)] {
        let street = Street::new();
        let mut works = plays("tasks-ask-folders");
        works["sharing"] = sharing.into();
        street.configure(&json!({"works": works}));
        let mut client = street.client_that_can(&[], &json!({"roots": {}}));
        client.call("gateway.invoke", &wish());
        let waiting = client.begin("gateway.tasks_result", &named());
        if told {
            let asked = client.hear(|message| message["method"] == "roots/list");
            let result = json!({"roots": [{"uri": "file:///work"}]});
            client
                .stdio
                .send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
        }
        let result = client.answer(waiting)["result"].clone();
        assert_eq!(
            text(&result).contains("file:///work"),
            told,
            "{sharing}: {result}"
        );
        assert!(is_asked_nothing(&client), "{sharing}: {:?}", client.heard);
    }
}

/// Nothing of what a server says of a task is lost, and what is said of it is true.
#[test]
fn a_task_is_told_with_everything_its_server_says() {
    let street = Street::new();
    street.configure(&json!({"works": plays("tasks")}));
    let mut client = street.client(&[]);
    client.call("gateway.invoke", &wish());
    let connected = client.call("gateway.connect_server", &json!({"server_name": "works"}));
    assert_eq!(
        connected["structuredContent"]["active_task_count"], 1,
        "{connected}"
    );
    let looked = client.call("gateway.tasks_get", &named());
    let task = &looked["structuredContent"]["task"];
    assert_eq!(
        (&task["raw"], &task["unusable_fields"]),
        (&json!({"vendor": 1}), &Value::Null),
        "{looked}"
    );
    let listed = client.call("gateway.tasks_list", &json!({}));
    let task = &listed["structuredContent"]["tasks"][0];
    assert_eq!(task["raw"]["vendor"], 1, "{listed}");
    let result = client.call("gateway.tasks_result", &named());
    let said = &result["_meta"]["rung/call"];
    assert_eq!(
        said["task"],
        json!({"task_id": "t1", "status": "completed"}),
        "{result}"
    );
    let street = Street::new();
    street.configure(&json!({"works": plays("tasks-last")}));
    let mut client = street.client(&[]);
    client.call("gateway.invoke", &wish());
    let told = client.call("gateway.tasks_cancel", &named());
    let said = &told["structuredContent"];
    assert_eq!(said["status"], said["task"]["status"], "{told}");
    assert!(said["message"].as_str().unwrap().contains("t1"), "{told}");
}

/// Whoever does not wait long enough is told that the task goes on.
#[test]
fn a_task_outlives_the_wait_for_it() {
    let street = Street::new();
    street.configure(&json!({"works": street.traced("tasks-last", "works")}));
    let mut client = street.client(&[]);
    client.call("gateway.invoke", &wish());
    let waiting = |ms: u64| {
        let mut wait = named();
        wait["options"] = json!({"timeout_ms": ms});
        wait
    };
    let refused = client.call("gateway.tasks_result", &waiting(1));
    assert_eq!(error(&refused)["code"], "invalid_arguments", "{refused}");
    assert_eq!(
        error(&refused)["details"]["path"],
        "options.timeout_ms",
        "{refused}"
    );
    let late = client.call("gateway.tasks_result", &waiting(1_000));
    let told = error(&late);
    assert_eq!(told["code"], "deadline_exceeded", "{late}");
    assert!(
        told["message"].as_str().unwrap().contains("goes on"),
        "{late}"
    );
    assert!(!late.to_string().contains("asked to stop"), "{late}");
    assert_eq!(street.times("works", "tasks/cancel"), 0);
    let looked = client.call("gateway.tasks_get", &named());
    assert_eq!(
        looked["structuredContent"]["task"]["status"], "working",
        "{looked}"
    );
}

#[test]
fn a_server_that_does_not_listen_is_stopped_soon() {
    let street = Street::new();
    street.configure(&json!({"works": plays("tasks-deaf")}));
    let mut client = street.client(&[]);
    client.call("gateway.invoke", &wish());
    let began = std::time::Instant::now();
    let stopped = client.call(
        "gateway.disconnect_server",
        &json!({"server_name": "works", "force": true}),
    );
    let said = &stopped["structuredContent"];
    assert_eq!(
        (&said["active_task_count"], &said["cancelled_task_count"]),
        (&json!(1), &json!(0)),
        "{stopped}"
    );
    assert!(began.elapsed() < std::time::Duration::from_secs(20));
}

//! Calls that go on as tasks at their servers, of both kinds.

use serde_json::{Value, json};

use crate::gateway::{Session, Street, error, plays, text};

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
        assert_eq!(result["structuredContent"]["tool_id"], "works::a");
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

//! Tasks outlive the connection, and their end outlives the process.

use std::time::Duration;

use serde_json::{Value, json};

use crate::http::{Server, modern_with};
use crate::sandbox::Sandbox;

fn request(method: &str, params: Value) -> crate::http::Request {
    let can = json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    modern_with(1, method, params, &can)
}

fn made(server: &Server, seconds: f64) -> Value {
    let slow = json!({"name": "slow_compute", "arguments": {"seconds": seconds, "label": "kept"}});
    let made = server.post(request("tools/call", slow)).json();
    json!({"taskId": made["result"]["taskId"]})
}

#[test]
fn a_finished_task_is_told_after_a_restart_and_one_that_was_cut_off_is_told_as_unknown() {
    let sandbox = Sandbox::new();
    let mut server = Server::start(&sandbox, &["--conformance"]);
    let (short, long, cancelled) = (
        made(&server, 0.05),
        made(&server, 600.0),
        made(&server, 600.0),
    );
    let status = |server: &Server, task: &Value| {
        server.post(request("tasks/get", task.clone())).json()["result"].clone()
    };
    while status(&server, &short)["status"] != "completed" {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(status(&server, &long)["status"], "working");
    server.post(request("tasks/cancel", cancelled.clone()));
    // What was told is on disk; the plug can be pulled.
    server.child.kill().unwrap();
    server.child.wait().unwrap();

    let server = Server::start(&sandbox, &["--conformance"]);
    let done = status(&server, &short);
    assert_eq!(
        done["result"]["content"][0]["text"], "computed kept",
        "{done}"
    );
    assert_eq!(status(&server, &cancelled)["status"], "cancelled");
    let lost = status(&server, &long);
    assert_eq!(lost["status"], "failed");
    assert_eq!(lost["error"]["data"]["code"], "outcome_unknown", "{lost}");
    // Nothing can be done about either any more, and saying so is no error.
    for task in [&short, &long] {
        let ack = server.post(request("tasks/cancel", task.clone())).json();
        assert_eq!(ack["result"]["resultType"], "complete");
    }
    assert_eq!(status(&server, &short)["status"], "completed");
}

#[test]
fn a_task_of_another_process_is_seen_while_it_runs() {
    let sandbox = Sandbox::new();
    let (one, other) = (
        Server::start(&sandbox, &["--conformance"]),
        Server::start(&sandbox, &["--conformance"]),
    );
    let task = made(&one, 600.0);
    let seen = other.post(request("tasks/get", task)).json();
    assert_eq!(seen["result"]["status"], "working", "{seen}");
}

#[test]
fn tasks_of_one_caller_are_limited() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &["--conformance"]);
    let tasks: Vec<Value> = (0..64).map(|_| made(&server, 600.0)).collect();
    let slow = json!({"name": "slow_compute", "arguments": {"seconds": 600}});
    let refused = server.post(request("tools/call", slow)).json();
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("64 tasks"),
        "{refused}"
    );
    server.post(request("tasks/cancel", tasks[0].clone()));
    assert!(made(&server, 600.0)["taskId"].is_string());
}

#[test]
fn an_id_that_is_none_is_absent() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &["--conformance"]);
    for id in ["x", "task_", "task_no_such", &"x".repeat(2_000)] {
        let refused = server
            .post(request("tasks/get", json!({"taskId": id})))
            .json();
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert_eq!(refused["error"]["message"], "no task has this id");
    }
}

/// A cancellation that nobody waited for was once left half done: the task neither ran nor ended.
#[test]
fn a_cancellation_is_carried_out_whether_or_not_anybody_waits_for_it() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &["--conformance"]);
    for _ in 0..10 {
        let task = made(&server, 600.0);
        server.begin(&request("tasks/cancel", task.clone()));
        let until = std::time::Instant::now() + crate::stdio::PATIENCE;
        let over = loop {
            let status =
                server.post(request("tasks/get", task.clone())).json()["result"]["status"].clone();
            // It came too late to be heard, or it was carried out; nothing in between.
            if status == "cancelled" || std::time::Instant::now() > until {
                break status;
            }
            let ack = server.post(request("tasks/cancel", task.clone())).json();
            assert_eq!(ack["result"]["resultType"], "complete");
        };
        assert_eq!(over, "cancelled");
    }
}

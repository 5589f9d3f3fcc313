//! Tasks outlive the connection, and their end outlives the process.

use std::time::Duration;

use serde_json::{Value, json};

use crate::http::{Server, modern_with};
use crate::sandbox::Sandbox;
use crate::stdio::Stdio;

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

const RELATED: &str = "io.modelcontextprotocol/related-task";

fn legacy(sandbox: &Sandbox, can: &Value) -> Stdio {
    let mut client = Stdio::start(sandbox, &["--conformance"]);
    let opened = client.initialize("2025-11-25", can);
    let tasks = &opened["result"]["capabilities"]["tasks"];
    assert_eq!(
        *tasks,
        json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}})
    );
    client
}

fn call_as_task(client: &mut Stdio, name: &str, arguments: &Value) -> Value {
    let params = json!({"name": name, "arguments": arguments, "task": {"ttl": 60_000}});
    let made = client.request("tools/call", &params);
    let task = made["result"]["task"].clone();
    assert_eq!(task["status"], "working", "{made}");
    assert!(
        task["ttl"].is_u64() && task["pollInterval"].is_u64(),
        "{task}"
    );
    json!({"taskId": task["taskId"]})
}

#[test]
fn a_client_of_2025_11_25_asks_for_a_task_follows_it_and_fetches_what_came_of_it() {
    let sandbox = Sandbox::new();
    let mut client = legacy(&sandbox, &json!({}));
    let task = call_as_task(
        &mut client,
        "slow_compute",
        &json!({"seconds": 0.2, "label": "legacy"}),
    );
    let state = client.request("tasks/get", &task);
    assert_eq!(state["result"]["taskId"], task["taskId"]);
    assert!(state["result"].get("result").is_none(), "{state}");
    // Waits for the end.
    let result = client.request("tasks/result", &task);
    assert_eq!(result["result"]["content"][0]["text"], "computed legacy");
    assert_eq!(result["result"]["_meta"][RELATED], task);
    assert_eq!(
        client.request("tasks/get", &task)["result"]["status"],
        "completed"
    );
    // It can be fetched again, and by another process as well.
    let mut other = legacy(&sandbox, &json!({}));
    assert_eq!(
        other.request("tasks/result", &task)["result"],
        result["result"]
    );
}

#[test]
fn a_task_of_2025_11_25_asks_on_the_stream_that_waits_for_its_result() {
    let sandbox = Sandbox::new();
    let mut client = legacy(&sandbox, &json!({"elicitation": {}}));
    let task = call_as_task(&mut client, "multi_input", &json!({}));
    let id = client.begin("tasks/result", &task);
    for _ in 0..2 {
        let question = client.next();
        assert_eq!(question["method"], "elicitation/create", "{question}");
        assert_eq!(question["params"]["_meta"][RELATED], task);
        let answer = json!({"action": "accept", "content": {"confirm": true}});
        client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
    }
    let result = client.next();
    assert_eq!(result["id"], id);
    assert_eq!(
        result["result"]["content"][0]["text"], "2 answers",
        "{result}"
    );
    // A client that will not answer is told by the tool what came of that.
    let task = call_as_task(&mut client, "confirm_delete", &json!({"filename": "x"}));
    client.begin("tasks/result", &task);
    let question = client.next();
    let error = json!({"code": -32000, "message": "not now"});
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "error": error}));
    let result = client.next();
    assert_eq!(result["result"]["isError"], true, "{result}");
    assert!(result.to_string().contains("not now"), "{result}");
    assert_eq!(
        client.request("tasks/get", &task)["result"]["status"],
        "failed"
    );
}

#[test]
fn whoever_waited_for_a_result_may_go_and_another_is_asked() {
    let sandbox = Sandbox::new();
    let mut client = legacy(&sandbox, &json!({"elicitation": {}}));
    let task = call_as_task(&mut client, "confirm_delete", &json!({"filename": "x"}));
    let gone = client.begin("tasks/result", &task);
    let first = client.next();
    assert_eq!(first["method"], "elicitation/create");
    let cancelled = json!({"requestId": gone});
    client
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}));
    let taken_back = client.next();
    assert_eq!(
        taken_back["params"]["requestId"], first["id"],
        "{taken_back}"
    );
    client.begin("tasks/result", &task);
    let again = client.next();
    assert_eq!(again["method"], "elicitation/create", "{again}");
    let answer = json!({"action": "decline"});
    client.send(&json!({"jsonrpc": "2.0", "id": again["id"], "result": answer}));
    assert!(client.next().to_string().contains("decline"));
}

#[test]
fn tasks_of_2025_11_25_are_listed_and_cancelled_and_tools_say_how_they_take_them() {
    let sandbox = Sandbox::new();
    let mut client = legacy(&sandbox, &json!({}));
    let listed = client.request("tools/list", &json!({}));
    let support = |name: &str| {
        let tools = listed["result"]["tools"].as_array().unwrap();
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        tool["execution"]["taskSupport"].clone()
    };
    assert_eq!(support("slow_compute"), "optional");
    assert_eq!(support("failing_job"), "required");
    assert_eq!(support("rung.about"), Value::Null);
    let refused = [
        json!({"name": "failing_job"}),
        json!({"name": "rung.about", "task": {}}),
    ];
    for params in refused {
        let refused = client.request("tools/call", &params);
        assert_eq!(refused["error"]["code"], -32601, "{refused}");
    }
    let slow = json!({"seconds": 600});
    let tasks: Vec<Value> = (0..3)
        .map(|_| call_as_task(&mut client, "slow_compute", &slow))
        .collect();
    let cancelled = client.request("tasks/cancel", &tasks[1]);
    assert_eq!(cancelled["result"]["status"], "cancelled", "{cancelled}");
    for method in ["tasks/cancel", "tasks/result"] {
        let over = client.request(method, &tasks[1]);
        assert_eq!(over["error"]["code"], -32602, "{over}");
    }
    let list = client.request("tasks/list", &json!({}));
    let list = list["result"]["tasks"].as_array().unwrap();
    assert_eq!(list.len(), 3);
    for (task, status) in tasks.iter().zip(["working", "cancelled", "working"]) {
        let listed = list
            .iter()
            .find(|listed| listed["taskId"] == task["taskId"]);
        assert_eq!(listed.unwrap()["status"], status);
    }
    // Older versions know no tasks: the parameter is one that means nothing, and the methods are none.
    let mut older = Stdio::start(&sandbox, &["--conformance"]);
    let opened = older.initialize("2025-06-18", &json!({}));
    assert!(opened["result"]["capabilities"].get("tasks").is_none());
    let params = json!({"name": "rung.about", "task": {}});
    assert!(older.request("tools/call", &params)["result"]["content"].is_array());
    let unknown = older.request("tasks/list", &json!({}));
    assert_eq!(unknown["error"]["code"], -32601);
}

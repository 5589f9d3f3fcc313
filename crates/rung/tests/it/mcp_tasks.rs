//! Tasks outlive the connection, and their outcome outlives the process.

use std::time::Duration;

use serde_json::{Value, json};

use crate::http::{ServerProcess, modern_request_with};
use crate::sandbox::Sandbox;
use crate::stdio::StdioClient;

fn task_request(method: &str, params: Value) -> crate::http::HttpRequest {
    let can = json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    modern_request_with(1, method, params, &can)
}

fn start_task(server: &ServerProcess, seconds: f64) -> Value {
    let slow = json!({"name": "slow_compute", "arguments": {"seconds": seconds, "label": "kept"}});
    let made = server.fetch(task_request("tools/call", slow)).json();
    json!({"taskId": made["result"]["taskId"]})
}

#[test]
fn a_finished_task_is_told_after_a_restart_and_one_that_was_cut_off_is_told_as_unknown() {
    let sandbox = Sandbox::new();
    let mut server = ServerProcess::start(&sandbox, &["--conformance"]);
    let (short, long, cancelled) = (
        start_task(&server, 0.05),
        start_task(&server, 600.0),
        start_task(&server, 600.0),
    );
    let status = |server: &ServerProcess, task: &Value| {
        server.fetch(task_request("tasks/get", task.clone())).json()["result"].clone()
    };
    while status(&server, &short)["status"] != "completed" {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(status(&server, &long)["status"], "working");
    server.fetch(task_request("tasks/cancel", cancelled.clone()));
    // An acknowledged state is on disk before the process is killed.
    server.child.kill().unwrap();
    server.child.wait().unwrap();

    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let done = status(&server, &short);
    assert_eq!(
        done["result"]["content"][0]["text"], "computed kept",
        "{done}"
    );
    assert_eq!(status(&server, &cancelled)["status"], "cancelled");
    let lost = status(&server, &long);
    assert_eq!(lost["status"], "failed");
    assert_eq!(lost["error"]["data"]["code"], "outcome_unknown", "{lost}");
    // Cancelling a completed task changes nothing and is not an error.
    for task in [&short, &long] {
        let ack = server
            .fetch(task_request("tasks/cancel", task.clone()))
            .json();
        assert_eq!(ack["result"]["resultType"], "complete");
    }
    assert_eq!(status(&server, &short)["status"], "completed");
}

#[test]
fn a_task_of_another_process_is_seen_while_it_runs() {
    let sandbox = Sandbox::new();
    let (one, other) = (
        ServerProcess::start(&sandbox, &["--conformance"]),
        ServerProcess::start(&sandbox, &["--conformance"]),
    );
    let task = start_task(&one, 600.0);
    let seen = other.fetch(task_request("tasks/get", task)).json();
    assert_eq!(seen["result"]["status"], "working", "{seen}");
}

#[test]
fn tasks_of_one_caller_are_limited() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    let tasks: Vec<Value> = (0..64).map(|_| start_task(&server, 600.0)).collect();
    let slow = json!({"name": "slow_compute", "arguments": {"seconds": 600}});
    let refused = server.fetch(task_request("tools/call", slow)).json();
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("64 tasks"),
        "{refused}"
    );
    server.fetch(task_request("tasks/cancel", tasks[0].clone()));
    assert!(start_task(&server, 600.0)["taskId"].is_string());
}

#[test]
fn an_id_that_is_none_is_absent() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    for id in ["x", "task_", "task_no_such", &"x".repeat(2_000)] {
        let refused = server
            .fetch(task_request("tasks/get", json!({"taskId": id})))
            .json();
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert_eq!(refused["error"]["message"], "no task has this id");
    }
}

/// Regression: a cancellation whose client disconnected was left half done, and the task neither ran nor ended.
#[test]
fn a_cancellation_is_carried_out_without_a_waiting_client() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--conformance"]);
    for _ in 0..10 {
        let task = start_task(&server, 600.0);
        server.send_and_disconnect(&task_request("tasks/cancel", task.clone()));
        let until = std::time::Instant::now() + crate::stdio::TIMEOUT;
        let over = loop {
            let status =
                server.fetch(task_request("tasks/get", task.clone())).json()["result"]["status"]
                    .clone();
            // Either the cancellation was too late, or it was carried out.
            if status == "cancelled" || std::time::Instant::now() > until {
                break status;
            }
            let ack = server
                .fetch(task_request("tasks/cancel", task.clone()))
                .json();
            assert_eq!(ack["result"]["resultType"], "complete");
        };
        assert_eq!(over, "cancelled");
    }
}

const RELATED: &str = "io.modelcontextprotocol/related-task";

fn start_legacy_client(sandbox: &Sandbox, can: &Value) -> StdioClient {
    let mut client = StdioClient::start(sandbox, &["--conformance"]);
    let opened = client.initialize("2025-11-25", can);
    let tasks = &opened["result"]["capabilities"]["tasks"];
    assert_eq!(
        *tasks,
        json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}})
    );
    client
}

fn call_as_task(client: &mut StdioClient, name: &str, arguments: &Value) -> Value {
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
    let mut client = start_legacy_client(&sandbox, &json!({}));
    let task = call_as_task(
        &mut client,
        "slow_compute",
        &json!({"seconds": 0.2, "label": "legacy"}),
    );
    let state = client.request("tasks/get", &task);
    assert_eq!(state["result"]["taskId"], task["taskId"]);
    assert!(state["result"].get("result").is_none(), "{state}");
    // Blocks until the task ends.
    let result = client.request("tasks/result", &task);
    assert_eq!(result["result"]["content"][0]["text"], "computed legacy");
    assert_eq!(result["result"]["_meta"][RELATED], task);
    assert_eq!(
        client.request("tasks/get", &task)["result"]["status"],
        "completed"
    );
    // The result can be fetched again, also by another process.
    let mut other = start_legacy_client(&sandbox, &json!({}));
    assert_eq!(
        other.request("tasks/result", &task)["result"],
        result["result"]
    );
}

#[test]
fn a_task_of_2025_11_25_asks_on_the_stream_that_waits_for_its_result() {
    let sandbox = Sandbox::new();
    let mut client = start_legacy_client(&sandbox, &json!({"elicitation": {}}));
    let task = call_as_task(&mut client, "multi_input", &json!({}));
    let id = client.send_request("tasks/result", &task);
    for _ in 0..2 {
        let question = client.next_message();
        assert_eq!(question["method"], "elicitation/create", "{question}");
        assert_eq!(question["params"]["_meta"][RELATED], task);
        let answer = json!({"action": "accept", "content": {"confirm": true}});
        client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
    }
    let result = client.next_message();
    assert_eq!(result["id"], id);
    assert_eq!(
        result["result"]["content"][0]["text"], "2 answers",
        "{result}"
    );
    // If the client refuses to answer, the tool reports the refusal.
    let task = call_as_task(&mut client, "confirm_delete", &json!({"filename": "x"}));
    client.send_request("tasks/result", &task);
    let question = client.next_message();
    let error = json!({"code": -32000, "message": "not now"});
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "error": error}));
    let result = client.next_message();
    assert_eq!(result["result"]["isError"], true, "{result}");
    assert!(result.to_string().contains("not now"), "{result}");
    assert_eq!(
        client.request("tasks/get", &task)["result"]["status"],
        "failed"
    );
}

#[test]
fn a_client_that_waits_for_a_result_may_leave_and_another_is_asked() {
    let sandbox = Sandbox::new();
    let mut client = start_legacy_client(&sandbox, &json!({"elicitation": {}}));
    let task = call_as_task(&mut client, "confirm_delete", &json!({"filename": "x"}));
    let gone = client.send_request("tasks/result", &task);
    let first = client.next_message();
    assert_eq!(first["method"], "elicitation/create");
    let cancelled = json!({"requestId": gone});
    client
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}));
    let taken_back = client.next_message();
    assert_eq!(
        taken_back["params"]["requestId"], first["id"],
        "{taken_back}"
    );
    client.send_request("tasks/result", &task);
    let again = client.next_message();
    assert_eq!(again["method"], "elicitation/create", "{again}");
    let answer = json!({"action": "decline"});
    client.send(&json!({"jsonrpc": "2.0", "id": again["id"], "result": answer}));
    assert!(client.next_message().to_string().contains("decline"));
}

#[test]
fn tasks_of_2025_11_25_are_listed_and_cancelled_and_tools_say_how_they_take_them() {
    let sandbox = Sandbox::new();
    let mut client = start_legacy_client(&sandbox, &json!({}));
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
    // Older versions have no tasks: the parameter is ignored, and the methods are unknown.
    let mut older = StdioClient::start(&sandbox, &["--conformance"]);
    let opened = older.initialize("2025-06-18", &json!({}));
    assert!(opened["result"]["capabilities"].get("tasks").is_none());
    let params = json!({"name": "rung.about", "task": {}});
    assert!(older.request("tools/call", &params)["result"]["content"].is_array());
    let unknown = older.request("tasks/list", &json!({}));
    assert_eq!(unknown["error"]["code"], -32601);
}

//! Tasks of both eras, questions of the modern one, and being listened to.

use serde_json::{Value, json};

use crate::{Request, answer, say};

/// Answers a request, where this mode knows it. Whether it did. `looks` counts how often the task was looked at.
pub(crate) fn answered(mode: &str, id: &str, request: &Request, looks: &mut usize) -> bool {
    match (mode, request.method.as_str()) {
        ("tasks" | "tasks-last", "tools/call") => {
            let params: Value =
                serde_json::from_str(request.params.as_deref().unwrap_or("{}")).unwrap_or_default();
            let mut task = state(mode, "working");
            task["ttl"] = params["task"]["ttl"].clone();
            let result = match params.get("task") {
                Some(_) => json!({"task": task}),
                None => done("at once"),
            };
            answer(id, &result.to_string());
        }
        ("modern-tasks", "tools/call") => {
            let mut task = state(mode, "working");
            task["resultType"] = "task".into();
            answer(id, &task.to_string());
        }
        ("tasks" | "modern-tasks", "tasks/get") => {
            *looks += 1;
            let mut task = state(mode, if *looks > 1 { "completed" } else { "working" });
            if mode == "modern-tasks" && *looks > 1 {
                task["result"] = done("in the end");
            }
            answer(id, &task.to_string());
        }
        // One that is never done.
        ("tasks-last", "tasks/get") => answer(id, &state(mode, "working").to_string()),
        ("tasks", "tasks/result") => answer(id, &done("in the end").to_string()),
        ("tasks", "tasks/list") => {
            answer(id, &json!({"tasks": [state(mode, "working")]}).to_string());
        }
        ("tasks" | "tasks-last" | "modern-tasks", "tasks/cancel") => {
            answer(id, &state(mode, "cancelled").to_string());
        }
        // Asks two things at once, and gives back what it is answered.
        ("modern-asks-both", "tools/call") => {
            let params: Value =
                serde_json::from_str(request.params.as_deref().unwrap_or("{}")).unwrap_or_default();
            let question = json!({"method": "elicitation/create", "params": {"message": "Well?"}});
            let both = json!({"one": question, "other": question});
            let asks =
                json!({"resultType": "input_required", "inputRequests": both, "requestState": "s"});
            let answers = params.get("inputResponses");
            let result = answers.map_or(asks, |answers| done(&answers.to_string()));
            answer(id, &result.to_string());
        }
        ("listens", "resources/subscribe") => {
            answer(id, "{}");
            updated();
        }
        ("modern-listens", "subscriptions/listen") => updated(),
        ("modern-tasks", "tasks/update")
        | ("listens", "resources/unsubscribe" | "logging/setLevel") => answer(id, "{}"),
        _ => return false,
    }
    true
}

fn state(mode: &str, status: &str) -> Value {
    let poll = if mode.starts_with("modern") {
        "pollIntervalMs"
    } else {
        "pollInterval"
    };
    json!({"taskId": "t1", "status": status, poll: 50, "vendor": 1})
}

fn done(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn updated() {
    let said = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "x:1"}});
    say(said.to_string().as_bytes());
}

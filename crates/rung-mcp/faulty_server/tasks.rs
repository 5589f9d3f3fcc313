//! Tasks of both eras, modern input requests, and subscriptions.

use serde_json::{Value, json};

use crate::{RpcRequest, respond, write_line};

/// The state of the only task.
#[derive(Default)]
pub(crate) struct TaskScript {
    /// Number of `tasks/get` requests.
    polls: usize,
    /// The client's answers to the input requests.
    input_responses: Option<Value>,
}

impl TaskScript {
    /// Handles a request if the mode does so. Returns true if it was handled.
    pub(crate) fn handle(&mut self, mode: &str, id: &str, request: &RpcRequest) -> bool {
        let params: Value =
            serde_json::from_str(request.params.as_deref().unwrap_or("{}")).unwrap_or_default();
        let result = match (mode, request.method.as_str()) {
            // Returns the call's `_meta` as its result.
            ("meta" | "modern-meta", "tools/call") => text_result(&params["_meta"].to_string()),
            (mode, "tools/call") if mode.starts_with("tasks") => {
                let mut task = task_state(mode, "working");
                task["ttl"] = params["task"]["ttl"].clone();
                match (params.get("task"), mode) {
                    (Some(_), _) => json!({"task": task}),
                    (None, "tasks-ask-aloud") => return false,
                    (None, "tasks-ask-one") => return true,
                    (None, _) => text_result("at once"),
                }
            }
            ("modern-tasks" | "modern-tasks-ask", "tools/call") => {
                let mut task = task_state(mode, "working");
                task["resultType"] = "task".into();
                task
            }
            ("tasks" | "modern-tasks", "tasks/get") => {
                self.polls += 1;
                let mut task = task_state(
                    mode,
                    if self.polls > 1 {
                        "completed"
                    } else {
                        "working"
                    },
                );
                if mode == "modern-tasks" && self.polls > 1 {
                    task["result"] = text_result("in the end");
                }
                task
            }
            // A task that never ends.
            ("tasks-last", "tasks/get") => task_state(mode, "working"),
            (mode, "tasks/get") if mode.starts_with("tasks-ask") => {
                task_state(mode, "input_required")
            }
            ("modern-tasks-ask", "tasks/get") => self.asking_state(mode),
            ("modern-tasks-ask", "tasks/update") => {
                self.input_responses = Some(params["inputResponses"].clone());
                json!({})
            }
            ("tasks", "tasks/result") => text_result("in the end"),
            ("tasks", "tasks/list") => json!({"tasks": [task_state(mode, "working")]}),
            // A task that ignores its cancellation.
            ("tasks-deaf", "tasks/cancel") => return true,
            (_, "tasks/cancel") if mode.contains("tasks") => task_state(mode, "cancelled"),
            // Sends two input requests together, and returns the answers as the result.
            ("modern-asks-both", "tools/call") => {
                let question =
                    json!({"method": "elicitation/create", "params": {"message": "Well?"}});
                let both = json!({"one": question, "other": question});
                let asks = json!({"resultType": "input_required", "inputRequests": both, "requestState": "s"});
                let answers = params.get("inputResponses");
                answers.map_or(asks, |answers| text_result(&answers.to_string()))
            }
            ("listens", "resources/subscribe") => {
                respond(id, "{}");
                send_resource_updated();
                return true;
            }
            ("modern-listens", "subscriptions/listen") => {
                send_resource_updated();
                return true;
            }
            ("modern-tasks", "tasks/update")
            | ("listens", "resources/unsubscribe" | "logging/setLevel") => json!({}),
            _ => return false,
        };
        respond(id, &result.to_string());
        true
    }

    /// A task that requests input, repeats the request once after the answer, and then completes.
    fn asking_state(&mut self, mode: &str) -> Value {
        self.polls += usize::from(self.input_responses.is_some());
        match &self.input_responses {
            Some(told) if self.polls > 1 => {
                let mut task = task_state(mode, "completed");
                task["result"] = text_result(&told.to_string());
                task
            }
            _ => {
                let mut task = task_state(mode, "input_required");
                task["inputRequests"] = json!({"room": input_request(mode)});
                task
            }
        }
    }
}

/// The task's input request: elicitation or roots. A task of 2025-11-25 adds its id in `_meta`.
pub(crate) fn input_request(mode: &str) -> Value {
    let mut question = match mode {
        "tasks-ask-folders" => json!({"method": "roots/list", "params": {}}),
        _ => elicitation("Which room?"),
    };
    if mode.starts_with("tasks") {
        let related = json!({"io.modelcontextprotocol/related-task": {"taskId": "t1"}});
        question["params"]["_meta"] = related;
    }
    question
}

pub(crate) fn elicitation(message: &str) -> Value {
    let schema = json!({"type": "object", "properties": {}});
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
}

fn task_state(mode: &str, status: &str) -> Value {
    let poll = if mode.starts_with("modern") {
        "pollIntervalMs"
    } else {
        "pollInterval"
    };
    json!({"taskId": "t1", "status": status, poll: 50, "vendor": 1})
}

pub(crate) fn text_result(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn send_resource_updated() {
    let said = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "x:1"}});
    write_line(said.to_string().as_bytes());
}

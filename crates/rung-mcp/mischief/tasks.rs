//! Tasks of both eras, questions of the modern one, and being listened to.

use serde_json::{Value, json};

use crate::{Request, answer, say};

/// The one task there is.
#[derive(Default)]
pub(crate) struct Task {
    /// How often it was looked at.
    looks: usize,
    /// What it was told when it asked.
    told: Option<Value>,
}

impl Task {
    /// Answers a request, where this mode knows it. Whether it did.
    pub(crate) fn answered(&mut self, mode: &str, id: &str, request: &Request) -> bool {
        let params: Value =
            serde_json::from_str(request.params.as_deref().unwrap_or("{}")).unwrap_or_default();
        let result = match (mode, request.method.as_str()) {
            // What was said of the call is given back.
            ("meta" | "modern-meta", "tools/call") => done(&params["_meta"].to_string()),
            (mode, "tools/call") if mode.starts_with("tasks") => {
                let mut task = state(mode, "working");
                task["ttl"] = params["task"]["ttl"].clone();
                match (params.get("task"), mode) {
                    (Some(_), _) => json!({"task": task}),
                    (None, "tasks-ask-aloud") => return false,
                    (None, "tasks-ask-one") => return true,
                    (None, _) => done("at once"),
                }
            }
            ("modern-tasks" | "modern-tasks-ask", "tools/call") => {
                let mut task = state(mode, "working");
                task["resultType"] = "task".into();
                task
            }
            ("tasks" | "modern-tasks", "tasks/get") => {
                self.looks += 1;
                let mut task = state(
                    mode,
                    if self.looks > 1 {
                        "completed"
                    } else {
                        "working"
                    },
                );
                if mode == "modern-tasks" && self.looks > 1 {
                    task["result"] = done("in the end");
                }
                task
            }
            // One that is never done.
            ("tasks-last", "tasks/get") => state(mode, "working"),
            (mode, "tasks/get") if mode.starts_with("tasks-ask") => state(mode, "input_required"),
            ("modern-tasks-ask", "tasks/get") => self.asking(mode),
            ("modern-tasks-ask", "tasks/update") => {
                self.told = Some(params["inputResponses"].clone());
                json!({})
            }
            ("tasks", "tasks/result") => done("in the end"),
            ("tasks", "tasks/list") => json!({"tasks": [state(mode, "working")]}),
            // One that does not listen.
            ("tasks-deaf", "tasks/cancel") => return true,
            (_, "tasks/cancel") if mode.contains("tasks") => state(mode, "cancelled"),
            // Asks two things at once, and gives back what it is answered.
            ("modern-asks-both", "tools/call") => {
                let question =
                    json!({"method": "elicitation/create", "params": {"message": "Well?"}});
                let both = json!({"one": question, "other": question});
                let asks = json!({"resultType": "input_required", "inputRequests": both, "requestState": "s"});
                let answers = params.get("inputResponses");
                answers.map_or(asks, |answers| done(&answers.to_string()))
            }
            ("listens", "resources/subscribe") => {
                answer(id, "{}");
                updated();
                return true;
            }
            ("modern-listens", "subscriptions/listen") => {
                updated();
                return true;
            }
            ("modern-tasks", "tasks/update")
            | ("listens", "resources/unsubscribe" | "logging/setLevel") => json!({}),
            _ => return false,
        };
        answer(id, &result.to_string());
        true
    }

    /// One that waits until it is told which room, notices it a little later, and then is done.
    fn asking(&mut self, mode: &str) -> Value {
        self.looks += usize::from(self.told.is_some());
        match &self.told {
            Some(told) if self.looks > 1 => {
                let mut task = state(mode, "completed");
                task["result"] = done(&told.to_string());
                task
            }
            _ => {
                let mut task = state(mode, "input_required");
                task["inputRequests"] = json!({"room": question(mode)});
                task
            }
        }
    }
}

/// What a task asks: which room, or which folders there are. A task of 2025-11-25 says which task it is that asks.
pub(crate) fn question(mode: &str) -> Value {
    let mut question = match mode {
        "tasks-ask-folders" => json!({"method": "roots/list", "params": {}}),
        _ => form("Which room?"),
    };
    if mode.starts_with("tasks") {
        let related = json!({"io.modelcontextprotocol/related-task": {"taskId": "t1"}});
        question["params"]["_meta"] = related;
    }
    question
}

pub(crate) fn form(message: &str) -> Value {
    let schema = json!({"type": "object", "properties": {}});
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
}

fn state(mode: &str, status: &str) -> Value {
    let poll = if mode.starts_with("modern") {
        "pollIntervalMs"
    } else {
        "pollInterval"
    };
    json!({"taskId": "t1", "status": status, poll: 50, "vendor": 1})
}

pub(crate) fn done(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn updated() {
    let said = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "x:1"}});
    say(said.to_string().as_bytes());
}

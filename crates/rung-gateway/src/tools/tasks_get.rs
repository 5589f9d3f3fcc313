//! `gateway.tasks_get`: how a task is, as its server says now.

use rung_fault::{Code, Fault};
use rung_mcp::connect::How;
use rung_tool::Reply;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{Asking, Definition, READS};
use crate::calls::Owner;
use crate::tasks::Task;

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.tasks_get",
    title: "Look at a task",
    description: "How one of your tasks is.",
    hints: READS,
    operates: false,
    properties: r#"{"server_name": {"type": "string"}, "task_id": {"type": "string"}, "requestor_context": {"type": "object"}}"#,
    required: &["server_name", "task_id"],
    run: |asking| Box::pin(run(asking)),
};

#[derive(Deserialize)]
struct Input {
    server_name: String,
    task_id: String,
}

/// A task, in the words of the tools: times in seconds.
#[derive(Default, Serialize)]
pub(super) struct Shown {
    task_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_interval: Option<f64>,
    /// What it waits for, where it waits for something.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_requests: Option<Value>,
    /// Members whose value is not what it must be. They are among the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unusable_fields: Vec<String>,
    /// Whatever else its server says of it.
    #[serde(skip_serializing_if = "Map::is_empty")]
    raw: Map<String, Value>,
}

/// What a task's server says of it that has a place of its own here, and whether that is a text.
const NAMED: [(&str, bool); 9] = [
    ("taskId", true),
    ("status", true),
    ("statusMessage", true),
    ("createdAt", true),
    ("lastUpdatedAt", true),
    ("ttl", false),
    ("ttlMs", false),
    ("pollInterval", false),
    ("pollIntervalMs", false),
];

impl Shown {
    /// A task as a server of either era describes it.
    pub(super) fn of(state: &RawValue) -> Self {
        let state: Value = serde_json::from_str(state.get()).unwrap_or_default();
        let text = |name: &str| state[name].as_str().map(str::to_owned);
        let ms = |names: [&str; 2]| names.iter().find_map(|name| state[name].as_f64());
        let members = state.as_object().into_iter().flatten();
        let usable = |name: &str, value: &Value| {
            let named = NAMED.iter().find(|(own, _)| *own == name);
            named.map(|(_, is_text)| {
                let fits = if *is_text {
                    value.is_string()
                } else {
                    value.is_number()
                };
                fits || value.is_null()
            })
        };
        let mut raw = Map::new();
        let mut unusable_fields = Vec::new();
        for (name, value) in members {
            match usable(name, value) {
                Some(true) => continue,
                Some(false) => unusable_fields.push(name.clone()),
                // How it ended is told with its result.
                None if matches!(name.as_str(), "inputRequests" | "result" | "resultType") => {
                    continue;
                }
                None => {}
            }
            raw.insert(name.clone(), value.clone());
        }
        Self {
            unusable_fields,
            raw,
            task_id: text("taskId").unwrap_or_default(),
            status: text("status"),
            status_message: text("statusMessage"),
            created_at: text("createdAt"),
            updated_at: text("lastUpdatedAt"),
            ttl: ms(["ttl", "ttlMs"]).map(|ms| ms / 1_000.0),
            poll_interval: ms(["pollInterval", "pollIntervalMs"]).map(|ms| ms / 1_000.0),
            input_requests: state.get("inputRequests").cloned(),
        }
    }
}

impl Shown {
    /// Which task it is and how it is, where there is more to be said.
    pub(super) fn in_brief(&self) -> Value {
        json!({"task_id": self.task_id, "status": self.status})
    }
}

async fn run(asking: Asking<'_>) -> Result<Reply, Fault> {
    let input: Input = asking.read()?;
    let task = find(&asking, &input.server_name, &input.task_id)?;
    let state = look(&asking, &task).await?;
    asking
        .reply(json!({"ok": true, "task": Shown::of(&state)}))
        .await
}

/// A task of the caller's. That of another is as one that is not there.
pub(super) fn find(asking: &Asking<'_>, server: &str, id: &str) -> Result<Task, Fault> {
    let server = asking.gateway.server(&asking.call.permit, server)?;
    let owner = Owner::of(asking.call);
    let found = asking.gateway.0.tasks.get(server.name(), id, &owner);
    found.ok_or_else(|| {
        let (name, shown) = (server.name(), rung_ladder::head(id, 128));
        let why = format!("no task of yours at {name} has the id {shown:?}");
        Fault::new(Code::UnknownTask, why).with_hint("gateway.tasks_list lists them")
    })
}

/// How a task is now, noted down.
pub(super) async fn look(asking: &Asking<'_>, task: &Task) -> Result<Box<RawValue>, Fault> {
    let state = task
        .instance
        .connection
        .task(&task.id, &How::default())
        .await;
    let state = state.map_err(|error| task.server.fault(error))?;
    asking.gateway.0.tasks.note(task, state.get());
    Ok(state)
}

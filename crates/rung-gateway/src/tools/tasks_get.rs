//! `gateway.tasks_get`: how a task is, as its server says now.

use rung_fault::{Code, Fault};
use rung_mcp::connect::How;
use rung_tool::Reply;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

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
    status: Option<String>,
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
}

impl Shown {
    /// A task as a server of either era describes it.
    pub(super) fn of(state: &RawValue) -> Self {
        let state: Value = serde_json::from_str(state.get()).unwrap_or_default();
        let text = |name: &str| state[name].as_str().map(str::to_owned);
        let ms = |names: [&str; 2]| names.iter().find_map(|name| state[name].as_f64());
        Self {
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

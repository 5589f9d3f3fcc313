//! `gateway.tasks_get`: the current state of a task, fetched from its server.

use rung_fault::{Code, Fault};
use rung_mcp::connect::RequestOptions;
use rung_tool::{Answer, Body, InputSchema, Tool};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{GatewayContext, GatewayTools, READ_HINTS, parameter};
use crate::calls::CallOwner;
use crate::tasks::DownstreamTask;

pub(super) const TOOL: Tool<GatewayTools, Input> = Tool::new(
    "gateway.tasks_get",
    "Shows the state of one of your tasks.",
    InputSchema::Text {
        properties: r#"{"server_name": {"type": "string"}, "task_id": {"type": "string"}, "requestor_context": {"type": "object"}}"#,
        details: "",
        required: &["server_name", "task_id"],
        descriptions: &[
        ("server_name", parameter::SERVER),
        ("task_id", parameter::TASK_ID),
        ("requestor_context", parameter::IGNORED),
    ],
    },
    Body::Async(|context, input| Box::pin(run(context, input))),
)
.titled("Get a task")
.with_hints(READ_HINTS);

#[derive(Deserialize)]
pub(super) struct Input {
    server_name: String,
    task_id: String,
}

/// A task as the `gateway.*` tools return it, with times in seconds.
#[derive(Default, Serialize)]
pub(super) struct TaskView {
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
    /// Input that the task waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_requests: Option<Value>,
    /// Members with an invalid value; the values are in `raw`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unusable_fields: Vec<String>,
    /// All other members that the server sent.
    #[serde(skip_serializing_if = "Map::is_empty")]
    raw: Map<String, Value>,
}

/// Members of a server's task that have a field here, and whether they are text.
const TASK_MEMBERS: [(&str, bool); 9] = [
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

impl TaskView {
    /// Converts a task as a legacy or modern server describes it.
    pub(super) fn from_state(state: &RawValue) -> Self {
        let state: Value = serde_json::from_str(state.get()).unwrap_or_default();
        let text = |name: &str| state[name].as_str().map(str::to_owned);
        let ms = |names: [&str; 2]| names.iter().find_map(|name| state[name].as_f64());
        let members = state.as_object().into_iter().flatten();
        let usable = |name: &str, value: &Value| {
            let named = TASK_MEMBERS.iter().find(|(own, _)| *own == name);
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
                // The result is returned by `gateway.tasks_result`.
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

impl TaskView {
    /// Returns only the id and the status.
    pub(super) fn to_summary(&self) -> Value {
        json!({"task_id": self.task_id, "status": self.status})
    }
}

async fn run(context: &GatewayContext<'_>, input: Input) -> Result<Answer, Fault> {
    let task = find_task(context, &input.server_name, &input.task_id)?;
    let state = refresh_task(context, &task).await?;
    context.answer(json!({"ok": true, "task": TaskView::from_state(&state)}))
}

/// Returns a task of the caller. A task of another caller is reported as unknown.
pub(super) fn find_task(
    context: &GatewayContext<'_>,
    server: &str,
    id: &str,
) -> Result<DownstreamTask, Fault> {
    let server = context.gateway.server(&context.call.permit, server)?;
    let owner = CallOwner::from_call(context.call);
    let found = context.gateway.0.tasks.get(server.name(), id, &owner);
    found.ok_or_else(|| {
        let (name, shown) = (server.name(), rung_ladder::head(id, 128));
        let why = format!("none of your tasks at {name} has the id {shown:?}");
        Fault::new(Code::UnknownTask, why).with_hint("gateway.tasks_list lists your tasks")
    })
}

/// Fetches the state of a task from its server and stores it.
pub(super) async fn refresh_task(
    context: &GatewayContext<'_>,
    task: &DownstreamTask,
) -> Result<Box<RawValue>, Fault> {
    let state = task
        .instance
        .connection
        .task(&task.id, &RequestOptions::default())
        .await;
    let state = state.map_err(|error| task.server.fault(error))?;
    context.gateway.0.tasks.update_state(task, state.get());
    Ok(state)
}

//! `gateway.tasks_cancel`: cancels a task of the caller at its server.

use rung_fault::{Code, Fault};
use rung_mcp::connect::RequestOptions;
use rung_tool::splice;
use rung_tool::{Answer, Body, Hints, InputSchema, Tool};
use serde::Deserialize;
use serde_json::json;

use super::tasks_get::{TaskView, find_task, refresh_task};
use super::{GatewayContext, GatewayTools, parameter};

pub(super) const TOOL: Tool<GatewayTools, Input> = Tool::new(
    "gateway.tasks_cancel",
    "Cancels one of your tasks.",
    InputSchema::Text {
        properties: r#"{"server_name": {"type": "string"}, "task_id": {"type": "string"}, "force": {"type": "boolean"}, "requestor_context": {"type": "object"}}"#,
        details: "",
        required: &["server_name", "task_id"],
        descriptions: &[
        ("server_name", parameter::SERVER),
        ("task_id", parameter::TASK_ID),
        ("force", "Accepted for compatibility; not used."),
        ("requestor_context", parameter::IGNORED),
    ],
    },
    Body::Async(|context, input| Box::pin(run(context, input))),
)
.titled("Cancel a task")
.with_hints(Hints {
        read_only: false,
        destructive: true,
        idempotent: true,
        open_world: true,
    });

#[derive(Deserialize)]
pub(super) struct Input {
    server_name: String,
    task_id: String,
}

async fn run(context: &GatewayContext<'_>, input: Input) -> Result<Answer, Fault> {
    let task = find_task(context, &input.server_name, &input.task_id)?;
    if !task.is_active() {
        let status = task.status();
        let status = status.as_deref().unwrap_or("over");
        let why = format!("{} is already {status}", task.id);
        let hint = match status {
            "completed" => "gateway.tasks_result returns its result",
            _ => "gateway.tasks_get shows its state",
        };
        return Err(Fault::new(Code::NotFound, why).with_hint(hint));
    }
    let connection = &task.instance.connection;
    let cancelled = connection
        .cancel_task(&task.id, &RequestOptions::default())
        .await;
    let said = cancelled.map_err(|error| task.server.fault(error))?;
    // A modern server does not return the task.
    let state = if splice::member(said.get(), "status").is_some() {
        context.gateway.0.tasks.update_state(&task, said.get());
        said
    } else {
        refresh_task(context, &task).await?
    };
    let shown = TaskView::from_state(&state);
    let status = shown.status.as_deref().unwrap_or("cancelled");
    let message = match status {
        "cancelled" => format!("{} was cancelled", task.id),
        other => format!(
            "the server was asked to cancel {}; its status is {other}",
            task.id
        ),
    };
    context.answer(json!({"ok": true, "status": status, "message": message, "task": shown}))
}

//! `gateway.tasks_cancel`: cancels a task of the caller at its server.

use rung_fault::{Code, Fault};
use rung_mcp::connect::RequestOptions;
use rung_mcp::splice;
use rung_tool::{Hints, Reply};
use serde::Deserialize;
use serde_json::json;

use super::tasks_get::{TaskView, find_task, refresh_task};
use super::{Asking, Definition, parameter};

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.tasks_cancel",
    title: "Cancel a task",
    description: "Cancels one of your tasks.",
    hints: Hints {
        read_only: false,
        destructive: true,
        idempotent: true,
        open_world: true,
    },
    operates: false,
    properties: r#"{"server_name": {"type": "string"}, "task_id": {"type": "string"}, "force": {"type": "boolean"}, "requestor_context": {"type": "object"}}"#,
    parameters: &[
        ("server_name", parameter::SERVER),
        ("task_id", parameter::TASK_ID),
        ("force", "Accepted for compatibility; not used."),
        ("requestor_context", parameter::IGNORED),
    ],
    required: &["server_name", "task_id"],
    run: |asking| Box::pin(run(asking)),
};

#[derive(Deserialize)]
struct Input {
    server_name: String,
    task_id: String,
}

async fn run(asking: Asking<'_>) -> Result<Reply, Fault> {
    let input: Input = asking.read()?;
    let task = find_task(&asking, &input.server_name, &input.task_id)?;
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
        asking.gateway.0.tasks.update_state(&task, said.get());
        said
    } else {
        refresh_task(&asking, &task).await?
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
    asking
        .reply(json!({"ok": true, "status": status, "message": message, "task": shown}))
        .await
}

//! `gateway.tasks_cancel`: ends a task of the caller's at its server.

use rung_fault::{Code, Fault};
use rung_mcp::connect::How;
use rung_mcp::splice;
use rung_tool::{Hints, Reply};
use serde::Deserialize;
use serde_json::json;

use super::tasks_get::{Shown, find, look};
use super::{Asking, Definition};

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.tasks_cancel",
    title: "Cancel a task",
    description: "Ends one of your tasks.",
    hints: Hints {
        read_only: false,
        destructive: true,
        idempotent: true,
        open_world: true,
    },
    operates: false,
    properties: r#"{"server_name": {"type": "string"}, "task_id": {"type": "string"}, "force": {"type": "boolean"}, "requestor_context": {"type": "object"}}"#,
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
    let task = find(&asking, &input.server_name, &input.task_id)?;
    if !task.is_active() {
        let status = task.status();
        let status = status.as_deref().unwrap_or("over");
        let why = format!("{} is {status} already", task.id);
        let hint = match status {
            "completed" => "gateway.tasks_result has its result",
            _ => "gateway.tasks_get has what is known of it",
        };
        return Err(Fault::new(Code::NotFound, why).with_hint(hint));
    }
    let connection = &task.instance.connection;
    let cancelled = connection.cancel_task(&task.id, &How::default()).await;
    let said = cancelled.map_err(|error| task.server.fault(error))?;
    // A server of the modern era says nothing to that.
    let state = if splice::member(said.get(), "status").is_some() {
        asking.gateway.0.tasks.note(&task, said.get());
        said
    } else {
        look(&asking, &task).await?
    };
    let shown = Shown::of(&state);
    let status = shown.status.as_deref().unwrap_or("cancelled");
    let message = match status {
        "cancelled" => format!("{} was cancelled", task.id),
        other => format!("{}'s server was told to end it; it is {other}", task.id),
    };
    asking
        .reply(json!({"ok": true, "status": status, "message": message, "task": shown}))
        .await
}

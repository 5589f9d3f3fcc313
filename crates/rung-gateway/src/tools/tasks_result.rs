//! `gateway.tasks_result`: waits for a task and returns its result.

use std::sync::Arc;

use rung_fault::{Code, Fault};
use rung_mcp::connect::{Error, RequestOptions};
use rung_tool::{Answer, Body, Envelope, InputSchema, Relayed, Tool};
use serde::Deserialize;
use tokio::time::Instant;

use super::invoke::InvokeOptions;
use super::tasks_get::{TaskView, find_task, refresh_task};
use super::{GatewayContext, GatewayTools, READ_HINTS, parameter};
use crate::answer::redacted;
use crate::calls::CallSpec;
use crate::delegate::CallDelegate;

pub(super) const TOOL: Tool<GatewayTools, Input> = Tool::new(
    "gateway.tasks_result",
    "Waits for one of your tasks and returns its result.",
    InputSchema::Text {
        properties: r#"{"server_name": {"type": "string"}, "task_id": {"type": "string"},
        "options": {"type": "object", "description": "As in gateway.invoke."},
        "requestor_context": {"type": "object"}}"#,
        details: super::invoke::OPTIONS,
        required: &["server_name", "task_id"],
        descriptions: &[
            ("server_name", parameter::SERVER),
            ("task_id", parameter::TASK_ID),
            ("options", "Limits of this call, as in gateway.invoke."),
            (
                "options.timeout_ms",
                "Longest wait for the result, in milliseconds.",
            ),
            (
                "options.max_output_chars",
                "Longest reply; the rest of the result is stored.",
            ),
            (
                "options.redact_secrets",
                "True also masks texts that have the form of a secret.",
            ),
            ("requestor_context", parameter::IGNORED),
        ],
    },
    Body::Async(|context, input| Box::pin(run(context, input))),
)
.titled("Get a task's result")
.with_hints(READ_HINTS);

#[derive(Deserialize)]
pub(super) struct Input {
    server_name: String,
    task_id: String,
    #[serde(default)]
    options: InvokeOptions,
}

async fn run(context: &GatewayContext<'_>, input: Input) -> Result<Answer, Fault> {
    let task = find_task(context, &input.server_name, &input.task_id)?;
    let waiting = context.gateway.0.calls.begin(
        context.call,
        CallSpec {
            server: task.server.name(),
            tool_id: task.tool_id.clone(),
            timeout: input.options.timeout(),
            task_id: Some(task.id.clone()),
        },
    );
    let heard = CallDelegate::new(context.gateway, context.call, &waiting.call, &task.instance);
    let how = RequestOptions {
        deadline: Some(Instant::now() + input.options.timeout()),
        delegate: Some(Arc::new(heard)),
        ..RequestOptions::default()
    };
    let connection = &task.instance.connection;
    let answer = tokio::select! {
        biased;
        () = waiting.call.cancelled() => {
            let why = format!("the wait for {} was cancelled", task.id);
            return Err(Fault::new(Code::CallCancelled, why)
                .with_hint("the task continues; gateway.tasks_cancel cancels it"));
        }
        answer = connection.task_result(&task.id, &how) => answer,
    };
    let state = context.gateway.state();
    let masks = input.options.caller_redactor(&state.access);
    let answer = answer.map_err(|error| match error {
        Error::TimedOut { .. } => {
            let waited = input.options.timeout().as_secs_f64();
            let why = format!("{} did not end within {waited} s; it continues", task.id);
            Fault::new(Code::DeadlineExceeded, why).with_hint(
                "gateway.tasks_result waits again, gateway.tasks_get shows its state, and gateway.tasks_cancel cancels it",
            )
        }
        error => masks.redact_fault(task.server.fault(error)),
    })?;
    // Stores the final state of the task.
    let ended = refresh_task(context, &task).await.ok();
    let shown = ended.map(|ended| TaskView::from_state(&ended).to_summary());
    Ok(Answer::Relayed(Relayed {
        result: redacted(answer, masks).await?,
        envelope: Some(Envelope {
            tool_id: task.tool_id,
            task: shown.map(|shown| masks.redact_value(shown)),
        }),
        max_bytes: input.options.max_bytes(context.call),
    }))
}

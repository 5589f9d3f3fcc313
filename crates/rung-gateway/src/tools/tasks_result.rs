//! `gateway.tasks_result`: what a task gave, once it is over.

use std::sync::Arc;

use rung_fault::{Code, Fault};
use rung_mcp::connect::{Error, How};
use rung_tool::Reply;
use serde::Deserialize;
use tokio::time::Instant;

use super::invoke::Options;
use super::tasks_get::{Shown, find, look};
use super::{Asking, Definition, READS};
use crate::answer::{Of, dressed};
use crate::calls::Work;
use crate::heard::Heard;

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.tasks_result",
    title: "Get a task's result",
    description: "What one of your tasks gave; waits for its end.",
    hints: READS,
    operates: false,
    properties: r#"{"server_name": {"type": "string"}, "task_id": {"type": "string"},
        "options": {"type": "object", "description": "As gateway.invoke has them."},
        "requestor_context": {"type": "object"}}"#,
    required: &["server_name", "task_id"],
    run: |asking| Box::pin(run(asking)),
};

#[derive(Deserialize)]
struct Input {
    server_name: String,
    task_id: String,
    #[serde(default)]
    options: Options,
}

async fn run(asking: Asking<'_>) -> Result<Reply, Fault> {
    let input: Input = asking.read()?;
    let task = find(&asking, &input.server_name, &input.task_id)?;
    let waiting = asking.gateway.0.calls.begin(
        asking.call,
        Work {
            server: task.server.name(),
            tool_id: task.tool_id.clone(),
            timeout: input.options.timeout(),
            task_id: Some(task.id.clone()),
        },
    );
    let heard = Heard::by(asking.gateway, asking.call, &waiting.begun, &task.instance);
    let how = How {
        deadline: Some(Instant::now() + input.options.timeout()),
        delegate: Some(Arc::new(heard)),
        ..How::default()
    };
    let connection = &task.instance.connection;
    let answer = tokio::select! {
        biased;
        () = waiting.begun.ended() => {
            let why = format!("the wait for {} was cancelled", task.id);
            return Err(Fault::new(Code::CallCancelled, why)
                .with_hint("the task goes on; gateway.tasks_cancel ends it"));
        }
        answer = connection.task_result(&task.id, &how) => answer,
    };
    let state = asking.gateway.state();
    let masks = input.options.masks(&state.rules);
    let answer = answer.map_err(|error| match error {
        Error::Late { .. } => {
            let waited = input.options.timeout().as_secs_f64();
            let why = format!("{} was not over after {waited} s; it goes on", task.id);
            Fault::new(Code::DeadlineExceeded, why).with_hint(
                "gateway.tasks_result waits for it again, gateway.tasks_get looks at it, and gateway.tasks_cancel ends it",
            )
        }
        error => masks.fault(task.server.fault(error)),
    })?;
    // What is told of it from now on is how it ended.
    let ended = look(&asking, &task).await.ok();
    let shown = ended.map(|ended| Shown::of(&ended).in_brief());
    let of = Of {
        tool_id: &task.tool_id,
        task: shown.map(|shown| masks.value(shown)),
    };
    let limits = input.options.limits(&asking);
    let keep = asking.gateway.0.keep.clone();
    dressed(answer, Some(&of), masks, limits, asking.call, keep).await
}

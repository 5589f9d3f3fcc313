//! `gateway.tasks_result`: what a task gave, once it is over.

use std::sync::Arc;

use rung_fault::{Code, Fault};
use rung_mcp::connect::How;
use rung_tool::Reply;
use serde::Deserialize;
use tokio::time::Instant;

use super::invoke::Options;
use super::tasks_get::{find, look};
use super::{Asking, Definition, READS};
use crate::answer::dressed;
use crate::calls::Work;
use crate::heard::Heard;

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.tasks_result",
    title: "Get a task's result",
    description: "What one of your tasks gave, as gateway.invoke would; waits for its end.",
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
    let answer = answer.map_err(|error| masks.fault(task.server.fault(error)))?;
    // What is told of it from now on is how it ended.
    let _known_or_not = look(&asking, &task).await;
    let limits = input.options.limits(&asking);
    let keep = asking.gateway.0.keep.clone();
    dressed(
        answer,
        Some(&task.tool_id),
        masks,
        limits,
        asking.call,
        keep,
    )
    .await
}

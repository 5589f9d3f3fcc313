//! `gateway.tasks_list`: the caller's tasks at servers.

use rung_fault::Fault;
use rung_tool::{Answer, Body, InputSchema, Tool};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::tasks_get::TaskView;
use super::{GatewayContext, GatewayTools, READ_HINTS, parameter};
use crate::calls::CallOwner;
use crate::tasks::DownstreamTask;

pub(super) const TOOL: Tool<GatewayTools, Input> = Tool::new(
    "gateway.tasks_list",
    "Lists your tasks at servers, as last reported.",
    InputSchema::Text {
        properties: r#"{"server_name": {"type": "string"}, "cursor": {"type": "string"}, "requestor_context": {"type": "object"}}"#,
        details: "",
        required: &[],
        descriptions: &[
        ("server_name", parameter::SERVER),
        ("cursor", "The next_cursor of the page before."),
        ("requestor_context", parameter::IGNORED),
    ],
    },
    Body::Immediate(|context, input| run(context, &input)),
)
.titled("List tasks")
.with_hints(READ_HINTS);

#[derive(Deserialize)]
pub(super) struct Input {
    server_name: Option<String>,
    cursor: Option<String>,
}

#[derive(Serialize)]
struct Output {
    ok: bool,
    tasks: Vec<ListedTask>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize)]
struct ListedTask {
    server_name: String,
    tool_id: String,
    #[serde(flatten)]
    task: TaskView,
}

const PAGE_SIZE: usize = 50;

fn run(context: &GatewayContext<'_>, input: &Input) -> Result<Answer, Fault> {
    if let Some(name) = &input.server_name {
        context.gateway.server(&context.call.permit, name)?;
    }
    let owner = CallOwner::from_call(context.call);
    let here = |task: &DownstreamTask| {
        let wanted = input.server_name.as_deref();
        wanted.is_none_or(|name| name == &**task.server.name())
    };
    let tasks = context
        .gateway
        .0
        .tasks
        .list(|task| task.owner == owner && here(task));
    // After the task that the cursor names, or from the start if that task is gone.
    let after = input.cursor.as_deref();
    let start = after.and_then(|after| tasks.iter().position(|task| task.id == after));
    let rest = &tasks[start.map_or(0, |at| at + 1)..];
    let page = &rest[..rest.len().min(PAGE_SIZE)];
    let more = rest.len() > page.len();
    context.answer(Output {
        ok: true,
        next_cursor: page.last().filter(|_| more).map(|task| task.id.clone()),
        tasks: page.iter().map(listed_task).collect(),
    })
}

fn listed_task(task: &DownstreamTask) -> ListedTask {
    let state = RawValue::from_string(task.state.to_string());
    ListedTask {
        server_name: task.server.name().to_string(),
        tool_id: task.tool_id.clone(),
        task: state
            .map(|state| TaskView::from_state(&state))
            .unwrap_or_default(),
    }
}

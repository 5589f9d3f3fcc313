//! `gateway.tasks_list`: the caller's tasks at servers.

use rung_fault::Fault;
use rung_tool::Reply;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::tasks_get::Shown;
use super::{Asking, Definition, READS};
use crate::calls::Owner;
use crate::tasks::Task;

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.tasks_list",
    title: "List tasks",
    description: "Your tasks at servers, as last heard of.",
    hints: READS,
    operates: false,
    properties: r#"{"server_name": {"type": "string"}, "cursor": {"type": "string"}, "requestor_context": {"type": "object"}}"#,
    required: &[],
    run: |asking| Box::pin(run(asking)),
};

#[derive(Deserialize)]
struct Input {
    server_name: Option<String>,
    cursor: Option<String>,
}

#[derive(Serialize)]
struct Output {
    ok: bool,
    tasks: Vec<Listed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize)]
struct Listed {
    server_name: String,
    tool_id: String,
    #[serde(flatten)]
    task: Shown,
}

/// Tasks of a page.
const PAGE: usize = 50;

async fn run(asking: Asking<'_>) -> Result<Reply, Fault> {
    let input: Input = asking.read()?;
    if let Some(name) = &input.server_name {
        asking.gateway.server(&asking.call.permit, name)?;
    }
    let owner = Owner::of(asking.call);
    let here = |task: &Task| {
        let wanted = input.server_name.as_deref();
        wanted.is_none_or(|name| name == &**task.server.name())
    };
    let tasks = asking
        .gateway
        .0
        .tasks
        .list(|task| task.owner == owner && here(task));
    // Behind the task that it names, or from the start where that is forgotten.
    let after = input.cursor.as_deref();
    let start = after.and_then(|after| tasks.iter().position(|task| task.id == after));
    let rest = &tasks[start.map_or(0, |at| at + 1)..];
    let page = &rest[..rest.len().min(PAGE)];
    let more = rest.len() > page.len();
    asking
        .reply(Output {
            ok: true,
            next_cursor: page.last().filter(|_| more).map(|task| task.id.clone()),
            tasks: page.iter().map(listed).collect(),
        })
        .await
}

fn listed(task: &Task) -> Listed {
    let state = RawValue::from_string(task.state.to_string());
    Listed {
        server_name: task.server.name().to_string(),
        tool_id: task.tool_id.clone(),
        task: state.map(|state| Shown::of(&state)).unwrap_or_default(),
    }
}

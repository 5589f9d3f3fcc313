//! `gateway.list_pending`: the caller's calls under way.

use rung_fault::Fault;
use rung_tool::Reply;
use serde::{Deserialize, Serialize};

use super::{Asking, Definition, READS, iso, seconds};
use crate::calls::{Begun, Owner};

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.list_pending",
    title: "List calls under way",
    description: "Your calls that have no answer yet.",
    hints: READS,
    operates: false,
    properties: r#"{"server": {"type": "string"}}"#,
    required: &[],
    run: |asking| Box::pin(run(asking)),
};

#[derive(Deserialize)]
struct Input {
    server: Option<String>,
}

#[derive(Serialize)]
struct Output {
    requests: Vec<Request>,
    total_pending: usize,
}

#[derive(Serialize)]
struct Request {
    request_id: String,
    server_name: String,
    tool_id: String,
    started_at_iso: String,
    elapsed_seconds: f64,
    timeout_ms: u64,
    state: &'static str,
    last_heartbeat_seconds_ago: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_status: Option<String>,
}

async fn run(asking: Asking<'_>) -> Result<Reply, Fault> {
    let input: Input = asking.read()?;
    if let Some(name) = &input.server {
        asking.gateway.server(&asking.call.permit, name)?;
    }
    let owner = Owner::of(asking.call);
    let here = |call: &Begun| {
        input
            .server
            .as_deref()
            .is_none_or(|name| *name == *call.server)
    };
    let calls = asking
        .gateway
        .0
        .calls
        .list(|call| call.owner == owner && here(call));
    let tasks = &asking.gateway.0.tasks;
    let status = |call: &Begun| {
        let task = tasks.get(&call.server, call.task_id.as_deref()?, &owner)?;
        task.status()
    };
    let requests = calls.iter().map(|call| shown(call, status(call)));
    let requests: Vec<Request> = requests.collect();
    asking
        .reply(Output {
            total_pending: requests.len(),
            requests,
        })
        .await
}

fn shown(call: &Begun, task_status: Option<String>) -> Request {
    Request {
        request_id: call.id(),
        server_name: call.server.to_string(),
        tool_id: call.tool_id.clone(),
        started_at_iso: iso(call.started_ms),
        elapsed_seconds: seconds(call.started.elapsed()),
        timeout_ms: u64::try_from(call.timeout.as_millis()).unwrap_or(u64::MAX),
        state: call.state(),
        last_heartbeat_seconds_ago: seconds(call.quiet_for()),
        task_id: call.task_id.clone(),
        task_status,
    }
}

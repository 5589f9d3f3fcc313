//! `gateway.list_pending`: the caller's active calls.

use rung_fault::Fault;
use rung_tool::{Answer, Body, InputSchema, Tool};
use serde::{Deserialize, Serialize};

use super::{GatewayContext, GatewayTools, READ_HINTS, iso_timestamp, parameter, seconds};
use crate::calls::{ActiveCall, CallOwner};

pub(super) const TOOL: Tool<GatewayTools, Input> = Tool::new(
    "gateway.list_pending",
    "Lists your active calls.",
    InputSchema::Text {
        properties: r#"{"server": {"type": "string"}}"#,
        details: "",
        required: &[],
        descriptions: &[("server", parameter::SERVER)],
    },
    Body::Immediate(|context, input| run(context, &input)),
)
.titled("List active calls")
.with_hints(READ_HINTS);

#[derive(Deserialize)]
pub(super) struct Input {
    server: Option<String>,
}

#[derive(Serialize)]
struct Output {
    requests: Vec<PendingCall>,
    total_pending: usize,
}

#[derive(Serialize)]
struct PendingCall {
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

fn run(context: &GatewayContext<'_>, input: &Input) -> Result<Answer, Fault> {
    if let Some(name) = &input.server {
        context.gateway.server(&context.call.permit, name)?;
    }
    let owner = CallOwner::from_call(context.call);
    let here = |call: &ActiveCall| {
        input
            .server
            .as_deref()
            .is_none_or(|name| *name == *call.server)
    };
    let calls = context
        .gateway
        .0
        .calls
        .list(|call| call.owner == owner && here(call));
    let tasks = &context.gateway.0.tasks;
    let status = |call: &ActiveCall| {
        let task = tasks.get(&call.server, call.task_id.as_deref()?, &owner)?;
        task.status()
    };
    let requests = calls.iter().map(|call| pending_call(call, status(call)));
    let requests: Vec<PendingCall> = requests.collect();
    context.answer(Output {
        total_pending: requests.len(),
        requests,
    })
}

fn pending_call(call: &ActiveCall, task_status: Option<String>) -> PendingCall {
    PendingCall {
        request_id: call.id(),
        server_name: call.server.to_string(),
        tool_id: call.tool_id.clone(),
        started_at_iso: iso_timestamp(call.started_ms),
        elapsed_seconds: seconds(call.started.elapsed()),
        timeout_ms: u64::try_from(call.timeout.as_millis()).unwrap_or(u64::MAX),
        state: call.state(),
        last_heartbeat_seconds_ago: seconds(call.quiet_for()),
        task_id: call.task_id.clone(),
        task_status,
    }
}

//! `gateway.refresh`: reloads the configuration.

use rung_fault::{Code, Fault};
use rung_tool::{Answer, Body, InputSchema, Tool};
use serde::{Deserialize, Serialize};

use super::{GatewayContext, GatewayTools, OPERATOR_HINTS};
use crate::calls::CallOwner;
use crate::gateway::SLOW_START;
use crate::owned_work::OwnedWork;
use crate::policy::PolicySubject;

pub(super) const TOOL: Tool<GatewayTools, Input> = Tool::new(
    "gateway.refresh",
    "Reloads configuration and policy; lists new servers. Refused while your calls or tasks run, unless force cancels them.",
    InputSchema::Text {
        properties: r#"{"source": {"enum": ["claude_config", "custom"]}, "reason": {"type": "string"}, "force": {"type": "boolean"}}"#,
        details: "",
        required: &[],
        descriptions: &[
        ("source", "Accepted for compatibility; all files are read."),
        ("reason", "Accepted for compatibility; not used."),
        ("force", "True cancels your active calls and tasks."),
    ],
    },
    Body::Async(|context, input| Box::pin(run(context, input))),
)
.titled("Reload the configuration")
.with_hints(OPERATOR_HINTS);

#[derive(Deserialize)]
pub(super) struct Input {
    #[serde(default)]
    force: bool,
}

#[derive(Serialize)]
struct Output {
    ok: bool,
    servers_seen: usize,
    servers_online: usize,
    tools_indexed: usize,
    revision_id: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<String>,
    /// Servers without a catalog that are still starting.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    still_starting: Vec<String>,
    pending_requests_seen: usize,
    pending_requests_cancelled: usize,
    pending_requests_refused: usize,
    pending_requests_remaining: usize,
    mcp_tasks_seen: usize,
    mcp_tasks_cancelled: usize,
    mcp_tasks_refused: usize,
    mcp_tasks_remaining: usize,
}

async fn run(context: &GatewayContext<'_>, input: Input) -> Result<Answer, Fault> {
    let (gateway, call) = (context.gateway, context.call);
    let work = OwnedWork::find(gateway, &CallOwner::from_call(call), None);
    if !work.is_empty() && !input.force {
        return Err(Fault::new(Code::WorkPending, format!("{work} of yours are active"))
            .with_hint("gateway.list_pending and gateway.tasks_list show them; gateway.refresh with \"force\": true cancels them"));
    }
    let ended = work.cancel(gateway).await;
    gateway.reload().await?;
    let permit = &call.permit;
    let seen_at_once = tokio::time::timeout(SLOW_START, gateway.wait_until_listed(permit)).await;
    let still_starting = if seen_at_once.is_ok() {
        Vec::new()
    } else {
        let unseen = gateway.unlisted_servers(permit).into_iter();
        let starting = unseen.filter(|server| server.is_starting());
        starting.map(|server| server.name().to_string()).collect()
    };
    let remaining = OwnedWork::find(gateway, &CallOwner::from_call(call), None);
    let (state, shelf) = (gateway.state(), gateway.tool_index());
    let servers = state.servers.values();
    let servers: Vec<_> = servers
        .filter(|server| state.is_visible(permit, PolicySubject::Server(server.name())))
        .collect();
    let tools = shelf.tools.iter().filter(|(server, known)| {
        let (server, tool) = (&**server.name(), &*known.tool.name);
        state.is_visible(permit, PolicySubject::Tool { server, tool })
    });
    context.answer(Output {
        ok: true,
        servers_seen: servers.len(),
        servers_online: servers.iter().filter(|server| server.is_online()).count(),
        tools_indexed: tools.count(),
        revision_id: gateway.revision(),
        errors: gateway.problems(&state, permit),
        still_starting,
        pending_requests_seen: ended.calls,
        pending_requests_cancelled: ended.calls,
        pending_requests_refused: 0,
        pending_requests_remaining: remaining.calls(),
        mcp_tasks_seen: ended.tasks,
        mcp_tasks_cancelled: ended.tasks_acknowledged,
        mcp_tasks_refused: ended.tasks - ended.tasks_acknowledged,
        mcp_tasks_remaining: remaining.tasks(),
    })
}

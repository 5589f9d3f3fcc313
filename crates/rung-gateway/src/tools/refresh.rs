//! `gateway.refresh`: reads the configuration again.

use rung_fault::{Code, Fault};
use rung_tool::Reply;
use serde::{Deserialize, Serialize};

use super::{Asking, Definition, OPERATES};
use crate::calls::Owner;
use crate::gateway::LONG;
use crate::policy::Thing;
use crate::work::Work;

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.refresh",
    title: "Reload the configuration",
    description: "Reads configuration and policy again, and looks at new servers. Refuses while you have work under way, unless force ends it.",
    hints: OPERATES,
    operates: true,
    properties: r#"{"source": {"enum": ["claude_config", "custom"]}, "reason": {"type": "string"}, "force": {"type": "boolean"}}"#,
    required: &[],
    run: |asking| Box::pin(run(asking)),
};

#[derive(Deserialize)]
struct Input {
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
    /// Servers that nobody has seen and that take long to start.
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

async fn run(asking: Asking<'_>) -> Result<Reply, Fault> {
    let input: Input = asking.read()?;
    let (gateway, call) = (asking.gateway, asking.call);
    let work = Work::of(gateway, &Owner::of(call), None);
    if !work.is_empty() && !input.force {
        return Err(Fault::new(Code::WorkPending, format!("you have {work} under way"))
            .with_hint("gateway.list_pending and gateway.tasks_list show it; \"force\": true ends it and goes on"));
    }
    let ended = work.end(gateway).await;
    gateway.reload().await?;
    let permit = &call.permit;
    let seen_at_once = tokio::time::timeout(LONG, gateway.see_all(permit)).await;
    let still_starting = if seen_at_once.is_ok() {
        Vec::new()
    } else {
        let unseen = gateway.unseen(permit).into_iter();
        let starting = unseen.filter(|server| server.is_starting());
        starting.map(|server| server.name().to_string()).collect()
    };
    let remaining = Work::of(gateway, &Owner::of(call), None);
    let (state, shelf) = (gateway.state(), gateway.shelf());
    let servers = state.servers.values();
    let servers: Vec<_> = servers
        .filter(|server| state.sees(permit, Thing::Server(server.name())))
        .collect();
    let tools = shelf.tools.iter().filter(|(server, known)| {
        let (server, tool) = (&**server.name(), &*known.tool.name);
        state.sees(permit, Thing::Tool { server, tool })
    });
    asking
        .reply(Output {
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
            mcp_tasks_cancelled: ended.tasks_ended,
            mcp_tasks_refused: ended.tasks - ended.tasks_ended,
            mcp_tasks_remaining: remaining.tasks(),
        })
        .await
}

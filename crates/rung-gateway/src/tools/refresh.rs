//! `gateway.refresh`: reads the configuration again.

use rung_fault::{Code, Fault};
use rung_tool::Reply;
use serde::{Deserialize, Serialize};

use super::{Asking, Definition, OPERATES};
use crate::calls::Owner;
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
    pending_requests_seen: usize,
    pending_requests_cancelled: usize,
    mcp_tasks_seen: usize,
    mcp_tasks_cancelled: usize,
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
    gateway.see_all(&call.permit).await;
    let state = gateway.state();
    let servers = state.servers.values();
    let skipped = state.skipped.iter();
    let skipped = skipped.map(|entry| format!("{} in {}: {}", entry.name, entry.file, entry.why));
    asking
        .reply(Output {
            ok: true,
            servers_seen: state.servers.len(),
            servers_online: servers.filter(|server| server.is_online()).count(),
            tools_indexed: gateway.shelf().tools.len(),
            revision_id: gateway.revision(),
            errors: state.problems.iter().cloned().chain(skipped).collect(),
            pending_requests_seen: ended.calls,
            pending_requests_cancelled: ended.calls,
            mcp_tasks_seen: ended.tasks,
            mcp_tasks_cancelled: ended.tasks_ended,
        })
        .await
}

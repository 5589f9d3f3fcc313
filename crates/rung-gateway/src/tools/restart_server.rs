//! `gateway.restart_server`: stops a server and starts it again.

use rung_fault::Fault;
use rung_tool::Reply;

use super::connect_server::Output;
use super::disconnect_server::stop_server;
use super::{Asking, Definition, OPERATOR_HINTS, parameter};

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.restart_server",
    title: "Restart a server",
    description: "Restarts a server; force as in gateway.disconnect_server.",
    hints: OPERATOR_HINTS,
    operates: true,
    properties: r#"{"server_name": {"type": "string"}, "force": {"type": "boolean"}}"#,
    parameters: &[
        ("server_name", parameter::SERVER),
        ("force", parameter::FORCE),
    ],
    required: &["server_name"],
    run: |asking| Box::pin(run(asking)),
};

async fn run(asking: Asking<'_>) -> Result<Reply, Fault> {
    let stopped = stop_server(&asking).await?;
    let server = &stopped.server;
    let instance = server.open(asking.call).await?;
    let seen = server.refresh_catalog(&instance).await?;
    asking
        .reply(Output {
            ok: true,
            server: server.name(),
            action: "restart",
            prior_status: stopped.prior.name(),
            new_status: server.status().name(),
            cancelled_request_count: stopped.ended.calls,
            active_task_count: stopped.ended.tasks,
            cancelled_task_count: stopped.ended.tasks_acknowledged,
            message: format!(
                "{} was restarted, with {} tool(s)",
                server.name(),
                seen.tools.len()
            ),
        })
        .await
}

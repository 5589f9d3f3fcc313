//! `gateway.restart_server`: stops a server and starts it again.

use rung_fault::Fault;
use rung_tool::Reply;

use super::connect_server::Output;
use super::disconnect_server::stop;
use super::{Asking, Definition, OPERATES};

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.restart_server",
    title: "Restart a server",
    description: "Stops a server and starts it again, as gateway.disconnect_server would.",
    hints: OPERATES,
    operates: true,
    properties: r#"{"server_name": {"type": "string"}, "force": {"type": "boolean"}}"#,
    required: &["server_name"],
    run: |asking| Box::pin(run(asking)),
};

async fn run(asking: Asking<'_>) -> Result<Reply, Fault> {
    let stopped = stop(&asking).await?;
    let server = &stopped.server;
    let instance = server.open(asking.call).await?;
    let seen = server.look(&instance).await?;
    asking
        .reply(Output {
            ok: true,
            server: server.name(),
            action: "restart",
            prior_status: stopped.prior.name(),
            new_status: server.status().name(),
            cancelled_request_count: stopped.ended.calls,
            active_task_count: stopped.ended.tasks,
            cancelled_task_count: stopped.ended.tasks_ended,
            message: format!(
                "{} was started again, with {} tool(s)",
                server.name(),
                seen.tools.len()
            ),
        })
        .await
}

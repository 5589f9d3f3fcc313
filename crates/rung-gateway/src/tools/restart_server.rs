//! `gateway.restart_server`: stops a server and starts it again.

use rung_fault::Fault;
use rung_tool::{Answer, Body, InputSchema, Tool};

use super::connect_server::Output;
use super::disconnect_server::{Input, stop_server};
use super::{GatewayContext, GatewayTools, OPERATOR_HINTS, parameter};

pub(super) const TOOL: Tool<GatewayTools, Input> = Tool::new(
    "gateway.restart_server",
    "Restarts a server; force as in gateway.disconnect_server.",
    InputSchema::Text {
        properties: r#"{"server_name": {"type": "string"}, "force": {"type": "boolean"}}"#,
        details: "",
        required: &["server_name"],
        descriptions: &[
            ("server_name", parameter::SERVER),
            ("force", parameter::FORCE),
        ],
    },
    Body::Async(|context, input| Box::pin(run(context, input))),
)
.titled("Restart a server")
.with_hints(OPERATOR_HINTS);

async fn run(context: &GatewayContext<'_>, input: Input) -> Result<Answer, Fault> {
    let stopped = stop_server(context, &input).await?;
    let server = &stopped.server;
    let instance = server.open(context.call).await?;
    let seen = server.refresh_catalog(&instance).await?;
    context.answer(Output {
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
}

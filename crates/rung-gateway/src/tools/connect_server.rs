//! `gateway.connect_server`: starts a server without calling anything.

use rung_fault::Fault;
use rung_tool::{Answer, Body, InputSchema, Tool};
use serde::{Deserialize, Serialize};

use super::{GatewayContext, GatewayTools, OPERATOR_HINTS, parameter};
use crate::calls::CallOwner;
use crate::owned_work::OwnedWork;

pub(super) const TOOL: Tool<GatewayTools, Input> = Tool::new(
    "gateway.connect_server",
    "Starts a server now. gateway.invoke also starts it.",
    InputSchema::Text {
        properties: r#"{"server_name": {"type": "string"}}"#,
        details: "",
        required: &["server_name"],
        descriptions: &[("server_name", parameter::SERVER)],
    },
    Body::Async(|context, input| Box::pin(run(context, input))),
)
.titled("Start a server")
.with_hints(OPERATOR_HINTS);

#[derive(Deserialize)]
pub(super) struct Input {
    server_name: String,
}

/// The server's state before and after.
#[derive(Serialize)]
pub(super) struct Output<'a> {
    pub(super) ok: bool,
    pub(super) server: &'a str,
    pub(super) action: &'static str,
    pub(super) prior_status: &'static str,
    pub(super) new_status: &'static str,
    pub(super) cancelled_request_count: usize,
    pub(super) active_task_count: usize,
    pub(super) cancelled_task_count: usize,
    pub(super) message: String,
}

async fn run(context: &GatewayContext<'_>, input: Input) -> Result<Answer, Fault> {
    let server = context
        .gateway
        .server(&context.call.permit, &input.server_name)?;
    let prior = server.status();
    let instance = server.open(context.call).await?;
    let seen = server.refresh_catalog(&instance).await?;
    let owner = CallOwner::from_call(context.call);
    let work = OwnedWork::find(context.gateway, &owner, Some(server.name()));
    context.answer(Output {
        ok: true,
        server: server.name(),
        action: "connect",
        prior_status: prior.name(),
        new_status: server.status().name(),
        cancelled_request_count: 0,
        active_task_count: work.tasks(),
        cancelled_task_count: 0,
        message: format!(
            "{} is online with {} tool(s)",
            server.name(),
            seen.tools.len()
        ),
    })
}

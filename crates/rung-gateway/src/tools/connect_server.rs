//! `gateway.connect_server`: starts a server without calling anything.

use rung_fault::Fault;
use rung_tool::Reply;
use serde::{Deserialize, Serialize};

use super::{Asking, Definition, OPERATOR_HINTS, parameter};
use crate::calls::CallOwner;
use crate::owned_work::OwnedWork;

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.connect_server",
    title: "Start a server",
    description: "Starts a server now. gateway.invoke also starts it.",
    hints: OPERATOR_HINTS,
    operates: true,
    properties: r#"{"server_name": {"type": "string"}}"#,
    parameters: &[("server_name", parameter::SERVER)],
    required: &["server_name"],
    run: |asking| Box::pin(run(asking)),
};

#[derive(Deserialize)]
struct Input {
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

async fn run(asking: Asking<'_>) -> Result<Reply, Fault> {
    let input: Input = asking.read()?;
    let server = asking
        .gateway
        .server(&asking.call.permit, &input.server_name)?;
    let prior = server.status();
    let instance = server.open(asking.call).await?;
    let seen = server.refresh_catalog(&instance).await?;
    let owner = CallOwner::from_call(asking.call);
    let work = OwnedWork::find(asking.gateway, &owner, Some(server.name()));
    asking
        .reply(Output {
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
        .await
}

//! `gateway.connect_server`: starts a server without calling anything.

use rung_fault::Fault;
use rung_tool::Reply;
use serde::{Deserialize, Serialize};

use super::{Asking, Definition, OPERATES};
use crate::calls::Owner;
use crate::work::Work;

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.connect_server",
    title: "Start a server",
    description: "Starts a server now. gateway.invoke starts it by itself.",
    hints: OPERATES,
    operates: true,
    properties: r#"{"server_name": {"type": "string"}}"#,
    required: &["server_name"],
    run: |asking| Box::pin(run(asking)),
};

#[derive(Deserialize)]
struct Input {
    server_name: String,
}

/// What became of a server.
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
    let seen = server.look(&instance).await?;
    let owner = Owner::of(asking.call);
    let work = Work::of(asking.gateway, &owner, Some(server.name()));
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

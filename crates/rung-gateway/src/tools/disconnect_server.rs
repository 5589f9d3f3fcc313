//! `gateway.disconnect_server`: stops a server. No file is changed, and the next call starts it again.

use std::sync::Arc;

use rung_fault::{Code, Fault};
use rung_tool::{Answer, Body, InputSchema, Tool};
use serde::Deserialize;

use super::connect_server::Output;
use super::{GatewayContext, GatewayTools, OPERATOR_HINTS, parameter};
use crate::calls::CallOwner;
use crate::owned_work::{CancelledWork, OwnedWork};
use crate::server::{Server, ServerStatus};

pub(super) const TOOL: Tool<GatewayTools, Input> = Tool::new(
    "gateway.disconnect_server",
    "Stops a server until its next call. Refused while calls or tasks run there, unless force cancels yours.",
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
.titled("Stop a server")
.with_hints(OPERATOR_HINTS);

#[derive(Deserialize)]
pub(super) struct Input {
    server_name: String,
    #[serde(default)]
    force: bool,
}

/// A stopped server, with its earlier status and the cancelled work.
pub(super) struct StoppedServer {
    pub(super) server: Arc<Server>,
    pub(super) prior: ServerStatus,
    pub(super) ended: CancelledWork,
}

async fn run(context: &GatewayContext<'_>, input: Input) -> Result<Answer, Fault> {
    let stopped = stop_server(context, &input).await?;
    let name = stopped.server.name();
    context.answer(Output {
        ok: true,
        server: name,
        action: "disconnect",
        prior_status: stopped.prior.name(),
        new_status: stopped.server.status().name(),
        cancelled_request_count: stopped.ended.calls,
        active_task_count: stopped.ended.tasks,
        cancelled_task_count: stopped.ended.tasks_acknowledged,
        message: format!("{name} is stopped; the next call starts it again"),
    })
}

/// Stops the named server after the caller's work there is done or cancelled. Refuses while others use a shared server.
pub(super) async fn stop_server(
    context: &GatewayContext<'_>,
    input: &Input,
) -> Result<StoppedServer, Fault> {
    let (gateway, call) = (context.gateway, context.call);
    let server = gateway.server(&call.permit, &input.server_name)?;
    let owner = CallOwner::from_call(call);
    let name = server.name();
    let others = if server.is_shared() {
        OwnedWork::count_of_others(gateway, &owner, name)
    } else {
        0
    };
    if others > 0 {
        let why = format!("other callers have active calls or tasks at {name}");
        return Err(Fault::new(Code::WorkPending, why).with_hint("try again later"));
    }
    let work = OwnedWork::find(gateway, &owner, Some(name));
    if !work.is_empty() && !input.force {
        let why = format!("{work} of yours are active at {name}");
        return Err(Fault::new(Code::WorkPending, why).with_hint(
            "gateway.list_pending and gateway.tasks_list show them; \"force\": true cancels them",
        ));
    }
    let prior = server.status();
    let ended = work.cancel(gateway).await;
    server.close_for(call).await;
    Ok(StoppedServer {
        server,
        prior,
        ended,
    })
}

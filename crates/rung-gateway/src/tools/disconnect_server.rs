//! `gateway.disconnect_server`: stops a server. No file is changed, and the next call starts it again.

use std::sync::Arc;

use rung_fault::{Code, Fault};
use rung_tool::Reply;
use serde::Deserialize;

use super::connect_server::Output;
use super::{Asking, Definition, OPERATOR_HINTS, parameter};
use crate::calls::CallOwner;
use crate::owned_work::{CancelledWork, OwnedWork};
use crate::server::{Server, ServerStatus};

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.disconnect_server",
    title: "Stop a server",
    description: "Stops a server until its next call. Refused while calls or tasks run there, unless force cancels yours.",
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

#[derive(Deserialize)]
struct Input {
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

async fn run(asking: Asking<'_>) -> Result<Reply, Fault> {
    let stopped = stop_server(&asking).await?;
    let name = stopped.server.name();
    asking
        .reply(Output {
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
        .await
}

/// Stops the named server after the caller's work there is done or cancelled. Refuses while others use a shared server.
pub(super) async fn stop_server(asking: &Asking<'_>) -> Result<StoppedServer, Fault> {
    let input: Input = asking.read()?;
    let (gateway, call) = (asking.gateway, asking.call);
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

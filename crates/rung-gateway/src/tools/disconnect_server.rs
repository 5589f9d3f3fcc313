//! `gateway.disconnect_server`: stops a server. Nothing is changed in any file, and the next call starts it again.

use std::sync::Arc;

use rung_fault::{Code, Fault};
use rung_tool::Reply;
use serde::Deserialize;

use super::connect_server::Output;
use super::{Asking, Definition, OPERATES};
use crate::calls::Owner;
use crate::server::{Server, Status};
use crate::work::{Ended, Work};

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.disconnect_server",
    title: "Stop a server",
    description: "Stops a server; the next call starts it again. Refuses while work is under way there, unless force ends yours.",
    hints: OPERATES,
    operates: true,
    properties: r#"{"server_name": {"type": "string"}, "force": {"type": "boolean"}}"#,
    required: &["server_name"],
    run: |asking| Box::pin(run(asking)),
};

#[derive(Deserialize)]
struct Input {
    server_name: String,
    #[serde(default)]
    force: bool,
}

/// A server that was stopped, and what for.
pub(super) struct Stopped {
    pub(super) server: Arc<Server>,
    pub(super) prior: Status,
    pub(super) ended: Ended,
}

async fn run(asking: Asking<'_>) -> Result<Reply, Fault> {
    let stopped = stop(&asking).await?;
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
            cancelled_task_count: stopped.ended.tasks_ended,
            message: format!("{name} is stopped; the next call starts it again"),
        })
        .await
}

/// Stops the server that is named, once the caller's work there is over or ended. The work of others is theirs.
pub(super) async fn stop(asking: &Asking<'_>) -> Result<Stopped, Fault> {
    let input: Input = asking.read()?;
    let (gateway, call) = (asking.gateway, asking.call);
    let server = gateway.server(&call.permit, &input.server_name)?;
    let owner = Owner::of(call);
    let name = server.name();
    let others = if server.is_shared() {
        Work::of_others(gateway, &owner, name)
    } else {
        0
    };
    if others > 0 {
        let why = format!("others have work under way at {name}");
        return Err(Fault::new(Code::WorkPending, why).with_hint("try again when it is over"));
    }
    let work = Work::of(gateway, &owner, Some(name));
    if !work.is_empty() && !input.force {
        let why = format!("you have {work} under way at {name}");
        return Err(Fault::new(Code::WorkPending, why).with_hint(
            "gateway.list_pending and gateway.tasks_list show it; \"force\": true ends it",
        ));
    }
    let prior = server.status();
    let ended = work.end(gateway).await;
    server.close_for(call).await;
    Ok(Stopped {
        server,
        prior,
        ended,
    })
}

//! `gateway.cancel`: ends a call of the caller's. Its own answer says so; nothing else changes.

use rung_fault::{Code, Fault};
use rung_tool::{Hints, Reply};
use serde::{Deserialize, Serialize};

use super::{Asking, Definition, seconds};
use crate::calls::Owner;

pub(super) const DEFINITION: Definition = Definition {
    name: "gateway.cancel",
    title: "Cancel a call",
    description: "Ends one of your calls. One that is not stalled is ended only with force.",
    hints: Hints {
        read_only: false,
        destructive: true,
        idempotent: true,
        open_world: true,
    },
    operates: false,
    properties: r#"{"request_id": {"type": "string", "description": "From gateway.list_pending."}, "force": {"type": "boolean"}}"#,
    required: &["request_id"],
    run: |asking| Box::pin(run(asking)),
};

#[derive(Deserialize)]
struct Input {
    request_id: String,
    #[serde(default)]
    force: bool,
}

#[derive(Serialize)]
struct Output {
    request_id: String,
    status: &'static str,
    message: String,
    was_stalled: bool,
    elapsed_seconds: f64,
}

async fn run(asking: Asking<'_>) -> Result<Reply, Fault> {
    let input: Input = asking.read()?;
    let owner = Owner::of(asking.call);
    let id = &input.request_id;
    let mut calls = asking
        .gateway
        .0
        .calls
        .list(|call| call.owner == owner && call.id() == *id);
    let Some(call) = calls.pop() else {
        let over = asking.gateway.0.lately.of(&owner, |call| call.id() == *id);
        if let Some(over) = over.first() {
            return asking
                .reply(Output {
                    status: "already_complete",
                    message: format!("{} is over; there is nothing to end", over.call.tool_id),
                    was_stalled: false,
                    elapsed_seconds: seconds(over.lasted),
                    request_id: input.request_id,
                })
                .await;
        }
        let shown = rung_ladder::head(id, 128);
        let why = format!("no call of yours that is under way has the id {shown:?}");
        return Err(Fault::new(Code::NotFound, why).with_hint(
            "gateway.list_pending lists them; a task is ended with gateway.tasks_cancel",
        ));
    };
    let was_stalled = call.is_stalled();
    if !was_stalled && !input.force {
        let why = format!(
            "{id} is well: it was last heard of {} s ago",
            seconds(call.quiet_for())
        );
        return Err(
            Fault::new(Code::WorkPending, why).with_hint("\"force\": true ends it all the same")
        );
    }
    asking.gateway.0.calls.end(&call);
    asking
        .reply(Output {
            status: "cancelled",
            message: format!(
                "{} was cancelled; its server is told so if it was asked already",
                call.tool_id
            ),
            was_stalled,
            elapsed_seconds: seconds(call.started.elapsed()),
            request_id: input.request_id,
        })
        .await
}

//! `gateway.cancel`: cancels an active call of the caller. The call itself returns `call_cancelled`; nothing else changes.

use rung_fault::{Code, Fault};
use rung_tool::{Answer, Body, Hints, InputSchema, Tool};
use serde::{Deserialize, Serialize};

use super::{GatewayContext, GatewayTools, seconds};
use crate::calls::CallOwner;

pub(super) const TOOL: Tool<GatewayTools, Input> = Tool::new(
    "gateway.cancel",
    "Cancels one of your calls. Needs force unless the call is stalled.",
    InputSchema::Text {
        properties: r#"{"request_id": {"type": "string", "description": "From gateway.list_pending."}, "force": {"type": "boolean"}}"#,
        details: "",
        required: &["request_id"],
        descriptions: &[
        (
            "request_id",
            "The call: request_id in the reply of gateway.list_pending.",
        ),
        ("force", "True cancels a call that is not stalled."),
    ],
    },
    Body::Immediate(|context, input| run(context, input)),
)
.titled("Cancel a call")
.with_hints(Hints {
        read_only: false,
        destructive: true,
        idempotent: true,
        open_world: true,
    });

#[derive(Deserialize)]
pub(super) struct Input {
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

fn run(context: &GatewayContext<'_>, input: Input) -> Result<Answer, Fault> {
    let owner = CallOwner::from_call(context.call);
    let id = &input.request_id;
    let mut calls = context
        .gateway
        .0
        .calls
        .list(|call| call.owner == owner && call.id() == *id);
    let Some(call) = calls.pop() else {
        let over = context
            .gateway
            .0
            .call_history
            .list(&owner, |call| call.id() == *id);
        if let Some(over) = over.first() {
            return context.answer(Output {
                status: "already_complete",
                message: format!("{} is over; there is nothing to cancel", over.call.tool_id),
                was_stalled: false,
                elapsed_seconds: seconds(over.duration),
                request_id: input.request_id,
            });
        }
        let shown = rung_ladder::head(id, 128);
        let why = format!("none of your active calls has the id {shown:?}");
        return Err(Fault::new(Code::NotFound, why).with_hint(
            "gateway.list_pending lists your active calls; gateway.tasks_cancel cancels a task",
        ));
    };
    let was_stalled = call.is_stalled();
    if !was_stalled && !input.force {
        let why = format!(
            "{id} is not stalled: its last sign of progress was {} s ago",
            seconds(call.quiet_for())
        );
        return Err(Fault::new(Code::WorkPending, why)
            .with_hint("gateway.cancel with \"force\": true cancels it anyway"));
    }
    context.gateway.0.calls.cancel(&call);
    context.answer(Output {
        status: "cancelled",
        message: format!(
            "{} was cancelled; its server is notified if the call was already sent",
            call.tool_id
        ),
        was_stalled,
        elapsed_seconds: seconds(call.started.elapsed()),
        request_id: input.request_id,
    })
}

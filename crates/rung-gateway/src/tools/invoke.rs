//! `gateway.invoke`: calls a downstream tool.

use std::time::Duration;

use rung_fault::{Code, Fault};
use rung_tool::{Answer, Body, Call, Envelope, Hints, InputSchema, Relayed, Tool, splice};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::tasks_get::TaskView;
use super::{GatewayContext, GatewayTools};
use crate::access::AccessPolicy;
use crate::answer::redacted;
use crate::delegate::with_trace_context;
use crate::invoke::{Invocation, InvokeOutcome, TaskOptions};
use crate::redact::CallerRedactor;

/// The argument `options`, which other tools take too.
macro_rules! options {
    () => {
        r#""options": {"type": "object", "properties": {
            "timeout_ms": {"type": "integer", "minimum": 1000, "maximum": 300000, "default": 30000},
            "max_output_chars": {"type": "integer", "minimum": 100, "maximum": 100000},
            "redact_secrets": {"type": "boolean"}}}"#
    };
}

/// The keywords of `options` that lists leave out.
pub(super) const OPTIONS: &str = concat!("{", options!(), "}");

/// The properties of `trace_context`, which lists leave out.
const TRACE_CONTEXT: &str = r#"{"trace_context": {"properties": {
    "traceparent": {"type": ["string", "null"]},
    "tracestate": {"type": ["string", "null"]},
    "baggage": {"type": ["string", "null"]}}}}"#;

pub(super) const TOOL: Tool<GatewayTools, Input> = Tool::new(
    "gateway.invoke",
    "Calls a tool of any server; starts the server if needed. A long result is stored: read on with rung.read.",
    InputSchema::Text {
        properties: concat!(
            r#"{
        "tool_id": {"type": "string", "description": "server::tool"},
        "arguments": {"type": "object"},
        "task": {"type": "object", "description": "Run as a task, if the tool can.", "properties": {
            "enabled": {"type": "boolean"},
            "metadata": {"type": "object"},
            "ttl": {"type": "integer", "minimum": 1, "description": "seconds"},
            "poll_interval": {"type": "number", "exclusiveMinimum": 0},
            "requestor_context": {"type": "object"}}},"#,
            options!(),
            r#",
        "trace_context": {"type": "object"},
        "_meta": {"type": "object"},
        "run_correlation_id": {"type": "string", "maxLength": 128},
        "seat_correlation_id": {"type": "string", "maxLength": 128},
        "evidence_label_digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}"#
        ),
        details: TRACE_CONTEXT,
        required: &["tool_id"],
        descriptions: &[
        ("tool_id", "The tool: server::tool."),
        ("arguments", "Arguments of the tool."),
        ("task", "Runs the call as a task, if the tool supports it."),
        ("task.enabled", "False makes an ordinary call."),
        ("task.metadata", "Forwarded in _meta."),
        ("task.ttl", "Seconds for which the server keeps the task."),
        (
            "task.poll_interval",
            "Seconds between polls, forwarded in _meta.",
        ),
        ("task.requestor_context", "Forwarded in _meta."),
        ("options", "Limits of this call."),
        (
            "options.timeout_ms",
            "Longest wait for the result, in milliseconds.",
        ),
        (
            "options.max_output_chars",
            "Longest reply; the rest of the result is stored.",
        ),
        (
            "options.redact_secrets",
            "True also masks texts that have the form of a secret.",
        ),
        (
            "trace_context",
            "W3C trace context, forwarded to the server.",
        ),
        ("trace_context.traceparent", "W3C traceparent."),
        ("trace_context.tracestate", "W3C tracestate."),
        ("trace_context.baggage", "W3C baggage."),
        ("_meta", "Members of _meta, forwarded to the server."),
        (
            "run_correlation_id",
            "Identifier of the run, forwarded in _meta.",
        ),
        (
            "seat_correlation_id",
            "Identifier of the seat, forwarded in _meta.",
        ),
        (
            "evidence_label_digest",
            "SHA-256 of an evidence label in hex, forwarded in _meta.",
        ),
    ],
    },
    Body::Async(|context, input| Box::pin(run(context, input))),
)
.forwarding(&["arguments", "_meta"])
.titled("Call a tool")
.with_hints(Hints {
        read_only: false,
        destructive: true,
        idempotent: false,
        open_world: true,
    })
.as_entry();

/// The arguments that the gateway reads; `arguments` and `_meta` are forwarded.
#[derive(Deserialize)]
pub(super) struct Input {
    tool_id: String,
    task: Option<TaskRequest>,
    options: Option<InvokeOptions>,
    trace_context: Option<TraceContext>,
    run_correlation_id: Option<String>,
    seat_correlation_id: Option<String>,
    evidence_label_digest: Option<String>,
}

/// Trace context (W3C).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceContext {
    traceparent: Option<String>,
    tracestate: Option<String>,
    baggage: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskRequest {
    enabled: Option<bool>,
    metadata: Option<Value>,
    ttl: Option<u64>,
    poll_interval: Option<f64>,
    requestor_context: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InvokeOptions {
    timeout_ms: Option<u64>,
    max_output_chars: Option<usize>,
    redact_secrets: Option<bool>,
}

fn no_arguments() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")
}

const TIMEOUT_MS: u64 = 30_000;
/// In milliseconds, the largest integer that every JSON parser represents exactly.
const MAX_SECONDS: u64 = 9_007_199_254_740;

impl InvokeOptions {
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.unwrap_or(TIMEOUT_MS))
    }

    /// Returns the bytes of each form that the caller asks for, without the message around it.
    pub(super) fn max_bytes(&self, call: &Call) -> Option<usize> {
        self.max_output_chars
            .map(|wanted| wanted.saturating_sub(call.envelope_bytes))
    }

    /// Returns the redactor that always applies, plus the usual forms of secrets if the caller asks for it.
    pub(super) fn caller_redactor<'r>(&self, rules: &'r AccessPolicy) -> CallerRedactor<'r> {
        CallerRedactor {
            usual: self.redact_secrets.unwrap_or_default(),
            ..rules.caller_redactor()
        }
    }
}

impl Input {
    /// Checks constraints that the schema leaves out to stay short.
    fn check(&self) -> Result<(), Fault> {
        let task = self.task.as_ref();
        let ttl = task.and_then(|task| task.ttl).unwrap_or_default();
        let poll = task.and_then(|task| task.poll_interval).unwrap_or_default();
        // The conversion to a duration also refuses negative and infinite numbers.
        let most = Duration::from_secs(MAX_SECONDS);
        let poll_is_sound = Duration::try_from_secs_f64(poll).is_ok_and(|poll| poll <= most);
        let is_empty = |id: &Option<String>| id.as_deref() == Some("");
        let wrong = if ttl > MAX_SECONDS {
            Some("`task.ttl` is out of range: at most 9,007,199,254,740,991 ms")
        } else if !poll_is_sound {
            Some("`task.poll_interval` is out of range: at most 9,007,199,254,740,991 ms")
        } else if is_empty(&self.run_correlation_id) {
            Some("`run_correlation_id` is empty")
        } else if is_empty(&self.seat_correlation_id) {
            Some("`seat_correlation_id` is empty")
        } else {
            None
        };
        match wrong {
            Some(wrong) => Err(Fault::new(Code::InvalidArguments, wrong)),
            None => Ok(()),
        }
    }

    /// Returns the `_meta` to send: the caller's own, its trace context and correlation ids.
    fn meta(&self, own: Option<&RawValue>) -> Option<String> {
        let trace = self.trace_context.iter().flat_map(|trace| {
            [
                ("traceparent", &trace.traceparent),
                ("tracestate", &trace.tracestate),
                ("baggage", &trace.baggage),
            ]
        });
        let ids = [
            ("run_correlation_id", &self.run_correlation_id),
            ("seat_correlation_id", &self.seat_correlation_id),
            ("evidence_label_digest", &self.evidence_label_digest),
        ];
        let ids = ids.into_iter();
        let ids = ids.filter_map(|(name, id)| Some((name, Value::from(id.as_deref()?))));
        let task = self.task.as_ref();
        let of_task = [
            ("task_metadata", task.and_then(|task| task.metadata.clone())),
            (
                "requestor_context",
                task.and_then(|task| task.requestor_context.clone()),
            ),
            (
                "poll_interval",
                task.and_then(|task| task.poll_interval).map(Value::from),
            ),
        ];
        let of_task = of_task
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let correlation = ids.chain(of_task);
        let mut meta = own.map(|meta| meta.get().to_owned());
        for (name, value) in trace {
            let Some(value) = value.as_deref() else {
                continue;
            };
            let before = meta.as_deref().unwrap_or("{}");
            let value = Value::from(value).to_string();
            meta = Some(splice::set_member(before, name, &value));
        }
        for (name, value) in correlation {
            let before = meta.as_deref().unwrap_or("{}");
            let name = format!("rung/{name}");
            meta = Some(splice::set_member(before, &name, &value.to_string()));
        }
        meta
    }
}

async fn run(context: &GatewayContext<'_>, input: Input) -> Result<Answer, Fault> {
    input.check()?;
    let (gateway, call) = (context.gateway, context.call);
    let nothing;
    let arguments = if let Some(arguments) = context.tools.forwarded("arguments") {
        arguments
    } else {
        nothing = no_arguments();
        &nothing
    };
    let forwarded_meta = context.tools.forwarded("_meta");
    let options = input.options.as_ref();
    let default = InvokeOptions::default();
    let options = options.unwrap_or(&default);
    let wish = input
        .task
        .as_ref()
        .filter(|wish| wish.enabled != Some(false));
    let order = Invocation {
        tool_id: &input.tool_id,
        arguments,
        meta: with_trace_context(input.meta(forwarded_meta), call),
        timeout: options.timeout(),
        timeout_includes_start: options.timeout_ms.is_some(),
        task_options: wish.map(|wish| TaskOptions {
            ttl_ms: wish.ttl.map(|seconds| seconds.saturating_mul(1_000)),
        }),
    };
    let invoked = gateway.invoke(call, &order).await;
    let state = gateway.state();
    let masks = options.caller_redactor(&state.access);
    let (tool_id, outcome) = invoked.map_err(|fault| masks.redact_fault(fault))?;
    match outcome {
        InvokeOutcome::Done(answer) => {
            let task = None;
            Ok(Answer::Relayed(Relayed {
                result: redacted(answer, masks).await?,
                envelope: Some(Envelope { tool_id, task }),
                max_bytes: options.max_bytes(call),
            }))
        }
        InvokeOutcome::Task(state) => {
            let task = TaskView::from_state(&state);
            let said = serde_json::json!({"tool_id": tool_id, "ok": true, "task": task});
            context.answer(said)
        }
    }
}

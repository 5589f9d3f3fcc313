//! A call that came to nothing, and whose word that is: the provider's, passed on as it stands, or ours.

use rung_fault::{Code, Face, Fault};
use rung_ladder::{Budget, Path, fit};
use rung_tool::{Block, Call, Reply, written};
use serde_json::{Map, Value, json};

use super::provider::{Content, Said};

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Refusal {
    /// We refuse, or could not reach the provider.
    Ours(Fault),
    /// The provider refuses.
    Theirs {
        error: Value,
        status: u16,
        request_id: Option<String>,
    },
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Ours(fault)
    }
}

/// Set aside for what stands around an error that is too long.
const AROUND_BYTES: usize = 600;

impl Refusal {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self::Ours(Fault::new(code, message.into()))
    }

    /// The error that a provider answered with, whatever form it gave it.
    pub(super) fn of(said: Said) -> Self {
        let status = said.status;
        let bare = |message: &str| json!({"type": "rs_error", "code": format!("http_{status}"), "message": message});
        let elsewhere = || {
            bare(
                "the provider sends its callers to another address, and credentials are not taken along",
            )
        };
        let (body, kind) = match &said.content {
            // What says that it is JSON may be anything.
            Content::Json(body) => match body.read() {
                Ok(body) => (Some(body.to_value()), ""),
                Err(_) => (None, "text that is no JSON"),
            },
            Content::Bytes { kind, .. } => (None, kind.as_str()),
        };
        let mut error = match body {
            Some(Value::Object(mut body)) => match body.shift_remove("error") {
                Some(Value::Object(error)) => Value::Object(error),
                Some(Value::String(code)) => {
                    let message = body.get("error_description").or(body.get("message"));
                    let message = message.and_then(Value::as_str).unwrap_or(&code);
                    json!({"type": code, "code": code, "message": message})
                }
                Some(_) | None if body.is_empty() => bare("the provider gave no reason"),
                _ => Value::Object(body),
            },
            Some(_) => bare("the provider gave no reason"),
            None if (300..400).contains(&status) => elsewhere(),
            None if kind.is_empty() => bare("the provider has nothing there, and says no more"),
            None => bare(&format!("the provider answered with {kind}, not JSON")),
        };
        if let (Value::Object(error), Some(id)) = (&mut error, &said.request_id) {
            error
                .entry("request_id")
                .or_insert_with(|| json!(id.clone()));
        }
        Self::Theirs {
            error,
            status,
            request_id: said.request_id,
        }
    }

    /// The error's own members.
    pub(super) fn error(&self) -> Value {
        match self {
            Self::Theirs { error, .. } => error.clone(),
            Self::Ours(fault) => {
                let mut body = fault.body(Face::Pdpp);
                let mut error = match body["error"].take() {
                    Value::Object(error) => error,
                    _ => Map::new(),
                };
                error["type"] = json!("adapter_error");
                Value::Object(error)
            }
        }
    }

    /// What the provider calls it, if it is the provider's.
    pub(super) fn provider_code(&self) -> Option<&str> {
        match self {
            Self::Ours(_) => None,
            Self::Theirs { error, .. } => error["code"].as_str().or_else(|| error["type"].as_str()),
        }
    }

    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Ours(_) => None,
            Self::Theirs { status, .. } => Some(*status),
        }
    }

    /// Everything that programs are told.
    pub(super) fn body(&self, provider_url: &str) -> Value {
        match self {
            Self::Ours(_) => json!({"error": self.error()}),
            Self::Theirs {
                status, request_id, ..
            } => json!({
                "error": self.error(),
                "provider_url": provider_url,
                "http_status": status,
                "request_id": request_id,
            }),
        }
    }

    /// The reply to a call.
    pub(super) fn reply(&self, provider_url: &str, call: &Call, max_bytes: usize) -> Reply {
        let mut body = self.body(provider_url);
        let made = |body: Value| {
            let text = format!("{:#}", body["error"]);
            let mut reply = Reply::of_blocks(vec![Block::Text { text }]);
            reply.structured_content = call.rendering.structured.then(|| written(&body));
            reply.is_error = true;
            if let Self::Ours(fault) = self {
                reply.fault = Some(fault.clone());
            }
            reply
        };
        let reply = made(body.clone());
        let max_bytes = max_bytes.min(call.budget.max_bytes);
        if reply.bytes() <= max_bytes {
            return reply;
        }
        // A provider can say anything, at any length. Pretty text is at most four times as long as the bare error.
        let room = max_bytes.saturating_sub(AROUND_BYTES) / 5;
        let fitted = fit(&body["error"], &Path::root(), &Budget::bytes(room));
        body["error"] = fitted.map_or_else(|_| json!({}), |fitted| fitted.value);
        made(body)
    }
}

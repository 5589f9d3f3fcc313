//! A call that came to nothing, and whose word that is: the provider's, passed on as it stands, or ours.

use rung_fault::{Code, Face, Fault};
use rung_ladder::{Budget, Path, fit, json_char_bytes};
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

/// Members of an error that say what is wrong and what to do about it, and the bytes of each that are never cut where the error is
/// too long. They go before all others.
const FIRST: [(&str, usize); 5] = [
    ("type", 100),
    ("code", 100),
    ("message", 300),
    ("hint", 300),
    ("request_id", 200),
];
/// Parts of a reply that an error may take, one after another until it fits: as text it takes more than it has bytes.
const SHARES: [usize; 6] = [2, 3, 4, 6, 10, 1_000];

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
            Content::Json(body) => match body.read_error() {
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

    /// Something made of that body within so many bytes: set out for people where there is room, else without its spaces, else of as
    /// much of it as there is room for.
    pub(super) fn told<T>(
        &self,
        provider_url: &str,
        max_bytes: usize,
        made: impl Fn(&Value, fn(&Value) -> String) -> T,
        bytes: impl Fn(&T) -> usize,
    ) -> T {
        let mut body = self.body(provider_url);
        let told = made(&body, |value| format!("{value:#}"));
        if bytes(&told) <= max_bytes {
            return told;
        }
        let mut told = made(&body, Value::to_string);
        // A provider can say anything, at any length.
        let error = body["error"].take();
        for share in SHARES {
            if bytes(&told) <= max_bytes {
                break;
            }
            body["error"] = shortened(&error, max_bytes / share);
            told = made(&body, Value::to_string);
        }
        told
    }

    /// The reply to a call.
    pub(super) fn reply(&self, provider_url: &str, call: &Call, max_bytes: usize) -> Reply {
        let made = |body: &Value, text: fn(&Value) -> String| {
            let text = text(&body["error"]);
            let mut reply = Reply::of_blocks(vec![Block::Text { text }]);
            reply.structured_content = call.rendering.structured.then(|| written(body));
            reply.is_error = true;
            if let Self::Ours(fault) = self {
                reply.fault = Some(fault.clone());
            }
            reply
        };
        let max_bytes = max_bytes.min(call.budget.max_bytes);
        self.told(provider_url, max_bytes, made, Reply::bytes)
    }
}

/// An error in about so many bytes. What is wrong and what to do about it is never left out.
fn shortened(error: &Value, max_bytes: usize) -> Value {
    let Value::Object(mut rest) = error.clone() else {
        return json!({});
    };
    let mut short = Map::new();
    for (name, least) in FIRST {
        let told = match rest.get(name) {
            Some(Value::String(text)) => json!(head_as_json(text, least.max(max_bytes / 4))),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => value.clone(),
            _ => continue,
        };
        rest.shift_remove(name);
        short.insert(name.to_owned(), told);
    }
    let taken = Value::Object(short.clone()).to_string().len();
    let room = Budget::bytes(max_bytes.saturating_sub(taken));
    if let Ok(fitted) = fit(&Value::Object(rest), &Path::root(), &room)
        && let Value::Object(rest) = fitted.value
    {
        short.extend(rest);
    }
    short.insert(
        "omitted".to_owned(),
        json!("the error is longer than fits here"),
    );
    Value::Object(short)
}

/// The beginning of a text that takes no more than so many bytes as JSON.
fn head_as_json(text: &str, max_bytes: usize) -> &str {
    let mut taken = 0;
    let over = text.char_indices().find(|(_, char)| {
        taken += json_char_bytes(*char);
        taken > max_bytes
    });
    over.map_or(text, |(at, _)| &text[..at])
}

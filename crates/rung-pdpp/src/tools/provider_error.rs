//! The error of a call: the provider's, passed on unchanged, or this adapter's own.

use rung_fault::{Code, Face, Fault};
use rung_ladder::{Budget, Path, fit, json_char_bytes};
use rung_tool::{Call, ContentBlock, Reply, first_fitting_or_last, to_raw_json};
use serde_json::{Map, Value, json};

use super::provider::{ProviderResponse, ResponseContent};

/// The error of a call to a provider.
#[derive(Debug)]
pub(super) enum ProviderError {
    /// The call was rejected here, or the provider could not be reached.
    Adapter(Fault),
    /// The provider returned an error.
    Upstream {
        error: Value,
        status: u16,
        request_id: Option<String>,
    },
}

impl From<Fault> for ProviderError {
    fn from(fault: Fault) -> Self {
        Self::Adapter(fault)
    }
}

/// The members of an error that are kept when it is too long, each with the bytes that are never cut. They precede all others.
const PRIORITY_MEMBERS: [(&str, usize); 5] = [
    ("type", 100),
    ("code", 100),
    ("message", 300),
    ("hint", 300),
    ("request_id", 200),
];
/// Divisors of the reply budget for the error, tried in order until the reply fits: escaped as text, an error takes more bytes.
const BUDGET_DIVISORS: [usize; 6] = [2, 3, 4, 6, 10, 1_000];

impl ProviderError {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self::Adapter(Fault::new(code, message.into()))
    }

    /// Reads the error of a response, in any of the forms that providers use.
    pub(super) fn from_response(said: ProviderResponse) -> Self {
        let status = said.status;
        let bare = |message: &str| json!({"type": "rs_error", "code": format!("http_{status}"), "message": message});
        let elsewhere =
            || bare("the provider redirects to another URL; credentials are not sent there");
        let (body, kind) = match &said.content {
            // A body declared as JSON may be anything.
            ResponseContent::Json(body) => match body.parse_shallow() {
                Ok(body) => (Some(body.to_value()), ""),
                Err(_) => (None, "text that is not valid JSON"),
            },
            ResponseContent::Bytes { kind, .. } => (None, kind.as_str()),
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
            None if kind.is_empty() => bare("the provider returned an error without a body"),
            None => bare(&format!("the provider returned {kind}, not JSON")),
        };
        if let Some(hint) = tool_hint(&error) {
            error["hint"] = json!(hint);
        }
        if let (Value::Object(error), Some(id)) = (&mut error, &said.request_id) {
            error
                .entry("request_id")
                .or_insert_with(|| json!(id.clone()));
        }
        Self::Upstream {
            error,
            status,
            request_id: said.request_id,
        }
    }

    /// Returns the error object.
    pub(super) fn error(&self) -> Value {
        match self {
            Self::Upstream { error, .. } => error.clone(),
            Self::Adapter(fault) => {
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

    /// Returns the provider's error code, or `None` for an error of this adapter.
    pub(super) fn provider_code(&self) -> Option<&str> {
        match self {
            Self::Adapter(_) => None,
            Self::Upstream { error, .. } => {
                error["code"].as_str().or_else(|| error["type"].as_str())
            }
        }
    }

    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Adapter(_) => None,
            Self::Upstream { status, .. } => Some(*status),
        }
    }

    /// Returns the structured content of the error.
    pub(super) fn body(&self, provider_url: &str) -> Value {
        match self {
            Self::Adapter(_) => json!({"error": self.error()}),
            Self::Upstream {
                status, request_id, ..
            } => json!({
                "error": self.error(),
                "provider_url": provider_url,
                "http_status": status,
                "request_id": request_id,
            }),
        }
    }

    /// Renders the error body in several levels of detail: pretty-printed, compact, and with the error shortened, because the error
    /// of a provider may have any length. `render` also gets the function that prints JSON.
    pub(super) fn renderings<'a, T: 'a>(
        &'a self,
        provider_url: &str,
        max_bytes: usize,
        render: impl Fn(&Value, fn(&Value) -> String) -> T + 'a,
    ) -> impl Iterator<Item = T> + 'a {
        const WHOLE: [fn(&Value) -> String; 2] = [pretty_json, compact_json];
        let whole = self.body(provider_url);
        (0..WHOLE.len() + BUDGET_DIVISORS.len()).map(move |level| {
            if let Some(print) = WHOLE.get(level) {
                return render(&whole, *print);
            }
            let mut body = whole.clone();
            let share = max_bytes / BUDGET_DIVISORS[level - WHOLE.len()];
            body["error"] = shorten_error(&whole["error"], share);
            render(&body, compact_json)
        })
    }

    /// Builds the reply to the call.
    pub(super) fn reply(&self, provider_url: &str, call: &Call, max_bytes: usize) -> Reply {
        let max_bytes = max_bytes.min(call.budget.max_bytes);
        let replies = self.renderings(provider_url, max_bytes, |body, print| {
            let text = print(&body["error"]);
            let mut reply = Reply::from_blocks(vec![ContentBlock::Text { text }]);
            reply.structured_content = call.rendering.structured.then(|| to_raw_json(body));
            reply.is_error = true;
            if let Self::Adapter(fault) = self {
                reply.fault = Some(fault.clone());
            }
            reply
        });
        first_fitting_or_last(replies, max_bytes).expect("the whole error is always rendered")
    }
}

fn pretty_json(value: &Value) -> String {
    format!("{value:#}")
}

fn compact_json(value: &Value) -> String {
    value.to_string()
}

/// Returns the hint for an agent in place of one that names an HTTP route or header, which no tool can send.
fn tool_hint(error: &Value) -> Option<&'static str> {
    let hint = error["hint"].as_str()?;
    let is_http = ["/v1/", "Authorization:", "changes_since="];
    if !is_http.iter().any(|part| hint.contains(part)) {
        return None;
    }
    Some(match error["code"].as_str().unwrap_or_default() {
        "field_not_granted" => {
            "leave the field out; `schema` with the stream lists the granted fields"
        }
        "cursor_expired" => "call `query_records` with changes_since \"beginning\"",
        "authentication_error" => "ask the owner for a new grant",
        "connector_instance_not_writable" => "ask the owner to open the connection",
        _ => "call `schema`: it lists the granted streams and their connections",
    })
}

/// Shortens an error to about `max_bytes`. Type, code, message, hint and request id are never left out.
fn shorten_error(error: &Value, max_bytes: usize) -> Value {
    let Value::Object(mut rest) = error.clone() else {
        return json!({});
    };
    let mut short = Map::new();
    for (name, least) in PRIORITY_MEMBERS {
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
        json!("the error is too long for a reply"),
    );
    Value::Object(short)
}

/// Returns the beginning of a text that takes at most `max_bytes` as JSON.
fn head_as_json(text: &str, max_bytes: usize) -> &str {
    let mut taken = 0;
    let over = text.char_indices().find(|(_, char)| {
        taken += json_char_bytes(*char);
        taken > max_bytes
    });
    over.map_or(text, |(at, _)| &text[..at])
}

//! JSON-RPC errors: for what is wrong with a request, as opposed to faults of a tool, which its result reports.

use rung_fault::{Class, Code, Face, Fault};
use serde_json::{Value, json};

use crate::envelope::{ErrorBody, MAX_MESSAGE_BYTES, MalformedMessage, code};
use crate::session::Phase;
use crate::version::ProtocolVersion;

/// The error that answers a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProtocolError {
    pub(crate) body: ErrorBody,
    /// HTTP status of the reply in modern versions. Legacy versions report errors in the body only.
    pub(crate) status: u16,
    context: Box<ErrorContext>,
}

/// Details of an error that only the Datalevin face reports.
#[derive(Debug, Clone, PartialEq, Default)]
struct ErrorContext {
    /// Code of the fault behind the error, if there is one.
    fault: Option<Code>,
    /// Facts about the request, by key.
    request: Vec<(&'static str, String)>,
}

/// Keys of [`ErrorContext::request`].
const FIELD: &str = ":field";
const METHOD: &str = ":method";
const PHASE: &str = ":phase";

pub(crate) type Result<T, E = ProtocolError> = std::result::Result<T, E>;

impl ProtocolError {
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Self::from_body(ErrorBody::new(code, message))
    }

    /// Creates an error from a stored error object.
    pub(crate) fn from_body(body: ErrorBody) -> Self {
        Self {
            body,
            status: 200,
            context: Box::default(),
        }
    }

    pub(crate) fn with_data(mut self, data: Value) -> Self {
        self.body.data = Some(data);
        self
    }

    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Names the offending part of the request.
    pub(crate) fn with_field(self, field: impl Into<String>) -> Self {
        self.with_context(FIELD, field)
    }

    fn with_context(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.context.request.push((key, value.into()));
        self
    }

    /// Returns the error object for `face`. The Datalevin face adds its own keys to `data`.
    pub(crate) fn body_for(&self, face: Face) -> ErrorBody {
        let mut body = self.body.clone();
        if face == Face::Datalevin {
            let name = self.context.fault.map(|code| code.name_on(face));
            let data = body.data.get_or_insert_with(|| json!({}));
            data[":code"] = name.unwrap_or_else(|| datalevin_code(body.code)).into();
            for (key, value) in &self.context.request {
                data[*key] = value.as_str().into();
            }
        }
        body
    }

    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    pub(crate) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_REQUEST, message)
    }

    pub(crate) fn method_not_found(method: &str) -> Self {
        let method = rung_ladder::head(method, 100);
        Self::new(
            code::METHOD_NOT_FOUND,
            format!("no method is named {method:?}"),
        )
        .with_context(METHOD, method)
        .with_status(404)
    }

    pub(crate) fn header_mismatch(message: impl Into<String>) -> Self {
        Self::new(code::HEADER_MISMATCH, message).with_status(400)
    }

    pub(crate) fn unsupported_version(requested: &str) -> Self {
        let requested = rung_ladder::head(requested, 100);
        Self::new(
            code::UNSUPPORTED_VERSION,
            "this server does not support this protocol version",
        )
        .with_data(json!({"supported": ProtocolVersion::modern_names(), "requested": requested}))
        .with_status(400)
    }

    /// Creates an error for a client that does not declare `required`, given in the shape of its capabilities.
    pub(crate) fn missing_capability(message: impl Into<String>, required: &Value) -> Self {
        Self::new(code::MISSING_CAPABILITY, message)
            .with_data(json!({"requiredCapabilities": required}))
            .with_status(400)
    }

    /// Creates an error for a limit of this connection or caller; the client may retry later.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(code::BUSY, message).with_data(json!({"code": "busy", "retry": "later"}))
    }

    /// Creates the error for a request that comes before `initialize`.
    pub(crate) fn uninitialized(method: &str) -> Self {
        let hint = "send initialize first, or name io.modelcontextprotocol/protocolVersion in params._meta";
        Self::invalid_request("the connection is not initialized")
            .with_data(json!({"hint": hint}))
            .with_phase(method, "uninitialized")
    }

    /// Creates the error for a request that comes before `notifications/initialized`, where the server requires that.
    pub(crate) fn not_ready(method: &str) -> Self {
        Self::invalid_request("the client has not sent notifications/initialized")
            .with_data(json!({"hint": "send notifications/initialized first"}))
            .with_phase(method, Phase::Initializing.name())
    }

    /// Creates the error for a second `initialize`.
    pub(crate) fn already_initialized(phase: Phase) -> Self {
        Self::invalid_request("this connection is already initialized")
            .with_phase("initialize", phase.name())
    }

    fn with_phase(self, method: &str, phase: &str) -> Self {
        let method = rung_ladder::head(method, 100);
        self.with_context(METHOD, method).with_context(PHASE, phase)
    }

    /// Creates the error for an oversized message.
    pub(crate) fn message_too_long() -> Self {
        Self::invalid_request(format!("a message has at most {MAX_MESSAGE_BYTES} bytes"))
    }

    /// Creates the error for a panic or an impossible state.
    pub(crate) fn bug() -> Self {
        Self::internal("the request failed because of an internal error")
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(code::INTERNAL, message)
    }
}

/// The fault's code and hint become `data`, for programs and agents alike.
impl From<Fault> for ProtocolError {
    fn from(fault: Fault) -> Self {
        let code = match fault.code().class() {
            Class::Caller | Class::Auth | Class::Absent | Class::Limit => code::INVALID_PARAMS,
            Class::Busy | Class::Upstream | Class::Broken => code::INTERNAL,
        };
        let data = fault.body(Face::Rung)["error"].take();
        let mut refusal = Self::new(code, fault.message()).with_data(data);
        refusal.context.fault = Some(fault.code());
        refusal
    }
}

impl From<&MalformedMessage> for ProtocolError {
    fn from(malformed: &MalformedMessage) -> Self {
        let refusal = Self::new(malformed.code(), malformed.to_string());
        match malformed.field() {
            Some(field) => refusal.with_field(field),
            None => refusal,
        }
    }
}

/// Returns the name that Datalevin's server has for a JSON-RPC error code.
fn datalevin_code(number: i32) -> &'static str {
    match number {
        code::PARSE => ":parse-error",
        code::INVALID_REQUEST => ":invalid-request",
        code::METHOD_NOT_FOUND => ":method-not-found",
        code::INVALID_PARAMS | code::RESOURCE_NOT_FOUND => ":invalid-params",
        _ => Code::Internal.name_on(Face::Datalevin),
    }
}

//! The second exit of an error: a JSON-RPC error, for what is wrong with a request and not with a tool.

use rung_fault::{Class, Face, Fault};
use serde_json::{Value, json};

use crate::envelope::{ErrorBody, MAX_MESSAGE_BYTES, code};
use crate::version::Version;

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) body: ErrorBody,
    /// The status of an HTTP reply in the modern era; the legacy one says everything in the body.
    pub(crate) status: u16,
}

pub(crate) type Result<T, E = Refusal> = std::result::Result<T, E>;

impl Refusal {
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            body: ErrorBody::new(code, message),
            status: 200,
        }
    }

    /// One that was kept.
    pub(crate) fn of(body: ErrorBody) -> Self {
        Self { body, status: 200 }
    }

    pub(crate) fn with_data(mut self, data: Value) -> Self {
        self.body.data = Some(data);
        self
    }

    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub(crate) fn params(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_REQUEST, message)
    }

    pub(crate) fn method(method: &str) -> Self {
        let method = rung_ladder::head(method, 100);
        Self::new(
            code::METHOD_NOT_FOUND,
            format!("no method is named {method:?}"),
        )
        .with_status(404)
    }

    pub(crate) fn header(message: impl Into<String>) -> Self {
        Self::new(code::HEADER_MISMATCH, message).with_status(400)
    }

    pub(crate) fn version(requested: &str) -> Self {
        let requested = rung_ladder::head(requested, 100);
        Self::new(
            code::UNSUPPORTED_VERSION,
            "this protocol version is not spoken here",
        )
        .with_data(json!({"supported": Version::modern(), "requested": requested}))
        .with_status(400)
    }

    /// The client would have to declare `required`, in the shape of its capabilities.
    pub(crate) fn capability(message: impl Into<String>, required: &Value) -> Self {
        Self::new(code::MISSING_CAPABILITY, message)
            .with_data(json!({"requiredCapabilities": required}))
            .with_status(400)
    }

    /// Not now: a limit of this connection or caller is reached.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(code::BUSY, message).with_data(json!({"code": "busy", "retry": "later"}))
    }

    /// What a request is told that comes before anything was agreed on.
    pub(crate) fn uninitialized() -> Self {
        let hint = "send initialize first, or name io.modelcontextprotocol/protocolVersion in params._meta";
        Self::request("nothing was agreed on yet").with_data(json!({"hint": hint}))
    }

    /// What a message is told that was not read to its end.
    pub(crate) fn too_long() -> Self {
        Self::request(format!("a message has {MAX_MESSAGE_BYTES} bytes at most"))
    }

    /// What is told of a panic.
    pub(crate) fn bug() -> Self {
        Self::internal("the request could not be served: a bug of ours")
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(code::INTERNAL, message)
    }
}

/// The code and the hint go along as data, for programs and for agents alike.
impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        let code = match fault.code().class() {
            Class::Caller | Class::Auth | Class::Absent | Class::Limit => code::INVALID_PARAMS,
            Class::Busy | Class::Upstream | Class::Broken => code::INTERNAL,
        };
        let data = fault.body(Face::Rung)["error"].take();
        Self::new(code, fault.message()).with_data(data)
    }
}

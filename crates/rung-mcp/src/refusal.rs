//! The second exit of an error: a JSON-RPC error, for what is wrong with a request and not with a tool.

use rung_fault::{Class, Code, Face, Fault};
use serde_json::{Value, json};

use crate::envelope::{ErrorBody, MAX_MESSAGE_BYTES, Malformed, code};
use crate::session::Phase;
use crate::version::Version;

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) body: ErrorBody,
    /// The status of an HTTP reply in the modern era; the legacy one says everything in the body.
    pub(crate) status: u16,
    known: Box<Known>,
}

/// What is told of a refusal where that is usual.
#[derive(Debug, Clone, PartialEq, Default)]
struct Known {
    /// The code of the fault that it comes from, where it does.
    fault: Option<Code>,
    /// Of the request, by key.
    request: Vec<(&'static str, String)>,
}

/// Keys of what is known of a refused request.
const FIELD: &str = ":field";
const METHOD: &str = ":method";
const PHASE: &str = ":phase";

pub(crate) type Result<T, E = Refusal> = std::result::Result<T, E>;

impl Refusal {
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Self::of(ErrorBody::new(code, message))
    }

    /// One that was kept.
    pub(crate) fn of(body: ErrorBody) -> Self {
        Self {
            body,
            status: 200,
            known: Box::default(),
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

    /// The part of the request that is at fault.
    pub(crate) fn with_field(self, field: impl Into<String>) -> Self {
        self.with(FIELD, field)
    }

    fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.known.request.push((key, value.into()));
        self
    }

    /// The error, as `face` tells it. What everybody is told stays where it is.
    pub(crate) fn told_on(&self, face: Face) -> ErrorBody {
        let mut body = self.body.clone();
        if face == Face::Datalevin {
            let name = self.known.fault.map(|code| code.name_on(face));
            let data = body.data.get_or_insert_with(|| json!({}));
            data[":code"] = name.unwrap_or_else(|| datalevin_name(body.code)).into();
            for (key, value) in &self.known.request {
                data[*key] = value.as_str().into();
            }
        }
        body
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
        .with(METHOD, method)
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
    pub(crate) fn uninitialized(method: &str) -> Self {
        let hint = "send initialize first, or name io.modelcontextprotocol/protocolVersion in params._meta";
        Self::request("nothing was agreed on yet")
            .with_data(json!({"hint": hint}))
            .in_phase(method, "uninitialized")
    }

    /// What a request is told that comes before the client said that it is ready, where that is waited for.
    pub(crate) fn not_ready(method: &str) -> Self {
        Self::request("the client has not said that it is ready")
            .with_data(json!({"hint": "send notifications/initialized first"}))
            .in_phase(method, Phase::Initializing.name())
    }

    /// What a second `initialize` is told.
    pub(crate) fn initialized(phase: Phase) -> Self {
        Self::request("this connection is initialized already").in_phase("initialize", phase.name())
    }

    fn in_phase(self, method: &str, phase: &str) -> Self {
        let method = rung_ladder::head(method, 100);
        self.with(METHOD, method).with(PHASE, phase)
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
        let mut refusal = Self::new(code, fault.message()).with_data(data);
        refusal.known.fault = Some(fault.code());
        refusal
    }
}

impl From<&Malformed> for Refusal {
    fn from(malformed: &Malformed) -> Self {
        let refusal = Self::new(malformed.code(), malformed.to_string());
        match malformed.field() {
            Some(field) => refusal.with_field(field),
            None => refusal,
        }
    }
}

/// What Datalevin's server calls an error of that number.
fn datalevin_name(number: i32) -> &'static str {
    match number {
        code::PARSE => ":parse-error",
        code::INVALID_REQUEST => ":invalid-request",
        code::METHOD_NOT_FOUND => ":method-not-found",
        code::INVALID_PARAMS | code::RESOURCE_NOT_FOUND => ":invalid-params",
        _ => Code::Internal.name_on(Face::Datalevin),
    }
}

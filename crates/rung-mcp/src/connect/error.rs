//! Errors of requests to a server.

use std::sync::Arc;

use rung_fault::{Code, Coded, Detail, Fault};
use rung_ladder::head;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::envelope::code;

/// Bytes of a server's error message that are repeated.
const MAX_MESSAGE_BYTES: usize = 1_000;

/// The error of a request to a server.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The request was not sent.
    #[error("{server} is not available: {why}")]
    Unavailable { server: Arc<str>, why: String },
    /// The server demands a credential.
    #[error("{server} requires a credential: {why}")]
    Unauthorized {
        server: Arc<str>,
        why: String,
        /// The `WWW-Authenticate` headers.
        challenge: Option<String>,
    },
    /// The request was sent, and its response was lost.
    #[error("the request was sent to {server}, but its response was lost: {why}")]
    Lost { server: Arc<str>, why: String },
    /// The deadline passed; the server was asked to cancel.
    #[error("{server} did not respond in time; it was asked to cancel the request")]
    TimedOut { server: Arc<str> },
    /// The server returned a JSON-RPC error.
    #[error("{server} returned an error: {} ({})", head(&refusal.message, MAX_MESSAGE_BYTES), refusal.code)]
    Refused { server: Arc<str>, refusal: RpcError },
    /// The server sent a request that the delegate cannot answer.
    #[error("{server} sent a request that the client cannot answer: {why}")]
    UnsupportedRequest { server: Arc<str>, why: String },
    /// The server returned an invalid response.
    #[error("{server} returned an invalid response: {why}")]
    Unusable { server: Arc<str>, why: String },
}

/// A JSON-RPC error from a server.
#[derive(Debug, Clone)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    /// The error's `data`, unchanged.
    pub data: Option<Arc<RawValue>>,
}

impl RpcError {
    pub(super) fn parse(error: &RawValue) -> Self {
        #[derive(Deserialize)]
        struct RawRpcError<'a> {
            #[serde(default)]
            code: Value,
            #[serde(default)]
            message: Value,
            #[serde(borrow)]
            data: Option<&'a RawValue>,
        }
        let Ok(wire) = serde_json::from_str::<RawRpcError<'_>>(error.get()) else {
            return Self {
                code: 0,
                message: error.get().to_owned(),
                data: None,
            };
        };
        Self {
            code: wire.code.as_i64().unwrap_or_default(),
            message: wire.message.as_str().unwrap_or_default().to_owned(),
            data: wire.data.map(|data| data.to_owned().into()),
        }
    }

    /// Returns the capability that the client lacks, if that is the reason for the error.
    fn missing_capability(&self) -> Option<&'static str> {
        if self.code != i64::from(code::MISSING_CAPABILITY) {
            return None;
        }
        let data: Value = serde_json::from_str(self.data.as_ref()?.get()).ok()?;
        let required = &data["requiredCapabilities"];
        let needs = |path: &str| required.pointer(path).is_some();
        let known = [
            ("/elicitation/url", "elicitation.url"),
            ("/elicitation", "elicitation"),
            ("/sampling", "sampling"),
            ("/roots", "roots"),
        ];
        let needed = known.into_iter().find(|(path, _)| needs(path));
        needed.map(|(_, name)| name)
    }
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::Unavailable { .. } => Code::SourceUnavailable,
            Self::Unauthorized { .. } => Code::SourceUnauthorized,
            Self::Lost { .. } | Self::TimedOut { .. } => Code::OutcomeUnknown,
            Self::Refused { .. } => Code::SourceRefused,
            Self::UnsupportedRequest { .. } => Code::MissingCapability,
            Self::Unusable { .. } => Code::SourceFailed,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Unavailable { .. } => "check its command or address, then try again",
            Self::Unauthorized { .. } => {
                "set a valid credential in its headers or environment; if one was sent, it is wrong, expired or revoked"
            }
            Self::Lost { .. } | Self::TimedOut { .. } => {
                "check whether the request took effect before you repeat it"
            }
            Self::Refused { .. } => "correct the request, or list what the server offers",
            Self::UnsupportedRequest { .. } => {
                "call from a client that declares the capability for this request"
            }
            Self::Unusable { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

impl Error {
    /// Returns the fault for a request that may safely be repeated.
    pub fn retryable_fault(&self) -> Fault {
        match self {
            Self::Lost { .. } => Fault::new(Code::SourceFailed, self.to_string()),
            Self::TimedOut { .. } => {
                Fault::new(Code::DeadlineExceeded, self.to_string()).with_hint("try again")
            }
            other => other.clone().into(),
        }
    }

    /// Returns the fault for a call, with the server's whole error, however long it is.
    pub fn into_fault(self) -> Fault {
        let Self::Refused { server, refusal } = &self else {
            return self.into();
        };
        // The caller's client lacks the capability: report it as Rung's own error.
        if let Some(capability) = refusal.missing_capability() {
            return Fault::new(Code::MissingCapability, self.to_string())
                .with_hint(format!("call from a client that declares {capability}"))
                .with(Detail::Capability, capability);
        }
        let RpcError { code, message, .. } = refusal;
        let words = format!("{server} returned an error: {message} ({code})");
        let data = refusal.data.as_ref().map(|data| data.get());
        let data: Option<Value> = data.and_then(|data| serde_json::from_str(data).ok());
        let fault = Fault::from(self.clone())
            .with_message(words)
            .with(Detail::Rule, *code);
        match data {
            Some(data) if !data.is_null() => fault.with(Detail::Data, data),
            _ => fault,
        }
    }
}

/// A transport's error, without the server's name.
#[derive(Debug)]
pub(super) enum TransportError {
    /// The request was not sent.
    Unavailable(String),
    Unauthorized {
        why: String,
        challenge: Option<String>,
    },
    /// At least a part of the request was sent.
    Lost(String),
    Unusable(String),
    /// The server no longer knows the session, so the request had no effect.
    NoSession,
}

impl TransportError {
    pub(super) fn into_error(self, server: &Arc<str>) -> Error {
        let server = server.clone();
        match self {
            Self::Unavailable(why) => Error::Unavailable { server, why },
            Self::Unauthorized { why, challenge } => Error::Unauthorized {
                server,
                why,
                challenge,
            },
            Self::Lost(why) => Error::Lost { server, why },
            Self::Unusable(why) => Error::Unusable { server, why },
            Self::NoSession => Error::Unavailable {
                server,
                why: "it no longer knows the session".to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    fn rpc_fault(error: &Value) -> Fault {
        let refusal = RpcError::parse(&to_raw_value(error).unwrap());
        let server = Arc::from("a");
        Error::Refused { server, refusal }.into_fault()
    }

    #[test]
    fn a_missing_client_capability_is_reported_as_such() {
        for (required, name) in [
            (json!({"sampling": {}}), "sampling"),
            (json!({"elicitation": {}}), "elicitation"),
            (json!({"elicitation": {"url": {}}}), "elicitation.url"),
            (json!({"roots": {}}), "roots"),
        ] {
            let data = json!({"requiredCapabilities": required});
            let fault = rpc_fault(&json!({"code": -32021, "message": "no", "data": data}));
            assert_eq!(fault.code(), Code::MissingCapability);
            assert_eq!(fault.detail(Detail::Capability), Some(&json!(name)));
        }
    }

    #[test]
    fn any_other_refusal_keeps_its_number() {
        for error in [
            json!({"code": -32602, "message": "no"}),
            json!({"code": -32021, "message": "no", "data": {"requiredCapabilities": {"x": {}}}}),
        ] {
            let fault = rpc_fault(&error);
            assert_eq!(fault.code(), Code::SourceRefused);
            assert_eq!(fault.detail(Detail::Rule), Some(&error["code"]));
        }
    }
}

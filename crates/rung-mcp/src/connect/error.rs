//! What can go wrong with another server.

use std::sync::Arc;

use rung_fault::{Code, Coded, Detail, Fault};
use rung_ladder::head;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::envelope::code;

/// Bytes of a server's own words that are repeated.
const MAX_WORDS_BYTES: usize = 1_000;

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Nothing was asked of it.
    #[error("{server} is not available: {why}")]
    Unavailable {
        /// Which server.
        server: Arc<str>,
        /// Why not.
        why: String,
    },
    /// It wants a credential.
    #[error("{server} wants a credential: {why}")]
    Unauthorized {
        /// Which server.
        server: Arc<str>,
        /// What it said.
        why: String,
        /// How it asked for one.
        challenge: Option<String>,
    },
    /// It was asked, and its answer did not come.
    #[error("{server} was asked, and its answer was lost: {why}")]
    Lost {
        /// Which server.
        server: Arc<str>,
        /// What happened.
        why: String,
    },
    /// Its answer did not come in time.
    #[error("{server} did not answer in time; it was asked to stop")]
    Late {
        /// Which server.
        server: Arc<str>,
    },
    /// It refused.
    #[error("{server} refused: {} ({})", head(&refusal.message, MAX_WORDS_BYTES), refusal.code)]
    Refused {
        /// Which server.
        server: Arc<str>,
        /// In its own words.
        refusal: Refused,
    },
    /// It asked something in its turn that nobody here answers.
    #[error("{server} asks what nobody here answers: {why}")]
    Unanswered {
        /// Which server.
        server: Arc<str>,
        /// What it asked.
        why: String,
    },
    /// It answered with something that is none.
    #[error("{server} gave an answer that cannot be used: {why}")]
    Unusable {
        /// Which server.
        server: Arc<str>,
        /// Why not.
        why: String,
    },
}

/// The error that a server answered with.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Its number.
    pub code: i64,
    /// What happened.
    pub message: String,
    /// What else there is to know, as it came.
    pub data: Option<Arc<RawValue>>,
}

impl Refused {
    pub(super) fn read(error: &RawValue) -> Self {
        #[derive(Deserialize)]
        struct Wire<'a> {
            #[serde(default)]
            code: Value,
            #[serde(default)]
            message: Value,
            #[serde(borrow)]
            data: Option<&'a RawValue>,
        }
        let Ok(wire) = serde_json::from_str::<Wire<'_>>(error.get()) else {
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

    /// What the client would have to declare, where that is why it was refused.
    fn capability(&self) -> Option<&'static str> {
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
            Self::Lost { .. } | Self::Late { .. } => Code::OutcomeUnknown,
            Self::Refused { .. } => Code::SourceRefused,
            Self::Unanswered { .. } => Code::MissingCapability,
            Self::Unusable { .. } => Code::SourceFailed,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Unavailable { .. } => "look at its command or address, then try again",
            Self::Unauthorized { .. } => "give it a credential in its headers or environment",
            Self::Lost { .. } | Self::Late { .. } => {
                "look whether it was done before doing it again"
            }
            Self::Refused { .. } => "correct the request, or list what the server has",
            Self::Unanswered { .. } => "call from a client that declares that it can be asked",
            Self::Unusable { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

impl Error {
    /// The fault of a request that may safely be made again.
    pub fn harmless(&self) -> Fault {
        match self {
            Self::Lost { .. } => Fault::new(Code::SourceFailed, self.to_string()),
            Self::Late { .. } => {
                Fault::new(Code::DeadlineExceeded, self.to_string()).with_hint("try again")
            }
            other => other.clone().into(),
        }
    }

    /// The fault of a call, with all that the server said where it said something: however long that is.
    pub fn into_fault(self) -> Fault {
        let Self::Refused { server, refusal } = &self else {
            return self.into();
        };
        // It is the caller who cannot, and the caller is told so as by us.
        if let Some(capability) = refusal.capability() {
            return Fault::new(Code::MissingCapability, self.to_string())
                .with_hint(format!("call from a client that declares {capability}"))
                .with(Detail::Capability, capability);
        }
        let Refused { code, message, .. } = refusal;
        let words = format!("{server} refused: {message} ({code})");
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

/// What a wire knows of a failure. Whose it is, the connection knows.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing was sent.
    Unavailable(String),
    Unauthorized {
        why: String,
        challenge: Option<String>,
    },
    /// Something was sent.
    Lost(String),
    Unusable(String),
    /// The session is no longer known: nothing was done.
    NoSession,
}

impl Failure {
    pub(super) fn of(self, server: &Arc<str>) -> Error {
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
                why: "it forgot the session".to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    fn refused(error: &Value) -> Fault {
        let refusal = Refused::read(&to_raw_value(error).unwrap());
        let server = Arc::from("a");
        Error::Refused { server, refusal }.into_fault()
    }

    #[test]
    fn what_the_caller_cannot_answer_is_said_as_by_us() {
        for (required, name) in [
            (json!({"sampling": {}}), "sampling"),
            (json!({"elicitation": {}}), "elicitation"),
            (json!({"elicitation": {"url": {}}}), "elicitation.url"),
            (json!({"roots": {}}), "roots"),
        ] {
            let data = json!({"requiredCapabilities": required});
            let fault = refused(&json!({"code": -32021, "message": "no", "data": data}));
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
            let fault = refused(&error);
            assert_eq!(fault.code(), Code::SourceRefused);
            assert_eq!(fault.detail(Detail::Rule), Some(&error["code"]));
        }
    }
}

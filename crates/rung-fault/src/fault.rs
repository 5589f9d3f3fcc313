//! The error that a caller receives: a code, what happened, and the next call to make.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::{Code, Face};

/// A fact that a fault may carry in addition to its message.
///
/// The enum is the allow-list: a fact without a key here stays in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The values that would have been accepted.
    Allowed,
    /// The authentication that a server requires.
    Auth,
    /// The capability that the client would have to declare.
    Capability,
    /// The additional data of another server's error.
    Data,
    /// The argument or field at fault.
    Field,
    /// The handle under which the full error is stored.
    Handle,
    /// The limited unit: `items`, `bytes`, `chars`.
    Kind,
    /// The bound that was crossed.
    Limit,
    /// The known name closest to the one given.
    Nearest,
    /// The path of the fault in the input.
    Path,
    /// The rule that was broken.
    Rule,
}

impl Detail {
    fn key(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Auth => "auth",
            Self::Capability => "capability",
            Self::Data => "data",
            Self::Field => "field",
            Self::Handle => "handle",
            Self::Kind => "kind",
            Self::Limit => "limit",
            Self::Nearest => "nearest",
            Self::Path => "path",
            Self::Rule => "rule",
        }
    }

    /// Returns true if `face` shows this detail. Datalevin's contract has fewer details.
    fn is_shown_on(self, face: Face) -> bool {
        face != Face::Datalevin || matches!(self, Self::Field | Self::Kind | Self::Limit)
    }
}

/// Returns the known name that is most similar to `given`, if one is similar enough.
pub fn nearest<'k>(given: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let scored = known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(given, name), name));
    let (score, name) = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (score > 0.85).then_some(name)
}

/// An error that has a code. Every crate's `Error` implements it.
pub trait Coded: fmt::Display {
    /// Returns the code, decided by an exhaustive match.
    fn code(&self) -> Code;

    /// Returns the next step that the reader can take, as a sentence.
    fn hint(&self) -> Option<String> {
        None
    }
}

/// The error of a failed call, as it is shown to the caller.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    code: Code,
    message: Cow<'static, str>,
    hint: Option<Cow<'static, str>>,
    details: Vec<(Detail, Value)>,
}

impl Fault {
    /// Creates a fault. `message` says what happened.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            details: Vec::new(),
        }
    }

    /// Sets the hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a detail.
    #[must_use]
    pub fn with(mut self, detail: Detail, value: impl Into<Value>) -> Self {
        self.details.push((detail, value.into()));
        self
    }

    /// Replaces the message.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.message = message.into();
        self
    }

    /// Prefixes the message with `place`.
    #[must_use]
    pub fn with_location(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message).into();
        self
    }

    /// Removes a detail.
    #[must_use]
    pub fn without(mut self, detail: Detail) -> Self {
        self.details.retain(|(own, _)| *own != detail);
        self
    }

    /// Removes all details.
    #[must_use]
    pub fn without_details(mut self) -> Self {
        self.details.clear();
        self
    }

    /// Returns the code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the value of a detail.
    pub fn detail(&self, detail: Detail) -> Option<&Value> {
        let found = self.details.iter().find(|(own, _)| *own == detail);
        found.map(|(_, value)| value)
    }

    /// Returns the values of all details, to be changed in place, for example redacted.
    pub fn details_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.details.iter_mut().map(|(_, value)| value)
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the hint.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the whole structured body of a failed call, in the form of `face`.
    pub fn body(&self, face: Face) -> Value {
        let mut details = Map::new();
        for (detail, value) in &self.details {
            if detail.is_shown_on(face) {
                details.insert(detail.key().to_owned(), value.clone());
            }
        }
        let code = self.code.name_on(face);
        let mut body = Map::new();
        match face {
            Face::Rung => {
                body.insert("code".into(), code.into());
                body.insert("message".into(), self.message.as_ref().into());
                body.insert("retry".into(), self.code.retry().name().into());
            }
            Face::Pdpp => {
                body.insert("type".into(), pdpp_type(self.code.http_status()).into());
                body.insert("code".into(), code.into());
                body.insert("message".into(), self.message.as_ref().into());
            }
            Face::Datalevin => {
                body.insert("error".into(), self.message.as_ref().into());
                body.insert("code".into(), code.into());
            }
        }
        if let Some(hint) = &self.hint {
            body.insert("hint".into(), hint.as_ref().into());
        }
        if !details.is_empty() {
            body.insert("details".into(), details.into());
        }
        match face {
            Face::Datalevin => body.into(),
            Face::Rung | Face::Pdpp => json!({ "error": body }),
        }
    }
}

/// Returns the error type that the personal-data contract derives from an HTTP status.
fn pdpp_type(http_status: u16) -> &'static str {
    match http_status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        410 => "gone_error",
        413 => "request_entity_too_large_error",
        429 => "rate_limit_error",
        _ => "api_error",
    }
}

/// `Fault` does not implement [`Coded`]: errors are converted into it, and it is not one of them.
impl<E: Coded> From<E> for Fault {
    fn from(error: E) -> Self {
        let mut fault = Self::new(error.code(), error.to_string());
        fault.hint = error.hint().map(Cow::Owned);
        fault
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault() -> Fault {
        Fault::new(
            Code::InvalidArguments,
            "limit is not less than or equal to 100",
        )
        .with_hint("pass a limit of at most 100")
        .with(Detail::Path, "limit")
        .with(Detail::Limit, 100)
    }

    #[test]
    fn our_own_face_names_code_retry_and_hint() {
        assert_eq!(
            fault().body(Face::Rung),
            json!({"error": {
                "code": "invalid_arguments",
                "message": "limit is not less than or equal to 100",
                "retry": "corrected",
                "hint": "pass a limit of at most 100",
                "details": {"path": "limit", "limit": 100},
            }})
        );
    }

    #[test]
    fn datalevin_gets_a_flat_body_and_its_own_detail_keys_only() {
        assert_eq!(
            fault().body(Face::Datalevin),
            json!({
                "error": "limit is not less than or equal to 100",
                "code": ":invalid-params",
                "hint": "pass a limit of at most 100",
                "details": {"limit": 100},
            })
        );
    }

    #[test]
    fn pdpp_derives_the_type_from_the_status() {
        let body = Fault::new(Code::NotFound, "no such record").body(Face::Pdpp);
        assert_eq!(
            body,
            json!({"error": {
                "type": "not_found_error", "code": "not_found", "message": "no such record",
            }})
        );
    }
}

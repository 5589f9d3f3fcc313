//! The JSON-RPC envelope: what is read of a message before anybody understands it.
//!
//! Only `jsonrpc`, `id`, `method`, `params`, `result` and `error` are looked at; what lies inside stays the bytes
//! that came, so nothing is lost, reordered or rounded on the way through.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A message longer than this is passed over, unread.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// An id longer than this is nobody's, and so is a progress token.
pub(crate) const MAX_ID_BYTES: usize = 512;
/// Where a message of 2025-11-25 names the task it belongs to, in `_meta`.
pub(crate) const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A message, borrowed from the bytes it came in.
#[derive(Debug)]
pub enum Message<'a> {
    /// Somebody wants an answer.
    Request {
        /// Which one it is.
        id: Id,
        /// What is wanted.
        method: Cow<'a, str>,
        /// With what.
        params: Option<&'a RawValue>,
    },
    /// Somebody tells something.
    Notification {
        /// What.
        method: Cow<'a, str>,
        /// With what.
        params: Option<&'a RawValue>,
    },
    /// Somebody answers.
    Response {
        /// Which request.
        id: Id,
        /// The result, or the error as it came.
        outcome: Result<&'a RawValue, &'a RawValue>,
    },
}

/// Which request: a string or a number, as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Id(Box<str>);

impl Id {
    pub(crate) fn read(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        let begins = |c: char| c == '"' || c == '-' || c.is_ascii_digit();
        let sound = text.len() <= MAX_ID_BYTES && text.starts_with(begins);
        sound.then(|| Self(text.into()))
    }

    /// As it was written.
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

impl From<u64> for Id {
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is wrong with a message as such.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is not JSON.
    #[error("the message is not JSON")]
    NotJson,
    /// It is JSON, and no message.
    #[error("{why}")]
    NotAMessage {
        /// Why not.
        why: &'static str,
        /// Whose it was, where that could be read.
        id: Option<Id>,
    },
    /// Its id is none.
    #[error("an id is a string or a number, of at most {MAX_ID_BYTES} bytes")]
    NoId,
    /// Its parameters are not an object.
    #[error("params must be an object")]
    NoObject {
        /// Whose it was, if it wants an answer.
        id: Option<Id>,
    },
}

impl Malformed {
    /// The error's number.
    pub fn code(&self) -> i32 {
        match self {
            Self::NotJson => code::PARSE,
            Self::NotAMessage { .. } | Self::NoId => code::INVALID_REQUEST,
            Self::NoObject { .. } => code::INVALID_PARAMS,
        }
    }

    /// Whose it was, where that could be read.
    pub(crate) fn id(&self) -> Option<&Id> {
        match self {
            Self::NotAMessage { id, .. } | Self::NoObject { id } => id.as_ref(),
            Self::NotJson | Self::NoId => None,
        }
    }

    /// The member at fault, where it is one.
    pub(crate) fn field(&self) -> Option<&'static str> {
        match self {
            Self::NoId => Some("id"),
            Self::NoObject { .. } => Some("params"),
            Self::NotJson | Self::NotAMessage { .. } => None,
        }
    }

    /// The answer to it.
    pub fn answer(&self) -> Vec<u8> {
        write_error(self.id(), &ErrorBody::new(self.code(), self.to_string()))
    }
}

/// The numbers of errors.
pub(crate) mod code {
    /// Not JSON.
    pub(crate) const PARSE: i32 = -32700;
    /// Not a request that can be taken.
    pub(crate) const INVALID_REQUEST: i32 = -32600;
    /// Not a method of ours.
    pub(crate) const METHOD_NOT_FOUND: i32 = -32601;
    /// Not the parameters it takes.
    pub(crate) const INVALID_PARAMS: i32 = -32602;
    /// A bug of ours.
    pub(crate) const INTERNAL: i32 = -32603;
    /// No such resource, before 2026-07-28.
    pub(crate) const RESOURCE_NOT_FOUND: i32 = -32002;
    /// A limit is reached. The numbers from -32000 to -32019 are each server's own.
    pub(crate) const BUSY: i32 = -32000;
    /// Headers that do not say what the body says.
    pub(crate) const HEADER_MISMATCH: i32 = -32020;
    /// The client cannot do what the call needs.
    pub(crate) const MISSING_CAPABILITY: i32 = -32021;
    /// A version that is not spoken here.
    pub(crate) const UNSUPPORTED_VERSION: i32 = -32022;
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// A member that is there is there, even as `null`.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Message<'a> {
    /// Reads a message.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let text = std::str::from_utf8(bytes).map_err(|_| Malformed::NotJson)?;
        let refuse = |why, id| Malformed::NotAMessage { why, id };
        // serde would also take the members of a message as an array.
        let is_object = text.trim_start().starts_with('{');
        let wire: Option<Wire<'a>> = if is_object {
            serde_json::from_str(text).ok()
        } else {
            None
        };
        let wire = wire.ok_or_else(|| {
            if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
                return Malformed::NotJson;
            }
            let why = if is_object {
                "a message's members stand once"
            } else if text.trim_start().starts_with('[') {
                "batches are not taken: send one message at a time"
            } else {
                "a message is an object"
            };
            refuse(why, None)
        })?;
        // What the answer to a refusal can name.
        let id = wire.id.and_then(Id::read);
        let refuse = |why| refuse(why, id.clone());
        if wire.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
            return Err(refuse("jsonrpc must be \"2.0\""));
        }
        if wire.id.is_some() && id.is_none() {
            return Err(Malformed::NoId);
        }
        // Nothing is nothing, whether it is said or not.
        let params = wire.params.filter(|params| params.get() != "null");
        let container = |raw: &RawValue| raw.get().starts_with(['{', '[']);
        if params.is_some_and(|params| !container(params)) {
            return Err(Malformed::NoObject { id });
        }
        match (wire.method, id, wire.result, wire.error) {
            (Some(method), id, None, None) => {
                let method = name(method).ok_or_else(|| Malformed::NotAMessage {
                    why: "method must be a string",
                    id: id.clone(),
                })?;
                Ok(match id {
                    Some(id) => Self::Request { id, method, params },
                    None => Self::Notification { method, params },
                })
            }
            (None, Some(id), Some(result), None) => Ok(Self::Response {
                id,
                outcome: Ok(result),
            }),
            (None, Some(id), None, Some(error)) => Ok(Self::Response {
                id,
                outcome: Err(error),
            }),
            (_, id, _, _) => Err(Malformed::NotAMessage {
                why: "a message has a method, or an id with either a result or an error",
                id,
            }),
        }
    }
}

fn name(raw: &RawValue) -> Option<Cow<'_, str>> {
    let text = raw.get();
    let plain = text.strip_prefix('"')?.strip_suffix('"')?;
    if plain.contains('\\') {
        return serde_json::from_str(text).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(plain))
}

/// An error as it goes out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ErrorBody {
    /// Its number.
    pub(crate) code: i32,
    /// What happened.
    pub(crate) message: String,
    /// What else there is to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Value>,
}

impl ErrorBody {
    /// An error of which nothing else is to be known.
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }
}

/// Writes the answer to a request from the JSON of its result.
pub(crate) fn write_result(id: &Id, result: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(result.len() + id.0.len() + 40);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.0.as_bytes());
    out.extend_from_slice(b",\"result\":");
    out.extend_from_slice(result);
    out.push(b'}');
    out
}

/// Bytes of an answer beside its result.
pub(crate) fn around_result(id: &Id) -> usize {
    write_result(id, b"").len()
}

/// Writes a refusal. Where the request could not be read, its id is `null`.
pub(crate) fn write_error(id: Option<&Id>, error: &ErrorBody) -> Vec<u8> {
    let id = id.map_or("null", Id::as_json);
    let error = json(error);
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}").into_bytes()
}

/// Writes a request of ours.
pub(crate) fn write_request(id: &Id, method: &str, params: &impl Serialize) -> Vec<u8> {
    let (method, params) = (json!(method), json(params));
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{method},\"params\":{params}}}")
        .into_bytes()
}

/// Writes a notification of ours.
pub(crate) fn write_notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    let (method, params) = (json!(method), json(params));
    format!("{{\"jsonrpc\":\"2.0\",\"method\":{method},\"params\":{params}}}").into_bytes()
}

/// The JSON of one of our own values.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("our own shapes have string keys and finite numbers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_message_is_refused_with_the_right_number() {
        let parse = [
            "",
            " ",
            "{",
            "nul",
            "[1,",
            "{\"jsonrpc\":\"2.0\",}",
            "{}{}",
            "\u{feff}{}",
        ];
        for text in parse {
            assert_eq!(
                Message::read(text.as_bytes()).unwrap_err().code(),
                -32700,
                "{text}"
            );
        }
        assert_eq!(Message::read(b"\"\xff\"").unwrap_err(), Malformed::NotJson);
        let request = [
            "1",
            "null",
            "[]",
            "[{\"jsonrpc\":\"2.0\",\"method\":\"ping\",\"id\":1}]",
            "{}",
            r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
            r#"{"id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"a","result":{}}"#,
        ];
        for text in request {
            assert_eq!(
                Message::read(text.as_bytes()).unwrap_err().code(),
                -32600,
                "{text}"
            );
        }
        for params in ["3", "\"x\"", "true"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{params}}}"#);
            let refused = Message::read(text.as_bytes()).unwrap_err();
            assert_eq!(refused.code(), -32602, "{text}");
        }
    }

    #[test]
    fn an_id_is_any_number_and_no_parameters_can_be_said() {
        for id in ["1.5", "-0", "1e3", "\"1\""] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","params":null}}"#);
            let Ok(Message::Request {
                id: read, params, ..
            }) = Message::read(text.as_bytes())
            else {
                panic!("{text}");
            };
            assert_eq!((read.as_json(), params.is_none()), (id, true));
        }
    }

    #[test]
    fn a_refusal_names_the_request_where_it_can() {
        let refused = Message::read(br#"{"jsonrpc":"2.0","id":"x","method":7}"#).unwrap_err();
        let answer: Value = serde_json::from_slice(&refused.answer()).unwrap();
        assert_eq!(answer["id"], "x");
        let answer: Value = serde_json::from_slice(&Malformed::NotJson.answer()).unwrap();
        assert_eq!(answer["id"], Value::Null);
    }

    #[test]
    fn depth_is_no_danger() {
        let deep = "[".repeat(500_000) + &"]".repeat(500_000);
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{{"a":{deep}}}}}"#);
        assert!(matches!(
            Message::read(text.as_bytes()),
            Ok(Message::Request { .. })
        ));
    }

    proptest! {
        /// What is inside comes out as it came, byte for byte: odd numbers, order, repeated keys, escapes.
        #[test]
        fn params_and_results_pass_byte_for_byte(
            number in "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?",
            keys in proptest::collection::vec("[a-z]{1,3}", 0..6),
            text in any::<String>(),
            id in "-?(0|[1-9][0-9]{0,18})",
        ) {
            let text = serde_json::to_string(&text).unwrap();
            let members: Vec<String> = keys.iter().map(|key| format!("\"{key}\" : {number} ")).collect();
            let inside = format!("{{ \"t\":{text},{}\"z\":[{number}, {number} ]}}",
                members.iter().fold(String::new(), |all, one| all + one + ","));
            let request = format!("{{\"x\":1,\"params\":{inside},\"id\":{id},\"method\":\"m\",\"jsonrpc\":\"2.0\"}}");
            let Ok(Message::Request { id: read, params, .. }) = Message::read(request.as_bytes()) else {
                return Err(TestCaseError::fail(request));
            };
            prop_assert_eq!(params.unwrap().get(), &inside);
            prop_assert_eq!(read.as_json(), &id);
            let written = write_result(&read, inside.as_bytes());
            let Ok(Message::Response { id: back, outcome: Ok(result) }) = Message::read(&written) else {
                return Err(TestCaseError::fail("no response"));
            };
            prop_assert_eq!(result.get(), &inside);
            prop_assert_eq!(back, read);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Err(malformed) = Message::read(&bytes) {
                prop_assert!(serde_json::from_slice::<Value>(&malformed.answer()).is_ok());
            }
        }
    }
}

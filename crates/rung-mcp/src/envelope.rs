//! The JSON-RPC envelope of a message, parsed before its method is known.
//!
//! Only `jsonrpc`, `id`, `method`, `params`, `result` and `error` are parsed; their contents stay the received
//! bytes, so nothing is lost, reordered or rounded.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Maximum length of a message. A longer one is skipped without being parsed.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// Maximum length of a request id and of a progress token.
pub(crate) const MAX_ID_BYTES: usize = 512;
/// Key in `_meta` under which a 2025-11-25 message names its task.
pub(crate) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// A message, borrowed from the received bytes.
#[derive(Debug)]
pub enum Message<'a> {
    Request {
        id: RequestId,
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    Response {
        id: RequestId,
        /// The raw result, or the raw error object.
        outcome: Result<&'a RawValue, &'a RawValue>,
    },
}

/// A request id: a string or a number, exactly as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Box<str>);

impl RequestId {
    pub(crate) fn parse(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        let begins = |c: char| c == '"' || c == '-' || c.is_ascii_digit();
        let sound = text.len() <= MAX_ID_BYTES && text.starts_with(begins);
        sound.then(|| Self(text.into()))
    }

    /// Returns the id as JSON text.
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

impl From<u64> for RequestId {
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why bytes are not a valid JSON-RPC message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MalformedMessage {
    #[error("the message is not JSON")]
    NotJson,
    /// Valid JSON, but not a valid message.
    #[error("{why}")]
    NotAMessage {
        why: &'static str,
        /// The request id, if it could be read.
        id: Option<RequestId>,
    },
    #[error("an id must be a string or a number of at most {MAX_ID_BYTES} bytes")]
    InvalidId,
    #[error("params must be an object")]
    ParamsNotObject {
        /// The request id; `None` for a notification.
        id: Option<RequestId>,
    },
}

impl MalformedMessage {
    /// Returns the JSON-RPC error code.
    pub fn code(&self) -> i32 {
        match self {
            Self::NotJson => code::PARSE,
            Self::NotAMessage { .. } | Self::InvalidId => code::INVALID_REQUEST,
            Self::ParamsNotObject { .. } => code::INVALID_PARAMS,
        }
    }

    /// The request id, if it could be read.
    pub(crate) fn id(&self) -> Option<&RequestId> {
        match self {
            Self::NotAMessage { id, .. } | Self::ParamsNotObject { id } => id.as_ref(),
            Self::NotJson | Self::InvalidId => None,
        }
    }

    /// Returns the offending member, if there is one.
    pub(crate) fn field(&self) -> Option<&'static str> {
        match self {
            Self::InvalidId => Some("id"),
            Self::ParamsNotObject { .. } => Some("params"),
            Self::NotJson | Self::NotAMessage { .. } => None,
        }
    }

    /// Returns the encoded error response.
    pub fn to_response(&self) -> Vec<u8> {
        write_error(self.id(), &ErrorBody::new(self.code(), self.to_string()))
    }
}

/// JSON-RPC error codes.
pub(crate) mod code {
    pub(crate) const PARSE: i32 = -32700;
    pub(crate) const INVALID_REQUEST: i32 = -32600;
    pub(crate) const METHOD_NOT_FOUND: i32 = -32601;
    pub(crate) const INVALID_PARAMS: i32 = -32602;
    pub(crate) const INTERNAL: i32 = -32603;
    /// Used before 2026-07-28 only.
    pub(crate) const RESOURCE_NOT_FOUND: i32 = -32002;
    /// A limit is reached. Codes from -32000 to -32019 are defined by each server.
    pub(crate) const BUSY: i32 = -32000;
    /// The HTTP headers do not match the body.
    pub(crate) const HEADER_MISMATCH: i32 = -32020;
    /// The client lacks a capability that the call needs.
    pub(crate) const MISSING_CAPABILITY: i32 = -32021;
    pub(crate) const UNSUPPORTED_VERSION: i32 = -32022;
}

#[derive(Deserialize)]
struct RawMessage<'a> {
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

/// Deserializes a present member as `Some`, even if it is `null`.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Message<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedMessage> {
        let text = std::str::from_utf8(bytes).map_err(|_| MalformedMessage::NotJson)?;
        let refuse = |why, id| MalformedMessage::NotAMessage { why, id };
        // serde would also accept the members of a message as an array.
        let is_object = text.trim_start().starts_with('{');
        let wire: Option<RawMessage<'a>> = if is_object {
            serde_json::from_str(text).ok()
        } else {
            None
        };
        let wire = wire.ok_or_else(|| {
            if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
                return MalformedMessage::NotJson;
            }
            let why = if is_object {
                "a message must not repeat a member"
            } else if text.trim_start().starts_with('[') {
                "batches are not supported: send one message at a time"
            } else {
                "a message must be an object"
            };
            refuse(why, None)
        })?;
        // The id that an error response can carry.
        let id = wire.id.and_then(RequestId::parse);
        let refuse = |why| refuse(why, id.clone());
        if wire.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
            return Err(refuse("jsonrpc must be \"2.0\""));
        }
        if wire.id.is_some() && id.is_none() {
            return Err(MalformedMessage::InvalidId);
        }
        // Explicit `null` params count as absent.
        let params = wire.params.filter(|params| params.get() != "null");
        let container = |raw: &RawValue| raw.get().starts_with(['{', '[']);
        if params.is_some_and(|params| !container(params)) {
            return Err(MalformedMessage::ParamsNotObject { id });
        }
        match (wire.method, id, wire.result, wire.error) {
            (Some(method), id, None, None) => {
                let method = parse_method(method).ok_or_else(|| MalformedMessage::NotAMessage {
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
            (_, id, _, _) => Err(MalformedMessage::NotAMessage {
                why: "a message must have a method, or an id with either a result or an error",
                id,
            }),
        }
    }
}

fn parse_method(raw: &RawValue) -> Option<Cow<'_, str>> {
    let text = raw.get();
    let plain = text.strip_prefix('"')?.strip_suffix('"')?;
    if plain.contains('\\') {
        return serde_json::from_str(text).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(plain))
}

/// A JSON-RPC error object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ErrorBody {
    pub(crate) code: i32,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Value>,
}

impl ErrorBody {
    /// Creates an error without `data`.
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }
}

/// Encodes a response from the JSON of its result.
pub(crate) fn write_result(id: &RequestId, result: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(result.len() + id.0.len() + 40);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.0.as_bytes());
    out.extend_from_slice(b",\"result\":");
    out.extend_from_slice(result);
    out.push(b'}');
    out
}

/// Returns the number of bytes of a response without its result.
pub(crate) fn result_envelope_bytes(id: &RequestId) -> usize {
    write_result(id, b"").len()
}

/// Encodes an error response. Its id is `null` if the request could not be read.
pub(crate) fn write_error(id: Option<&RequestId>, error: &ErrorBody) -> Vec<u8> {
    let id = id.map_or("null", RequestId::as_json);
    let error = to_json(error);
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}").into_bytes()
}

pub(crate) fn write_request(id: &RequestId, method: &str, params: &impl Serialize) -> Vec<u8> {
    let (method, params) = (json!(method), to_json(params));
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{method},\"params\":{params}}}")
        .into_bytes()
}

pub(crate) fn write_notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    let (method, params) = (json!(method), to_json(params));
    format!("{{\"jsonrpc\":\"2.0\",\"method\":{method},\"params\":{params}}}").into_bytes()
}

/// Serializes one of Rung's own values, which cannot fail.
pub(crate) fn to_json(value: &impl Serialize) -> String {
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
                Message::parse(text.as_bytes()).unwrap_err().code(),
                -32700,
                "{text}"
            );
        }
        assert_eq!(
            Message::parse(b"\"\xff\"").unwrap_err(),
            MalformedMessage::NotJson
        );
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
                Message::parse(text.as_bytes()).unwrap_err().code(),
                -32600,
                "{text}"
            );
        }
        for params in ["3", "\"x\"", "true"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{params}}}"#);
            let refused = Message::parse(text.as_bytes()).unwrap_err();
            assert_eq!(refused.code(), -32602, "{text}");
        }
    }

    #[test]
    fn an_id_is_any_number_and_no_parameters_can_be_said() {
        for id in ["1.5", "-0", "1e3", "\"1\""] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","params":null}}"#);
            let Ok(Message::Request {
                id: read, params, ..
            }) = Message::parse(text.as_bytes())
            else {
                panic!("{text}");
            };
            assert_eq!((read.as_json(), params.is_none()), (id, true));
        }
    }

    #[test]
    fn a_refusal_names_the_request_where_it_can() {
        let refused = Message::parse(br#"{"jsonrpc":"2.0","id":"x","method":7}"#).unwrap_err();
        let answer: Value = serde_json::from_slice(&refused.to_response()).unwrap();
        assert_eq!(answer["id"], "x");
        let answer: Value =
            serde_json::from_slice(&MalformedMessage::NotJson.to_response()).unwrap();
        assert_eq!(answer["id"], Value::Null);
    }

    #[test]
    fn depth_is_no_danger() {
        let deep = "[".repeat(500_000) + &"]".repeat(500_000);
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{{"a":{deep}}}}}"#);
        assert!(matches!(
            Message::parse(text.as_bytes()),
            Ok(Message::Request { .. })
        ));
    }

    proptest! {
        /// Contents pass byte for byte: odd numbers, order, repeated keys, escapes.
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
            let Ok(Message::Request { id: read, params, .. }) = Message::parse(request.as_bytes()) else {
                return Err(TestCaseError::fail(request));
            };
            prop_assert_eq!(params.unwrap().get(), &inside);
            prop_assert_eq!(read.as_json(), &id);
            let written = write_result(&read, inside.as_bytes());
            let Ok(Message::Response { id: back, outcome: Ok(result) }) = Message::parse(&written) else {
                return Err(TestCaseError::fail("no response"));
            };
            prop_assert_eq!(result.get(), &inside);
            prop_assert_eq!(back, read);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Err(malformed) = Message::parse(&bytes) {
                prop_assert!(serde_json::from_slice::<Value>(&malformed.to_response()).is_ok());
            }
        }
    }
}

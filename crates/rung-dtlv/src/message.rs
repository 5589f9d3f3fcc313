//! Requests and responses.

use rung_edn::{Map, Name, Value};

use crate::{DtlvUrl, Error, Result};

/// Characters of a server's message that are kept.
const MAX_MESSAGE_CHARS: usize = 500;

/// Tells whether a request may be repeated: reads are idempotent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Reads,
    Writes,
}

#[derive(Debug)]
pub(crate) struct DtlvRequest<'i> {
    pub operation: &'static str,
    pub effect: Effect,
    pub message: Value,
    /// Items to send when the server is ready for them.
    pub items: Option<&'i [Value]>,
}

impl<'i> DtlvRequest<'i> {
    /// Creates a request with arguments; the first is the database name.
    pub(crate) fn new(operation: &'static str, effect: Effect, args: Vec<Value>) -> Self {
        let fields = [("args", Value::Vector(args)), ("writing?", false.into())];
        Self::with_fields(operation, effect, fields)
    }

    /// Creates a request with its own fields.
    pub(crate) fn with_fields(
        operation: &'static str,
        effect: Effect,
        fields: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> Self {
        Self {
            operation,
            effect,
            message: new_message(operation, fields),
            items: None,
        }
    }

    /// Creates a write whose items are in its arguments or follow in batches.
    pub(crate) fn new_bulk(
        operation: &'static str,
        args: Vec<Value>,
        following: Option<&'i [Value]>,
    ) -> Self {
        let mode = match following {
            None => "request",
            Some(_) => "copy-in",
        };
        let fields = [
            ("mode", Value::keyword(mode)),
            ("writing?", false.into()),
            ("args", Value::Vector(args)),
        ];
        Self {
            items: following,
            ..Self::with_fields(operation, Effect::Writes, fields)
        }
    }
}

/// Creates a message of this type.
pub(crate) fn new_message(
    kind: &str,
    fields: impl IntoIterator<Item = (&'static str, Value)>,
) -> Value {
    let kind = (Value::keyword("type"), Value::keyword(kind));
    let fields = fields
        .into_iter()
        .map(|(name, value)| (Value::keyword(name), value));
    Value::Map(std::iter::once(kind).chain(fields).collect())
}

pub(crate) fn field<'m>(map: &'m Map, name: &str) -> Option<&'m Value> {
    map.get(&Value::keyword(name))
}

/// The type of a collection that arrives in batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CollectionKind {
    Vector,
    Set,
    Map,
}

impl CollectionKind {
    /// Collects the items.
    pub(crate) fn collect(self, items: Vec<Value>) -> Result<Value> {
        Ok(match self {
            Self::Vector => Value::Vector(items),
            Self::Set => Value::Set(items.into_iter().collect()),
            Self::Map => Value::Map(map_from_pairs(items)?),
        })
    }
}

/// Collects pairs into a map.
pub(crate) fn map_from_pairs(pairs: Vec<Value>) -> Result<Map> {
    let mut map = Map::with_capacity(pairs.len());
    for pair in pairs {
        let [key, value] = pair.as_sequence().unwrap_or_default() else {
            return Err(Error::InvalidResponse(
                "a member of a map is not a pair".to_owned(),
            ));
        };
        map.insert(key.clone(), value.clone());
    }
    Ok(map)
}

#[derive(Debug)]
pub(crate) enum DtlvResponse {
    Complete(Value),
    CopyIn,
    CopyOut(CollectionKind),
    CopyDone,
    Reopen { store: String },
    Reconnect,
    Authenticated(Value),
    Registered,
}

impl DtlvResponse {
    /// Parses a response. A refusal is an error.
    pub(crate) fn parse(answer: Value, operation: &'static str, target: &DtlvUrl) -> Result<Self> {
        let Value::Map(mut answer) = answer else {
            let why = format!("expected a response map, got a {}", answer.kind());
            return Err(Error::InvalidResponse(why));
        };
        let kind = field(&answer, "type").and_then(Value::as_keyword).cloned();
        let Some(kind) = kind else {
            return Err(Error::InvalidResponse(
                "the response has no type".to_owned(),
            ));
        };
        let mut take = |name: &str| answer.swap_remove(&Value::keyword(name));
        Ok(match kind.as_str() {
            "command-complete" => Self::Complete(take("result").unwrap_or(Value::Nil)),
            "error-response" => {
                let words = take("message");
                let data = take("err-data");
                return Err(server_error(
                    operation,
                    words.as_ref(),
                    data.as_ref(),
                    target,
                ));
            }
            "copy-in-response" => Self::CopyIn,
            "copy-out-response" => {
                let shape = take("copy-result-type");
                let shape = shape.as_ref().and_then(Value::as_keyword);
                Self::CopyOut(match shape.map(Name::as_str) {
                    Some("set") => CollectionKind::Set,
                    Some("map") => CollectionKind::Map,
                    _ => CollectionKind::Vector,
                })
            }
            "copy-done" => Self::CopyDone,
            "reopen" => Self::Reopen {
                store: take("db-type")
                    .as_ref()
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned(),
            },
            "reconnect" => Self::Reconnect,
            "authentication-ok" => match take("client-id") {
                Some(client @ Value::Uuid(_)) => Self::Authenticated(client),
                _ => {
                    return Err(Error::InvalidResponse(
                        "the login response has no client id".to_owned(),
                    ));
                }
            },
            "set-client-id-ok" => Self::Registered,
            _ => {
                let kind = first_line(kind.as_str(), target);
                return Err(Error::InvalidResponse(format!(
                    "the response type :{kind} is unknown"
                )));
            }
        })
    }

    /// Returns the error for a response that does not fit the request.
    pub(crate) fn unexpected(&self) -> Error {
        let kind = match self {
            Self::Complete(_) => "a result",
            Self::CopyIn => "a copy-in response",
            Self::CopyOut(_) => "a copy-out response",
            Self::CopyDone => "a copy-done response",
            Self::Reopen { .. } => "a reopen request",
            Self::Reconnect => "a reconnect request",
            Self::Authenticated(_) => "a login confirmation",
            Self::Registered => "a client id confirmation",
        };
        Error::InvalidResponse(format!("unexpected response: {kind}"))
    }
}

fn server_error(
    operation: &'static str,
    said: Option<&Value>,
    data: Option<&Value>,
    target: &DtlvUrl,
) -> Error {
    let said = said.and_then(Value::as_str).unwrap_or("no reason");
    let message = first_line(said, target);
    let reason = data
        .and_then(Value::as_map)
        .and_then(|data| field(data, "error"))
        .and_then(Value::as_keyword)
        .cloned();
    match reason.as_ref().map(Name::as_str) {
        Some("server/busy") => Error::Busy(message),
        _ => Error::Refused {
            operation,
            message,
            reason,
        },
    }
}

/// Returns the first line of a server's message, without the password: the other lines are a stack trace.
fn first_line(text: &str, target: &DtlvUrl) -> String {
    let line = text.lines().next().unwrap_or_default();
    let line = target.mask_password(line);
    match line.char_indices().nth(MAX_MESSAGE_CHARS) {
        None => line,
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

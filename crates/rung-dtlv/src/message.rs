//! What is asked, and what is answered.

use rung_edn::{Map, Name, Value};

use crate::{Error, Result, Target};

/// Words of a server that are passed on.
const MAX_WORDS_CHARS: usize = 500;

/// Whether asking twice is asking once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Reads,
    Writes,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Request<'i> {
    pub operation: &'static str,
    pub effect: Effect,
    pub message: Value,
    /// What follows when the server is ready for it.
    pub items: Option<&'i [Value]>,
}

impl<'i> Request<'i> {
    /// One with arguments, the first of which is the name of the database.
    pub(crate) fn new(operation: &'static str, effect: Effect, args: Vec<Value>) -> Self {
        let fields = [("args", Value::Vector(args)), ("writing?", false.into())];
        Self::of(operation, effect, fields)
    }

    /// One with fields of its own.
    pub(crate) fn of(
        operation: &'static str,
        effect: Effect,
        fields: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> Self {
        Self {
            operation,
            effect,
            message: message(operation, fields),
            items: None,
        }
    }

    /// One whose arguments say whether the items are among them or follow.
    pub(crate) fn bulk(
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
            ..Self::of(operation, Effect::Writes, fields)
        }
    }
}

/// A message of that type.
pub(crate) fn message(
    kind: &str,
    fields: impl IntoIterator<Item = (&'static str, Value)>,
) -> Value {
    let kind = (Value::keyword("type"), Value::keyword(kind));
    let fields = fields
        .into_iter()
        .map(|(name, value)| (Value::keyword(name), value));
    Value::Map(std::iter::once(kind).chain(fields).collect())
}

/// The value of a field.
pub(crate) fn field<'m>(map: &'m Map, name: &str) -> Option<&'m Value> {
    map.get(&Value::keyword(name))
}

/// What a collection that comes in pieces is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Vector,
    Set,
    Map,
}

impl Shape {
    /// The collection of these items.
    pub(crate) fn of(self, items: Vec<Value>) -> Result<Value> {
        Ok(match self {
            Self::Vector => Value::Vector(items),
            Self::Set => Value::Set(items.into_iter().collect()),
            Self::Map => Value::Map(members(items)?),
        })
    }
}

/// The map of these pairs.
pub(crate) fn members(pairs: Vec<Value>) -> Result<Map> {
    let mut map = Map::with_capacity(pairs.len());
    for pair in pairs {
        let [key, value] = pair.as_sequence().unwrap_or_default() else {
            return Err(Error::Answer("a member of a map is no pair".to_owned()));
        };
        map.insert(key.clone(), value.clone());
    }
    Ok(map)
}

/// An answer.
#[derive(Debug)]
pub(crate) enum Response {
    Complete(Value),
    CopyIn,
    CopyOut(Shape),
    CopyDone,
    Reopen { store: String },
    Reconnect,
    Authenticated(Value),
    Registered,
}

impl Response {
    /// Understands an answer. What the server refuses is an error.
    pub(crate) fn read(answer: Value, operation: &'static str, target: &Target) -> Result<Self> {
        let Value::Map(mut answer) = answer else {
            let why = format!("a {} came where an answer was to come", answer.kind());
            return Err(Error::Answer(why));
        };
        let kind = field(&answer, "type").and_then(Value::as_keyword).cloned();
        let Some(kind) = kind else {
            return Err(Error::Answer("it does not say what it is".to_owned()));
        };
        let mut take = |name: &str| answer.swap_remove(&Value::keyword(name));
        Ok(match kind.as_str() {
            "command-complete" => Self::Complete(take("result").unwrap_or(Value::Nil)),
            "error-response" => {
                let words = take("message");
                let data = take("err-data");
                return Err(refused(operation, words.as_ref(), data.as_ref(), target));
            }
            "copy-in-response" => Self::CopyIn,
            "copy-out-response" => {
                let shape = take("copy-result-type");
                let shape = shape.as_ref().and_then(Value::as_keyword);
                Self::CopyOut(match shape.map(Name::as_str) {
                    Some("set") => Shape::Set,
                    Some("map") => Shape::Map,
                    _ => Shape::Vector,
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
                _ => return Err(Error::Answer("it gives us no id".to_owned())),
            },
            "set-client-id-ok" => Self::Registered,
            _ => {
                let kind = words(kind.as_str(), target);
                return Err(Error::Answer(format!("its type is :{kind}")));
            }
        })
    }

    /// An answer that is not one to what was asked.
    pub(crate) fn misplaced(&self) -> Error {
        let kind = match self {
            Self::Complete(_) => "a result",
            Self::CopyIn => "readiness for items",
            Self::CopyOut(_) => "the beginning of items",
            Self::CopyDone => "the end of items",
            Self::Reopen { .. } => "a wish to open again",
            Self::Reconnect => "a wish to connect again",
            Self::Authenticated(_) => "an id",
            Self::Registered => "an id taken in",
        };
        Error::Answer(format!("{kind} came where something else was to come"))
    }
}

fn refused(
    operation: &'static str,
    said: Option<&Value>,
    data: Option<&Value>,
    target: &Target,
) -> Error {
    let said = said.and_then(Value::as_str).unwrap_or("no reason given");
    let message = words(said, target);
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

/// The first line of what a server says: what follows it is where in the server that happened.
fn words(text: &str, target: &Target) -> String {
    let line = text.lines().next().unwrap_or_default();
    let line = target.without_password(line);
    match line.char_indices().nth(MAX_WORDS_CHARS) {
        None => line,
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

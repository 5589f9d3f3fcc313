//! Personal data as tools that agents call, and as resources that they read.
//!
//! Owns: the tools' inputs and outputs, ids and handles, how an answer is brought within its budget, and how the parts that do not
//! fit are named. Refuses to know: what a grant lets through. Every call is one of the routes that everybody
//! else reads by, with the caller's own authority; there is no other way to the records.
//!
//! One implementation, two ways there: a provider elsewhere over HTTP ([`Tools::of_provider`]), or the records of this
//! process ([`Tools::of_service`]).

mod aggregate;
mod ask;
mod binary;
mod compact;
mod fetch;
mod fetch_blob;
mod filter;
#[cfg(fuzzing)]
pub mod fuzzing;
mod hit;
mod id;
mod json;
mod ladder;
mod list;
mod list_streams;
mod longs;
mod own;
mod package;
mod page;
mod provider;
mod query_records;
mod read_record_field;
mod refusal;
mod remote;
mod resources;
mod schema;
mod search;
mod short;
mod text;
mod window;

use std::sync::Arc;
use std::time::Duration;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Detail, Face, Fault};
use rung_ladder::CursorKey;
use rung_tool::{
    Block, Call, Card, Hints, Link, Pending, Reply, Schema, TaskUse, ToolSource, arguments,
    unknown_tool, written,
};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::connect::Cache;
use crate::service::Service;
use id::{Selector, WindowId};
use own::Own;
use provider::{Provider, Providers};
use refusal::Refusal;
use remote::Remote;

/// Bytes of a message where nobody says otherwise.
pub const REPLY_BYTES: usize = 12_000;
/// How long a call may take, whatever it asks.
const PATIENCE: Duration = Duration::from_mins(10);
/// Links in a reply.
const MAX_LINKS: usize = 5;

/// What a model should know before it calls anything. The first 512 characters stand for themselves, for hosts that show
/// no more.
pub const INSTRUCTIONS: &str = "\
Grant-scoped reads of one person's data. Start with `schema`: it names streams, fields and sources. When several sources \
have a stream, pass connection_id. Filter with typed objects, {\"field\": value} or {\"field\": {\"gte\": value}}; page with cursor; \
narrow with fields, limit and filter before reading more. `search` finds, `fetch` reads one hit by its id, `aggregate` counts \
without reading records, `read_record_field` reads a long field window by window.\n\
The configured bearer bounds everything: what is not granted is not there. Never ask for or pass an owner token. Ids are \
self-contained: pass them as they are. Persist connection_id, not grant_id, which changes when the owner approves anew. \
Replies are bounded: text that ends in … goes on where `content_ladder` and `continue` lines say.";

/// How the tools answer.
#[derive(Clone)]
pub struct Options {
    /// Whether there are the two tools beyond the usual ones.
    pub full: bool,
    /// Whether links to resources go along.
    pub links: bool,
    /// Whether `fetch` gives the record as the provider has it, too.
    pub fetch_data: bool,
    /// Bytes of a message, unless more was asked for by number.
    pub max_reply_bytes: usize,
    /// Bytes of any message that the server sends, whatever was asked for.
    pub max_message_bytes: usize,
    /// What makes cursors ours.
    pub key: CursorKey,
}

impl Options {
    /// Bytes of a reply whose size nobody chose.
    fn usual_bytes(&self, call: &Call) -> usize {
        // What stands around a reply in its message has been taken from the call's budget.
        let most = call.budget.max_bytes;
        let around = self.max_message_bytes.saturating_sub(most);
        self.max_reply_bytes.saturating_sub(around).min(most)
    }
}

/// The tools.
pub struct Tools {
    entries: Vec<Entry>,
    providers: Providers,
    options: Options,
}

struct Entry {
    card: Card,
    schema: Schema,
    sized: fn(&Value) -> bool,
    run: Run,
}

/// What a tool says of itself, and does.
struct Definition {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    input: fn() -> Value,
    output: fn() -> Value,
    /// Whether these arguments say how large the answer may be, or ask for one whole thing.
    sized: fn(&Value) -> bool,
    run: Run,
}

type Run = for<'a> fn(&'a Asking<'a>, Value) -> Pending<'a, Result<Reply, Refusal>>;

/// The tools, in the order in which they are listed.
const USUAL: [&Definition; 6] = [
    &schema::DEFINITION,
    &query_records::DEFINITION,
    &aggregate::DEFINITION,
    &search::DEFINITION,
    &fetch::DEFINITION,
    &read_record_field::DEFINITION,
];
const FURTHER: [&Definition; 2] = [&list_streams::DEFINITION, &fetch_blob::DEFINITION];

/// A call under way.
struct Asking<'a> {
    call: &'a Call,
    provider: Provider,
    options: &'a Options,
}

impl Tools {
    /// The tools of a provider elsewhere, read with the token that is kept for it. An answer may take so long; once the first one is
    /// there, `settled` is called.
    pub fn of_provider(
        url: String,
        cache: Cache,
        patience: Duration,
        settled: fn(),
        options: Options,
    ) -> Result<Self, Fault> {
        let remote = Remote::new(url, cache, patience, settled);
        Self::new(Providers::Remote(Arc::new(remote)), options)
    }

    /// The tools of the records here, which others find at `url`.
    pub fn of_service(service: Arc<Service>, url: String, options: Options) -> Result<Self, Fault> {
        let own = Own::new(service, url);
        Self::new(Providers::Own(Arc::new(own)), options)
    }

    fn new(providers: Providers, options: Options) -> Result<Self, Fault> {
        let further = FURTHER.iter().filter(|_| options.full);
        let entries = USUAL.iter().chain(further).map(|one| {
            let elsewhere = matches!(providers, Providers::Remote(_));
            let search = elsewhere && one.name == search::DEFINITION.name;
            Entry::new(if search { &search::OF_PROVIDER } else { one })
        });
        Ok(Self {
            entries: entries.collect::<Result<_, _>>()?,
            providers,
            options,
        })
    }

    /// Whether there is anything for whoever has this permit.
    pub async fn has_any(&self, permit: &Permit) -> Result<bool, Fault> {
        self.providers.has_any(permit).await
    }

    fn unknown(&self, name: &str, there: bool) -> Fault {
        let names = self.entries.iter().map(|entry| &*entry.card.name);
        unknown_tool(name, names.filter(|_| there))
    }

    async fn find(&self, permit: &Permit, name: &str) -> Result<&Entry, Fault> {
        let found = self.entries.iter().find(|entry| &*entry.card.name == name);
        match found {
            Some(entry) if self.has_any(permit).await? => Ok(entry),
            _ => Err(self.unknown(name, false)),
        }
    }

    async fn asking<'a>(&'a self, call: &'a Call) -> Result<Option<Asking<'a>>, Refusal> {
        let provider = self.providers.of(&call.permit).await?;
        Ok(provider.map(|provider| Asking {
            call,
            provider,
            options: &self.options,
        }))
    }

    async fn answer(&self, call: &Call, name: &str, given: &RawValue) -> Result<Reply, Refusal> {
        let entry = self.entries.iter().find(|entry| &*entry.card.name == name);
        let Some(entry) = entry else {
            return Err(self.unknown(name, true).into());
        };
        let Some(asking) = self.asking(call).await? else {
            return Err(self.unknown(name, false).into());
        };
        let given = serde_json::from_str(given.get())
            .map_err(|error| Fault::new(Code::InvalidArguments, error.to_string()))?;
        let given = match given {
            Value::Null => json!({}),
            given => given,
        };
        arguments::check(&entry.schema, &given).map_err(advised)?;
        let sized = (entry.sized)(&given);
        let answering = tokio::time::timeout(PATIENCE, (entry.run)(&asking, given));
        let reply = answering.await.map_err(|_| {
            let why = format!("no answer within {} seconds", PATIENCE.as_secs());
            Fault::new(Code::DeadlineExceeded, why)
        })??;
        Ok(asking.bounded(reply, sized))
    }
}

/// What is most often wrong gets the advice that sets it right.
fn advised(fault: Fault) -> Fault {
    let path = fault.detail(Detail::Path).and_then(Value::as_str);
    match path {
        Some(path) if path == "filter" || path.starts_with("filter.") => fault.with_hint(
            "pass filter as a typed object: {\"field\": value}, or {\"field\": {\"gte\": value, \"lt\": value}}; `schema` with a stream names its fields",
        ),
        _ => fault,
    }
}

impl Entry {
    fn new(definition: &Definition) -> Result<Self, Fault> {
        let input = (definition.input)();
        Ok(Self {
            schema: Schema::compile(&input)?,
            card: Card {
                name: definition.name.into(),
                title: definition.title.into(),
                description: definition.description.into(),
                icon: None,
                input_schema: Arc::new(input),
                output_schema: Some(Arc::new((definition.output)())),
                hints: Hints::READ,
                access: Access::Read,
                tasks: TaskUse::Never,
                listed: None,
            },
            sized: definition.sized,
            run: definition.run,
        })
    }
}

impl ToolSource for Tools {
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<Card>, Fault>> {
        Box::pin(async move {
            if !self.has_any(permit).await? {
                return Ok(Vec::new());
            }
            Ok(self
                .entries
                .iter()
                .map(|entry| entry.card.clone())
                .collect())
        })
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> Pending<'a, Result<Card, Fault>> {
        Box::pin(async move { Ok(self.find(permit, name).await?.card.clone()) })
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> Pending<'a, Reply> {
        Box::pin(async move {
            let answered = self.answer(call, name, arguments).await;
            answered.unwrap_or_else(|refusal| match &refusal {
                Refusal::Ours(fault) if fault.code() == Code::UnknownTool => {
                    Reply::failed(fault, Face::Rung, call)
                }
                _ => {
                    let usual = self.options.usual_bytes(call);
                    refusal.reply(self.providers.url(), call, usual)
                }
            })
        })
    }
}

impl Asking<'_> {
    /// Bytes of a reply whose size nobody chose.
    fn usual_bytes(&self) -> usize {
        self.options.usual_bytes(self.call)
    }

    /// Bytes of a reply whose size was chosen, by number or by asking for one whole thing.
    fn most_bytes(&self) -> usize {
        self.call.budget.max_bytes
    }

    /// What programs are told: what the provider said, and of which provider and request that is.
    fn structured<'s, D>(
        &'s self,
        data: D,
        further: impl IntoIterator<Item = (&'static str, Box<RawValue>)>,
        request_id: Option<&'s str>,
    ) -> Structured<'s, D> {
        Structured {
            data,
            further: further.into_iter().collect(),
            provider_url: self.provider.url(),
            request_id,
        }
    }

    /// The last check: whatever a provider has put into names that are never cut, a reply is bounded.
    fn bounded(&self, reply: Reply, sized: bool) -> Reply {
        let most = if sized {
            self.most_bytes()
        } else {
            self.usual_bytes()
        };
        if reply.bytes() <= most {
            return reply;
        }
        let why = format!(
            "what is never cut of this answer is too long: it takes {} bytes, and {most} may be sent",
            reply.bytes()
        );
        let fault = Fault::new(Code::ResultTooLarge, why)
            .with_hint("ask for less: a smaller limit, fewer fields, or a part of a field with read_record_field");
        Refusal::Ours(fault).reply(self.provider.url(), self.call, most)
    }

    /// The reply, in the forms that the caller reads.
    fn reply(&self, text: String, structured: &impl Serialize, links: &[WindowId]) -> Reply {
        let mut content = vec![Block::Text { text }];
        if self.options.links && self.call.rendering.links {
            content.extend(links.iter().take(MAX_LINKS).map(|window| {
                Block::ResourceLink(Link {
                    uri: window.uri(),
                    name: window.field.clone(),
                    mime_type: "text/plain".to_owned(),
                })
            }));
        }
        let mut reply = Reply::of_blocks(content);
        let structured = self.call.rendering.structured.then(|| written(structured));
        reply.structured_content = structured;
        reply
    }
}

/// What programs are told.
struct Structured<'a, D> {
    data: D,
    further: Vec<(&'static str, Box<RawValue>)>,
    provider_url: &'a str,
    request_id: Option<&'a str>,
}

impl<D: Serialize> Serialize for Structured<'_, D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut told = serializer.serialize_map(None)?;
        told.serialize_entry("data", &self.data)?;
        for (name, value) in &self.further {
            told.serialize_entry(name, value)?;
        }
        told.serialize_entry("provider_url", self.provider_url)?;
        told.serialize_entry("request_id", &self.request_id)?;
        told.end()
    }
}

/// The beginning of a field, as it is linked to.
fn window(record: &id::RecordId, field: &str, offset_chars: Option<u64>) -> WindowId {
    WindowId {
        record: record.clone(),
        field: field.to_owned(),
        selector: Selector {
            offset_chars,
            ..Selector::default()
        },
    }
}

/// The arguments of a tool, which its schema has accepted.
fn read_input<T: serde::de::DeserializeOwned>(mut given: Value) -> Result<T, Refusal> {
    whole_numbers(&mut given);
    serde_json::from_value(given)
        .map_err(|error| Refusal::new(Code::InvalidArguments, error.to_string()))
}

/// A whole number is one however it is written: the schema has let `10.0` pass.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().filter(|_| number.is_f64());
            let whole = float.and_then(|float| format!("{float:.0}").parse::<i64>().ok());
            if let (Some(float), Some(whole)) = (float, whole)
                && float.fract() == 0.0
            {
                *value = json!(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// The schema of an answer that wraps what a provider said.
fn wrapped(further: Value) -> Value {
    let mut properties = json!({
        "data": {"type": ["object", "array"]},
        "content_ladder": {},
        "provider_url": {"type": "string"},
        "request_id": {"type": ["string", "null"]},
        "error": {"type": "object"},
    });
    if let (Value::Object(properties), Value::Object(further)) = (&mut properties, further) {
        properties.extend(further);
    }
    json!({
        "type": "object",
        "properties": properties,
        "anyOf": [{"required": ["data", "provider_url"]}, {"required": ["error"]}],
    })
}

/// What is said of the arguments that several tools have, once.
fn stream_input() -> Value {
    json!({"type": "string", "minLength": 1, "description": "Stream name from schema"})
}

fn connection_input() -> Value {
    json!({"type": "string", "minLength": 1, "description": "Source, from schema; needed when several hold the stream"})
}

fn limit_input(description: &str) -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": 100, "description": description})
}

fn filter_input() -> Value {
    let bound = json!({"type": ["string", "number"]});
    json!({
        "type": "object",
        "description": "Field → exact value or range {gte,gt,lte,lt}, ANDed; what is allowed: schema(stream)",
        "additionalProperties": {
            "type": ["string", "number", "boolean", "object"],
            "properties": {"gte": bound, "gt": bound, "lte": bound, "lt": bound},
            "additionalProperties": false,
        },
    })
}

fn names_input(description: &str) -> Value {
    json!({"type": "array", "items": {"type": "string", "minLength": 1}, "description": description})
}

fn expand_limit_input() -> Value {
    json!({
        "type": "object",
        "description": "Relation → records, as {\"messages\": 3}; rejected above its max_limit",
        "additionalProperties": {"type": "integer", "minimum": 1},
    })
}

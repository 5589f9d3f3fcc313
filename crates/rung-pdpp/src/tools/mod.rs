//! Personal data as MCP tools and resources.
//!
//! Owns: the tools' inputs and outputs, ids and handles, how a reply is fitted to its budget, and how omitted parts are named.
//! Refuses to know: what a grant allows. Every call reads through the public HTTP routes with the caller's own authority; there
//! is no other access to the records.
//!
//! One implementation for two backends: a remote provider over HTTP ([`Tools::of_provider`]), or the records of this process
//! ([`Tools::of_service`]).

mod aggregate;
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
mod list_body;
mod list_streams;
mod local;
mod long_fields;
mod package;
mod page;
mod page_text;
mod provider;
mod provider_error;
mod provider_request;
mod query_records;
mod read_record_field;
mod remote;
mod resources;
mod schema;
mod search;
mod short;
mod text;
mod window;

use std::sync::Arc;
use std::time::Duration;

use rung_auth::Permit;
use rung_fault::{Code, Detail, Fault};
use rung_ladder::CursorKey;
use rung_tool::{
    Answer, BoxFuture, Call, Card, ContentBlock, ErasedTool, Reply, ResourceLink, ResultSink,
    RowLimit, ToolContext, ToolSet, ToolSource, Toolbox, to_raw_json,
};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::connect::CredentialCache;
use crate::service::Service;
use id::{FieldSelector, WindowId};
use local::LocalProvider;
use provider::{Provider, ProviderBackend};
use provider_error::ProviderError;
use remote::RemoteProvider;

/// Usual bytes of each form of a reply.
pub const REPLY_BYTES: usize = 12_000;
/// Links in a reply, at most.
const MAX_LINKS: usize = 5;

/// The server instructions for models. The first 512 characters are complete in themselves, for clients that show no more.
pub const INSTRUCTIONS: &str = "\
Grant-scoped reads of one person's data. Start with `schema`: it names streams, fields and sources. When several sources \
have a stream, pass connection_id. Filter with typed objects, {\"field\": value} or {\"field\": {\"gte\": value}}; page with cursor; \
narrow with fields, limit and filter before reading more. `search` finds, `fetch` reads one hit by its id, `aggregate` counts \
without reading records, `read_record_field` reads a long field window by window.\n\
The configured bearer bounds everything: data that is not granted does not appear. Never request or pass an owner token. Ids are \
self-contained: pass them unchanged. Persist connection_id, not grant_id, which changes with each approval. \
Replies are bounded: `content_ladder` and `continue` lines say how to read text that ends in ….";

/// Which tools there are, and how they reply.
#[derive(Clone)]
pub struct Options {
    /// True if `list_streams` and `fetch_blob` are offered too.
    pub full: bool,
    /// True if replies contain resource links.
    pub links: bool,
    /// True if `fetch` also returns the provider's record as `data`.
    pub fetch_data: bool,
    /// Bytes of each form of a reply, at most, unless the call asks for a larger size by number. Without it, [`REPLY_BYTES`] are
    /// usual, and rows are not left out for it.
    pub max_reply_bytes: Option<usize>,
    /// The key that seals cursors.
    pub key: CursorKey,
}

impl Options {
    /// Returns the byte limit of a reply whose call names no size.
    fn usual_bytes(&self, call: &Call) -> usize {
        let usual = self.max_reply_bytes.unwrap_or(REPLY_BYTES);
        usual
            .saturating_sub(call.envelope_bytes)
            .min(call.budget.max_bytes)
    }

    /// Returns the limit of a reply of rows.
    fn row_limit(&self, call: &Call) -> RowLimit {
        let usual = self.usual_bytes(call);
        match self.max_reply_bytes {
            None => RowLimit::Growing(usual),
            Some(_) => RowLimit::Fixed(usual),
        }
    }
}

/// The tools of personal data.
pub struct Tools(Toolbox<PersonalData>);

/// What the tools share.
struct PersonalData {
    providers: ProviderBackend,
    options: Options,
}

/// The tools, in the order in which they are listed; the last two only if [`Options::full`] is set.
const TOOLS: [&dyn ErasedTool<PersonalData>; 8] = [
    &schema::TOOL,
    &query_records::TOOL,
    &aggregate::TOOL,
    &search::TOOL,
    &fetch::TOOL,
    &read_record_field::TOOL,
    &list_streams::TOOL,
    &fetch_blob::TOOL,
];
/// Tools that are always listed.
const USUAL_TOOLS: usize = 6;

/// The context of one call.
struct RecordContext<'a> {
    call: &'a Call,
    provider: &'a Provider,
    options: &'a Options,
}

impl<'a> From<ToolContext<'a, PersonalData>> for RecordContext<'a> {
    fn from(context: ToolContext<'a, PersonalData>) -> Self {
        context.set.context(context.call, context.access)
    }
}

/// A reply, and whether its call names a size or requests one whole item.
struct SizedReply {
    reply: Reply,
    is_sized: bool,
}

/// Runs a tool whose calls name no size.
async fn usual(
    run: impl Future<Output = Result<Reply, ProviderError>>,
) -> Result<SizedReply, ProviderError> {
    sized(false, run).await
}

/// Runs a tool whose call may name a size.
async fn sized(
    is_sized: bool,
    run: impl Future<Output = Result<Reply, ProviderError>>,
) -> Result<SizedReply, ProviderError> {
    let reply = run.await?;
    Ok(SizedReply { reply, is_sized })
}

impl Tools {
    /// Returns the tools of a remote provider, read with its cached token. `patience` is the request timeout; `settled` is called
    /// after the first response.
    pub fn of_provider(
        url: String,
        cache: CredentialCache,
        patience: Duration,
        settled: fn(),
        options: Options,
    ) -> Result<Self, Fault> {
        let remote = RemoteProvider::new(url, cache, patience, settled);
        Self::new(ProviderBackend::Remote(Arc::new(remote)), options)
    }

    /// Returns the tools of the local records; `url` is their public URL.
    pub fn of_service(service: Arc<Service>, url: String, options: Options) -> Result<Self, Fault> {
        let own = LocalProvider::new(service, url);
        Self::new(ProviderBackend::Local(Arc::new(own)), options)
    }

    fn new(providers: ProviderBackend, options: Options) -> Result<Self, Fault> {
        let shown = if options.full {
            TOOLS.len()
        } else {
            USUAL_TOOLS
        };
        let mut tools = TOOLS;
        if matches!(providers, ProviderBackend::Remote(_)) {
            let local = tools
                .iter_mut()
                .find(|tool| tool.name() == search::TOOL.name());
            *local.expect("search is a tool") = &search::REMOTE_TOOL;
        }
        let set = Arc::new(PersonalData { providers, options });
        // Its replies are fitted by windows, never stored.
        let toolbox = Toolbox::new(set, &tools[..shown], Arc::new(NoResultSink))?;
        Ok(Self(toolbox))
    }

    fn set(&self) -> &PersonalData {
        self.0.set()
    }

    /// Returns the owner's names of the sources that a permit may read. Empty for a remote provider.
    pub async fn source_names(&self, permit: &Permit) -> Result<Vec<String>, Fault> {
        self.set().providers.source_names(permit).await
    }

    /// True if the permit has any grant of personal data.
    pub async fn has_any(&self, permit: &Permit) -> Result<bool, Fault> {
        self.set().providers.has_any(permit).await
    }
}

/// Adds a hint to the most frequent argument error, a malformed filter.
fn with_filter_hint(fault: Fault) -> Fault {
    let path = fault.detail(Detail::Path).and_then(Value::as_str);
    match path {
        Some(path) if path == "filter" || path.starts_with("filter.") => fault.with_hint(
            "pass filter as a typed object: {\"field\": value}, or {\"field\": {\"gte\": value, \"lt\": value}}; `schema` with a stream names its fields",
        ),
        _ => fault,
    }
}

/// Stores nothing: no reply of personal data is too long for its budget.
struct NoResultSink;

impl ResultSink for NoResultSink {
    fn store(
        &self,
        _: &Permit,
        _: &str,
        _: &mut dyn std::io::Read,
    ) -> Result<rung_ladder::Handle, Fault> {
        Err(Fault::new(
            Code::Internal,
            "personal data is not stored again",
        ))
    }
}

impl PersonalData {
    fn context<'a>(&'a self, call: &'a Call, provider: &'a Provider) -> RecordContext<'a> {
        RecordContext {
            call,
            provider,
            options: &self.options,
        }
    }
}

impl ToolSet for PersonalData {
    type Access = Provider;
    type Context<'a> = RecordContext<'a>;
    type Outcome = SizedReply;
    type Error = ProviderError;
    const SEARCH_HINT: &'static str =
        "personal data of the user: mail, messages, calendar, contacts, notes, history";

    fn is_open<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<bool, Fault>> {
        Box::pin(self.providers.has_any(permit))
    }

    fn resolve<'a>(
        &'a self,
        permit: &'a Permit,
    ) -> BoxFuture<'a, Result<Option<Provider>, ProviderError>> {
        Box::pin(self.providers.provider_for(permit))
    }

    fn arguments_fault(&self, _: &Card, fault: Fault) -> Fault {
        with_filter_hint(fault)
    }

    fn answer(&self, call: &Call, outcome: SizedReply) -> Result<Answer, ProviderError> {
        let most = match self.options.max_reply_bytes {
            _ if outcome.is_sized => call.budget.max_bytes,
            None => call.budget.max_bytes.max(call.page_bytes),
            Some(_) => self.options.usual_bytes(call),
        };
        Ok(Answer::Fitted(outcome.reply, most))
    }

    fn failed<'a>(
        &'a self,
        call: &'a Call,
        _: &'a Card,
        error: ProviderError,
    ) -> BoxFuture<'a, Reply> {
        let usual = self.options.usual_bytes(call);
        let reply = error.reply(self.providers.url(), call, usual);
        Box::pin(std::future::ready(reply))
    }
}

impl ToolSource for Tools {
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<Card>, Fault>> {
        self.0.list(permit)
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Card, Fault>> {
        self.0.describe(permit, name)
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> BoxFuture<'a, Reply> {
        self.0.call(call, name, arguments)
    }
}

impl RecordContext<'_> {
    /// Returns the byte limit of a reply whose call names no size.
    fn usual_bytes(&self) -> usize {
        self.options.usual_bytes(self.call)
    }

    /// Returns the byte limit of a reply whose call names a size or requests one whole item.
    fn most_bytes(&self) -> usize {
        self.call.budget.max_bytes
    }

    /// Builds the structured content: the provider's data, the provider's URL and the request id.
    fn structured<'s, D>(
        &'s self,
        data: D,
        further: impl IntoIterator<Item = (&'static str, Box<RawValue>)>,
        request_id: Option<&'s str>,
    ) -> StructuredReply<'s, D> {
        StructuredReply {
            data,
            further: further.into_iter().collect(),
            provider_url: self.provider.url(),
            request_id,
        }
    }

    /// Returns the limit of a reply of rows.
    fn row_limit(&self) -> RowLimit {
        self.options.row_limit(self.call)
    }

    /// Builds the content: a text, and links if the client reads them.
    fn content(&self, text: String, links: &[WindowId]) -> Vec<ContentBlock> {
        let mut content = vec![ContentBlock::Text { text }];
        if self.options.links && self.call.rendering.links {
            content.extend(links.iter().take(MAX_LINKS).map(|window| {
                ContentBlock::ResourceLink(ResourceLink {
                    uri: window.uri(),
                    name: window.field.clone(),
                    mime_type: "text/plain".to_owned(),
                })
            }));
        }
        content
    }

    /// Builds the reply in the forms that the client reads.
    fn reply(&self, text: String, structured: &impl Serialize, links: &[WindowId]) -> Reply {
        let mut reply = Reply::from_blocks(self.content(text, links));
        let structured = self
            .call
            .rendering
            .structured
            .then(|| to_raw_json(structured));
        reply.structured_content = structured;
        reply
    }
}

/// The structured content of a reply.
struct StructuredReply<'a, D> {
    data: D,
    further: Vec<(&'static str, Box<RawValue>)>,
    provider_url: &'a str,
    request_id: Option<&'a str>,
}

impl<D: Serialize> Serialize for StructuredReply<'_, D> {
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

/// Returns the id of the window of a field that begins at an offset.
fn window(record: &id::RecordId, field: &str, offset_chars: Option<u64>) -> WindowId {
    WindowId {
        record: record.clone(),
        field: field.to_owned(),
        selector: FieldSelector {
            offset_chars,
            ..FieldSelector::default()
        },
    }
}

/// Returns the output schema of a tool that wraps the provider's data.
fn wrapped_output(further: Value) -> Value {
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
    })
}

// Input schemas that several tools share.
fn stream_input() -> Value {
    json!({"type": "string", "minLength": 1, "description": "Stream name from schema"})
}

fn connection_input() -> Value {
    json!({"type": "string", "minLength": 1, "description": "Source from schema, if several have the stream"})
}

fn limit_input(description: &str) -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": 100, "description": description})
}

fn filter_input() -> Value {
    let bound = json!({"type": ["string", "number"]});
    json!({
        "type": "object",
        "description": "Field → exact value or range {gte,gt,lte,lt}, ANDed, as schema(stream) allows",
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
        "description": "Relation → records, as {\"messages\": 3}, at most its max_limit",
        "additionalProperties": {"type": "integer", "minimum": 1},
    })
}

//! Relaying of results of other servers.
//!
//! Content is passed on as it came, so an image stays an image. A result without structured content gets none, because clients
//! that receive structured content show their model nothing else. Each form is limited by itself: one that fits is sent
//! unchanged; one that does not is cut, and names the call that reads the rest of the result, which is stored whole.

use std::borrow::Cow;
use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rung_fault::Fault;
use rung_ladder::{Budget, Handle, Measure, Path, json_bytes};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::excerpt::{Excerpt, ResultTexts};
use crate::form::FormLimit;
use crate::prompt::{Message, Prompt, Role};
use crate::render::{cut_to_budget, handle_block, handle_meta, store_result, whole_result_link};
use crate::reply::{ContentBlock, Reply, ResultSink, content_blocks, to_raw_json};
use crate::resource::ResourceContents;
use crate::source::Call;
use crate::splice;

/// A result as another server sent it.
#[derive(Debug)]
pub enum RelayedResult {
    /// The result is in memory.
    InMemory(Box<RawValue>),
    /// The result is too long for memory.
    Long(LongResult),
}

/// A result that is too long to be held in memory.
pub struct LongResult {
    /// True if the result says that the call failed.
    pub is_error: bool,
    /// The beginning of its JSON.
    pub head: String,
    /// The whole JSON.
    pub body: Box<dyn Read + Send>,
}

impl std::fmt::Debug for LongResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LongResult").finish_non_exhaustive()
    }
}

/// Bytes at the beginning of a long result that are read at once, for the preview.
const HEAD_BYTES: u64 = 4 << 10;

impl LongResult {
    /// Reads the beginning of a result from `body`.
    pub fn read(is_error: bool, mut body: impl Read + Send + 'static) -> io::Result<Self> {
        let mut begun = Vec::new();
        (&mut body).take(HEAD_BYTES).read_to_end(&mut begun)?;
        // An incomplete character at the end is dropped.
        let whole = match std::str::from_utf8(&begun) {
            Ok(_) => begun.len(),
            Err(error) => error.valid_up_to(),
        };
        let head = String::from_utf8_lossy(&begun[..whole]).into_owned();
        Ok(Self {
            is_error,
            head,
            body: Box::new(Cursor::new(begun).chain(body)),
        })
    }

    /// Stores the result. Returns its handle, and the text that stands for it.
    async fn store(
        self,
        call: &Call,
        sink: Arc<dyn ResultSink>,
    ) -> Result<(Handle, String), Fault> {
        let bytes = Arc::new(AtomicU64::new(0));
        let body = Counting {
            body: self.body,
            bytes: bytes.clone(),
        };
        let handle = store_result(call, sink, body).await?;
        let bytes = bytes.load(Ordering::Relaxed);
        let text = format!("{bytes} bytes of JSON, which begin with\n{}", self.head);
        Ok((handle, text))
    }
}

/// Counts the bytes that are read of a long result: its length after redaction is not known before.
struct Counting<R> {
    body: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.body.read(buffer)?;
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

/// A read resource, a filled-in prompt or completed values: local, or as another server sent it.
#[derive(Debug)]
pub enum SourceResult<T> {
    /// The result of a local source.
    Local(T),
    /// The whole result of another server, which fits, passed on byte for byte.
    Relayed(Box<RawValue>),
}

impl<T> From<T> for SourceResult<T> {
    fn from(ours: T) -> Self {
        Self::Local(ours)
    }
}

/// A result of another server, as the answer of a tool.
#[derive(Debug)]
pub struct Relayed {
    /// The result.
    pub result: RelayedResult,
    /// What goes around the result. Without it, a result that fits is passed on byte for byte.
    pub envelope: Option<Envelope>,
    /// Bytes of each form at most, if the caller asked for less than its limit.
    pub max_bytes: Option<usize>,
}

impl From<RelayedResult> for Relayed {
    fn from(result: RelayedResult) -> Self {
        Self {
            result,
            envelope: None,
            max_bytes: None,
        }
    }
}

/// Which call a result belongs to. It is in structured content if there is any, else in `_meta`.
#[derive(Debug)]
pub struct Envelope {
    /// The tool that returned the result.
    pub tool_id: String,
    /// The task that returned the result.
    pub task: Option<Value>,
}

/// The member of `_meta` that names the call of a reply without structured content.
const CALL_META: &str = "rung/call";

impl Envelope {
    /// Returns whole structured content as JSON.
    fn around(&self, is_error: bool, result: &str) -> String {
        let task = self.task.as_ref();
        let task = task.map_or_else(String::new, |task| format!(",\"task\":{task}"));
        let tool_id = Value::from(self.tool_id.as_str());
        let ok = !is_error;
        format!("{{\"tool_id\":{tool_id},\"ok\":{ok}{task},\"result\":{result}}}")
    }

    /// Returns cut structured content: `shown` is what `cut_to_budget` left of the result.
    fn around_cut(&self, is_error: bool, bytes: usize, mut shown: Value) -> Value {
        let members = shown.as_object_mut();
        let meta = members.and_then(|members| members.shift_remove("meta"));
        let mut around = self.to_json();
        around["ok"] = (!is_error).into();
        around["truncated"] = true.into();
        around["summary"] = format!("{bytes} bytes, shown in part and stored whole").into();
        around["raw_size_estimate"] = bytes.into();
        if shown.as_object().is_some_and(|shown| !shown.is_empty()) {
            around["result"] = shown;
        }
        if let Some(meta) = meta {
            around["meta"] = meta;
        }
        around
    }

    fn to_json(&self) -> Value {
        match &self.task {
            Some(task) => json!({"tool_id": self.tool_id, "task": task}),
            None => json!({"tool_id": self.tool_id}),
        }
    }
}

impl Reply {
    /// Creates the reply that relays a result.
    pub async fn relay(
        relayed: Relayed,
        call: &Call,
        sink: Arc<dyn ResultSink>,
    ) -> Result<Self, Fault> {
        let mut limit = call.form_limit();
        limit.max_bytes = limit.max_bytes.min(relayed.max_bytes.unwrap_or(usize::MAX));
        let envelope = relayed.envelope.as_ref();
        match relayed.result {
            RelayedResult::InMemory(raw) => {
                let (joined, is_error) = {
                    let members = ResultMembers::new(&raw);
                    let forms = Forms::new(&members, envelope, call);
                    let joined = if !forms.content_fits(limit) || !forms.structured_fits(limit) {
                        let body = Cursor::new(raw.get().to_owned());
                        let handle = store_result(call, sink, body).await?;
                        Some(forms.cut(&raw, envelope, call, &handle, limit))
                    } else if envelope.is_some() || forms.drops_structured() {
                        let structured = forms.structured.as_deref();
                        Some(join(&forms.content, structured, &forms.rest))
                    } else {
                        None
                    };
                    (joined, members.is_error)
                };
                Ok(Self::relayed(joined.unwrap_or(raw), is_error))
            }
            RelayedResult::Long(long) => {
                let is_error = long.is_error;
                let (handle, text) = long.store(call, sink).await?;
                let mut rest = String::new();
                if is_error {
                    rest.push_str(",\"isError\":true");
                }
                if let Some(envelope) = envelope {
                    let meta = json!({CALL_META: envelope.to_json()});
                    push_member(&mut rest, "_meta", &meta.to_string());
                }
                let rest = rest_within(&rest, is_error, limit);
                let limit = limit.less(FRAME_BYTES + rest.len());
                let excerpt = Excerpt::from_head(&text);
                let content = cut_content(&excerpt, &[], &handle, limit, call);
                Ok(Self::relayed(join(&content, None, rest), is_error))
            }
        }
    }

    fn relayed(raw: Box<RawValue>, is_error: bool) -> Self {
        Self {
            is_error,
            relayed: Some(raw),
            ..Self::from_blocks(Vec::new())
        }
    }
}

/// Bytes of the names and brackets around the forms of a reply.
const FRAME_BYTES: usize = 64;

/// The members of a tool's result.
struct ResultMembers<'r> {
    all: Vec<(Cow<'r, str>, &'r RawValue)>,
    structured: Option<&'r RawValue>,
    content: &'r str,
    is_error: bool,
    /// Bytes of the pictures and sounds, which are no text.
    media_bytes: usize,
}

impl<'r> ResultMembers<'r> {
    fn new(raw: &'r RawValue) -> Self {
        let all = splice::members(raw.get()).unwrap_or_default();
        let member = |name: &str| {
            let found = all.iter().rev().find(|(own, _)| own == name);
            found.map(|(_, value)| *value)
        };
        let content = member("content").map_or("[]", RawValue::get);
        // Few results have media, which this quick check finds.
        let media_bytes = if content.contains("\"data\"") {
            let blocks: Vec<Value> = serde_json::from_str(content).unwrap_or_default();
            let data = |block: &Value| block["data"].as_str().map_or(0, str::len);
            blocks.iter().filter(|it| is_media(it)).map(data).sum()
        } else {
            0
        };
        Self {
            structured: member("structuredContent").filter(|value| value.get() != "null"),
            is_error: member("isError").is_some_and(|value| value.get() == "true"),
            content,
            media_bytes,
            all,
        }
    }

    /// Returns true if one of the texts is the JSON of `structured`.
    fn texts_repeat(&self, structured: &RawValue) -> bool {
        let blocks: Vec<Value> = serde_json::from_str(self.content).unwrap_or_default();
        let mut texts = blocks.iter().filter_map(|block| block["text"].as_str());
        let Ok(wanted) = serde_json::from_str::<Value>(structured.get()) else {
            return false;
        };
        texts.any(|text| serde_json::from_str::<Value>(text).is_ok_and(|json| json == wanted))
    }

    /// Returns the bytes of the texts.
    fn text_bytes(&self) -> usize {
        self.content.len() - self.media_bytes.min(self.content.len())
    }

    /// Returns the members that belong to neither form, as JSON that follows another member. `call` is added to `_meta`.
    fn rest(&self, call: Option<Value>) -> String {
        let call = call.map(|call| call.to_string());
        let with_call = |meta: &str| match &call {
            Some(call) => splice::set_member(meta, CALL_META, call),
            None => meta.to_owned(),
        };
        let mut rest = String::new();
        let mut has_meta = false;
        for (name, value) in &self.all {
            match &**name {
                "content" | "structuredContent" => {}
                "_meta" => {
                    has_meta = true;
                    push_member(&mut rest, "_meta", &with_call(value.get()));
                }
                name => push_member(&mut rest, name, value.get()),
            }
        }
        if call.is_some() && !has_meta {
            push_member(&mut rest, "_meta", &with_call("{}"));
        }
        rest
    }
}

/// The forms in which a whole result is sent.
struct Forms<'r> {
    members: &'r ResultMembers<'r>,
    content: Cow<'r, str>,
    structured: Option<Cow<'r, str>>,
    /// Everything else of the reply.
    rest: String,
    /// Bytes of pictures and sound that the content may have beside its texts.
    media_bytes: usize,
}

impl<'r> Forms<'r> {
    fn new(members: &'r ResultMembers<'r>, envelope: Option<&Envelope>, call: &Call) -> Self {
        let structured = members.structured.filter(|_| call.rendering.structured);
        let of = envelope.filter(|_| structured.is_none());
        let structured = structured.map(|result| match envelope {
            Some(envelope) => Cow::Owned(envelope.around(members.is_error, result.get())),
            None => Cow::Borrowed(result.get()),
        });
        let content = match (members.structured, &structured) {
            // A client of text alone would not see it.
            (Some(result), None) if !members.texts_repeat(result) => {
                Cow::Owned(with_text_block(members.content, result.get()))
            }
            _ => Cow::Borrowed(members.content),
        };
        Self {
            members,
            content,
            structured,
            rest: members.rest(of.map(Envelope::to_json)),
            media_bytes: call.media_bytes,
        }
    }

    /// Returns true if the result has structured content that is not sent.
    fn drops_structured(&self) -> bool {
        self.structured.is_none() && self.members.structured.is_some()
    }

    /// Returns true if the content is within the limit. Media count only in bytes, not in tokens.
    fn content_fits(&self, limit: FormLimit) -> bool {
        let content = &*self.content;
        let limit = limit.less(FRAME_BYTES + self.rest.len());
        let media_bytes = self.members.media_bytes.min(content.len());
        let text_bytes = content.len() - media_bytes;
        if text_bytes > limit.max_bytes || content.len() > limit.max_bytes + self.media_bytes {
            return false;
        }
        text_bytes <= limit.max_tokens || limit.allows(text_bytes, &without_media(content))
    }

    fn structured_fits(&self, limit: FormLimit) -> bool {
        let limit = limit.less(FRAME_BYTES + self.rest.len());
        let structured = self.structured.as_deref();
        structured.is_none_or(|it| limit.allows(it.len(), it))
    }

    /// Returns the reply with the forms that fit, and as much of the others as fits. `raw` is stored under `handle`.
    fn cut(
        &self,
        raw: &RawValue,
        envelope: Option<&Envelope>,
        call: &Call,
        handle: &Handle,
        limit: FormLimit,
    ) -> Box<RawValue> {
        let rest = rest_within(&self.rest, self.members.is_error, limit);
        let room = limit.less(FRAME_BYTES + rest.len());
        // If only the structured content has anything to show, the content names the next call.
        let content = if self.content_fits(limit) && &*self.content != "[]" {
            Cow::Borrowed(&*self.content)
        } else {
            let content = serde_json::from_str(self.members.content).unwrap_or_default();
            let excerpt = match self.members.structured {
                // The structured content was added to the texts, and is the larger part.
                Some(result)
                    if matches!(self.content, Cow::Owned(_))
                        && result.get().len() >= self.members.text_bytes() =>
                {
                    Excerpt::from_text(result.get(), "structuredContent")
                }
                _ => Excerpt::from_items(&content, &ResultTexts::TOOL),
            };
            let blocks = content.as_array().map_or(&[][..], Vec::as_slice);
            Cow::Owned(cut_content(&excerpt, blocks, handle, room, call))
        };
        let structured = match (&self.structured, self.members.structured) {
            (Some(_), Some(result)) if !self.structured_fits(limit) => {
                let result = serde_json::from_str(result.get()).unwrap_or_default();
                let around = envelope.map(|envelope| {
                    move |shown| envelope.around_cut(self.members.is_error, raw.get().len(), shown)
                });
                Some(Cow::Owned(cut_structured(
                    &result,
                    around.as_ref(),
                    handle,
                    room,
                    call,
                )))
            }
            (whole, _) => whole.as_deref().map(Cow::Borrowed),
        };
        join(&content, structured.as_deref(), rest)
    }
}

/// Returns `rest`, or what is necessary of it if it would take too much of the limit.
fn rest_within(rest: &str, is_error: bool, limit: FormLimit) -> &str {
    match is_error {
        _ if rest.len() <= limit.max_bytes / 4 => rest,
        true => ",\"isError\":true",
        false => "",
    }
}

/// Returns the blocks with another text at their end.
fn with_text_block(blocks: &str, text: &str) -> String {
    let block = to_raw_json(&text_block(text.to_owned()));
    let blocks: Vec<&RawValue> = serde_json::from_str(blocks).unwrap_or_default();
    let all: Vec<&RawValue> = blocks.into_iter().chain([&*block]).collect();
    to_raw_json(&all).get().to_owned()
}

/// Returns the JSON of a reply.
fn join(content: &str, structured: Option<&str>, rest: &str) -> Box<RawValue> {
    let structured = structured.map_or_else(String::new, |structured| {
        format!(",\"structuredContent\":{structured}")
    });
    let reply = format!("{{\"content\":{content}{structured}{rest}}}");
    RawValue::from_string(reply).expect("its parts are JSON")
}

fn push_member(members: &mut String, name: &str, value: &str) {
    members.push(',');
    members.push_str(&Value::from(name).to_string());
    members.push(':');
    members.push_str(value);
}

/// Returns cut content as JSON: the note with as much text as fits, and the other blocks where they leave the text half of
/// the bytes.
fn cut_content(
    excerpt: &Excerpt,
    blocks: &[Value],
    handle: &Handle,
    limit: FormLimit,
    call: &Call,
) -> String {
    let link = content_blocks(String::new(), &[whole_result_link(handle)], call.rendering);
    let link = link.into_iter().skip(1).map(|link| to_raw_json(&link));
    let mut others: Vec<Box<RawValue>> = Vec::new();
    let (mut bytes, mut media_bytes) = (0, 0);
    for block in blocks {
        let is_link = block["type"] == "resource_link" && call.rendering.links;
        if is_media(block) || is_link {
            let raw = to_raw_json(block);
            let block_bytes = raw.get().len() + 1;
            bytes += block_bytes;
            if bytes <= limit.max_bytes / 2 + call.media_bytes {
                media_bytes += if is_link { 0 } else { block_bytes };
                others.push(raw);
            }
        }
    }
    // Pictures and sound take nothing from the text as long as they have room of their own.
    let limit = FormLimit {
        max_bytes: limit.max_bytes + media_bytes.min(call.media_bytes),
        ..limit
    };
    others.extend(link);
    let other_bytes: usize = others.iter().map(|block| block.get().len() + 1).sum();
    let render = |max_bytes: usize| {
        let frame = json_bytes(&[text_block(String::new())], Measure::Bare) + other_bytes;
        let text = excerpt.text_within(max_bytes.checked_sub(frame)?, call, handle)?;
        let others = others.iter().map(|block| (**block).to_owned());
        let text = to_raw_json(&text_block(text));
        let blocks: Vec<Box<RawValue>> = std::iter::once(text).chain(others).collect();
        Some(to_raw_json(&blocks).get().to_owned())
    };
    let fitting = limit.fit(render, |content| without_media(content).into_owned());
    fitting.unwrap_or_else(|| to_raw_json(&[handle_block(handle, call)]).get().to_owned())
}

/// Returns cut structured content as JSON. `around` puts the envelope around what is shown.
fn cut_structured(
    result: &Value,
    around: Option<&impl Fn(Value) -> Value>,
    handle: &Handle,
    limit: FormLimit,
    call: &Call,
) -> String {
    let at: Path = "structuredContent".parse().unwrap_or_else(|_| Path::root());
    let around_bytes = around.map_or(0, |around| json_bytes(&around(json!({})), Measure::Bare));
    // The name of the member that holds the result.
    let around_bytes = around_bytes + r#","result":"#.len();
    let render = |max_bytes: usize| {
        let budget = Budget {
            max_bytes: max_bytes.checked_sub(around_bytes)?,
            ..call.budget
        };
        let shown = cut_to_budget(result, &at, handle, &budget, call.name_style)?;
        Some(match around {
            Some(around) => around(shown).to_string(),
            None => shown.to_string(),
        })
    };
    let fitting = limit.fit(render, String::clone);
    fitting.unwrap_or_else(|| handle_meta(handle).to_string())
}

fn text_block(text: String) -> ContentBlock {
    ContentBlock::Text { text }
}

/// Returns JSON without media data, as a model reads it.
fn without_media(json: &str) -> Cow<'_, str> {
    fn clear(value: &mut Value) {
        if is_media(value) {
            value["data"] = "".into();
        }
        match value {
            Value::Object(members) => {
                if members.get("uri").is_some_and(Value::is_string)
                    && let Some(blob) = members.get_mut("blob")
                {
                    *blob = "".into();
                }
                members.values_mut().for_each(clear);
            }
            Value::Array(items) => items.iter_mut().for_each(clear),
            _ => {}
        }
    }
    if !json.contains("\"data\"") && !json.contains("\"blob\"") {
        return Cow::Borrowed(json);
    }
    let mut value: Value = serde_json::from_str(json).unwrap_or_default();
    clear(&mut value);
    Cow::Owned(value.to_string())
}

fn is_media(block: &Value) -> bool {
    matches!(block["type"].as_str(), Some("image" | "audio")) && block["data"].is_string()
}

/// A relayed resource or prompt, after it was compared with the limits.
enum FittedResult {
    /// The result fits.
    Whole(Box<RawValue>),
    /// The result does not fit and is stored. Of a long result only the beginning is in memory.
    Stored(Handle, Result<Value, String>),
}

/// Stores the result of a resource or a prompt if it does not fit.
async fn fit_or_store(
    result: RelayedResult,
    call: &Call,
    sink: Arc<dyn ResultSink>,
) -> Result<FittedResult, Fault> {
    let limit = call.form_limit();
    match result {
        RelayedResult::InMemory(raw)
            if raw.get().len() <= limit.max_bytes
                && (raw.get().len() <= limit.max_tokens
                    || limit.allows(raw.get().len(), &without_media(raw.get()))) =>
        {
            Ok(FittedResult::Whole(raw))
        }
        RelayedResult::InMemory(raw) => {
            let value = serde_json::from_str(raw.get()).unwrap_or_default();
            let body = Cursor::new(Box::<str>::from(raw).into_boxed_bytes());
            let handle = store_result(call, sink, body).await?;
            Ok(FittedResult::Stored(handle, Ok(value)))
        }
        RelayedResult::Long(long) => {
            let (handle, text) = long.store(call, sink).await?;
            Ok(FittedResult::Stored(handle, Err(text)))
        }
    }
}

/// Returns a cut resource or prompt. `build` makes it from its text.
fn cut_source_result<T: Serialize>(
    excerpt: &Excerpt,
    handle: &Handle,
    call: &Call,
    build: impl Fn(String) -> T,
) -> T {
    let around_bytes = json_bytes(&build(String::new()), Measure::Bare);
    let render = |max_bytes: usize| {
        let text = excerpt.text_within(max_bytes.checked_sub(around_bytes)?, call, handle)?;
        Some(build(text))
    };
    let json = |built: &T| to_raw_json(built).get().to_owned();
    let fitting = call.form_limit().fit(render, json);
    fitting.unwrap_or_else(|| match handle_block(handle, call) {
        ContentBlock::Text { text } => build(text),
        _ => build(String::new()),
    })
}

impl SourceResult<Vec<ResourceContents>> {
    /// Relays what was read at `uri`. A result that does not fit is stored, and shown in part as one content.
    pub async fn relay(
        result: RelayedResult,
        uri: &str,
        call: &Call,
        sink: Arc<dyn ResultSink>,
    ) -> Result<Self, Fault> {
        #[derive(Serialize)]
        struct Contents {
            contents: [ResourceContents; 1],
        }
        let (handle, result) = match fit_or_store(result, call, sink).await? {
            FittedResult::Whole(raw) => return Ok(Self::Relayed(raw)),
            FittedResult::Stored(handle, result) => (handle, result),
        };
        let (excerpt, mime_type) = match &result {
            Ok(result) => {
                let contents = &result["contents"];
                let excerpt = Excerpt::from_items(contents, &ResultTexts::RESOURCE);
                let first = excerpt.first().map(|at| &contents[at]["mimeType"]);
                let mime_type = first.and_then(Value::as_str).map(str::to_owned);
                (excerpt, mime_type)
            }
            // A part of binary data is useless.
            Err(text) if text.contains("\"blob\"") => (Excerpt::from_head(""), None),
            Err(text) => (Excerpt::from_head(text), None),
        };
        let meta = excerpt.meta(call, &handle);
        let cut = cut_source_result(&excerpt, &handle, call, |text| Contents {
            contents: [ResourceContents {
                uri: uri.to_owned(),
                mime_type: mime_type.clone(),
                text: Some(text),
                meta: Some(meta.clone()),
                ..ResourceContents::default()
            }],
        });
        Ok(Self::Local(cut.contents.into()))
    }
}

impl SourceResult<Prompt> {
    /// Relays a filled-in prompt. A result that does not fit is stored, and shown in part as one message.
    pub async fn relay(
        result: RelayedResult,
        call: &Call,
        sink: Arc<dyn ResultSink>,
    ) -> Result<Self, Fault> {
        let (handle, result) = match fit_or_store(result, call, sink).await? {
            FittedResult::Whole(raw) => return Ok(Self::Relayed(raw)),
            FittedResult::Stored(handle, result) => (handle, result),
        };
        let excerpt = match &result {
            Ok(result) => Excerpt::from_items(&result["messages"], &ResultTexts::PROMPT),
            Err(text) => Excerpt::from_head(text),
        };
        let meta = excerpt.meta(call, &handle);
        Ok(Self::Local(cut_source_result(
            &excerpt,
            &handle,
            call,
            |text| Prompt {
                meta: Some(meta.clone()),
                description: None,
                messages: vec![Message {
                    role: Role::User,
                    content: text_block(text),
                }],
            },
        )))
    }
}

//! Relaying of results of other servers.
//!
//! A result that fits the budget is passed on byte for byte. A result that does not is stored whole; the caller gets as much
//! as fits, in the forms that its client reads, with the call that reads the rest.

use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rung_fault::Fault;
use rung_ladder::{Budget, Handle, Measure, Path, head, json_bytes, json_string_bytes};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::prompt::{Message, Prompt, Role};
use crate::reply::{
    ContentBlock, READ_TOOL, Reply, ResourceLink, ResultSink, TEXT_BYTES, budget_too_small,
    content_blocks, cut_to_budget, store_result, to_raw_json,
};
use crate::resource::ResourceContents;
use crate::source::Call;

/// A result as another server sent it.
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

/// A relayed result, after it was compared with the budget.
enum FittedResult {
    /// The result fits.
    Whole(Box<RawValue>),
    /// The result does not fit, and is stored.
    Stored { result: StoredPart, handle: Handle },
}

/// The part of a stored result that is still in memory.
enum StoredPart {
    /// The whole result.
    Whole(Value),
    /// A text with its beginning, and whether it says that the call failed.
    Head(String, bool),
}

/// Stores the result if it does not fit.
async fn fit_or_store(
    given: RelayedResult,
    call: &Call,
    keep: Arc<dyn ResultSink>,
) -> Result<FittedResult, Fault> {
    let (result, handle) = match given {
        RelayedResult::InMemory(raw) if raw.get().len() <= call.budget.max_bytes => {
            return Ok(FittedResult::Whole(raw));
        }
        RelayedResult::InMemory(raw) => {
            let result = serde_json::from_str(raw.get()).unwrap_or_default();
            let body = Cursor::new(Box::<str>::from(raw).into_boxed_bytes());
            (
                StoredPart::Whole(result),
                store_result(call, keep, body).await?,
            )
        }
        RelayedResult::Long(long) => {
            let bytes = Arc::new(AtomicU64::new(0));
            let body = Counting {
                body: long.body,
                bytes: bytes.clone(),
            };
            let handle = store_result(call, keep, body).await?;
            let text = format!(
                "{} bytes of JSON, which begin with\n{}",
                bytes.load(Ordering::Relaxed),
                long.head
            );
            (StoredPart::Head(text, long.is_error), handle)
        }
    };
    Ok(FittedResult::Stored { result, handle })
}

impl Reply {
    /// Creates the reply that relays a result.
    pub async fn relay(
        given: RelayedResult,
        call: &Call,
        keep: Arc<dyn ResultSink>,
    ) -> Result<Self, Fault> {
        match fit_or_store(given, call, keep).await? {
            FittedResult::Whole(raw) => Ok(Self {
                is_error: is_error(&raw),
                relayed: Some(raw),
                ..Self::from_blocks(Vec::new())
            }),
            FittedResult::Stored { result, handle } => {
                let preview = match &result {
                    StoredPart::Whole(result) => Preview::new(result),
                    StoredPart::Head(text, is_error) => Preview {
                        excerpt: Excerpt::from_head(text),
                        content: None,
                        structured: None,
                        is_error: *is_error,
                    },
                };
                Ok(preview_reply(&preview, call, &handle))
            }
        }
    }

    /// Creates a reply with nothing but the call that reads the result stored under `handle`, for the smallest budgets.
    pub fn handle_only(handle: &Handle, is_error: bool, call: &Call) -> Self {
        let structured = json!({"meta": {"truncated": true, "handle": handle.to_string()}});
        Self {
            is_error,
            structured_content: call.rendering.structured.then(|| to_raw_json(&structured)),
            ..Self::from_blocks(vec![handle_block(handle, call)])
        }
    }

    /// The largest size of [`Self::handle_only`]: no smaller budget can be met.
    pub const MIN_BYTES: usize = 256;
}

fn handle_block(handle: &Handle, call: &Call) -> ContentBlock {
    let read = call.name_style.apply(READ_TOOL);
    let text = format!("{read} {{\"handle\":\"{handle}\"}}");
    ContentBlock::Text { text }
}

/// Returns the content of a result stored under `handle`, in at most `max_bytes` of JSON: the next call, as much text as
/// fits, and a link. If not even the next call with its path fits, the content is the handle alone.
pub fn content_preview(
    result: &Value,
    handle: &Handle,
    call: &Call,
    max_bytes: usize,
) -> Vec<ContentBlock> {
    let mut shown = content_blocks(String::new(), &[result_link(handle)], call.rendering);
    let room = max_bytes.checked_sub(json_bytes(&shown, Measure::Bare));
    let excerpt = Preview::new(result).excerpt;
    match room.and_then(|room| excerpt.text_within(room, call, handle)) {
        Some(text) => shown[0] = ContentBlock::Text { text },
        None => shown = vec![handle_block(handle, call)],
    }
    shown
}

/// Returns the structured content of a result stored under `handle`, in at most `max_bytes` of JSON. If it is cut, its
/// `meta` lists the cuts. `None` if not even that fits.
pub fn structured_preview(
    structured: &Value,
    handle: &Handle,
    call: &Call,
    max_bytes: usize,
) -> Option<Value> {
    let at: Path = "structuredContent".parse().ok()?;
    let budget = Budget {
        max_bytes,
        ..call.budget
    };
    cut_to_budget(structured, &at, handle, &budget, call.name_style)
}

fn result_link(handle: &Handle) -> ResourceLink {
    ResourceLink {
        uri: handle.uri(),
        name: "the whole result".to_owned(),
        mime_type: "application/json".to_owned(),
    }
}

impl SourceResult<Vec<ResourceContents>> {
    /// Relays what was read at `uri`. A result that does not fit is stored, and shown in part as one content.
    pub async fn relay(
        given: RelayedResult,
        uri: &str,
        call: &Call,
        keep: Arc<dyn ResultSink>,
    ) -> Result<Self, Fault> {
        let (result, handle) = match fit_or_store(given, call, keep).await? {
            FittedResult::Whole(raw) => return Ok(Self::Relayed(raw)),
            FittedResult::Stored { result, handle } => (result, handle),
        };
        let (excerpt, mime_type) = match &result {
            StoredPart::Whole(result) => {
                let excerpt =
                    Excerpt::from_items(
                        &result["contents"],
                        "contents",
                        "text",
                        |one| &one["text"],
                    );
                let first = excerpt.first.map(|at| &result["contents"][at]["mimeType"]);
                let mime_type = first.and_then(Value::as_str).map(str::to_owned);
                (excerpt, mime_type)
            }
            // A part of binary data is useless.
            StoredPart::Head(text, _) if text.contains("\"blob\"") => {
                (Excerpt::from_head(""), None)
            }
            StoredPart::Head(text, _) => (Excerpt::from_head(text), None),
        };
        let mut contents = vec![ResourceContents {
            uri: uri.to_owned(),
            mime_type,
            text: Some(String::new()),
            meta: Some(excerpt.meta(call, &handle)),
            ..ResourceContents::default()
        }];
        let around_bytes = json_bytes(&json!({"contents": contents}), Measure::Bare);
        contents[0].text = Some(excerpt.text_within_budget(around_bytes, call, &handle)?);
        Ok(Self::Local(contents))
    }
}

impl SourceResult<Prompt> {
    /// Relays a filled-in prompt. A result that does not fit is stored, and shown in part as one message.
    pub async fn relay(
        given: RelayedResult,
        call: &Call,
        keep: Arc<dyn ResultSink>,
    ) -> Result<Self, Fault> {
        let (result, handle) = match fit_or_store(given, call, keep).await? {
            FittedResult::Whole(raw) => return Ok(Self::Relayed(raw)),
            FittedResult::Stored { result, handle } => (result, handle),
        };
        let excerpt = match &result {
            StoredPart::Whole(result) => {
                Excerpt::from_items(&result["messages"], "messages", "content.text", |one| {
                    &one["content"]["text"]
                })
            }
            StoredPart::Head(text, _) => Excerpt::from_head(text),
        };
        let message = |text| Message {
            role: Role::User,
            content: ContentBlock::Text { text },
        };
        let mut prompt = Prompt {
            meta: Some(excerpt.meta(call, &handle)),
            description: None,
            messages: vec![message(String::new())],
        };
        let around_bytes = json_bytes(&prompt, Measure::Bare);
        prompt.messages = vec![message(excerpt.text_within_budget(
            around_bytes,
            call,
            &handle,
        )?)];
        Ok(Self::Local(prompt))
    }
}

/// The texts of a result that does not fit, joined into one.
struct Excerpt {
    text: String,
    /// The index of the item that holds the first text.
    first: Option<usize>,
    /// For each text, its offset in `text` and its path in the stored result.
    locations: Vec<(usize, String)>,
}

impl Excerpt {
    /// Joins the texts of a list's items. `list` is the path of the list in the stored result, `at` that of a text in its item.
    fn from_items<'v>(
        items: &'v Value,
        list: &str,
        at: &str,
        text: fn(&'v Value) -> &'v Value,
    ) -> Self {
        let items = items.as_array().map_or(&[][..], Vec::as_slice);
        let texts = items.iter().enumerate();
        let texts = texts.filter_map(|(index, item)| Some((index, text(item).as_str()?)));
        let mut excerpt = Self::from_head("");
        for (index, text) in texts {
            if excerpt.first.is_some() {
                excerpt.text.push('\n');
            }
            excerpt.first.get_or_insert(index);
            let place = format!("{list}[{index}].{at}");
            excerpt.locations.push((excerpt.text.len(), place));
            excerpt.text.push_str(text);
        }
        excerpt
    }

    fn from_head(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            first: None,
            locations: Vec::new(),
        }
    }

    /// Returns the metadata that reports the cut and names the next call.
    fn meta(&self, call: &Call, handle: &Handle) -> Value {
        let mut arguments = json!({"handle": handle.to_string()});
        if let Some((_, path)) = self.locations.first() {
            arguments["path"] = path.as_str().into();
        }
        let next = json!({"tool": call.name_style.apply(READ_TOOL), "arguments": arguments});
        json!({"truncated": true, "handle": handle.to_string(), "next": next})
    }

    /// Returns the sentence that names the call for the whole result, and the one that continues after this text.
    fn note(call: &Call, handle: &Handle, next: Option<(&str, usize)>) -> String {
        let read = call.name_style.apply(READ_TOOL);
        let next = next.map_or_else(String::new, |(path, offset_chars)| {
            format!(
                ", or continue with {{\"handle\":\"{handle}\",\"path\":{},\"offset_chars\":{offset_chars}}}",
                Value::from(path)
            )
        });
        format!(
            "Result truncated. The whole result is stored: read it with {read} {{\"handle\":\"{handle}\"}}{next}.\n"
        )
    }

    /// Returns where the text continues after its first `bytes`: a path, and the code points of it that were shown.
    fn next(&self, bytes: usize) -> Option<(&str, usize)> {
        if bytes == self.text.len() {
            return None;
        }
        // If only the line break before a text was shown, that text is the next one.
        let mut places = self.locations.iter().rev();
        let (from, path) = places.find(|(from, _)| *from <= bytes + 1)?;
        let shown = &self.text[(*from).min(bytes)..bytes];
        Some((path, shown.chars().count()))
    }

    /// Returns the note and as much of the text as fits `room` bytes of a JSON string, quotes not counted.
    fn text_within(&self, room: usize, call: &Call, handle: &Handle) -> Option<String> {
        // No note is longer than the one with the last path and the count of all code points.
        let last = self.locations.last();
        let longest = last.map(|(_, path)| (path.as_str(), self.text.chars().count()));
        let note = Self::note(call, handle, longest);
        let room = room.checked_sub(json_string_bytes(&note) - 2)?;
        let shown = head(&self.text, room);
        Some(Self::note(call, handle, self.next(shown.len())) + shown)
    }

    /// Returns the note and as much of the text as fits the budget after `around_bytes`.
    fn text_within_budget(
        &self,
        around_bytes: usize,
        call: &Call,
        handle: &Handle,
    ) -> Result<String, Fault> {
        let room = call.budget.max_bytes.checked_sub(around_bytes);
        // `around_bytes` includes the quotes of the text.
        room.and_then(|room| self.text_within(room, call, handle))
            .ok_or_else(|| budget_too_small(call, handle))
    }
}

fn is_error(raw: &RawValue) -> bool {
    const NAME: &str = "\"isError\"";
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Outcome {
        #[serde(default)]
        is_error: bool,
    }
    // Most results do not have the member, or have it as false.
    let mut named = raw.get().match_indices(NAME);
    let may_be = named.any(|(at, _)| {
        let after = raw.get()[at + NAME.len()..].trim_start();
        let value = after.strip_prefix(':').map(str::trim_start);
        value.is_some_and(|value| value.starts_with('t'))
    });
    may_be && serde_json::from_str::<Outcome>(raw.get()).is_ok_and(|outcome| outcome.is_error)
}

/// The parts of a result that a preview can show.
struct Preview<'r> {
    excerpt: Excerpt,
    content: Option<&'r Value>,
    structured: Option<&'r Value>,
    is_error: bool,
}

impl<'r> Preview<'r> {
    fn new(result: &'r Value) -> Self {
        let content = &result["content"];
        Self {
            excerpt: Excerpt::from_items(content, "content", "text", |block| &block["text"]),
            content: Some(content),
            structured: Some(&result["structuredContent"]).filter(|value| value.is_object()),
            is_error: result["isError"] == true,
        }
    }
}

/// Returns a reply with as much of a result as fits, or with the handle alone. A result without structured content stays
/// without: a client that gets structured content shows its model nothing else.
fn preview_reply(preview: &Preview<'_>, call: &Call, handle: &Handle) -> Reply {
    try_preview_reply(preview, call, handle).unwrap_or_else(|| {
        let mut reply = Reply::handle_only(handle, preview.is_error, call);
        if preview.structured.is_none() {
            reply.structured_content = None;
        }
        reply
    })
}

fn try_preview_reply(preview: &Preview<'_>, call: &Call, handle: &Handle) -> Option<Reply> {
    let structured = preview.structured.filter(|_| call.rendering.structured);
    // Set before anything is measured, since `isError` takes space too.
    let mut reply = Reply {
        is_error: preview.is_error,
        structured_content: structured.map(|_| to_raw_json(&json!({}))),
        ..Reply::from_blocks(content_blocks(
            String::new(),
            &[result_link(handle)],
            call.rendering,
        ))
    };
    let room = call.budget.max_bytes.checked_sub(reply.bytes())?;
    let mut text_room = room;
    if let Some(structured) = structured {
        text_room = TEXT_BYTES.min(room / 4);
        let structured = structured_preview(structured, handle, call, room - text_room)?;
        reply.structured_content = Some(to_raw_json(&structured));
        // Content that fits is not marked as cut. Empty content is replaced by the next call.
        if let Some(content) = preview.content
            && content.as_array().is_some_and(|blocks| !blocks.is_empty())
            && json_bytes(content, Measure::Bare) <= text_room
        {
            let mut result = json!({"content": content, "structuredContent": structured});
            if preview.is_error {
                result["isError"] = true.into();
            }
            return Some(Reply {
                is_error: preview.is_error,
                relayed: Some(to_raw_json(&result)),
                ..Reply::from_blocks(Vec::new())
            });
        }
    }
    let text = preview.excerpt.text_within(text_room, call, handle)?;
    reply.content[0] = ContentBlock::Text { text };
    debug_assert!(reply.bytes() <= call.budget.max_bytes, "the rooms add up");
    Some(reply)
}

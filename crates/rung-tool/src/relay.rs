//! A result that another server gave, on its way through.
//!
//! What fits goes on as it came, byte for byte. What does not is kept whole, and the caller is shown as much of it as
//! fits, in the forms its kind of client reads, with the way to the rest.

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
    Block, Keep, Link, READ_TOOL, Reply, TEXT_BYTES, blocks, cut, kept, too_small, written,
};
use crate::resource::Contents;
use crate::source::Call;

/// A result as another server gave it.
pub enum Given {
    /// In memory.
    Here(Box<RawValue>),
    /// Too long for that.
    Long(LongResult),
}

/// A result that is too long to be held.
pub struct LongResult {
    /// Whether it says that the call failed.
    pub is_error: bool,
    /// How its JSON begins.
    pub head: String,
    /// Its JSON.
    pub body: Box<dyn Read + Send>,
}

/// How much of a long result is shown before it is read.
const HEAD_BYTES: u64 = 4 << 10;

impl LongResult {
    /// The result that this reader gives.
    pub fn read(is_error: bool, mut body: impl Read + Send + 'static) -> io::Result<Self> {
        let mut begun = Vec::new();
        (&mut body).take(HEAD_BYTES).read_to_end(&mut begun)?;
        // A character that was cut in two is not shown.
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

/// Counts what is read of a long result: how long it is without its secrets is not known before.
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

/// What is read, filled in or completed: of ours, or as another server gave it.
#[derive(Debug)]
pub enum Served<T> {
    /// Of ours.
    Ours(T),
    /// The whole result of another server, to be passed on byte for byte. It fits.
    Relayed(Box<RawValue>),
}

impl<T> From<T> for Served<T> {
    fn from(ours: T) -> Self {
        Self::Ours(ours)
    }
}

/// A result on its way through, once it is known whether it fits.
enum Fitted {
    /// It does.
    Whole(Box<RawValue>),
    /// It does not, and is kept.
    Kept { result: Kept, handle: Handle },
}

/// What is still at hand of a result that was kept.
enum Kept {
    /// All of it.
    All(Value),
    /// How it begins, in words, and whether it says that the call failed.
    Head(String, bool),
}

/// Keeps what does not fit.
async fn fitted(given: Given, call: &Call, keep: Arc<dyn Keep>) -> Result<Fitted, Fault> {
    let (result, handle) = match given {
        Given::Here(raw) if raw.get().len() <= call.budget.max_bytes => {
            return Ok(Fitted::Whole(raw));
        }
        Given::Here(raw) => {
            let result = serde_json::from_str(raw.get()).unwrap_or_default();
            let body = Cursor::new(Box::<str>::from(raw).into_boxed_bytes());
            (Kept::All(result), kept(call, keep, body).await?)
        }
        Given::Long(long) => {
            let bytes = Arc::new(AtomicU64::new(0));
            let body = Counting {
                body: long.body,
                bytes: bytes.clone(),
            };
            let handle = kept(call, keep, body).await?;
            let text = format!(
                "{} bytes of JSON, beginning with\n{}",
                bytes.load(Ordering::Relaxed),
                long.head
            );
            (Kept::Head(text, long.is_error), handle)
        }
    };
    Ok(Fitted::Kept { result, handle })
}

impl Reply {
    /// The reply that passes a result on.
    pub async fn relay(given: Given, call: &Call, keep: Arc<dyn Keep>) -> Result<Self, Fault> {
        match fitted(given, call, keep).await? {
            Fitted::Whole(raw) => Ok(Self {
                is_error: is_error(&raw),
                relayed: Some(raw),
                ..Self::of_blocks(Vec::new())
            }),
            Fitted::Kept { result, handle } => {
                let preview = match &result {
                    Kept::All(result) => Preview::of(result),
                    Kept::Head(text, is_error) => Preview {
                        shown: Excerpt::of_head(text),
                        content: None,
                        structured: None,
                        is_error: *is_error,
                    },
                };
                Ok(in_part(&preview, call, &handle))
            }
        }
    }

    /// The way to a result that is kept under `handle`, and nothing else: for a budget that holds no more.
    pub fn handle_alone(handle: &Handle, is_error: bool, call: &Call) -> Self {
        let structured = json!({"meta": {"truncated": true, "handle": handle.to_string()}});
        Self {
            is_error,
            structured_content: call.rendering.structured.then(|| written(&structured)),
            ..Self::of_blocks(vec![handle_block(handle, call)])
        }
    }

    /// What [`Self::handle_alone`] takes at most: no smaller budget can be kept.
    pub const LEAST_BYTES: usize = 256;
}

fn handle_block(handle: &Handle, call: &Call) -> Block {
    let read = call.names.show(READ_TOOL);
    let text = format!("{read} {{\"handle\":\"{handle}\"}}");
    Block::Text { text }
}

/// The content of a result that is stored under `handle`, in at most `max_bytes` of JSON: the next call, as much text as fits, and a link.
/// Where not even the next call with its path fits, the handle alone.
pub fn content_preview(
    result: &Value,
    handle: &Handle,
    call: &Call,
    max_bytes: usize,
) -> Vec<Block> {
    let mut shown = blocks(String::new(), &[link_to(handle)], call.rendering);
    let room = max_bytes.checked_sub(json_bytes(&shown, Measure::Bare));
    let excerpt = Preview::of(result).shown;
    match room.and_then(|room| excerpt.text_within(room, call, handle)) {
        Some(text) => shown[0] = Block::Text { text },
        None => shown = vec![handle_block(handle, call)],
    }
    shown
}

/// The structured content of a result that is stored under `handle`, in at most `max_bytes` of JSON. What is cut is listed in its `meta`;
/// what is whole has none. `None` if not even that fits.
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
    cut(structured, &at, handle, &budget, call.names)
}

fn link_to(handle: &Handle) -> Link {
    Link {
        uri: handle.uri(),
        name: "the whole result".to_owned(),
        mime_type: "application/json".to_owned(),
    }
}

impl Served<Vec<Contents>> {
    /// What was read at `uri` passes on. What does not fit is kept, and shown in part as one content.
    pub async fn relay(
        given: Given,
        uri: &str,
        call: &Call,
        keep: Arc<dyn Keep>,
    ) -> Result<Self, Fault> {
        let (result, handle) = match fitted(given, call, keep).await? {
            Fitted::Whole(raw) => return Ok(Self::Relayed(raw)),
            Fitted::Kept { result, handle } => (result, handle),
        };
        let (excerpt, mime_type) = match &result {
            Kept::All(result) => {
                let excerpt =
                    Excerpt::of(&result["contents"], "contents", "text", |one| &one["text"]);
                let first = excerpt.first.map(|at| &result["contents"][at]["mimeType"]);
                let mime_type = first.and_then(Value::as_str).map(str::to_owned);
                (excerpt, mime_type)
            }
            // Part of some bytes is nothing to read.
            Kept::Head(text, _) if text.contains("\"blob\"") => (Excerpt::of_head(""), None),
            Kept::Head(text, _) => (Excerpt::of_head(text), None),
        };
        let mut contents = vec![Contents {
            uri: uri.to_owned(),
            mime_type,
            text: Some(String::new()),
            meta: Some(excerpt.meta(call, &handle)),
            ..Contents::default()
        }];
        let around_bytes = json_bytes(&json!({"contents": contents}), Measure::Bare);
        contents[0].text = Some(excerpt.within(around_bytes, call, &handle)?);
        Ok(Self::Ours(contents))
    }
}

impl Served<Prompt> {
    /// A prompt that was filled in passes on. What does not fit is kept, and shown in part as one message.
    pub async fn relay(given: Given, call: &Call, keep: Arc<dyn Keep>) -> Result<Self, Fault> {
        let (result, handle) = match fitted(given, call, keep).await? {
            Fitted::Whole(raw) => return Ok(Self::Relayed(raw)),
            Fitted::Kept { result, handle } => (result, handle),
        };
        let excerpt = match &result {
            Kept::All(result) => {
                Excerpt::of(&result["messages"], "messages", "content.text", |one| {
                    &one["content"]["text"]
                })
            }
            Kept::Head(text, _) => Excerpt::of_head(text),
        };
        let message = |text| Message {
            role: Role::User,
            content: Block::Text { text },
        };
        let mut prompt = Prompt {
            meta: Some(excerpt.meta(call, &handle)),
            description: None,
            messages: vec![message(String::new())],
        };
        let around_bytes = json_bytes(&prompt, Measure::Bare);
        prompt.messages = vec![message(excerpt.within(around_bytes, call, &handle)?)];
        Ok(Self::Ours(prompt))
    }
}

/// The texts of a result that does not fit, as one.
struct Excerpt {
    text: String,
    /// Which item of the result the first of them is in.
    first: Option<usize>,
    /// Where each of them begins in `text`, and where it stands in what is kept.
    places: Vec<(usize, String)>,
}

impl Excerpt {
    /// The texts of a list's items. The list stands at `list` in what is kept, and a text at `at` in its item.
    fn of<'v>(items: &'v Value, list: &str, at: &str, text: fn(&'v Value) -> &'v Value) -> Self {
        let items = items.as_array().map_or(&[][..], Vec::as_slice);
        let texts = items.iter().enumerate();
        let texts = texts.filter_map(|(index, item)| Some((index, text(item).as_str()?)));
        let mut excerpt = Self::of_head("");
        for (index, text) in texts {
            if excerpt.first.is_some() {
                excerpt.text.push('\n');
            }
            excerpt.first.get_or_insert(index);
            let place = format!("{list}[{index}].{at}");
            excerpt.places.push((excerpt.text.len(), place));
            excerpt.text.push_str(text);
        }
        excerpt
    }

    fn of_head(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            first: None,
            places: Vec::new(),
        }
    }

    /// What was cut, and the next call.
    fn meta(&self, call: &Call, handle: &Handle) -> Value {
        let mut arguments = json!({"handle": handle.to_string()});
        if let Some((_, path)) = self.places.first() {
            arguments["path"] = path.as_str().into();
        }
        let next = json!({"tool": call.names.show(READ_TOOL), "arguments": arguments});
        json!({"truncated": true, "handle": handle.to_string(), "next": next})
    }

    /// The way to the whole, in words, and to what follows this text of it.
    fn note(call: &Call, handle: &Handle, next: Option<(&str, usize)>) -> String {
        let read = call.names.show(READ_TOOL);
        let next = next.map_or_else(String::new, |(path, offset_chars)| {
            format!(
                ", or continue with {{\"handle\":\"{handle}\",\"path\":{},\"offset_chars\":{offset_chars}}}",
                Value::from(path)
            )
        });
        format!(
            "Result truncated. The whole is kept: read it with {read} {{\"handle\":\"{handle}\"}}{next}.\n"
        )
    }

    /// What follows the first `bytes` of the text: a path, and the code points of it that were shown.
    fn next(&self, bytes: usize) -> Option<(&str, usize)> {
        if bytes == self.text.len() {
            return None;
        }
        // A text of which only the line break before it was shown is the next one.
        let mut places = self.places.iter().rev();
        let (from, path) = places.find(|(from, _)| *from <= bytes + 1)?;
        let shown = &self.text[(*from).min(bytes)..bytes];
        Some((path, shown.chars().count()))
    }

    /// The note and as much of the text as fits into so many bytes of a JSON string without its quotes.
    fn text_within(&self, room: usize, call: &Call, handle: &Handle) -> Option<String> {
        // The last path with the count of all code points is as long as any note can be.
        let last = self.places.last();
        let longest = last.map(|(_, path)| (path.as_str(), self.text.chars().count()));
        let note = Self::note(call, handle, longest);
        let room = room.checked_sub(json_string_bytes(&note) - 2)?;
        let shown = head(&self.text, room);
        Some(Self::note(call, handle, self.next(shown.len())) + shown)
    }

    /// The note and as much of the text as fits beside so many bytes.
    fn within(&self, around_bytes: usize, call: &Call, handle: &Handle) -> Result<String, Fault> {
        let room = call.budget.max_bytes.checked_sub(around_bytes);
        // The quotes of the text are around it already.
        room.and_then(|room| self.text_within(room, call, handle))
            .ok_or_else(|| too_small(call, handle))
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
    // Most results do not name it, or say at once that it is not so.
    let mut named = raw.get().match_indices(NAME);
    let may_be = named.any(|(at, _)| {
        let after = raw.get()[at + NAME.len()..].trim_start();
        let value = after.strip_prefix(':').map(str::trim_start);
        value.is_some_and(|value| value.starts_with('t'))
    });
    may_be && serde_json::from_str::<Outcome>(raw.get()).is_ok_and(|outcome| outcome.is_error)
}

/// What can be shown of a result that does not fit.
struct Preview<'r> {
    shown: Excerpt,
    content: Option<&'r Value>,
    structured: Option<&'r Value>,
    is_error: bool,
}

impl<'r> Preview<'r> {
    fn of(result: &'r Value) -> Self {
        let content = &result["content"];
        Self {
            shown: Excerpt::of(content, "content", "text", |block| &block["text"]),
            content: Some(content),
            structured: Some(&result["structuredContent"]).filter(|value| value.is_object()),
            is_error: result["isError"] == true,
        }
    }
}

/// As much of a result as fits, or the way to it alone. A result without structured content stays without: a client that has such content
/// shows its model nothing else.
fn in_part(preview: &Preview<'_>, call: &Call, handle: &Handle) -> Reply {
    shown_in_part(preview, call, handle).unwrap_or_else(|| {
        let mut reply = Reply::handle_alone(handle, preview.is_error, call);
        if preview.structured.is_none() {
            reply.structured_content = None;
        }
        reply
    })
}

fn shown_in_part(preview: &Preview<'_>, call: &Call, handle: &Handle) -> Option<Reply> {
    let structured = preview.structured.filter(|_| call.rendering.structured);
    // Before anything is measured: that it failed takes room, too.
    let mut reply = Reply {
        is_error: preview.is_error,
        structured_content: structured.map(|_| written(&json!({}))),
        ..Reply::of_blocks(blocks(String::new(), &[link_to(handle)], call.rendering))
    };
    let room = call.budget.max_bytes.checked_sub(reply.bytes())?;
    let mut text_room = room;
    if let Some(structured) = structured {
        text_room = TEXT_BYTES.min(room / 4);
        let structured = structured_preview(structured, handle, call, room - text_room)?;
        reply.structured_content = Some(written(&structured));
        // What is whole is not marked as cut. Content that shows nothing names the next call.
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
                relayed: Some(written(&result)),
                ..Reply::of_blocks(Vec::new())
            });
        }
    }
    let text = preview.shown.text_within(text_room, call, handle)?;
    reply.content[0] = Block::Text { text };
    debug_assert!(reply.bytes() <= call.budget.max_bytes, "the rooms add up");
    Some(reply)
}

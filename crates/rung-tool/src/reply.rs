//! What goes out. One answer, in the three forms that clients read: text, structured, links.
//!
//! A text-only client reads the text block, a structured one `structuredContent`, a third follows resource
//! links. Each must be able to get to all of the answer alone, so where an answer does not fit, each is told
//! what was cut and where the rest is. Nothing else builds these shapes.

use std::io::Read;
use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::{Code, Face, Fault};
use rung_ladder::limits::ERROR_BYTES;
use rung_ladder::{Budget, Cut, Handle, Measure, Path, fit, head, json_bytes, json_string_bytes};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::names::Names;
use crate::resource::Contents;
use crate::source::Call;

/// The tool that reads what was kept.
pub(crate) const READ_TOOL: &str = "rung.read";
/// The most that a text beside structured content takes of a reply that was cut.
pub(crate) const TEXT_BYTES: usize = 8 << 10;
/// Set aside in `meta` for everything but the records: handle, next call and their names.
const META_BYTES: usize = 512;
/// A path longer than this is left out of the next call, which then begins at the top.
const NEXT_PATH_BYTES: usize = 120;

/// What a tool gives.
#[derive(Debug, Clone)]
pub struct Answer<T> {
    /// The facts.
    pub data: T,
    /// The facts in words, where compact JSON is not the best text for them.
    pub text: Option<String>,
    /// Where more of them can be read as resources.
    pub links: Vec<Link>,
}

impl<T> From<T> for Answer<T> {
    fn from(data: T) -> Self {
        Self {
            data,
            text: None,
            links: Vec::new(),
        }
    }
}

impl<T: Serialize> Answer<T> {
    /// Bytes of the reply that gives this answer whole.
    pub fn reply_bytes(&self, rendering: Rendering) -> usize {
        let around = Reply {
            content: blocks(String::new(), &self.links, rendering),
            structured_content: rendering.structured.then(|| written(&json!({}))),
            is_error: false,
            fault: None,
            relayed: None,
        };
        let text_bytes = match &self.text {
            Some(text) => json_string_bytes(text) - 2,
            None => json_bytes(&self.data, Measure::Quoted),
        };
        // In place of the empty object.
        let data_bytes = if rendering.structured {
            json_bytes(&self.data, Measure::Bare) - 2
        } else {
            0
        };
        around.bytes() + text_bytes + data_bytes
    }
}

/// A resource that belongs to an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Its address.
    pub uri: String,
    /// What to call it.
    pub name: String,
    /// Its media type.
    #[serde(rename = "mimeType")]
    pub mime_type: String,
}

/// Which forms a caller can read. Text always goes along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rendering {
    /// `structuredContent` is sent.
    pub structured: bool,
    /// Resource links are sent.
    pub links: bool,
}

impl Default for Rendering {
    fn default() -> Self {
        Self {
            structured: true,
            links: true,
        }
    }
}

/// One block of content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Text for the model.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    #[serde(rename_all = "camelCase")]
    Image {
        /// Its bytes in base64.
        data: String,
        /// Its media type.
        mime_type: String,
    },
    /// A sound.
    #[serde(rename_all = "camelCase")]
    Audio {
        /// Its bytes in base64.
        data: String,
        /// Its media type.
        mime_type: String,
    },
    /// A resource to be read.
    ResourceLink(Link),
    /// A resource that comes along.
    Resource {
        /// What it holds.
        resource: Contents,
    },
}

/// A reply, ready to be sent. Serialised, it is the result of a tool call.
#[derive(Debug, Clone)]
pub struct Reply {
    /// What every client reads.
    pub content: Vec<Block>,
    /// What programs read, written once: whoever measures it or sends it does not write it again.
    pub structured_content: Option<Box<RawValue>>,
    /// Whether the call failed.
    pub is_error: bool,
    /// Why, for whoever called within this process.
    pub fault: Option<Fault>,
    /// All of it as another server gave it, to be passed on byte for byte. Then there is nothing else here.
    pub relayed: Option<Box<RawValue>>,
}

impl Serialize for Reply {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(relayed) = &self.relayed {
            return relayed.serialize(serializer);
        }
        let mut reply = serializer.serialize_struct("Reply", 3)?;
        reply.serialize_field("content", &self.content)?;
        if let Some(structured) = &self.structured_content {
            reply.serialize_field("structuredContent", structured)?;
        }
        if self.is_error {
            reply.serialize_field("isError", &true)?;
        }
        reply.end()
    }
}

/// Something as JSON, for a reply.
pub fn written(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("what a tool gives is JSON")
}

/// Keeps what was too large for a reply.
pub trait Keep: Send + Sync + 'static {
    /// Keeps `body` for the bearer of `permit`, with memory that does not grow with it. When this returns, it can
    /// be read under the handle.
    fn keep(
        &self,
        permit: &Permit,
        content_type: &str,
        body: &mut dyn Read,
    ) -> Result<Handle, Fault>;
}

impl Reply {
    /// The text of the first block.
    pub fn text(&self) -> &str {
        match self.content.first() {
            Some(Block::Text { text }) => text,
            _ => "",
        }
    }

    /// A reply of one text.
    pub fn of_text(text: impl Into<String>) -> Self {
        Self::of_blocks(vec![Block::Text { text: text.into() }])
    }

    /// A reply of such blocks.
    pub fn of_blocks(content: Vec<Block>) -> Self {
        Self {
            content,
            structured_content: None,
            is_error: false,
            fault: None,
            relayed: None,
        }
    }

    /// The reply to an answer: all of it where it fits, else as much as fits and the way to the rest.
    pub async fn of(
        answer: Answer<Value>,
        call: &Call,
        keep: Arc<dyn Keep>,
    ) -> Result<Self, Fault> {
        render(answer, call, keep).await
    }

    /// The reply to a call that failed.
    pub fn failed(fault: &Fault, face: Face, call: &Call) -> Self {
        let fault = if fault.message().len() > ERROR_BYTES {
            let said = format!("{}…", head(fault.message(), ERROR_BYTES));
            &fault.clone().with_message(said)
        } else {
            fault
        };
        let body = fault.body(face);
        let text = match face {
            Face::Rung => {
                let mut text = format!("Error {}: {fault}", fault.code().name());
                if let Some(hint) = fault.hint() {
                    text.push_str("\nNext: ");
                    text.push_str(hint);
                }
                if let Some(details) = body["error"].get("details") {
                    text.push_str("\nDetails: ");
                    text.push_str(&details.to_string());
                }
                text
            }
            Face::Pdpp => format!("{:#}", body["error"]),
            Face::Datalevin => body.to_string(),
        };
        let mut reply = Self {
            content: vec![Block::Text { text }],
            structured_content: call.rendering.structured.then(|| written(&body)),
            is_error: true,
            fault: Some(fault.clone()),
            relayed: None,
        };
        // Where even that is too much, it is said to whoever reads.
        if reply.bytes() > call.budget.max_bytes {
            reply.structured_content = None;
            let room = call
                .budget
                .max_bytes
                .saturating_sub(reply.bytes_without_text());
            let text = head(reply.text(), room).to_owned();
            reply.content = vec![Block::Text { text }];
        }
        reply
    }

    /// Its bytes, as it will be sent.
    ///
    /// Reckoned and not written, since a reply is measured more often than it is sent.
    pub fn bytes(&self) -> usize {
        if let Some(relayed) = &self.relayed {
            return relayed.get().len();
        }
        let block = |block: &Block| match block {
            Block::Text { text } => r#"{"type":"text","text":}"#.len() + json_string_bytes(text),
            other => json_bytes(other, Measure::Bare),
        };
        let commas = self.content.len().saturating_sub(1);
        let content = self.content.iter().map(block).sum::<usize>() + commas;
        let structured = self.structured_content.as_ref().map_or(0, |written| {
            r#","structuredContent":"#.len() + written.get().len()
        });
        let failed = if self.is_error {
            r#","isError":true"#.len()
        } else {
            0
        };
        r#"{"content":[]}"#.len() + content + structured + failed
    }

    fn bytes_without_text(&self) -> usize {
        self.bytes() - json_string_bytes(self.text()) + 2
    }
}

/// Makes the reply to an answer: all of it where it fits, else as much as fits and the way to the rest.
pub(crate) async fn render(
    answer: Answer<Value>,
    call: &Call,
    keep: Arc<dyn Keep>,
) -> Result<Reply, Fault> {
    if fits(&answer, call) {
        return Ok(whole(answer, call.rendering));
    }
    let handle = {
        let body = std::io::Cursor::new(answer.data.to_string());
        kept(call, keep, body).await?
    };
    in_part(&answer, call, &handle)
}

/// Keeps the JSON of a result.
pub(crate) async fn kept(
    call: &Call,
    keep: Arc<dyn Keep>,
    mut body: impl Read + Send + 'static,
) -> Result<Handle, Fault> {
    let permit = call.permit.clone();
    // The store waits for the disk.
    let kept = move || keep.keep(&permit, "application/json", &mut body);
    tokio::task::spawn_blocking(kept)
        .await
        .map_err(|error| Fault::new(Code::Internal, error.to_string()))
        .flatten()
        .map_err(|fault| not_kept(&fault))
}

/// The tool did what it was asked to; only its answer is lost. Whoever called must not think otherwise.
fn not_kept(fault: &Fault) -> Fault {
    let message = format!(
        "the call was done, but its result is too large to send and could not be kept: {fault}"
    );
    Fault::new(fault.code(), message)
        .with_hint("do not repeat a call that changes something; ask for less of its result")
}

/// Whether the whole answer fits, found out without writing it.
fn fits(answer: &Answer<Value>, call: &Call) -> bool {
    call.budget.allows_items(&answer.data)
        && answer.reply_bytes(call.rendering) <= call.budget.max_bytes
}

fn whole(answer: Answer<Value>, rendering: Rendering) -> Reply {
    let text = answer.text.unwrap_or_else(|| answer.data.to_string());
    Reply {
        content: blocks(text, &answer.links, rendering),
        structured_content: rendering.structured.then(|| written(&answer.data)),
        is_error: false,
        fault: None,
        relayed: None,
    }
}

pub(crate) fn blocks(text: String, links: &[Link], rendering: Rendering) -> Vec<Block> {
    let links = if rendering.links { links } else { &[] };
    let links = links.iter().cloned().map(Block::ResourceLink);
    std::iter::once(Block::Text { text }).chain(links).collect()
}

/// The reply to an answer that is kept under `handle`.
///
/// How the room is shared depends on the budget alone, never on how much of it one form happened to use:
/// so a larger budget shows no less in either form.
fn in_part(answer: &Answer<Value>, call: &Call, handle: &Handle) -> Result<Reply, Fault> {
    let link = Link {
        uri: handle.uri(),
        name: "the whole result".to_owned(),
        mime_type: "application/json".to_owned(),
    };
    // The tool's own links go along as long as they leave room for what they belong to.
    let mut links = vec![link];
    let mut link_bytes = 0;
    for link in &answer.links {
        link_bytes += json_bytes(link, Measure::Bare);
        if link_bytes > call.budget.max_bytes / 8 {
            break;
        }
        links.push(link.clone());
    }
    let mut reply = Reply {
        content: blocks(String::new(), &links, call.rendering),
        structured_content: call.rendering.structured.then(|| written(&json!({}))),
        is_error: false,
        fault: None,
        relayed: None,
    };
    let too_small = || too_small(call, handle);
    let room = call
        .budget
        .max_bytes
        .checked_sub(reply.bytes())
        .ok_or_else(too_small)?;
    let text_room = if call.rendering.structured {
        TEXT_BYTES.min(room / 4)
    } else {
        room
    };
    if call.rendering.structured {
        let budget = Budget {
            max_bytes: room - text_room,
            ..call.budget
        };
        let shown = cut(&answer.data, &Path::root(), handle, &budget, call.names);
        reply.structured_content = Some(written(&shown.ok_or_else(too_small)?));
    }
    let text = cut_text(answer, handle, text_room, call).ok_or_else(too_small)?;
    reply.content[0] = Block::Text { text };
    debug_assert!(reply.bytes() <= call.budget.max_bytes, "the rooms add up");
    Ok(reply)
}

/// The fault of a reply of which not even the way to its result fits.
pub(crate) fn too_small(call: &Call, handle: &Handle) -> Fault {
    let read = call.names.show(READ_TOOL);
    let hint = format!("the result is kept: read it with {read} {{\"handle\":\"{handle}\"}}");
    Fault::new(Code::BudgetTooSmall, "the reply does not fit its budget").with_hint(hint)
}

/// The data, which stands at `at` in what is kept, in at most `budget`, with a `meta` that says what was cut. `None` if not even that fits.
pub(crate) fn cut(
    data: &Value,
    at: &Path,
    handle: &Handle,
    budget: &Budget,
    names: Names,
) -> Option<Value> {
    let fitted = fit(data, at, &budget.less(META_BYTES)).ok()?;
    if fitted.cuts.is_empty() {
        return Some(fitted.value);
    }
    // Where nothing of it fits, the way to it still does.
    let mut value = match fitted.value {
        Value::Object(members) => Value::Object(members),
        _ => json!({}),
    };
    let members = value.as_object_mut()?;
    let meta = members.entry("meta").or_insert_with(|| json!({}));
    if !meta.is_object() {
        *meta = json!({});
    }
    let next = next_call(handle, &fitted.cuts);
    meta["truncated"] = true.into();
    meta["truncations"] = serde_json::to_value(&fitted.cuts).ok()?;
    meta["handle"] = handle.to_string().into();
    meta["next"] = json!({"tool": names.show(READ_TOOL), "arguments": next});
    Some(value)
}

/// What to call for what the most telling cut left out.
fn next_call(handle: &Handle, cuts: &[Cut]) -> Value {
    let mut arguments = json!({"handle": handle.to_string()});
    let telling = cuts.iter().find(|cut| !matches!(cut, Cut::Bytes { .. }));
    if let Some(cut) = telling {
        let next = cut.continuation();
        let path = next.path.to_string();
        if json_string_bytes(&path) <= NEXT_PATH_BYTES {
            arguments["path"] = path.into();
            if next.offset_chars > 0 {
                arguments["offset_chars"] = next.offset_chars.into();
            }
        }
    }
    arguments
}

/// The text block in at most `room` bytes of a JSON string: the next call first, since it must not be lost.
fn cut_text(answer: &Answer<Value>, handle: &Handle, room: usize, call: &Call) -> Option<String> {
    let read = call.names.show(READ_TOOL);
    let note = format!(
        "Result truncated. The whole is kept: read it with {read} {{\"handle\":\"{handle}\"}}, or a part of \
         it with a \"path\" as well.\n"
    );
    let room = room.checked_sub(json_string_bytes(&note) - 2)?;
    let shown = if let Some(text) = &answer.text {
        head(text, room).to_owned()
    } else {
        let budget = Budget {
            max_bytes: room,
            measure: Measure::Quoted,
            ..call.budget
        };
        // Where there is no room for a preview, the note says enough.
        cut(&answer.data, &Path::root(), handle, &budget, call.names)
            .map_or_else(String::new, |value| value.to_string())
    };
    Some(note + &shown)
}

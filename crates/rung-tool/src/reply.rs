//! The reply of a call, in the three forms that clients read: text, structured content, links.
//!
//! A text-only client reads the text block, a structured one `structuredContent`, a third follows resource
//! links. Each form alone must lead to the whole result, so if a result does not fit, each form says
//! what was cut and where the rest is. No other module builds these shapes.

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

use crate::names::NameStyle;
use crate::resource::ResourceContents;
use crate::source::Call;

/// The tool that reads stored results.
pub(crate) const READ_TOOL: &str = "rung.read";
/// Bytes of the text in a reply that was cut and has structured content, at most.
pub(crate) const TEXT_BYTES: usize = 8 << 10;
/// Bytes reserved in `meta` for everything but the records: handle, next call and their names.
const META_BYTES: usize = 512;
/// A longer path is left out of the next call, which then starts at the root.
const NEXT_PATH_BYTES: usize = 120;

/// The output of a tool.
#[derive(Debug, Clone)]
pub struct ToolOutput<T> {
    /// The structured content.
    pub data: T,
    /// The text block, if it is not the compact JSON of `data`.
    pub text: Option<String>,
    /// Resources with more data.
    pub links: Vec<ResourceLink>,
}

impl<T> From<T> for ToolOutput<T> {
    fn from(data: T) -> Self {
        Self {
            data,
            text: None,
            links: Vec::new(),
        }
    }
}

impl<T: Serialize> ToolOutput<T> {
    /// Returns the bytes of a reply that contains this whole output.
    pub fn reply_bytes(&self, rendering: Rendering) -> usize {
        let around = Reply {
            content: content_blocks(String::new(), &self.links, rendering),
            structured_content: rendering.structured.then(|| to_raw_json(&json!({}))),
            is_error: false,
            fault: None,
            relayed: None,
        };
        let text_bytes = match &self.text {
            Some(text) => json_string_bytes(text) - 2,
            None => json_bytes(&self.data, Measure::Quoted),
        };
        // Replaces the two bytes of the empty object.
        let data_bytes = if rendering.structured {
            json_bytes(&self.data, Measure::Bare) - 2
        } else {
            0
        };
        around.bytes() + text_bytes + data_bytes
    }
}

/// A link to a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResourceLink {
    /// The URI.
    pub uri: String,
    /// The name to show.
    pub name: String,
    /// The media type.
    #[serde(rename = "mimeType")]
    pub mime_type: String,
}

/// The forms that a caller can read. Text is always sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rendering {
    /// True if `structuredContent` is sent.
    pub structured: bool,
    /// True if resource links are sent.
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

/// A content block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// Text for the model.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    #[serde(rename_all = "camelCase")]
    Image {
        /// The bytes in base64.
        data: String,
        /// The media type.
        mime_type: String,
    },
    /// Audio.
    #[serde(rename_all = "camelCase")]
    Audio {
        /// The bytes in base64.
        data: String,
        /// The media type.
        mime_type: String,
    },
    /// A link to a resource.
    ResourceLink(ResourceLink),
    /// An embedded resource.
    Resource {
        /// The contents of the resource.
        resource: ResourceContents,
    },
}

/// A reply, ready to be sent. It serialises to the result of a tool call.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The content blocks.
    pub content: Vec<ContentBlock>,
    /// The structured content, serialised once: measuring and sending it does not serialise it again.
    pub structured_content: Option<Box<RawValue>>,
    /// True if the call failed.
    pub is_error: bool,
    /// The fault of a failed call, for callers within this process.
    pub fault: Option<Fault>,
    /// The whole result as another server sent it, passed on byte for byte. If set, `content` and `structured_content` are empty.
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

/// Serialises a value for a reply.
pub fn to_raw_json(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("what a tool gives is JSON")
}

/// Stores results that are too large for a reply.
pub trait ResultSink: Send + Sync + 'static {
    /// Stores `body` for the bearer of `permit`, in constant memory. When this returns, the result can
    /// be read under the handle.
    fn store(
        &self,
        permit: &Permit,
        content_type: &str,
        body: &mut dyn Read,
    ) -> Result<Handle, Fault>;
}

impl Reply {
    /// Returns the text of the first block, or an empty string.
    pub fn text(&self) -> &str {
        match self.content.first() {
            Some(ContentBlock::Text { text }) => text,
            _ => "",
        }
    }

    /// Creates a reply of one text block.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self::from_blocks(vec![ContentBlock::Text { text: text.into() }])
    }

    /// Creates a reply of content blocks.
    pub fn from_blocks(content: Vec<ContentBlock>) -> Self {
        Self {
            content,
            structured_content: None,
            is_error: false,
            fault: None,
            relayed: None,
        }
    }

    /// Creates the reply for a tool's output: the whole output if it fits, else as much as fits and the call that reads the rest.
    pub async fn from_output(
        answer: ToolOutput<Value>,
        call: &Call,
        keep: Arc<dyn ResultSink>,
    ) -> Result<Self, Fault> {
        render(answer, call, keep).await
    }

    /// Creates the reply of a failed call.
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
            content: vec![ContentBlock::Text { text }],
            structured_content: call.rendering.structured.then(|| to_raw_json(&body)),
            is_error: true,
            fault: Some(fault.clone()),
            relayed: None,
        };
        // If even that is too large, only the text is sent.
        if reply.bytes() > call.budget.max_bytes {
            reply.structured_content = None;
            let room = call
                .budget
                .max_bytes
                .saturating_sub(reply.bytes_without_text());
            let text = head(reply.text(), room).to_owned();
            reply.content = vec![ContentBlock::Text { text }];
        }
        reply
    }

    /// Returns the bytes of the serialised reply.
    ///
    /// Computed without serialising, since a reply is measured more often than it is sent.
    pub fn bytes(&self) -> usize {
        if let Some(relayed) = &self.relayed {
            return relayed.get().len();
        }
        let block = |block: &ContentBlock| match block {
            ContentBlock::Text { text } => {
                r#"{"type":"text","text":}"#.len() + json_string_bytes(text)
            }
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

/// Creates the reply for a tool's output: the whole output if it fits, else as much as fits and the call that reads the rest.
pub(crate) async fn render(
    answer: ToolOutput<Value>,
    call: &Call,
    keep: Arc<dyn ResultSink>,
) -> Result<Reply, Fault> {
    if fits(&answer, call) {
        return Ok(whole_reply(answer, call.rendering));
    }
    let handle = {
        let body = std::io::Cursor::new(answer.data.to_string());
        store_result(call, keep, body).await?
    };
    cut_reply(&answer, call, &handle)
}

/// Stores the JSON of a result.
pub(crate) async fn store_result(
    call: &Call,
    keep: Arc<dyn ResultSink>,
    mut body: impl Read + Send + 'static,
) -> Result<Handle, Fault> {
    let permit = call.permit.clone();
    // The store blocks on the disk.
    let kept = move || keep.store(&permit, "application/json", &mut body);
    tokio::task::spawn_blocking(kept)
        .await
        .map_err(|error| Fault::new(Code::Internal, error.to_string()))
        .flatten()
        .map_err(|fault| storage_fault(&fault))
}

/// Returns the fault for a result that could not be stored. The call itself was done, and the client must not repeat it.
fn storage_fault(fault: &Fault) -> Fault {
    let message = format!(
        "the call succeeded, but its result is too large to send and could not be stored: {fault}"
    );
    Fault::new(fault.code(), message)
        .with_hint("do not repeat a call that changes something; request less of its result")
}

/// Returns true if the whole output fits, without serialising it.
fn fits(answer: &ToolOutput<Value>, call: &Call) -> bool {
    call.budget.allows_items(&answer.data)
        && answer.reply_bytes(call.rendering) <= call.budget.max_bytes
}

fn whole_reply(answer: ToolOutput<Value>, rendering: Rendering) -> Reply {
    let text = answer.text.unwrap_or_else(|| answer.data.to_string());
    Reply {
        content: content_blocks(text, &answer.links, rendering),
        structured_content: rendering.structured.then(|| to_raw_json(&answer.data)),
        is_error: false,
        fault: None,
        relayed: None,
    }
}

pub(crate) fn content_blocks(
    text: String,
    links: &[ResourceLink],
    rendering: Rendering,
) -> Vec<ContentBlock> {
    let links = if rendering.links { links } else { &[] };
    let links = links.iter().cloned().map(ContentBlock::ResourceLink);
    std::iter::once(ContentBlock::Text { text })
        .chain(links)
        .collect()
}

/// Creates the reply for an output that is stored under `handle`.
///
/// The split of the space depends on the budget alone, never on how much of it one form used:
/// so a larger budget shows no less in either form.
fn cut_reply(answer: &ToolOutput<Value>, call: &Call, handle: &Handle) -> Result<Reply, Fault> {
    let link = ResourceLink {
        uri: handle.uri(),
        name: "the whole result".to_owned(),
        mime_type: "application/json".to_owned(),
    };
    // The tool's own links are included as long as they leave space for the output itself.
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
        content: content_blocks(String::new(), &links, call.rendering),
        structured_content: call.rendering.structured.then(|| to_raw_json(&json!({}))),
        is_error: false,
        fault: None,
        relayed: None,
    };
    let too_small = || budget_too_small(call, handle);
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
        let shown = cut_to_budget(
            &answer.data,
            &Path::root(),
            handle,
            &budget,
            call.name_style,
        );
        reply.structured_content = Some(to_raw_json(&shown.ok_or_else(too_small)?));
    }
    let text = cut_text(answer, handle, text_room, call).ok_or_else(too_small)?;
    reply.content[0] = ContentBlock::Text { text };
    debug_assert!(reply.bytes() <= call.budget.max_bytes, "the rooms add up");
    Ok(reply)
}

/// Returns the fault for a budget that does not even hold the call that reads the result.
pub(crate) fn budget_too_small(call: &Call, handle: &Handle) -> Fault {
    let read = call.name_style.apply(READ_TOOL);
    let hint = format!("the result is stored: read it with {read} {{\"handle\":\"{handle}\"}}");
    Fault::new(Code::BudgetTooSmall, "the reply does not fit its budget").with_hint(hint)
}

/// Cuts the data to `budget` and adds a `meta` that lists the cuts. `at` is the path of the data in the stored result.
/// `None` if not even `meta` fits.
pub(crate) fn cut_to_budget(
    data: &Value,
    at: &Path,
    handle: &Handle,
    budget: &Budget,
    names: NameStyle,
) -> Option<Value> {
    let fitted = fit(data, at, &budget.less(META_BYTES)).ok()?;
    if fitted.cuts.is_empty() {
        return Some(fitted.value);
    }
    // If nothing of the value fits, `meta` still does.
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
    meta["next"] = json!({"tool": names.apply(READ_TOOL), "arguments": next});
    Some(value)
}

/// Returns the arguments of the call that reads what the first specific cut left out.
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

/// Returns the text block in at most `room` bytes of a JSON string. The next call comes first, since it must not be lost.
fn cut_text(
    answer: &ToolOutput<Value>,
    handle: &Handle,
    room: usize,
    call: &Call,
) -> Option<String> {
    let read = call.name_style.apply(READ_TOOL);
    let note = format!(
        "Result truncated. The whole result is stored: read it with {read} {{\"handle\":\"{handle}\"}}; add a \"path\" to \
         read one part.\n"
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
        // If there is no space for a preview, the note is enough.
        cut_to_budget(
            &answer.data,
            &Path::root(),
            handle,
            &budget,
            call.name_style,
        )
        .map_or_else(String::new, |value| value.to_string())
    };
    Some(note + &shown)
}

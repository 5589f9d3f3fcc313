//! A result that another server gave, on its way through.
//!
//! What fits goes on as it came, byte for byte. What does not is kept whole, and the caller is shown as much of it as
//! fits, in the forms its kind of client reads, with the way to the rest.

use std::io::Read;
use std::sync::Arc;

use rung_fault::Fault;
use rung_ladder::{Budget, Handle, Path, head, json_string_bytes};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::reply::{
    Block, Keep, Link, READ_TOOL, Reply, TEXT_BYTES, blocks, cut, kept, too_small, written,
};
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
    /// Bytes of its JSON.
    pub bytes: u64,
    /// Whether it says that the call failed.
    pub is_error: bool,
    /// How its JSON begins.
    pub head: String,
    /// Its JSON.
    pub body: Box<dyn Read + Send>,
}

impl Reply {
    /// The reply that passes a result on.
    pub async fn relay(given: Given, call: &Call, keep: Arc<dyn Keep>) -> Result<Self, Fault> {
        match given {
            Given::Here(raw) if raw.get().len() <= call.budget.max_bytes => Ok(Self {
                is_error: is_error(&raw),
                relayed: Some(raw),
                ..Self::of_blocks(Vec::new())
            }),
            Given::Here(raw) => {
                let result: Value = serde_json::from_str(raw.get()).unwrap_or_default();
                let is_error = is_error(&raw);
                let body = std::io::Cursor::new(Box::<str>::from(raw).into_boxed_bytes());
                let handle = kept(call, keep, body).await?;
                in_part(&Preview::of(&result, is_error), call, &handle)
            }
            Given::Long(long) => {
                let handle = kept(call, keep, long.body).await?;
                let preview = Preview {
                    text: format!(
                        "{} bytes of JSON, beginning with\n{}",
                        long.bytes, long.head
                    ),
                    path: None,
                    structured: None,
                    is_error: long.is_error,
                };
                in_part(&preview, call, &handle)
            }
        }
    }
}

impl Reply {
    /// As much as fits of a result that is kept under `handle`.
    pub fn preview(result: &RawValue, handle: &Handle, call: &Call) -> Result<Self, Fault> {
        let is_error = is_error(result);
        let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
        in_part(&Preview::of(&result, is_error), call, handle)
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
    text: String,
    /// Where the text stands in what is kept.
    path: Option<String>,
    structured: Option<&'r Value>,
    is_error: bool,
}

impl<'r> Preview<'r> {
    fn of(result: &'r Value, is_error: bool) -> Self {
        let content = result["content"].as_array().map_or(&[][..], Vec::as_slice);
        let texts = content.iter().enumerate();
        let mut texts = texts.filter_map(|(at, block)| Some((at, block["text"].as_str()?)));
        let first = texts.next();
        let rest = texts.map(|(_, text)| format!("\n{text}"));
        let mut text = first.map_or("", |(_, text)| text).to_owned();
        text.extend(rest);
        Self {
            text,
            path: first.map(|(at, _)| format!("content[{at}].text")),
            structured: Some(&result["structuredContent"]).filter(|value| value.is_object()),
            is_error,
        }
    }
}

fn in_part(preview: &Preview<'_>, call: &Call, handle: &Handle) -> Result<Reply, Fault> {
    let link = Link {
        uri: handle.uri(),
        name: "the whole result".to_owned(),
        mime_type: "application/json".to_owned(),
    };
    // Before anything is measured: that it failed takes room, too.
    let mut reply = Reply {
        is_error: preview.is_error,
        structured_content: call.rendering.structured.then(|| written(&json!({}))),
        ..Reply::of_blocks(blocks(String::new(), &[link], call.rendering))
    };
    let read = call.names.show(READ_TOOL);
    let too_small = || too_small(call, handle);
    let room = call
        .budget
        .max_bytes
        .checked_sub(reply.bytes())
        .ok_or_else(too_small)?;
    let mut text_room = room;
    if call.rendering.structured {
        let structured = if let Some(structured) = preview.structured {
            text_room = TEXT_BYTES.min(room / 4);
            let at: Path = "structuredContent".parse().map_err(|_| too_small())?;
            let budget = Budget {
                max_bytes: room - text_room,
                ..call.budget
            };
            cut(structured, &at, handle, &budget, call.names).ok_or_else(too_small)?
        } else {
            let mut arguments = json!({"handle": handle.to_string()});
            if let Some(path) = &preview.path {
                arguments["path"] = path.as_str().into();
            }
            let next = json!({"tool": read, "arguments": arguments});
            let meta = json!({"truncated": true, "handle": handle.to_string(), "next": next});
            let value = json!({"meta": meta});
            text_room = room
                .checked_sub(value.to_string().len())
                .ok_or_else(too_small)?;
            value
        };
        reply.structured_content = Some(written(&structured));
    }
    let path = preview.path.as_deref().unwrap_or("content[0].text");
    let note = format!(
        "Result truncated. The whole is kept: read it with {read} {{\"handle\":\"{handle}\"}}, or a part of it with a \
         \"path\" as well, such as {path:?}.\n"
    );
    let text_room = text_room
        .checked_sub(json_string_bytes(&note))
        .ok_or_else(too_small)?;
    let text = note + head(&preview.text, text_room);
    reply.content[0] = Block::Text { text };
    debug_assert!(reply.bytes() <= call.budget.max_bytes, "the rooms add up");
    Ok(reply)
}

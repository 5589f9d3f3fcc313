//! From what a tool has to say to its reply, within the limits of each form.
//!
//! A form that fits is whole and not marked. A form that does not fit is cut, says so, and names the call that reads the rest of
//! the result, which is stored.

use std::io::{Cursor, Read};
use std::sync::Arc;

use rung_fault::{Code, Face, Fault};
use rung_ladder::limits::ERROR_BYTES;
use rung_ladder::{Budget, Cut, Handle, Measure, Path, fit, head, json_bytes, json_string_bytes};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::form::FormLimit;
use crate::names::NameStyle;
use crate::reply::{
    ContentBlock, Rendering, Reply, ResourceLink, ResultSink, ToolOutput, content_blocks,
    to_raw_json,
};
use crate::source::Call;

/// The tool that reads stored results.
pub(crate) const READ_TOOL: &str = "rung.read";
/// Bytes reserved in `meta` for everything but the records: handle, next call and their names.
const META_BYTES: usize = 512;
/// A longer path is left out of the next call, which then starts at the root.
const NEXT_PATH_BYTES: usize = 120;
/// Lengths of an error's message that are tried one after the other.
const MESSAGE_BYTES: [usize; 4] = [ERROR_BYTES, ERROR_BYTES / 4, ERROR_BYTES / 16, 64];

impl Reply {
    /// The largest size of a form that holds nothing but the handle of a stored result. It is sent even where the limit is lower.
    pub const MIN_BYTES: usize = 256;

    /// Creates the reply of a failed call. If an error does not fit, the end of its message is left out, then its details.
    pub fn failed(fault: &Fault, face: Face, call: &Call) -> Self {
        let limit = call.form_limit();
        let bare = fault.clone().without_details();
        for fault in [fault, &bare] {
            for bytes in MESSAGE_BYTES {
                let (content, structured) = error_forms(fault, face, call, bytes);
                if fits(&content, limit) && structured.as_ref().is_none_or(|it| fits(it, limit)) {
                    let structured = structured.and_then(|it| it.structured_content);
                    return Self {
                        structured_content: structured,
                        fault: Some(fault.clone()),
                        ..content
                    };
                }
            }
        }
        // Not even the code and the hint fit: the text begins with both.
        let (content, _) = error_forms(&bare, face, call, 0);
        let text = head(content.text(), limit.max_bytes.min(limit.max_tokens)).to_owned();
        Self {
            is_error: true,
            fault: Some(bare),
            ..Self::from_text(text)
        }
    }
}

/// Returns an error as content and as structured content, with at most so many bytes of its message.
fn error_forms(
    fault: &Fault,
    face: Face,
    call: &Call,
    message_bytes: usize,
) -> (Reply, Option<Reply>) {
    let shortened;
    let fault = if fault.message().len() > message_bytes {
        let message = format!("{}…", head(fault.message(), message_bytes));
        shortened = fault.clone().with_message(message);
        &shortened
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
    let content = Reply {
        is_error: true,
        ..Reply::from_text(text)
    };
    let structured = call.rendering.structured.then(|| Reply {
        is_error: true,
        ..structured_form(to_raw_json(&body))
    });
    (content, structured)
}

/// Creates the reply for a tool's output.
pub(crate) async fn render(
    output: ToolOutput<Value>,
    rendering: Rendering,
    call: &Call,
    sink: Arc<dyn ResultSink>,
) -> Result<Reply, Fault> {
    let limit = call.form_limit();
    let data = to_raw_json(&output.data);
    let allows_items = call.budget.allows_items(&output.data);
    let text = output.text.clone();
    let text = text.unwrap_or_else(|| data.get().to_owned());
    let blocks = content_blocks(text, &output.links, rendering);
    let mut content = Reply::from_blocks(blocks);
    let content_is_whole = (allows_items || output.text.is_some()) && fits(&content, limit);
    let mut structured = rendering.structured.then(|| structured_form(data.clone()));
    let structured_is_whole = structured
        .as_ref()
        .is_none_or(|it| allows_items && fits(it, limit));
    if !content_is_whole || !structured_is_whole {
        let body = Cursor::new(Box::<str>::from(data).into_boxed_bytes());
        let handle = store_result(call, sink, body).await?;
        if !content_is_whole {
            content = cut_content(&output, call, &handle, limit);
        }
        if !structured_is_whole {
            structured = Some(cut_structured(&output.data, call, &handle, limit));
        }
    }
    content.structured_content = structured.and_then(|it| it.structured_content);
    Ok(content)
}

/// Returns a reply that has structured content alone.
fn structured_form(structured: Box<RawValue>) -> Reply {
    Reply {
        structured_content: Some(structured),
        ..Reply::from_blocks(Vec::new())
    }
}

/// Returns true if a reply of one form is within the limit of a form.
fn fits(form: &Reply, limit: FormLimit) -> bool {
    let bytes = form.bytes();
    bytes <= limit.max_bytes && (bytes <= limit.max_tokens || limit.allows(bytes, &form_json(form)))
}

fn form_json(form: &Reply) -> String {
    to_raw_json(form).get().to_owned()
}

/// Stores the JSON of a result that does not fit.
pub async fn store_result(
    call: &Call,
    sink: Arc<dyn ResultSink>,
    mut body: impl Read + Send + 'static,
) -> Result<Handle, Fault> {
    let permit = call.permit.clone();
    // The store blocks on the disk.
    let store = move || sink.store(&permit, "application/json", &mut body);
    tokio::task::spawn_blocking(store)
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

/// Returns the content of an output that is stored under `handle`: as much as fits, and links to the rest.
fn cut_content(
    output: &ToolOutput<Value>,
    call: &Call,
    handle: &Handle,
    limit: FormLimit,
) -> Reply {
    // The tool's own links are included as long as they leave space for the output itself.
    let mut links = vec![whole_result_link(handle)];
    let mut link_bytes = 0;
    for link in &output.links {
        link_bytes += json_bytes(link, Measure::Bare);
        if link_bytes > limit.max_bytes / 8 {
            break;
        }
        links.push(link.clone());
    }
    let render = |max_bytes: usize| {
        let mut content = Reply::from_blocks(content_blocks(String::new(), &links, call.rendering));
        let room = max_bytes.checked_sub(content.bytes())?;
        let text = cut_text(output, handle, room, call)?;
        content.content[0] = ContentBlock::Text { text };
        debug_assert!(content.bytes() <= max_bytes, "the text fits its room");
        Some(content)
    };
    let fitting = limit.fit(render, form_json);
    fitting.unwrap_or_else(|| Reply::from_blocks(vec![handle_block(handle, call)]))
}

/// Returns the structured content of data that is stored under `handle`: as much as fits, and the call that reads the rest.
fn cut_structured(data: &Value, call: &Call, handle: &Handle, limit: FormLimit) -> Reply {
    let frame = structured_form(to_raw_json(&json!({}))).bytes();
    let render = |max_bytes: usize| {
        let budget = Budget {
            max_bytes: max_bytes.checked_sub(frame)?,
            ..call.budget
        };
        let shown = cut_to_budget(data, &Path::root(), handle, &budget, call.name_style)?;
        Some(structured_form(to_raw_json(&shown)))
    };
    let fitting = limit.fit(render, form_json);
    fitting.unwrap_or_else(|| structured_form(to_raw_json(&handle_meta(handle))))
}

/// Returns the block that names the call for a stored result, and nothing else.
pub(crate) fn handle_block(handle: &Handle, call: &Call) -> ContentBlock {
    let read = call.name_style.apply(READ_TOOL);
    let text = format!("{read} {{\"handle\":\"{handle}\"}}");
    ContentBlock::Text { text }
}

/// Returns structured content with the handle of a stored result, and nothing else.
pub(crate) fn handle_meta(handle: &Handle) -> Value {
    json!({"meta": {"truncated": true, "handle": handle.to_string()}})
}

pub(crate) fn whole_result_link(handle: &Handle) -> ResourceLink {
    ResourceLink {
        uri: handle.uri(),
        name: "the whole result".to_owned(),
        mime_type: "application/json".to_owned(),
    }
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
    let next = read_arguments(handle, &fitted.cuts);
    meta["truncated"] = true.into();
    meta["truncations"] = serde_json::to_value(&fitted.cuts).ok()?;
    meta["handle"] = handle.to_string().into();
    meta["next"] = json!({"tool": names.apply(READ_TOOL), "arguments": next});
    Some(value)
}

/// Returns the arguments of the call of `rung.read` that reads what the first specific cut left out.
pub(crate) fn read_arguments(handle: &Handle, cuts: &[Cut]) -> Value {
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
    output: &ToolOutput<Value>,
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
    let shown = if let Some(text) = &output.text {
        head(text, room).to_owned()
    } else {
        let budget = Budget {
            max_bytes: room,
            measure: Measure::Quoted,
            ..call.budget
        };
        // If there is no space for a preview, the note is enough.
        cut_to_budget(
            &output.data,
            &Path::root(),
            handle,
            &budget,
            call.name_style,
        )
        .map_or_else(String::new, |value| value.to_string())
    };
    Some(note + &shown)
}

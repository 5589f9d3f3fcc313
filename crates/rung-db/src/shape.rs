//! What goes out: the envelope that callers of these tools know, with a record of what was left out and the way to it.

use std::fmt::Write as _;
use std::sync::Arc;

use rung_fault::Fault;
use rung_ladder::{Handle, Measure, Path, Segment, json_bytes};
use rung_tool::{Block, Call, Keep, Link, Reply, written};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::page::Page;
use crate::taker::Made;
use crate::tools::Limits;

/// Characters of a text, elements of a list and members of a map in a preview.
const PREVIEW: (usize, usize, usize) = (1_024, 5, 20);
/// Set aside for everything around a result.
const AROUND_BYTES: usize = 2_048;

/// What a tool gives.
pub(crate) enum Outcome {
    /// Something that is sent whole, or kept whole and shown in part.
    Whole(Map<String, Value>),
    /// A list, of which the first items are here.
    List {
        /// What stands beside it.
        head: Map<String, Value>,
        page: Page<Made, Handle>,
    },
    /// A report of something that was done, with a list in it that may be long.
    Report {
        /// What stands beside it.
        head: Map<String, Value>,
        result: Map<String, Value>,
        /// The name of the list.
        list: &'static str,
    },
}

/// Makes the reply to a call.
pub(crate) fn reply(
    outcome: Outcome,
    call: &Call,
    limits: Limits,
    keep: &Arc<dyn Keep>,
) -> Result<Reply, Fault> {
    match outcome {
        Outcome::Whole(payload) => Ok(whole(payload, call, limits, keep)),
        Outcome::List { head, page } => list(&head, &page, call, limits),
        Outcome::Report { head, result, list } => {
            Ok(report(head, result, list, call, limits, keep))
        }
    }
}

fn max_bytes(call: &Call, limits: Limits) -> usize {
    call.budget.max_bytes.min(limits.max_bytes)
}

/// A reply with its text and what programs read.
fn of(payload: Box<RawValue>, text: String, links: Vec<Link>, call: &Call) -> Reply {
    let mut content = vec![Block::Text { text }];
    if call.rendering.links {
        content.extend(links.into_iter().map(Block::ResourceLink));
    }
    Reply {
        structured_content: call.rendering.structured.then_some(payload),
        ..Reply::of_blocks(content)
    }
}

fn link(handle: &Handle) -> Vec<Link> {
    vec![Link {
        uri: handle.uri(),
        name: "the whole result".to_owned(),
        mime_type: "application/json".to_owned(),
    }]
}

/// The reply that gives all of a payload: twice where there is room, else once.
fn all(payload: Box<RawValue>, call: &Call, limits: Limits) -> Reply {
    let text = payload.get().to_owned();
    let reply = of(payload.clone(), text, Vec::new(), call);
    if !call.rendering.structured || reply.bytes() + AROUND_BYTES / 8 <= max_bytes(call, limits) {
        return reply;
    }
    of(
        payload,
        "See structuredContent.".to_owned(),
        Vec::new(),
        call,
    )
}

/// What was left out, in words and as data.
fn meta(truncations: &[Value], handle: &Handle, path: &str, call: &Call) -> Value {
    let mut arguments = json!({"handle": handle.to_string()});
    if !path.is_empty() {
        arguments["path"] = path.into();
    }
    json!({
        "truncated": true,
        "truncations": truncations,
        "handle": handle.to_string(),
        "next": {"tool": call.names.show("rung.read"), "arguments": arguments},
    })
}

fn list(
    head: &Map<String, Value>,
    page: &Page<Made, Handle>,
    call: &Call,
    limits: Limits,
) -> Result<Reply, Fault> {
    let is_set = matches!(page.value, Made::Set);
    let Some(handle) = &page.kept else {
        let payload = with_items(head, &page.items, is_set, None)?;
        return Ok(all(payload, call, limits));
    };
    let returned = page.items.len();
    let mut truncations = vec![json!({
        "kind": "items", "path": "result", "limit": limits.max_items, "returned": returned, "original": page.total,
    })];
    if returned < limits.max_items {
        truncations.push(json!({
            "kind": "bytes", "path": "result", "limit": max_bytes(call, limits), "mode": "preview",
        }));
    }
    let rest = format!("[{returned}:]");
    let meta = |next: &str| meta(&truncations, handle, next, call);
    // Who is shown texts alone has not seen the items that stand beside this one.
    let begin = if call.rendering.structured {
        "[0:]"
    } else {
        &rest
    };
    let mut text = json!({"summary": "Result truncated.", "meta": meta(begin)}).to_string();
    if !call.rendering.structured {
        let _infallible = write!(text, "\n[{}]", page.items.join(","));
    }
    let meta = meta(&rest);
    let payload = with_items(head, &page.items, is_set, Some(&meta))?;
    Ok(of(payload, text, link(handle), call))
}

/// A payload with a list of items as they are written.
fn with_items(
    head: &Map<String, Value>,
    items: &[String],
    is_set: bool,
    meta: Option<&Value>,
) -> Result<Box<RawValue>, Fault> {
    let mut text = String::from("{");
    for (name, value) in head {
        let _infallible = write!(text, "{}:{value},", json!(name));
    }
    text.push_str("\"result\":");
    text.push_str(if is_set { "{\"~set\":[" } else { "[" });
    text.push_str(&items.join(","));
    text.push_str(if is_set { "]}" } else { "]" });
    if let Some(meta) = meta {
        let _infallible = write!(text, ",\"meta\":{meta}");
    }
    text.push('}');
    RawValue::from_string(text)
        .map_err(|error| Fault::new(rung_fault::Code::Internal, error.to_string()))
}

/// A report. Its list is shown in part where it is long, and all of the report kept.
fn report(
    mut head: Map<String, Value>,
    mut result: Map<String, Value>,
    list: &str,
    call: &Call,
    limits: Limits,
    keep: &Arc<dyn Keep>,
) -> Reply {
    let original = result[list].as_array().map_or(0, Vec::len);
    if original <= limits.max_items {
        head.insert("result".to_owned(), result.into());
        return whole(head, call, limits, keep);
    }
    let mut body = std::io::Cursor::new(Value::from(result.clone()).to_string());
    // What was done is done, also where its report cannot be kept.
    let handle = keep.keep(&call.permit, "application/json", &mut body).ok();
    let most = max_bytes(call, limits).saturating_sub(AROUND_BYTES);
    let mut returned = limits.max_items;
    loop {
        if let Some(items) = result[list].as_array_mut() {
            items.truncate(returned);
        }
        if returned == 0 || json_bytes(&result, Measure::Bare) <= most {
            break;
        }
        returned /= 2;
    }
    let path = format!("result.{list}");
    let mut cuts = vec![json!({
        "kind": "items", "path": path, "limit": limits.max_items, "returned": returned, "original": original,
    })];
    let mut next = Path::root()
        .then(Segment::from(list))
        .then(Segment::Slice(returned as u64, None));
    let mut shown = Value::from(result);
    if json_bytes(&shown, Measure::Bare) > most {
        (shown, next) = (Value::Null, Path::root());
        cuts.push(json!({"kind": "bytes", "path": "result", "limit": limits.max_bytes, "mode": "omitted"}));
    }
    let meta = match &handle {
        Some(handle) => meta(&cuts, handle, &next.to_string(), call),
        None => json!({"truncated": true, "truncations": cuts}),
    };
    let mut text = json!({"summary": "Done. Its report is truncated.", "meta": &meta}).to_string();
    if !call.rendering.structured {
        let _infallible = write!(text, "\n{shown}");
    }
    head.insert("result".to_owned(), shown);
    head.insert("meta".to_owned(), meta);
    let links = handle.as_ref().map(link).unwrap_or_default();
    of(written(&head), text, links, call)
}

fn whole(
    mut payload: Map<String, Value>,
    call: &Call,
    limits: Limits,
    keep: &Arc<dyn Keep>,
) -> Reply {
    let most = max_bytes(call, limits).saturating_sub(AROUND_BYTES);
    if json_bytes(&payload, Measure::Bare) <= most {
        return all(written(&payload), call, limits);
    }
    let result = payload.remove("result").unwrap_or(Value::Null);
    let mut body = std::io::Cursor::new(result.to_string());
    // What was done is done, also where its report cannot be kept.
    let handle = keep.keep(&call.permit, "application/json", &mut body).ok();
    let record = |mode: &str| json!({"kind": "bytes", "path": "result", "limit": limits.max_bytes, "mode": mode});
    let mut preview = preview(&result);
    let mut mode = "preview";
    if json_bytes(&preview, Measure::Bare) > most / 2 {
        (preview, mode) = (Value::Null, "omitted");
    }
    let meta = match &handle {
        Some(handle) => meta(&[record(mode)], handle, "", call),
        None => json!({"truncated": true, "truncations": [record(mode)]}),
    };
    let mut text = json!({"summary": "Result truncated.", "meta": &meta}).to_string();
    if !call.rendering.structured {
        let _infallible = write!(text, "\n{preview}");
    }
    payload.insert("result".to_owned(), preview);
    payload.insert("meta".to_owned(), meta);
    let links = handle.as_ref().map(link).unwrap_or_default();
    of(written(&payload), text, links, call)
}

/// A value in part: its texts, lists and maps as far as a preview goes, one level deep.
fn preview(value: &Value) -> Value {
    let (chars, items, members) = PREVIEW;
    match value {
        Value::String(text) => match text.char_indices().nth(chars) {
            Some((end, _)) => format!("{}...", &text[..end]).into(),
            None => value.clone(),
        },
        Value::Array(all) => all.iter().take(items).cloned().collect(),
        Value::Object(all) => {
            let some = all.iter().take(members);
            Value::Object(
                some.map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

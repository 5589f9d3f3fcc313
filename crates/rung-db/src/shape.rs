//! Replies: the envelope that Datalevin clients expect, with a record of what was cut and how to continue.

use std::fmt::Write as _;
use std::sync::Arc;

use rung_fault::Fault;
use rung_ladder::{Handle, Measure, Path, Segment, json_bytes};
use rung_tool::{Call, ContentBlock, Reply, ResourceLink, ResultSink, to_raw_json};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::page::Page;
use crate::taker::Made;
use crate::tools::ResultLimits;

/// Preview limits: characters of a text, elements of a list, members of a map.
const PREVIEW: (usize, usize, usize) = (1_024, 5, 20);
/// Bytes reserved for everything around a result.
const AROUND_BYTES: usize = 2_048;

/// The result of a tool.
pub(crate) enum Outcome {
    /// A value sent whole, or stored whole and previewed.
    Whole(Map<String, Value>),
    /// A list with its first page.
    List {
        /// The envelope.
        head: Map<String, Value>,
        page: Page<Made, Handle>,
    },
    /// A report of a change, with a list that may be long.
    Report {
        /// The envelope.
        head: Map<String, Value>,
        result: Map<String, Value>,
        list: &'static str,
    },
}

/// Builds the reply to a call.
pub(crate) fn reply(
    outcome: Outcome,
    call: &Call,
    limits: ResultLimits,
    keep: &Arc<dyn ResultSink>,
) -> Result<Reply, Fault> {
    match outcome {
        Outcome::Whole(payload) => Ok(whole(payload, call, limits, keep)),
        Outcome::List { head, page } => list(&head, &page, call, limits),
        Outcome::Report { head, result, list } => {
            Ok(report(head, result, list, call, limits, keep))
        }
    }
}

fn max_bytes(call: &Call, limits: ResultLimits) -> usize {
    call.budget.max_bytes.min(limits.max_bytes)
}

/// Builds a reply with text and structured content.
fn of(payload: Box<RawValue>, text: String, links: Vec<ResourceLink>, call: &Call) -> Reply {
    let mut content = vec![ContentBlock::Text { text }];
    if call.rendering.links {
        content.extend(links.into_iter().map(ContentBlock::ResourceLink));
    }
    Reply {
        structured_content: call.rendering.structured.then_some(payload),
        ..Reply::from_blocks(content)
    }
}

fn link(handle: &Handle) -> Vec<ResourceLink> {
    vec![ResourceLink {
        uri: handle.uri(),
        name: "the whole result".to_owned(),
        mime_type: "application/json".to_owned(),
    }]
}

/// Builds the reply for a whole payload: as text and structured content if both fit, else only structured.
fn all(payload: Box<RawValue>, call: &Call, limits: ResultLimits) -> Reply {
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

/// Returns the truncation record and the continuation.
fn meta(truncations: &[Value], handle: &Handle, path: &str, call: &Call) -> Value {
    let mut arguments = json!({"handle": handle.to_string()});
    if !path.is_empty() {
        arguments["path"] = path.into();
    }
    json!({
        "truncated": true,
        "truncations": truncations,
        "handle": handle.to_string(),
        "next": {"tool": call.name_style.apply("rung.read"), "arguments": arguments},
    })
}

fn list(
    head: &Map<String, Value>,
    page: &Page<Made, Handle>,
    call: &Call,
    limits: ResultLimits,
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
    // A client that shows only text has not seen the items in the structured content.
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

/// Builds a payload with serialized items.
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

/// Builds the reply for a report: a long list is cut, and the whole report stored.
fn report(
    mut head: Map<String, Value>,
    mut result: Map<String, Value>,
    list: &str,
    call: &Call,
    limits: ResultLimits,
    keep: &Arc<dyn ResultSink>,
) -> Reply {
    let original = result[list].as_array().map_or(0, Vec::len);
    if original <= limits.max_items {
        head.insert("result".to_owned(), result.into());
        return whole(head, call, limits, keep);
    }
    let mut body = std::io::Cursor::new(Value::from(result.clone()).to_string());
    // The change is committed, even if its report cannot be stored.
    let handle = keep.store(&call.permit, "application/json", &mut body).ok();
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
    of(to_raw_json(&head), text, links, call)
}

fn whole(
    mut payload: Map<String, Value>,
    call: &Call,
    limits: ResultLimits,
    keep: &Arc<dyn ResultSink>,
) -> Reply {
    let most = max_bytes(call, limits).saturating_sub(AROUND_BYTES);
    if json_bytes(&payload, Measure::Bare) <= most {
        return all(to_raw_json(&payload), call, limits);
    }
    let result = payload.remove("result").unwrap_or(Value::Null);
    let mut body = std::io::Cursor::new(result.to_string());
    // The change is committed, even if its report cannot be stored.
    let handle = keep.store(&call.permit, "application/json", &mut body).ok();
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
    of(to_raw_json(&payload), text, links, call)
}

/// Returns a preview of a value, one level deep.
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

//! Payloads: results in an envelope of their source, as the `datalevin_*` tools send them.
//!
//! Structured content is the payload. The text repeats it if both fit, since one limit applies to both forms together; otherwise
//! it refers to the structured content. A payload that does not fit is stored whole, and its paths are those of the stored JSON.

use std::borrow::Cow;
use std::io::Cursor;
use std::sync::Arc;

use rung_fault::{Code, Fault};
use rung_ladder::{
    Budget, Cut, Fitted, Handle, Measure, Mode, Path, Segment, fit, json_bytes, json_string_bytes,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::form::FormLimit;
use crate::items::{CollectedItems, ItemCollector};
use crate::render::{READ_TOOL, read_arguments, store_result, whole_result_link};
use crate::reply::{ContentBlock, Reply, ResultSink, STRUCTURED_FRAME, to_raw_json};
use crate::source::Call;

/// The text beside structured content that is too large to be repeated.
const SEE_STRUCTURED: &str = "See structuredContent.";
/// The text of a payload that was cut.
const TRUNCATED: &str = "Result truncated.";
/// Bytes reserved in the structured content for the records of what was cut.
const META_BYTES: usize = 1_024;
/// Bytes of the text of a cut payload and of its link, at the most.
const SUMMARY_BYTES: usize = 2_048;
/// Bytes of the truncation records in that text, at the most.
const SUMMARY_RECORD_BYTES: usize = 768;

/// The limits of a payload.
#[derive(Debug, Clone, Copy)]
pub struct PayloadLimits {
    /// Items of a list, at most.
    pub max_items: usize,
    /// Bytes of the message with both forms, at most.
    pub max_bytes: usize,
}

impl PayloadLimits {
    /// Returns the bytes of a reply with both forms.
    fn reply_bytes(self, call: &Call) -> usize {
        self.max_bytes.saturating_sub(call.envelope_bytes)
    }

    /// Returns the limit of each form.
    pub(crate) fn form(self, call: &Call) -> FormLimit {
        FormLimit {
            max_bytes: call.budget.max_bytes.min(self.reply_bytes(call)),
            max_tokens: call.max_tokens,
        }
    }

    /// Returns the byte limit that truncation records name: that of the whole message.
    fn stated_bytes(self, call: &Call) -> usize {
        self.form(call).max_bytes + call.envelope_bytes
    }
}

/// A payload. Its member `result` is the result.
#[derive(Debug)]
pub enum Payload {
    /// The result is in memory.
    Whole {
        /// The members.
        members: Map<String, Value>,
        /// Items of each list, at most.
        max_items: Option<usize>,
    },
    /// The result is a list.
    List(ListPayload),
}

impl Payload {
    /// Creates a payload whose lists may have any length.
    pub const fn of(members: Map<String, Value>) -> Self {
        Self::Whole {
            members,
            max_items: None,
        }
    }
}

/// A payload whose result is a list.
#[derive(Debug)]
pub struct ListPayload {
    /// The other members.
    pub head: Map<String, Value>,
    /// The first items.
    pub page: CollectedItems<(), Handle>,
    /// True if the items have no order: the result is an object with the member `~set`. Their list is stored.
    pub is_set: bool,
}

const SEPARATOR: &str = ",\n";
const SUFFIX: &str = "]}";

impl PayloadLimits {
    /// Returns a collector of the items of a list payload.
    pub fn collector(self, head: &Map<String, Value>, call: &Call) -> ItemCollector {
        ItemCollector {
            max_items: self.max_items,
            max_bytes: self.form(call).max_bytes,
            measure: if call.rendering.structured {
                Measure::Bare
            } else {
                Measure::Quoted
            },
            prefix: list_prefix(head),
            separator: SEPARATOR,
            suffix: SUFFIX,
        }
    }
}

/// Returns the JSON of a list payload up to its first item.
fn list_prefix(head: &Map<String, Value>) -> String {
    let mut json = Value::Object(head.clone()).to_string();
    json.pop();
    if !head.is_empty() {
        json.push(',');
    }
    json.push_str("\"result\":[");
    json
}

impl ListPayload {
    /// Returns the JSON that is stored.
    fn stored_json(&self) -> String {
        list_prefix(&self.head) + &self.page.items.join(SEPARATOR) + SUFFIX
    }

    /// Returns the JSON of the payload with these items.
    fn to_json<S: AsRef<str>>(
        &self,
        items: &[S],
        meta: Option<&Value>,
    ) -> Result<Box<RawValue>, Fault> {
        let mut json = list_prefix(&self.head);
        if self.is_set {
            json.pop();
            json.push_str("{\"~set\":[");
        }
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                json.push(',');
            }
            json.push_str(item.as_ref());
        }
        json.push_str(if self.is_set { "]}" } else { "]" });
        if let Some(meta) = meta {
            json.push_str(",\"meta\":");
            json.push_str(&meta.to_string());
        }
        json.push('}');
        RawValue::from_string(json).map_err(|error| Fault::new(Code::Internal, error.to_string()))
    }
}

/// What a reply shows of a payload that does not fit.
struct Preview {
    /// The payload with its `meta`.
    payload: Box<RawValue>,
    /// The JSON of its result.
    result: String,
    meta: Value,
    /// The call that reads the stored payload from the start of its result.
    begin: Option<Value>,
}

/// Creates the reply for a payload.
pub(crate) async fn render_payload(
    payload: Payload,
    limits: PayloadLimits,
    call: &Call,
    sink: Arc<dyn ResultSink>,
) -> Result<Reply, Fault> {
    match payload {
        Payload::Whole { members, max_items } => {
            let payload = Value::Object(members);
            let json = to_raw_json(&payload);
            let nested = payload.get("result").unwrap_or(&Value::Null);
            let budget = Budget {
                max_items,
                ..Budget::bytes(usize::MAX)
            };
            if budget.allows_items(nested)
                && let Some(whole) = whole_payload(&json, limits, call)
            {
                return Ok(whole);
            }
            let body = Cursor::new(Box::<str>::from(json).into_boxed_bytes());
            // A change is committed, even if its report cannot be stored.
            let handle = store_result(call, sink, body).await.ok();
            Ok(cut_payload(
                &payload,
                max_items,
                handle.as_ref(),
                limits,
                call,
            ))
        }
        Payload::List(list) => {
            let stored = if let Some(handle) = list.page.stored {
                handle
            } else {
                let json = list.to_json(&list.page.items, None)?;
                if let Some(whole) = whole_payload(&json, limits, call) {
                    return Ok(whole);
                }
                store_result(call, sink, Cursor::new(list.stored_json())).await?
            };
            cut_list(&list, &stored, limits, call)
        }
    }
}

/// Returns the reply with a whole payload, in both forms or in structured content alone.
fn whole_payload(payload: &RawValue, limits: PayloadLimits, call: &Call) -> Option<Reply> {
    let limit = limits.form(call);
    let json = payload.get();
    let structured_bytes = STRUCTURED_FRAME.len() + json.len();
    let content_bytes = Reply::from_text("").bytes() + json_string_bytes(json) - 2;
    if !call.rendering.structured {
        return limit
            .allows(content_bytes, json)
            .then(|| Reply::from_text(json));
    }
    if !limit.allows(structured_bytes, json) {
        return None;
    }
    let is_repeated = limit.allows(content_bytes, json)
        && content_bytes + structured_bytes <= limits.reply_bytes(call);
    let text = if is_repeated { json } else { SEE_STRUCTURED };
    let reply = Reply {
        structured_content: Some(payload.to_owned()),
        ..Reply::from_text(text)
    };
    (reply.bytes() <= limits.reply_bytes(call)).then_some(reply)
}

/// Returns the reply with as much of a stored payload as fits.
fn cut_payload(
    payload: &Value,
    max_items: Option<usize>,
    handle: Option<&Handle>,
    limits: PayloadLimits,
    call: &Call,
) -> Reply {
    let mut members = payload.as_object().cloned().unwrap_or_default();
    let result = members.insert("result".to_owned(), Value::Null);
    let head_bytes = json_bytes(&members, Measure::Quoted);
    // A payload without a result is itself the result.
    let (at, result) = match &result {
        Some(result) => (Path::root().then(Segment::from("result")), result),
        None => (Path::root(), payload),
    };
    cut_reply(handle, limits, call, |budget| {
        let budget = Budget {
            max_items,
            ..budget.less(head_bytes + META_BYTES)
        };
        let omitted = || Fitted {
            value: Value::Null,
            cuts: vec![Cut::Bytes {
                path: at.clone(),
                limit: 0,
                mode: Mode::Omitted,
            }],
        };
        let Fitted { value, mut cuts } = fit(result, &at, &budget).unwrap_or_else(|_| omitted());
        for cut in &mut cuts {
            if let Cut::Bytes { limit, .. } = cut {
                *limit = limits.stated_bytes(call) as u64;
            }
        }
        let next = handle.map(|handle| read_call(call, &read_arguments(handle, &cuts)));
        let begin = handle.map(|handle| read_call(call, &json!({"handle": handle.to_string()})));
        let meta = meta(&serde_json::to_value(&cuts).ok()?, handle, next);
        let text = value.to_string();
        let mut shown = match value {
            Value::Object(shown) if at == Path::root() => shown,
            value => {
                members.insert("result".to_owned(), value);
                members.clone()
            }
        };
        shown.insert("meta".to_owned(), meta.clone());
        Some(Preview {
            payload: to_raw_json(&shown),
            result: text,
            meta,
            begin,
        })
    })
}

/// Returns the reply with as many of the first items as fit.
fn cut_list(
    list: &ListPayload,
    handle: &Handle,
    limits: PayloadLimits,
    call: &Call,
) -> Result<Reply, Fault> {
    let page = &list.page;
    let path = Path::root().then(Segment::from("result"));
    // The parts of a reply serialise, or the fault says why not.
    let mut failure = None;
    let reply = cut_reply(Some(handle), limits, call, |budget| {
        let around = list.to_json::<&str>(&[], None).ok()?;
        let room = budget.less(around.get().len() + META_BYTES);
        let (items, cuts) = fitting_items(&page.items, &path, &room);
        let returned = items.len();
        let mut records = Vec::new();
        if page.total > limits.max_items {
            records.push(json!({
                "kind": "items", "path": "result", "limit": limits.max_items, "returned": returned, "original": page.total,
            }));
        }
        if returned < limits.max_items.min(page.total) || !cuts.is_empty() {
            records.push(json!({
                "kind": "bytes", "path": "result", "limit": limits.stated_bytes(call), "mode": "preview",
                "returned": returned, "original": page.total,
            }));
        }
        let rest = path.then(Segment::Slice(returned as u64, None));
        let mut next = json!({"handle": handle.to_string(), "path": rest.to_string()});
        if !cuts.is_empty() {
            next = read_arguments(handle, &cuts);
        }
        for cut in &cuts {
            records.push(serde_json::to_value(cut).ok()?);
        }
        let next = read_call(call, &next);
        let meta = meta(&records.into(), Some(handle), Some(next));
        let begin = path.then(Segment::Slice(0, None)).to_string();
        let begin = json!({"handle": handle.to_string(), "path": begin});
        let begin = Some(read_call(call, &begin));
        match list.to_json(&items, Some(&meta)) {
            Ok(payload) => Some(Preview {
                payload,
                result: format!("[{}]", items.join(",")),
                meta,
                begin,
            }),
            Err(fault) => {
                failure = Some(fault);
                None
            }
        }
    });
    failure.map_or(Ok(reply), Err)
}

/// Returns the first items that fit, and what was cut from an item that is too long by itself.
fn fitting_items<'p>(
    items: &'p [String],
    list: &Path,
    room: &Budget,
) -> (Vec<Cow<'p, str>>, Vec<Cut>) {
    let bytes = |item: &str| match room.measure {
        Measure::Bare => item.len() + 1,
        Measure::Quoted => json_string_bytes(item) - 1,
    };
    let mut left = room.max_bytes;
    let fitting = items.iter().take_while(|item| {
        let rest = left.checked_sub(bytes(item));
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    let fitting: Vec<_> = fitting.map(|item| Cow::Borrowed(&**item)).collect();
    let first = items.first().filter(|_| fitting.is_empty());
    let part = first.and_then(|first| {
        let item: Value = serde_json::from_str(first).ok()?;
        let part = fit(&item, &list.then(Segment::Index(0)), room).ok()?;
        let specific = |cut: &Cut| !matches!(cut, Cut::Bytes { .. });
        let cuts = part.cuts.into_iter().filter(specific);
        Some((part.value.to_string(), cuts.collect::<Vec<_>>()))
    });
    match part {
        Some((item, cuts)) if !cuts.is_empty() => (vec![Cow::Owned(item)], cuts),
        _ => (fitting, Vec::new()),
    }
}

/// Builds the reply with as much of a payload as `render` shows within a budget.
fn cut_reply(
    handle: Option<&Handle>,
    limits: PayloadLimits,
    call: &Call,
    mut render: impl FnMut(Budget) -> Option<Preview>,
) -> Reply {
    let limit = limits.form(call);
    let links = handle.filter(|_| call.rendering.links);
    let links = links.map(|handle| ContentBlock::ResourceLink(whole_result_link(handle)));
    let with_links = |text: String| {
        let text = ContentBlock::Text { text };
        Reply::from_blocks(std::iter::once(text).chain(links.clone()).collect())
    };
    let around = with_links(String::new()).bytes();
    let fitting = if call.rendering.structured {
        let most = limits.reply_bytes(call).saturating_sub(SUMMARY_BYTES);
        let limit = FormLimit {
            max_bytes: limit.max_bytes.min(most),
            ..limit
        };
        let rendered = limit.fit(
            |max_bytes| {
                let room = max_bytes.checked_sub(STRUCTURED_FRAME.len())?;
                render(Budget::bytes(room))
            },
            |preview| preview.payload.get().to_owned(),
        );
        rendered.map(|mut preview| {
            // The text has nothing of the result, so its next call reads from the start.
            if let Some(begin) = preview.begin {
                preview.meta["next"] = begin;
            }
            Reply {
                structured_content: Some(preview.payload),
                ..with_links(summary(&preview.meta))
            }
        })
    } else {
        limit.fit(
            |max_bytes| {
                let room = max_bytes.checked_sub(around + SUMMARY_BYTES)?;
                let budget = Budget {
                    measure: Measure::Quoted,
                    ..Budget::bytes(room)
                };
                let preview = render(budget)?;
                let text = format!("{}\n{}", summary(&preview.meta), preview.result);
                Some(with_links(text))
            },
            |reply| reply.text().to_owned(),
        )
    };
    fitting.unwrap_or_else(|| match handle {
        Some(handle) => with_links(format!(
            "{TRUNCATED} {} {{\"handle\":\"{handle}\"}}",
            call.name_style.apply(READ_TOOL)
        )),
        None => with_links(TRUNCATED.to_owned()),
    })
}

/// Returns a call of the tool that reads stored results.
fn read_call(call: &Call, arguments: &Value) -> Value {
    json!({"tool": call.name_style.apply(READ_TOOL), "arguments": arguments})
}

/// Returns the `meta` of a cut payload, which is not stored if there is no handle.
fn meta(truncations: &Value, handle: Option<&Handle>, next: Option<Value>) -> Value {
    let mut meta = json!({"truncated": true, "truncations": truncations});
    if let (Some(handle), Some(next)) = (handle, next) {
        meta["handle"] = handle.to_string().into();
        meta["next"] = next;
    }
    meta
}

/// Returns the text of a cut payload: its `meta`, with the first of the truncation records.
fn summary(meta: &Value) -> String {
    let mut meta = meta.clone();
    let mut left = SUMMARY_RECORD_BYTES;
    if let Some(records) = meta["truncations"].as_array_mut() {
        records.retain(|record| {
            let rest = left.checked_sub(json_bytes(record, Measure::Quoted));
            left = rest.unwrap_or_default();
            rest.is_some()
        });
    }
    json!({"summary": TRUNCATED, "meta": meta}).to_string()
}

//! A window of a field: selecting it, reading it from the provider, and the cursors to continue.

use rung_fault::{Code, Fault};
use rung_ladder::{Binding, CursorTarget, Shortcut, UncheckedCursor, head, limits};
use rung_records::digest;
use rung_tool::{Reply, TextPart, cut_part, fit_part};
use serde_json::{Value, json};

use super::RecordContext;
use super::id::is_name;
use super::id::{FieldSelector, WindowId, check_name};
use super::json::Json;
use super::ladder::Ladder;
use super::provider_error::ProviderError;

pub(super) fn selector_fault(why: &str) -> Fault {
    Fault::new(Code::InvalidFieldWindowSelector, why.to_owned()).with_hint(
        "name the record by `id`, and the part by one of cursor, offset_chars or q; without these the window starts at the beginning",
    )
}

/// Returns an error for a selector that is contradictory or out of range.
fn check(asked: &WindowId) -> Result<(), Fault> {
    let FieldSelector {
        cursor,
        offset_chars,
        limit_chars,
        q,
        before_chars,
        after_chars,
    } = &asked.selector;
    let around = before_chars.is_some() || after_chars.is_some();
    if cursor.is_some() && q.is_some() {
        return Err(selector_fault(
            "`q` is exclusive with `cursor` and `offset_chars`",
        ));
    }
    if cursor.is_some() && (offset_chars.is_some() || around) {
        return Err(selector_fault(
            "`cursor` is exclusive with `offset_chars`, `q`, `before_chars` and `after_chars`",
        ));
    }
    if q.is_some() && offset_chars.is_some() {
        return Err(selector_fault(
            "`q` is exclusive with `cursor` and `offset_chars`",
        ));
    }
    if q.is_none() && around {
        return Err(selector_fault(
            "`before_chars` and `after_chars` require `q`",
        ));
    }
    // URIs are not checked by a schema.
    let most = |value: &Option<u64>, most| value.is_none_or(|value| value <= most);
    let sound = most(limit_chars, limits::WINDOW_CHARS_MAX)
        && *limit_chars != Some(0)
        && most(before_chars, limits::CONTEXT_CHARS_MAX)
        && most(after_chars, limits::CONTEXT_CHARS_MAX);
    if !sound {
        return Err(selector_fault(
            "limit_chars, before_chars or after_chars is out of range",
        ));
    }
    if !is_name(&asked.field) {
        return Err(Fault::new(
            Code::InvalidArguments,
            "field_path contains invalid characters",
        ));
    }
    Ok(())
}

/// A part of a field.
pub(super) struct Window {
    /// Which part was asked for, of the record that it turned out to be.
    own: WindowId,
    mime_type: Option<String>,
    size: Option<u64>,
    digest: Option<String>,
    text: String,
    start: u64,
    limit: u64,
    matched: Option<(String, u64, u64)>,
    /// Whether the provider said that there is more, where it does not say how much there is.
    has_more: Option<bool>,
    /// True if the call asked for more than the usual size by number.
    sized: bool,
    /// Whether it was read to end where it ends.
    back: bool,
}

/// Whether a digest is of the kind that we make.
fn is_digest(digest: &str) -> bool {
    let hex = digest.strip_prefix("sha256:");
    hex.is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// No text is longer than this.
const MAX_OFFSET: u64 = 1 << 53;

/// True if a selector asks for more than the usual size by number.
pub(super) fn is_sized(selector: &FieldSelector) -> bool {
    let more = |asked: Option<u64>, usual: u64| asked.is_some_and(|asked| asked > usual);
    more(selector.limit_chars, limits::WINDOW_CHARS)
        || more(selector.before_chars, limits::CONTEXT_CHARS)
        || more(selector.after_chars, limits::CONTEXT_CHARS)
}

impl Window {
    /// Reads a part from the provider.
    pub(super) async fn read(
        context: &RecordContext<'_>,
        asked: WindowId,
    ) -> Result<Self, ProviderError> {
        check(&asked)?;
        let selector = &asked.selector;
        let opened = match &selector.cursor {
            None => None,
            Some(cursor) => Some(open(context, &asked, cursor)?),
        };
        let mut back = false;
        let (offset, limit) = match &opened {
            Some(Opened::Sealed(unread)) => {
                let position = &unread.position;
                let limit = selector.limit_chars.unwrap_or(position.limit_chars);
                back = matches!(position.target, CursorTarget::Before(_));
                // What goes back ends where the cursor was given.
                let limit = if back {
                    limit.min(position.offset)
                } else {
                    limit
                };
                let before = if back { limit } else { 0 };
                (Some(position.offset - before), limit.max(1))
            }
            Some(Opened::Plain(offset)) => (
                Some(*offset),
                selector.limit_chars.unwrap_or(limits::WINDOW_CHARS),
            ),
            None => (
                selector.offset_chars,
                selector.limit_chars.unwrap_or(limits::WINDOW_CHARS),
            ),
        };
        let ask = asked
            .record
            .to_request(&["field-window"])
            .with_param("field", Some(&asked.field));
        let ask = match &selector.q {
            Some(q) => ask
                .with_param("q", Some(q))
                .with_param(
                    "before_chars",
                    Some(selector.before_chars.unwrap_or(limits::CONTEXT_CHARS)),
                )
                .with_param(
                    "after_chars",
                    Some(selector.after_chars.unwrap_or(limits::CONTEXT_CHARS)),
                )
                .with_param("limit_chars", selector.limit_chars),
            None => ask
                .with_param("offset_chars", Some(offset.unwrap_or(0)))
                .with_param("limit_chars", Some(limit)),
        };
        let answer;
        let body = match context.provider.get_json(&ask).await {
            Ok(read) => {
                answer = read;
                answer.body()?
            }
            Err(refusal) if refusal.provider_code() == Some("field_not_text") => {
                let window = json_window(context, &asked, offset.unwrap_or(0), limit, refusal);
                window.await?.into()
            }
            Err(refusal) => return Err(refusal),
        };
        let asked_from = Some(offset.unwrap_or(0)).filter(|_| selector.q.is_none());
        let mut window = Self::of(asked, &body, limit)?;
        window.back = back;
        // A provider that returns another offset would be read in a loop.
        if let Some(from) = asked_from.filter(|from| *from != window.start)
            && !window.text.is_empty()
        {
            let why = format!(
                "the provider was asked for offset {from} and returned offset {}",
                window.start
            );
            return Err(ProviderError::new(Code::SourceFailed, why));
        }
        if let Some(Opened::Sealed(unread)) = &opened
            && !window.is_of(unread, context)
        {
            let WindowId { record, field, .. } = &window.own;
            let why =
                format!("field {field:?} of {record} has changed since this cursor was issued");
            let stale = Fault::new(Code::StaleCursor, why)
                .with_hint("read the field again from its beginning, without a cursor");
            return Err(stale.into());
        }
        Ok(window)
    }

    /// Whether the field is as it was when a cursor was given: by the provider's digest, or by its size where the cursor has a digest
    /// that was made here and the provider has none of its kind.
    fn is_of(&self, unread: &UncheckedCursor, context: &RecordContext<'_>) -> bool {
        let WindowId { record, field, .. } = &self.own;
        let binding = Binding {
            subject: &record.to_string(),
            field,
            digest: &self.revision(),
            grant: context.provider.authority(),
        };
        let comparable = self.digest.as_deref().is_some_and(is_digest);
        let size = match unread.position.shortcut {
            Some(Shortcut::Text { size_chars, .. }) if !comparable => Some(size_chars),
            _ => None,
        };
        let same_size = size.is_some_and(|then| self.size.is_none_or(|now| now == then));
        same_size || unread.check(&context.options.key, &binding).is_ok()
    }

    fn of(mut own: WindowId, body: &Json<'_>, limit: u64) -> Result<Self, ProviderError> {
        let told = if body["window"].is_object() {
            body
        } else {
            &body["data"]
        };
        let window = &told["window"];
        let odd = |what: &str| {
            ProviderError::new(
                Code::SourceFailed,
                format!("the provider's window has no {what}"),
            )
        };
        let text = window["text"]
            .as_str()
            .ok_or_else(|| odd("text"))?
            .to_owned();
        let start = window["start_chars"]
            .as_u64()
            .ok_or_else(|| odd("start_chars"))?;
        let matched = match (
            window["match_start_chars"].as_u64(),
            window["match_end_chars"].as_u64(),
            &own.selector.q,
        ) {
            (Some(start), Some(end), Some(q)) => Some((q.clone(), start, end)),
            _ => None,
        };
        if start > MAX_OFFSET {
            return Err(odd("valid start_chars"));
        }
        if own.record.connection.is_none()
            && let Some(connection) = told["connection_id"].as_str()
            && check_name("connection_id", connection).is_ok()
        {
            own.record.connection = Some(connection.to_owned());
        }
        let limit = window["limit_chars"].as_u64().unwrap_or(limit);
        let limit = limit.clamp(1, limits::WINDOW_CHARS_MAX);
        Ok(Self {
            has_more: window["has_more"].as_bool(),
            sized: is_sized(&own.selector),
            own,
            mime_type: told["field"]["mime_type"]
                .as_str()
                .map(|kind| head(kind, 100).to_owned()),
            size: window["total_chars"].as_u64(),
            digest: told["field"]["digest"]
                .as_str()
                .map(|digest| head(digest, 200).to_owned()),
            text,
            start,
            limit,
            matched,
            back: false,
        })
    }

    /// Returns the provider's digest of the field, or else its size.
    fn revision(&self) -> String {
        let size = || self.size.map(|size| format!("size:{size}"));
        self.digest.clone().or_else(size).unwrap_or_default()
    }

    fn end(&self) -> u64 {
        self.start + self.text.chars().count() as u64
    }

    fn is_last(&self) -> bool {
        // An empty window has no continuation.
        if self.text.is_empty() {
            return true;
        }
        match (self.size, self.has_more) {
            (Some(size), _) => self.end() >= size,
            (None, Some(more)) => !more,
            (None, None) => false,
        }
    }

    /// Returns the structured content.
    fn structured(&self, context: &RecordContext<'_>) -> Value {
        let ladder = Ladder {
            key: &context.options.key,
            authority: context.provider.authority(),
        };
        let revision = self.revision();
        let cursor = |at: (u64, bool)| {
            let limit = self.limit.max(1);
            ladder.cursor(
                &self.own.record,
                &self.own.field,
                &revision,
                at,
                limit,
                None,
            )
        };
        let next = (!self.is_last()).then(|| cursor((self.end(), false)));
        let previous = (self.start > 0).then(|| cursor((self.start, true)));
        let uri = |cursor: &Option<String>| {
            cursor.as_ref().map(|cursor| {
                WindowId {
                    record: self.own.record.clone(),
                    field: self.own.field.clone(),
                    selector: FieldSelector {
                        cursor: Some(cursor.clone()),
                        ..FieldSelector::default()
                    },
                }
                .uri()
            })
        };
        let mut field = json!({"path": self.own.field});
        if let Some(kind) = &self.mime_type {
            field["mime_type"] = json!(kind);
        }
        field["text_like"] = json!(true);
        if let Some(size) = self.size {
            field["size_chars"] = json!(size);
        }
        if let Some(digest) = &self.digest {
            field["digest"] = json!(digest);
        }
        json!({
            "record": {
                "id": self.own.record.to_string(),
                "connection_id": self.own.record.connection.as_deref().unwrap_or_default(),
                "stream": self.own.record.stream,
                "record_id": self.own.record.record,
            },
            "field": field,
            "window": {
                "text": self.text,
                "start_chars": self.start,
                "end_chars": self.end(),
                "limit_chars": self.limit,
                "complete": self.start == 0 && self.is_last(),
                "next_cursor": next,
                "previous_cursor": previous,
                "match": self.matched.as_ref().map(|(q, start, end)| json!({"q": q, "start_chars": start, "end_chars": end})),
            },
            "resource": {"uri": self.own.uri(), "next_uri": uri(&next), "previous_uri": uri(&previous)},
        })
    }

    pub(super) fn reply(self, context: &RecordContext<'_>) -> Reply {
        let max_bytes = self.max_bytes(context);
        fit_part(
            &mut RenderedWindow {
                window: self,
                context,
            },
            max_bytes,
        )
    }

    /// Returns the bytes of each form at most.
    fn max_bytes(&self, context: &RecordContext<'_>) -> usize {
        if self.sized {
            context.most_bytes()
        } else {
            context.usual_bytes()
        }
    }

    /// Returns the text block: a line of JSON, the next call, then the text.
    fn words(&self, structured: &Value) -> String {
        let window = &structured["window"];
        let header = json!({
            "id": structured["record"]["id"], "field_path": self.own.field,
            "start_chars": self.start, "end_chars": self.end(), "size_chars": self.size,
            "complete": window["complete"], "next_cursor": window["next_cursor"], "previous_cursor": window["previous_cursor"],
        });
        let mut text = header.to_string();
        if let Some(cursor) = window["next_cursor"].as_str() {
            let args = json!({"id": structured["record"]["id"], "field_path": self.own.field, "cursor": cursor});
            text.push_str("\nnext read_record_field args=");
            text.push_str(&args.to_string());
        }
        text.push('\n');
        text.push_str(&self.text);
        text
    }

    /// Returns the resource: the text, and everything else as metadata. `around` is the size of what contains it.
    pub(super) fn resource(self, context: &RecordContext<'_>, around: usize) -> (String, Value) {
        let max_bytes = self.max_bytes(context);
        let metadata = |window: &Self| {
            let mut metadata = window.structured(context);
            if let Some(window) = metadata["window"].as_object_mut() {
                window.shift_remove("text");
            }
            metadata
        };
        let beside = metadata(&self).to_string().len() + around + RESOURCE_BYTES;
        let mut rendered = RenderedWindow {
            window: self,
            context,
        };
        // Cut where the reply of the tool is cut, so that both are the same part.
        fit_part(&mut rendered, max_bytes);
        cut_part(&mut rendered, max_bytes.saturating_sub(beside));
        let window = rendered.window;
        let metadata = metadata(&window);
        (window.text, metadata)
    }
}

/// Bytes of the names around a window that is a resource, and of its cursors.
const RESOURCE_BYTES: usize = 900;

/// A window with what its reply is rendered with.
struct RenderedWindow<'a> {
    window: Window,
    context: &'a RecordContext<'a>,
}

impl TextPart for RenderedWindow<'_> {
    fn text(&self) -> &str {
        &self.window.text
    }

    fn is_backward(&self) -> bool {
        self.window.back
    }

    fn keep(&mut self, chars: usize) {
        let window = &mut self.window;
        if window.back {
            let cut = window.text.chars().count().saturating_sub(chars);
            window.text = window.text.chars().skip(cut).collect();
            window.start += cut as u64;
        } else if let Some((end, _)) = window.text.char_indices().nth(chars) {
            window.text.truncate(end);
        }
    }

    fn render(&self) -> Reply {
        let structured = self.window.structured(self.context);
        let text = self.window.words(&structured);
        self.context
            .reply(text, &structured, std::slice::from_ref(&self.window.own))
    }
}

/// Returns a window of the JSON text of a field that is not a string. The provider has no windows of such a field, so it is read
/// whole, under the same grant.
async fn json_window(
    context: &RecordContext<'_>,
    asked: &WindowId,
    offset: u64,
    limit: u64,
    refusal: ProviderError,
) -> Result<Value, ProviderError> {
    let fields = [asked.field.clone()];
    let ask = asked.record.to_request(&[]).with_values("fields", &fields);
    let answer = context.provider.get_json(&ask).await?;
    let record = answer.body()?;
    let record = if record["data"].is_object() {
        &record
    } else {
        &record["data"]
    };
    let value = &record["data"][asked.field.as_str()];
    if value.is_null() {
        return Err(refusal);
    }
    let text = value.to_string();
    let found = match &asked.selector.q {
        None => None,
        Some(q) => {
            let fold = |text: &str| -> Vec<char> {
                let small = |c: char| c.to_lowercase().next().unwrap_or(c);
                text.chars().map(small).collect()
            };
            let (folded, wanted) = (fold(&text), fold(q));
            let found = folded
                .windows(wanted.len().max(1))
                .position(|part| part == wanted.as_slice());
            let start = found.ok_or_else(|| {
                let why = format!("{q:?} does not occur in the JSON of the field");
                ProviderError::Adapter(Fault::new(Code::QueryNotFound, why))
            })? as u64;
            Some((start, start + wanted.len() as u64))
        }
    };
    let around = |chars: Option<u64>| chars.unwrap_or(limits::CONTEXT_CHARS);
    let (start, limit) = match found {
        None => (offset, limit),
        Some((start, end)) => {
            let from = start.saturating_sub(around(asked.selector.before_chars));
            let to = end + around(asked.selector.after_chars);
            let length = asked.selector.limit_chars.unwrap_or(to - from);
            (from, length.min(limits::WINDOW_CHARS_MAX))
        }
    };
    let total = text.chars().count() as u64;
    let start = start.min(total);
    let skip = usize::try_from(start).unwrap_or(usize::MAX);
    let take = usize::try_from(limit).unwrap_or(usize::MAX);
    let part: String = text.chars().skip(skip).take(take).collect();
    Ok(json!({
        "connection_id": record["connection_id"],
        "field": {"mime_type": "application/json", "digest": digest(&text)},
        "window": {
            "text": part, "start_chars": start, "limit_chars": limit, "total_chars": total,
            "match_start_chars": found.map(|(start, _)| start), "match_end_chars": found.map(|(_, end)| end),
        },
    }))
}

enum Opened {
    Sealed(UncheckedCursor),
    /// Other adapters have numbers for cursors.
    Plain(u64),
}

/// Opens a cursor, before a request is sent. It must be of this field of this record, under this grant.
fn open(context: &RecordContext<'_>, asked: &WindowId, cursor: &str) -> Result<Opened, Fault> {
    if !cursor.is_empty() && cursor.len() <= 15 && cursor.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Ok(Opened::Plain(cursor.parse().unwrap_or(0)));
    }
    let subject = asked.record.to_string();
    let binding = Binding {
        subject: &subject,
        field: &asked.field,
        digest: "",
        grant: context.provider.authority(),
    };
    let opened = context.options.key.open_unchecked(cursor, &binding);
    opened.map(Opened::Sealed).map_err(|_| {
        let why = format!(
            "the cursor does not belong to field {:?} of {subject} under this grant",
            asked.field
        );
        Fault::new(Code::InvalidCursor, why)
            .with_hint("read the field from its beginning, without a cursor")
    })
}

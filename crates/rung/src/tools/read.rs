//! `rung.read`: reads any part of a stored result.
#![allow(
    clippy::doc_markdown,
    rustdoc::broken_intra_doc_links,
    reason = "these comments are the schema that agents read"
)]

use std::fmt::Write as _;
use std::sync::Arc;

use rung_fault::{Code, Fault};
use rung_ladder::{
    Binding, CursorKey, Document, Handle, JsonKind, Mark, Path, Piece, Position, Range, Reading,
    ResultSummary, Selector, Window, limits,
};
use rung_tool::{
    Answer, Body, Call, Cancellation, InputSchema, Rendering, ResourceLink, Tool, ToolOutput,
    fit_output, input_schema_of, output_schema_of,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{RungContext, RungTools};
use crate::result_store::{AnyResultStore, StoredResult};

mod texts;

/// Icon: lines of text.
const ICON: &str = "data:image/svg+xml;base64,PHN2ZyB4bWxucz0naHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmcnIHZpZXdCb3g9JzAgMCAxNiAxNic+PHBhdGggZD0nTTIgM2gxMk0yIDhoMTJNMiAxM2g3JyBzdHJva2U9JyMzNjUnIHN0cm9rZS13aWR0aD0nMicvPjwvc3ZnPg==";

/// Reads parts of stored results, for `rung.read` and for resources.
#[derive(Clone)]
pub(crate) struct ResultReader {
    store: AnyResultStore,
    key: CursorKey,
}

impl ResultReader {
    pub(crate) fn new(store: AnyResultStore, key: CursorKey) -> Self {
        Self { store, key }
    }
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadInput {
    /// The handle, or its rung:// URI.
    pub(crate) handle: String,
    /// A next_cursor or previous_cursor; combines with limit_chars only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<String>,
    /// Path in a JSON result: rows[3].body, rows[10:20], rows[*].id. Combines with all but cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// Characters to skip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offset_chars: Option<u64>,
    /// Maximum characters to read.
    #[schemars(range(min = 1, max = 16_384))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit_chars: Option<u64>,
    /// Lines, such as 10-40.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lines: Option<String>,
    /// Regular expression: lists its matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pattern: Option<String>,
    /// Text: shows its first occurrence with context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) q: Option<String>,
    /// Characters before q.
    #[schemars(range(max = 8_192))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before_chars: Option<u64>,
    /// Characters after q.
    #[schemars(range(max = 8_192))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after_chars: Option<u64>,
}

/// `text` is the part that was read; the other members say which part it is.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ReadOutput {
    handle: String,
    content_type: String,
    size_bytes: u64,
    /// Absent if the result is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    size_chars: Option<u64>,
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Form of text: text as stored, string decoded from JSON, or json as stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<TextKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<WindowOutput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<ItemsOutput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hits: Option<Vec<HitOutput>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_cursor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum TextKind {
    Text,
    String,
    Json,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct WindowOutput {
    start_chars: u64,
    end_chars: u64,
    limit_chars: u64,
    size_chars: u64,
    /// True if this is all of it.
    complete: bool,
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    found: Option<MatchOutput>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct MatchOutput {
    start_chars: u64,
    end_chars: u64,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct ItemsOutput {
    first: u64,
    returned: u64,
    original: u64,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct HitOutput {
    line: u64,
    start_chars: u64,
    end_chars: u64,
    text: String,
}

pub(crate) const TOOL: Tool<RungTools, ReadInput> = Tool::new(
    "rung.read",
    "Reads part of a result that was cut: pass the handle from meta.handle. Without a selector it begins at the start; \
     next_cursor continues. Nothing is lost: reading to the end returns every byte.",
    InputSchema::Built(input_schema_of::<ReadInput>),
    // Scanning a large result blocks.
    Body::Blocking(|context: &RungContext<'_>, input: ReadInput| {
        let read = &context.set.read;
        Answer::output(read.read_until(context.call, &input, context.cancellation)?)
    }),
)
.titled("Read a stored result")
.with_icon(ICON)
.with_output(output_schema_of::<ReadOutput>)
.as_entry();

/// A part of a result, as resource contents.
pub(crate) struct ResultPart {
    pub(crate) content_type: String,
    pub(crate) text: Option<String>,
    pub(crate) blob: Option<String>,
    /// Metadata that identifies the part.
    pub(crate) metadata: serde_json::Value,
    pub(crate) next_cursor: Option<String>,
}

impl ResultReader {
    /// Reads what the tool reads, without the two header lines of its text.
    pub(crate) fn read_part(&self, call: &Call, input: &ReadInput) -> Result<ResultPart, Fault> {
        let call = Call {
            rendering: Rendering {
                structured: false,
                links: false,
            },
            ..call.clone()
        };
        let answer = self.read(&call, input)?;
        let ReadOutput {
            content_type,
            next_cursor,
            ..
        } = answer.data.clone();
        let facts = ReadOutput {
            text: None,
            hits: None,
            next_cursor: None,
            ..answer.data
        };
        // Skip the two header lines.
        let text = answer.text.map(|text| {
            let behind = text.splitn(3, '\n').nth(2);
            behind.unwrap_or_default().to_owned()
        });
        let (text, blob, content_type) = match text {
            Some(text) if facts.size_chars.is_some() => {
                (Some(text), None, part_media_type(content_type, &facts))
            }
            _ => (None, Some(self.read_base64(&call, input)?), content_type),
        };
        Ok(ResultPart {
            content_type,
            text,
            blob,
            metadata: serde_json::to_value(facts).unwrap_or_default(),
            next_cursor,
        })
    }

    /// Returns a whole binary result in base64.
    fn read_base64(&self, call: &Call, input: &ReadInput) -> Result<String, Fault> {
        let stored = self
            .store
            .open(&call.permit, &input.handle.parse::<Handle>()?)?;
        if stored.len_bytes().saturating_mul(4) / 3 + 4 > call.budget.max_bytes as u64 {
            let why = "the result is not text and is too long for one reply";
            return Err(Fault::new(Code::NotText, why)
                .with_hint("call rung.read with the handle alone for its size, type and digest; the user can export the bytes"));
        }
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < stored.len_bytes() {
            bytes.extend_from_slice(&stored.piece(bytes.len() as u64)?);
        }
        Ok(data_encoding::BASE64.encode(&bytes))
    }

    fn read(&self, call: &Call, input: &ReadInput) -> Result<ToolOutput<ReadOutput>, Fault> {
        let cancellation = Cancellation::new(call.deadline, Arc::default());
        self.read_until(call, input, &cancellation)
    }

    fn read_until(
        &self,
        call: &Call,
        input: &ReadInput,
        cancellation: &Cancellation,
    ) -> Result<ToolOutput<ReadOutput>, Fault> {
        let (handle, cursor) = parse_handle(input)?;
        let stored = self.store.open(&call.permit, &handle)?;
        let summary = stored.summary();
        let selects = cursor.is_some() || input.has_selector() || input.limit_chars.is_some();
        if summary.chars.is_none() && !selects {
            return Ok(ReadOutput::from_summary(&handle, &summary).into());
        }
        let wanted = match &cursor {
            Some(_) if input.has_selector() => {
                let why = "cursor combines with limit_chars only";
                return Err(rung_ladder::Error::WindowInvalid(why).into());
            }
            Some(cursor) => {
                let binding = cursor_identity(&handle, &summary, call);
                let mut position = self.key.open(cursor, &binding.as_ref())?;
                if let Some(limit_chars) = input.limit_chars {
                    position.limit_chars = limit_chars;
                }
                ReadTarget::Continued(position)
            }
            None => ReadTarget::Selected(input.selector()?),
        };
        let stored = CancellableDocument {
            document: stored,
            cancellation,
        };
        self.read_within_budget(call, &handle, &summary, &stored, &wanted)
    }

    /// Reads as much as fits into the budget.
    fn read_within_budget(
        &self,
        call: &Call,
        handle: &Handle,
        summary: &ResultSummary,
        stored: &CancellableDocument<'_, StoredResult>,
        wanted: &ReadTarget,
    ) -> Result<ToolOutput<ReadOutput>, Fault> {
        let max_bytes = call.budget.max_bytes;
        let too_small = || Fault::from(rung_ladder::Error::BudgetTooSmall { max_bytes });
        let render = |room| {
            let reading = match wanted {
                ReadTarget::Selected(selector) => texts::read_selected(stored, selector, room),
                ReadTarget::Continued(position) => texts::read_on(stored, position, room),
            };
            let reading = match reading {
                Err(DocumentReadError::Ladder(rung_ladder::Error::BudgetTooSmall { .. })) => {
                    return Err(too_small());
                }
                reading => reading?,
            };
            let used = reading.text_bytes();
            Ok((self.build_answer(call, handle, summary, reading), used))
        };
        fit_output(call, OVERHEAD_BYTES, render)?.ok_or_else(too_small)
    }

    fn build_answer(
        &self,
        call: &Call,
        handle: &Handle,
        summary: &ResultSummary,
        reading: Reading,
    ) -> ToolOutput<ReadOutput> {
        let binding = cursor_identity(handle, summary, call);
        let seal = |position| self.key.seal(&binding.as_ref(), &position).into_string();
        let mut output = ReadOutput {
            next_cursor: reading.next().map(seal),
            previous_cursor: reading.previous().map(seal),
            ..ReadOutput::from_summary(handle, summary)
        };
        let text = match reading {
            Reading::Text {
                path, kind, window, ..
            } => {
                output.path = path_name(&path);
                output.kind = Some(match kind {
                    None => TextKind::Text,
                    Some(JsonKind::String) => TextKind::String,
                    Some(_) => TextKind::Json,
                });
                output.window = Some(WindowOutput::from(&window));
                window.text
            }
            Reading::Items {
                path,
                text,
                first,
                returned,
                original,
                ..
            } => {
                output.path = path_name(&path);
                output.kind = Some(TextKind::Json);
                output.items = Some(ItemsOutput {
                    first,
                    returned,
                    original,
                });
                text
            }
            Reading::Hits { path, hits, .. } => {
                output.path = path_name(&path);
                let mut text = String::new();
                for hit in &hits {
                    let (line, at) = (hit.line, hit.start_chars);
                    let _ = writeln!(text, "line {line}, offset_chars {at}: {}", hit.text);
                }
                output.hits = Some(hits.into_iter().map(HitOutput::from).collect());
                text
            }
        };
        // Text-only clients get the same metadata in two header lines: a line of JSON, and a line with the next call or `end`.
        // There are always exactly two, so the text cannot imitate a header.
        let header = serde_json::to_value(&output).unwrap_or_default();
        let next = match &output.next_cursor {
            Some(cursor) => {
                let arguments = json!({"handle": handle.to_string(), "cursor": cursor});
                format!("next {} {arguments}", call.name_style.apply(TOOL.name()))
            }
            None => "end".to_owned(),
        };
        let links = output.next_cursor.iter().map(|cursor| ResourceLink {
            uri: format!("{}?cursor={cursor}", handle.uri()),
            name: "the next part".to_owned(),
            mime_type: "text/plain".to_owned(),
        });
        ToolOutput {
            links: links.collect(),
            text: Some(format!("{}\n{next}\n{text}", header_line(header))),
            data: match output.hits {
                // The hits repeat the text.
                Some(_) => output,
                None => ReadOutput {
                    text: Some(text),
                    ..output
                },
            },
        }
    }
}

/// Returns the media type of a part: a part of a JSON document is plain text.
fn part_media_type(content_type: String, facts: &ReadOutput) -> String {
    let whole = facts.window.as_ref().is_some_and(|window| window.complete) && facts.path.is_none();
    if whole {
        content_type
    } else {
        "text/plain".to_owned()
    }
}

/// Part to read: selected, or continued from a cursor.
enum ReadTarget {
    /// A selected part.
    Selected(Selector),
    /// Continuation of an earlier read.
    Continued(Position),
}

/// Estimated bytes of a reply without its text, so that a second read is rarely needed.
const OVERHEAD_BYTES: usize = 2_000;

/// A document whose reads fail once the call is cancelled or its deadline has passed.
struct CancellableDocument<'c, D> {
    document: D,
    cancellation: &'c Cancellation,
}

/// Why such a read failed.
enum DocumentReadError {
    Ladder(rung_ladder::Error),
    Fault(Fault),
}

impl From<rung_ladder::Error> for DocumentReadError {
    fn from(error: rung_ladder::Error) -> Self {
        Self::Ladder(error)
    }
}

impl From<DocumentReadError> for Fault {
    fn from(failed: DocumentReadError) -> Self {
        match failed {
            DocumentReadError::Ladder(error) => error.into(),
            DocumentReadError::Fault(fault) => fault,
        }
    }
}

impl Document for CancellableDocument<'_, StoredResult> {
    type Error = DocumentReadError;

    fn len_bytes(&self) -> u64 {
        self.document.len_bytes()
    }

    fn len_chars(&self) -> Option<u64> {
        self.document.len_chars()
    }

    fn piece(&self, offset: u64) -> Result<Piece<'_>, DocumentReadError> {
        self.cancellation
            .check()
            .map_err(DocumentReadError::Fault)?;
        self.document
            .piece(offset)
            .map_err(DocumentReadError::Fault)
    }

    fn near_char(&self, chars: u64) -> Result<Mark, DocumentReadError> {
        self.document
            .near_char(chars)
            .map_err(DocumentReadError::Fault)
    }

    fn near_line(&self, lines: u64) -> Result<Mark, DocumentReadError> {
        self.document
            .near_line(lines)
            .map_err(DocumentReadError::Fault)
    }
}

/// Removes what the `next` line and the text contain already.
fn header_line(mut header: serde_json::Value) -> serde_json::Value {
    if let Some(members) = header.as_object_mut() {
        members.shift_remove("hits");
        members.shift_remove("next_cursor");
    }
    header
}

/// Parses the handle, which may be a URI that contains a cursor.
fn parse_handle(input: &ReadInput) -> Result<(Handle, Option<String>), Fault> {
    let (handle, inside) = match input.handle.split_once("?cursor=") {
        Some((handle, cursor)) => (handle, Some(cursor.to_owned())),
        None => (input.handle.as_str(), None),
    };
    let handle = handle.parse::<Handle>()?;
    match (inside, &input.cursor) {
        (Some(_), Some(_)) => Err(rung_ladder::Error::WindowInvalid(
            "the handle and the argument each have a cursor",
        )
        .into()),
        (inside, given) => Ok((handle, inside.or_else(|| given.clone()))),
    }
}

impl ReadInput {
    /// Returns true if the input selects a part; a limit alone does not.
    fn has_selector(&self) -> bool {
        self.path.is_some()
            || self.offset_chars.is_some()
            || self.lines.is_some()
            || self.pattern.is_some()
            || self.q.is_some()
            || self.before_chars.is_some()
            || self.after_chars.is_some()
    }

    fn selector(&self) -> Result<Selector, Fault> {
        let invalid = |why| Fault::from(rung_ladder::Error::WindowInvalid(why));
        let by_offset = self.offset_chars.is_some() || self.limit_chars.is_some();
        let ways = [
            by_offset,
            self.lines.is_some(),
            self.pattern.is_some(),
            self.q.is_some(),
        ];
        if ways.into_iter().filter(|way| *way).count() > 1 {
            return Err(invalid("the call mixes several selectors"));
        }
        if self.q.is_none() && (self.before_chars.is_some() || self.after_chars.is_some()) {
            return Err(invalid("before_chars and after_chars require q"));
        }
        let path: Path = self.path.as_deref().unwrap_or_default().parse()?;
        let limit_chars = self.limit_chars.unwrap_or(limits::WINDOW_CHARS);
        let range = if let Some(lines) = &self.lines {
            let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
            let number = |text: &str| text.trim().parse().ok();
            let (Some(first), Some(last)) = (number(first), number(last)) else {
                return Err(invalid(
                    "lines must be two numbers with a dash, such as 10-40",
                ));
            };
            Range::Lines { first, last }
        } else if let Some(pattern) = &self.pattern {
            Range::Pattern {
                pattern: pattern.clone(),
                offset_chars: 0,
            }
        } else if let Some(q) = &self.q {
            Range::Match {
                q: q.clone(),
                before_chars: self.before_chars.unwrap_or(limits::CONTEXT_CHARS),
                after_chars: self.after_chars.unwrap_or(limits::CONTEXT_CHARS),
            }
        } else if self.path.is_some() && self.offset_chars.is_none() {
            // A path to a list or an object is read in whole items.
            Range::Items {
                first: 0,
                limit_chars,
            }
        } else {
            Range::Chars {
                offset_chars: self.offset_chars.unwrap_or(0),
                limit_chars,
            }
        };
        Ok(Selector { path, range })
    }
}

impl ReadOutput {
    fn from_summary(handle: &Handle, summary: &ResultSummary) -> Self {
        Self {
            handle: handle.to_string(),
            content_type: summary.content_type.clone(),
            size_bytes: summary.bytes,
            size_chars: summary.chars,
            digest: summary.digest.clone(),
            path: None,
            kind: None,
            window: None,
            items: None,
            hits: None,
            next_cursor: None,
            previous_cursor: None,
            text: None,
        }
    }
}

impl From<&Window> for WindowOutput {
    fn from(window: &Window) -> Self {
        Self {
            start_chars: window.start_chars,
            end_chars: window.end_chars,
            limit_chars: window.limit_chars,
            size_chars: window.size_chars,
            complete: window.is_complete(),
            found: window.found.map(|(start_chars, end_chars)| MatchOutput {
                start_chars,
                end_chars,
            }),
        }
    }
}

impl From<rung_ladder::PatternMatch> for HitOutput {
    fn from(found: rung_ladder::PatternMatch) -> Self {
        Self {
            line: found.line,
            start_chars: found.start_chars,
            end_chars: found.end_chars,
            text: found.text,
        }
    }
}

/// Formats a path. Returns `None` for the root.
fn path_name(path: &Path) -> Option<String> {
    (!path.segments().is_empty()).then(|| path.to_string())
}

/// Identity that a cursor of this result is bound to. The path is part of the cursor.
struct CursorIdentity {
    subject: String,
    digest: String,
    grant: String,
}

fn cursor_identity(handle: &Handle, summary: &ResultSummary, call: &Call) -> CursorIdentity {
    let permit = &call.permit;
    CursorIdentity {
        subject: handle.to_string(),
        digest: summary.digest.clone(),
        // Names contain no control characters, so the separator is unambiguous.
        grant: format!("{}\0{}", permit.caller(), permit.grant()),
    }
}

impl CursorIdentity {
    fn as_ref(&self) -> Binding<'_> {
        Binding {
            subject: &self.subject,
            field: "",
            digest: &self.digest,
            grant: &self.grant,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use rung_auth::{Access, Permit, Token, TokenRecord, admit};
    use rung_kv::{Options, ResultStore, Store};
    use rung_ladder::RetentionLimits;

    use super::*;

    fn permit(caller: &str, grant: &str) -> Permit {
        let token = Token::generate().unwrap();
        let record = TokenRecord {
            hash: token.hash(),
            caller: caller.to_owned().try_into().unwrap(),
            grant: grant.to_owned().try_into().unwrap(),
            access: Access::Read,
            expires_ms: None,
            scope: None,
        };
        admit(&token, [&record], 0).unwrap()
    }

    fn tool() -> (tempfile::TempDir, ResultReader) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options::default()).unwrap();
        let store = ResultStore::new(Arc::new(store), RetentionLimits::default());
        (
            dir,
            ResultReader::new(AnyResultStore::Local(store), CursorKey::new([9; 32])),
        )
    }

    fn input(handle: &Handle, cursor: Option<String>) -> ReadInput {
        ReadInput {
            handle: handle.to_string(),
            cursor,
            ..ReadInput::default()
        }
    }

    #[test]
    fn the_handle_of_another_caller_is_reported_as_missing() {
        let (_dir, tool) = tool();
        let mine = Call::new(permit("me", "g"));
        let text = "x".repeat(9_000);
        let kept = tool
            .store
            .put(&mine.permit, "text/plain", text.as_bytes())
            .unwrap();
        let part = tool.read(&mine, &input(&kept.handle, None)).unwrap();
        let cursor = part.data.next_cursor;
        assert!(
            tool.read(&mine, &input(&kept.handle, cursor.clone()))
                .is_ok()
        );

        let nobodys = tool
            .read(&mine, &input(&Handle::from_bits([0; 16]), None))
            .unwrap_err();
        for stranger in [permit("you", "g"), permit("me", "other")] {
            let call = Call::new(stranger);
            for cursor in [None, cursor.clone()] {
                let refused = tool.read(&call, &input(&kept.handle, cursor)).unwrap_err();
                assert_eq!(refused, nobodys);
            }
        }
    }

    #[test]
    fn a_read_after_the_deadline_fails() {
        let (_dir, tool) = tool();
        let mut call = Call::new(permit("me", "g"));
        let text = "x".repeat(9_000);
        let kept = tool
            .store
            .put(&call.permit, "text/plain", text.as_bytes())
            .unwrap();
        call.deadline = Some(Instant::now() + Duration::from_mins(1));
        assert!(tool.read(&call, &input(&kept.handle, None)).is_ok());
        call.deadline = Some(Instant::now());
        let late = tool.read(&call, &input(&kept.handle, None)).unwrap_err();
        assert_eq!(late.code(), Code::DeadlineExceeded);
    }
}

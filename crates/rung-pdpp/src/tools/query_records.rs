//! `query_records`: a page of a stream's records.

use std::borrow::Cow;
use std::fmt::Write as _;

use rung_fault::Code;
use rung_tool::{Body, InputSchema, Reply, Tool};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::filter::{expand_limit_pairs, filter_pairs};
use super::id::{RecordNames, WindowId, check_name};
use super::json::{Json, JsonObject, JsonText};
use super::ladder::{Known, SHORT_CHARS, fields, identity, is_cut};
use super::list_body::{cursor_json, envelope_member, most_that_fit, records_at, remove_cursor};
use super::longs::Longs;
use super::page::{InWords, Page, Room, TooMany};
use super::provider_error::ProviderError;
use super::provider_request::ProviderRequest;
use super::short::{short_row, shorten_fields, shorten_within};
use super::text::{cut, is_longer, json_text};
use super::{PersonalData, RecordContext, usual, window};

pub(super) const TOOL: Tool<PersonalData, Input> = Tool::new(
    "query_records",
    "One page of a stream's records, 25 by default; continue with next_cursor. Filter with typed \
                  objects on fields that schema(stream) allows. For counts and sums call aggregate. Long texts become previews; \
                  content_ladder says how to read the rest.",
    InputSchema::Built(input),
    Body::Async(|context, input| Box::pin(usual(run(context, input)))),
)
.titled("Query records")
.with_output(|| super::wrapped_output(json!({})))
.without_json_text(&["filter", "expand_limit"]);

fn input() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    json!({
        "type": "object",
        "properties": {
            "stream": super::stream_input(),
            "limit": super::limit_input("Records on the page"),
            "cursor": text("next_cursor of the previous page"),
            "order": text("asc or desc by the stream's cursor field"),
            "sort": text("[-]cursor_field"),
            "view": text("View of the stream, instead of fields"),
            "changes_since": text("next_changes_since of an earlier page, or \"beginning\""),
            "count": {"enum": ["none", "estimated", "exact"], "description": "Count all matches"},
            "filter": super::filter_input(),
            "fields": super::names_input("Only these fields"),
            "expand": super::names_input("Relations to include, from expand_capabilities"),
            "expand_limit": super::expand_limit_input(),
            "connection_id": super::connection_input(),
        },
        "required": ["stream"],
        "additionalProperties": false,
    })
}

#[derive(Deserialize)]
pub(super) struct Input {
    stream: String,
    limit: Option<usize>,
    cursor: Option<String>,
    order: Option<String>,
    sort: Option<String>,
    view: Option<String>,
    changes_since: Option<String>,
    count: Option<String>,
    filter: Option<Map<String, Value>>,
    #[serde(default)]
    fields: Vec<String>,
    #[serde(default)]
    expand: Vec<String>,
    expand_limit: Option<Map<String, Value>>,
    connection_id: Option<String>,
}

async fn run(context: &RecordContext<'_>, input: Input) -> Result<Reply, ProviderError> {
    let stream = check_name("stream", &input.stream)?;
    if let Some(connection) = &input.connection_id {
        check_name("connection_id", connection)?;
    }
    let filter = filter_pairs(input.filter.as_ref())?;
    let expand_limit = expand_limit_pairs(input.expand_limit.as_ref())?;
    let connection = input.connection_id.as_deref();
    if !input.expand.is_empty() {
        check_expand(context, stream, connection, &input.expand).await?;
    }
    let ask = ProviderRequest::new(&["v1", "streams", stream, "records"])
        .with_param("limit", input.limit)
        .with_param("cursor", input.cursor)
        .with_param("order", input.order)
        .with_param("sort", input.sort)
        .with_param("view", input.view)
        .with_param("changes_since", input.changes_since)
        .with_param("count", input.count)
        .with_pairs(filter)
        .with_values("fields", &input.fields)
        .with_values("expand", &input.expand)
        .with_pairs(expand_limit)
        .with_param("connection_id", connection);
    let known = Known {
        stream: Some(stream),
        connection,
    };
    let alone = !context.call.rendering.structured;
    let mut limit: Option<usize> = None;
    for tries in 0.. {
        let ask = match limit {
            None => ask.clone(),
            Some(limit) => ask.without_param("limit").with_param("limit", Some(limit)),
        };
        let answer = context.provider.get_json(&ask).await?;
        let page_of = |body| Page {
            context,
            rows: records_at(&body),
            body,
            known,
            request_id: answer.request_id.as_deref(),
            kind: "record_set",
        };
        let words = |shortened: Option<usize>| {
            move |body: &Json<'_>, rows: &[Json<'_>], room: Room| {
                let telling = PageText {
                    stream,
                    known,
                    shortened,
                    text_only: alone,
                };
                telling.render(body, rows, room)
            }
        };
        let page = page_of(answer.body()?);
        let count = page.count();
        // A provider that ignores the limit will ignore a smaller one.
        let asked = limit.or(input.limit).unwrap_or(MAX_LIMIT);
        if count > asked || tries == MAX_TRIES {
            return Ok(page.what_fits(&words(limit)));
        }
        let TooMany(guess) = match page.reply(&words(limit)) {
            Ok(reply) => return Ok(reply),
            Err(too_many) => too_many,
        };
        // The omitted records follow at the provider's own cursor, which takes some room itself.
        let fits = |first: usize| {
            let body = answer.body().map(|body| first_rows(body, first));
            body.is_ok_and(|body| page_of(body).reply(&words(None)).is_ok())
        };
        limit = Some(match limit {
            // A record's text depends on its share of the room: more records may fit where fewer do not.
            None if alone => (1..count).rev().find(|first| fits(*first)).unwrap_or(1),
            None => most_that_fit(count, guess, fits),
            // Rendered as for a client that requested this limit.
            Some(last) => match page_of(answer.body()?).reply(&words(None)) {
                Ok(reply) => return Ok(reply),
                Err(_) => (last - 1).max(1),
            },
        });
    }
    unreachable!("the last attempt returns")
}

/// Returns a body with the first records only, and without a cursor.
fn first_rows(mut body: Json<'_>, first: usize) -> Json<'_> {
    let rows = records_at(&body);
    if let Some(Json::Array(rows)) = body.pointer_mut(rows) {
        rows.truncate(first);
    }
    remove_cursor(&mut body);
    body
}

/// Records on a page, at most.
const MAX_LIMIT: usize = 100;
/// Further requests, at most: one for as many records as fit without a cursor, then each for one less.
const MAX_TRIES: usize = 12;

/// Rejects `expand` on a stream that advertises no relations, before the records are requested.
async fn check_expand(
    context: &RecordContext<'_>,
    stream: &str,
    connection: Option<&str>,
    expand: &[String],
) -> Result<(), ProviderError> {
    let ask = ProviderRequest::new(&["v1", "schema"])
        .with_param("view", Some("compact"))
        .with_param("stream", Some(stream))
        .with_param("connection_id", connection);
    // Without a schema the provider decides.
    let Ok(answer) = context.provider.get_json(&ask).await else {
        return Ok(());
    };
    let mut listed = false;
    let Ok(body) = answer.body() else {
        return Ok(());
    };
    for (_, row) in super::schema::schema_streams(super::schema::schema_document(&body)) {
        if row["name"] != stream {
            continue;
        }
        listed = true;
        let able = &row["expand_capabilities"];
        if able.as_array().is_some_and(|able| !able.is_empty())
            || able.as_object().is_some_and(|able| !able.is_empty())
        {
            return Ok(());
        }
    }
    if !listed {
        return Ok(());
    }
    let why = format!(
        "stream {stream:?} has no advertised expand_capabilities, so {} cannot be expanded",
        expand.join(", ")
    );
    Err(ProviderError::new(Code::InvalidExpand, why))
}

/// Code points reserved for the last line.
const FOOTER_CHARS: usize = 96;
/// Records in the text, at most.
const MAX_ROWS: usize = 5;

/// The least room, in code points, in which a record's text includes the URI of its continuation.
const ADDRESS_CHARS: usize = 480;

/// Renders a page as text.
struct PageText<'a> {
    stream: &'a str,
    known: Known<'a>,
    /// The number of records that fit, if the page was shortened.
    shortened: Option<usize>,
    /// True if the reply has no structured content.
    text_only: bool,
}

impl PageText<'_> {
    fn render(&self, body: &Json<'_>, rows: &[Json<'_>], within: Room) -> InWords {
        let mut text = self.heading(body, rows);
        if rows.is_empty() {
            return (text, Vec::new(), false);
        }
        // The first records only; without structured content, all of them.
        let room = within
            .chars
            .saturating_sub(text.chars().count() + FOOTER_CHARS + 24);
        let shown = if self.text_only {
            rows.len()
        } else {
            rows.len().min(MAX_ROWS)
        };
        let _ = write!(text, " Showing up to {shown}:");
        let (mut cut_any, mut lost, mut windows) = (false, false, Vec::new());
        for (at, row) in rows.iter().take(shown).enumerate() {
            if text.len() > within.bytes {
                break;
            }
            let told = render_row(at, row, self.known, room / shown);
            text.push('\n');
            text.push_str(&told.line);
            cut_any |= told.cut;
            lost |= told.unnamed_cut;
            windows.extend(told.windows);
        }
        if self.text_only {
            return (text, windows, lost);
        }
        if cut_any && rows.len() > 1 {
            text.push_str("\nrecord_preview_truncated=true; followup=rerun_limit; machine envelope in structuredContent.data");
        } else if rows.len() > shown {
            let more = rows.len() - shown;
            let _ = write!(
                text,
                "\nmore_records={more}; followup=rerun_cursor_or_limit; machine envelope in structuredContent.data"
            );
        }
        (text, windows, lost)
    }

    fn heading(&self, body: &Json<'_>, rows: &[Json<'_>]) -> String {
        let stream = json_text(&self.stream);
        let mut text = format!("records from stream {stream}: {} record(s).", rows.len());
        if envelope_member(body, "has_more").is_some_and(|more| *more == true) {
            text.push_str(" has_more=true.");
        }
        let mut handles = Vec::new();
        for name in ["next_cursor", "next_changes_since"] {
            if let Some(value) = envelope_member(body, name).and_then(cursor_json) {
                handles.push(format!("{name}={value}"));
            }
        }
        if let Some(count) = envelope_member(body, "count")
            && let (Some(kind), Some(value)) = (count["kind"].as_str(), count["value"].as_i64())
        {
            handles.push(format!("count={kind}:{value}"));
        }
        if !handles.is_empty() {
            text.push(' ');
            text.push_str(&handles.join(" "));
            text.push('.');
        }
        if let Some(limit) = self.shortened {
            let _ = write!(
                text,
                " page_shortened=true: {limit} records fit one reply; continue with next_cursor."
            );
        }
        text
    }
}

/// The text of a record.
struct RowText {
    line: String,
    /// True if anything of it is cut.
    cut: bool,
    /// True if something is cut and no continuation names it.
    unnamed_cut: bool,
    windows: Vec<WindowId>,
}

/// Returns a record for the text, its texts cut to `chars` code points, without the members that its id repeats.
fn slim_row<'a>(row: &Json<'a>, known: Known<'_>, id: Option<&str>, chars: usize) -> Json<'a> {
    let (Some(id), Some(Json::Object(data))) = (id, row.get("data")) else {
        return short_row(row, known, chars);
    };
    let mut data = data.clone();
    shorten_fields(&mut data, chars);
    let mut told = JsonObject::default();
    told.insert("id", Json::String(id.to_owned().into()));
    told.insert("data", Json::Object(data));
    if let Some(expanded) = row.get("expanded") {
        let mut expanded = expanded.clone();
        shorten_within(&mut expanded, chars, 1);
        told.insert("expanded", expanded);
    }
    Json::Object(told)
}

/// Usual bytes of a record's text, for allocation.
const LINE_BYTES: usize = 512;

/// Renders a record: its fields, and the continuation of those that are cut.
fn render_row(at: usize, row: &Json<'_>, known: Known<'_>, max_chars: usize) -> RowText {
    let id = identity(row, known);
    let shown_id = id.map(RecordNames::to_id_string);
    let line = |chars: usize| {
        let mut line = String::with_capacity(LINE_BYTES);
        let _never_fails = write!(line, "record[{at}] ");
        slim_row(row, known, shown_id.as_deref(), chars).write(&mut line);
        line
    };
    let (Some(record), Some(id)) = (id, &shown_id) else {
        let whole = line(usize::MAX);
        let cut_any = is_longer(&whole, max_chars);
        return RowText {
            line: cut(&whole, max_chars.max(24)).into_owned(),
            cut: cut_any,
            unnamed_cut: cut_any,
            windows: Vec::new(),
        };
    };
    // A text cut to nothing still has its cut mark.
    let longs = Longs::of(std::slice::from_ref(row), known);
    let texts: Vec<&JsonText<'_>> = longs.texts().collect();
    let around = line(0).chars().count();
    let room = max_chars.saturating_sub(around);
    if around <= max_chars && fits_escaped(&texts, room + texts.len()) {
        return RowText {
            line: line(usize::MAX),
            cut: false,
            unnamed_cut: false,
            windows: Vec::new(),
        };
    }
    // The continuation is reserved first; the texts get what is left.
    let mut named: Vec<&str> = fields(row)
        .filter(|(_, value)| is_long(value))
        .map(|(name, _)| name)
        .collect();
    let way = Continuation { record, id, row };
    let beside = |named: &[&str]| {
        let reserved = way.render(1_000, named, max_chars).chars().count() + 2;
        max_chars.saturating_sub(reserved).max(24)
    };
    let room = beside(&named);
    let share = room.saturating_sub(around) / texts.len().max(1);
    let shown = texts.iter().map(|text| chars_within(text, share)).min();
    let mut shown = shown.unwrap_or(0);
    let mut told = line(shown);
    let lost = is_longer(&told, room);
    if lost {
        // Where the line itself is cut, any field may be missing: name them all.
        named = fields(row).map(|(name, _)| name).collect();
        (told, shown) = (cut(&told, beside(&named)).into_owned(), 0);
    } else {
        let nested = longs.cut_json(0, shown);
        named.retain(|name| {
            let value = row["data"].get(name).or_else(|| row.get(name));
            let text = value.and_then(Json::as_str);
            text.map_or_else(|| nested.contains(name), |text| is_cut(text, shown))
        });
    }
    if named.is_empty() {
        if lost {
            // No field has a name that can be read alone; `fetch` returns the whole record.
            let _never_fails = write!(told, "\ncontinue id={id} tool=fetch");
        }
        return RowText {
            line: told,
            cut: true,
            unnamed_cut: lost,
            windows: Vec::new(),
        };
    }
    told.push('\n');
    told.push_str(&way.render(shown, &named, max_chars));
    RowText {
        line: told,
        cut: true,
        unnamed_cut: lost,
        windows: vec![way.window(shown, &named)],
    }
}

/// True if a field may have to be cut.
fn is_long(value: &Json<'_>) -> bool {
    match value {
        Json::String(text) => is_cut(text, 0) && !super::binary::is_base64(text),
        Json::Object(_) | Json::Array(_) => value.json_bytes() > SHORT_CHARS,
        _ => false,
    }
}

/// Code points of the names of further fields, at most.
const NAMES_CHARS: usize = 600;

/// The continuation of a record.
struct Continuation<'a> {
    record: RecordNames<'a>,
    /// The record's id as text.
    id: &'a str,
    row: &'a Json<'a>,
}

impl Continuation<'_> {
    /// Returns the code points of a text field.
    fn size(&self, field: &str) -> Option<usize> {
        let value = self.row["data"].get(field).or_else(|| self.row.get(field));
        match value {
            Some(Json::String(text)) => Some(text.chars_count()),
            _ => None,
        }
    }

    /// Returns the window of the first named field, for a text from `shown` code points on.
    fn window(&self, shown: usize, named: &[&str]) -> WindowId {
        let field = named.first().copied().unwrap_or_default();
        let offset = self.size(field).map(|_| shown as u64);
        window(&self.record.to_id(), field, offset)
    }

    /// Renders the continuation of the first named field, and the names of the others.
    fn render(&self, shown: usize, named: &[&str], max_chars: usize) -> String {
        let field = named.first().copied().unwrap_or_default();
        let mut words = format!("continue id={} field_path={}", self.id, plain_name(field));
        if let Some(size) = self.size(field) {
            let _ = write!(
                words,
                " chars=0..{shown} of {size} tool=read_record_field offset_chars={shown}"
            );
        } else {
            words.push_str(" tool=read_record_field");
        }
        // The URI is among the links as well, and takes as much room as the record.
        if max_chars >= ADDRESS_CHARS {
            words.push_str(" uri=");
            words.push_str(&self.window(shown, named).uri());
        }
        let others: Vec<_> = named.iter().skip(1).map(|name| plain_name(name)).collect();
        if !others.is_empty() {
            words.push_str(" more_fields=");
            words.push_str(&cut(&others.join(","), NAMES_CHARS.min(max_chars / 3)));
        }
        words
    }
}

/// Returns a name as it is if that is unambiguous, else as a JSON string.
fn plain_name(name: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_alphanumeric() || "_.-".contains(c);
    if name.chars().all(plain) {
        return name.into();
    }
    json_text(&name).into()
}

/// True if the texts together take at most `room` code points in JSON. Stops as soon as that is certain.
fn fits_escaped(texts: &[&JsonText<'_>], room: usize) -> bool {
    // There are never more code points than bytes; in ASCII they are equal.
    let bytes: usize = texts.iter().map(|text| text.json_bytes() - 2).sum();
    if bytes <= room || texts.iter().all(|text| text.is_ascii()) {
        return bytes <= room;
    }
    let mut left = room;
    let mut chars = texts.iter().flat_map(|text| text.chars());
    chars.all(|c| {
        let fits = left.checked_sub(escaped_chars(c));
        left = fits.unwrap_or(0);
        fits.is_some()
    })
}

fn escaped_chars(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        _ => 1,
    }
}

/// Returns how many code points of a text fit into `room` code points of JSON, including the cut mark.
fn chars_within(text: &str, room: usize) -> usize {
    let mut taken = 1;
    let fits = |c: &char| {
        taken += escaped_chars(*c);
        taken <= room
    };
    text.chars().take_while(fits).count()
}

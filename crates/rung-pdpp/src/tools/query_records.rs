//! `query_records`: a page of a stream.

use std::borrow::Cow;
use std::fmt::Write as _;

use rung_fault::Code;
use rung_tool::{Pending, Reply};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::ask::Ask;
use super::filter::{expand_limit_pairs, filter_pairs};
use super::id::{RecordNames, WindowId, check_name};
use super::json::{Json, Members, Text};
use super::ladder::{Known, SHORT_CHARS, fields, identity, is_cut};
use super::list::{cursor, most_that_fit, records_at, told, without_cursor};
use super::longs::Longs;
use super::page::{InWords, Page, Room, TooMany};
use super::refusal::Refusal;
use super::short::{short_row, shorten_fields, shorten_within};
use super::text::{cut, is_longer, json_text};
use super::{Asking, Definition, read_input, window};

pub(super) const DEFINITION: Definition = Definition {
    name: "query_records",
    title: "Query records",
    description: "One page of a stream's records: 25 unless limit says otherwise, 100 at most; go on with next_cursor. Filter with typed \
                  objects on fields that schema(stream) allows. For counts and sums call aggregate. Long texts become previews; \
                  content_ladder says how to read on.",
    input,
    output: || super::wrapped(json!({})),
    sized: |_| false,
    run: |asking, given| Box::pin(run(asking, given)) as Pending<'_, _>,
};

fn input() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    json!({
        "type": "object",
        "properties": {
            "stream": super::stream_input(),
            "limit": super::limit_input("Records on the page"),
            "cursor": text("next_cursor of the page before"),
            "order": text("asc or desc by the stream's cursor field"),
            "sort": text("[-]cursor_field"),
            "view": text("A view of the stream, in place of fields"),
            "changes_since": text("next_changes_since of an earlier page, or \"beginning\""),
            "count": {"enum": ["none", "estimated", "exact"]},
            "filter": super::filter_input(),
            "fields": super::names_input("Only these fields"),
            "expand": super::names_input("Relations to read along, from expand_capabilities"),
            "expand_limit": super::expand_limit_input(),
            "connection_id": super::connection_input(),
        },
        "required": ["stream"],
        "additionalProperties": false,
    })
}

#[derive(Deserialize)]
struct Input {
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

async fn run(asking: &Asking<'_>, given: Value) -> Result<Reply, Refusal> {
    let input: Input = read_input(given)?;
    let stream = check_name("stream", &input.stream)?;
    if let Some(connection) = &input.connection_id {
        check_name("connection_id", connection)?;
    }
    let filter = filter_pairs(input.filter.as_ref())?;
    let expand_limit = expand_limit_pairs(input.expand_limit.as_ref())?;
    let connection = input.connection_id.as_deref();
    if !input.expand.is_empty() {
        check_expand(asking, stream, connection, &input.expand).await?;
    }
    let ask = Ask::at(&["v1", "streams", stream, "records"])
        .with("limit", input.limit)
        .with("cursor", input.cursor)
        .with("order", input.order)
        .with("sort", input.sort)
        .with("view", input.view)
        .with("changes_since", input.changes_since)
        .with("count", input.count)
        .and(filter)
        .each("fields", &input.fields)
        .each("expand", &input.expand)
        .and(expand_limit)
        .with("connection_id", connection);
    let known = Known {
        stream: Some(stream),
        connection,
    };
    let alone = !asking.call.rendering.structured;
    let mut limit: Option<usize> = None;
    for tries in 0.. {
        let ask = match limit {
            None => ask.clone(),
            Some(limit) => ask.without("limit").with("limit", Some(limit)),
        };
        let answer = asking.provider.read(&ask).await?;
        let page_of = |body| Page {
            asking,
            rows: records_at(&body),
            body,
            known,
            request_id: answer.request_id.as_deref(),
            kind: "record_set",
        };
        let words = |shortened: Option<usize>| {
            move |body: &Json<'_>, rows: &[Json<'_>], room: Room| {
                let telling = Telling {
                    stream,
                    known,
                    shortened,
                    alone,
                };
                telling.words(body, rows, room)
            }
        };
        let page = page_of(answer.body()?);
        let count = page.count();
        // A provider that gives more than was asked for will not give less.
        let asked = limit.or(input.limit).unwrap_or(MAX_LIMIT);
        if count > asked || tries == MAX_TRIES {
            return Ok(page.what_fits(&words(limit)));
        }
        let TooMany(guess) = match page.reply(&words(limit)) {
            Ok(reply) => return Ok(reply),
            Err(too_many) => too_many,
        };
        // The provider's own cursor leads on to the records that are left out here, and takes some room itself.
        let fits = |first: usize| {
            let body = answer.body().map(|body| shortened(body, first));
            body.is_ok_and(|body| page_of(body).reply(&words(None)).is_ok())
        };
        limit = Some(match limit {
            // How a record is told in words depends on its share of the room: a larger number may fit where a smaller one does not.
            None if alone => (1..count).rev().find(|first| fits(*first)).unwrap_or(1),
            None => most_that_fit(count, guess, fits),
            // As it would be told to a client that asked for no more than this.
            Some(last) => match page_of(answer.body()?).reply(&words(None)) {
                Ok(reply) => return Ok(reply),
                Err(_) => (last - 1).max(1),
            },
        });
    }
    unreachable!("the last try is answered")
}

/// A body with the first of its records, and without a cursor.
fn shortened(mut body: Json<'_>, first: usize) -> Json<'_> {
    let rows = records_at(&body);
    if let Some(Json::Array(rows)) = body.at_mut(rows) {
        rows.truncate(first);
    }
    without_cursor(&mut body);
    body
}

/// Records on a page, at most.
const MAX_LIMIT: usize = 100;
/// How often fewer records are asked for: once for as many as fit without a cursor, then for one less each time.
const MAX_TRIES: usize = 12;

/// Refuses relations of a stream that advertises none, before the records are asked for.
async fn check_expand(
    asking: &Asking<'_>,
    stream: &str,
    connection: Option<&str>,
    expand: &[String],
) -> Result<(), Refusal> {
    let ask = Ask::at(&["v1", "schema"])
        .with("view", Some("compact"))
        .with("stream", Some(stream))
        .with("connection_id", connection);
    // Where the schema does not say, the provider decides.
    let Ok(answer) = asking.provider.read(&ask).await else {
        return Ok(());
    };
    let mut listed = false;
    let Ok(body) = answer.body() else {
        return Ok(());
    };
    for (_, row) in super::schema::streams(super::schema::document(&body)) {
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
        "stream {stream:?} has no advertised expand_capabilities, so {} cannot be read along",
        expand.join(", ")
    );
    Err(Refusal::new(Code::InvalidExpand, why))
}

/// Set aside for the last line.
const FOOTER_CHARS: usize = 96;
/// Records in words.
const MAX_ROWS: usize = 5;

/// Code points that a record in words has where the address of its rest stands with it.
const ADDRESS_CHARS: usize = 480;

/// How a page is told in words.
struct Telling<'a> {
    stream: &'a str,
    known: Known<'a>,
    /// To so many records, because more would not fit.
    shortened: Option<usize>,
    /// Whether the words are all that is sent.
    alone: bool,
}

impl Telling<'_> {
    fn words(&self, body: &Json<'_>, rows: &[Json<'_>], within: Room) -> InWords {
        let mut text = self.heading(body, rows);
        if rows.is_empty() {
            return (text, Vec::new(), false);
        }
        // The first records, however many there are; where there is nothing but words, all of them.
        let room = within
            .chars
            .saturating_sub(text.chars().count() + FOOTER_CHARS + 24);
        let shown = if self.alone {
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
            let told = row_words(at, row, self.known, room / shown);
            text.push('\n');
            text.push_str(&told.line);
            cut_any |= told.cut;
            lost |= told.lost;
            windows.extend(told.windows);
        }
        if self.alone {
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
        if told(body, "has_more").is_some_and(|more| *more == true) {
            text.push_str(" has_more=true.");
        }
        let mut handles = Vec::new();
        for name in ["next_cursor", "next_changes_since"] {
            if let Some(value) = told(body, name).and_then(cursor) {
                handles.push(format!("{name}={value}"));
            }
        }
        if let Some(count) = told(body, "count")
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
                " page_shortened=true: {limit} records fit one reply; go on with next_cursor."
            );
        }
        text
    }
}

/// A record in words.
struct Told {
    line: String,
    /// Whether anything of it is cut.
    cut: bool,
    /// Whether something is cut that is not named with how to read on.
    lost: bool,
    windows: Vec<WindowId>,
}

/// A record in words, its texts cut to so many code points. Whose it is stands in its id, and is not told again.
fn slim<'a>(row: &Json<'a>, known: Known<'_>, id: Option<&str>, chars: usize) -> Json<'a> {
    let (Some(id), Some(Json::Object(data))) = (id, row.get("data")) else {
        return short_row(row, known, chars);
    };
    let mut data = data.clone();
    shorten_fields(&mut data, chars);
    let mut told = Members::default();
    told.insert("id", Json::String(id.to_owned().into()));
    told.insert("data", Json::Object(data));
    if let Some(expanded) = row.get("expanded") {
        let mut expanded = expanded.clone();
        shorten_within(&mut expanded, chars, 1);
        told.insert("expanded", expanded);
    }
    Json::Object(told)
}

/// Bytes of a record in words, as a rule.
const LINE_BYTES: usize = 512;

/// A record in words: its fields, and where those that are cut go on.
fn row_words(at: usize, row: &Json<'_>, known: Known<'_>, max_chars: usize) -> Told {
    let id = identity(row, known);
    let shown_id = id.map(RecordNames::shown);
    let line = |chars: usize| {
        let mut line = String::with_capacity(LINE_BYTES);
        let _never_fails = write!(line, "record[{at}] ");
        slim(row, known, shown_id.as_deref(), chars).write(&mut line);
        line
    };
    let (Some(record), Some(id)) = (id, &shown_id) else {
        let whole = line(usize::MAX);
        let cut_any = is_longer(&whole, max_chars);
        return Told {
            line: cut(&whole, max_chars.max(24)).into_owned(),
            cut: cut_any,
            lost: cut_any,
            windows: Vec::new(),
        };
    };
    // Where a text is cut to nothing the mark that it was cut is left.
    let longs = Longs::of(std::slice::from_ref(row), known);
    let texts: Vec<&Text<'_>> = longs.texts().collect();
    let around = line(0).chars().count();
    let room = max_chars.saturating_sub(around);
    if around <= max_chars && escaped_within(&texts, room + texts.len()) {
        return Told {
            line: line(usize::MAX),
            cut: false,
            lost: false,
            windows: Vec::new(),
        };
    }
    // The way on is told first, and the texts get what is left.
    let mut named: Vec<&str> = fields(row)
        .filter(|(_, value)| is_long(value))
        .map(|(name, _)| name)
        .collect();
    let way = Way { record, id, row };
    let beside = |named: &[&str]| {
        let reserved = way.words(1_000, named, max_chars).chars().count() + 2;
        max_chars.saturating_sub(reserved).max(24)
    };
    let room = beside(&named);
    let share = room.saturating_sub(around) / texts.len().max(1);
    let shown = texts.iter().map(|text| chars_within(text, share)).min();
    let mut shown = shown.unwrap_or(0);
    let mut told = line(shown);
    let lost = is_longer(&told, room);
    if lost {
        // Where the line itself ends early nothing is sure to be there, and everything is named.
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
            // Its fields have names that lead nowhere; all of them together can be had.
            let _never_fails = write!(told, "\ncontinue id={id} tool=fetch");
        }
        return Told {
            line: told,
            cut: true,
            lost,
            windows: Vec::new(),
        };
    }
    told.push('\n');
    told.push_str(&way.words(shown, &named, max_chars));
    Told {
        line: told,
        cut: true,
        lost,
        windows: vec![way.window(shown, &named)],
    }
}

/// Whether a field may have to be cut.
fn is_long(value: &Json<'_>) -> bool {
    match value {
        Json::String(text) => is_cut(text, 0) && !super::binary::is_base64(text),
        Json::Object(_) | Json::Array(_) => value.bytes() > SHORT_CHARS,
        _ => false,
    }
}

/// Code points of the names of further fields.
const NAMES_CHARS: usize = 600;

/// How a record is read on.
struct Way<'a> {
    record: RecordNames<'a>,
    /// The record, as agents know it.
    id: &'a str,
    row: &'a Json<'a>,
}

impl Way<'_> {
    /// Code points of a field, where it is a text.
    fn size(&self, field: &str) -> Option<usize> {
        let value = self.row["data"].get(field).or_else(|| self.row.get(field));
        match value {
            Some(Json::String(text)) => Some(text.chars_count()),
            _ => None,
        }
    }

    /// The first of some fields, from so many code points on where it is a text.
    fn window(&self, shown: usize, named: &[&str]) -> WindowId {
        let field = named.first().copied().unwrap_or_default();
        let offset = self.size(field).map(|_| shown as u64);
        window(&self.record.to_id(), field, offset)
    }

    /// How the first of some fields goes on, and the names of the others.
    fn words(&self, shown: usize, named: &[&str], max_chars: usize) -> String {
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
        // The address is among the links as well, and takes as much room as the record.
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

/// A name as it is, where nothing in it could be taken for something else.
fn plain_name(name: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_alphanumeric() || "_.-".contains(c);
    if name.chars().all(plain) {
        return name.into();
    }
    json_text(&name).into()
}

/// Whether some texts take no more than so many code points in JSON together, found out without reading them all.
fn escaped_within(texts: &[&Text<'_>], room: usize) -> bool {
    // There are no more code points than bytes, and in ASCII there are as many.
    let bytes: usize = texts.iter().map(|text| text.json_bytes() - 2).sum();
    if bytes <= room || texts.iter().all(|text| text.is_ascii()) {
        return bytes <= room;
    }
    let mut left = room;
    let mut chars = texts.iter().flat_map(|text| text.chars());
    chars.all(|c| {
        let fits = left.checked_sub(escaped(c));
        left = fits.unwrap_or(0);
        fits.is_some()
    })
}

fn escaped(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        _ => 1,
    }
}

/// Code points of a text that fit into so many of JSON, with the mark that it was cut.
fn chars_within(text: &str, room: usize) -> usize {
    let mut taken = 1;
    let fits = |c: &char| {
        taken += escaped(*c);
        taken <= room
    };
    text.chars().take_while(fits).count()
}

//! A page of records as text: for each record its id, its fields as far as they fit, and the continuation of those that are cut. A
//! record of which little fits is shown by its title.

use std::borrow::Cow;
use std::fmt::Write as _;

use rung_ladder::json_string_bytes;
use rung_tool::ContentBlock;

use super::RecordContext;
use super::hit::title;
use super::id::{RecordNames, WindowId};
use super::json::{Json, JsonObject, JsonText};
use super::ladder::{ImpliedIdentity, SHORT_CHARS, fields, identity, is_cut};
use super::list_body::{cursor_json, envelope_member};
use super::long_fields::LongFields;
use super::short::{conceal_bytes, short_row, shorten_fields, shorten_within};
use super::text::{cut, is_longer, json_text};
use super::window;

/// The least room of a record, in code points, in which its text includes the URI of its continuation.
const ADDRESS_CHARS: usize = 480;
/// Links to continuations, at most.
const MAX_LINKS: usize = 5;
/// For a record of which little fits: code points of its title, at most, and of the fields after it, at least.
const TITLE_CHARS: usize = 80;
const FIRST_CHARS: usize = 48;

/// A page of records to be rendered as text.
pub(super) struct PageText<'a> {
    pub(super) context: &'a RecordContext<'a>,
    pub(super) body: &'a Json<'a>,
    pub(super) rows: &'a [Json<'a>],
    pub(super) stream: &'a str,
    pub(super) known: ImpliedIdentity<'a>,
    /// The number of records that fit, if the page was shortened.
    pub(super) shortened: Option<usize>,
}

impl PageText<'_> {
    /// Renders all records in about `max_bytes`.
    pub(super) fn content(&self, max_bytes: usize) -> Vec<ContentBlock> {
        let rows = self.rows;
        let mut text = self.heading();
        let mut windows = Vec::new();
        if !rows.is_empty() {
            let _never_fails = write!(text, " Showing up to {}:", rows.len());
            let room = max_bytes.saturating_sub(json_string_bytes(&text));
            let sizes: Vec<usize> = rows.iter().map(|row| row.json_bytes().min(room)).collect();
            let share = equal_share(&sizes, room);
            for (at, (row, size)) in rows.iter().zip(sizes).enumerate() {
                let max_chars = if size <= share { room } else { share };
                let row = render_row(at, row, self.known, max_chars);
                text.push('\n');
                text.push_str(&row.line);
                windows.extend(row.window);
            }
        }
        windows.truncate(MAX_LINKS);
        self.context.content(text, &windows)
    }

    fn heading(&self) -> String {
        let body = self.body;
        let stream = json_text(&self.stream);
        let mut text = format!(
            "records from stream {stream}: {} record(s).",
            self.rows.len()
        );
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

/// Returns an equal share of the room. Sizes below the share leave the rest of theirs to the others. Returns `usize::MAX` if all
/// sizes fit.
fn equal_share(sizes: &[usize], room: usize) -> usize {
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    let (mut room, mut count) = (room, sorted.len());
    for size in sorted {
        if size > room / count {
            break;
        }
        room -= size;
        count -= 1;
    }
    room.checked_div(count).unwrap_or(usize::MAX)
}

/// The text of a record.
struct RowText {
    line: String,
    /// The window in which the first cut field continues.
    window: Option<WindowId>,
}

/// Returns a record for the text, with its texts cut to `chars` code points. A record with an id and an envelope is reduced to its
/// id, its data and its expanded relations; any other keeps all members.
fn slim_row<'a>(
    row: &Json<'a>,
    known: ImpliedIdentity<'_>,
    id: Option<&str>,
    chars: usize,
) -> Json<'a> {
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

/// Renders a record in about `max_chars` code points: its fields, and the continuation of those that are cut. The id and the
/// continuation are never left out. `at` is the index of the record on the page.
fn render_row(at: usize, row: &Json<'_>, known: ImpliedIdentity<'_>, max_chars: usize) -> RowText {
    let id = identity(row, known);
    let shown_id = id.map(RecordNames::to_id_string);
    let line = |chars: usize| {
        let mut line = String::with_capacity(LINE_BYTES);
        let _never_fails = write!(line, "record[{at}] ");
        slim_row(row, known, shown_id.as_deref(), chars).write(&mut line);
        line
    };
    let (Some(record), Some(id)) = (id, &shown_id) else {
        return RowText {
            line: cut(&line(usize::MAX), max_chars.max(FIRST_CHARS)).into_owned(),
            window: None,
        };
    };
    // A text cut to nothing still has its cut mark, which the whole text does not need.
    let long_fields = LongFields::of(std::slice::from_ref(row), known);
    let texts: Vec<&JsonText<'_>> = long_fields.texts().collect();
    let around = line(0).chars().count();
    let room = max_chars.saturating_sub(around);
    if around <= max_chars && fits_escaped(&texts, room + texts.len()) {
        return RowText {
            line: line(usize::MAX),
            window: None,
        };
    }
    // Room for the continuation is reserved first; the texts get the rest.
    let mut named: Vec<&str> = fields(row)
        .filter(|(_, value)| is_long(value))
        .map(|(name, _)| name)
        .collect();
    let continuation = Continuation { record, id, row };
    let beside = |named: &[&str]| {
        // The offset is not known yet: its digits are estimated.
        let reserved = continuation.render(1_000, named, max_chars).chars().count() + 2;
        max_chars.saturating_sub(reserved)
    };
    let room = beside(&named);
    // Texts that are shorter than their share leave the rest to the others.
    let sizes: Vec<usize> = texts.iter().map(|text| text.json_bytes() - 2).collect();
    let share = equal_share(&sizes, room.saturating_sub(around));
    let cut = texts.iter().zip(sizes).filter(|(_, size)| *size > share);
    let shown = cut.map(|(text, _)| chars_within(text, share)).min();
    let mut shown = shown.unwrap_or(share);
    let mut text = line(shown);
    if is_longer(&text, room) {
        // The line is replaced by a shorter one, in which any field may be missing: name them all.
        named = fields(row).map(|(name, _)| name).collect();
        (text, shown) = (titled_line(at, row, id, beside(&named)), 0);
    } else {
        let nested = long_fields.cut_json(0, shown);
        named.retain(|name| {
            let value = row["data"].get(name).or_else(|| row.get(name));
            let text = value.and_then(Json::as_str);
            text.map_or_else(|| nested.contains(name), |text| is_cut(text, shown))
        });
    }
    if named.is_empty() {
        // No field of the record itself continues: `fetch` returns the whole record.
        let _never_fails = write!(text, "\ncontinue id={id} tool=fetch");
        return RowText {
            line: text,
            window: None,
        };
    }
    text.push('\n');
    text.push_str(&continuation.render(shown, &named, max_chars));
    RowText {
        line: text,
        window: Some(continuation.window(shown, &named)),
    }
}

/// Renders a record of which little fits: its id, its title, and the beginning of its first long text, or else of its fields. The
/// line ends where it is cut, so it is not valid JSON.
fn titled_line(at: usize, row: &Json<'_>, id: &str, max_chars: usize) -> String {
    let title = cut(&title(row), TITLE_CHARS).into_owned();
    let mut line = format!(
        "record[{at}] {{\"id\":{},\"title\":{},",
        json_text(&id),
        json_text(&title)
    );
    let first_chars = max_chars.saturating_sub(line.chars().count());
    let first_chars = first_chars.max(FIRST_CHARS);
    let text = fields(row).find(|(_, value)| value.is_string() && is_long(value));
    let (name, mut value) = match (text, row.get("data")) {
        (Some((name, text)), _) => (name, text.clone()),
        (None, Some(data @ Json::Object(_))) => ("data", data.clone()),
        (None, _) => ("data", row.clone()),
    };
    conceal_bytes(&mut value);
    if let Json::String(text) = &value {
        value = Json::String(rung_ladder::head(text, 4 * first_chars).to_owned().into());
    }
    let fields = format!("{}:{value}", json_text(&name));
    line.push_str(&cut(&fields, first_chars));
    line
}

/// Returns true if a field may be cut. Base64 is replaced, never cut.
fn is_long(value: &Json<'_>) -> bool {
    match value {
        Json::String(text) => is_cut(text, 0) && !super::binary::is_base64(text),
        Json::Object(_) | Json::Array(_) => value.json_bytes() > SHORT_CHARS,
        _ => false,
    }
}

/// Code points of the names of further fields, at most.
const NAMES_CHARS: usize = 600;

/// The continuation of a record whose fields are cut.
struct Continuation<'a> {
    record: RecordNames<'a>,
    /// The id of the record as text.
    id: &'a str,
    row: &'a Json<'a>,
}

impl Continuation<'_> {
    /// Returns the size of a text field in code points; `None` for any other field.
    fn size(&self, field: &str) -> Option<usize> {
        let value = self.row["data"].get(field).or_else(|| self.row.get(field));
        match value {
            Some(Json::String(text)) => Some(text.chars_count()),
            _ => None,
        }
    }

    /// Returns the window of the first field in `named`. The window of a text begins at code point `shown`.
    fn window(&self, shown: usize, named: &[&str]) -> WindowId {
        let field = named.first().copied().unwrap_or_default();
        let offset = self.size(field).map(|_| shown as u64);
        window(&self.record.to_id(), field, offset)
    }

    /// Renders the continuation of the first field in `named`, and the names of the others.
    fn render(&self, shown: usize, named: &[&str], max_chars: usize) -> String {
        let field = named.first().copied().unwrap_or_default();
        let mut line = format!("continue id={} field_path={}", self.id, plain_name(field));
        if let Some(size) = self.size(field) {
            let _never_fails = write!(
                line,
                " chars=0..{shown} of {size} tool=read_record_field offset_chars={shown}"
            );
        } else {
            line.push_str(" tool=read_record_field");
        }
        // The URI may be as long as a short record, and is among the links as well.
        if max_chars >= ADDRESS_CHARS {
            line.push_str(" uri=");
            line.push_str(&self.window(shown, named).uri());
        }
        let others: Vec<_> = named.iter().skip(1).map(|name| plain_name(name)).collect();
        if !others.is_empty() {
            line.push_str(" more_fields=");
            line.push_str(&cut(&others.join(","), NAMES_CHARS.min(max_chars / 3)));
        }
        line
    }
}

/// Returns a name unchanged if that is unambiguous in a line, else as a JSON string.
fn plain_name(name: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_alphanumeric() || "_.-".contains(c);
    if name.chars().all(plain) {
        return name.into();
    }
    json_text(&name).into()
}

/// Returns true if the texts together take at most `room` code points in JSON. Stops as soon as the answer is certain.
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

/// Returns the code points that a character takes in a JSON string.
fn escaped_chars(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        _ => 1,
    }
}

/// Returns the number of code points of a text that fit into `room` code points of JSON together with the cut mark.
fn chars_within(text: &str, room: usize) -> usize {
    let mut taken = 1;
    let fits = |c: &char| {
        taken += escaped_chars(*c);
        taken <= room
    };
    text.chars().take_while(fits).count()
}

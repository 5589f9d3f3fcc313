//! A page of records as structured content, in more or less detail.
//!
//! A page that fits is sent as the provider sent it, apart from base64. Otherwise members that every row repeats are removed, and
//! long texts become previews with continuations. If that is not enough, long lists and objects become previews as well. Names,
//! cursors and short fields are never cut.

use std::cell::OnceCell;

use rung_ladder::json_string_bytes;
use rung_ladder::{Budget, Path, fit};
use rung_tool::{ContentBlock, RowDetail, Rows, to_raw_json};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::RecordContext;
use super::binary::is_base64;
use super::id::{RecordId, RecordNames};
use super::json::{Json, JsonObject, RawJson};
use super::ladder::{ImpliedIdentity, LONG_CHARS, Ladder, MAX_RECORDS, identity, is_cut};
use super::long_fields::LongFields;
use super::page_text::PageText;
use super::short::{conceal_bytes, preview, shorten};
use super::text::json_text;

/// The `kind` of the content ladder.
const KIND: &str = "record_set";
/// Bytes to which a long list or object is cut.
const LIST_BYTES: usize = 256;
/// Names of omitted fields that are listed, at most, and bytes of room that each of them requires.
const OMITTED_NAMES: usize = 24;
const OMITTED_SHARE: usize = 400;
/// Renderings of a page that is too large, each with less room, before the least is rendered.
const MAX_RENDERINGS: usize = 4;
/// Code points to which the texts of a page that is too large are cut.
const LEAST_CHARS: usize = 16;

/// Members of a row that identify its record. They are never left out: without them its fields could not be continued.
const KEPT_MEMBERS: [&str; 9] = [
    "id",
    "record_id",
    "record_key",
    "key",
    "stream",
    "connection_id",
    "connector_instance_id",
    "emitted_at",
    "data",
];

/// A page of records.
pub(super) struct Page<'a> {
    pub(super) context: &'a RecordContext<'a>,
    /// The provider's response.
    pub(super) body: Json<'a>,
    /// The path of the rows in `body`.
    pub(super) rows_at: &'static str,
    pub(super) known: ImpliedIdentity<'a>,
    pub(super) stream: &'a str,
    /// The number of records in the repeated request, if the first one returned more than fit.
    pub(super) shortened: Option<usize>,
    pub(super) request_id: Option<&'a str>,
    /// The response without the members that every row repeats, computed on first use.
    pub(super) lean_body: OnceCell<Json<'a>>,
}

impl Rows for Page<'_> {
    fn count(&self) -> usize {
        self.rows().len()
    }

    fn content(&self, max_bytes: usize) -> Vec<ContentBlock> {
        self.text(self.rows()).content(max_bytes)
    }

    fn structured(&self, detail: RowDetail, max_bytes: usize) -> Option<Box<RawValue>> {
        let rendered = match detail {
            RowDetail::Whole => return self.whole(max_bytes),
            RowDetail::Described(_) if self.count() > MAX_RECORDS => return None,
            RowDetail::Described(chars) => self.with_short_texts(chars, true),
            RowDetail::Texts(chars) => self.with_short_texts(chars, false),
            RowDetail::TextsAndLists(chars) => {
                self.in_part(self.lean_body().clone(), chars, Value::Null)
            }
        };
        (rendered.get().len() <= max_bytes).then_some(rendered)
    }

    fn structured_in_part(&self, max_bytes: usize) -> Box<RawValue> {
        let around = self.render(&Json::Null, None).get().len();
        let mut room = max_bytes.saturating_sub(around);
        // The size is estimated for the cut and then measured. While it is too large, the room shrinks by the excess.
        for _ in 0..MAX_RENDERINGS {
            let rendered = self.fitted_to(room);
            let over = rendered.get().len().saturating_sub(max_bytes);
            if over == 0 {
                return rendered;
            }
            room = room.saturating_sub(over + 64);
        }
        self.fitted_to(0)
    }
}

/// Returns true if a value contains base64, which is replaced by its length.
fn has_binary(value: &Json<'_>) -> bool {
    match value {
        Json::String(text) => is_base64(text),
        Json::Array(items) => items.iter().any(has_binary),
        Json::Object(members) => members.values().any(has_binary),
        Json::Null | Json::Bool(_) | Json::Number(_) => false,
    }
}

/// Returns true if a row has no expanded records and all its fields are short: the ladder has nothing to list, and no field is
/// base64.
fn is_plain(row: &Json<'_>) -> bool {
    let short = |value: &Json<'_>| match value {
        Json::String(text) => text.len() <= LONG_CHARS && !is_base64(text),
        Json::Array(_) | Json::Object(_) => false,
        _ => true,
    };
    row.get("expanded").is_none() && super::ladder::fields(row).all(|(_, value)| short(value))
}

/// Returns the estimated bytes of a row after its texts and lists are cut, including the ladder entries of the cut ones.
fn shrunk_row(row: &Json<'_>, chars: usize) -> usize {
    let enveloped = row.get("data").is_some_and(Json::is_object);
    let own = row.as_object().into_iter().flat_map(JsonObject::iter);
    let each = own.map(|(name, value)| match value {
        Json::Object(data) if name == "data" => {
            let fields = data.iter();
            let fields = fields.map(|(name, value)| shrunk_field(name, value, true, chars));
            name.len() + 6 + fields.sum::<usize>()
        }
        _ if enveloped => whole_member(name, value),
        _ => shrunk_field(name, value, false, chars),
    });
    2 + each.sum::<usize>()
}

/// Returns the estimated bytes of a member after it is cut. A member that is not a field is not cut. A list or an object is cut
/// only in an envelope's `data`.
fn shrunk_field(name: &str, value: &Json<'_>, enveloped: bool, chars: usize) -> usize {
    const LISTED_BYTES: usize = 120;
    const CUT_BYTES: usize = LIST_BYTES + 200;
    let around = name.len() + 4;
    match value {
        _ if !super::ladder::is_field(name, enveloped) => whole_member(name, value),
        Json::String(text) if is_cut(text, chars) => {
            around + json_string_bytes(&preview(text, chars)) + LISTED_BYTES
        }
        Json::Array(_) | Json::Object(_) if enveloped => around + value.json_bytes().min(CUT_BYTES),
        value => around + value.json_bytes(),
    }
}

/// Returns the bytes of a member that is not cut, with quotes, colon and comma.
fn whole_member(name: &str, value: &Json<'_>) -> usize {
    name.len() + 4 + value.json_bytes()
}

/// Adds the lists and objects that were cut to the content ladder. Replaces the entry of a field that is listed already.
fn list_cut_json(ladder: &mut Option<Value>, cut: Vec<(RecordId, String, usize)>) {
    if cut.is_empty() {
        return;
    }
    let all = ladder.get_or_insert_with(
        || json!({"kind": KIND, "read_tool": "read_record_field", "records": []}),
    );
    let Some(entries) = all["records"].as_array_mut() else {
        return;
    };
    for (id, field, size) in cut {
        let id = id.to_string();
        let told = json!({
            "field_path": field, "json_field": true, "preview_status": "truncated", "size_chars": size,
            "read": {"tool": "read_record_field", "args": {"id": id, "field_path": field}},
        });
        let at = entries.iter().position(|entry| entry["id"] == id.as_str());
        let at = at.unwrap_or_else(|| {
            entries.push(json!({"id": id}));
            entries.len() - 1
        });
        match entries[at]["json_fields"].as_array_mut() {
            Some(fields) => {
                fields.retain(|one| one["field_path"] != field.as_str());
                fields.push(told);
            }
            None => entries[at]["json_fields"] = json!([told]),
        }
    }
}

impl<'a> Page<'a> {
    /// Renders the content of so many of the first records, with the least of each.
    pub(super) fn content_of_first(&self, rows: usize) -> Vec<ContentBlock> {
        self.text(&self.rows()[..rows]).content(0)
    }

    fn ladder(&self) -> Ladder<'_> {
        Ladder {
            key: &self.context.options.key,
            authority: self.context.provider.authority(),
        }
    }

    fn rows(&self) -> &[Json<'a>] {
        let rows = self.body.pointer(self.rows_at).and_then(Json::as_array);
        rows.unwrap_or_default()
    }

    fn rows_of<'b>(&self, body: &'b Json<'a>) -> &'b [Json<'a>] {
        let rows = body.pointer(self.rows_at).and_then(Json::as_array);
        rows.unwrap_or_default()
    }

    fn text<'s>(&'s self, rows: &'s [Json<'a>]) -> PageText<'s> {
        PageText {
            context: self.context,
            body: &self.body,
            rows,
            stream: self.stream,
            known: self.known,
            shortened: self.shortened,
        }
    }

    fn lean_body(&self) -> &Json<'a> {
        self.lean_body.get_or_init(|| {
            let mut body = self.body.clone();
            remove_repetitions(&mut body, self.rows_at);
            body
        })
    }

    /// Returns the structured content with `body` as its data.
    fn render(&self, body: &Json<'_>, ladder: Option<Box<RawValue>>) -> Box<RawValue> {
        const DATA: &str = "{\"data\":";
        let mut members: Vec<(&'static str, Box<RawValue>)> = Vec::new();
        if let Some(fitting) = self.shortened {
            let shortened = json!({"records": fitting, "next": "continue with next_cursor"});
            members.push(("page_shortened", to_raw_json(&shortened)));
        }
        members.extend(ladder.map(|ladder| ("content_ladder", ladder)));
        let around = self
            .context
            .structured(Value::Null, members, self.request_id);
        let around = to_raw_json(&around);
        // The body is written in the position of the null, without an intermediate copy.
        let rest = &around.get()[DATA.len() + "null".len()..];
        let mut rendered = String::with_capacity(around.get().len() + body.json_bytes());
        rendered.push_str(DATA);
        body.write(&mut rendered);
        rendered.push_str(rest);
        to_raw_json(&RawJson::new(rendered))
    }

    /// Returns the structured content with the body as the provider sent it, apart from base64; `None` if it has more than
    /// `max_bytes`.
    fn whole(&self, max_bytes: usize) -> Option<Box<RawValue>> {
        let is_binary = self.rows().iter().any(has_binary);
        // A body with base64 gets smaller, so its size is not known yet.
        if !is_binary && self.body.is_larger(max_bytes) {
            return None;
        }
        // Plain rows have no ladder entries, so they are not searched for long texts.
        let is_plain = self.rows().iter().all(is_plain);
        let rows = if is_plain { &[] } else { self.rows() };
        let ladder = LongFields::of(rows, self.known).ladder(KIND, usize::MAX, self.ladder(), true);
        let ladder = ladder.map(|ladder| to_raw_json(&ladder));
        let rendered = if is_binary {
            let mut body = self.body.clone();
            self.shorten(&mut body, usize::MAX);
            self.render(&body, ladder)
        } else {
            self.render(&self.body, ladder)
        };
        (rendered.get().len() <= max_bytes).then_some(rendered)
    }

    /// Returns the structured content with texts cut to `chars` code points. With `described`, the ladder describes the fields of
    /// the first records.
    fn with_short_texts(&self, chars: usize, described: bool) -> Box<RawValue> {
        let body = self.lean_body();
        let fields = LongFields::of(self.rows_of(body), self.known);
        let ladder = fields.ladder(KIND, chars, self.ladder(), described);
        let ladder = ladder.map(|ladder| to_raw_json(&ladder));
        let mut body = body.clone();
        self.shorten(&mut body, chars);
        self.render(&body, ladder)
    }

    /// Returns the structured content with texts, lists and objects cut. `omitted` describes what was removed from `body` before;
    /// it is null if nothing was.
    fn in_part(&self, mut body: Json<'a>, chars: usize, omitted: Value) -> Box<RawValue> {
        let fields = LongFields::of(self.rows_of(&body), self.known);
        let ladder = fields.ladder(KIND, chars, self.ladder(), false);
        let mut ladder = ladder.map(|ladder| json!(ladder));
        let cut = self.cut_lists(&mut body, LIST_BYTES);
        list_cut_json(&mut ladder, cut);
        if !omitted.is_null() {
            ladder.get_or_insert_with(|| json!({"kind": KIND}))["omitted"] = omitted;
        }
        self.shorten(&mut body, chars);
        self.render(&body, ladder.map(|ladder| to_raw_json(&ladder)))
    }

    /// Returns the structured content with the records or fields that fit into about `room` bytes. The ladder describes the rest.
    fn fitted_to(&self, room: usize) -> Box<RawValue> {
        let mut body = self.lean_body().clone();
        let omitted = self.leave_out(&mut body, room, LEAST_CHARS);
        self.in_part(body, LEAST_CHARS, omitted)
    }

    /// Cuts the texts of the rows to `chars` code points.
    fn shorten(&self, body: &mut Json<'_>, chars: usize) {
        if let Some(Json::Array(rows)) = body.pointer_mut(self.rows_at) {
            for row in rows {
                shorten(row, self.known, chars);
            }
        }
    }

    /// Removes what does not fit into `room` bytes after the cut: the last of several records, or the largest fields of a single
    /// record. The first of several records is kept with all its fields. Returns a description of what was removed; null if nothing
    /// was.
    fn leave_out(&self, body: &mut Json<'_>, room: usize, chars: usize) -> Value {
        let known = self.known;
        let most_names = OMITTED_NAMES.min(room / OMITTED_SHARE);
        let Some(Json::Array(rows)) = body.pointer_mut(self.rows_at) else {
            return Value::Null;
        };
        let mut names = Vec::new();
        if rows.len() > 1 {
            let all = rows.len();
            let mut taken = 0;
            let fits = |row: &&Json<'_>| {
                taken += shrunk_row(row, chars);
                taken <= room
            };
            let kept = rows.iter().take_while(fits).count().max(1);
            rows.truncate(kept);
            if kept == all {
                return Value::Null;
            }
            return json!({"records": all - kept, "why": "the provider returned more than was requested", "read": "request fewer with limit or filter"});
        }
        let Some(row) = rows.first_mut() else {
            return Value::Null;
        };
        let id = identity(row, known).map(RecordNames::to_id_string);
        let mut over = shrunk_row(row, chars).saturating_sub(room);
        let mut drop_from = |members: &mut JsonObject<'_>, kept: &[&str], enveloped: bool| {
            let mut sizes: Vec<(usize, String)> = members
                .iter()
                .filter(|(name, _)| !kept.contains(name))
                .map(|(name, value)| {
                    let bytes = shrunk_field(name, value, enveloped, chars);
                    (bytes, name.to_owned())
                })
                .collect();
            sizes.sort_unstable_by(|one, other| other.cmp(one));
            for (size, name) in sizes {
                if over == 0 {
                    break;
                }
                over = over.saturating_sub(size);
                members.remove(&name);
                names.push(super::text::cut(&name, 64).into_owned());
            }
        };
        if let Some(data) = row.get_mut("data").and_then(Json::as_object_mut) {
            drop_from(data, &[], true);
        }
        if let Some(members) = row.as_object_mut() {
            drop_from(members, &KEPT_MEMBERS, false);
        }
        if names.is_empty() {
            return Value::Null;
        }
        let count = names.len();
        names.truncate(most_names);
        let read =
            json!({"tool": "read_record_field", "args": {"id": id, "field_path": "<one of them>"}});
        json!({"field_count": count, "fields": names, "read": read})
    }

    /// Cuts the lists and objects in the rows to `max_bytes`. Returns the record, the field and the original code points of each
    /// value that was cut. Rows without an envelope and references to blobs are left unchanged.
    fn cut_lists(&self, body: &mut Json<'_>, max_bytes: usize) -> Vec<(RecordId, String, usize)> {
        let known = self.known;
        let mut cut = Vec::new();
        let Some(Json::Array(rows)) = body.pointer_mut(self.rows_at) else {
            return cut;
        };
        for row in rows {
            let Some(id) = identity(row, known).map(RecordNames::to_id) else {
                continue;
            };
            let Some(data) = row.get_mut("data").and_then(Json::as_object_mut) else {
                continue;
            };
            let lists = data.iter_mut().filter(|(name, value)| {
                super::ladder::is_field(name, true) && (value.is_array() || value.is_object())
            });
            for (name, value) in lists {
                let size = json_text(value).chars().count();
                if size <= max_bytes || super::binary::describe_binary(value).is_some() {
                    continue;
                }
                // A part of it would not be recognized as base64.
                conceal_bytes(value);
                if let Ok(fitted) = fit(&value.to_value(), &Path::root(), &Budget::bytes(max_bytes))
                {
                    *value = fitted.value.into();
                    cut.push((id.clone(), name.to_owned(), size));
                }
            }
        }
        cut
    }
}

/// Moves the display names, which every row repeats, to the page, by connection. A row whose display name differs from the first
/// of its connection keeps it. Removes `links`, and members that repeat the connection or the kind of object.
fn remove_repetitions(body: &mut Json<'_>, rows_at: &str) {
    if let Some(body) = body.as_object_mut() {
        body.remove("links");
    }
    let mut names = JsonObject::default();
    if let Some(Json::Array(rows)) = body.pointer_mut(rows_at) {
        for row in rows.iter_mut().filter_map(Json::as_object_mut) {
            let Some(connection) = row.get("connection_id").and_then(Json::as_str) else {
                continue;
            };
            let own = row.get("display_name").filter(|name| name.is_string());
            let known = names.get(connection);
            let once = own.is_some() && (known.is_none() || known == own);
            let first = known.is_none().then(|| connection.to_owned());
            row.remove("connector_instance_id");
            if row.get("object").is_some_and(|object| *object == "record") {
                row.remove("object");
            }
            let name = once.then(|| row.remove("display_name")).flatten();
            if let (Some(connection), Some(name)) = (first, name) {
                names.insert(connection, name);
            }
        }
    }
    if let (Some(body), false) = (body.as_object_mut(), names.is_empty()) {
        body.insert("display_names", Json::Object(names));
    }
}

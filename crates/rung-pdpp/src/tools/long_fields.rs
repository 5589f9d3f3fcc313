//! The long texts of records, their sizes, and the content ladder that lists those that are not shown whole.
//!
//! Owns: finding long texts, computing their sizes, and listing their continuations. Refuses to know: budgets, and the rest of
//! a page.

use std::fmt::Write as _;

use rung_ladder::push_json_string;
use serde::Serialize;
use serde_json::Value;

use super::binary::is_base64;
use super::id::RecordNames;
use super::json::{Json, JsonText, RawJson};
use super::ladder::{Brief, ImpliedIdentity, Ladder, MAX_RECORDS, SHORT_CHARS, identity, is_cut};
use super::short::MAX_DEPTH;
use super::text::json_text;

/// A text of a record that is longer than [`SHORT_CHARS`], so that it may be cut.
pub(super) struct LongField<'v> {
    /// The field of the record that contains the text.
    field: &'v str,
    /// True if the text is inside a list or an object of the field.
    nested: bool,
    pub(super) text: &'v JsonText<'v>,
    /// The size in code points.
    chars: usize,
    /// True if the text is base64, which is never shown.
    binary: bool,
}

impl LongField<'_> {
    /// Returns true if the text is cut where texts are cut to `chars` code points. Base64 is replaced, never cut.
    fn is_cut(&self, chars: usize) -> bool {
        !self.binary && self.chars > chars.max(SHORT_CHARS)
    }

    /// Returns true if the text is not shown whole where texts are cut to `chars` code points: it is cut, or it is base64.
    fn is_changed(&self, chars: usize) -> bool {
        self.binary || self.is_cut(chars)
    }
}

/// The long texts of some rows, and the records that contain them.
pub(super) struct LongFields<'v> {
    records: Vec<Record<'v>>,
    texts: Vec<LongField<'v>>,
}

struct Record<'v> {
    names: RecordNames<'v>,
    row: &'v Json<'v>,
    /// The range of the record's texts in `LongFields::texts`. The texts of an expanded record belong to that record.
    own: std::ops::Range<usize>,
}

impl<'v> LongFields<'v> {
    /// Returns the long texts of `rows` and of the records that are expanded in them. A row without a valid identity is skipped,
    /// because no call could read the rest of its texts.
    pub(super) fn of(rows: &'v [Json<'v>], known: ImpliedIdentity<'v>) -> Self {
        let mut found = Self {
            records: Vec::with_capacity(rows.len()),
            texts: Vec::with_capacity(rows.len()),
        };
        for row in rows {
            found.take(row, known, 0);
        }
        found
    }

    /// Returns the long texts of the records in expanded relations.
    pub(super) fn within(expanded: &'v Json<'v>) -> Self {
        let mut found = Self {
            records: Vec::new(),
            texts: Vec::new(),
        };
        for row in rows_within(expanded) {
            found.take(row, ImpliedIdentity::default(), 1);
        }
        found
    }

    /// Adds the texts of a row, then those of its expanded records down to [`MAX_DEPTH`].
    fn take(&mut self, row: &'v Json<'v>, known: ImpliedIdentity<'v>, depth: usize) {
        let Some(names) = identity(row, known) else {
            return;
        };
        let start = self.texts.len();
        for (field, value) in super::ladder::fields(row) {
            self.texts_of(field, value, false);
        }
        self.records.push(Record {
            names,
            row,
            own: start..self.texts.len(),
        });
        if let Some(expanded) = row.get("expanded").filter(|_| depth < MAX_DEPTH) {
            for row in rows_within(expanded) {
                self.take(row, ImpliedIdentity::default(), depth + 1);
            }
        }
    }

    fn texts_of(&mut self, field: &'v str, value: &'v Json<'v>, nested: bool) {
        match value {
            Json::String(text) if is_cut(text, 0) => self.texts.push(LongField {
                field,
                nested,
                text,
                chars: text.chars_count(),
                binary: is_base64(text),
            }),
            Json::Array(items) => {
                for item in items {
                    self.texts_of(field, item, true);
                }
            }
            Json::Object(members) => {
                for member in members.values() {
                    self.texts_of(field, member, true);
                }
            }
            _ => {}
        }
    }

    /// Returns the texts of the record at this index; none if there is no such record.
    fn own(&self, record: usize) -> &[LongField<'v>] {
        let own = self.records.get(record).map(|record| record.own.clone());
        &self.texts[own.unwrap_or_default()]
    }

    /// Returns the texts of all records, without base64.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'v JsonText<'v>> {
        let texts = self.texts.iter().filter(|long| !long.binary);
        texts.map(|long| long.text)
    }

    /// Returns the names of a record's lists and objects that contain a text which is not shown whole.
    pub(super) fn cut_json(&self, record: usize, chars: usize) -> Vec<&'v str> {
        let mut names: Vec<&str> = Vec::new();
        for long in self.own(record).iter().filter(|long| long.nested) {
            if long.is_changed(chars) && !names.contains(&long.field) {
                names.push(long.field);
            }
        }
        names
    }

    /// Returns the content ladder of records whose texts are cut to `chars` code points; `None` if there is nothing to list.
    /// `usize::MAX` means that no text is cut.
    ///
    /// With `full`, the first [`MAX_RECORDS`] entries describe their fields. The other entries only name the fields that are not
    /// shown whole, and the ladder has one continuation for all of them.
    pub(super) fn ladder(
        &self,
        kind: &'static str,
        chars: usize,
        ladder: Ladder<'_>,
        full: bool,
    ) -> Option<ContentLadder> {
        let mut records = String::with_capacity(BRIEF_BYTES * self.records.len());
        let (mut told, mut brief) = (0, Brief::default());
        for (at, Record { names, row, .. }) in self.records.iter().enumerate() {
            if full && told < MAX_RECORDS {
                let cut_to = (chars < usize::MAX).then_some(chars);
                let entry = ladder.record(*names, row, cut_to, &self.cut_json(at, chars));
                told += usize::from(entry.is_some());
                if let Some(entry) = entry {
                    let own = entry.brief();
                    brief.texts |= own.texts;
                    brief.jsons |= own.jsons;
                    brief.binaries |= own.binaries;
                    records.push_str(if records.is_empty() { "[" } else { "," });
                    records.push_str(&json_text(&entry));
                }
                continue;
            }
            let own = self.own(at);
            if !own.iter().any(|long| long.is_changed(chars)) {
                continue;
            }
            // There may be hundreds of these entries, so they are written without intermediate values.
            let own = || own.iter().filter(|long| !long.nested);
            let sized = |long: &LongField<'v>| (long.field, Some(long.chars));
            let texts = own().filter(|long| long.is_cut(chars)).map(sized);
            let binaries = own().filter(|long| long.binary).map(sized);
            let jsons = self.cut_json(at, chars).into_iter();
            let jsons = jsons.map(|field| (field, None));
            records.push_str(if records.is_empty() { "[" } else { "," });
            records.push_str("{\"id\":");
            names.write(&mut records);
            brief.texts |= tell_names(&mut records, ",\"field_windows\":[", texts);
            brief.jsons |= tell_names(&mut records, ",\"json_fields\":[", jsons);
            brief.binaries |= tell_names(&mut records, ",\"binary_fields\":[", binaries);
            records.push('}');
        }
        if records.is_empty() {
            return None;
        }
        records.push(']');
        Some(ContentLadder {
            kind,
            read_tool: "read_record_field",
            preview_chars: brief.texts.then_some(chars),
            read: brief.reading("<records[].id>", chars),
            records: RawJson::new(records),
        })
    }
}

/// The content ladder of a page.
#[derive(Serialize)]
pub(super) struct ContentLadder {
    kind: &'static str,
    read_tool: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    preview_chars: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<Value>,
    records: RawJson,
}

/// Usual bytes of an entry that only names fields, for allocation.
const BRIEF_BYTES: usize = 128;

/// Appends a list of fields and their sizes, with `begin` before the first. Returns true if there was any field; appends nothing
/// otherwise.
fn tell_names<'v>(
    told: &mut String,
    begin: &str,
    fields: impl Iterator<Item = (&'v str, Option<usize>)>,
) -> bool {
    let mut any = false;
    for (field, size) in fields {
        told.push_str(if any { "," } else { begin });
        any = true;
        told.push_str("{\"field_path\":");
        push_json_string(told, field);
        if let Some(size) = size {
            let _never_fails = write!(told, ",\"size_chars\":{size}");
        }
        told.push('}');
    }
    if any {
        told.push(']');
    }
    any
}

/// Returns the names of a row's lists and objects that contain a text which is not shown whole where texts are cut to `chars`
/// code points.
pub(super) fn cut_json<'v>(
    row: &'v Json<'v>,
    known: ImpliedIdentity<'v>,
    chars: usize,
) -> Vec<&'v str> {
    LongFields::of(std::slice::from_ref(row), known).cut_json(0, chars)
}

/// Returns the records in an expanded relation: the outermost objects that have an `id`.
fn rows_within<'b, 'a>(value: &'b Json<'a>) -> Vec<&'b Json<'a>> {
    match value {
        Json::Array(items) => items.iter().flat_map(rows_within).collect(),
        Json::Object(members) if members.contains("id") => vec![value],
        Json::Object(members) => members.values().flat_map(rows_within).collect(),
        _ => Vec::new(),
    }
}

//! The content ladder of records: the fields that are long, cut or binary, their sizes, and the calls that continue them.

use rung_ladder::{Binding, CursorKey, CursorTarget, JsonKind, Path, Position, Shortcut, limits};
use rung_records::digest;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::binary;
use super::id::{RecordId, RecordNames, is_name};
use super::json::{Json, JsonObject};
use super::short::conceal_bytes;
use super::window;

/// Code points up to which a text is never cut.
pub(super) const SHORT_CHARS: usize = 64;
/// Code points above which a text is listed even if it is whole; for a list or an object, bytes of its JSON.
pub(super) const LONG_CHARS: usize = 4_096;
/// Records whose fields a ladder describes, at most.
pub(super) const MAX_RECORDS: usize = 5;
/// Fields of each kind that are described for a record, at most. Further fields have brief entries, without a continuation.
const MAX_TEXTS: usize = 5;
const MAX_BINARIES: usize = 5;
const MAX_JSON: usize = 8;
/// Code points of the preview of a list or an object: where the texts of the record are whole, and where they are cut.
const JSON_CHARS: usize = 512;
const BRIEF_JSON_CHARS: usize = 96;

/// Members of a row without an envelope that are not fields: its identity, its metadata and its expanded relations.
const NO_FIELDS: [&str; 10] = [
    "id",
    "record_id",
    "recordId",
    "connection_id",
    "connector_instance_id",
    "connector_key",
    "stream",
    "metadata",
    "_meta",
    "expanded",
];

/// The stream and the connection of rows that do not name them. They are known from the request.
#[derive(Clone, Copy, Default)]
pub(super) struct ImpliedIdentity<'a> {
    pub(super) stream: Option<&'a str>,
    pub(super) connection: Option<&'a str>,
}

/// Returns the names of a row's record; `None` if they are missing or invalid, so that no call could continue it.
pub(super) fn identity<'a>(
    row: &'a Json<'_>,
    known: ImpliedIdentity<'a>,
) -> Option<RecordNames<'a>> {
    let text = |names: &[&str]| super::text::first_text(row, names);
    let names = RecordNames {
        record: text(&["id", "record_id", "record_key", "key"])?,
        stream: text(&["stream"]).or(known.stream)?,
        connection: text(&["connection_id", "connector_instance_id"]).or(known.connection),
    };
    names.is_valid().then_some(names)
}

/// Returns the fields of a row: the members of its `data` if that is an object, else its own members. See [`is_field`].
pub(super) fn fields<'b, 'a>(row: &'b Json<'a>) -> impl Iterator<Item = (&'b str, &'b Json<'a>)> {
    let enveloped = row.get("data").and_then(Json::as_object);
    let bare = row.as_object().filter(|_| enveloped.is_none());
    let members = enveloped.or(bare).into_iter().flat_map(JsonObject::iter);
    members.filter(move |(name, _)| is_field(name, enveloped.is_some()))
}

/// Returns true if a member is a field. Its name must be valid, because a call names the field. In an envelope's `data`
/// (`enveloped`) all such members are fields; in a row without an envelope, all but `NO_FIELDS`.
pub(super) fn is_field(name: &str, enveloped: bool) -> bool {
    (enveloped || !NO_FIELDS.contains(&name)) && is_name(name)
}

/// Returns the size of a text of `chars` code points as one word.
fn size_grade(chars: usize) -> &'static str {
    match chars {
        0..=LONG_CHARS => "small",
        4_097..=16_384 => "medium",
        _ => "large",
    }
}

/// The key that seals cursors, and the authority that they are bound to.
#[derive(Clone, Copy)]
pub(super) struct Ladder<'a> {
    pub(super) key: &'a CursorKey,
    pub(super) authority: &'a str,
}

/// A text field, and the part of it that is shown.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    pub(super) field: &'a str,
    pub(super) text: &'a str,
    /// Code points that are shown; `None` if the text is whole.
    pub(super) chars: Option<usize>,
}

/// The ladder entry of a record.
#[derive(Serialize)]
pub(super) struct RecordEntry<'v> {
    id: String,
    connection_id: Option<&'v str>,
    stream: &'v str,
    record_id: &'v str,
    record_uri: String,
    handle_semantics: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    field_windows: Vec<TextEntry<'v>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    json_fields: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    binary_fields: Vec<Value>,
}

/// The lists of a ladder in which some entries only name a field.
#[derive(Clone, Copy, Default)]
pub(super) struct Brief {
    pub(super) texts: bool,
    pub(super) jsons: bool,
    pub(super) binaries: bool,
}

impl Brief {
    /// Returns one continuation for all fields that are only named; `None` if there are none. `id` is the placeholder of the
    /// record's id. Texts continue at code point `chars`.
    pub(super) fn reading(self, id: &str, chars: usize) -> Option<Value> {
        if !self.texts && !self.jsons && !self.binaries {
            return None;
        }
        let mut read = json!({});
        if self.texts {
            read["tool"] = "read_record_field".into();
            read["args"] = json!({"id": id, "field_path": "<field_windows[].field_path>", "offset_chars": chars});
        }
        if self.jsons {
            let args = json!({"id": id, "fields": ["<json_fields[].field_path>"]});
            read["json_fields"] = json!({"tool": "fetch", "args": args});
        }
        if self.binaries {
            let args = json!({"id": id, "field_path": "<binary_fields[].field_path>"});
            read["binary_fields"] = json!({"tool": "read_record_field", "args": args});
        }
        Some(read)
    }
}

impl RecordEntry<'_> {
    /// Returns the lists that have more entries than are described.
    pub(super) fn brief(&self) -> Brief {
        Brief {
            texts: self.field_windows.len() > MAX_TEXTS,
            jsons: self.json_fields.len() > MAX_JSON,
            binaries: self.binary_fields.len() > MAX_BINARIES,
        }
    }
}

/// The ladder entry of a text field. Beyond `MAX_TEXTS` it is `Brief`: without a cursor, a digest and a continuation.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum TextEntry<'v> {
    Full {
        field_path: &'v str,
        r#type: &'static str,
        text_like: bool,
        preview_status: &'static str,
        preview_chars: usize,
        size_chars: usize,
        size_grade: &'static str,
        cursor: String,
        digest: String,
        resource_uri: String,
        read: FieldContinuation<'v>,
    },
    Brief {
        field_path: &'v str,
        preview_status: &'static str,
        preview_chars: usize,
        size_chars: usize,
    },
}

/// The call that continues a field.
#[derive(Serialize)]
pub(super) struct FieldContinuation<'v> {
    tool: &'static str,
    args: FieldArguments<'v>,
}

#[derive(Serialize)]
struct FieldArguments<'v> {
    id: String,
    field_path: &'v str,
    offset_chars: u64,
    limit_chars: u64,
}

impl Ladder<'_> {
    /// Returns a sealed cursor into a field. The window begins at code point `offset`, or ends there if `back` is true.
    ///
    /// `size_chars` is the size of the field. Pass it if `digest` was computed here: not every provider has a digest to compare
    /// it with, and then a changed field is recognized by its size.
    pub(super) fn cursor(
        self,
        record: &RecordId,
        field: &str,
        digest: &str,
        (offset, back): (u64, bool),
        limit_chars: u64,
        size_chars: Option<u64>,
    ) -> String {
        let position = Position {
            target: if back {
                CursorTarget::Before(Path::root())
            } else {
                CursorTarget::Text(Path::root())
            },
            offset,
            limit_chars,
            shortcut: size_chars.map(|size_chars| Shortcut::Text {
                kind: JsonKind::String,
                span: 0..0,
                size_bytes: 0,
                size_chars,
                bytes: 0,
                raw: 0,
            }),
        };
        let binding = Binding {
            subject: &record.to_string(),
            field,
            digest,
            grant: self.authority,
        };
        self.key.seal(&binding, &position).into_string()
    }

    /// Returns the entry that describes a text field. A text that is whole can be read from its beginning.
    pub(super) fn text_field<'v>(self, record: &RecordId, shown: Shown<'v>) -> TextEntry<'v> {
        let size = shown.text.chars().count();
        let offset = shown.chars.unwrap_or(0) as u64;
        let digest = digest(shown.text);
        TextEntry::Full {
            field_path: shown.field,
            r#type: "string",
            text_like: true,
            preview_status: if shown.chars.is_some() {
                "truncated"
            } else {
                "complete"
            },
            preview_chars: shown.chars.unwrap_or(size),
            size_chars: size,
            size_grade: size_grade(size),
            cursor: self.cursor(
                record,
                shown.field,
                &digest,
                (offset, false),
                limits::WINDOW_CHARS,
                Some(size as u64),
            ),
            digest,
            resource_uri: window(record, shown.field, shown.chars.map(|_| offset)).uri(),
            read: FieldContinuation {
                tool: "read_record_field",
                args: FieldArguments {
                    id: record.to_string(),
                    field_path: shown.field,
                    offset_chars: offset,
                    limit_chars: limits::WINDOW_CHARS,
                },
            },
        }
    }

    /// Returns the entry of a record; `None` if it has no field to list. `cut_to` is the number of code points that long texts are
    /// cut to, `None` if they are whole. `cut_json` names the lists and objects that are not shown whole.
    ///
    /// Every field that is cut or binary is listed, beyond the maximum of its kind in a brief entry. A field that is long but whole
    /// is left out beyond the maximum.
    pub(super) fn record<'v>(
        self,
        names: RecordNames<'v>,
        row: &'v Json<'v>,
        cut_to: Option<usize>,
        cut_json: &[&str],
    ) -> Option<RecordEntry<'v>> {
        let record = &names.to_id();
        let (mut texts, mut binaries, mut jsons) = (Vec::new(), Vec::new(), Vec::new());
        for (name, value) in fields(row) {
            if let Some(mut told) = binary::describe_binary(value) {
                if binaries.len() >= MAX_BINARIES {
                    // Binary data is never shown, so every binary field is listed.
                    binaries.push(json!({"field_path": name, "preview_status": "binary-only"}));
                } else {
                    let mut entry = Map::new();
                    entry.insert("field_path".to_owned(), json!(name));
                    entry.append(&mut told);
                    if value.is_string() {
                        let args = json!({"id": record.to_string(), "field_path": name});
                        let read = json!({"tool": "read_record_field", "args": args});
                        entry.insert("read".to_owned(), read);
                    }
                    binaries.push(Value::Object(entry));
                }
                continue;
            }
            match value {
                Json::String(text) => {
                    let cut = cut_to.filter(|most| is_cut(text, *most));
                    let listed = cut.is_some() || super::text::is_longer(text, LONG_CHARS);
                    if listed && texts.len() < MAX_TEXTS {
                        let shown = Shown {
                            field: name,
                            text,
                            chars: cut,
                        };
                        texts.push(self.text_field(record, shown));
                    } else if let Some(chars) = cut {
                        // Every cut text is listed.
                        texts.push(TextEntry::Brief {
                            field_path: name,
                            preview_status: "truncated",
                            preview_chars: chars,
                            size_chars: text.chars().count(),
                        });
                    }
                }
                Json::Object(_) | Json::Array(_) => {
                    let cut = cut_json.contains(&name);
                    if jsons.len() >= MAX_JSON {
                        if cut {
                            jsons.push(json!({"field_path": name, "preview_status": "truncated"}));
                        }
                    } else if cut || value.json_bytes() > LONG_CHARS {
                        jsons.push(json_field(record, name, value, cut, cut_to.is_some()));
                    }
                }
                _ => {}
            }
        }
        if texts.is_empty() && binaries.is_empty() && jsons.is_empty() {
            return None;
        }
        Some(RecordEntry {
            id: record.to_string(),
            connection_id: names.connection,
            stream: names.stream,
            record_id: names.record,
            record_uri: record.uri(),
            handle_semantics: "live_lookup",
            field_windows: texts,
            json_fields: jsons,
            binary_fields: binaries,
        })
    }
}

/// Returns true if a text is cut where texts are cut to `most` code points. A text of up to [`SHORT_CHARS`] never is.
pub(super) fn is_cut(text: &str, most: usize) -> bool {
    super::text::is_longer(text, most.max(SHORT_CHARS))
}

/// Returns the entry of a list or an object. The size is that of its whole JSON; base64 is replaced in the preview, which is
/// shorter with `brief`.
fn json_field(record: &RecordId, name: &str, value: &Json<'_>, cut: bool, brief: bool) -> Value {
    let json = value.to_string();
    let mut shown = value.clone();
    conceal_bytes(&mut shown);
    let shown = shown.to_string();
    json!({
        "field_path": name, "json_field": true, "text_like": false,
        "preview_status": if cut { "truncated" } else { "complete" },
        "size_chars": json.chars().count(),
        "preview_text": super::text::cut(&shown, if brief { BRIEF_JSON_CHARS } else { JSON_CHARS }),
        "read": {"tool": "fetch", "args": {"id": record.to_string(), "fields": [name]}},
    })
}

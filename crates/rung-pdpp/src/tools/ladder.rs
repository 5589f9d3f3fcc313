//! The content ladder of records: which fields are long, cut or not text, their size, and how to continue.

use rung_ladder::{Binding, CursorKey, CursorTarget, JsonKind, Path, Position, Shortcut, limits};
use rung_records::digest;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::binary;
use super::id::{RecordId, RecordNames, is_name};
use super::json::{Json, JsonObject};
use super::short::conceal_bytes;
use super::window;

/// A text up to this many code points is never cut.
pub(super) const SHORT_CHARS: usize = 64;
/// A text from this many code points on is listed, cut or not.
pub(super) const LONG_CHARS: usize = 4_096;
/// Records that are listed with everything that is known.
pub(super) const MAX_RECORDS: usize = 5;
/// Fields of a kind that are listed for a record with everything that is known.
const MAX_TEXTS: usize = 5;
const MAX_BINARIES: usize = 5;
const MAX_JSON: usize = 8;
/// Code points of a preview of JSON.
const JSON_CHARS: usize = 512;
const BRIEF_JSON_CHARS: usize = 96;

/// Members of a record that say whose it is, and are no fields of it.
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

/// What of a record is where nothing else says so.
#[derive(Clone, Copy, Default)]
pub(super) struct ImpliedIdentity<'a> {
    pub(super) stream: Option<&'a str>,
    pub(super) connection: Option<&'a str>,
}

/// Returns the names of a row's record; `None` if they are missing or invalid, so that nothing of it can be read on.
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

/// The fields of a row.
pub(super) fn fields<'b, 'a>(row: &'b Json<'a>) -> impl Iterator<Item = (&'b str, &'b Json<'a>)> {
    let enveloped = row.get("data").and_then(Json::as_object);
    let bare = row.as_object().filter(|_| enveloped.is_none());
    let members = enveloped.or(bare).into_iter().flat_map(JsonObject::iter);
    members.filter(move |(name, _)| is_field(name, enveloped.is_some()))
}

/// Whether a member of a row is a field of it: of its envelope's data, or among what says whose it is.
pub(super) fn is_field(name: &str, enveloped: bool) -> bool {
    (enveloped || !NO_FIELDS.contains(&name)) && is_name(name)
}

/// How long a text is, in a word.
fn size_grade(chars: usize) -> &'static str {
    match chars {
        0..=LONG_CHARS => "small",
        4_097..=16_384 => "medium",
        _ => "large",
    }
}

/// What cursors and continuations are built from.
#[derive(Clone, Copy)]
pub(super) struct Ladder<'a> {
    pub(super) key: &'a CursorKey,
    pub(super) authority: &'a str,
}

/// A text field, and how much of it is shown.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    pub(super) field: &'a str,
    pub(super) text: &'a str,
    /// Code points of it that are there; all of them without it.
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

/// Lists of which some say no more than names.
#[derive(Clone, Copy, Default)]
pub(super) struct Brief {
    pub(super) texts: bool,
    pub(super) jsons: bool,
    pub(super) binaries: bool,
}

impl Brief {
    /// How what is listed by name is read on, said once for all of it; texts from so many code points on.
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
    /// Which of its lists go on with names alone.
    pub(super) fn brief(&self) -> Brief {
        Brief {
            texts: self.field_windows.len() > MAX_TEXTS,
            jsons: self.json_fields.len() > MAX_JSON,
            binaries: self.binary_fields.len() > MAX_BINARIES,
        }
    }
}

/// The ladder entry of a text field.
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

/// How a field is read on: with which tool and arguments.
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
    /// A cursor to go on with from a code point, or to go back with to it, in a field whose content is known. Its size goes along
    /// where the digest is ours: not every provider has digests to compare it with.
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

    /// A text field with everything that is known of it.
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

    /// A record with everything that is known of its fields; `None` where there is nothing to say. `cut_to` is where texts were
    /// cut that are not short; `cut_json` are fields with such texts within.
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
                    // Whatever is not shown is told, if in fewer words.
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
                        // Every cut is told, if in fewer words.
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

/// Whether a text of a record is cut where texts are cut to so many code points.
pub(super) fn is_cut(text: &str, most: usize) -> bool {
    super::text::is_longer(text, most.max(SHORT_CHARS))
}

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

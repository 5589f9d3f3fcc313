//! `fetch`: one record as a document.

use rung_fault::{Code, Fault};
use rung_ladder::json_char_bytes;
use rung_tool::{Pending, Reply};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::filter::expand_limit_pairs;
use super::id::{RecordId, WindowId, check_name};
use super::json::{Json, Members};
use super::ladder::{Known, Ladder, Shown};
use super::page::preview;
use super::refusal::Refusal;
use super::short::{short_row, shorten_fields, shorten_within};
use super::text::{cut, first_text, json_text};
use super::{Asking, Definition, read_input, window};

pub(super) const DEFINITION: Definition = Definition {
    name: "fetch",
    title: "Fetch",
    description: "One record as a document, by an id that search or query_records gave: id, title, text, url and metadata. fields projects it. \
                  A long text is cut and says how read_record_field goes on. For records as data use query_records.",
    input,
    output,
    sized: |_| false,
    run: |asking, given| Box::pin(run(asking, given)) as Pending<'_, _>,
};

/// Code points of a record that has no text of its own.
const JSON_CHARS: usize = 1_024;
/// Code points of a text within the record as the provider has it.
const DATA_CHARS: usize = 1_024;
/// What the numbers in a continuation may grow by when the text is longer.
const NUMBERS_BYTES: usize = 64;
/// Members that are a document's text, the best first.
const TEXTS: [&str; 4] = ["text", "content", "body", "summary"];

fn input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "minLength": 1, "description": "connection_id/stream:record_id, stream:record_id or pdpp://record/…, as given"},
            "fields": super::names_input("Only these fields"),
            "expand": super::names_input("Relations to read along"),
            "expand_limit": super::expand_limit_input(),
            "connection_id": {"type": "string", "minLength": 1, "description": "Only where the id names no source"},
        },
        "required": ["id"],
        "additionalProperties": false,
    })
}

fn output() -> Value {
    let text = json!({"type": "string"});
    json!({
        "type": "object",
        "properties": {
            "id": text, "title": text, "text": text, "url": text, "metadata": {"type": "object"},
            "content_ladder": {}, "data": {}, "error": {"type": "object"},
        },
        "anyOf": [{"required": ["id", "title", "text", "url", "metadata"]}, {"required": ["error"]}],
    })
}

#[derive(Deserialize)]
struct Input {
    id: String,
    #[serde(default)]
    fields: Vec<String>,
    #[serde(default)]
    expand: Vec<String>,
    expand_limit: Option<Map<String, Value>>,
    connection_id: Option<String>,
}

async fn run(asking: &Asking<'_>, given: Value) -> Result<Reply, Refusal> {
    let input: Input = read_input(given)?;
    let id = with_connection(RecordId::parse(&input.id)?, input.connection_id.as_deref())?;
    let ask = id
        .ask(&[])
        .each("fields", &input.fields)
        .each("expand", &input.expand)
        .and(expand_limit_pairs(input.expand_limit.as_ref())?);
    let answer = asking.provider.read(&ask).await?;
    let mut record = answer.body()?;
    if record.get("object").is_none()
        && let Some(inner) = record.get_mut("data")
        && inner.get("object").is_some()
    {
        record = inner.take();
    }
    let record = projected(record, &input.fields);
    let document = Document::of(&input, id, record, asking.provider.url());
    Ok(document.reply(asking))
}

/// The id, with the connection that is named beside it.
pub(super) fn with_connection(mut id: RecordId, named: Option<&str>) -> Result<RecordId, Fault> {
    let Some(named) = named else {
        return Ok(id);
    };
    check_name("connection_id", named)?;
    if let Some(embedded) = &id.connection
        && embedded != named
    {
        let why = format!("the id is of connection {embedded:?}, and connection_id says {named:?}");
        return Err(Fault::new(Code::ConflictingConnection, why)
            .with_hint("leave connection_id out: the id names its source"));
    }
    id.connection = Some(named.to_owned());
    Ok(id)
}

/// The record without what was not asked for, whatever the provider made of that.
fn projected<'a>(mut record: Json<'a>, fields: &[String]) -> Json<'a> {
    if fields.is_empty() {
        return record;
    }
    if let Some(data) = record.get_mut("data").and_then(Json::as_object_mut) {
        data.retain(|name| fields.iter().any(|field| field == name));
        if let Some(members) = record.as_object_mut() {
            members.retain(|name| HANDLES.contains(&name) || name == "data" || name == "expanded");
        }
    } else if let Some(members) = record.as_object_mut() {
        members.retain(|name| {
            HANDLES.contains(&name)
                || fields.iter().any(|field| field == name)
                || name == "expanded"
        });
    }
    record
}

struct Document<'a> {
    id: RecordId,
    /// The id as it was given.
    shown_id: String,
    record: Json<'a>,
    title: String,
    url: String,
    metadata: Map<String, Value>,
    /// The text, and the field that it is.
    text: String,
    field: Option<String>,
    projected: bool,
}

impl<'a> Document<'a> {
    fn of(input: &Input, id: RecordId, record: Json<'a>, provider: &str) -> Self {
        let own = [&record["data"], &record];
        let named = own
            .iter()
            .find_map(|place| first_text(place, &["title", "name", "subject", "summary"]));
        let title = named.map_or_else(
            || super::hit::title(&record),
            |named| cut(named, 200).into_owned(),
        );
        let found = own.iter().find_map(|place| {
            let name = TEXTS
                .iter()
                .find(|name| first_text(place, &[name]).is_some())?;
            let text = place[name].as_str()?;
            (!super::binary::is_base64(text)).then_some((*name, text))
        });
        let (field, text) = match found {
            Some((name, text)) => (Some(name.to_owned()), text.to_owned()),
            None => (None, String::new()),
        };
        let url = super::hit::url(&record, Some(&id), provider);
        let shown_id = if input.id.contains(':') {
            input.id.clone()
        } else {
            id.to_string()
        };
        let metadata = metadata(&record, &shown_id, &title, &url);
        Self {
            shown_id,
            title,
            url,
            metadata,
            text,
            field,
            record,
            id,
            projected: !input.fields.is_empty(),
        }
    }

    /// The record in JSON, where it has no text of its own.
    fn as_json(&self, max_chars: usize) -> (String, bool) {
        let chars = usize::MAX;
        let data = match &self.record["data"] {
            Json::Object(data) => {
                let mut data = data.clone();
                shorten_fields(&mut data, chars);
                Json::Object(data).to_value()
            }
            _ => short_row(&self.record, Known::default(), chars),
        };
        let json = if self.projected {
            data.to_string()
        } else {
            format!("{data:#}")
        };
        if !super::text::is_longer(&json, max_chars) {
            return (json, false);
        }
        let pointer = format!(
            "\n[cut: read all of a field, text or JSON, with read_record_field {{\"id\":{:?},\"field_path\":…}}, some with fetch(fields), or records with query_records]",
            self.shown_id
        );
        let kept = max_chars.saturating_sub(pointer.chars().count() + 1);
        (format!("{}{pointer}", cut(&json, kept)), true)
    }

    fn ladder(&self, asking: &Asking<'_>, shown: Option<usize>) -> Option<Value> {
        let ladder = Ladder {
            key: &asking.options.key,
            authority: asking.provider.authority(),
            measuring: false,
        };
        let entry = ladder.record(self.id.names(), &self.record, None, &[]);
        let mut entry = entry.map(|entry| json!(entry));
        if let (Some(field), Some(chars)) = (&self.field, shown) {
            let told = ladder.text_field(
                &self.id,
                Shown {
                    field,
                    text: &self.text,
                    chars: Some(chars),
                },
            );
            let entry = entry.get_or_insert_with(|| {
                json!({
                    "id": self.id.to_string(), "connection_id": self.id.connection, "stream": self.id.stream,
                    "record_id": self.id.record, "record_uri": self.id.uri(), "handle_semantics": "live_lookup",
                })
            });
            let windows = entry["field_windows"].as_array_mut().map(std::mem::take);
            let mut windows = windows.unwrap_or_default();
            windows.retain(|one| one["field_path"] != field.as_str());
            windows.insert(0, json!(told));
            entry["field_windows"] = windows.into();
        }
        let mut entry = entry?;
        // Everything but the document's own text is there by name alone.
        let own = |name: &Value| self.field.as_deref() == name.as_str();
        if let Some(windows) = entry["field_windows"].as_array_mut() {
            for one in windows.iter_mut().filter(|one| !own(&one["field_path"])) {
                one["preview_status"] = json!("unavailable");
                one["preview_chars"] = json!(0);
            }
        }
        let mut all = json!({"kind": "record", "read_tool": "read_record_field"});
        if let (Some(all), Some(entry)) = (all.as_object_mut(), entry.as_object_mut()) {
            all.append(entry);
        }
        Some(all)
    }

    fn reply(&self, asking: &Asking<'_>) -> Reply {
        let budget = asking.usual_bytes();
        let Some(field) = &self.field else {
            let mut max_chars = if self.projected {
                budget / 2
            } else {
                JSON_CHARS
            };
            loop {
                let (text, cut) = self.as_json(max_chars);
                let reply = self.made(asking, &text, self.ladder(asking, None), &[]);
                if !cut || max_chars <= 256 || reply.bytes() <= budget {
                    return reply;
                }
                max_chars /= 2;
            }
        };
        let whole = self.made(asking, &self.text, self.ladder(asking, None), &[]);
        if whole.bytes() <= budget {
            return whole;
        }
        // The text stands in the reply twice: as itself, and within the JSON that is the words.
        let size = self.text.chars().count();
        let shown = |chars: usize| {
            let go_on = window(&self.id, field, Some(chars as u64));
            let text = format!(
                "{}\n[cut at {chars} of {size} characters; go on with read_record_field {}, or at {}]",
                preview(&self.text, chars),
                json!({"id": self.shown_id, "field_path": field, "offset_chars": chars}),
                go_on.uri()
            );
            self.made(asking, &text, self.ladder(asking, Some(chars)), &[go_on])
        };
        let least = shown(super::ladder::SHORT_CHARS.min(size)).bytes();
        let room = budget.saturating_sub(least);
        let mut taken = 0;
        let mut chars = super::ladder::SHORT_CHARS;
        if size <= chars {
            // What is long about it is something else.
            return whole;
        }
        for c in self.text.chars().skip(chars) {
            let own = json_char_bytes(c);
            // Within the words it is escaped once more, and so is every backslash that this takes.
            let quoted = match c {
                '"' | '\\' => 4,
                _ if own > c.len_utf8() => own + 1,
                _ => own,
            };
            let structured = if asking.call.rendering.structured {
                own
            } else {
                0
            };
            taken += structured + quoted;
            if taken + NUMBERS_BYTES > room {
                break;
            }
            chars += 1;
        }
        shown(chars)
    }

    fn made(
        &self,
        asking: &Asking<'_>,
        text: &str,
        ladder: Option<Value>,
        links: &[WindowId],
    ) -> Reply {
        let document = json!({
            "id": self.shown_id, "title": self.title, "text": text, "url": self.url, "metadata": self.metadata,
        });
        let mut document = document;
        if let Some(expanded) = self.record.get("expanded").filter(|one| !one.is_null()) {
            document["expanded"] = within(expanded, asking.usual_bytes() / 4);
        }
        let words = json_text(&document);
        let mut structured = document;
        if asking.options.fetch_data {
            let known = Known {
                stream: Some(&self.id.stream),
                connection: None,
            };
            structured["data"] = short_row(&self.record, known, DATA_CHARS);
        }
        if let Some(ladder) = ladder {
            structured["content_ladder"] = ladder;
        }
        asking.reply(words, &structured, links)
    }
}

/// What was read along, its texts cut so that it takes no more than `room`; each of its records has an id to read on with.
fn within(expanded: &Json<'_>, room: usize) -> Value {
    for chars in [usize::MAX, 512, 128, 24] {
        let mut shown = expanded.clone();
        shorten_within(&mut shown, chars, 0);
        if !shown.is_larger(room) {
            return shown.to_value();
        }
    }
    json!({"omitted": "more than fits here: call query_records with expand, or the other stream itself"})
}

/// Members that say whose a record is and of when.
const HANDLES: [&str; 18] = [
    "object",
    "id",
    "record_id",
    "recordId",
    "stream",
    "connection_id",
    "connectionId",
    "connector_key",
    "connectorKey",
    "connector_id",
    "display_name",
    "displayName",
    "emitted_at",
    "emittedAt",
    "sent_at",
    "created_at",
    "createdAt",
    "updated_at",
];
/// Code points of a member of the metadata, and members of it.
const METADATA_CHARS: usize = 120;
const MAX_METADATA: usize = 32;

/// Scalars that say whose a record is and of when.
fn metadata(record: &Json<'_>, id: &str, title: &str, url: &str) -> Map<String, Value> {
    const OF_DATA: [&str; 5] = [
        "stream",
        "connection_id",
        "connector_key",
        "connector_id",
        "display_name",
    ];
    let mut told = Map::new();
    let own = record["metadata"].as_object();
    let own = own.into_iter().flat_map(Members::iter).take(MAX_METADATA);
    for (name, value) in own.filter(|(_, value)| !value.is_object() && !value.is_array()) {
        told.insert(name.to_owned(), shortened(value));
    }
    for name in HANDLES {
        match record.get(name) {
            Some(value) if value.is_object() || value.is_array() || value.is_null() => {}
            Some(value) if [id, title, url].iter().any(|said| value == said) => {}
            Some(value) => {
                told.entry(name).or_insert_with(|| shortened(value));
            }
            None => {}
        }
    }
    for name in OF_DATA {
        if let Some(value) = record["data"]
            .get(name)
            .filter(|value| value.is_string() || value.is_number())
        {
            told.entry(name).or_insert_with(|| shortened(value));
        }
    }
    told
}

fn shortened(value: &Json<'_>) -> Value {
    match value {
        Json::String(text) => json!(cut(text, METADATA_CHARS)),
        value => value.to_value(),
    }
}

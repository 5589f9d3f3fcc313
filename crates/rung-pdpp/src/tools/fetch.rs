//! `fetch`: one record as a document.

use std::borrow::Cow;

use rung_fault::{Code, Fault};
use rung_ladder::json_char_bytes;
use rung_tool::{Pending, Reply};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::filter::expand_limit_pairs;
use super::id::{RecordId, WindowId, check_name};
use super::json::{Json, Members};
use super::ladder::{self, Known, Ladder, RecordEntry};
use super::longs::{Longs, Told, cut_json};
use super::refusal::Refusal;
use super::short::{preview, short_row, shorten_fields, shorten_within};
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
/// Code points of a text within the record as the provider has it, as many as fit.
const DATA_CHARS: [usize; 3] = [1_024, 256, 64];
/// Names of fields that are listed where a record is cut as a whole.
const OMITTED_NAMES: usize = 24;
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
    metadata: Json<'a>,
    /// Names of what of it is cut.
    cut_metadata: Vec<String>,
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
        let title = named.map_or_else(|| super::hit::title(&record), |named| cut(named, 200));
        let title = title.into_owned();
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
        let url = super::hit::url(&record, Some(&id), provider).into_owned();
        let shown_id = if input.id.contains(':') {
            input.id.clone()
        } else {
            id.to_string()
        };
        let mut cut_metadata = Vec::new();
        let metadata = metadata(&record, [&shown_id, &title, &url], &mut cut_metadata);
        Self {
            shown_id,
            title,
            url,
            metadata: Json::Object(metadata),
            cut_metadata,
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
                Json::Object(data)
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

    /// What is said of everything that is not shown, or not whole.
    fn ladder(&self, asking: &Asking<'_>, shown: &Shown<'_>) -> Option<Value> {
        let ladder = Ladder {
            key: &asking.options.key,
            authority: asking.provider.authority(),
            measuring: false,
        };
        let known = self.known();
        let cut_json = shown.data.map(|chars| cut_json(&self.record, known, chars));
        let cut_json = cut_json.unwrap_or_default();
        let entry = ladder.record(self.id.names(), &self.record, shown.data, &cut_json);
        let brief = entry.as_ref().map(RecordEntry::brief).unwrap_or_default();
        let id = self.id.to_string();
        let mut all = entry.map_or_else(|| json!({}), |entry| json!(entry));
        if let Some(read) = brief.reading(&id, shown.data.unwrap_or(0)) {
            all["read"] = read;
        }
        self.tell_texts(&mut all, ladder, shown);
        self.tell_json(&mut all, shown);
        if let Some(told) = shown.along.and_then(|along| along.ladder(ladder)) {
            all["expanded"] = json!(told);
        }
        if !self.cut_metadata.is_empty() {
            let names = &self.cut_metadata[..self.cut_metadata.len().min(OMITTED_NAMES)];
            all["metadata"] = json!({"cut": names, "resource_uri": self.id.uri()});
        }
        if all.as_object().is_none_or(Map::is_empty) {
            return None;
        }
        let mut told = json!({"kind": "record", "read_tool": "read_record_field"});
        if all.get("id").is_none() {
            told["id"] = id.into();
            told["connection_id"] = json!(self.id.connection);
            told["stream"] = json!(self.id.stream);
            told["record_id"] = json!(self.id.record);
            told["record_uri"] = self.id.uri().into();
            told["handle_semantics"] = "live_lookup".into();
        }
        if let (Some(told), Some(all)) = (told.as_object_mut(), all.as_object_mut()) {
            told.append(all);
        }
        Some(told)
    }

    /// Says how much of the document's own text is shown, and of others that nothing is.
    fn tell_texts(&self, all: &mut Value, ladder: Ladder<'_>, shown: &Shown<'_>) {
        let windows = all.get_mut("field_windows").and_then(Value::as_array_mut);
        let mut windows = windows.map(std::mem::take).unwrap_or_default();
        let own = |one: &Value| self.field.as_deref() == one["field_path"].as_str();
        if let (Some(field), Some(chars)) = (&self.field, shown.text) {
            let text = ladder::Shown {
                field,
                text: &self.text,
                chars: Some(chars),
            };
            windows.retain(|one| !own(one));
            windows.insert(0, json!(ladder.text_field(&self.id, text)));
        }
        if shown.data.is_none() {
            for one in windows.iter_mut().filter(|one| !own(one)) {
                one["preview_status"] = json!("unavailable");
                one["preview_chars"] = json!(0);
            }
        }
        if !windows.is_empty() {
            all["field_windows"] = windows.into();
        }
    }

    /// Says how much is shown of lists and objects, and of a record that is shown as one.
    fn tell_json(&self, all: &mut Value, shown: &Shown<'_>) {
        let id = self.id.to_string();
        let lists = all.get_mut("json_fields").and_then(Value::as_array_mut);
        for one in lists.into_iter().flatten() {
            let whole = self.field.is_none() && !shown.json_cut;
            one["preview_status"] = match shown.data {
                Some(_) => continue,
                None if whole => "complete",
                None => "truncated",
            }
            .into();
            let args = json!({"id": id, "field_path": one["field_path"]});
            one["read"] = json!({"tool": "read_record_field", "args": args});
        }
        if shown.json_cut {
            let names: Vec<&str> = super::ladder::fields(&self.record)
                .map(|(name, _)| name)
                .collect();
            let args = json!({"id": id, "field_path": "<one of them>"});
            all["omitted"] = json!({
                "field_count": names.len(), "fields": &names[..names.len().min(OMITTED_NAMES)],
                "read": {"tool": "read_record_field", "args": args},
            });
        }
    }

    fn known(&self) -> Known<'_> {
        Known {
            stream: Some(&self.id.stream),
            connection: self.id.connection.as_deref(),
        }
    }

    fn reply(&self, asking: &Asking<'_>) -> Reply {
        let expanded = self.record.get("expanded").filter(|one| !one.is_null());
        let along = expanded.map(|expanded| Along::of(expanded, asking.usual_bytes() / 4));
        let mut shown = Shown {
            along: along.as_ref(),
            ..Shown::default()
        };
        if asking.options.fetch_data {
            for chars in DATA_CHARS {
                shown.data = Some(chars);
                let reply = self.reply_with(asking, shown);
                if reply.bytes() <= asking.usual_bytes() {
                    return reply;
                }
            }
            // What is read from the record itself takes too much: it is left to whoever asks for its fields.
            shown.data = None;
        }
        self.reply_with(asking, shown)
    }

    fn reply_with(&self, asking: &Asking<'_>, mut shown: Shown<'_>) -> Reply {
        let budget = asking.usual_bytes();
        let Some(field) = &self.field else {
            let mut max_chars = if self.projected {
                budget / 2
            } else {
                JSON_CHARS
            };
            loop {
                let (text, cut) = self.as_json(max_chars);
                shown.json_cut = cut;
                let reply = self.made(asking, &text, &shown, &[]);
                if !cut || max_chars <= 256 || reply.bytes() <= budget {
                    return reply;
                }
                max_chars /= 2;
            }
        };
        let whole = self.made(asking, &self.text, &shown, &[]);
        if whole.bytes() <= budget {
            return whole;
        }
        // The text stands in the reply twice: as itself, and within the JSON that is the words.
        let size = self.text.chars().count();
        let mut cut_to = |chars: usize| {
            shown.text = Some(chars);
            let go_on = window(&self.id, field, Some(chars as u64));
            let text = format!(
                "{}\n[cut at {chars} of {size} characters; go on with read_record_field {}, or at {}]",
                preview(&self.text, chars),
                json!({"id": self.shown_id, "field_path": field, "offset_chars": chars}),
                go_on.uri()
            );
            self.made(asking, &text, &shown, &[go_on])
        };
        let mut chars = super::ladder::SHORT_CHARS;
        if size <= chars {
            // What is long about it is something else.
            return whole;
        }
        let least = cut_to(chars).bytes();
        let room = budget.saturating_sub(least);
        let mut taken = 0;
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
        cut_to(chars)
    }

    fn made(
        &self,
        asking: &Asking<'_>,
        text: &str,
        shown: &Shown<'_>,
        links: &[WindowId],
    ) -> Reply {
        let mut told = ToldWhole {
            id: &self.shown_id,
            title: &self.title,
            text,
            url: &self.url,
            metadata: &self.metadata,
            expanded: shown.along.map(|along| &along.shown),
            data: None,
            content_ladder: None,
        };
        let words = json_text(&told);
        if asking.call.rendering.structured {
            let data = |chars| short_row(&self.record, self.known(), chars);
            told.data = shown.data.map(data);
            told.content_ladder = self.ladder(asking, shown);
        }
        asking.reply(words, &told, links)
    }
}

/// A document, as it is told.
#[derive(Serialize)]
struct ToldWhole<'s> {
    id: &'s str,
    title: &'s str,
    text: &'s str,
    url: &'s str,
    metadata: &'s Json<'s>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expanded: Option<&'s Json<'s>>,
    /// The record as the provider has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Json<'s>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_ladder: Option<Value>,
}

/// How much of a record is shown.
#[derive(Clone, Copy, Default)]
struct Shown<'a> {
    /// Code points of the document's own text; all of them without it.
    text: Option<usize>,
    /// Whether the record stands for a text that it has not, and was cut.
    json_cut: bool,
    /// Code points of the texts of the record as the provider has it, where that is wanted.
    data: Option<usize>,
    along: Option<&'a Along<'a>>,
}

/// What was read along, its texts cut so that it takes no more than there is room for.
struct Along<'a> {
    expanded: &'a Json<'a>,
    shown: Json<'a>,
    /// Code points of its texts, where any is shown.
    chars: Option<usize>,
}

impl<'a> Along<'a> {
    fn of(expanded: &'a Json<'a>, room: usize) -> Self {
        for chars in [usize::MAX, 512, 128, 24] {
            let mut short = expanded.clone();
            shorten_within(&mut short, chars, 0);
            if !short.is_larger(room) {
                return Self {
                    expanded,
                    shown: short,
                    chars: Some(chars),
                };
            }
        }
        Self {
            expanded,
            shown: json!({"omitted": "more than fits here: call query_records with expand, or the other stream itself"}).into(),
            chars: None,
        }
    }

    /// What is said of its texts that are cut.
    fn ladder(&self, ladder: Ladder<'_>) -> Option<Told> {
        let longs = Longs::within(self.expanded);
        longs.ladder("record_set", self.chars?, ladder, false)
    }
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

/// Scalars that say whose a record is and of when, but for what is said elsewhere; and which of them are `cut`.
fn metadata<'a>(record: &Json<'a>, said: [&str; 3], cut: &mut Vec<String>) -> Members<'a> {
    const OF_DATA: [&str; 5] = [
        "stream",
        "connection_id",
        "connector_key",
        "connector_id",
        "display_name",
    ];
    let mut told = Members::default();
    let mut tell = |name: &str, value: &Json<'a>| {
        if told.contains(name) {
            return;
        }
        let short = shortened(value);
        if short != *value {
            cut.push(name.to_owned());
        }
        told.insert(name.to_owned(), short);
    };
    let own = record["metadata"].as_object();
    let own = own.into_iter().flat_map(Members::iter);
    let mut own = own.filter(|(_, value)| !value.is_object() && !value.is_array());
    for (name, value) in own.by_ref().take(MAX_METADATA) {
        tell(name, value);
    }
    let left_out: Vec<String> = own.map(|(name, _)| name.to_owned()).collect();
    for name in HANDLES {
        match record.get(name) {
            Some(value) if value.is_object() || value.is_array() || value.is_null() => {}
            Some(value) if said.iter().any(|said| value == said) => {}
            Some(value) => tell(name, value),
            None => {}
        }
    }
    for name in OF_DATA {
        let value = record["data"].get(name);
        if let Some(value) = value.filter(|value| value.is_string() || value.is_number()) {
            tell(name, value);
        }
    }
    cut.extend(left_out);
    told
}

fn shortened<'a>(value: &Json<'a>) -> Json<'a> {
    let short = value.as_str().map(|text| match preview(text, usize::MAX) {
        Cow::Owned(described) => Cow::Owned(described),
        Cow::Borrowed(text) => cut(text, METADATA_CHARS),
    });
    match (short, value) {
        (Some(Cow::Owned(short)), _) => Json::String(short.into()),
        (None, Json::Number(number)) if number.bytes() > METADATA_CHARS => {
            Json::String(cut(&number.to_string(), METADATA_CHARS).into_owned().into())
        }
        _ => value.clone(),
    }
}

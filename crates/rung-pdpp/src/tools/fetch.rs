//! `fetch`: one record as a document.

use std::borrow::Cow;

use rung_fault::{Code, Fault};
use rung_tool::{Body, InputSchema, LongText, Reply, Tool, first_fitting, fit_text, to_raw_json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::filter::expand_limit_pairs;
use super::id::{RecordId, WindowId, check_name};
use super::json::{Json, JsonObject};
use super::ladder::{self, ImpliedIdentity, Ladder, RecordEntry};
use super::long_fields::{ContentLadder, LongFields, cut_json};
use super::provider_error::ProviderError;
use super::short::{preview, short_row, shorten_fields, shorten_within};
use super::text::{cut, first_text, json_text};
use super::{PersonalData, RecordContext, usual, window};

pub(super) const TOOL: Tool<PersonalData, Input> = Tool::new(
    "fetch",
    "One record as a document, by an id from search or query_records: id, title, text, url and metadata. fields projects it. \
                  Long texts are cut and name the call for the rest. For records as data use query_records.",
    InputSchema::Built(input),
    Body::Async(|context, input| Box::pin(usual(run(context, input)))),
)
.titled("Fetch")
.with_output(output);

/// Code points of a record that is shown as JSON, at least.
const LEAST_JSON_CHARS: usize = 256;
/// Code points of each text in `data`; tried in order until the reply fits.
const DATA_CHARS: [usize; 3] = [1_024, 256, 64];
/// Field names that are listed where a record is cut as a whole, at most.
const MAX_OMITTED_NAMES: usize = 24;
/// Members that can be a document's text, the best first.
const TEXT_MEMBERS: [&str; 4] = ["text", "content", "body", "summary"];

fn input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "minLength": 1, "description": "connection_id/stream:record_id, stream:record_id or pdpp://record/…"},
            "fields": super::names_input("Only these fields"),
            "expand": super::names_input("Relations to include"),
            "expand_limit": super::expand_limit_input(),
            "connection_id": {"type": "string", "minLength": 1, "description": "Only if the id names no source"},
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
    })
}

#[derive(Deserialize)]
pub(super) struct Input {
    id: String,
    #[serde(default)]
    fields: Vec<String>,
    #[serde(default)]
    expand: Vec<String>,
    expand_limit: Option<Map<String, Value>>,
    connection_id: Option<String>,
}

async fn run(context: &RecordContext<'_>, input: Input) -> Result<Reply, ProviderError> {
    let id = with_connection(RecordId::parse(&input.id)?, input.connection_id.as_deref())?;
    let ask = id
        .to_request(&[])
        .with_values("fields", &input.fields)
        .with_values("expand", &input.expand)
        .with_pairs(expand_limit_pairs(input.expand_limit.as_ref())?);
    let answer = context.provider.get_json(&ask).await?;
    let mut record = answer.body()?;
    if record.get("object").is_none()
        && let Some(inner) = record.get_mut("data")
        && inner.get("object").is_some()
    {
        record = inner.take();
    }
    let record = project(record, &input.fields);
    let document = FetchedDocument::new(&input, id, record, context.provider.url());
    Ok(document.reply(context))
}

/// Adds the separately named connection to an id. A contradiction is an error.
pub(super) fn with_connection(mut id: RecordId, named: Option<&str>) -> Result<RecordId, Fault> {
    let Some(named) = named else {
        return Ok(id);
    };
    check_name("connection_id", named)?;
    if let Some(embedded) = &id.connection
        && embedded != named
    {
        let why = format!("the id names connection {embedded:?}, but connection_id is {named:?}");
        return Err(Fault::new(Code::ConflictingConnection, why)
            .with_hint("leave connection_id out: the id names its source"));
    }
    id.connection = Some(named.to_owned());
    Ok(id)
}

/// Removes the fields that were not requested, in case the provider ignored the projection.
fn project<'a>(mut record: Json<'a>, fields: &[String]) -> Json<'a> {
    if fields.is_empty() {
        return record;
    }
    if let Some(data) = record.get_mut("data").and_then(Json::as_object_mut) {
        data.retain(|name| fields.iter().any(|field| field == name));
        if let Some(members) = record.as_object_mut() {
            members.retain(|name| {
                IDENTITY_MEMBERS.contains(&name) || name == "data" || name == "expanded"
            });
        }
    } else if let Some(members) = record.as_object_mut() {
        members.retain(|name| {
            IDENTITY_MEMBERS.contains(&name)
                || fields.iter().any(|field| field == name)
                || name == "expanded"
        });
    }
    record
}

struct FetchedDocument<'a> {
    id: RecordId,
    /// The id as the client sent it.
    shown_id: String,
    record: Json<'a>,
    title: String,
    url: String,
    metadata: Json<'a>,
    /// Names of the metadata members that are cut or left out.
    cut_metadata: Vec<String>,
    /// The text; `field` is the member that it is from.
    text: String,
    field: Option<String>,
    projected: bool,
}

impl<'a> FetchedDocument<'a> {
    fn new(input: &Input, id: RecordId, record: Json<'a>, provider: &str) -> Self {
        let own = [&record["data"], &record];
        let named = own
            .iter()
            .find_map(|place| first_text(place, &["title", "name", "subject", "summary"]));
        let title = named.map_or_else(|| super::hit::title(&record), |named| cut(named, 200));
        let title = title.into_owned();
        let found = own.iter().find_map(|place| {
            let name = TEXT_MEMBERS
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
        let said = [&*shown_id, &*title, &*url, &*text];
        // Without a text of its own, the record is shown as JSON with all requested fields.
        let requested: &[String] = if field.is_some() { &input.fields } else { &[] };
        let metadata = identity_metadata(&record, requested, said, &mut cut_metadata);
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

    /// Returns the whole record as JSON, for one without a text of its own.
    fn record_json(&self) -> String {
        let data = match &self.record["data"] {
            Json::Object(data) => {
                let mut data = data.clone();
                shorten_fields(&mut data, usize::MAX);
                Json::Object(data)
            }
            _ => short_row(&self.record, ImpliedIdentity::default(), usize::MAX),
        };
        if self.projected {
            data.to_string()
        } else {
            format!("{data:#}")
        }
    }

    /// Returns the `content_ladder`: everything that is cut or not shown, and how to continue.
    fn ladder(&self, context: &RecordContext<'_>, shown: &ShownParts<'_>) -> Option<Value> {
        let ladder = Ladder {
            key: &context.options.key,
            authority: context.provider.authority(),
        };
        let known = self.identity_defaults();
        let cut_json = shown.data.map(|chars| cut_json(&self.record, known, chars));
        let cut_json = cut_json.unwrap_or_default();
        let entry = ladder.record(self.id.names(), &self.record, shown.data, &cut_json);
        let brief = entry.as_ref().map(RecordEntry::brief).unwrap_or_default();
        let id = self.id.to_string();
        let mut all = entry.map_or_else(|| json!({}), |entry| json!(entry));
        if let Some(read) = brief.reading(&id, shown.data.unwrap_or(0)) {
            all["read"] = read;
        }
        self.add_text_fields(&mut all, ladder, shown);
        self.add_json_fields(&mut all, shown);
        if let Some(told) = shown.expanded.and_then(|along| along.ladder(ladder)) {
            all["expanded"] = json!(told);
        }
        if !self.cut_metadata.is_empty() {
            let names = &self.cut_metadata[..self.cut_metadata.len().min(MAX_OMITTED_NAMES)];
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

    /// Adds how much of the document's own text is shown, and marks other texts as not shown.
    fn add_text_fields(&self, all: &mut Value, ladder: Ladder<'_>, shown: &ShownParts<'_>) {
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

    /// Adds how much is shown of arrays and objects, and of a record that is shown as JSON.
    fn add_json_fields(&self, all: &mut Value, shown: &ShownParts<'_>) {
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
                "field_count": names.len(), "fields": &names[..names.len().min(MAX_OMITTED_NAMES)],
                "read": {"tool": "read_record_field", "args": args},
            });
        }
    }

    fn identity_defaults(&self) -> ImpliedIdentity<'_> {
        ImpliedIdentity {
            stream: Some(&self.id.stream),
            connection: self.id.connection.as_deref(),
        }
    }

    /// Returns the reply. Each form shows as much as fits into it.
    fn reply(&self, context: &RecordContext<'_>) -> Reply {
        let max_bytes = context.usual_bytes();
        let expanded = self.record.get("expanded").filter(|one| !one.is_null());
        let expanded = expanded.map(|expanded| ExpandedRecords::fit(expanded, max_bytes / 4));
        let json = match self.field {
            Some(_) => None,
            None => Some(self.record_json()),
        };
        let fit = |form: Form, data: Option<usize>| {
            let shown = ShownParts {
                data,
                expanded: expanded.as_ref(),
                ..ShownParts::default()
            };
            let least_chars = match json {
                None => ladder::SHORT_CHARS,
                Some(_) => LEAST_JSON_CHARS,
            };
            let document = DocumentForm {
                document: self,
                context,
                json: json.as_deref(),
                form,
                shown,
            };
            fit_text(&document, least_chars, max_bytes)
        };
        let text = fit(Form::Content, None);
        if !context.call.rendering.structured {
            return text;
        }
        // If the record does not fit as `data`, the client can request its fields.
        let data_chars = DATA_CHARS.iter().filter(|_| context.options.fetch_data);
        let with_data = data_chars.map(|chars| fit(Form::Structured, Some(*chars)));
        let structured = first_fitting(with_data, max_bytes);
        let structured = structured.unwrap_or_else(|| fit(Form::Structured, None));
        Reply {
            structured_content: structured.structured_content,
            ..text
        }
    }

    fn build(
        &self,
        context: &RecordContext<'_>,
        text: &str,
        shown: &ShownParts<'_>,
        form: Form,
        links: &[WindowId],
    ) -> Reply {
        let mut document = DocumentBody {
            id: &self.shown_id,
            title: &self.title,
            text,
            url: &self.url,
            metadata: &self.metadata,
            expanded: shown.expanded.map(|expanded| &expanded.shown),
            data: None,
            content_ladder: None,
        };
        match form {
            Form::Content => Reply::from_blocks(context.content(json_text(&document), links)),
            Form::Structured => {
                let data = |chars| short_row(&self.record, self.identity_defaults(), chars);
                document.data = shown.data.map(data);
                document.content_ladder = self.ladder(context, shown);
                Reply {
                    structured_content: Some(to_raw_json(&document)),
                    ..Reply::from_blocks(Vec::new())
                }
            }
        }
    }
}

/// One form of a document, with the text that it shows.
struct DocumentForm<'a> {
    document: &'a FetchedDocument<'a>,
    context: &'a RecordContext<'a>,
    /// The record as JSON, if it has no text of its own.
    json: Option<&'a str>,
    form: Form,
    shown: ShownParts<'a>,
}

impl LongText for DocumentForm<'_> {
    fn text(&self) -> &str {
        self.json.unwrap_or(&self.document.text)
    }

    fn quotes(&self) -> usize {
        match self.form {
            Form::Content => 2,
            Form::Structured => 1,
        }
    }

    fn render(&self, chars: Option<usize>) -> Reply {
        let Self {
            document,
            context,
            form,
            mut shown,
            ..
        } = *self;
        let Some(chars) = chars else {
            return document.build(context, self.text(), &shown, form, &[]);
        };
        let (Some(field), None) = (&document.field, self.json) else {
            shown.json_cut = true;
            let text = format!(
                "{}\n[cut: read a whole field, text or JSON, with read_record_field {{\"id\":{:?},\"field_path\":…}}, some fields with fetch(fields), or records with query_records]",
                cut(self.text(), chars),
                document.shown_id
            );
            return document.build(context, &text, &shown, form, &[]);
        };
        shown.text = Some(chars);
        let next = window(&document.id, field, Some(chars as u64));
        let text = format!(
            "{}\n[cut at {chars} of {} characters; continue with read_record_field {}, or at {}]",
            preview(&document.text, chars),
            document.text.chars().count(),
            json!({"id": document.shown_id, "field_path": field, "offset_chars": chars}),
            next.uri()
        );
        document.build(context, &text, &shown, form, &[next])
    }
}

/// A form of the reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The content: the document without its ladder, as JSON in a text block.
    Content,
    /// The structured content.
    Structured,
}

/// The body of a reply.
#[derive(Serialize)]
struct DocumentBody<'s> {
    id: &'s str,
    title: &'s str,
    text: &'s str,
    url: &'s str,
    metadata: &'s Json<'s>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expanded: Option<&'s Json<'s>>,
    /// The provider's record.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Json<'s>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_ladder: Option<Value>,
}

/// The parts of a record that are shown.
#[derive(Clone, Copy, Default)]
struct ShownParts<'a> {
    /// Code points of the document's own text; all if `None`.
    text: Option<usize>,
    /// True if the record is shown as JSON and was cut.
    json_cut: bool,
    /// Code points of each text in `data`; no `data` if `None`.
    data: Option<usize>,
    expanded: Option<&'a ExpandedRecords<'a>>,
}

/// The expanded records, their texts cut to fit.
struct ExpandedRecords<'a> {
    expanded: &'a Json<'a>,
    shown: Json<'a>,
    /// Code points of each text; `None` if nothing is shown.
    chars: Option<usize>,
}

impl<'a> ExpandedRecords<'a> {
    fn fit(expanded: &'a Json<'a>, room: usize) -> Self {
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

    /// Returns the ladder of the cut texts.
    fn ladder(&self, ladder: Ladder<'_>) -> Option<ContentLadder> {
        let fields = LongFields::within(self.expanded);
        fields.ladder("record_set", self.chars?, ladder, false)
    }
}

/// Members that identify and date a record.
const IDENTITY_MEMBERS: [&str; 18] = [
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
/// Code points of a metadata member, and the number of members, at most.
const METADATA_CHARS: usize = 120;
const MAX_METADATA: usize = 32;

/// Collects the scalars that identify and date a record and those that were requested, except the values in `said`. Adds the names
/// of members that are cut or left out to `cut`.
fn identity_metadata<'a>(
    record: &Json<'a>,
    requested: &[String],
    said: [&str; 4],
    cut: &mut Vec<String>,
) -> JsonObject<'a> {
    const OF_DATA: [&str; 9] = [
        "stream",
        "connection_id",
        "connector_key",
        "connector_id",
        "display_name",
        "sent_at",
        "created_at",
        "createdAt",
        "updated_at",
    ];
    let mut told = JsonObject::default();
    let mut tell = |name: &str, value: &Json<'a>| {
        if told.contains(name) {
            return;
        }
        let short = shorten_metadata(value);
        if short != *value {
            cut.push(name.to_owned());
        }
        told.insert(name.to_owned(), short);
    };
    let own = record["metadata"].as_object();
    let own = own.into_iter().flat_map(JsonObject::iter);
    let mut own = own.filter(|(_, value)| !value.is_object() && !value.is_array());
    for (name, value) in own.by_ref().take(MAX_METADATA) {
        tell(name, value);
    }
    let left_out: Vec<String> = own.map(|(name, _)| name.to_owned()).collect();
    for name in IDENTITY_MEMBERS {
        match record.get(name) {
            Some(value) if value.is_object() || value.is_array() || value.is_null() => {}
            Some(value) if said.iter().any(|said| value == said) => {}
            Some(value) => tell(name, value),
            None => {}
        }
    }
    let requested = requested.iter().map(String::as_str);
    for name in OF_DATA.into_iter().chain(requested) {
        let value = record["data"].get(name);
        let value = value.filter(|value| !said.iter().any(|said| *value == said));
        let is_scalar = |value: &&Json<'_>| {
            value.is_string() || value.is_number() || matches!(value, Json::Bool(_))
        };
        if let Some(value) = value.filter(is_scalar) {
            tell(name, value);
        }
    }
    cut.extend(left_out);
    told
}

fn shorten_metadata<'a>(value: &Json<'a>) -> Json<'a> {
    let short = value.as_str().map(|text| match preview(text, usize::MAX) {
        Cow::Owned(described) => Cow::Owned(described),
        Cow::Borrowed(text) => cut(text, METADATA_CHARS),
    });
    match (short, value) {
        (Some(Cow::Owned(short)), _) => Json::String(short.into()),
        (None, Json::Number(number)) if number.json_bytes() > METADATA_CHARS => {
            Json::String(cut(&number.to_string(), METADATA_CHARS).into_owned().into())
        }
        _ => value.clone(),
    }
}

//! `schema`: the granted streams, their sources and the capabilities of their fields.

use std::fmt::Write as _;

use rung_fault::{Code, Fault};
use rung_tool::{Body, InputSchema, Reply, Tool, first_fitting};
use serde::Deserialize;
use serde_json::{Value, json};

use super::compact::{capability_flags, compact_schema};
use super::id::check_name;
use super::json::{Json, JsonObject};
use super::provider_error::ProviderError;
use super::provider_request::ProviderRequest;
use super::text::{first_text, inline_text, json_text};
use super::{PersonalData, RecordContext, sized};

pub(super) const TOOL: Tool<PersonalData, Input> = Tool::new(
    "schema",
    "Start here. Lists the granted streams with their sources (connection_id, connector_key). With stream: its fields and what each \
                  can do: exact and range filters, search, aggregation, and relations to expand. Stream names repeat across sources; \
                  add connection_id for one. detail:full needs stream.",
    InputSchema::Built(input),
    Body::Async(|context, input| Box::pin(sized(true, run(context, input)))),
)
.titled("Schema")
.with_output(|| super::wrapped_output(json!({})))
.as_entry();

/// Bytes of a schema, at most. More than a usual reply, because a client needs it whole.
const MAX_BYTES: usize = 60_000;

fn input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "detail": {"enum": ["compact", "full"], "description": "default compact; full is the JSON Schema of one stream"},
            "stream": {"type": "string", "minLength": 1, "description": "Only this stream"},
            "connection_id": super::connection_input(),
        },
        "additionalProperties": false,
    })
}

#[derive(Deserialize)]
pub(super) struct Input {
    detail: Option<String>,
    stream: Option<String>,
    connection_id: Option<String>,
}

async fn run(context: &RecordContext<'_>, input: Input) -> Result<Reply, ProviderError> {
    if let Some(stream) = &input.stream {
        check_name("stream", stream)?;
    }
    if let Some(connection) = &input.connection_id {
        check_name("connection_id", connection)?;
    }
    let full = input.detail.as_deref() == Some("full");
    let ask = |view: Option<(&str, &str)>| {
        let ask = ProviderRequest::new(&["v1", "schema"]);
        let ask = match view {
            Some((name, value)) => ask.with_param(name, Some(value)),
            None => ask,
        };
        ask.with_param("stream", input.stream.as_deref())
            .with_param("connection_id", input.connection_id.as_deref())
    };
    let answer = if full {
        context
            .provider
            .get_json(&ask(Some(("detail", "full"))))
            .await?
    } else {
        match context
            .provider
            .get_json(&ask(Some(("view", "compact"))))
            .await
        {
            // From a provider without the compact view, request the full schema; it is made compact below.
            Err(refusal) if is_unknown_view(&refusal) => {
                context.provider.get_json(&ask(None)).await?
            }
            answer => answer?,
        }
    };
    let mut data = unwrap_document(answer.body()?);
    if !data.is_object() {
        let why = "the provider's schema is not an object";
        return Err(ProviderError::new(Code::SourceFailed, why));
    }
    // Some providers ignore the view.
    if !full && is_exhaustive(&data) {
        data = compact_schema(data);
    }
    if let Some(stream) = &input.stream {
        keep_stream(&mut data, stream);
    }
    if full
        && data["connectors"].is_array()
        && let Some(members) = data.as_object_mut()
    {
        members.remove("streams");
    }
    let text = summary_text(
        &data,
        input.stream.is_some(),
        input.connection_id.as_deref(),
        !context.call.rendering.structured,
    );
    let room = context
        .most_bytes()
        .min(MAX_BYTES.max(context.usual_bytes()));
    let reply = |data: &Json<'_>| {
        let structured = context.structured(data, None, answer.request_id.as_deref());
        context.reply(text.clone(), &structured, &[])
    };
    let within = |data: &Json<'_>| {
        let small = Some(data).filter(|data| !data.is_larger(room));
        first_fitting(small.map(&reply), room)
    };
    let mut shown = within(&data);
    if shown.is_none() && !full {
        remove_fields(&mut data);
        shown = within(&data);
    }
    shown.ok_or_else(|| {
        let why = format!("the schema is larger than the {room} bytes of a reply");
        let fault = Fault::new(Code::ResultTooLarge, why);
        fault
            .with_hint("call schema with a stream and a connection_id, and without detail:full")
            .into()
    })
}

fn is_unknown_view(refusal: &ProviderError) -> bool {
    const UNKNOWN: [&str; 3] = ["bad_request", "invalid_request", "unsupported_query"];
    refusal.status() == Some(400)
        && refusal
            .provider_code()
            .is_some_and(|code| UNKNOWN.contains(&code))
}

/// Returns the schema document, which some providers wrap in `data`.
pub(super) fn schema_document<'b, 'a>(body: &'b Json<'a>) -> &'b Json<'a> {
    if is_wrapped(body) {
        &body["data"]
    } else {
        body
    }
}

fn unwrap_document(mut body: Json<'_>) -> Json<'_> {
    if is_wrapped(&body)
        && let Some(inner) = body.get_mut("data")
    {
        return inner.take();
    }
    body
}

fn is_wrapped(body: &Json<'_>) -> bool {
    let inner = &body["data"];
    let lists = ["connectors", "streams", "granted_connections"];
    inner.is_object()
        && (lists.iter().any(|name| inner[name].is_array()) || inner["object"] == "schema")
}

/// A connector and one of its streams.
type SchemaStream<'b, 'a> = (&'b Json<'a>, &'b Json<'a>);

/// Returns the streams of a schema, each with its connector.
pub(super) fn schema_streams<'b, 'a>(document: &'b Json<'a>) -> Vec<SchemaStream<'b, 'a>> {
    let mut rows = Vec::new();
    if let Some(connectors) = document["connectors"].as_array() {
        for connector in connectors {
            let own = connector["streams"].as_array();
            rows.extend(own.into_iter().flatten().map(|row| (connector, row)));
        }
        return rows;
    }
    let bare = document["streams"].as_array();
    rows.extend(bare.into_iter().flatten().map(|row| (&Json::Null, row)));
    rows
}

/// True if a schema has more than compact capability flags.
fn is_exhaustive(document: &Json<'_>) -> bool {
    schema_streams(document).iter().any(|(_, row)| {
        let fields = row["field_capabilities"].as_object();
        let mut values = fields.into_iter().flat_map(JsonObject::values);
        row["schema"].is_object() || values.any(Json::is_object)
    })
}

/// Removes all other streams.
fn keep_stream(document: &mut Json<'_>, stream: &str) {
    let other = |row: &Json<'_>| !stream_name(row).is_empty() && stream_name(row) != stream;
    if let Some(connectors) = document.get_mut("connectors").and_then(Json::as_array_mut) {
        for connector in connectors.iter_mut() {
            if let Some(rows) = connector.get_mut("streams").and_then(Json::as_array_mut) {
                rows.retain(|row| !other(row));
            }
        }
        connectors.retain(|one| {
            one["streams"]
                .as_array()
                .is_none_or(|rows| !rows.is_empty())
        });
    } else if let Some(rows) = document.get_mut("streams").and_then(Json::as_array_mut) {
        rows.retain(|row| !other(row));
    }
}

/// Removes the fields and relations, which a client can request stream by stream.
fn remove_fields(document: &mut Json<'_>) {
    let mut drop_from = |row: &mut Json<'_>| {
        if let Some(row) = row.as_object_mut() {
            let fields = row.remove("field_capabilities");
            let count = fields.and_then(|fields| fields.as_object().map(JsonObject::len));
            row.insert("field_count", count.unwrap_or(0));
            row.remove("expand_capabilities");
        }
    };
    let connectors = document.get_mut("connectors").and_then(Json::as_array_mut);
    for connector in connectors.into_iter().flatten() {
        if let Some(rows) = connector.get_mut("streams").and_then(Json::as_array_mut) {
            rows.iter_mut().for_each(&mut drop_from);
        }
    }
    if let Some(document) = document.as_object_mut() {
        document.insert("fields_omitted", "call schema with a stream for its fields");
    }
}

const LEGEND: &str = "[field_capability_legend t=declared_type eq=exact_filter r=range_filter_ops lex=lexical_search sem=semantic_search a=aggregation_caps g=false=not_granted]";
const MAX_STREAMS: usize = 50;
const MAX_FIELDS: usize = 16;
const MAX_CONNECTIONS: usize = 8;
const MAX_AGGREGATED: usize = 12;

/// Returns the text of the reply.
fn summary_text(
    document: &Json<'_>,
    scoped: bool,
    connection: Option<&str>,
    alone: bool,
) -> String {
    // Without structured content the text has all streams.
    let (most_streams, most_fields) = if alone {
        (usize::MAX, usize::MAX)
    } else {
        (MAX_STREAMS, MAX_FIELDS)
    };
    let rows = schema_streams(document);
    let connectors = document["connectors"]
        .as_array()
        .map_or_else(|| usize::from(!rows.is_empty()), <[_]>::len);
    let mut text = format!(
        "PDPP schema: connectors={connectors} streams={}",
        rows.len()
    );
    let gone = document["package"]["unavailable_connections"].as_array();
    for one in gone.into_iter().flatten() {
        let key = inline_text(first_text(one, &["connector_key"]).unwrap_or_default());
        let code = inline_text(one["error"]["code"].as_str().unwrap_or_default());
        let _ = write!(
            text,
            "\nunavailable connector_key={key} error={code}: ask the owner to approve it again"
        );
    }
    if scoped {
        let _ = write!(text, "\n{LEGEND}");
    }
    if let Some(connection) = connection {
        let _ = write!(
            text,
            "\n[schema_scope connection_id={}]",
            json_text(&connection)
        );
    }
    if rows.len() > most_streams {
        push_stream_index(&mut text, &rows);
    }
    for (connector, row) in rows.iter().take(most_streams) {
        text.push('\n');
        push_stream_line(&mut text, connector, row, scoped.then_some(most_fields));
    }
    if rows.len() > most_streams {
        let _ = write!(text, "\nmore_streams={}", rows.len() - most_streams);
    }
    if !scoped {
        text.push_str("\ncall schema(stream, connection_id?) for per-field capability flags before filtering, expanding or aggregating");
    }
    text
}

/// Appends an index of stream names, where there are too many streams for a line each.
fn push_stream_index(text: &mut String, rows: &[SchemaStream<'_, '_>]) {
    let mut each: Vec<(&str, Vec<String>)> = Vec::new();
    for (connector, row) in rows {
        let key = connector_key(connector, row);
        let name = inline_text(stream_name(row));
        match each.iter_mut().find(|(known, _)| *known == key) {
            Some((_, names)) => names.push(name),
            None => each.push((key, vec![name])),
        }
    }
    for (key, names) in each {
        let _ = write!(
            text,
            "\n[stream_index connector_key={} stream_count={} streams={}]",
            json_text(&key),
            names.len(),
            names.join("|")
        );
    }
}

fn stream_name<'b>(row: &'b Json<'_>) -> &'b str {
    row.as_str()
        .or_else(|| row["name"].as_str())
        .unwrap_or_default()
}

fn connector_key<'b>(connector: &'b Json<'_>, row: &'b Json<'_>) -> &'b str {
    let names = ["connector_key", "connector_id"];
    let key = first_text(row, &names).or_else(|| first_text(connector, &names));
    key.unwrap_or_default()
}

fn push_stream_line(
    text: &mut String,
    connector: &Json<'_>,
    row: &Json<'_>,
    most_fields: Option<usize>,
) {
    let _ = write!(text, "stream name={}", json_text(&stream_name(row)));
    let key = connector_key(connector, row);
    if !key.is_empty() {
        let _ = write!(text, " connector_key={}", json_text(&key));
    }
    let name = first_text(row, &["display_name", "connection_display_name"])
        .or_else(|| first_text(connector, &["display_name", "connector_display_name"]));
    if let Some(name) = name {
        let _ = write!(text, " display_name={}", json_text(&name));
    }
    text.push_str(" connections=");
    text.push_str(&connections_text(connector, row));
    let (Some(fields), Some(most_fields)) = (row["field_capabilities"].as_object(), most_fields)
    else {
        return;
    };
    let mut shown: Vec<String> = Vec::new();
    let mut aggregated: Vec<(String, Vec<String>)> = Vec::new();
    for (name, able) in fields.iter() {
        let flags = capability_flags(able);
        if shown.len() < most_fields {
            shown.push(format!("{}[{flags}]", inline_text(name)));
        }
        let kinds = flags.split(',').find_map(|flag| flag.strip_prefix("a="));
        for kind in kinds.into_iter().flat_map(|kinds| kinds.split('|')) {
            match aggregated.iter_mut().find(|(known, _)| known == kind) {
                Some((_, names)) => names.push(inline_text(name)),
                None => aggregated.push((kind.to_owned(), vec![inline_text(name)])),
            }
        }
    }
    if fields.len() > most_fields {
        shown.push(format!("more:{}", fields.len() - most_fields));
    }
    let _ = write!(text, " fields={}", shown.join(";"));
    if !aggregated.is_empty() {
        let each = aggregated.into_iter().map(|(kind, mut names)| {
            names.truncate(MAX_AGGREGATED);
            format!("{kind}={}", names.join("|"))
        });
        let _ = write!(text, " aggregations={}", each.collect::<Vec<_>>().join(";"));
    }
    if let Some(relations) = row["expand_capabilities"].as_array() {
        let names = relations
            .iter()
            .filter_map(|one| first_text(one, &["name"]));
        let names: Vec<String> = names.map(inline_text).collect();
        if !names.is_empty() {
            let _ = write!(text, " expand={}", names.join("|"));
        }
    }
}

fn connections_text(connector: &Json<'_>, row: &Json<'_>) -> String {
    let lists = [
        &row["granted_connections"],
        &connector["granted_connections"],
    ];
    let known = lists.into_iter().find_map(|list| list.as_array());
    let mut all: Vec<(String, Option<String>)> = known
        .into_iter()
        .flatten()
        .filter_map(|one| {
            let id = first_text(one, &["connection_id"])?;
            Some((
                id.to_owned(),
                first_text(one, &["display_name"]).map(str::to_owned),
            ))
        })
        .collect();
    if all.is_empty()
        && let Some(id) = first_text(row, &["connection_id"])
    {
        all.push((id.to_owned(), None));
    }
    if all.is_empty() {
        return "none".to_owned();
    }
    let more = all.len().saturating_sub(MAX_CONNECTIONS);
    let mut shown: Vec<String> = all
        .into_iter()
        .take(MAX_CONNECTIONS)
        .map(|(id, name)| match name {
            Some(name) => format!(
                "{{connection_id:{},display_name:{}}}",
                inline_text(&id),
                inline_text(&name)
            ),
            None => format!("{{connection_id:{}}}", inline_text(&id)),
        })
        .collect();
    if more > 0 {
        shown.push(format!("more:{more}"));
    }
    shown.join("|")
}

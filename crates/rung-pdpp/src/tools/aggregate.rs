//! `aggregate`: counts and sums, without reading records.

use std::fmt::Write as _;

use rung_fault::{Code, Fault};
use rung_tool::{Body, InputSchema, Reply, Tool, first_fitting};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::filter::filter_pairs;
use super::id::check_name;
use super::json::Json;
use super::provider_error::ProviderError;
use super::provider_request::ProviderRequest;
use super::text::{json_text, quoted, scalar_json};
use super::{PersonalData, RecordContext, usual};

pub(super) const TOOL: Tool<PersonalData, Input> = Tool::new(
    "aggregate",
    "Count, sum, minimum, maximum or distinct count over a stream, optionally grouped by group_by (a scalar field) XOR \
                  group_by_time with granularity. Never returns record bodies: prefer it over paging query_records to count. \
                  other_count counts the records in groups beyond limit; a positive value means top-N truncation.",
    InputSchema::Built(input),
    Body::Async(|context, input| Box::pin(usual(run(context, input)))),
)
.titled("Aggregate")
.with_output(|| super::wrapped_output(json!({})))
.without_json_text(&["filter", "expand_limit"]);

/// Code points of a group's key in the text, at most.
const KEY_CHARS: usize = 60;

fn input() -> Value {
    let text =
        |description: &str| json!({"type": "string", "minLength": 1, "description": description});
    json!({
        "type": "object",
        "properties": {
            "stream": super::stream_input(),
            "metric": {"enum": ["count", "sum", "min", "max", "count_distinct"], "description": "What to compute"},
            "field": text("Field of the metric; omit for count"),
            "group_by": text("Scalar field to group by"),
            "group_by_time": text("Date field to bucket by"),
            "granularity": {"enum": ["minute", "hour", "day", "week", "month", "quarter", "year"], "description": "Bucket size"},
            "time_zone": text("IANA name; default UTC"),
            "limit": super::limit_input("Groups; default 10"),
            "filter": super::filter_input(),
            "connection_id": super::connection_input(),
        },
        "required": ["stream", "metric"],
        "additionalProperties": false,
    })
}

#[derive(Deserialize)]
pub(super) struct Input {
    stream: String,
    metric: String,
    field: Option<String>,
    group_by: Option<String>,
    group_by_time: Option<String>,
    granularity: Option<String>,
    time_zone: Option<String>,
    limit: Option<u64>,
    filter: Option<Map<String, Value>>,
    connection_id: Option<String>,
}

async fn run(context: &RecordContext<'_>, input: Input) -> Result<Reply, ProviderError> {
    let stream = check_name("stream", &input.stream)?;
    if let Some(connection) = &input.connection_id {
        check_name("connection_id", connection)?;
    }
    let ask = ProviderRequest::new(&["v1", "streams", stream, "aggregate"])
        .with_param("metric", Some(&input.metric))
        .with_param("field", input.field.as_deref())
        .with_param("group_by", input.group_by.as_deref())
        .with_param("group_by_time", input.group_by_time.as_deref())
        .with_param("granularity", input.granularity.as_deref())
        .with_param("time_zone", input.time_zone.as_deref())
        .with_param("limit", input.limit)
        .with_pairs(filter_pairs(input.filter.as_ref())?)
        .with_param("connection_id", input.connection_id.as_deref());
    let mut limit = None;
    loop {
        let ask = match limit {
            None => ask.clone(),
            Some(limit) => ask.without_param("limit").with_param("limit", Some(limit)),
        };
        let answer = context.provider.get_json(&ask).await?;
        let body = answer.body()?;
        let groups = body["groups"].as_array().map_or(0, <[_]>::len);
        let text = summary_text(&input, &body);
        let structured = context.structured(&body, None, answer.request_id.as_deref());
        let reply = context.reply(text, &structured, &[]);
        let (_, most) = context.row_limit().bytes(groups, context.call);
        if let Some(reply) = first_fitting([reply], most) {
            return Ok(reply);
        }
        // A provider that ignores the limit will ignore a smaller one.
        if groups < 2 || limit.is_some_and(|limit| groups > limit) {
            let why = "the result is larger than a reply may be";
            let fault = Fault::new(Code::ResultTooLarge, why);
            return Err(fault
                .with_hint("group by a field with shorter values")
                .into());
        }
        // The omitted groups are counted in `other_count`.
        limit = Some(groups / 2);
    }
}

/// Returns the text of the reply.
fn summary_text(input: &Input, body: &Json<'_>) -> String {
    let mut text = format!("{}({})", input.metric, input.stream);
    if let Some(field) = &input.field {
        let _ = write!(text, " field={field}");
    }
    let grouped = [
        ("group_by", &input.group_by),
        ("group_by_time", &input.group_by_time),
        ("granularity", &input.granularity),
        ("time_zone", &input.time_zone),
    ];
    for (name, value) in grouped {
        if let Some(value) = value {
            let _ = write!(text, " {name}={}", json_text(value));
        }
    }
    let data = if body["data"].is_object() {
        &body["data"]
    } else {
        body
    };
    let Some(groups) = data["groups"].as_array() else {
        let value = data.get("value").or(data.get("filtered_record_count"));
        let value = value.map_or_else(|| "null".to_owned(), scalar_json);
        let _ = write!(text, " = {value}.");
        return text;
    };
    let _ = write!(text, ": {} group(s)", groups.len());
    if groups.is_empty() {
        text.push('.');
        return text;
    }
    let shown = groups.iter().map(|group| {
        let key = match &group["key"] {
            Json::String(key) => quoted(key, KEY_CHARS),
            key => scalar_json(key),
        };
        let count = group.get("count").or(group.get("value"));
        format!(
            "{key}={}",
            count.map_or_else(|| "null".to_owned(), scalar_json)
        )
    });
    let _ = write!(text, " [{}]", shown.collect::<Vec<_>>().join(", "));
    if let Some(other) = data["other_count"].as_i64() {
        let _ = write!(text, " other_count={other};");
    }
    text
}

//! `read_record_field`: a window of a long field, with the cursors to continue.

use rung_fault::Fault;
use rung_ladder::limits;
use rung_tool::{Body, InputSchema, Reply, Tool};
use serde::Deserialize;
use serde_json::{Value, json};

use super::id::{FieldSelector, RecordId, WindowId};
use super::provider_error::ProviderError;
use super::window::{Window, is_sized, selector_fault};
use super::{PersonalData, RecordContext, sized};

pub(super) const TOOL: Tool<PersonalData, Input> = Tool::new(
    "read_record_field",
    "A window of one text field; limit_chars defaults to 4096. Name the record by id, or by connection_id + stream + \
                  record_id. Continue with cursor; or choose offset_chars, or q for its first match.",
    InputSchema::Built(input),
    Body::Async(|context, input: Input| {
        Box::pin(sized(is_sized(&input.selector), run(context, input)))
    }),
)
.titled("Read record field")
.with_output(output);

fn input() -> Value {
    let part =
        |description: &str| json!({"type": "string", "minLength": 1, "description": description});
    let context = |description: &str| json!({"type": "integer", "minimum": 0, "maximum": limits::CONTEXT_CHARS_MAX, "description": description});
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "minLength": 1, "description": "Id from search or query_records"},
            "connection_id": part("Source, if no id"),
            "stream": part("Stream, if no id"),
            "record_id": part("Key, if no id"),
            "field_path": {"type": "string", "minLength": 1, "description": "Field name"},
            "cursor": {"type": "string", "description": "next_cursor or previous_cursor; only with limit_chars"},
            "offset_chars": {"type": "integer", "minimum": 0, "description": "Start"},
            "limit_chars": {"type": "integer", "minimum": 1, "maximum": limits::WINDOW_CHARS_MAX, "description": "Length"},
            "q": {"type": "string", "description": "Text to find"},
            "before_chars": context("Before q"),
            "after_chars": context("After q"),
        },
        "required": ["field_path"],
        "additionalProperties": false,
    })
}

fn output() -> Value {
    let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
    let maybe = json!({"type": ["string", "null"]});
    let closed = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let mut found = closed(
        json!({"q": text, "start_chars": number, "end_chars": number}),
        &[],
    );
    found["type"] = json!(["object", "null"]);
    json!({
        "type": "object",
        "properties": {
            "record": closed(
                json!({"id": text, "connection_id": text, "stream": text, "record_id": text}),
                &["id", "connection_id", "stream", "record_id"],
            ),
            "field": closed(
                json!({"path": text, "mime_type": text, "text_like": {"type": "boolean"}, "size_chars": number, "digest": text}),
                &["path", "text_like"],
            ),
            "window": closed(
                json!({
                    "text": text, "start_chars": number, "end_chars": number, "limit_chars": number,
                    "complete": {"type": "boolean"}, "next_cursor": maybe, "previous_cursor": maybe, "match": found,
                }),
                &["text", "start_chars", "end_chars", "limit_chars", "complete"],
            ),
            "resource": closed(json!({"uri": text, "next_uri": maybe, "previous_uri": maybe}), &[]),
            "error": {"type": "object"}, "provider_url": text, "http_status": number, "request_id": maybe,
        },
        "additionalProperties": false,
    })
}

#[derive(Deserialize)]
pub(super) struct Input {
    id: Option<String>,
    connection_id: Option<String>,
    stream: Option<String>,
    record_id: Option<String>,
    field_path: String,
    #[serde(flatten)]
    selector: FieldSelector,
}

async fn run(context: &RecordContext<'_>, input: Input) -> Result<Reply, ProviderError> {
    let record = record_id(&input)?;
    let asked = WindowId {
        record,
        field: input.field_path,
        selector: input.selector,
    };
    let window = Window::read(context, asked).await?;
    Ok(window.reply(context))
}

/// Returns the record id, from `id` or from its separate parts.
fn record_id(input: &Input) -> Result<RecordId, Fault> {
    let parts = [&input.connection_id, &input.stream, &input.record_id];
    match (&input.id, parts) {
        (Some(_), parts) if parts.iter().any(|part| part.is_some()) => Err(selector_fault(
            "`id` is exclusive with explicit `connection_id`, `stream`, and `record_id`",
        )),
        (Some(id), _) => RecordId::parse(id),
        (None, [Some(connection), Some(stream), Some(record)]) => {
            RecordId::from_parts(Some(connection), stream, record)
        }
        (None, [None, Some(_), Some(_)]) => Err(selector_fault(
            "an explicit record must include connection_id",
        )),
        _ => Err(selector_fault(
            "requires either `id` + `field_path`, or `connection_id` + `stream` + `record_id` + `field_path`",
        )),
    }
}

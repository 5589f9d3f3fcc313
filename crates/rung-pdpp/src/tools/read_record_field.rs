//! `read_record_field`: a part of a long field, and how to read on from there.

use rung_fault::Fault;
use rung_ladder::limits;
use rung_tool::{Pending, Reply};
use serde::Deserialize;
use serde_json::{Value, json};

use super::id::{RecordId, Selector, WindowId};
use super::refusal::Refusal;
use super::window::{Window, is_sized, selector_fault};
use super::{Asking, Definition, read_input};

pub(super) const DEFINITION: Definition = Definition {
    name: "read_record_field",
    title: "Read record field",
    description: "A bounded window of one text field: 4096 characters unless limit_chars says otherwise. Name the record by id, or by connection_id + stream + \
                  record_id. Go on with cursor; or choose offset_chars, or q with before_chars and after_chars around its first match.",
    input,
    output,
    sized: is_sized_input,
    run: |asking, given| Box::pin(run(asking, given)) as Pending<'_, _>,
};

fn input() -> Value {
    let text = json!({"type": "string", "minLength": 1});
    let context = json!({"type": "integer", "minimum": 0, "maximum": limits::CONTEXT_CHARS_MAX});
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "minLength": 1, "description": "Record id as search or query_records gave it"},
            "connection_id": text,
            "stream": text,
            "record_id": text,
            "field_path": {"type": "string", "minLength": 1, "description": "Field name"},
            "cursor": {"type": "string", "description": "next_cursor or previous_cursor; goes with limit_chars alone"},
            "offset_chars": {"type": "integer", "minimum": 0},
            "limit_chars": {"type": "integer", "minimum": 1, "maximum": limits::WINDOW_CHARS_MAX},
            "q": {"type": "string", "description": "Text to centre the window on"},
            "before_chars": context,
            "after_chars": context,
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
        "anyOf": [{"required": ["record", "field", "window"]}, {"required": ["error"]}],
    })
}

#[derive(Deserialize)]
struct Input {
    id: Option<String>,
    connection_id: Option<String>,
    stream: Option<String>,
    record_id: Option<String>,
    field_path: String,
    #[serde(flatten)]
    selector: Selector,
}

async fn run(asking: &Asking<'_>, given: Value) -> Result<Reply, Refusal> {
    let input: Input = read_input(given)?;
    let record = record(&input)?;
    let asked = WindowId {
        record,
        field: input.field_path,
        selector: input.selector,
    };
    let window = Window::read(asking, asked).await?;
    Ok(window.reply(asking))
}

/// Which record is meant: by its id, or by all its parts.
fn record(input: &Input) -> Result<RecordId, Fault> {
    let parts = [&input.connection_id, &input.stream, &input.record_id];
    match (&input.id, parts) {
        (Some(_), parts) if parts.iter().any(|part| part.is_some()) => Err(selector_fault(
            "`id` is exclusive with explicit `connection_id`, `stream`, and `record_id`",
        )),
        (Some(id), _) => RecordId::parse(id),
        (None, [Some(connection), Some(stream), Some(record)]) => {
            RecordId::of_parts(Some(connection), stream, record)
        }
        (None, [None, Some(_), Some(_)]) => Err(selector_fault(
            "an explicit record must include connection_id",
        )),
        _ => Err(selector_fault(
            "requires either `id` + `field_path`, or `connection_id` + `stream` + `record_id` + `field_path`",
        )),
    }
}

fn is_sized_input(given: &Value) -> bool {
    serde_json::from_value(given.clone()).is_ok_and(|selector: Selector| is_sized(&selector))
}

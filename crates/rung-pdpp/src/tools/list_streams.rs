//! `list_streams`: the granted streams and their record counts.

use std::fmt::Write as _;

use rung_fault::{Code, Fault};
use rung_tool::{Body, InputSchema, Reply, Tool, first_fitting};
use serde::Deserialize;
use serde_json::json;

use super::id::check_name;
use super::provider_error::ProviderError;
use super::provider_request::ProviderRequest;
use super::text::{first_text, json_text, scalar_json};
use super::{PersonalData, RecordContext, usual};

pub(super) const TOOL: Tool<PersonalData, Input> = Tool::new(
    "list_streams",
    "The granted streams, one row per source, with record counts and freshness. schema lists their fields.",
    InputSchema::Built(|| {
        json!({
            "type": "object",
            "properties": {"connection_id": super::connection_input()},
            "additionalProperties": false,
        })
    }),
    Body::Async(|context, input| Box::pin(usual(run(context, input)))),
)
.titled("List streams")
.with_output(|| super::wrapped_output(json!({})));

#[derive(Deserialize)]
pub(super) struct Input {
    connection_id: Option<String>,
}

async fn run(context: &RecordContext<'_>, input: Input) -> Result<Reply, ProviderError> {
    if let Some(connection) = &input.connection_id {
        check_name("connection_id", connection)?;
    }
    let ask = ProviderRequest::new(&["v1", "streams"])
        .with_param("connection_id", input.connection_id.as_deref());
    let answer = context.provider.get_json(&ask).await?;
    let body = answer.body()?;
    let rows = body["data"].as_array().unwrap_or_default();
    let mut text = format!("PDPP streams: {} stream(s)", rows.len());
    for row in rows {
        let _ = write!(text, "\nstream name={}", scalar_json(&row["name"]));
        for (name, names) in [
            ("connection_id", &["connection_id"][..]),
            ("connector_key", &["connector_key", "connector_id"]),
            ("display_name", &["display_name"]),
        ] {
            if let Some(value) = first_text(row, names) {
                let _ = write!(text, " {name}={}", json_text(&value));
            }
        }
        if let Some(count) = row["record_count"].as_i64() {
            let _ = write!(text, " record_count={count}");
        }
    }
    let structured = context.structured(&body, None, answer.request_id.as_deref());
    let reply = context.reply(text, &structured, &[]);
    let (_, most) = context.row_limit().bytes(rows.len(), context.call);
    first_fitting([reply], most).ok_or_else(|| {
        let why = format!("the {} streams are larger than a reply may be", rows.len());
        let fault = Fault::new(Code::ResultTooLarge, why);
        fault
            .with_hint("call list_streams with a connection_id, or schema")
            .into()
    })
}

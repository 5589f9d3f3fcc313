//! `list_streams`: the granted streams and their record counts.

use std::fmt::Write as _;

use rung_tool::{BoxFuture, Reply};
use serde::Deserialize;
use serde_json::{Value, json};

use super::id::check_name;
use super::provider_error::ProviderError;
use super::provider_request::ProviderRequest;
use super::text::{first_text, json_text, scalar_json};
use super::{Asking, Definition, parse_input};

pub(super) const DEFINITION: Definition = Definition {
    name: "list_streams",
    title: "List streams",
    description: "The granted streams, one row per source, with record counts and freshness. schema lists their fields.",
    input: || {
        json!({
            "type": "object",
            "properties": {"connection_id": super::connection_input()},
            "additionalProperties": false,
        })
    },
    output: || super::wrapped_output(json!({})),
    sized: |_| false,
    run: |asking, given| Box::pin(run(asking, given)) as BoxFuture<'_, _>,
};

/// Streams in the text, at most.
const MAX_STREAMS: usize = 50;

#[derive(Deserialize)]
struct Input {
    connection_id: Option<String>,
}

async fn run(asking: &Asking<'_>, given: Value) -> Result<Reply, ProviderError> {
    let input: Input = parse_input(given)?;
    if let Some(connection) = &input.connection_id {
        check_name("connection_id", connection)?;
    }
    let ask = ProviderRequest::new(&["v1", "streams"])
        .with_param("connection_id", input.connection_id.as_deref());
    let answer = asking.provider.get_json(&ask).await?;
    let body = answer.body()?;
    let rows = body["data"].as_array().unwrap_or_default();
    // Without structured content the text has all streams.
    let most = if asking.call.rendering.structured {
        MAX_STREAMS
    } else {
        usize::MAX
    };
    let mut text = format!("PDPP streams: {} stream(s)", rows.len());
    for row in rows.iter().take(most) {
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
    if rows.len() > most {
        let _ = write!(text, "\nmore_streams={}", rows.len() - most);
    }
    let count = rows.len();
    let structured = asking.structured(&body, None, answer.request_id.as_deref());
    let reply = asking.reply(text.clone(), &structured, &[]);
    if reply.bytes() <= asking.usual_bytes() {
        return Ok(reply);
    }
    // The text has all but the streams over its limit.
    let data = json!({"object": "list", "stream_count": count, "see": "schema"});
    let structured = asking.structured(data, None, None);
    Ok(asking.reply(text, &structured, &[]))
}

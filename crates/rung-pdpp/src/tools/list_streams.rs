//! `list_streams`: the streams one by one, with how many records they have.

use std::fmt::Write as _;

use rung_tool::{Pending, Reply};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ask::Ask;
use super::id::check_name;
use super::refusal::Refusal;
use super::text::{first_text, json_text, scalar};
use super::{Asking, Definition, read_input};

pub(super) const DEFINITION: Definition = Definition {
    name: "list_streams",
    title: "List streams",
    description: "The granted streams, one row for each source, with record counts and freshness. schema says what can be asked of them.",
    input: || {
        json!({
            "type": "object",
            "properties": {"connection_id": super::connection_input()},
            "additionalProperties": false,
        })
    },
    output: || super::wrapped(json!({})),
    sized: |_| false,
    run: |asking, given| Box::pin(run(asking, given)) as Pending<'_, _>,
};

/// Streams in words.
const MAX_STREAMS: usize = 50;

#[derive(Deserialize)]
struct Input {
    connection_id: Option<String>,
}

async fn run(asking: &Asking<'_>, given: Value) -> Result<Reply, Refusal> {
    let input: Input = read_input(given)?;
    if let Some(connection) = &input.connection_id {
        check_name("connection_id", connection)?;
    }
    let ask = Ask::at(&["v1", "streams"]).with("connection_id", input.connection_id.as_deref());
    let answer = asking.provider.read(&ask).await?;
    let body = answer.body()?;
    let rows = body["data"].as_array().unwrap_or_default();
    // Where there is nothing but words, they say it all.
    let most = if asking.call.rendering.structured {
        MAX_STREAMS
    } else {
        usize::MAX
    };
    let mut text = format!("PDPP streams: {} stream(s)", rows.len());
    for row in rows.iter().take(most) {
        let _ = write!(text, "\nstream name={}", scalar(&row["name"]));
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
    // The words say it all but for what is over their limit.
    let data = json!({"object": "list", "stream_count": count, "see": "schema"});
    let structured = asking.structured(data, None, None);
    Ok(asking.reply(text, &structured, &[]))
}

//! `fetch_blob`: a blob that a record refers to, inlined where it fits the reply.

use data_encoding::BASE64;
use rung_records::digest_bytes;
use rung_tool::{Body, ContentBlock, InputSchema, Reply, ResourceContents, Tool, first_fitting};
use serde::Deserialize;
use serde_json::json;

use super::id::check_name;
use super::provider::ResponseContent;
use super::provider_error::ProviderError;
use super::provider_request::ProviderRequest;
use super::text::json_text;
use super::{PersonalData, RecordContext, usual};

pub(super) const TOOL: Tool<PersonalData, Input> = Tool::new(
    "fetch_blob",
    "Media type, size and digest of a blob that a record refers to, and its bytes if they fit a reply.",
    InputSchema::Built(|| {
        json!({
            "type": "object",
            "properties": {
                "blob_id": {"type": "string", "minLength": 1, "description": "blob_id from a record"},
                "connection_id": super::connection_input(),
            },
            "required": ["blob_id"],
            "additionalProperties": false,
        })
    }),
    Body::Async(|context, input| Box::pin(usual(run(context, input)))),
)
.titled("Fetch blob")
.with_output(|| super::wrapped_output(json!({})));

#[derive(Deserialize)]
pub(super) struct Input {
    blob_id: String,
    connection_id: Option<String>,
}

async fn run(context: &RecordContext<'_>, input: Input) -> Result<Reply, ProviderError> {
    let blob = check_name("blob_id", &input.blob_id)?;
    if let Some(connection) = &input.connection_id {
        check_name("connection_id", connection)?;
    }
    let ask = ProviderRequest::new(&["v1", "blobs", blob])
        .with_param("connection_id", input.connection_id.as_deref());
    let said = context.provider.get(&ask).await?;
    if said.status >= 300 {
        return Err(ProviderError::from_response(said));
    }
    let request_id = said.request_id;
    let (kind, bytes) = match said.content {
        ResponseContent::Bytes { kind, bytes } => (kind, bytes),
        ResponseContent::Json(body) => {
            let written = json_text(&body.parse()?);
            ("application/json".to_owned(), written.into())
        }
    };
    let place = ask.target();
    let digest = digest_bytes(&bytes);
    let told = json!({
        "object": "blob", "blob_id": blob, "mime_type": kind, "size_bytes": bytes.len(), "digest": digest,
        "fetch_url": place,
    });
    let text = format!(
        "blob {} mime_type={kind} size_bytes={} {digest}",
        json_text(&blob),
        bytes.len()
    );
    let reply = |inlined: Option<ResourceContents>| {
        let mut data = told.clone();
        data["inlined"] = json!(inlined.is_some());
        let structured = context.structured(data, None, request_id.as_deref());
        let text = match inlined {
            Some(_) => text.clone(),
            None => {
                format!("{text}; too large for a reply: fetch_url serves it to this bearer")
            }
        };
        let mut reply = context.reply(text, &structured, &[]);
        if let Some(resource) = inlined {
            reply.content.push(ContentBlock::Resource { resource });
        }
        reply
    };
    let text_like = kind.starts_with("text/") || kind == "application/json";
    let words = std::str::from_utf8(&bytes).ok().filter(|_| text_like);
    let whole = reply(Some(ResourceContents {
        uri: format!("{}{place}", context.provider.url()),
        mime_type: Some(kind.clone()),
        text: words.map(str::to_owned),
        blob: words.is_none().then(|| BASE64.encode(&bytes)),
        meta: None,
    }));
    let inlined = first_fitting([whole], context.usual_bytes());
    Ok(inlined.unwrap_or_else(|| reply(None)))
}

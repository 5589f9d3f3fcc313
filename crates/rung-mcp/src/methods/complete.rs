//! The method `completion/complete`.

use std::sync::Arc;

use rung_tool::{CompletionQuery, SourceResult};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{MethodResult, call, parse_params};
use crate::client::ClientContext;
use crate::envelope::to_json;
use crate::protocol_error::{ProtocolError, Result};
use crate::server::{McpServer, ResultBody};

/// Maximum number of values in the protocol.
const MAX_VALUES: usize = 100;

#[derive(Deserialize)]
struct Params {
    #[serde(rename = "ref")]
    reference: CompletionReference,
    argument: CompletionArgument,
    #[serde(default)]
    context: CompletionContext,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum CompletionReference {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Resource { uri: String },
}

#[derive(Deserialize)]
struct CompletionArgument {
    name: String,
    value: String,
}

#[derive(Default, Deserialize)]
struct CompletionContext {
    #[serde(default)]
    arguments: Map<String, Value>,
}

pub(super) fn complete(
    server: McpServer,
    client: Arc<ClientContext>,
    params: Option<&RawValue>,
) -> Result<MethodResult> {
    let params: Params = parse_params(params)?;
    Ok(MethodResult::deferred(async move {
        let partial = CompletionQuery {
            argument: &params.argument.name,
            value: &params.argument.value,
            context: &params.context.arguments,
        };
        let offer = &server.0.config;
        let found = match (&params.reference, &offer.prompts) {
            (CompletionReference::Resource { uri }, _) => {
                offer
                    .resources
                    .complete(&client.permit, uri, partial)
                    .await?
            }
            (CompletionReference::Prompt { name }, Some(prompts)) => {
                prompts.complete(&client.permit, name, partial).await?
            }
            (CompletionReference::Prompt { .. }, None) => None,
        };
        let found = found.ok_or_else(|| {
            ProtocolError::invalid_params(
                "the ref names no prompt or resource template of this server",
            )
        })?;
        let mut values = match found {
            SourceResult::Local(values) => values,
            SourceResult::Relayed(result) => {
                return Ok(ResultBody::Complete(call::relayed_bytes(result)));
            }
        };
        let total = values.len();
        values.truncate(MAX_VALUES);
        let completion = json!({"values": values, "total": total, "hasMore": total > values.len()});
        let result = to_json(&json!({"completion": completion}));
        Ok(ResultBody::Complete(result.into_bytes()))
    }))
}

//! `completion/complete`

use std::sync::Arc;

use rung_tool::{Partial, Served};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{Begun, call, read};
use crate::client::Client;
use crate::envelope::json;
use crate::refusal::{Refusal, Result};
use crate::server::{Body, Server};

/// Values that the protocol lets an answer have.
const MAX_VALUES: usize = 100;

#[derive(Deserialize)]
struct Params {
    #[serde(rename = "ref")]
    of: Of,
    argument: Argument,
    #[serde(default)]
    context: Context,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Of {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Resource { uri: String },
}

#[derive(Deserialize)]
struct Argument {
    name: String,
    value: String,
}

#[derive(Default, Deserialize)]
struct Context {
    #[serde(default)]
    arguments: Map<String, Value>,
}

pub(super) fn complete(
    server: Server,
    client: Arc<Client>,
    params: Option<&RawValue>,
) -> Result<Begun> {
    let params: Params = read(params)?;
    Ok(Begun::later(async move {
        let partial = Partial {
            argument: &params.argument.name,
            value: &params.argument.value,
            context: &params.context.arguments,
        };
        let offer = &server.0.offer;
        let found = match (&params.of, &offer.prompts) {
            (Of::Resource { uri }, _) => {
                offer
                    .resources
                    .complete(&client.permit, uri, partial)
                    .await?
            }
            (Of::Prompt { name }, Some(prompts)) => {
                prompts.complete(&client.permit, name, partial).await?
            }
            (Of::Prompt { .. }, None) => None,
        };
        let found = found.ok_or_else(|| Refusal::params("what the ref names is not here"))?;
        let mut values = match found {
            Served::Ours(values) => values,
            Served::Relayed(result) => return Ok(Body::Complete(call::bytes(result))),
        };
        let total = values.len();
        values.truncate(MAX_VALUES);
        let completion = json!({"values": values, "total": total, "hasMore": total > values.len()});
        let result = json(&json!({"completion": completion}));
        Ok(Body::Complete(result.into_bytes()))
    }))
}

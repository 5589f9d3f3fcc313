//! Headers of the modern era, which repeat what the body says for those who route without reading it.
//!
//! A request whose headers say something else than its body is refused: whoever let it pass was told a lie.

use axum::http::HeaderMap;
use data_encoding::BASE64;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::client::Meta;
use crate::refusal::{Refusal, Result};

pub(crate) const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";
const PARAM: &str = "mcp-param-";

/// Checks what concerns every request: the version, the method, and whom it names.
pub(crate) fn check(
    headers: &HeaderMap,
    meta: &Meta<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<()> {
    let version = meta
        .version
        .map(RawValue::get)
        .and_then(|raw| serde_json::from_str::<&str>(raw).ok());
    if let Some(version) = version {
        same(headers, VERSION, version)?;
    }
    same(headers, METHOD, method)?;
    let member = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return Ok(()),
    };
    let named = params.and_then(|params| string_member(params, member));
    named.map_or(Ok(()), |named| same(headers, NAME, &named))
}

/// A member of an object, without building the rest of it.
fn string_member(object: &RawValue, member: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Names {
        name: Option<Value>,
        uri: Option<Value>,
        task_id: Option<Value>,
    }
    let names: Names = serde_json::from_str(object.get()).ok()?;
    let value = match member {
        "name" => names.name,
        "uri" => names.uri,
        _ => names.task_id,
    };
    match value {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Checks the arguments that the tool's schema wants repeated.
pub(crate) fn check_arguments(
    headers: &HeaderMap,
    schema: &Value,
    arguments: &Value,
) -> Result<()> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Ok(());
    };
    for (argument, property) in properties {
        let Some(name) = property.get("x-mcp-header").and_then(Value::as_str) else {
            continue;
        };
        let name = format!("{PARAM}{}", name.to_ascii_lowercase());
        match arguments.get(argument) {
            None | Some(Value::Null) => {
                if headers.contains_key(&name) {
                    return Err(Refusal::header(format!(
                        "{name} repeats an argument that is not there"
                    )));
                }
            }
            Some(Value::String(text)) => same(headers, &name, text)?,
            Some(other) => same(headers, &name, &other.to_string())?,
        }
    }
    Ok(())
}

fn same(headers: &HeaderMap, name: &str, body: &str) -> Result<()> {
    let mut sent = headers.get_all(name).iter();
    let (first, more) = (sent.next(), sent.next());
    let Some(first) = first else {
        return Err(Refusal::header(format!("the header {name} is missing")));
    };
    if more.is_some() {
        return Err(Refusal::header(format!("the header {name} stands twice")));
    }
    // Spaces around a value are not part of it.
    let sent = first.to_str().map(str::trim).unwrap_or_default();
    match decoded(sent) {
        Some(sent) if sent == body.as_bytes() => Ok(()),
        Some(_) => Err(Refusal::header(format!(
            "the header {name} does not say what the body says"
        ))),
        None => Err(Refusal::header(format!(
            "the header {name} is not base64 as it claims"
        ))),
    }
}

/// The value, which may be wrapped because it does not fit a header as it is.
fn decoded(value: &str) -> Option<Vec<u8>> {
    let wrapped = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match wrapped {
        Some(wrapped) => BASE64.decode(wrapped.as_bytes()).ok(),
        None => Some(value.as_bytes().to_vec()),
    }
}

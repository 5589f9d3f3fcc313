//! Headers of the modern era, which repeat what the body says for those who route without reading it.
//!
//! A request whose headers say something else than its body is refused: whoever let it pass was told a lie.

use axum::http::{HeaderMap, HeaderName};
use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::client::{Meta, read_object};
use crate::refusal::{Refusal, Result};

pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
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
        same(headers, VERSION.as_str(), version, Some)?;
    }
    same(headers, METHOD, method, Some)?;
    let Some(params) = params else {
        return Ok(());
    };
    let named = match method {
        "tools/call" | "prompts/get" => read_object::<OfName>(params, "params")?.name,
        "resources/read" => read_object::<OfUri>(params, "params")?.uri,
        "tasks/get" | "tasks/update" | "tasks/cancel" => {
            read_object::<OfTask>(params, "params")?.task_id
        }
        _ => return Ok(()),
    };
    same(headers, NAME, &named, |sent| decoded(&sent))
}

#[derive(Deserialize)]
struct OfName {
    name: String,
}

#[derive(Deserialize)]
struct OfUri {
    uri: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfTask {
    task_id: String,
}

/// Checks the arguments that the tool's schema wants repeated, wherever in its objects they stand.
pub(crate) fn check_arguments(
    headers: &HeaderMap,
    schema: &Value,
    arguments: &Value,
) -> Result<()> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Ok(());
    };
    for (argument, property) in properties {
        let argument = arguments.get(argument);
        let Some(name) = property.get("x-mcp-header").and_then(Value::as_str) else {
            check_arguments(headers, property, argument.unwrap_or(&Value::Null))?;
            continue;
        };
        let name = format!("{PARAM}{}", name.to_ascii_lowercase());
        match argument {
            None | Some(Value::Null) if headers.contains_key(&name) => {
                let why = format!("{name} repeats an argument that is not there");
                return Err(Refusal::header(why));
            }
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => same(headers, &name, text, |sent| decoded(&sent))?,
            Some(Value::Number(number)) => {
                same(headers, &name, &number.to_string(), |sent| {
                    let sent = decoded(&sent)?;
                    // 42 and 42.0 are one number; what a float cannot tell apart is compared as it is written.
                    let equal = sent.parse::<f64>().ok() == number.as_f64() && sent.len() <= 15;
                    Some(if equal { number.to_string() } else { sent })
                })?;
            }
            Some(other) => same(headers, &name, &other.to_string(), |sent| decoded(&sent))?,
        }
    }
    Ok(())
}

/// Whether a header that stands once means what the body says.
fn same(
    headers: &HeaderMap,
    name: &str,
    body: &str,
    meaning: impl Fn(String) -> Option<String>,
) -> Result<()> {
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
    if sent == body && !sent.starts_with(WRAP) {
        return Ok(());
    }
    match meaning(sent.to_owned()) {
        Some(sent) if sent == body => Ok(()),
        Some(_) => Err(Refusal::header(format!(
            "the header {name} does not say what the body says"
        ))),
        None => Err(Refusal::header(format!("the header {name} cannot be read"))),
    }
}

const WRAP: &str = "=?base64?";

/// The value, which may be wrapped because it does not fit a header as it is.
fn decoded(value: &str) -> Option<String> {
    let wrapped = value
        .strip_prefix(WRAP)
        .and_then(|rest| rest.strip_suffix("?="));
    match wrapped {
        Some(wrapped) => String::from_utf8(BASE64.decode(wrapped.as_bytes()).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

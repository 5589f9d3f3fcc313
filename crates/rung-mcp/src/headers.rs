//! HTTP headers of modern versions, which repeat parts of the body for intermediaries that route without reading it.
//!
//! A request whose headers differ from its body is rejected: an intermediary may have acted on false headers.

use std::borrow::Cow;

use axum::http::{HeaderMap, HeaderName};
use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::client::{RequestMeta, read_object};
use crate::protocol_error::{ProtocolError, Result};

pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";
const PARAM: &str = "mcp-param-";
/// Schema key that names the header repeating an argument.
const MIRROR_KEY: &str = "x-mcp-header";

/// Checks the headers of every request: the version, the method, and the name, URI or task id.
pub(crate) fn check_request(
    headers: &HeaderMap,
    meta: &RequestMeta<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<()> {
    let version = meta
        .version
        .map(RawValue::get)
        .and_then(|raw| serde_json::from_str::<&str>(raw).ok());
    if let Some(version) = version {
        check_header(headers, VERSION.as_str(), version, Some)?;
    }
    check_header(headers, METHOD, method, Some)?;
    let Some(params) = params else {
        return Ok(());
    };
    let named = match method {
        "tools/call" | "prompts/get" => read_object::<NameParams<'_>>(params, "params")?.name,
        "resources/read" => read_object::<UriParams<'_>>(params, "params")?.uri,
        "tasks/get" | "tasks/update" | "tasks/cancel" => {
            read_object::<TaskIdParams<'_>>(params, "params")?.task_id
        }
        _ => return Ok(()),
    };
    check_header(headers, NAME, &named, |sent| decode_value(&sent))
}

#[derive(Deserialize)]
struct NameParams<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct UriParams<'a> {
    #[serde(borrow)]
    uri: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskIdParams<'a> {
    #[serde(borrow)]
    task_id: Cow<'a, str>,
}

/// Checks the headers that repeat arguments, if the tool's schema requires any.
pub(crate) fn check_arguments(
    headers: &HeaderMap,
    schema: &Value,
    arguments: &RawValue,
) -> Result<()> {
    if !has_mirrored_arguments(schema) {
        return Ok(());
    }
    let arguments = serde_json::from_str(arguments.get());
    check_members(headers, schema, &arguments.unwrap_or_default())
}

/// Returns true if a schema requires arguments to be repeated as headers.
pub(crate) fn has_mirrored_arguments(schema: &Value) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.is_some_and(|properties| {
        let mut each = properties.values();
        each.any(|property| property.get(MIRROR_KEY).is_some() || has_mirrored_arguments(property))
    })
}

/// Checks the arguments at every depth of the schema.
fn check_members(headers: &HeaderMap, schema: &Value, arguments: &Value) -> Result<()> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Ok(());
    };
    for (argument, property) in properties {
        let argument = arguments.get(argument);
        let Some(name) = property.get(MIRROR_KEY).and_then(Value::as_str) else {
            check_members(headers, property, argument.unwrap_or(&Value::Null))?;
            continue;
        };
        let name = format!("{PARAM}{}", name.to_ascii_lowercase());
        match argument {
            None | Some(Value::Null) if headers.contains_key(&name) => {
                let why = format!("{name} names an argument that is missing");
                return Err(ProtocolError::header_mismatch(why));
            }
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => {
                check_header(headers, &name, text, |sent| decode_value(&sent))?;
            }
            Some(Value::Number(number)) => {
                check_header(headers, &name, &number.to_string(), |sent| {
                    let sent = decode_value(&sent)?;
                    // 42 and 42.0 are equal; numbers too long for an exact float are compared as text.
                    let equal = sent.parse::<f64>().ok() == number.as_f64() && sent.len() <= 15;
                    Some(if equal { number.to_string() } else { sent })
                })?;
            }
            Some(other) => check_header(headers, &name, &other.to_string(), |sent| {
                decode_value(&sent)
            })?,
        }
    }
    Ok(())
}

/// Checks that a header occurs once and equals the body's value, as sent or after `meaning`.
fn check_header(
    headers: &HeaderMap,
    name: &str,
    body: &str,
    meaning: impl Fn(String) -> Option<String>,
) -> Result<()> {
    let mut sent = headers.get_all(name).iter();
    let (first, more) = (sent.next(), sent.next());
    let Some(first) = first else {
        return Err(ProtocolError::header_mismatch(format!(
            "the header {name} is missing"
        )));
    };
    if more.is_some() {
        return Err(ProtocolError::header_mismatch(format!(
            "the header {name} occurs twice"
        )));
    }
    // Spaces around a value are not part of it.
    let sent = first.to_str().map(str::trim).unwrap_or_default();
    if sent == body && !sent.starts_with(WRAP) {
        return Ok(());
    }
    match meaning(sent.to_owned()) {
        Some(sent) if sent == body => Ok(()),
        Some(_) => Err(ProtocolError::header_mismatch(format!(
            "the header {name} differs from the body"
        ))),
        None => Err(ProtocolError::header_mismatch(format!(
            "the header {name} has an invalid encoding"
        ))),
    }
}

/// Encodes a value for a header: as it is, or in Base64 if it is not plain ASCII or would be ambiguous.
pub(crate) fn encode_value(value: &str) -> Cow<'_, str> {
    let plain = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if plain && value.trim() == value && !value.starts_with(WRAP) {
        return value.into();
    }
    format!("{WRAP}{}?=", BASE64.encode(value.as_bytes())).into()
}

/// Returns the headers that repeat arguments, as the tool's schema requires them.
pub(crate) fn mirrored_headers(schema: &Value, arguments: &Value) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    visit_mirrored(schema, &mut |path, name, _| {
        let value = path.iter().try_fold(arguments, |value, key| value.get(key));
        let text = match value {
            Some(Value::String(text)) => encode_value(text).into_owned(),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
            _ => return,
        };
        headers.push((format!("{PARAM}{name}"), text));
    });
    headers
}

/// Checks the header names that a tool's schema assigns, and the types of their properties.
pub(crate) fn check_mirrored_schema(schema: &Value) -> Result<(), String> {
    let mut seen: Vec<String> = Vec::new();
    let mut wrong = None;
    visit_mirrored(schema, &mut |_, name, property| {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let why = if name.is_empty() || !name.bytes().all(token) {
            Some(format!("x-mcp-header {name:?} is not a header name"))
        } else if seen.iter().any(|other| other.eq_ignore_ascii_case(name)) {
            Some(format!("x-mcp-header {name:?} occurs twice"))
        } else {
            let kind = property
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let simple = matches!(kind, "string" | "integer" | "boolean");
            (!simple).then(|| format!("x-mcp-header {name:?} is on a {kind:?}"))
        };
        seen.push(name.to_owned());
        wrong = wrong.take().or(why);
    });
    wrong.map_or(Ok(()), Err)
}

/// Calls `visit` with the path, the header name and the schema of every annotated property.
fn visit_mirrored(schema: &Value, visit: &mut dyn FnMut(&[&str], &str, &Value)) {
    fn walk<'s>(
        schema: &'s Value,
        path: &mut Vec<&'s str>,
        visit: &mut dyn FnMut(&[&str], &str, &Value),
    ) {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return;
        };
        for (key, property) in properties {
            path.push(key);
            match property.get(MIRROR_KEY) {
                Some(name) => visit(path, name.as_str().unwrap_or_default(), property),
                None if path.len() < MAX_DEPTH => walk(property, path, visit),
                None => {}
            }
            path.pop();
        }
    }
    walk(schema, &mut Vec::new(), visit);
}

/// Maximum schema depth that is searched for header annotations.
const MAX_DEPTH: usize = 16;

const WRAP: &str = "=?base64?";

/// Decodes a header value, which may be wrapped in Base64. `None` if it is not valid.
fn decode_value(value: &str) -> Option<String> {
    let wrapped = value
        .strip_prefix(WRAP)
        .and_then(|rest| rest.strip_suffix("?="));
    match wrapped {
        Some(wrapped) => String::from_utf8(BASE64.decode(wrapped.as_bytes()).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

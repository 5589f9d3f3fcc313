//! Headers of the modern era, which repeat what the body says for those who route without reading it.
//!
//! A request whose headers say something else than its body is refused: whoever let it pass was told a lie.

use std::borrow::Cow;

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
/// Where a schema names the header that repeats an argument.
const MIRRORED: &str = "x-mcp-header";

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
        "tools/call" | "prompts/get" => read_object::<OfName<'_>>(params, "params")?.name,
        "resources/read" => read_object::<OfUri<'_>>(params, "params")?.uri,
        "tasks/get" | "tasks/update" | "tasks/cancel" => {
            read_object::<OfTask<'_>>(params, "params")?.task_id
        }
        _ => return Ok(()),
    };
    same(headers, NAME, &named, |sent| decoded(&sent))
}

#[derive(Deserialize)]
struct OfName<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct OfUri<'a> {
    #[serde(borrow)]
    uri: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfTask<'a> {
    #[serde(borrow)]
    task_id: Cow<'a, str>,
}

/// Checks the arguments that the tool's schema wants repeated, if it wants any.
pub(crate) fn check_arguments(
    headers: &HeaderMap,
    schema: &Value,
    arguments: &RawValue,
) -> Result<()> {
    if !wants_headers(schema) {
        return Ok(());
    }
    let arguments = serde_json::from_str(arguments.get());
    check_members(headers, schema, &arguments.unwrap_or_default())
}

/// Whether a schema wants arguments repeated.
pub(crate) fn wants_headers(schema: &Value) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.is_some_and(|properties| {
        let mut each = properties.values();
        each.any(|property| property.get(MIRRORED).is_some() || wants_headers(property))
    })
}

/// Wherever in the objects they stand.
fn check_members(headers: &HeaderMap, schema: &Value, arguments: &Value) -> Result<()> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Ok(());
    };
    for (argument, property) in properties {
        let argument = arguments.get(argument);
        let Some(name) = property.get(MIRRORED).and_then(Value::as_str) else {
            check_members(headers, property, argument.unwrap_or(&Value::Null))?;
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

/// The value as a header can carry it.
pub(crate) fn encoded(value: &str) -> Cow<'_, str> {
    let plain = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if plain && value.trim() == value && !value.starts_with(WRAP) {
        return value.into();
    }
    format!("{WRAP}{}?=", BASE64.encode(value.as_bytes())).into()
}

/// The headers that repeat arguments, as the tool's schema wants them.
pub(crate) fn mirrored(schema: &Value, arguments: &Value) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    each_mirrored(schema, &mut |path, name, _| {
        let value = path.iter().try_fold(arguments, |value, key| value.get(key));
        let text = match value {
            Some(Value::String(text)) => encoded(text).into_owned(),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
            _ => return,
        };
        headers.push((format!("{PARAM}{name}"), text));
    });
    headers
}

/// What is wrong with the headers that a tool's schema asks for.
pub(crate) fn check_mirrored(schema: &Value) -> Result<(), String> {
    let mut seen: Vec<String> = Vec::new();
    let mut wrong = None;
    each_mirrored(schema, &mut |_, name, property| {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let why = if name.is_empty() || !name.bytes().all(token) {
            Some(format!("x-mcp-header {name:?} is no header's name"))
        } else if seen.iter().any(|other| other.eq_ignore_ascii_case(name)) {
            Some(format!("x-mcp-header {name:?} stands twice"))
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

/// Shows every annotated property to `visit`: where it is, the header, and the property.
fn each_mirrored(schema: &Value, visit: &mut dyn FnMut(&[&str], &str, &Value)) {
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
            match property.get(MIRRORED) {
                Some(name) => visit(path, name.as_str().unwrap_or_default(), property),
                None if path.len() < MAX_DEPTH => walk(property, path, visit),
                None => {}
            }
            path.pop();
        }
    }
    walk(schema, &mut Vec::new(), visit);
}

/// How deep a schema is looked into for headers.
const MAX_DEPTH: usize = 16;

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

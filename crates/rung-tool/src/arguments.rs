//! Arguments: one policy for all tools, and errors that say how to correct them.
//!
//! Many clients send `null` for an argument that they leave out, an object as a string that holds its JSON, or `10.0` for
//! `10`. These are read as what is meant, where the schema leaves no other meaning. Arguments that are forwarded to
//! another server keep every byte.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use rung_fault::{Code, Detail, Fault, nearest};
use rung_ladder::head;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::Schema;
use crate::tool::ArgumentRules;

/// Levels of nesting of JSON arguments, at most: the limit of the parser.
const MAX_JSON_DEPTH: usize = 127;
/// Bytes of a parser's message that an error repeats.
const SHOWN_MESSAGE_BYTES: usize = 400;

/// Problems listed after the first.
const MAX_MORE_PROBLEMS: usize = 3;
/// Unknown keys that an error lists.
const MAX_LISTED_KEYS: usize = 5;
/// Characters of a wrong value that an error repeats.
const MAX_VALUE_CHARS: usize = 60;

/// The arguments of a call, after the policy.
pub struct Arguments {
    /// All arguments. A forwarded one is an empty object here.
    pub(crate) value: Value,
    /// The forwarded arguments as they came.
    pub(crate) forwarded: Vec<(&'static str, Box<RawValue>)>,
}

/// Reads and validates the arguments of a call.
pub(crate) fn read(
    raw: &RawValue,
    schema: &Schema,
    rules: &ArgumentRules,
) -> Result<Arguments, Fault> {
    let mut forwarded = Vec::new();
    let mut value = if rules.forwarded.is_empty() || !raw.get().starts_with('{') {
        parse(raw.get())?
    } else {
        take_forwarded(raw, rules.forwarded, &mut forwarded)?
    };
    // A client may send null or leave the arguments out.
    if value.is_null() {
        value = Value::Object(Map::new());
    }
    normalize(&mut value, schema.source(), rules.no_json_text);
    check(schema, &value)?;
    Ok(Arguments { value, forwarded })
}

fn parse(text: &str) -> Result<Value, Fault> {
    serde_json::from_str(text).map_err(|error| json_fault(&error))
}

/// Returns the fault for arguments that are not valid JSON or of another shape.
pub(crate) fn json_fault(error: &serde_json::Error) -> Fault {
    let why = error.to_string();
    if why.starts_with("recursion limit exceeded") {
        let (line, column) = (error.line(), error.column());
        let why = format!(
            "line {line}, column {column}: the arguments are nested deeper than {MAX_JSON_DEPTH} levels"
        );
        return Fault::new(Code::InvalidArguments, why);
    }
    Fault::new(
        Code::InvalidArguments,
        head(&why, SHOWN_MESSAGE_BYTES).to_owned(),
    )
}

/// Converts validated arguments to the type of a tool's input. What the schema accepts can still be out of range: every schema
/// takes 1e30 for an integer.
pub(crate) fn to_input<I: DeserializeOwned>(arguments: Value) -> Result<I, Fault> {
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        let path = error.path().to_string();
        let why = error.into_inner().to_string();
        let why = format!("{path}: {}", head(&why, SHOWN_MESSAGE_BYTES));
        Fault::new(Code::InvalidArguments, why).with(Detail::Path, path)
    })
}

/// Parses an object, with the arguments of these names set aside unparsed if they are objects.
fn take_forwarded(
    raw: &RawValue,
    names: &[&'static str],
    forwarded: &mut Vec<(&'static str, Box<RawValue>)>,
) -> Result<Value, Fault> {
    let all: BTreeMap<Cow<'_, str>, &RawValue> =
        serde_json::from_str(raw.get()).map_err(|error| json_fault(&error))?;
    let mut value = Map::new();
    for (name, raw) in all {
        let known = names.iter().find(|known| **known == name);
        let object = known.and_then(|known| Some((*known, as_object(raw)?)));
        match object {
            Some((known, object)) => {
                forwarded.push((known, object));
                value.insert(name.into_owned(), Value::Object(Map::new()));
            }
            None => {
                value.insert(name.into_owned(), parse(raw.get())?);
            }
        }
    }
    Ok(Value::Object(value))
}

/// Returns an object as it came, or the one whose JSON a string holds.
fn as_object(raw: &RawValue) -> Option<Box<RawValue>> {
    if raw.get().starts_with('{') {
        return Some(raw.to_owned());
    }
    if !raw.get().starts_with('"') {
        return None;
    }
    let text: String = serde_json::from_str(raw.get()).ok()?;
    let object: Box<RawValue> = serde_json::from_str(&text).ok()?;
    object.get().starts_with('{').then_some(object)
}

/// Accepts null for an optional argument as absence, an object sent as a JSON string (stringified) as that object, and a float without fraction as
/// an integer, wherever the schema takes only what is meant.
fn normalize(value: &mut Value, schema: &Value, no_json_text: &[&str]) {
    match value {
        Value::String(text) if takes_only(schema, "object", "string") => {
            if let Ok(object @ Value::Object(_)) = serde_json::from_str(text) {
                *value = object;
                normalize(value, schema, no_json_text);
            }
        }
        Value::Number(number) if number.is_f64() && takes_only(schema, "integer", "number") => {
            let float = number.as_f64().filter(|float| float.fract() == 0.0);
            let whole = float.and_then(|float| format!("{float:.0}").parse::<i64>().ok());
            if let Some(whole) = whole {
                *value = whole.into();
            }
        }
        Value::Array(items) => {
            for item in items {
                normalize(item, &schema["items"], no_json_text);
            }
        }
        Value::Object(members) => normalize_members(members, schema, no_json_text),
        _ => {}
    }
}

fn normalize_members(members: &mut Map<String, Value>, schema: &Value, no_json_text: &[&str]) {
    let known = &schema["properties"];
    let required = schema["required"].as_array();
    let is_required = |name: &str| {
        let mut names = required.into_iter().flatten();
        names.any(|required| required.as_str() == Some(name))
    };
    members
        .retain(|name, value| !value.is_null() || known.get(name).is_none() || is_required(name));
    for (name, value) in members {
        if value.is_string() && no_json_text.contains(&name.as_str()) {
            continue;
        }
        let property = known.get(name);
        normalize(
            value,
            property.unwrap_or(&schema["additionalProperties"]),
            no_json_text,
        );
    }
}

/// Returns true if the schema takes values of one type and not those of another.
fn takes_only(schema: &Value, wanted: &str, other: &str) -> bool {
    match &schema["type"] {
        Value::String(only) => only == wanted,
        Value::Array(types) => {
            let has = |name: &str| types.iter().any(|known| known == name);
            has(wanted) && !has(other)
        }
        _ => false,
    }
}

/// Rejects arguments that `schema` does not accept. The fault names the path, the rule, and the allowed values.
pub fn check(schema: &Schema, arguments: &Value) -> Result<(), Fault> {
    if schema.accepts(arguments)? {
        return Ok(());
    }
    let mut errors = schema.errors(arguments);
    let Some(first) = errors.next() else {
        return Ok(());
    };
    let problem = Problem::from_error(&first, schema.source());
    let mut message = format!("arguments failed validation: {}", problem.sentence);
    for error in errors.take(MAX_MORE_PROBLEMS) {
        message.push_str("; ");
        message.push_str(&Problem::from_error(&error, schema.source()).sentence);
    }
    let mut fault = Fault::new(Code::InvalidArguments, message)
        .with(Detail::Path, problem.path)
        .with(Detail::Rule, problem.rule);
    if let Some(allowed) = problem.allowed {
        fault = fault.with(Detail::Allowed, allowed);
    }
    if let Some(hint) = problem.hint {
        fault = fault.with_hint(hint);
    }
    if let Some(nearest) = problem.nearest {
        fault = fault.with(Detail::Nearest, nearest);
    }
    Err(fault)
}

struct Problem {
    path: String,
    rule: String,
    sentence: String,
    allowed: Option<Value>,
    nearest: Option<String>,
    hint: Option<String>,
}

impl Problem {
    fn from_error(error: &ValidationError<'_>, schema: &Value) -> Self {
        let mut path = to_dotted_path(error.instance_path().as_str());
        let value = shorten(error.instance());
        let mut allowed = None;
        let mut nearest = None;
        let mut hint = None;
        let what = match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                let known = known_names(error, schema);
                if let Some(name) = unexpected.first() {
                    nearest = closest(name, &known);
                    hint = misplaced_hint(name, nearest.as_deref(), &path, schema);
                }
                allowed = Some(Value::from(known));
                format!("Unrecognized key {}", quoted_list(unexpected))
            }
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                "a value is required".to_owned()
            }
            ValidationErrorKind::Type { kind } => {
                let types: Vec<String> = match kind {
                    TypeKind::Single(one) => vec![one.to_string()],
                    TypeKind::Multiple(several) => several.iter().map(|t| t.to_string()).collect(),
                };
                let sentence = format!("{value} is not of type {}", types.join(" or "));
                allowed = Some(Value::from(types));
                sentence
            }
            ValidationErrorKind::Enum { options } => {
                allowed = Some(options.as_ref().clone());
                if let (Some(given), Some(known)) = (error.instance().as_str(), options.as_array())
                {
                    let known: Vec<_> = known
                        .iter()
                        .filter_map(Value::as_str)
                        .map(str::to_owned)
                        .collect();
                    nearest = closest(given, &known);
                }
                format!("{value} is not one of {}", shorten(options))
            }
            ValidationErrorKind::Constant { expected_value } => {
                allowed = Some(Value::Array(vec![expected_value.as_ref().clone()]));
                format!("{value} is not {}", shorten(expected_value))
            }
            ValidationErrorKind::Minimum { limit } => {
                allowed = Some(limit.clone());
                format!("{value} is not greater than or equal to {limit}")
            }
            ValidationErrorKind::Maximum { limit } => {
                allowed = Some(limit.clone());
                format!("{value} is not less than or equal to {limit}")
            }
            ValidationErrorKind::AnyOf { .. } | ValidationErrorKind::OneOfNotValid { .. } => {
                format!("{value} matches none of the alternatives")
            }
            ValidationErrorKind::OneOfMultipleValid { .. } => {
                format!("{value} matches more than one of the alternatives")
            }
            // The library's own message repeats the whole value, which may be large.
            other => match schema.pointer(error.schema_path().as_str()) {
                Some(bound) => format!("{value} breaks {} {}", other.keyword(), shorten(bound)),
                None => format!("{value} breaks {}", other.keyword()),
            },
        };
        if hint.is_none() {
            hint = nearest
                .as_ref()
                .map(|name| format!("did you mean `{name}`?"));
        }
        Self {
            rule: error.kind().keyword().to_owned(),
            sentence: if path.is_empty() {
                what
            } else {
                format!("{path}: {what}")
            },
            path,
            allowed,
            nearest,
            hint,
        }
    }
}

/// Returns where an unknown name at `path` belongs: a place of exactly that name, or, if no name beside it is near, one nearby.
fn misplaced_hint(name: &str, near: Option<&str>, path: &str, schema: &Value) -> Option<String> {
    let mut places = Vec::new();
    collect_places("", schema, &mut places);
    places.retain(|(place, _)| place != path);
    let belongs = |place: &str, name: &str| {
        if place.is_empty() {
            format!("`{name}` belongs at the top level of the arguments")
        } else {
            format!("`{name}` belongs in `{place}`")
        }
    };
    if let Some((place, name)) = places.iter().find(|(_, known)| *known == name) {
        return Some(belongs(place, name));
    }
    if near.is_some() {
        return None;
    }
    let known = nearest(name, places.iter().map(|(_, known)| *known))?;
    let (place, _) = places.iter().find(|(_, other)| *other == known)?;
    Some(format!("did you mean `{known}`? {}", belongs(place, known)))
}

/// Collects the names of all properties with the dotted paths of the objects that have them.
fn collect_places<'s>(path: &str, schema: &'s Value, places: &mut Vec<(String, &'s str)>) {
    let properties = schema["properties"].as_object();
    for (name, property) in properties.into_iter().flatten() {
        places.push((path.to_owned(), name));
        let below = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        collect_places(&below, property, places);
    }
}

/// Returns the names of the members that the object at fault may have.
fn known_names(error: &ValidationError<'_>, schema: &Value) -> Vec<String> {
    let at = error.schema_path().as_str();
    let object = at.rsplit_once('/').map_or("", |(object, _)| object);
    let properties = schema
        .pointer(object)
        .and_then(|object| object.get("properties"));
    let names = properties
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|p| p.keys());
    names.cloned().collect()
}

fn closest(name: &str, known: &[String]) -> Option<String> {
    nearest(name, known.iter().map(String::as_str)).map(str::to_owned)
}

/// Converts `/filter/created_at/0` to `filter.created_at[0]`.
fn to_dotted_path(pointer: &str) -> String {
    let mut path = String::new();
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        if step.bytes().all(|b| b.is_ascii_digit()) && !step.is_empty() {
            path.push('[');
            path.push_str(&step);
            path.push(']');
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&step);
        }
    }
    path
}

fn shorten(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_VALUE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn quoted_list(names: &[String]) -> String {
    let shown = names.iter().take(MAX_LISTED_KEYS);
    let mut list: Vec<String> = shown
        .map(|name| shorten(&Value::from(name.as_str())))
        .collect();
    if names.len() > MAX_LISTED_KEYS {
        list.push(format!("and {} more", names.len() - MAX_LISTED_KEYS));
    }
    list.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_fault::Face;
    use serde_json::json;

    fn fault(arguments: &Value) -> Value {
        let schema = json!({
            "type": "object",
            "properties": {
                "stream": {"type": "string", "minLength": 2},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100},
                "detail": {"enum": ["compact", "full"]},
                "filter": {"type": "object", "properties": {"at": {"type": "array", "items": {"type": "string"}}}},
            },
            "required": ["stream"],
            "additionalProperties": false,
        });
        let schema = Schema::compile(&schema).unwrap();
        match check(&schema, arguments) {
            Ok(()) => Value::Null,
            Err(fault) => fault.body(Face::Rung)["error"].clone(),
        }
    }

    #[test]
    fn a_refusal_names_the_path_the_rule_and_what_is_allowed() {
        assert_eq!(fault(&json!({"stream": "messages"})), Value::Null);

        let error = fault(&json!({"stream": "messages", "limit": 500}));
        assert_eq!(
            error["message"],
            "arguments failed validation: limit: 500 is not less than or equal to 100"
        );
        assert_eq!(
            error["details"],
            json!({"path": "limit", "rule": "maximum", "allowed": 100})
        );

        let error = fault(&json!({"stream": "messages", "detail": "ful"}));
        assert_eq!(
            error["details"],
            json!({"path": "detail", "rule": "enum", "allowed": ["compact", "full"], "nearest": "full"})
        );

        let error = fault(&json!({"stream": "messages", "filter": {"at": ["x", 1]}}));
        assert_eq!(
            error["details"],
            json!({"path": "filter.at[1]", "rule": "type", "allowed": ["string"]})
        );

        let error = fault(&json!({"stream": "m"}));
        assert_eq!(
            error["message"],
            "arguments failed validation: stream: \"m\" breaks minLength 2"
        );
    }

    #[test]
    fn unknown_arguments_are_refused_with_the_nearest_name() {
        let error = fault(&json!({"stream": "messages", "limt": 5}));
        assert_eq!(
            error["message"],
            "arguments failed validation: Unrecognized key \"limt\""
        );
        assert_eq!(error["hint"], "did you mean `limit`?");
        assert_eq!(
            error["details"],
            json!({
                "path": "", "rule": "additionalProperties",
                "allowed": ["stream", "limit", "detail", "filter"], "nearest": "limit",
            })
        );
    }

    #[test]
    fn several_problems_are_named_and_long_values_are_not_repeated() {
        let error = fault(&json!({"limit": "x".repeat(10_000), "detail": 7}));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("stream: a value is required"), "{message}");
        assert!(message.len() < 400, "{message}");
    }
}

//! Validation of arguments, with errors that say how to correct them.

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use rung_fault::{Code, Detail, Fault, nearest};
use serde_json::Value;

use crate::Schema;

/// Problems listed after the first.
const MAX_MORE_PROBLEMS: usize = 3;
/// Unknown keys that an error lists.
const MAX_LISTED_KEYS: usize = 5;
/// Characters of a wrong value that an error repeats.
const MAX_VALUE_CHARS: usize = 60;

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
    if let Some(nearest) = problem.nearest {
        fault = fault
            .with_hint(format!("did you mean `{nearest}`?"))
            .with(Detail::Nearest, nearest);
    }
    Err(fault)
}

struct Problem {
    path: String,
    rule: String,
    sentence: String,
    allowed: Option<Value>,
    nearest: Option<String>,
}

impl Problem {
    fn from_error(error: &ValidationError<'_>, schema: &Value) -> Self {
        let mut path = to_dotted_path(error.instance_path().as_str());
        let value = shorten(error.instance());
        let mut allowed = None;
        let mut nearest = None;
        let what = match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                let known = known_names(error, schema);
                nearest = unexpected.first().and_then(|name| closest(name, &known));
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
        }
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

//! Converts typed filters and expand limits to query parameters.

use rung_fault::{Code, Fault};
use serde_json::{Map, Value};

/// Converts a filter.
pub(super) fn filter_pairs(
    filter: Option<&Map<String, Value>>,
) -> Result<Vec<(String, String)>, Fault> {
    let Some(filter) = filter else {
        return Ok(Vec::new());
    };
    let wrong = |why: String| {
        Fault::new(Code::InvalidFilter, why).with_hint(
            "pass filter as a typed object: {\"field\": value}, or {\"field\": {\"gte\": value}}; omit it for no filter",
        )
    };
    if filter.is_empty() {
        return Err(wrong("filter is an empty object".to_owned()));
    }
    let mut pairs = Vec::new();
    for (field, value) in filter {
        if field.is_empty() || field.contains(['[', ']']) {
            let why = format!("filter key {field:?} is not the plain name of a field");
            return Err(wrong(why));
        }
        match value {
            Value::Object(bounds) if bounds.is_empty() => {
                return Err(wrong(format!("filter.{field} is a range without bounds")));
            }
            Value::Object(bounds) => {
                for (operator, bound) in bounds {
                    pairs.push((format!("filter[{field}][{operator}]"), param_value(bound)));
                }
            }
            value => pairs.push((format!("filter[{field}]"), param_value(value))),
        }
    }
    Ok(pairs)
}

/// Converts expand limits.
pub(super) fn expand_limit_pairs(
    limits: Option<&Map<String, Value>>,
) -> Result<Vec<(String, String)>, Fault> {
    let Some(limits) = limits else {
        return Ok(Vec::new());
    };
    let wrong = |why: String| {
        Fault::new(Code::InvalidExpand, why).with_hint(
            "pass expand_limit as an object of relations, as {\"messages\": 3}; omit it for the default limits",
        )
    };
    if limits.is_empty() {
        return Err(wrong("expand_limit is an empty object".to_owned()));
    }
    let mut pairs = Vec::new();
    for (relation, limit) in limits {
        if relation.is_empty() || relation.contains(['[', ']']) {
            let why = format!("expand_limit key {relation:?} is not the plain name of a relation");
            return Err(wrong(why));
        }
        pairs.push((format!("expand_limit[{relation}]"), param_value(limit)));
    }
    Ok(pairs)
}

fn param_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

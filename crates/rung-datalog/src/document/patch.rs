//! Patches: changes to a document, each at the end of a path.

use rung_edn::{Map, Value};

use super::{NULL, abbreviate, invalid_document, validate};
use crate::Result;

/// Changes in one patch, at most.
const MAX_CHANGES: usize = 10_000;

/// Applies changes to a document, one after the other.
pub(crate) fn apply_patch(mut document: Value, changes: &Value) -> Result<Value> {
    let changes = match changes {
        Value::Nil => &[],
        changes => match changes.as_sequence() {
            Some(changes) if changes.len() <= MAX_CHANGES => changes,
            Some(_) => {
                return invalid_document(format!("a patch has at most {MAX_CHANGES} changes"));
            }
            None => {
                return invalid_document(
                    "a patch is a vector of changes, such as [[:set [:a :b] 1]]",
                );
            }
        },
    };
    for change in changes {
        let Some([name, path, arguments @ ..]) = change.as_sequence() else {
            let change = abbreviate(change);
            return invalid_document(format!(
                "{change} is not a change; a change has a name and a path, such as [:unset [:a]]"
            ));
        };
        let path = parse_path(path)?;
        let name = name.as_keyword().map_or("", |name| name.as_str());
        match (name, arguments) {
            ("set", [value]) => {
                let value = validate(value.clone(), 0)?;
                set_at(&mut document, &path, value)?;
            }
            ("unset", []) => unset_at(&mut document, &path)?,
            ("update", [function, arguments @ ..]) => {
                let function = function.as_keyword().map_or("", |name| name.as_str());
                let before = find_at(&document, &path)?.cloned();
                let after = apply_update(function, before, arguments)?;
                set_at(&mut document, &path, after)?;
            }
            ("set", _) => return invalid_document(":set takes a path and one value"),
            ("unset", _) => return invalid_document(":unset takes only a path"),
            _ => {
                let change = abbreviate(change);
                return invalid_document(format!(
                    "{change} is not a change; changes are :set, :unset and :update"
                ));
            }
        }
    }
    Ok(document)
}

/// Parses a path to its keys and positions.
fn parse_path(path: &Value) -> Result<Vec<Value>> {
    let steps = match path {
        Value::Keyword(_) | Value::String(_) => vec![path.clone()],
        Value::Vector(steps) | Value::List(steps) => steps.clone(),
        _ => Vec::new(),
    };
    if steps.is_empty() {
        let path = abbreviate(path);
        return invalid_document(format!(
            "{path} is not a path; a path is a key, or a vector of keys and positions"
        ));
    }
    for step in &steps {
        let fits = match step {
            Value::Keyword(name) => !matches!(name.as_str(), "?" | "*" | NULL),
            Value::String(_) => true,
            Value::Long(at) => *at >= 0,
            _ => false,
        };
        if !fits {
            let step = abbreviate(step);
            return invalid_document(format!(
                "{step} is not a step of a path; a path has keys, and positions from 0"
            ));
        }
    }
    Ok(steps)
}

fn out_of_bounds<T>(at: &Value) -> Result<T> {
    invalid_document(format!("no item is at position {at}"))
}

fn type_mismatch<T>(what: &str, step: &Value, value: &Value) -> Result<T> {
    let (step, value) = (abbreviate(step), abbreviate(value));
    invalid_document(format!("{step} needs a {what}; the value is {value}"))
}

/// Checks a position in a vector.
fn check_position(items: &[Value], at: i64) -> Result<usize> {
    match usize::try_from(at) {
        Ok(place) if place < items.len() => Ok(place),
        _ => out_of_bounds(&Value::Long(at)),
    }
}

/// Returns the value at the end of a path, if there is one.
fn find_at<'d>(value: &'d Value, path: &[Value]) -> Result<Option<&'d Value>> {
    let Some((step, rest)) = path.split_first() else {
        return Ok(Some(value));
    };
    match (value, step) {
        (Value::Vector(items), Value::Long(at)) => {
            find_at(&items[check_position(items, *at)?], rest)
        }
        (value, Value::Long(_)) => type_mismatch("vector", step, value),
        (Value::Map(members), step) => match members.get(step) {
            Some(value) => find_at(value, rest),
            None if matches!(rest.first(), Some(Value::Long(_))) => {
                type_mismatch("vector", &rest[0], &Value::Nil)
            }
            None => Ok(None),
        },
        (value, step) => type_mismatch("map", step, value),
    }
}

/// Sets the value at the end of a path. Creates missing maps on the way.
fn set_at(value: &mut Value, path: &[Value], to: Value) -> Result<()> {
    let Some((step, rest)) = path.split_first() else {
        *value = to;
        return Ok(());
    };
    match (value, step) {
        (Value::Vector(items), Value::Long(at)) => {
            let place = check_position(items, *at)?;
            set_at(&mut items[place], rest, to)
        }
        (value, Value::Long(_)) => type_mismatch("vector", step, value),
        (Value::Map(members), step) => {
            let below = members
                .entry(step.clone())
                .or_insert_with(|| Value::Map(Map::new()));
            set_at(below, rest, to)
        }
        (value, step) => type_mismatch("map", step, value),
    }
}

/// Removes the value at the end of a path, if there is one.
fn unset_at(value: &mut Value, path: &[Value]) -> Result<()> {
    let Some((step, rest)) = path.split_first() else {
        return Ok(());
    };
    match (value, step) {
        (Value::Vector(items), Value::Long(at)) => {
            let place = check_position(items, *at)?;
            if rest.is_empty() {
                items.remove(place);
                return Ok(());
            }
            unset_at(&mut items[place], rest)
        }
        (value, Value::Long(_)) => type_mismatch("vector", step, value),
        (Value::Map(members), step) if rest.is_empty() => {
            members.shift_remove(step);
            Ok(())
        }
        (Value::Map(members), step) => match members.get_mut(step) {
            Some(below) => unset_at(below, rest),
            None => Ok(()),
        },
        (value, step) => type_mismatch("map", step, value),
    }
}

/// Returns the value that an update function makes of a value.
fn apply_update(function: &str, before: Option<Value>, arguments: &[Value]) -> Result<Value> {
    let needs = |what: &str, before: &Value| {
        let before = abbreviate(before);
        invalid_document(format!(":{function} needs {what}; the value is {before}"))
    };
    match function {
        "conj" => {
            let mut items = match before.unwrap_or_else(|| Value::Vector(Vec::new())) {
                Value::Vector(items) => items,
                other => return needs("a vector", &other),
            };
            for argument in arguments {
                items.push(validate(argument.clone(), 0)?);
            }
            Ok(Value::Vector(items))
        }
        "merge" | "assoc" | "dissoc" => {
            let mut members = match before.unwrap_or_else(|| Value::Map(Map::new())) {
                Value::Map(members) => members,
                other => return needs("a map", &other),
            };
            match function {
                "merge" => {
                    for argument in arguments {
                        match validate(argument.clone(), 0)? {
                            Value::Map(more) => members.extend(more),
                            other => return needs("maps to merge", &other),
                        }
                    }
                }
                "assoc" => {
                    if arguments.is_empty() || !arguments.len().is_multiple_of(2) {
                        return invalid_document(":assoc takes keys with their values");
                    }
                    let pairs = arguments
                        .chunks_exact(2)
                        .map(|pair| (pair[0].clone(), pair[1].clone()));
                    match validate(Value::Map(pairs.collect()), 0)? {
                        Value::Map(more) => members.extend(more),
                        other => return needs("keys and values", &other),
                    }
                }
                _ => {
                    for key in arguments {
                        members.shift_remove(key);
                    }
                }
            }
            Ok(Value::Map(members))
        }
        "inc" | "dec" => {
            if !arguments.is_empty() {
                return invalid_document(format!(":{function} takes only a path"));
            }
            let before = before.unwrap_or(Value::Long(0));
            let number = match &before {
                Value::Long(number) => Some(*number),
                Value::BigInt(number) => i64::try_from(&**number).ok(),
                _ => None,
            };
            let Some(number) = number else {
                return needs("a 64-bit integer", &before);
            };
            let by = if function == "inc" { 1 } else { -1 };
            match number.checked_add(by) {
                Some(number) => Ok(Value::Long(number)),
                None => invalid_document(format!("{number} is at the limit of 64-bit integers")),
            }
        }
        _ => invalid_document(format!(
            ":{function} is not an update; updates are :conj, :merge, :assoc, :dissoc, :inc and :dec"
        )),
    }
}

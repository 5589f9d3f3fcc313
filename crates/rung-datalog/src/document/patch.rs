//! Patches: a document with a few changes, each at the end of a path.

use rung_edn::{Map, Value};

use super::{NULL, checked, shown, wrong};
use crate::Result;

/// Changes of one document, at most.
const MAX_CHANGES: usize = 10_000;

/// The document after some changes, done one after the other.
pub(crate) fn patched(mut document: Value, changes: &Value) -> Result<Value> {
    let changes = match changes {
        Value::Nil => &[],
        changes => match changes.as_sequence() {
            Some(changes) if changes.len() <= MAX_CHANGES => changes,
            Some(_) => return wrong(format!("a patch has at most {MAX_CHANGES} changes")),
            None => return wrong("a patch is a vector of changes, as [[:set [:a :b] 1]]"),
        },
    };
    for change in changes {
        let Some([name, path, arguments @ ..]) = change.as_sequence() else {
            let change = shown(change);
            return wrong(format!(
                "{change} is no change: it has a name and a path, as [:unset [:a]]"
            ));
        };
        let path = steps(path)?;
        let name = name.as_keyword().map_or("", |name| name.as_str());
        match (name, arguments) {
            ("set", [value]) => {
                let value = checked(value.clone(), 0)?;
                set(&mut document, &path, value)?;
            }
            ("unset", []) => unset(&mut document, &path)?,
            ("update", [function, arguments @ ..]) => {
                let function = function.as_keyword().map_or("", |name| name.as_str());
                let before = found(&document, &path)?.cloned();
                let after = updated(function, before, arguments)?;
                set(&mut document, &path, after)?;
            }
            ("set", _) => return wrong(":set is given a path and one value"),
            ("unset", _) => return wrong(":unset is given a path alone"),
            _ => {
                let change = shown(change);
                return wrong(format!(
                    "{change} is no change: there are :set, :unset and :update"
                ));
            }
        }
    }
    Ok(document)
}

/// The keys and positions of a path.
fn steps(path: &Value) -> Result<Vec<Value>> {
    let steps = match path {
        Value::Keyword(_) | Value::String(_) => vec![path.clone()],
        Value::Vector(steps) | Value::List(steps) => steps.clone(),
        _ => Vec::new(),
    };
    if steps.is_empty() {
        let path = shown(path);
        return wrong(format!(
            "{path} is no path: it is a key, or a vector of keys and positions"
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
            let step = shown(step);
            return wrong(format!(
                "{step} leads nowhere: a path has keys, and positions from 0 on"
            ));
        }
    }
    Ok(steps)
}

fn out_of_bounds<T>(at: &Value) -> Result<T> {
    wrong(format!("there is nothing at position {at}"))
}

fn not_a<T>(what: &str, step: &Value, value: &Value) -> Result<T> {
    let (step, value) = (shown(step), shown(value));
    wrong(format!("{step} needs a {what}, and there is {value}"))
}

/// The place of a position in a vector.
fn place(items: &[Value], at: i64) -> Result<usize> {
    match usize::try_from(at) {
        Ok(place) if place < items.len() => Ok(place),
        _ => out_of_bounds(&Value::Long(at)),
    }
}

/// What is at the end of a path, if anything.
fn found<'d>(value: &'d Value, path: &[Value]) -> Result<Option<&'d Value>> {
    let Some((step, rest)) = path.split_first() else {
        return Ok(Some(value));
    };
    match (value, step) {
        (Value::Vector(items), Value::Long(at)) => found(&items[place(items, *at)?], rest),
        (value, Value::Long(_)) => not_a("vector", step, value),
        (Value::Map(members), step) => match members.get(step) {
            Some(value) => found(value, rest),
            None if matches!(rest.first(), Some(Value::Long(_))) => {
                not_a("vector", &rest[0], &Value::Nil)
            }
            None => Ok(None),
        },
        (value, step) => not_a("map", step, value),
    }
}

/// Sets what is at the end of a path. Maps that are missing on the way come to be.
fn set(value: &mut Value, path: &[Value], to: Value) -> Result<()> {
    let Some((step, rest)) = path.split_first() else {
        *value = to;
        return Ok(());
    };
    match (value, step) {
        (Value::Vector(items), Value::Long(at)) => {
            let place = place(items, *at)?;
            set(&mut items[place], rest, to)
        }
        (value, Value::Long(_)) => not_a("vector", step, value),
        (Value::Map(members), step) => {
            let below = members
                .entry(step.clone())
                .or_insert_with(|| Value::Map(Map::new()));
            set(below, rest, to)
        }
        (value, step) => not_a("map", step, value),
    }
}

/// Takes away what is at the end of a path, where it is there.
fn unset(value: &mut Value, path: &[Value]) -> Result<()> {
    let Some((step, rest)) = path.split_first() else {
        return Ok(());
    };
    match (value, step) {
        (Value::Vector(items), Value::Long(at)) => {
            let place = place(items, *at)?;
            if rest.is_empty() {
                items.remove(place);
                return Ok(());
            }
            unset(&mut items[place], rest)
        }
        (value, Value::Long(_)) => not_a("vector", step, value),
        (Value::Map(members), step) if rest.is_empty() => {
            members.shift_remove(step);
            Ok(())
        }
        (Value::Map(members), step) => match members.get_mut(step) {
            Some(below) => unset(below, rest),
            None => Ok(()),
        },
        (value, step) => not_a("map", step, value),
    }
}

/// What a value becomes.
fn updated(function: &str, before: Option<Value>, arguments: &[Value]) -> Result<Value> {
    let needs = |what: &str, before: &Value| {
        let before = shown(before);
        wrong(format!(":{function} needs {what}, and there is {before}"))
    };
    match function {
        "conj" => {
            let mut items = match before.unwrap_or_else(|| Value::Vector(Vec::new())) {
                Value::Vector(items) => items,
                other => return needs("a vector", &other),
            };
            for argument in arguments {
                items.push(checked(argument.clone(), 0)?);
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
                        match checked(argument.clone(), 0)? {
                            Value::Map(more) => members.extend(more),
                            other => return needs("maps to merge", &other),
                        }
                    }
                }
                "assoc" => {
                    if arguments.is_empty() || !arguments.len().is_multiple_of(2) {
                        return wrong(":assoc is given keys with their values");
                    }
                    let pairs = arguments
                        .chunks_exact(2)
                        .map(|pair| (pair[0].clone(), pair[1].clone()));
                    match checked(Value::Map(pairs.collect()), 0)? {
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
                return wrong(format!(":{function} is given a path alone"));
            }
            let before = before.unwrap_or(Value::Long(0));
            let number = match &before {
                Value::Long(number) => Some(*number),
                Value::BigInt(number) => i64::try_from(&**number).ok(),
                _ => None,
            };
            let Some(number) = number else {
                return needs("a whole number of 64 bits", &before);
            };
            let by = if function == "inc" { 1 } else { -1 };
            match number.checked_add(by) {
                Some(number) => Ok(Value::Long(number)),
                None => wrong(format!("{number} has no next whole number of 64 bits")),
            }
        }
        _ => wrong(format!(
            "there is no update :{function}; there are :conj, :merge, :assoc, :dissoc, :inc and :dec"
        )),
    }
}

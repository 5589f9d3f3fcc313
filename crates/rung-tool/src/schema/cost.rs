//! What judging a value by a schema costs, known before it is done.
//!
//! A plain schema is visited at most once per part of a value. With references a few hundred bytes can ask for
//! more visits than there are atoms, or for a deeper stack than there is; and the `unevaluated` keywords judge
//! everything below them several times over. Schemas with either, and large ones, have their visits counted
//! first: by the walk a validator makes, but each pair of schema and value once, however often it would be
//! visited. Where we are not sure what a validator does, we count more rather than less, and a reference
//! that could be understood in two ways is declined.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Visits after which we decline.
const MAX_VISITS: u64 = 1_000_000;
/// Calls within calls after which we decline, in a validator and in this walk.
const MAX_DEPTH: usize = 600;
/// Objects in a schema up to which visiting all of them for each part of a value is no matter.
const PLAIN_PARTS: usize = 2_000;
/// How often `unevaluated` keywords judge what they stand beside; measured, and rounded up.
const UNEVALUATED_FACTOR: u64 = 4;

/// What a schema can cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cost {
    /// No more than its size times the value's.
    Plain,
    /// More, so each value must be counted out.
    Counted,
}

impl Cost {
    /// Looks at a schema alone. An error says why none of its values could be judged.
    pub(super) fn of(schema: &Value) -> Result<Self, String> {
        let mut survey = Survey::default();
        survey.look(schema, true)?;
        if !survey.multiplies && survey.parts <= PLAIN_PARTS {
            return Ok(Self::Plain);
        }
        // A value of no parts meets only what applies in place: circles and long chains show here. Each
        // part of the schema is tried, since a compiler follows references from any of them.
        let mut count = Count::new(schema);
        each_object(schema, &mut |part| {
            count.visit(part, &Value::Null, 0).map(drop)
        })?;
        Ok(Self::Counted)
    }

    /// Whether `instance` can be judged at a bearable cost.
    pub(super) fn check(self, schema: &Value, instance: &Value) -> Result<(), String> {
        match self {
            Self::Plain => Ok(()),
            Self::Counted => Count::new(schema).visit(schema, instance, 0).map(drop),
        }
    }
}

/// What a schema has in it, wherever it stands.
#[derive(Default)]
struct Survey {
    parts: usize,
    multiplies: bool,
}

impl Survey {
    fn look(&mut self, schema: &Value, at_root: bool) -> Result<(), String> {
        match schema {
            Value::Object(members) => {
                self.parts += 1;
                // Inside a resource of its own, `#/…` would mean another place than it does to us.
                if !at_root && members.get("$id").is_some_and(Value::is_string) {
                    return Err("a part of it has an identity of its own".to_owned());
                }
                for (keyword, member) in members {
                    match keyword.as_str() {
                        "$dynamicRef" | "$recursiveRef" if member.is_string() => {
                            return Err(format!("{keyword} is not followed"));
                        }
                        "$ref" | "unevaluatedProperties" | "unevaluatedItems" => {
                            self.multiplies = true;
                        }
                        _ => {}
                    }
                    self.look(member, false)?;
                }
                Ok(())
            }
            Value::Array(items) => items.iter().try_for_each(|item| self.look(item, false)),
            _ => Ok(()),
        }
    }
}

struct Count<'s> {
    root: &'s Value,
    /// Visits and depth below a pair of schema and value; `None` while they are being counted.
    seen: HashMap<(*const Value, *const Value), Option<(u64, usize)>>,
}

impl<'s> Count<'s> {
    fn new(root: &'s Value) -> Self {
        Self {
            root,
            seen: HashMap::new(),
        }
    }

    /// How many visits judging `value` by `schema` takes, and how deep they go.
    fn visit(
        &mut self,
        schema: &'s Value,
        value: &Value,
        depth: usize,
    ) -> Result<(u64, usize), String> {
        let Value::Object(keywords) = schema else {
            return Ok((1, 1));
        };
        let pair = (std::ptr::from_ref(schema), std::ptr::from_ref(value));
        let (visits, height) = match self.seen.get(&pair) {
            Some(Some(known)) => *known,
            Some(None) => return Err("a reference leads back to itself".to_owned()),
            None => {
                if depth > MAX_DEPTH {
                    return Err("its references go too deep".to_owned());
                }
                self.seen.insert(pair, None);
                let counted = self.below(keywords, value, depth + 1)?;
                self.seen.insert(pair, Some(counted));
                counted
            }
        };
        if depth + height > MAX_DEPTH {
            return Err("its references go too deep for this value".to_owned());
        }
        if visits > MAX_VISITS || self.seen.len() as u64 > MAX_VISITS {
            return Err("it multiplies beyond measure".to_owned());
        }
        Ok((visits, height))
    }

    fn below(
        &mut self,
        keywords: &'s Map<String, Value>,
        value: &Value,
        depth: usize,
    ) -> Result<(u64, usize), String> {
        let mut names = keywords.keys();
        let factor = if names.any(|keyword| keyword.starts_with("unevaluated")) {
            UNEVALUATED_FACTOR
        } else {
            1
        };
        let mut visits = 1_u64;
        let mut height = 0;
        let mut apply = |count: &mut Self, schema: &'s Value, value: &Value| {
            let (more, below) = count.visit(schema, value, depth)?;
            visits = visits.saturating_add(more.saturating_mul(factor));
            height = height.max(below);
            Ok::<_, String>(())
        };
        for (keyword, schema) in keywords {
            match (keyword.as_str(), schema, value) {
                // A property may be named like it; then it is no text.
                ("$ref", reference @ Value::String(_), _) => {
                    let target = self.resolve(reference)?;
                    apply(self, target, value)?;
                }
                ("properties", Value::Object(schemas), Value::Object(entries)) => {
                    for (name, part) in entries {
                        if let Some(schema) = schemas.get(name) {
                            apply(self, schema, part)?;
                        }
                    }
                }
                ("prefixItems", Value::Array(schemas), Value::Array(items)) => {
                    for (schema, part) in schemas.iter().zip(items) {
                        apply(self, schema, part)?;
                    }
                }
                // Definitions are met where they are referred to, and data is no schema.
                (
                    "$defs" | "definitions" | "default" | "examples" | "enum" | "const"
                    | "properties" | "prefixItems",
                    _,
                    _,
                ) => {}
                // One schema for every part.
                (
                    "items"
                    | "additionalItems"
                    | "unevaluatedItems"
                    | "contains"
                    | "additionalProperties"
                    | "unevaluatedProperties"
                    | "propertyNames",
                    schema,
                    _,
                ) => {
                    for part in parts(value) {
                        for schema in schemas(schema) {
                            apply(self, schema, part)?;
                        }
                    }
                }
                ("patternProperties", Value::Object(patterns), _) => {
                    for part in parts(value) {
                        for schema in patterns.values() {
                            apply(self, schema, part)?;
                        }
                    }
                }
                ("dependencies" | "dependentSchemas", Value::Object(names), _) => {
                    for schema in names.values() {
                        apply(self, schema, value)?;
                    }
                }
                // What applies in place, and what we do not know, which might.
                (_, schema, _) => {
                    for schema in schemas(schema) {
                        apply(self, schema, value)?;
                    }
                }
            }
        }
        Ok((visits, height + 1))
    }

    /// Where a reference leads. Only those that mean one thing are followed: a plain pointer from the root.
    fn resolve(&self, reference: &Value) -> Result<&'s Value, String> {
        let text = reference.as_str().unwrap_or_default();
        let pointer = text.strip_prefix('#');
        let plain = pointer.filter(|p| (p.is_empty() || p.starts_with('/')) && !p.contains('%'));
        plain
            .and_then(|pointer| self.root.pointer(pointer))
            .ok_or_else(|| format!("the reference {text:?} is not followed"))
    }
}

/// Everything in a schema that could be one.
fn each_object<'s>(
    schema: &'s Value,
    visit: &mut impl FnMut(&'s Value) -> Result<(), String>,
) -> Result<(), String> {
    match schema {
        Value::Object(members) => {
            visit(schema)?;
            members
                .values()
                .try_for_each(|member| each_object(member, visit))
        }
        Value::Array(items) => items.iter().try_for_each(|item| each_object(item, visit)),
        _ => Ok(()),
    }
}

/// One schema, or several in a list.
fn schemas(value: &Value) -> impl Iterator<Item = &Value> {
    let list = value
        .as_array()
        .map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
    list.iter()
}

fn parts(value: &Value) -> impl Iterator<Item = &Value> {
    let items = value.as_array().into_iter().flatten();
    items.chain(value.as_object().into_iter().flat_map(Map::values))
}

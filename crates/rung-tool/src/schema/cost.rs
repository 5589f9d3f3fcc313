//! The cost of checking a value against a schema, computed before it is checked.
//!
//! A schema without references is visited at most once per part of a value. With references a few hundred bytes can cause an
//! astronomical number of visits, or overflow the stack; and the `unevaluated` keywords check
//! everything below them several times. For schemas with either, and for large ones, the visits are counted
//! first: by the walk that a validator makes, but each pair of schema and value once, however often a validator
//! visits it. Where a validator's behaviour is uncertain, the count is an upper bound, and an ambiguous
//! reference is rejected.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Visits, at most; more are rejected.
const MAX_VISITS: u64 = 1_000_000;
/// Depth of recursion, at most, in a validator and in this walk.
const MAX_DEPTH: usize = 600;
/// Objects in a schema, at most, for which it is cheap to visit all of them for each part of a value.
const PLAIN_PARTS: usize = 2_000;
/// The number of times that `unevaluated` keywords check their sibling keywords; measured, and rounded up.
const UNEVALUATED_FACTOR: u64 = 4;

/// The cost class of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cost {
    /// At most the size of the schema times the size of the value.
    Plain,
    /// Possibly more, so the visits must be counted for each value.
    Counted,
}

impl Cost {
    /// Classifies a schema. An error says why no value can be checked against it.
    pub(super) fn classify(schema: &Value) -> Result<Self, String> {
        let mut survey = SchemaSurvey::default();
        survey.visit(schema, true)?;
        if !survey.multiplies && survey.parts <= PLAIN_PARTS {
            return Ok(Self::Plain);
        }
        // A value without parts meets only keywords that apply in place: this finds cycles and long chains. Each
        // part of the schema is tried, since a compiler follows references from any of them.
        let mut count = VisitCounter::new(schema);
        each_object(schema, &mut |part| {
            count.visit(part, &Value::Null, 0).map(drop)
        })?;
        Ok(Self::Counted)
    }

    /// Checks that `instance` can be validated within the limits.
    pub(super) fn check(self, schema: &Value, instance: &Value) -> Result<(), String> {
        match self {
            Self::Plain => Ok(()),
            Self::Counted => VisitCounter::new(schema)
                .visit(schema, instance, 0)
                .map(drop),
        }
    }
}

/// The features of a schema, at any depth.
#[derive(Default)]
struct SchemaSurvey {
    parts: usize,
    multiplies: bool,
}

impl SchemaSurvey {
    fn visit(&mut self, schema: &Value, at_root: bool) -> Result<(), String> {
        match schema {
            Value::Object(members) => {
                self.parts += 1;
                // Inside an embedded resource, `#/…` is relative to that resource, which is not supported here.
                if !at_root && members.get("$id").is_some_and(Value::is_string) {
                    return Err("a subschema has its own `$id`".to_owned());
                }
                for (keyword, member) in members {
                    match keyword.as_str() {
                        "$dynamicRef" | "$recursiveRef" if member.is_string() => {
                            return Err(format!("{keyword} is not supported"));
                        }
                        "$ref" | "unevaluatedProperties" | "unevaluatedItems" => {
                            self.multiplies = true;
                        }
                        _ => {}
                    }
                    self.visit(member, false)?;
                }
                Ok(())
            }
            Value::Array(items) => items.iter().try_for_each(|item| self.visit(item, false)),
            _ => Ok(()),
        }
    }
}

struct VisitCounter<'s> {
    root: &'s Value,
    /// Visits and depth below a pair of schema and value; `None` while they are being counted.
    counted: HashMap<(*const Value, *const Value), Option<(u64, usize)>>,
}

impl<'s> VisitCounter<'s> {
    fn new(root: &'s Value) -> Self {
        Self {
            root,
            counted: HashMap::new(),
        }
    }

    /// Returns how many visits it takes to check `value` against `schema`, and how deep they go.
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
        let (visits, height) = match self.counted.get(&pair) {
            Some(Some(known)) => *known,
            Some(None) => return Err("a reference is circular".to_owned()),
            None => {
                if depth > MAX_DEPTH {
                    return Err("its references are nested too deeply".to_owned());
                }
                self.counted.insert(pair, None);
                let counted = self.visit_keywords(keywords, value, depth + 1)?;
                self.counted.insert(pair, Some(counted));
                counted
            }
        };
        if depth + height > MAX_DEPTH {
            return Err("its references are nested too deeply for this value".to_owned());
        }
        if visits > MAX_VISITS || self.counted.len() as u64 > MAX_VISITS {
            return Err("checking it costs too much".to_owned());
        }
        Ok((visits, height))
    }

    fn visit_keywords(
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
                // A property may be named `$ref`; then its value is not a string.
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
                // Definitions are visited where they are referenced, and data is not a schema.
                (
                    "$defs" | "definitions" | "default" | "examples" | "enum" | "const"
                    | "properties" | "prefixItems",
                    _,
                    _,
                ) => {}
                // One schema for all parts.
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
                // Keywords that apply in place, and unknown ones, which might.
                (_, schema, _) => {
                    for schema in schemas(schema) {
                        apply(self, schema, value)?;
                    }
                }
            }
        }
        Ok((visits, height + 1))
    }

    /// Resolves a reference. Only unambiguous ones are followed: a plain pointer from the root.
    fn resolve(&self, reference: &Value) -> Result<&'s Value, String> {
        let text = reference.as_str().unwrap_or_default();
        let pointer = text.strip_prefix('#');
        let plain = pointer.filter(|p| (p.is_empty() || p.starts_with('/')) && !p.contains('%'));
        plain
            .and_then(|pointer| self.root.pointer(pointer))
            .ok_or_else(|| format!("the reference {text:?} does not resolve within the schema"))
    }
}

/// Calls `visit` with every object in a schema.
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

/// Returns one schema, or several of a list.
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

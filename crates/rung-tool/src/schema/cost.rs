//! What judging a value by a schema costs, known before it is done.
//!
//! Without references a validator visits each part of a schema at most once per part of a value. With
//! them a few hundred bytes can ask for more visits than there are atoms, or for a deeper stack than there
//! is. So for schemas with references the visits are counted first: by the same walk a validator makes,
//! but each pair of schema and value once, however often it would be visited.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Visits after which we decline.
const MAX_VISITS: u64 = 1_000_000;
/// Calls within calls after which we decline, in a validator and in this walk.
const MAX_DEPTH: usize = 600;

/// What a schema can cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cost {
    /// No more than its size times the value's.
    Plain,
    /// It has references, so each value must be counted out.
    Counted,
}

impl Cost {
    /// Looks at a schema alone. An error says why none of its values could be judged.
    pub(super) fn of(schema: &Value) -> Result<Self, String> {
        if !mentions_reference(schema) {
            return Ok(Self::Plain);
        }
        // A value of no parts meets only what applies in place: circles and long chains show here.
        // Each part of the schema is tried, since any may be met.
        let mut count = Count::new(schema);
        each_schema(schema, &mut |part| {
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

/// The keywords under which schemas apply to the same value.
const IN_PLACE: [&str; 7] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];
/// The keywords under which one schema applies to every part of a value.
const TO_EACH: [&str; 6] = [
    "additionalProperties",
    "unevaluatedProperties",
    "items",
    "unevaluatedItems",
    "contains",
    "propertyNames",
];

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
            return Err("its references multiply beyond measure".to_owned());
        }
        Ok((visits, height))
    }

    fn below(
        &mut self,
        keywords: &'s Map<String, Value>,
        value: &Value,
        depth: usize,
    ) -> Result<(u64, usize), String> {
        let mut visits = 1_u64;
        let mut height = 0;
        let mut apply = |count: &mut Self, schema: &'s Value, value: &Value| {
            let (more, below) = count.visit(schema, value, depth)?;
            visits = visits.saturating_add(more);
            height = height.max(below);
            Ok::<_, String>(())
        };
        for (keyword, schema) in keywords {
            match keyword.as_str() {
                "$ref" | "$dynamicRef" => {
                    let target = self.resolve(schema)?;
                    apply(self, target, value)?;
                }
                keyword if IN_PLACE.contains(&keyword) => match schema {
                    Value::Array(schemas) => {
                        for schema in schemas {
                            apply(self, schema, value)?;
                        }
                    }
                    schema => apply(self, schema, value)?,
                },
                "dependentSchemas" => {
                    for schema in members(schema) {
                        apply(self, schema, value)?;
                    }
                }
                keyword if TO_EACH.contains(&keyword) => {
                    for part in parts(value) {
                        apply(self, schema, part)?;
                    }
                }
                "patternProperties" => {
                    for schema in members(schema) {
                        for part in parts(value) {
                            apply(self, schema, part)?;
                        }
                    }
                }
                "properties" => {
                    if let (Value::Object(schemas), Value::Object(entries)) = (schema, value) {
                        for (name, part) in entries {
                            if let Some(schema) = schemas.get(name) {
                                apply(self, schema, part)?;
                            }
                        }
                    }
                }
                "prefixItems" => {
                    if let (Value::Array(schemas), Value::Array(items)) = (schema, value) {
                        for (schema, part) in schemas.iter().zip(items) {
                            apply(self, schema, part)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok((visits, height + 1))
    }

    /// Where a reference leads. Only references within the schema are followed, by us or by anybody.
    fn resolve(&self, reference: &Value) -> Result<&'s Value, String> {
        let text = reference.as_str().unwrap_or_default();
        let unknown = || format!("the reference {text:?} leads out of it or nowhere");
        let fragment = text.strip_prefix('#').ok_or_else(unknown)?;
        let target = if fragment.is_empty() || fragment.starts_with('/') {
            // Names in a pointer may be percent-encoded; ours are looked up as they stand, and a schema
            // that needs more is declined.
            self.root.pointer(fragment)
        } else {
            find_anchor(self.root, fragment)
        };
        target.ok_or_else(unknown)
    }
}

fn find_anchor<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    match schema {
        Value::Object(members) => {
            let is_it = |key: &str| members.get(key).and_then(Value::as_str) == Some(name);
            if is_it("$anchor") || is_it("$dynamicAnchor") {
                return Some(schema);
            }
            members
                .values()
                .find_map(|member| find_anchor(member, name))
        }
        Value::Array(items) => items.iter().find_map(|item| find_anchor(item, name)),
        _ => None,
    }
}

fn mentions_reference(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => {
            members.contains_key("$ref")
                || members.contains_key("$dynamicRef")
                || members.values().any(mentions_reference)
        }
        Value::Array(items) => items.iter().any(mentions_reference),
        _ => false,
    }
}

/// Everything in a schema that could be a schema.
fn each_schema<'s>(
    schema: &'s Value,
    visit: &mut impl FnMut(&'s Value) -> Result<(), String>,
) -> Result<(), String> {
    match schema {
        Value::Object(members) => {
            // A member named like a keyword may be data (`properties: {"$ref": …}`), which is no schema.
            if members.get("$ref").is_none_or(Value::is_string) {
                visit(schema)?;
            }
            members
                .values()
                .try_for_each(|member| each_schema(member, visit))
        }
        Value::Array(items) => items.iter().try_for_each(|item| each_schema(item, visit)),
        _ => Ok(()),
    }
}

fn members(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_object().into_iter().flat_map(Map::values)
}

fn parts(value: &Value) -> impl Iterator<Item = &Value> {
    let items = value.as_array().into_iter().flatten();
    items.chain(members(value))
}

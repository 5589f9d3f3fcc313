//! Schemas without alternatives at the root, for hosts that drop a tool with `oneOf`, `anyOf` or `allOf` there.
//!
//! The members of all alternatives become properties of one object, and its description names the sets of members of which a
//! call has one. A call that is made of the members of one alternative is valid under both schemas.

use std::borrow::Cow;
use std::collections::BTreeSet;

use rung_ladder::head;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::splice;

/// Keywords at the root of a schema because of which hosts drop its tool.
const ROOT_ALTERNATIVES: [&str; 3] = ["oneOf", "anyOf", "allOf"];
/// Alternatives inside alternatives, and references, that are followed.
const MAX_DEPTH: usize = 6;
/// Bytes of the sets of members that the description names, at the most.
const SETS_BYTES: usize = 600;

/// Returns true if a schema has alternatives at its root.
pub(crate) fn has_root_alternatives(schema: &Value) -> bool {
    ROOT_ALTERNATIVES
        .iter()
        .any(|keyword| schema.get(keyword).is_some())
}

/// Returns a tool definition whose schemas have no alternatives at the root, if one of them has.
pub fn flat_definition(definition: &RawValue) -> Option<Box<RawValue>> {
    let mut flat = None;
    for (name, to_flat) in [
        (
            "inputSchema",
            flat_input_schema as fn(&Value) -> Option<Value>,
        ),
        ("outputSchema", open_output_schema),
    ] {
        let definition = flat.as_deref().unwrap_or(definition.get());
        let Some(schema) = splice::member(definition, name) else {
            continue;
        };
        // Most schemas do not even have the keywords.
        if !ROOT_ALTERNATIVES
            .iter()
            .any(|keyword| schema.get().contains(keyword))
        {
            continue;
        }
        let schema = serde_json::from_str(schema.get()).ok()?;
        if let Some(schema) = to_flat(&schema) {
            flat = Some(splice::set_member(definition, name, &schema.to_string()));
        }
    }
    RawValue::from_string(flat?).ok()
}

/// Returns the output schema without the alternatives at its root: a client must accept every output that is valid.
fn open_output_schema(schema: &Value) -> Option<Value> {
    let mut open = schema.clone();
    let members = open.as_object_mut()?;
    let before = members.len();
    members.retain(|keyword, _| !ROOT_ALTERNATIVES.contains(&&**keyword));
    (members.len() < before).then_some(open)
}

/// Returns the input schema as one object, if it has alternatives at its root.
fn flat_input_schema(schema: &Value) -> Option<Value> {
    if !has_root_alternatives(schema) {
        return None;
    }
    let members = FlatMembers::of(schema, schema, MAX_DEPTH);
    let mut flat = schema.as_object()?.clone();
    for keyword in ROOT_ALTERNATIVES {
        flat.shift_remove(keyword);
    }
    if let Some(sets) = members.to_sentence() {
        let description = match schema["description"].as_str() {
            Some(description) => format!("{description}\n{sets}"),
            None => sets,
        };
        flat.insert("description".to_owned(), description.into());
    }
    let own = schema["properties"].as_object().map_or(0, Map::len);
    let has_more = members.properties.len() > own;
    flat.insert("type".to_owned(), "object".into());
    flat.insert("properties".to_owned(), members.properties.into());
    let required: Vec<String> = members.required.into_iter().collect();
    flat.insert("required".to_owned(), required.into());
    // The alternatives may name members that the root does not.
    if members.is_closed {
        flat.insert("additionalProperties".to_owned(), false.into());
    } else if has_more && schema["additionalProperties"] == false {
        flat.shift_remove("additionalProperties");
    }
    Some(flat.into())
}

/// The members that an object may have.
#[derive(Default)]
struct FlatMembers {
    properties: Map<String, Value>,
    required: BTreeSet<String>,
    /// True if there are no other members.
    is_closed: bool,
    /// The required members of each alternative. Empty if there is none.
    sets: Vec<String>,
}

impl FlatMembers {
    /// Returns the members of a schema in the document `root`.
    fn of(schema: &Value, root: &Value, depth: usize) -> Self {
        let mut members = Self {
            properties: schema["properties"]
                .as_object()
                .cloned()
                .unwrap_or_default(),
            required: names(&schema["required"]).collect(),
            is_closed: schema["additionalProperties"] == false,
            sets: Vec::new(),
        };
        let Some(depth) = depth.checked_sub(1) else {
            members.is_closed = false;
            return members;
        };
        if let Some(target) = schema["$ref"].as_str() {
            let target = target.strip_prefix('#').and_then(|at| root.pointer(at));
            match target {
                Some(target) => members.and(Self::of(target, root, depth)),
                None => members.is_closed = false,
            }
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            members.and(Self::of(part, root, depth));
        }
        for keyword in ["oneOf", "anyOf"] {
            let options = schema[keyword].as_array().into_iter().flatten();
            let options = options.map(|option| Self::of(option, root, depth));
            if let Some(options) = Self::one_of(options.collect()) {
                members.and(options);
            }
        }
        members
    }

    /// Adds the members of a schema that holds as well.
    fn and(&mut self, other: Self) {
        let has_members = !self.properties.is_empty() || !self.required.is_empty();
        self.is_closed = other.is_closed && (self.is_closed || !has_members);
        for (name, schema) in other.properties {
            match self.properties.get_mut(&name) {
                None => {
                    self.properties.insert(name, schema);
                }
                Some(same) if *same == schema => {}
                Some(both) => *both = json!({"allOf": [both.take(), schema]}),
            }
        }
        self.required.extend(other.required);
        self.sets.extend(other.sets);
    }

    /// Returns the members of the schemas of which one holds.
    fn one_of(options: Vec<Self>) -> Option<Self> {
        let sets = options.iter().map(Self::to_set).collect();
        let mut options = options.into_iter();
        let mut any = options.next()?;
        for option in options {
            for (name, schema) in option.properties {
                match any.properties.get_mut(&name) {
                    None => {
                        any.properties.insert(name, schema);
                    }
                    Some(known) => *known = either(known.take(), schema),
                }
            }
            any.required.retain(|name| option.required.contains(name));
            any.is_closed &= option.is_closed;
        }
        any.sets = sets;
        Some(any)
    }

    /// Returns the required members of an alternative: `kind="file", path`.
    fn to_set(&self) -> String {
        let names = self.required.iter().map(|name| {
            let only = self
                .properties
                .get(name)
                .and_then(|schema| schema.get("const"));
            match only {
                Some(value) => Cow::Owned(format!("{name}={value}")),
                None => Cow::Borrowed(&**name),
            }
        });
        names.collect::<Vec<_>>().join(", ")
    }

    /// Returns the sentence that names the sets of members of which a call has one.
    fn to_sentence(&self) -> Option<String> {
        let sets: Vec<String> = self
            .sets
            .iter()
            .filter(|set| !set.is_empty())
            .map(|set| format!("({set})"))
            .collect();
        let told = format!(
            "Pass the members of one of these sets: {}",
            sets.join(" or ")
        );
        (sets.len() > 1).then(|| head(&told, SETS_BYTES).to_owned())
    }
}

fn names(required: &Value) -> impl Iterator<Item = String> {
    let names = required.as_array().into_iter().flatten();
    names.filter_map(Value::as_str).map(str::to_owned)
}

/// Returns the schema of the values that one of two schemas accepts.
fn either(known: Value, other: Value) -> Value {
    if known == other {
        return known;
    }
    let values = |schema: &Value| match (schema.get("const"), schema.get("enum")) {
        (Some(only), None) => Some(vec![only.clone()]),
        (None, Some(Value::Array(values))) => Some(values.clone()),
        _ => None,
    };
    if let (Some(mut known), Some(more)) = (values(&known), values(&other)) {
        for value in more {
            if !known.contains(&value) {
                known.push(value);
            }
        }
        return json!({"enum": known});
    }
    match known {
        Value::Object(mut known) if known.len() == 1 && known.contains_key("anyOf") => {
            if let Some(options) = known["anyOf"].as_array_mut()
                && !options.contains(&other)
            {
                options.push(other);
            }
            known.into()
        }
        known => json!({"anyOf": [known, other]}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schema;

    /// Asserts that calls made of one alternative are valid under both schemas, and returns the flat one.
    fn flat(schema: &Value, calls: &[Value]) -> Value {
        let flat = flat_input_schema(schema).expect("it has alternatives");
        assert!(!has_root_alternatives(&flat), "{flat}");
        assert_eq!(flat["type"], "object");
        let both = [schema, &flat].map(|schema| Schema::compile(schema).unwrap());
        for call in calls {
            for schema in &both {
                assert!(
                    schema.accepts(call).unwrap(),
                    "{call} under {}",
                    schema.source()
                );
            }
        }
        flat
    }

    #[test]
    fn sets_of_members_are_named_in_the_description() {
        let schema = json!({
            "type": "object",
            "description": "Where to look",
            "properties": {"id": {"type": "integer"}, "url": {"type": "string"}, "depth": {"type": "integer"}},
            "required": ["depth"],
            "additionalProperties": false,
            "anyOf": [{"required": ["id"]}, {"required": ["url"]}],
        });
        let flat = flat(
            &schema,
            &[
                json!({"id": 1, "depth": 2}),
                json!({"url": "x", "depth": 2}),
            ],
        );
        assert_eq!(flat["required"], json!(["depth"]));
        assert_eq!(
            flat["description"],
            "Where to look\nPass the members of one of these sets: (id) or (url)"
        );
        assert_eq!(flat["properties"], schema["properties"]);
    }

    #[test]
    fn alternatives_behind_references_become_one_object() {
        let schema = json!({
            "oneOf": [{"$ref": "#/$defs/File"}, {"$ref": "#/$defs/Link"}],
            "$defs": {
                "Size": {"type": "integer"},
                "File": {
                    "type": "object", "required": ["kind", "path"], "additionalProperties": false,
                    "properties": {"kind": {"const": "file"}, "path": {"type": "string"}, "size": {"$ref": "#/$defs/Size"}},
                },
                "Link": {
                    "type": "object", "required": ["kind", "path"], "additionalProperties": false,
                    "properties": {"kind": {"const": "link"}, "path": {"type": "integer"}},
                },
            },
        });
        let calls = [
            json!({"kind": "file", "path": "a", "size": 3}),
            json!({"kind": "link", "path": 3}),
        ];
        let flat = flat(&schema, &calls);
        assert_eq!(
            flat["properties"]["kind"],
            json!({"enum": ["file", "link"]})
        );
        assert_eq!(flat["required"], json!(["kind", "path"]));
        assert_eq!(flat["additionalProperties"], false);
        let sets =
            "Pass the members of one of these sets: (kind=\"file\", path) or (kind=\"link\", path)";
        assert_eq!(flat["description"], sets);
    }

    #[test]
    fn members_of_all_parts_are_joined() {
        let schema = json!({
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"properties": {"a": {"minLength": 2}, "b": true}, "required": ["b"]},
            ],
        });
        let flat = flat(&schema, &[json!({"a": "xx", "b": null})]);
        assert_eq!(flat["required"], json!(["a", "b"]));
        let narrow = Schema::compile(&flat).unwrap();
        assert!(!narrow.accepts(&json!({"a": "x", "b": 1})).unwrap());
        assert_eq!(flat.get("description"), None);
    }

    #[test]
    fn an_object_stays_closed_if_its_alternatives_name_no_other_members() {
        let schema = |alternative: Value| json!({"type": "object", "properties": {"a": true, "b": true}, "additionalProperties": false, "allOf": [{"anyOf": [alternative]}]});
        let same = flat_input_schema(&schema(json!({"required": ["a"]}))).unwrap();
        assert_eq!(same["additionalProperties"], false);
        let more = schema(json!({"properties": {"c": true}}));
        let more = flat_input_schema(&more).unwrap();
        assert!(more.get("additionalProperties").is_none());
    }

    #[test]
    fn references_in_a_circle_end() {
        let schema = json!({"anyOf": [{"$ref": "#"}, {"properties": {"a": true}}]});
        let flat = flat_input_schema(&schema).unwrap();
        assert_eq!(flat["properties"], json!({"a": true}));
    }

    #[test]
    fn a_definition_keeps_every_other_byte() {
        let definition = r#"{"name": "x",  "inputSchema":{"type":"object","anyOf":[]}, "outputSchema": {"type":"object","oneOf":[{}]},"_meta":{"k": 1.0}}"#;
        let definition = RawValue::from_string(definition.to_owned()).unwrap();
        let flat = flat_definition(&definition).unwrap();
        assert_eq!(
            flat.get(),
            r#"{"name": "x",  "inputSchema":{"type":"object","properties":{},"required":[]}, "outputSchema": {"type":"object"},"_meta":{"k": 1.0}}"#
        );
        // A keyword inside a property is accepted.
        let nested = r#"{"inputSchema":{"type":"object","properties":{"a":{"anyOf":[{}]}}}}"#;
        let nested = RawValue::from_string(nested.to_owned()).unwrap();
        assert!(flat_definition(&nested).is_none());
    }
}

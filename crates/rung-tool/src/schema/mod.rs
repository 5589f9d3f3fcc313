//! JSON Schemas: generated from Rust types, compiled once, and safe to run even if they are untrusted.

mod cost;
mod flat;
mod plain;

use std::sync::OnceLock;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

use crate::{Error, Result};
use cost::Cost;
use plain::PlainSchema;

pub use flat::flat_definition;
pub(crate) use flat::has_root_alternatives;

/// Bytes of a schema, at most.
const SCHEMA_BYTES: usize = 256 << 10;
/// Steps of a backtracking pattern before it counts as no match.
const BACKTRACKS: usize = 10_000;
/// Bytes of a compiled pattern, at most.
const PATTERN_BYTES: usize = 1 << 20;

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    source: Value,
    cost: Cost,
    /// Replaces the validator, if the schema has only plain keywords.
    plain: Option<PlainSchema>,
    /// Built at once if there is no plain schema, else for the first rejection: it takes most of the time and memory.
    validator: OnceLock<jsonschema::Validator>,
}

impl Schema {
    /// Compiles a schema from any source. References to other documents are never fetched.
    pub fn compile(source: &Value) -> Result<Self> {
        let invalid = |why: String| Error::SchemaInvalid(why);
        if serde_json::to_vec(source).map_or(true, |bytes| bytes.len() > SCHEMA_BYTES) {
            return Err(invalid(format!("it is larger than {SCHEMA_BYTES} bytes")));
        }
        // First, since the compiler itself follows references.
        let cost = Cost::classify(source).map_err(invalid)?;
        let plain = PlainSchema::parse(source);
        let validator = match plain {
            Some(_) => OnceLock::new(),
            None => OnceLock::from(build_validator(source).map_err(invalid)?),
        };
        Ok(Self {
            source: source.clone(),
            cost,
            plain,
            validator,
        })
    }

    fn validator(&self) -> &jsonschema::Validator {
        self.validator.get_or_init(|| {
            build_validator(&self.source)
                .expect("a plain schema is sound, and any other was compiled")
        })
    }

    /// Returns the schema as it was given.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Returns true if `instance` is valid.
    ///
    /// Fails if references make the check too expensive.
    pub fn accepts(&self, instance: &Value) -> Result<bool> {
        if let Some(plain) = &self.plain {
            return Ok(plain.accepts(instance));
        }
        let judged = self.cost.check(&self.source, instance);
        judged.map_err(Error::SchemaInvalid)?;
        Ok(self.validator().is_valid(instance))
    }

    /// Returns the errors of an `instance` that is not valid.
    pub(crate) fn errors<'i>(
        &'i self,
        instance: &'i Value,
    ) -> impl Iterator<Item = jsonschema::ValidationError<'i>> {
        self.validator().iter_errors(instance)
    }
}

/// Builds the validator of a schema, or says why there is none.
fn build_validator(source: &Value) -> Result<jsonschema::Validator, String> {
    let patterns = jsonschema::PatternOptions::fancy_regex()
        .backtrack_limit(BACKTRACKS)
        .size_limit(PATTERN_BYTES)
        .dfa_size_limit(PATTERN_BYTES);
    jsonschema::options()
        .with_draft(jsonschema::Draft::Draft202012)
        .with_pattern_options(patterns)
        .offline()
        .build(source)
        .map_err(|error| error.to_string())
}

/// Generates the schema of a tool's input.
pub(crate) fn input_schema<T: JsonSchema>() -> Value {
    let mut schema = generate::<T>();
    // An optional argument can be left out, but not be null.
    each_property(&mut schema, &mut remove_null);
    schema
}

/// Removes `null` from the allowed types and values of a property.
fn remove_null(property: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = property.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            property.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(options)) = property.get_mut("anyOf") {
        options.retain(|option| option.get("type").is_none_or(|name| name != "null"));
        if let [Value::Object(only)] = options.as_slice() {
            let only = only.clone();
            property.shift_remove("anyOf");
            for (keyword, value) in only {
                property.entry(keyword).or_insert(value);
            }
        }
    }
    if let Some(Value::Array(values)) = property.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
}

/// Generates the schema of a tool's output.
pub(crate) fn output_schema<T: JsonSchema>() -> Value {
    let mut schema = generate::<T>();
    // Absent members are left out, never null.
    each_property(&mut schema, &mut remove_null);
    // Replies that were cut or that failed lack members, and the same schema describes them.
    remove_required(&mut schema);
    schema
}

fn remove_required(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            // A property may be named `required`, too.
            if members.get("required").is_some_and(Value::is_array) {
                members.shift_remove("required");
            }
            members.values_mut().for_each(remove_required);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_required),
        _ => {}
    }
}

fn generate<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let schema = SchemaGenerator::new(settings).into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    // Every byte of a definition costs the agent tokens, and a type's name and a number's width are of no use to it.
    strip_titles_and_formats(&mut schema);
    schema
}

fn strip_titles_and_formats(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("title").is_some_and(Value::is_string) {
                members.shift_remove("title");
            }
            let width = |format: &Value| {
                let format = format.as_str().unwrap_or_default();
                ["int", "uint", "float", "double"]
                    .iter()
                    .any(|kind| format.starts_with(kind))
            };
            if members.get("format").is_some_and(width) {
                members.shift_remove("format");
            }
            members.values_mut().for_each(strip_titles_and_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_titles_and_formats),
        _ => {}
    }
}

fn each_property(schema: &mut Value, visit: &mut impl FnMut(&mut Map<String, Value>)) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else {
        return;
    };
    for property in properties.values_mut() {
        each_property(property, visit);
        if let Value::Object(property) = property {
            visit(property);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn accepts(schema: &Value, instance: &Value) -> bool {
        Schema::compile(schema).unwrap().accepts(instance).unwrap()
    }

    #[test]
    fn an_optional_argument_is_left_out_or_given_but_never_null() {
        #[derive(serde::Deserialize, JsonSchema)]
        #[serde(rename_all = "lowercase")]
        #[allow(dead_code, reason = "only its schema is of interest")]
        enum Detail {
            Compact,
            /// Every field.
            Full,
        }
        #[derive(serde::Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[allow(dead_code, reason = "only its schema is of interest")]
        struct Input {
            detail: Option<Detail>,
            limit: Option<u32>,
            names: Option<Vec<String>>,
        }
        let schema = input_schema::<Input>();
        assert!(!schema.to_string().contains("null"), "{schema}");
        assert!(accepts(
            &schema,
            &json!({"detail": "full", "limit": 3, "names": []})
        ));
        assert!(accepts(&schema, &json!({})));
        for name in ["detail", "limit", "names"] {
            assert!(!accepts(&schema, &json!({name: null})), "{name}");
        }
    }

    #[test]
    fn ordinary_recursive_schemas_work() {
        let tree = json!({
            "type": "object",
            "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "n": {"type": "integer"}},
            "additionalProperties": false,
        });
        let mut value = json!({"n": 1});
        for _ in 0..60 {
            value = json!({"left": value, "right": {"n": 2}});
        }
        assert!(accepts(&tree, &value));
        assert!(!accepts(&tree, &json!({"left": {"n": "x"}})));
    }

    #[test]
    fn references_are_never_fetched() {
        for reference in [
            "https://example.com/schema.json",
            "file:///etc/passwd",
            "other.json",
        ] {
            let schema = json!({"$ref": reference});
            assert!(Schema::compile(&schema).is_err(), "{reference}");
        }
    }

    #[test]
    fn bombs_do_not_go_off() {
        // Two to the thirtieth visits of one number, by plain doubling.
        let mut defs = Map::new();
        for level in 0..30 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            defs.insert(format!("d{level}"), json!({"allOf": [next, next]}));
        }
        defs.insert("d30".to_owned(), json!({"type": "integer"}));
        let doubling = json!({"$ref": "#/$defs/d0", "$defs": defs});
        assert!(Schema::compile(&doubling).is_err());

        // The same by recursion: each level of the value doubles the work.
        let recursive = json!({
            "anyOf": [
                {"properties": {"a": {"$ref": "#"}}, "required": ["x"]},
                {"properties": {"a": {"$ref": "#"}}, "required": ["y"]},
            ],
        });
        let mut deep = json!(1);
        for _ in 0..60 {
            deep = json!({"a": deep});
        }
        let schema = Schema::compile(&recursive).unwrap();
        assert!(matches!(
            schema.accepts(&deep).err(),
            Some(Error::SchemaInvalid(_))
        ));
        assert!(
            schema.accepts(&json!({"a": {"x": 1}})).is_ok(),
            "a small value is judged"
        );

        // A reference that only leads to itself.
        let circle = json!({"$ref": "#/$defs/a", "$defs": {
            "a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]},
        }});
        assert!(Schema::compile(&circle).is_err());

        // A chain that would exhaust the stack of a validator that follows it.
        let mut defs = Map::new();
        for level in 0..5_000 {
            defs.insert(
                format!("{level}"),
                json!({"$ref": format!("#/$defs/{}", level + 1)}),
            );
        }
        defs.insert("5000".to_owned(), json!(true));
        let chain = json!({"properties": {"x": {"$ref": "#/$defs/0"}}, "$defs": defs});
        assert!(Schema::compile(&chain).is_err());

        // Doubling through a keyword of an older draft.
        let mut defs = Map::new();
        for level in 0..40 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            defs.insert(
                format!("d{level}"),
                json!({"dependencies": {"a": next, "b": next}}),
            );
        }
        defs.insert("d40".to_owned(), json!(true));
        let old = json!({"$ref": "#/$defs/d0", "$defs": defs});
        assert!(Schema::compile(&old).is_err());

        // Without any reference: each level judges the ones below it several times over.
        let mut unevaluated = json!({"properties": {"z": true}});
        for _ in 0..30 {
            unevaluated = json!({"unevaluatedProperties": false, "allOf": [unevaluated]});
        }
        let schema = Schema::compile(&unevaluated);
        let judged = schema.and_then(|schema| schema.accepts(&json!({"z": 1})));
        assert!(judged.is_err());

        // References that this module and the validator could understand differently.
        for reference in [
            json!({"$ref": "#name", "$defs": {"x": {"$anchor": "name"}}}),
            json!({"$ref": "#/$defs/a%20b", "$defs": {"a b": true, "a%20b": true}}),
            json!({"$dynamicRef": "#name", "$dynamicAnchor": "name"}),
            json!({"properties": {"x": {"$id": "https://example.com/x", "$ref": "#/y", "y": true}}, "y": true}),
        ] {
            assert!(Schema::compile(&reference).is_err(), "{reference}");
        }

        // Too large.
        let names: Map<_, _> = (0..40_000).map(|n| (n.to_string(), json!({}))).collect();
        assert!(Schema::compile(&json!({"properties": names})).is_err());

        // A pattern that backtracks forever.
        let pattern = json!({"type": "string", "pattern": "^(?!x)(a+)+$"});
        let schema = Schema::compile(&pattern).unwrap();
        let value = json!(format!("{}b", "a".repeat(5_000)));
        assert!(!schema.accepts(&value).unwrap());
    }

    #[test]
    fn values_as_deep_as_they_parse_are_judged() {
        let text = format!("{}1{}", "[".repeat(126), "]".repeat(126));
        let deep: Value = serde_json::from_str(&text).unwrap();
        let lists = json!({"anyOf": [{"type": "integer"}, {"items": {"$ref": "#"}}]});
        assert!(accepts(&lists, &deep));
    }
}

//! Source declarations: streams, their fields and the supported queries.
//!
//! Accepts a connector manifest or a source declaration.

use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::key::ValueKind;
use crate::{Error, Result};

/// Address prefix of the registered connectors.
const REGISTRY: &str = "https://registry.pdpp.dev/connectors/";

/// Maximum number of searched fields of a stream. A search hit marks its fields in 64 bits.
const MAX_SEARCHED: usize = 64;

/// A declared source.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// The short name, which is also the key in the store.
    pub connector: String,
    /// `connector` or `provider_native`.
    pub kind: String,
    /// The address (URI) of the source.
    pub source_id: String,
    pub version: String,
    pub display_name: Option<String>,
    /// The streams, in declaration order.
    pub streams: Vec<StreamDeclaration>,
    /// The declaration as registered.
    pub body: Value,
}

/// A declared stream: a named collection of records.
#[derive(Debug, Clone)]
pub struct StreamDeclaration {
    pub name: String,
    /// The fields that form a record's key.
    pub primary_key: Vec<String>,
    /// The field by which records are ordered.
    pub cursor_field: Option<String>,
    /// The field that a grant's time range applies to.
    pub consent_time_field: Option<String>,
    /// True if records are only added, never changed.
    pub append_only: bool,
    pub views: Vec<ViewDeclaration>,
    /// Relationships to records in other streams.
    pub relationships: Vec<Relationship>,
    /// The supported queries.
    pub query: QueryCapabilities,
    /// Age in seconds at which the data counts as stale.
    pub max_staleness_s: Option<u64>,
    /// The fields, in schema order.
    pub fields: Vec<FieldDeclaration>,
    /// The declaration as registered.
    pub body: Map<String, Value>,
}

#[derive(Debug, Clone)]
pub struct FieldDeclaration {
    pub name: String,
    /// How values are compared. `None` if the field is not a scalar.
    pub kind: Option<ValueKind>,
    /// True if values are calendar dates, which do not depend on the time zone.
    pub date_only: bool,
    /// True if every record has the field.
    pub required: bool,
    /// The declared meaning (`x_pdpp_role`).
    pub role: Option<String>,
    /// The declared type (`x_pdpp_type`), or the type in the schema.
    pub type_name: String,
    pub schema: Value,
}

/// A named selection of fields.
#[derive(Debug, Clone, Deserialize)]
pub struct ViewDeclaration {
    pub id: String,
    #[serde(default)]
    pub label: Option<String>,
    pub fields: Vec<String>,
}

/// A relationship to a stream of the same connection.
#[derive(Debug, Clone, Deserialize)]
pub struct Relationship {
    pub name: String,
    /// The related stream.
    pub stream: String,
    /// The field of the related stream that holds this record's key.
    pub foreign_key: String,
    pub cardinality: Cardinality,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cardinality {
    HasMany,
    /// At most one.
    HasOne,
}

impl Cardinality {
    pub fn name(self) -> &'static str {
        match self {
            Self::HasMany => "has_many",
            Self::HasOne => "has_one",
        }
    }
}

/// The supported queries of a stream.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct QueryCapabilities {
    /// The comparisons supported per field.
    pub range_filters: ordered_object::OrderedPairs<Vec<RangeOperator>>,
    /// The relationships that can be expanded.
    pub expand: Vec<ExpandDeclaration>,
    pub search: SearchFields,
    pub aggregations: Aggregations,
}

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RangeOperator {
    Gte,
    Gt,
    Lte,
    Lt,
}

impl RangeOperator {
    pub fn name(self) -> &'static str {
        match self {
            Self::Gte => "gte",
            Self::Gt => "gt",
            Self::Lte => "lte",
            Self::Lt => "lt",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Gte, Self::Gt, Self::Lte, Self::Lt]
            .into_iter()
            .find(|bound| bound.name() == name)
    }
}

/// A relationship that can be expanded in a response.
#[derive(Debug, Clone, Deserialize)]
pub struct ExpandDeclaration {
    /// The name of the relationship.
    pub name: String,
    /// Number of related records if the request sets no limit.
    #[serde(default = "ten")]
    pub default_limit: u64,
    #[serde(default = "fifty")]
    pub max_limit: u64,
}

fn ten() -> u64 {
    10
}

fn fifty() -> u64 {
    50
}

/// The searchable fields.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SearchFields {
    pub lexical_fields: Vec<String>,
    pub semantic_fields: Vec<String>,
}

/// The supported aggregates, with their fields.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Aggregations {
    pub count: bool,
    pub sum: Vec<String>,
    pub min: Vec<String>,
    pub max: Vec<String>,
    pub count_distinct: Vec<String>,
    pub group_by: Vec<String>,
    pub group_by_time: Vec<String>,
}

impl Aggregations {
    /// Returns the fields of each aggregate, in the order used in responses.
    pub fn fields_by_aggregate(&self) -> [(&'static str, &[String]); 6] {
        [
            ("count_distinct", &self.count_distinct),
            ("group_by", &self.group_by),
            ("group_by_time", &self.group_by_time),
            ("sum", &self.sum),
            ("min", &self.min),
            ("max", &self.max),
        ]
    }
}

/// A JSON object as pairs in their written order.
pub mod ordered_object {
    use std::fmt;
    use std::marker::PhantomData;

    use serde::Deserialize;
    use serde::de::{Deserializer, MapAccess, Visitor};

    #[derive(Debug, Clone)]
    pub struct OrderedPairs<V>(pub Vec<(String, V)>);

    impl<V> Default for OrderedPairs<V> {
        fn default() -> Self {
            Self(Vec::new())
        }
    }

    impl<V> OrderedPairs<V> {
        pub fn get(&self, name: &str) -> Option<&V> {
            let found = self.0.iter().find(|(own, _)| own == name);
            found.map(|(_, value)| value)
        }
    }

    impl<'de, V: Deserialize<'de>> Deserialize<'de> for OrderedPairs<V> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct PairsVisitor<V>(PhantomData<V>);

            impl<'de, V: Deserialize<'de>> Visitor<'de> for PairsVisitor<V> {
                type Value = OrderedPairs<V>;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("an object")
                }

                fn visit_map<A: MapAccess<'de>>(
                    self,
                    mut map: A,
                ) -> Result<OrderedPairs<V>, A::Error> {
                    let mut pairs = Vec::new();
                    while let Some(pair) = map.next_entry()? {
                        pairs.push(pair);
                    }
                    Ok(OrderedPairs(pairs))
                }
            }

            deserializer.deserialize_map(PairsVisitor(PhantomData))
        }
    }
}

impl Declaration {
    pub(crate) fn stream_names(&self) -> impl Iterator<Item = &str> {
        self.streams.iter().map(|stream| stream.name.as_str())
    }

    /// Returns a stream. The error proposes similar streams: for the owner only.
    pub(crate) fn required_stream(&self, name: &str) -> Result<&StreamDeclaration> {
        let error = || {
            let error = Error::NotFound(format!("no stream is named {name}"));
            error.with_similar_names(name, self.stream_names())
        };
        self.stream(name).ok_or_else(error)
    }

    /// Parses and checks a connector manifest or a source declaration.
    pub fn parse(body: Value) -> Result<Self> {
        let Some(object) = body.as_object() else {
            return Err(invalid("a declaration must be an object"));
        };
        let text = |name: &str| object.get(name).and_then(Value::as_str);
        if let Some(version) = text("protocol_version")
            && !version.starts_with("0.1")
        {
            return Err(invalid(format!(
                "protocol_version {version} is not supported"
            )));
        }
        let streams = object
            .get("streams")
            .and_then(Value::as_array)
            .filter(|streams| !streams.is_empty());
        let streams =
            streams.ok_or_else(|| invalid("streams must be a list with at least one stream"))?;
        if streams.len() > 1_000 {
            return Err(invalid("streams: at most 1000"));
        }
        let streams: Vec<StreamDeclaration> = streams
            .iter()
            .enumerate()
            .map(|(at, stream)| StreamDeclaration::parse(stream, at))
            .collect::<Result<_>>()?;
        for (at, stream) in streams.iter().enumerate() {
            if streams[..at].iter().any(|other| other.name == stream.name) {
                return Err(invalid(format!("stream {} is declared twice", stream.name)));
            }
        }
        let (kind, source_id, connector) = if let Some(source) = object.get("source") {
            let id = source["id"].as_str();
            let id = id.ok_or_else(|| invalid("source.id is required: a URI"))?;
            let kind = source["kind"].as_str().unwrap_or("connector");
            if !["connector", "provider_native"].contains(&kind) {
                return Err(invalid("source.kind must be connector or provider_native"));
            }
            (kind.to_owned(), id.to_owned(), connector_slug(id))
        } else {
            let id = text("connector_key").or_else(|| text("connector_id"));
            let id = id.ok_or_else(|| invalid("connector_id is required"))?;
            let key = connector_slug(id);
            let address = text("manifest_uri").or_else(|| text("connector_id"));
            let address = address.filter(|address| address.contains("://"));
            let address = address.map_or_else(|| format!("{REGISTRY}{key}"), str::to_owned);
            ("connector".to_owned(), address, key)
        };
        if !is_connector_key(&connector) {
            return Err(invalid(format!(
                "connector_key: {connector:?} is not a short name of lower-case letters, digits, dots, dashes and underscores"
            )));
        }
        let version = text("declaration_version").or_else(|| text("version"));
        let version = version.map_or_else(|| projected_version(&body), str::to_owned);
        let display = text("display_name").or_else(|| body["display"]["name"].as_str());
        let declaration = Self {
            connector,
            kind,
            source_id,
            version,
            display_name: display.map(str::to_owned),
            streams,
            body,
        };
        declaration.check_relations()?;
        Ok(declaration)
    }

    pub fn stream(&self, name: &str) -> Option<&StreamDeclaration> {
        self.streams.iter().find(|stream| stream.name == name)
    }

    /// Checks that each expandable relationship leads from a record to its related records.
    fn check_relations(&self) -> Result<()> {
        for stream in &self.streams {
            for expand in &stream.query.expand {
                let relation = stream.relationship(&expand.name);
                let unsafe_because = |why: &str| {
                    let (stream, name) = (&stream.name, &expand.name);
                    invalid(format!("stream {stream}: query.expand {name}: {why}"))
                };
                let relation = relation.ok_or_else(|| unsafe_because("no such relationship"))?;
                let child = self.stream(&relation.stream);
                let child = child.ok_or_else(|| unsafe_because("its stream is not declared"))?;
                if child.field(&relation.foreign_key).is_none() {
                    return Err(unsafe_because("its stream has no such foreign_key"));
                }
                if child.primary_key == [relation.foreign_key.clone()]
                    && relation.cardinality == Cardinality::HasMany
                {
                    return Err(unsafe_because(
                        "foreign_key is the primary key of the other stream, so the relationship points the other way",
                    ));
                }
                if expand.default_limit > expand.max_limit || expand.max_limit == 0 {
                    return Err(unsafe_because("default_limit is above max_limit"));
                }
            }
        }
        Ok(())
    }
}

/// Derives a version from the content of a declaration that has none.
fn projected_version(body: &Value) -> String {
    let digest = Sha256::digest(body.to_string().as_bytes());
    let digest = data_encoding::HEXLOWER.encode(&digest);
    format!("reference.legacy-connector-projection.v1:sha256:{digest}")
}

fn invalid(why: impl Into<String>) -> Error {
    Error::Declaration(why.into())
}

fn is_connector_key(key: &str) -> bool {
    let all = key
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'));
    let first = key.bytes().next();
    all && key.len() <= 100 && first.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

/// Returns the short name of a connector, given its name or address.
pub fn connector_slug(id: &str) -> String {
    if let Some(name) = id.strip_prefix(REGISTRY) {
        return name.trim_end_matches('/').to_owned();
    }
    match id.split_once("://") {
        Some((_, rest)) => {
            let plain = rest.trim_end_matches('/').to_ascii_lowercase();
            plain.replace(
                |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '_' | '-'),
                "-",
            )
        }
        None => id.to_owned(),
    }
}

/// Returns true if a name is usable in addresses, headings and JSON keys.
fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 200 && !name.chars().any(char::is_control)
}

impl StreamDeclaration {
    fn parse(body: &Value, at: usize) -> Result<Self> {
        let wrong = |why: &str| invalid(format!("streams[{at}]: {why}"));
        let object = body.as_object().ok_or_else(|| wrong("not an object"))?;
        let name = object.get("name").and_then(Value::as_str);
        let name = name.filter(|name| is_valid_name(name) && *name != "*");
        let name = name
            .ok_or_else(|| wrong("name is required: a string other than *"))?
            .to_owned();
        let wrong = |why: &str| invalid(format!("stream {name}: {why}"));
        let schema = object.get("schema").filter(|schema| schema.is_object());
        let schema = schema.ok_or_else(|| wrong("schema must be an object"))?;
        let properties = schema["properties"].as_object();
        let properties = properties.ok_or_else(|| wrong("schema.properties must be an object"))?;
        let required: Vec<&str> = string_items(&schema["required"]);
        if properties.len() > 1_000 {
            return Err(wrong("schema.properties: at most 1000"));
        }
        if has_remote_ref(schema) {
            return Err(wrong("schema: a $ref must point into the schema itself"));
        }
        let mut fields = Vec::with_capacity(properties.len());
        for (name, property) in properties {
            if !is_valid_name(name) {
                return Err(wrong(
                    "schema.properties: a name is empty, too long or has control characters",
                ));
            }
            fields.push(FieldDeclaration::parse(name, property, schema, &required));
        }
        let known = |field: &str| fields.iter().any(|own| own.name == field);
        let primary_key: Vec<String> = match object.get("primary_key") {
            Some(Value::String(one)) => vec![one.clone()],
            other => string_items(other.unwrap_or(&Value::Null))
                .into_iter()
                .map(str::to_owned)
                .collect(),
        };
        if primary_key.is_empty() {
            return Err(wrong("primary_key must name at least one field"));
        }
        let field_named = |member: &str| -> Result<Option<String>> {
            match object.get(member) {
                None | Some(Value::Null) => Ok(None),
                Some(Value::String(field)) if known(field) => Ok(Some(field.clone())),
                Some(other) => Err(wrong(&format!(
                    "{member}: {other} is not a field of the schema"
                ))),
            }
        };
        let cursor_field = field_named("cursor_field")?;
        let consent_time_field = field_named("consent_time_field")?;
        let part = |member: &str| object.get(member).filter(|value| !value.is_null()).cloned();
        let views: Vec<ViewDeclaration> = part("views")
            .map_or_else(|| Ok(Vec::new()), serde_json::from_value)
            .map_err(|error| wrong(&format!("views: {error}")))?;
        let relationships: Vec<Relationship> = part("relationships")
            .map_or_else(|| Ok(Vec::new()), serde_json::from_value)
            .map_err(|error| wrong(&format!("relationships: {error}")))?;
        let query: QueryCapabilities = part("query")
            .map_or_else(|| Ok(QueryCapabilities::default()), serde_json::from_value)
            .map_err(|error| wrong(&format!("query: {error}")))?;
        let named = views.iter().flat_map(|view| &view.fields);
        let named = named.chain(query.range_filters.0.iter().map(|(field, _)| field));
        let named = named
            .chain(&query.search.lexical_fields)
            .chain(&query.search.semantic_fields);
        let grouped = query.aggregations.fields_by_aggregate();
        let unknown = named
            .chain(grouped.iter().flat_map(|(_, fields)| *fields))
            .find(|field| !known(field));
        if let Some(unknown) = unknown {
            return Err(wrong(&format!("{unknown} is not a field of the schema")));
        }
        if query.search.lexical_fields.len() > MAX_SEARCHED {
            return Err(wrong(&format!(
                "query.search.lexical_fields: at most {MAX_SEARCHED}"
            )));
        }
        let append_only = is_append_only(object)
            .map_err(|other| wrong(&format!("semantics: {other} is not supported")))?;
        let freshness = object.get("freshness").or_else(|| object.get("refresh"));
        let max_staleness_s = freshness.and_then(|of| of["maximum_staleness_seconds"].as_u64());
        Ok(Self {
            primary_key,
            cursor_field,
            consent_time_field,
            append_only,
            views,
            relationships,
            query,
            max_staleness_s,
            fields,
            body: object.clone(),
            name,
        })
    }

    pub fn field(&self, name: &str) -> Option<&FieldDeclaration> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Returns how a field's values are compared, if it is a scalar.
    pub fn kind(&self, field: &str) -> Option<ValueKind> {
        self.field(field)?.kind
    }

    pub fn relationship(&self, name: &str) -> Option<&Relationship> {
        self.relationships
            .iter()
            .find(|relation| relation.name == name)
    }

    /// Returns how records of this stream are indexed.
    pub fn index_shape(&self) -> IndexShape {
        let order = self.cursor_field.as_ref();
        let order = order.and_then(|field| Some((field.clone(), self.kind(field)?)));
        let query = &self.query;
        let grouped = query.aggregations.fields_by_aggregate();
        let declared = |name: &String| {
            query.range_filters.get(name).is_some()
                || grouped.iter().any(|(_, fields)| fields.contains(name))
                || self.cursor_field.as_ref() == Some(name)
                || self.consent_time_field.as_ref() == Some(name)
        };
        let facts = self.fields.iter().filter_map(|field| {
            let kind = field.kind?;
            let searched = query.search.lexical_fields.contains(&field.name);
            let ways = if declared(&field.name) {
                IndexKind::All
            } else if searched {
                // Long texts, which are filtered by equality only.
                IndexKind::Equal
            } else {
                IndexKind::All
            };
            let sole_key = self.primary_key.len() == 1 && self.primary_key[0] == field.name;
            (!sole_key || declared(&field.name)).then(|| IndexedField {
                field: field.name.clone(),
                kind,
                ways,
            })
        });
        let lexical = query.search.lexical_fields.iter();
        let lexical = lexical.filter(|name| self.kind(name).is_some());
        IndexShape {
            order,
            facts: facts.collect(),
            lexical: lexical.cloned().collect(),
        }
    }
}

/// Returns true if the stream is declared append-only; an unknown value is the error.
fn is_append_only(stream: &Map<String, Value>) -> Result<bool, &str> {
    match stream.get("semantics").and_then(Value::as_str) {
        None | Some("mutable_state" | "mutable") => Ok(false),
        Some("append_only" | "append") => Ok(true),
        Some(other) => Err(other),
    }
}

/// How the records of a stream are indexed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, Deserialize)]
pub struct IndexShape {
    /// The field of the record order.
    pub order: Option<(String, ValueKind)>,
    /// The fields indexed by value.
    pub facts: Vec<IndexedField>,
    /// The fields indexed by words.
    pub lexical: Vec<String>,
}

/// A field indexed by value.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, Deserialize)]
pub struct IndexedField {
    pub field: String,
    /// How values are compared.
    pub kind: ValueKind,
    /// The lookups that the index supports.
    pub ways: IndexKind,
}

/// The lookups that an index supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, Deserialize)]
pub enum IndexKind {
    /// Equality, ranges and order.
    All,
    /// Equality only.
    Equal,
}

impl IndexShape {
    /// Returns the number of an indexed field, and the field.
    pub fn fact(&self, field: &str) -> Option<(i64, &IndexedField)> {
        let at = self.facts.iter().position(|fact| fact.field == field)?;
        Some((i64::try_from(at).ok()?, &self.facts[at]))
    }

    /// Returns the number of a field indexed by words.
    pub fn lexical(&self, field: &str) -> Option<i64> {
        let at = self.lexical.iter().position(|own| own == field)?;
        i64::try_from(at).ok()
    }
}

fn string_items(value: &Value) -> Vec<&str> {
    let all = value.as_array().map_or(&[][..], Vec::as_slice);
    all.iter().filter_map(Value::as_str).collect()
}

fn has_remote_ref(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(name, value)| {
            let remote = name == "$ref" && value.as_str().is_some_and(|to| !to.starts_with('#'));
            remote || has_remote_ref(value)
        }),
        Value::Array(items) => items.iter().any(has_remote_ref),
        _ => false,
    }
}

impl FieldDeclaration {
    fn parse(name: &str, property: &Value, schema: &Value, required: &[&str]) -> Self {
        // Follow a single `$ref`.
        let led = property["$ref"]
            .as_str()
            .and_then(|to| schema.pointer(to.strip_prefix('#')?));
        let says = led.unwrap_or(property);
        let types = match &says["type"] {
            Value::String(one) => vec![one.as_str()],
            many => string_items(many),
        };
        let type_name = types.iter().find(|name| **name != "null").copied();
        let declared = property["x_pdpp_type"].as_str();
        let timely = |word: &str| matches!(word, "date" | "date-time" | "datetime" | "timestamp");
        let is_time = says["format"].as_str().is_some_and(timely) || declared.is_some_and(timely);
        let kind = match type_name {
            Some("string") if is_time => Some(ValueKind::Time),
            Some("string") => Some(ValueKind::Text),
            Some("integer" | "number") => Some(ValueKind::Number),
            Some("boolean") => Some(ValueKind::Bool),
            _ => None,
        };
        let own_word = declared.or_else(|| kind.map(ValueKind::name)).or(type_name);
        Self {
            name: name.to_owned(),
            kind,
            date_only: declared.or(says["format"].as_str()) == Some("date"),
            required: required.contains(&name),
            role: property["x_pdpp_role"].as_str().map(str::to_owned),
            type_name: own_word.unwrap_or("any").to_owned(),
            schema: property.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest() -> Value {
        json!({
            "protocol_version": "0.1.0", "connector_id": "https://registry.pdpp.dev/connectors/mail", "version": "1.0.0",
            "streams": [
                {"name": "messages", "primary_key": ["id"], "cursor_field": "sent_at", "consent_time_field": "sent_at",
                 "schema": {"type": "object", "required": ["id"], "properties": {
                     "id": {"type": "string"}, "thread_id": {"type": "string"}, "sent_at": {"type": "string", "format": "date-time"},
                     "body": {"type": ["string", "null"]}, "size": {"type": "integer"}, "labels": {"type": "array"}}},
                 "views": [{"id": "short", "label": "Short", "fields": ["id", "sent_at"]}],
                 "query": {"range_filters": {"sent_at": ["gte", "lt"]}, "search": {"lexical_fields": ["body"]},
                           "aggregations": {"count": true, "sum": ["size"]}}},
                {"name": "threads", "primary_key": ["id"],
                 "schema": {"type": "object", "properties": {"id": {"type": "string"}}},
                 "relationships": [{"name": "messages", "stream": "messages", "foreign_key": "thread_id", "cardinality": "has_many"}],
                 "query": {"expand": [{"name": "messages", "default_limit": 5, "max_limit": 20}]}}]
        })
    }

    #[test]
    fn a_manifest_becomes_a_declaration() {
        let declaration = Declaration::parse(manifest()).unwrap();
        assert_eq!(declaration.connector, "mail");
        assert_eq!(declaration.source_id, format!("{REGISTRY}mail"));
        let messages = declaration.stream("messages").unwrap();
        assert_eq!(messages.kind("sent_at"), Some(ValueKind::Time));
        assert_eq!(messages.kind("body"), Some(ValueKind::Text));
        assert_eq!(messages.kind("labels"), None);
        let shape = messages.index_shape();
        let named: Vec<&str> = shape.facts.iter().map(|fact| fact.field.as_str()).collect();
        assert_eq!(named, ["thread_id", "sent_at", "body", "size"]);
        assert_eq!(shape.fact("body").unwrap().1.ways, IndexKind::Equal);
    }

    #[test]
    fn each_defect_is_named() {
        let changed = |pointer: &str, value: Value| {
            let mut body = manifest();
            *body.pointer_mut(pointer).unwrap() = value;
            Declaration::parse(body).unwrap_err().to_string()
        };
        for (pointer, value, named) in [
            ("/streams", json!([]), "streams"),
            ("/connector_id", json!("No Such Name"), "connector_key"),
            ("/streams/0/name", json!("*"), "name"),
            ("/streams/0/primary_key", json!([]), "primary_key"),
            ("/streams/0/cursor_field", json!("nope"), "cursor_field"),
            ("/streams/0/schema/properties", json!(7), "properties"),
            ("/streams/0/views/0/fields", json!(["nope"]), "nope"),
            (
                "/streams/0/query/range_filters",
                json!({"sent_at": ["like"]}),
                "query",
            ),
            (
                "/streams/1/relationships/0/foreign_key",
                json!("nope"),
                "foreign_key",
            ),
            (
                "/streams/1/relationships/0/foreign_key",
                json!("id"),
                "other way",
            ),
            (
                "/streams/1/relationships/0/stream",
                json!("nope"),
                "not declared",
            ),
            (
                "/streams/0/schema/properties/id",
                json!({"$ref": "https://x.example/s"}),
                "$ref",
            ),
        ] {
            let why = changed(pointer, value);
            assert!(why.contains(named), "{pointer}: {why}");
        }
    }
}

//! What a source says of itself: its streams, their fields, and what may be asked of them.
//!
//! Two forms are accepted, a connector's manifest and a source declaration; one is kept.

use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::key::Kind;
use crate::{Error, Result};

/// Addresses of connectors that everybody knows begin so.
const REGISTRY: &str = "https://registry.pdpp.dev/connectors/";

/// Fields of a stream that are searched.
const MAX_SEARCHED: usize = 64;

/// A declared source.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// Its short name, under which it is kept.
    pub connector: String,
    /// Whether it is a connector or a server's own data.
    pub kind: String,
    /// Its address, by which the world knows it.
    pub source_id: String,
    /// Which version of it this is.
    pub version: String,
    /// A name for people.
    pub display_name: Option<String>,
    /// Its streams, in the order they were declared in.
    pub streams: Vec<Stream>,
    /// All of it, as it was given.
    pub body: Value,
}

/// A named collection of records, as it is declared.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Its name.
    pub name: String,
    /// The fields that make a record's key.
    pub primary_key: Vec<String>,
    /// The field by which it is ordered.
    pub cursor_field: Option<String>,
    /// The field that a grant's time applies to.
    pub consent_time_field: Option<String>,
    /// Whether records only ever come, and never change.
    pub append_only: bool,
    /// Named choices of fields.
    pub views: Vec<View>,
    /// What belongs to a record, in other streams.
    pub relationships: Vec<Relationship>,
    /// What may be asked.
    pub query: Query,
    /// How long what is here counts as fresh, in seconds.
    pub max_staleness_s: Option<u64>,
    /// The fields, in the order of the schema.
    pub fields: Vec<Field>,
    /// All of it, as it was given.
    pub body: Map<String, Value>,
}

/// One field of a stream.
#[derive(Debug, Clone)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// How its values compare. `None` for what is no scalar.
    pub kind: Option<Kind>,
    /// Whether its values are days, which are the same in every zone.
    pub date_only: bool,
    /// Whether every record has it.
    pub required: bool,
    /// What it means, where that is declared.
    pub role: Option<String>,
    /// Its own word for its type.
    pub type_name: String,
    /// Its schema.
    pub schema: Value,
}

/// A named choice of fields.
#[derive(Debug, Clone, Deserialize)]
pub struct View {
    /// Its name.
    pub id: String,
    /// A name for people.
    #[serde(default)]
    pub label: Option<String>,
    /// The fields.
    pub fields: Vec<String>,
}

/// What belongs to a record, in another stream of the same connection.
#[derive(Debug, Clone, Deserialize)]
pub struct Relationship {
    /// Its name.
    pub name: String,
    /// The stream.
    pub stream: String,
    /// The field of that stream that holds this record's key.
    pub foreign_key: String,
    /// How many there may be.
    pub cardinality: Cardinality,
}

/// How many belong to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cardinality {
    /// Any number.
    HasMany,
    /// One at most.
    HasOne,
}

impl Cardinality {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::HasMany => "has_many",
            Self::HasOne => "has_one",
        }
    }
}

/// What may be asked of a stream.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Query {
    /// Which comparisons a field may be filtered by.
    pub range_filters: indexed::Pairs<Vec<Bound>>,
    /// Relationships that may be read along.
    pub expand: Vec<Expand>,
    /// Fields that are searched.
    pub search: Search,
    /// What may be counted and summed.
    pub aggregations: Aggregations,
}

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// At least.
    Gte,
    /// More than.
    Gt,
    /// At most.
    Lte,
    /// Less than.
    Lt,
}

impl Bound {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gte => "gte",
            Self::Gt => "gt",
            Self::Lte => "lte",
            Self::Lt => "lt",
        }
    }

    /// The comparison of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Gte, Self::Gt, Self::Lte, Self::Lt]
            .into_iter()
            .find(|bound| bound.name() == name)
    }
}

/// A relationship that may be read along with a record.
#[derive(Debug, Clone, Deserialize)]
pub struct Expand {
    /// Its name.
    pub name: String,
    /// How many are read where nobody says.
    #[serde(default = "ten")]
    pub default_limit: u64,
    /// How many may be asked for.
    #[serde(default = "fifty")]
    pub max_limit: u64,
}

fn ten() -> u64 {
    10
}

fn fifty() -> u64 {
    50
}

/// Fields that are searched.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Search {
    /// By words.
    pub lexical_fields: Vec<String>,
    /// By meaning.
    pub semantic_fields: Vec<String>,
}

/// What may be counted and summed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Aggregations {
    /// Records.
    pub count: bool,
    /// Sums of these fields.
    pub sum: Vec<String>,
    /// Their least values.
    pub min: Vec<String>,
    /// Their greatest values.
    pub max: Vec<String>,
    /// How many different values they have.
    pub count_distinct: Vec<String>,
    /// Records by the value of these.
    pub group_by: Vec<String>,
    /// Records by the time in these.
    pub group_by_time: Vec<String>,
}

impl Aggregations {
    /// The kinds with their fields, in the order in which they are told.
    pub fn each(&self) -> [(&'static str, &[String]); 6] {
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

/// Pairs of an object in the order they were written in.
pub mod indexed {
    use std::fmt;
    use std::marker::PhantomData;

    use serde::Deserialize;
    use serde::de::{Deserializer, MapAccess, Visitor};

    /// The pairs.
    #[derive(Debug, Clone)]
    pub struct Pairs<V>(pub Vec<(String, V)>);

    impl<V> Default for Pairs<V> {
        fn default() -> Self {
            Self(Vec::new())
        }
    }

    impl<V> Pairs<V> {
        /// The value of a name.
        pub fn get(&self, name: &str) -> Option<&V> {
            let found = self.0.iter().find(|(own, _)| own == name);
            found.map(|(_, value)| value)
        }
    }

    impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Reader<V>(PhantomData<V>);

            impl<'de, V: Deserialize<'de>> Visitor<'de> for Reader<V> {
                type Value = Pairs<V>;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("an object")
                }

                fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<V>, A::Error> {
                    let mut pairs = Vec::new();
                    while let Some(pair) = map.next_entry()? {
                        pairs.push(pair);
                    }
                    Ok(Pairs(pairs))
                }
            }

            deserializer.deserialize_map(Reader(PhantomData))
        }
    }
}

impl Declaration {
    /// Reads a manifest or a source declaration, and checks it.
    pub fn read(body: Value) -> Result<Self> {
        let Some(object) = body.as_object() else {
            return Err(invalid("a declaration is an object"));
        };
        let text = |name: &str| object.get(name).and_then(Value::as_str);
        if let Some(version) = text("protocol_version")
            && !version.starts_with("0.1")
        {
            return Err(invalid(format!("protocol_version {version} is not known")));
        }
        let streams = object
            .get("streams")
            .and_then(Value::as_array)
            .filter(|streams| !streams.is_empty());
        let streams =
            streams.ok_or_else(|| invalid("streams: a list of at least one is needed"))?;
        if streams.len() > 1_000 {
            return Err(invalid("streams: 1000 at most"));
        }
        let streams: Vec<Stream> = streams
            .iter()
            .enumerate()
            .map(|(at, stream)| Stream::read(stream, at))
            .collect::<Result<_>>()?;
        for (at, stream) in streams.iter().enumerate() {
            if streams[..at].iter().any(|other| other.name == stream.name) {
                return Err(invalid(format!("stream {} is declared twice", stream.name)));
            }
        }
        let (kind, source_id, connector) = if let Some(source) = object.get("source") {
            let id = source["id"].as_str();
            let id = id.ok_or_else(|| invalid("source.id: an address is needed"))?;
            let kind = source["kind"].as_str().unwrap_or("connector");
            if !["connector", "provider_native"].contains(&kind) {
                return Err(invalid("source.kind: connector or provider_native"));
            }
            (kind.to_owned(), id.to_owned(), slug(id))
        } else {
            let id = text("connector_key").or_else(|| text("connector_id"));
            let id = id.ok_or_else(|| invalid("connector_id: a name is needed"))?;
            let key = slug(id);
            let address = text("manifest_uri").or_else(|| text("connector_id"));
            let address = address.filter(|address| address.contains("://"));
            let address = address.map_or_else(|| format!("{REGISTRY}{key}"), str::to_owned);
            ("connector".to_owned(), address, key)
        };
        if !is_key(&connector) {
            return Err(invalid(format!(
                "connector_key: {connector:?} is no short name of small letters, digits, dots, dashes and underscores"
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

    /// The stream of this name.
    pub fn stream(&self, name: &str) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.name == name)
    }

    /// What may be read along must lead from a record to what belongs to it.
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
                        "foreign_key is the other stream's own key, so it leads the other way",
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

/// A version for what has none, of the content itself.
fn projected_version(body: &Value) -> String {
    let digest = Sha256::digest(body.to_string().as_bytes());
    let digest = data_encoding::HEXLOWER.encode(&digest);
    format!("reference.legacy-connector-projection.v1:sha256:{digest}")
}

fn invalid(why: impl Into<String>) -> Error {
    Error::Declaration(why.into())
}

fn is_key(key: &str) -> bool {
    let all = key
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'));
    let first = key.bytes().next();
    all && key.len() <= 100 && first.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

/// The short name of a connector that is named by it or by its address.
pub fn slug(id: &str) -> String {
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

/// Names come back in addresses, headings and keys of answers.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 200 && !name.chars().any(char::is_control)
}

impl Stream {
    fn read(body: &Value, at: usize) -> Result<Self> {
        let wrong = |why: &str| invalid(format!("streams[{at}]: {why}"));
        let object = body.as_object().ok_or_else(|| wrong("not an object"))?;
        let name = object.get("name").and_then(Value::as_str);
        let name = name.filter(|name| is_name(name) && *name != "*");
        let name = name
            .ok_or_else(|| wrong("name: a text is needed, and not *"))?
            .to_owned();
        let wrong = |why: &str| invalid(format!("stream {name}: {why}"));
        let schema = object.get("schema").filter(|schema| schema.is_object());
        let schema = schema.ok_or_else(|| wrong("schema: an object is needed"))?;
        let properties = schema["properties"].as_object();
        let properties =
            properties.ok_or_else(|| wrong("schema.properties: an object is needed"))?;
        let required: Vec<&str> = texts(&schema["required"]);
        if properties.len() > 1_000 {
            return Err(wrong("schema.properties: 1000 at most"));
        }
        if has_remote_ref(schema) {
            return Err(wrong(
                "schema: a $ref must lead to a place in the schema itself",
            ));
        }
        let mut fields = Vec::with_capacity(properties.len());
        for (name, property) in properties {
            if !is_name(name) {
                return Err(wrong(
                    "schema.properties: a name is empty, too long or has control characters",
                ));
            }
            fields.push(Field::read(name, property, schema, &required));
        }
        let known = |field: &str| fields.iter().any(|own| own.name == field);
        let primary_key: Vec<String> = match object.get("primary_key") {
            Some(Value::String(one)) => vec![one.clone()],
            other => texts(other.unwrap_or(&Value::Null))
                .into_iter()
                .map(str::to_owned)
                .collect(),
        };
        if primary_key.is_empty() {
            return Err(wrong("primary_key: at least one field is needed"));
        }
        let field_named = |member: &str| -> Result<Option<String>> {
            match object.get(member) {
                None | Some(Value::Null) => Ok(None),
                Some(Value::String(field)) if known(field) => Ok(Some(field.clone())),
                Some(other) => Err(wrong(&format!(
                    "{member}: {other} is no field of the schema"
                ))),
            }
        };
        let cursor_field = field_named("cursor_field")?;
        let consent_time_field = field_named("consent_time_field")?;
        let part = |member: &str| object.get(member).filter(|value| !value.is_null()).cloned();
        let views: Vec<View> = part("views")
            .map_or_else(|| Ok(Vec::new()), serde_json::from_value)
            .map_err(|error| wrong(&format!("views: {error}")))?;
        let relationships: Vec<Relationship> = part("relationships")
            .map_or_else(|| Ok(Vec::new()), serde_json::from_value)
            .map_err(|error| wrong(&format!("relationships: {error}")))?;
        let query: Query = part("query")
            .map_or_else(|| Ok(Query::default()), serde_json::from_value)
            .map_err(|error| wrong(&format!("query: {error}")))?;
        let named = views.iter().flat_map(|view| &view.fields);
        let named = named.chain(query.range_filters.0.iter().map(|(field, _)| field));
        let named = named
            .chain(&query.search.lexical_fields)
            .chain(&query.search.semantic_fields);
        let grouped = query.aggregations.each();
        let unknown = named
            .chain(grouped.iter().flat_map(|(_, fields)| *fields))
            .find(|field| !known(field));
        if let Some(unknown) = unknown {
            return Err(wrong(&format!(
                "{unknown} is named and is no field of the schema"
            )));
        }
        if query.search.lexical_fields.len() > MAX_SEARCHED {
            return Err(wrong(&format!(
                "query.search.lexical_fields: {MAX_SEARCHED} at most"
            )));
        }
        let append_only = only_grows(object)
            .map_err(|other| wrong(&format!("semantics: {other} is not known")))?;
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

    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// How a field's values compare, if they do.
    pub fn kind(&self, field: &str) -> Option<Kind> {
        self.field(field)?.kind
    }

    /// The relationship of this name.
    pub fn relationship(&self, name: &str) -> Option<&Relationship> {
        self.relationships
            .iter()
            .find(|relation| relation.name == name)
    }

    /// What records of it are indexed by.
    pub fn shape(&self) -> Shape {
        let order = self.cursor_field.as_ref();
        let order = order.and_then(|field| Some((field.clone(), self.kind(field)?)));
        let query = &self.query;
        let grouped = query.aggregations.each();
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
                Ways::All
            } else if searched {
                // Long texts, of which only whole ones are asked for.
                Ways::Equal
            } else {
                Ways::All
            };
            let sole_key = self.primary_key.len() == 1 && self.primary_key[0] == field.name;
            (!sole_key || declared(&field.name)).then(|| Fact {
                field: field.name.clone(),
                kind,
                ways,
            })
        });
        let lexical = query.search.lexical_fields.iter();
        let lexical = lexical.filter(|name| self.kind(name).is_some());
        Shape {
            order,
            facts: facts.collect(),
            lexical: lexical.cloned().collect(),
        }
    }
}

/// Whether a stream says that its records only come, and never change.
fn only_grows(stream: &Map<String, Value>) -> Result<bool, &str> {
    match stream.get("semantics").and_then(Value::as_str) {
        None | Some("mutable_state" | "mutable") => Ok(false),
        Some("append_only" | "append") => Ok(true),
        Some(other) => Err(other),
    }
}

/// What the records of a stream are indexed by.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, Deserialize)]
pub struct Shape {
    /// The field of their order.
    pub order: Option<(String, Kind)>,
    /// The fields they are found by.
    pub facts: Vec<Fact>,
    /// The fields whose words they are found by.
    pub lexical: Vec<String>,
}

/// A field that records are found by.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, Deserialize)]
pub struct Fact {
    /// Its name.
    pub field: String,
    /// How its values compare.
    pub kind: Kind,
    /// In which ways it can be asked for.
    pub ways: Ways,
}

/// In which ways an index can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, Deserialize)]
pub enum Ways {
    /// By value, by range, in order.
    All,
    /// By value alone.
    Equal,
}

impl Shape {
    /// The number and the fact of a field.
    pub fn fact(&self, field: &str) -> Option<(i64, &Fact)> {
        let at = self.facts.iter().position(|fact| fact.field == field)?;
        Some((i64::try_from(at).ok()?, &self.facts[at]))
    }

    /// The number of a field whose words are indexed.
    pub fn lexical(&self, field: &str) -> Option<i64> {
        let at = self.lexical.iter().position(|own| own == field)?;
        i64::try_from(at).ok()
    }
}

fn texts(value: &Value) -> Vec<&str> {
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

impl Field {
    fn read(name: &str, property: &Value, schema: &Value, required: &[&str]) -> Self {
        // One step is enough for what says what a field is.
        let led = property["$ref"]
            .as_str()
            .and_then(|to| schema.pointer(to.strip_prefix('#')?));
        let says = led.unwrap_or(property);
        let types = match &says["type"] {
            Value::String(one) => vec![one.as_str()],
            many => texts(many),
        };
        let type_name = types.iter().find(|name| **name != "null").copied();
        let declared = property["x_pdpp_type"].as_str();
        let timely = |word: &str| matches!(word, "date" | "date-time" | "datetime" | "timestamp");
        let is_time = says["format"].as_str().is_some_and(timely) || declared.is_some_and(timely);
        let kind = match type_name {
            Some("string") if is_time => Some(Kind::Time),
            Some("string") => Some(Kind::Text),
            Some("integer" | "number") => Some(Kind::Number),
            Some("boolean") => Some(Kind::Bool),
            _ => None,
        };
        let own_word = declared.or_else(|| kind.map(Kind::name)).or(type_name);
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
        let declaration = Declaration::read(manifest()).unwrap();
        assert_eq!(declaration.connector, "mail");
        assert_eq!(declaration.source_id, format!("{REGISTRY}mail"));
        let messages = declaration.stream("messages").unwrap();
        assert_eq!(messages.kind("sent_at"), Some(Kind::Time));
        assert_eq!(messages.kind("body"), Some(Kind::Text));
        assert_eq!(messages.kind("labels"), None);
        let shape = messages.shape();
        let named: Vec<&str> = shape.facts.iter().map(|fact| fact.field.as_str()).collect();
        assert_eq!(named, ["thread_id", "sent_at", "body", "size"]);
        assert_eq!(shape.fact("body").unwrap().1.ways, Ways::Equal);
    }

    #[test]
    fn each_defect_is_named() {
        let changed = |pointer: &str, value: Value| {
            let mut body = manifest();
            *body.pointer_mut(pointer).unwrap() = value;
            Declaration::read(body).unwrap_err().to_string()
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

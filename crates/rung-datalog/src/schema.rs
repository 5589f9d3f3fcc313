//! The schema: attributes and their properties.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rung_edn::{Map, Name, Value};

use crate::document::DocumentFormat;
use crate::{Error, Result};

/// The type of an attribute's values. An attribute without a type has values of any type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Text.
    String,
    /// Whole numbers of 64 bits.
    Long,
    /// Floating-point numbers of 64 bits.
    Double,
    /// Floating-point numbers of 32 bits.
    Float,
    /// Whole numbers of any length.
    BigInt,
    /// Decimal numbers of any length.
    BigDec,
    Boolean,
    Keyword,
    Symbol,
    /// Points in time.
    Instant,
    /// Universally unique identifiers.
    Uuid,
    Bytes,
    /// References to entities.
    Ref,
    /// Tuples of values.
    Tuple,
    /// Vectors of numbers.
    Vec,
    /// Documents (`idoc`).
    Idoc,
}

/// The types by their names in a schema.
const TYPES: [(&str, Type); 16] = [
    ("string", Type::String),
    ("long", Type::Long),
    ("double", Type::Double),
    ("float", Type::Float),
    ("bigint", Type::BigInt),
    ("bigdec", Type::BigDec),
    ("boolean", Type::Boolean),
    ("keyword", Type::Keyword),
    ("symbol", Type::Symbol),
    ("instant", Type::Instant),
    ("uuid", Type::Uuid),
    ("bytes", Type::Bytes),
    ("ref", Type::Ref),
    ("tuple", Type::Tuple),
    ("vec", Type::Vec),
    ("idoc", Type::Idoc),
];

impl Type {
    /// Parses a type name, such as `:db.type/long`.
    fn parse(value: &Value) -> Option<Self> {
        let name = value
            .as_keyword()
            .filter(|name| name.namespace() == Some("db.type"))?;
        let found = TYPES.iter().find(|(own, _)| *own == name.name());
        found.map(|(_, kind)| *kind)
    }

    /// Returns the name of the type in a schema.
    pub fn name(self) -> &'static str {
        let found = TYPES.iter().find(|(_, kind)| *kind == self);
        found.map_or("", |(name, _)| name)
    }
}

/// The kind of uniqueness of an attribute's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unique {
    /// A value identifies its entity: a map with it in a transaction means that entity.
    Identity,
    /// A second entity with the same value is an error.
    Value,
}

/// The parts of a tuple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tuple {
    /// The values of other attributes of the same entity, updated when they change.
    Attributes(Vec<Name>),
    /// One value of each of these types.
    Types(Vec<Type>),
    /// Any number of values of this type.
    Homogeneous(Type),
}

/// An attribute and its properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// The id of the attribute. Ids increase in the order in which attributes are added.
    pub id: u32,
    pub name: Name,
    /// The type of the values, if it is declared.
    pub kind: Option<Type>,
    /// Whether an entity can have several values (cardinality many).
    pub many: bool,
    /// Whether and how values are unique.
    pub unique: Option<Unique>,
    /// Whether the referenced entity is a component of the referring one.
    pub component: bool,
    /// The parts of the values, if they are tuples.
    pub tuple: Option<Tuple>,
    /// All other properties in the schema.
    pub extra: Map,
}

impl Attribute {
    fn new(id: u32, name: Name) -> Self {
        Self {
            id,
            name,
            kind: None,
            many: false,
            unique: None,
            component: false,
            tuple: None,
            extra: Map::new(),
        }
    }

    /// Returns true if the values are references to entities.
    pub fn is_ref(&self) -> bool {
        self.kind == Some(Type::Ref)
    }

    /// Returns the attributes whose values make up the tuple.
    pub fn sources(&self) -> &[Name] {
        match &self.tuple {
            Some(Tuple::Attributes(names)) => names,
            _ => &[],
        }
    }

    /// Sets properties. Properties that are not given stay unchanged.
    fn apply(&mut self, properties: &Map) -> Result<()> {
        let name = self.name.clone();
        for (property, value) in properties {
            let wrong =
                || Error::Schema(format!("attribute :{name} cannot have {property} {value}"));
            let key = property.as_keyword().map(Name::as_str);
            match key {
                Some("db/valueType") => {
                    self.kind = match value {
                        Value::Nil => None,
                        value => Some(Type::parse(value).ok_or_else(wrong)?),
                    };
                }
                Some("db/cardinality") => {
                    self.many = match value.as_keyword().map(Name::as_str) {
                        Some("db.cardinality/one") => false,
                        Some("db.cardinality/many") => true,
                        _ => return Err(wrong()),
                    };
                }
                Some("db/unique") => {
                    self.unique = match value.as_keyword().map(Name::as_str) {
                        Some("db.unique/identity") => Some(Unique::Identity),
                        Some("db.unique/value") => Some(Unique::Value),
                        None if value.is_nil() => None,
                        _ => return Err(wrong()),
                    };
                }
                Some("db/isComponent") => {
                    self.component = match value {
                        Value::Bool(value) => *value,
                        Value::Nil => false,
                        _ => return Err(wrong()),
                    };
                }
                Some("db/tupleAttrs") => {
                    let names = value.as_sequence().filter(|names| !names.is_empty());
                    let names =
                        names.map(|names| names.iter().map(|name| name.as_keyword().cloned()));
                    let names: Option<Vec<Name>> = names.and_then(Iterator::collect);
                    self.tuple = Some(Tuple::Attributes(names.ok_or_else(wrong)?));
                    self.kind = Some(Type::Tuple);
                }
                Some("db/tupleTypes") => {
                    let types = value.as_sequence().filter(|types| !types.is_empty());
                    let types: Option<Vec<Type>> =
                        types.and_then(|types| types.iter().map(Type::parse).collect());
                    self.tuple = Some(Tuple::Types(types.ok_or_else(wrong)?));
                    self.kind = Some(Type::Tuple);
                }
                Some("db/tupleType") => {
                    self.tuple = Some(Tuple::Homogeneous(Type::parse(value).ok_or_else(wrong)?));
                    self.kind = Some(Type::Tuple);
                }
                Some("db/idocFormat") if DocumentFormat::parse(value).is_none() => {
                    return Err(wrong());
                }
                Some("db/domain") if value.as_str().is_none() => return Err(wrong()),
                Some("db/aid") => {}
                Some(_) => {
                    self.extra.insert(property.clone(), value.clone());
                }
                None => return Err(wrong()),
            }
        }
        self.check()
    }

    fn check(&self) -> Result<()> {
        let refuse = |why: &str| Err(Error::Schema(format!("attribute :{} {why}", self.name)));
        if self.component && !self.is_ref() {
            return refuse("is a component and needs :db/valueType :db.type/ref");
        }
        if self.kind == Some(Type::Tuple) && self.tuple.is_none() {
            return refuse("is a tuple and needs :db/tupleAttrs, :db/tupleTypes or :db/tupleType");
        }
        let embedded = self.extra.get(&Value::keyword("db/embedding"));
        if embedded.is_some_and(Value::is_truthy)
            && self.kind.is_some_and(|kind| kind != Type::String)
        {
            return refuse("has embeddings and needs :db/valueType :db.type/string");
        }
        if !self.sources().is_empty() && self.many {
            return refuse(
                "is a tuple of other attributes and needs :db/cardinality :db.cardinality/one",
            );
        }
        Ok(())
    }

    /// Returns the properties as they are written in a schema.
    pub fn properties(&self) -> Map {
        let mut told = Map::new();
        let mut tell = |name: &str, value: Value| {
            told.insert(Value::keyword(name), value);
        };
        if let Some(kind) = self.kind {
            tell("db/valueType", kind_value(kind));
        }
        if self.many {
            tell("db/cardinality", Value::keyword("db.cardinality/many"));
        }
        match self.unique {
            Some(Unique::Identity) => tell("db/unique", Value::keyword("db.unique/identity")),
            Some(Unique::Value) => tell("db/unique", Value::keyword("db.unique/value")),
            None => {}
        }
        if self.component {
            tell("db/isComponent", Value::Bool(true));
        }
        match &self.tuple {
            Some(Tuple::Attributes(names)) => {
                let names = names.iter().cloned().map(Value::Keyword);
                tell("db/tupleAttrs", Value::Vector(names.collect()));
            }
            Some(Tuple::Types(types)) => {
                let types = types.iter().map(|kind| kind_value(*kind));
                tell("db/tupleTypes", Value::Vector(types.collect()));
            }
            Some(Tuple::Homogeneous(kind)) => tell("db/tupleType", kind_value(*kind)),
            None => {}
        }
        told.extend(self.extra.clone());
        told
    }
}

fn kind_value(kind: Type) -> Value {
    Value::Keyword(Name::with_namespace("db.type", kind.name()))
}

/// An attribute before a change, if it existed, and after it.
pub(crate) type AttributeChange = (Option<Arc<Attribute>>, Arc<Attribute>);

/// The attribute whose value is the ident of an entity.
pub(crate) const IDENT: &str = "db/ident";

/// The attributes of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schema {
    by_id: Vec<Arc<Attribute>>,
    by_name: HashMap<Name, u32>,
    /// The ids of attributes that an attribute filter hides.
    hidden: HashSet<u32>,
}

impl Schema {
    /// Creates the schema of a new database, which has `:db/ident`.
    pub(crate) fn new() -> Self {
        let mut schema = Self::default();
        let ident = schema.add(IDENT.into());
        let ident = Arc::make_mut(&mut schema.by_id[ident.id as usize]);
        ident.kind = Some(Type::Keyword);
        ident.unique = Some(Unique::Identity);
        schema
    }

    /// Returns the attribute of that name.
    pub fn get(&self, name: &Name) -> Option<&Arc<Attribute>> {
        self.by_name.get(name).map(|id| &self.by_id[*id as usize])
    }

    /// Returns the attribute of that id.
    pub fn by_id(&self, id: u32) -> Option<&Arc<Attribute>> {
        let attribute = self.by_id.get(id as usize);
        attribute.filter(|_| !self.hidden.contains(&id))
    }

    /// Returns all attributes, the oldest first.
    pub fn attributes(&self) -> impl Iterator<Item = &Arc<Attribute>> {
        let all = self.by_id.iter();
        all.filter(|attribute| !self.hidden.contains(&attribute.id))
    }

    /// Whether some attributes are hidden.
    pub(crate) fn is_filtered(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Hides the attributes for which `sees` returns false.
    pub(crate) fn hide_except(&mut self, sees: impl Fn(&Name) -> bool) {
        self.by_name.retain(|name, id| {
            let is_seen = sees(name);
            if !is_seen {
                self.hidden.insert(*id);
            }
            is_seen
        });
    }

    /// Adds an attribute without properties.
    pub(crate) fn add(&mut self, name: Name) -> Arc<Attribute> {
        let id = u32::try_from(self.by_id.len()).expect("there are fewer attributes than that");
        let attribute = Arc::new(Attribute::new(id, name.clone()));
        self.by_id.push(attribute.clone());
        self.by_name.insert(name, id);
        attribute
    }

    /// Adds an attribute of a type.
    pub(crate) fn add_typed(&mut self, name: Name, kind: Type) -> Arc<Attribute> {
        let id = self.add(name).id as usize;
        Arc::make_mut(&mut self.by_id[id]).kind = Some(kind);
        self.by_id[id].clone()
    }

    /// Applies a schema: a map of attributes to their properties. Returns the changed attributes.
    pub(crate) fn apply(&mut self, given: &Value) -> Result<Vec<AttributeChange>> {
        let members = given.as_map().ok_or_else(|| {
            Error::Schema("a schema must be a map of attributes to their properties".to_owned())
        })?;
        let mut changed = Vec::new();
        for (name, properties) in members {
            let Some(name) = name.as_keyword() else {
                return Err(Error::Schema(format!(
                    "an attribute is a keyword; {name} is not"
                )));
            };
            let empty = Map::new();
            let properties = match properties {
                Value::Nil => &empty,
                properties => properties.as_map().ok_or_else(|| {
                    Error::Schema(format!("the properties of :{name} must be a map"))
                })?,
            };
            if !name.is_readable() {
                let why = format!(
                    "{:?} is not a valid attribute name: it is not a valid keyword",
                    name.as_str()
                );
                return Err(Error::Schema(why));
            }
            let before = self.get(name).cloned();
            let id = before
                .as_ref()
                .map_or_else(|| self.add(name.clone()).id, |known| known.id);
            let attribute = Arc::make_mut(&mut self.by_id[id as usize]);
            attribute.apply(properties)?;
            let after = self.by_id[id as usize].clone();
            if before.as_ref() != Some(&after) {
                changed.push((before, after));
            }
        }
        for attribute in self.attributes() {
            for source in attribute.sources() {
                let many = self
                    .get(source)
                    .is_some_and(|source| source.many || !source.sources().is_empty());
                if many {
                    let why = format!(
                        "attribute :{} is a tuple of :{source}, which must have cardinality one and not be such a tuple",
                        attribute.name
                    );
                    return Err(Error::Schema(why));
                }
            }
        }
        Ok(changed)
    }

    /// Renames an attribute. Its id stays the same.
    pub(crate) fn rename(&mut self, from: &Name, to: Name) -> Result<AttributeChange> {
        if self.by_name.contains_key(&to) {
            return Err(Error::Schema(format!("the attribute :{to} exists already")));
        }
        let Some(id) = self.by_name.remove(from) else {
            return Err(Error::Schema(format!(
                "the attribute :{from} does not exist"
            )));
        };
        let before = self.by_id[id as usize].clone();
        Arc::make_mut(&mut self.by_id[id as usize]).name = to.clone();
        self.by_name.insert(to, id);
        Ok((Some(before), self.by_id[id as usize].clone()))
    }

    /// Returns the schema as a map of attributes to their properties.
    pub fn to_value(&self) -> Value {
        let each = |attribute: &Arc<Attribute>| {
            let name = Value::Keyword(attribute.name.clone());
            (name, Value::Map(attribute.properties()))
        };
        Value::Map(self.attributes().map(each).collect())
    }
}

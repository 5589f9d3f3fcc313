//! What is known of attributes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rung_edn::{Map, Name, Value};

use crate::document::Format;
use crate::{Error, Result};

/// Which values an attribute has. Without one they are anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Text.
    String,
    /// Whole numbers of 64 bits.
    Long,
    /// Binary fractions of 64 bits.
    Double,
    /// Binary fractions of 32 bits.
    Float,
    /// Whole numbers of any length.
    BigInt,
    /// Decimal numbers of any length.
    BigDec,
    /// Truth.
    Boolean,
    /// Keywords.
    Keyword,
    /// Symbols.
    Symbol,
    /// Moments.
    Instant,
    /// Universally unique identifiers.
    Uuid,
    /// Bytes.
    Bytes,
    /// Entities.
    Ref,
    /// Several values.
    Tuple,
    /// Vectors of numbers.
    Vec,
    /// Documents.
    Idoc,
}

/// Types by the names that they have in a schema.
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
    /// The type of that name, such as `:db.type/long`.
    fn read(value: &Value) -> Option<Self> {
        let name = value
            .as_keyword()
            .filter(|name| name.namespace() == Some("db.type"))?;
        let found = TYPES.iter().find(|(own, _)| *own == name.name());
        found.map(|(_, kind)| *kind)
    }

    /// Its name in a schema.
    pub fn name(self) -> &'static str {
        let found = TYPES.iter().find(|(_, kind)| *kind == self);
        found.map_or("", |(name, _)| name)
    }
}

/// How a value of an attribute belongs to one entity alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unique {
    /// It is the entity's name: whoever says it means that entity.
    Identity,
    /// Nobody else may have it.
    Value,
}

/// What the parts of a tuple are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tuple {
    /// The values of other attributes of the same entity, kept as they change.
    Attributes(Vec<Name>),
    /// So many values of these types.
    Types(Vec<Type>),
    /// Any number of values of this type.
    Of(Type),
}

/// What is known of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Its number, which is smaller the earlier it came.
    pub id: u32,
    /// Its name.
    pub name: Name,
    /// Which values it has.
    pub kind: Option<Type>,
    /// Whether an entity has any number of values.
    pub many: bool,
    /// Whether a value belongs to one entity alone.
    pub unique: Option<Unique>,
    /// Whether the entity that it leads to is a part of this one.
    pub component: bool,
    /// What its parts are, where it is a tuple.
    pub tuple: Option<Tuple>,
    /// What else its schema says.
    pub further: Map,
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
            further: Map::new(),
        }
    }

    /// Whether its values are entities.
    pub fn is_ref(&self) -> bool {
        self.kind == Some(Type::Ref)
    }

    /// The attributes that it is made of.
    pub fn sources(&self) -> &[Name] {
        match &self.tuple {
            Some(Tuple::Attributes(names)) => names,
            _ => &[],
        }
    }

    /// Takes in properties; what they do not say stays as it is.
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
                        value => Some(Type::read(value).ok_or_else(wrong)?),
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
                        types.and_then(|types| types.iter().map(Type::read).collect());
                    self.tuple = Some(Tuple::Types(types.ok_or_else(wrong)?));
                    self.kind = Some(Type::Tuple);
                }
                Some("db/tupleType") => {
                    self.tuple = Some(Tuple::Of(Type::read(value).ok_or_else(wrong)?));
                    self.kind = Some(Type::Tuple);
                }
                Some("db/idocFormat") if Format::read(value).is_none() => return Err(wrong()),
                Some("db/domain") if value.as_str().is_none() => return Err(wrong()),
                Some("db/aid") => {}
                Some(_) => {
                    self.further.insert(property.clone(), value.clone());
                }
                None => return Err(wrong()),
            }
        }
        self.check()
    }

    fn check(&self) -> Result<()> {
        let refuse = |why: &str| Err(Error::Schema(format!("attribute :{} {why}", self.name)));
        if self.component && !self.is_ref() {
            return refuse("is a component, so it must have :db/valueType :db.type/ref");
        }
        if self.kind == Some(Type::Tuple) && self.tuple.is_none() {
            return refuse(
                "is a tuple: say of what with :db/tupleAttrs, :db/tupleTypes or :db/tupleType",
            );
        }
        let embedded = self.further.get(&Value::keyword("db/embedding"));
        if embedded.is_some_and(Value::is_truthy)
            && self.kind.is_some_and(|kind| kind != Type::String)
        {
            return refuse("has embeddings, so it must have :db/valueType :db.type/string");
        }
        if !self.sources().is_empty() && self.many {
            return refuse("is made of other attributes, so it has one value");
        }
        Ok(())
    }

    /// As a schema has it.
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
            Some(Tuple::Of(kind)) => tell("db/tupleType", kind_value(*kind)),
            None => {}
        }
        told.extend(self.further.clone());
        told
    }
}

fn kind_value(kind: Type) -> Value {
    Value::Keyword(Name::within("db.type", kind.name()))
}

/// An attribute as it was, if it was there, and as it is.
pub(crate) type Changed = (Option<Arc<Attribute>>, Arc<Attribute>);

/// The name of an entity, by which it can be called.
pub(crate) const IDENT: &str = "db/ident";

/// The attributes of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schema {
    by_id: Vec<Arc<Attribute>>,
    by_name: HashMap<Name, u32>,
    /// The numbers of attributes that are not there for whoever reads by this schema.
    hidden: HashSet<u32>,
}

impl Schema {
    /// A schema that knows what every database knows.
    pub(crate) fn new() -> Self {
        let mut schema = Self::default();
        let ident = schema.add(IDENT.into());
        let ident = Arc::make_mut(&mut schema.by_id[ident.id as usize]);
        ident.kind = Some(Type::Keyword);
        ident.unique = Some(Unique::Identity);
        schema
    }

    /// The attribute of that name.
    pub fn get(&self, name: &Name) -> Option<&Arc<Attribute>> {
        self.by_name.get(name).map(|id| &self.by_id[*id as usize])
    }

    /// The attribute of that number.
    pub fn by_id(&self, id: u32) -> Option<&Arc<Attribute>> {
        let attribute = self.by_id.get(id as usize);
        attribute.filter(|_| !self.hidden.contains(&id))
    }

    /// All attributes, the oldest first.
    pub fn attributes(&self) -> impl Iterator<Item = &Arc<Attribute>> {
        let all = self.by_id.iter();
        all.filter(|attribute| !self.hidden.contains(&attribute.id))
    }

    /// Whether there are attributes that are not shown.
    pub(crate) fn is_narrow(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Hides every attribute but those of which this is true.
    pub(crate) fn show_only(&mut self, sees: impl Fn(&Name) -> bool) {
        self.by_name.retain(|name, id| {
            let is_seen = sees(name);
            if !is_seen {
                self.hidden.insert(*id);
            }
            is_seen
        });
    }

    /// Adds an attribute of which nothing is known but its name.
    pub(crate) fn add(&mut self, name: Name) -> Arc<Attribute> {
        let id = u32::try_from(self.by_id.len()).expect("there are fewer attributes than that");
        let attribute = Arc::new(Attribute::new(id, name.clone()));
        self.by_id.push(attribute.clone());
        self.by_name.insert(name, id);
        attribute
    }

    /// Adds an attribute with values of a type.
    pub(crate) fn add_typed(&mut self, name: Name, kind: Type) -> Arc<Attribute> {
        let id = self.add(name).id as usize;
        Arc::make_mut(&mut self.by_id[id]).kind = Some(kind);
        self.by_id[id].clone()
    }

    /// Takes in a schema: a map of attributes to their properties. The attributes that it changed, as they were and as they are.
    pub(crate) fn apply(&mut self, given: &Value) -> Result<Vec<Changed>> {
        let members = given.as_map().ok_or_else(|| {
            Error::Schema("a schema is a map of attributes to their properties".to_owned())
        })?;
        let mut changed = Vec::new();
        for (name, properties) in members {
            let Some(name) = name.as_keyword() else {
                return Err(Error::Schema(format!(
                    "an attribute is a keyword, and {name} is none"
                )));
            };
            let empty = Map::new();
            let properties = match properties {
                Value::Nil => &empty,
                properties => properties
                    .as_map()
                    .ok_or_else(|| Error::Schema(format!("the properties of :{name} are a map")))?,
            };
            if !name.is_readable() {
                let why = format!(
                    "{:?} is no attribute's name: it could not be read back",
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
                        "attribute :{} is made of :{source}, which must have one value of its own",
                        attribute.name
                    );
                    return Err(Error::Schema(why));
                }
            }
        }
        Ok(changed)
    }

    /// Removes the name of an attribute, whose number is not given again.
    pub(crate) fn rename(&mut self, from: &Name, to: Name) -> Result<Changed> {
        if self.by_name.contains_key(&to) {
            return Err(Error::Schema(format!(
                "there is an attribute :{to} already"
            )));
        }
        let Some(id) = self.by_name.remove(from) else {
            return Err(Error::Schema(format!("there is no attribute :{from}")));
        };
        let before = self.by_id[id as usize].clone();
        Arc::make_mut(&mut self.by_id[id as usize]).name = to.clone();
        self.by_name.insert(to, id);
        Ok((Some(before), self.by_id[id as usize].clone()))
    }

    /// As a map of attributes to their properties.
    pub fn to_value(&self) -> Value {
        let each = |attribute: &Arc<Attribute>| {
            let name = Value::Keyword(attribute.name.clone());
            (name, Value::Map(attribute.properties()))
        };
        Value::Map(self.attributes().map(each).collect())
    }
}

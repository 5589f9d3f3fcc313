//! Pull: an entity as a map, selected by a pattern.

use std::collections::BTreeMap;

use rung_edn::{Map, Name, Value};

use crate::datom::{Entity, encode_value};
use crate::db::{Db, Snapshot, entity_value};
use crate::query::{Bounds, MemoryReservation, QueryWatch, call_function};
use crate::schema::Attribute;
use crate::transact::forward_name;
use crate::{Error, Result};

/// Values of an attribute if the pattern sets no limit.
const DEFAULT_LIMIT: usize = 1_000;
/// Depth of nested entities.
const MAX_DEPTH: usize = 200;
/// Bytes of memory of a value without its content, including its key.
const MEMBER_BYTES: usize = 100;

fn invalid_query<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

impl Db {
    /// Returns an entity as a map, selected by a pattern.
    pub fn pull(&self, pattern: &Value, entity: &Value) -> Result<Value> {
        self.pull_with_bounds(pattern, entity, &Bounds::default())
    }

    /// Returns an entity as a map, selected by a pattern. An entity that is reached over several paths is repeated for each of
    /// them, so the size of the result cannot be known beforehand; the bounds limit it.
    pub fn pull_with_bounds(
        &self,
        pattern: &Value,
        entity: &Value,
        bounds: &Bounds,
    ) -> Result<Value> {
        let watch = bounds.start_watch();
        self.read(|moment| {
            let puller = Puller::parse(moment, pattern)?;
            match moment.entity_id(entity)? {
                Some(e) => puller.pull(moment, e, &watch),
                None => Ok(Value::Nil),
            }
        })
    }
}

/// A parsed pattern.
#[derive(Debug, Clone)]
pub(crate) struct Puller {
    /// Whether the pattern has `*`.
    has_wildcard: bool,
    specs: Vec<AttributeSpec>,
}

#[derive(Debug, Clone)]
struct AttributeSpec {
    attribute: Name,
    reverse: bool,
    /// The key of the value in the result.
    key: Value,
    limit: Option<usize>,
    default: Option<Value>,
    function: Option<Name>,
    nested: NestedPull,
}

/// How to pull the entities that an attribute refers to.
#[derive(Debug, Clone)]
enum NestedPull {
    /// No nested pattern: components as whole maps, other entities with only their `:db/id`.
    Plain,
    Pattern(Puller),
    /// The same pattern again, at most so many times.
    Recursion(Option<usize>),
}

/// The state of a pull.
struct PullPath<'w> {
    /// Depth of nested entities.
    depth: usize,
    /// The entities on the path since the pattern last changed, to detect cycles.
    visited: Vec<Entity>,
    /// The remaining depth of each limited recursion, by its key.
    remaining: BTreeMap<Value, usize>,
    /// The memory of the values found so far.
    memory: MemoryReservation,
    watch: &'w QueryWatch,
}

fn is_symbol(value: &Value, name: &str) -> bool {
    match value {
        Value::Symbol(own) | Value::Keyword(own) => own.as_str() == name,
        Value::String(own) => &**own == name,
        _ => false,
    }
}

impl Puller {
    pub(crate) fn parse(moment: &Snapshot<'_>, pattern: &Value) -> Result<Self> {
        let read;
        let pattern = match pattern {
            Value::String(text) if text.trim_start().starts_with('[') => {
                read = rung_edn::read(text)?;
                &read
            }
            other => other,
        };
        let Some(items) = pattern.as_sequence() else {
            return invalid_query(format!(
                "a pull pattern is a vector of attributes; {pattern} is not"
            ));
        };
        let mut puller = Self {
            has_wildcard: false,
            specs: Vec::new(),
        };
        for item in items {
            if is_symbol(item, "*") {
                puller.has_wildcard = true;
            } else if let Value::Map(members) = item {
                for (key, within) in members {
                    let mut spec = AttributeSpec::read(moment, key)?;
                    spec.nested = match within {
                        Value::Long(count) => match usize::try_from(*count) {
                            Ok(count) if count > 0 => NestedPull::Recursion(Some(count)),
                            _ => {
                                return invalid_query(format!(
                                    "the recursion depth of a pull pattern is a positive number, not {count}"
                                ));
                            }
                        },
                        within if is_symbol(within, "...") => NestedPull::Recursion(None),
                        within => NestedPull::Pattern(Self::parse(moment, within)?),
                    };
                    if !moment
                        .attribute(&spec.attribute)
                        .is_none_or(|attribute| attribute.is_ref())
                    {
                        return invalid_query(format!(
                            ":{} is not a reference, so no entity can be pulled through it",
                            spec.attribute
                        ));
                    }
                    puller.specs.push(spec);
                }
            } else {
                puller.specs.push(AttributeSpec::read(moment, item)?);
            }
        }
        Ok(puller)
    }

    /// Returns the entity as a map, or nil if nothing of it matches.
    pub(crate) fn pull(
        &self,
        moment: &Snapshot<'_>,
        e: Entity,
        watch: &QueryWatch,
    ) -> Result<Value> {
        let mut path = PullPath {
            depth: 0,
            visited: Vec::new(),
            remaining: BTreeMap::new(),
            memory: MemoryReservation::default(),
            watch,
        };
        self.pull_entity(moment, e, &mut path)
    }

    fn pull_entity(
        &self,
        moment: &Snapshot<'_>,
        e: Entity,
        path: &mut PullPath<'_>,
    ) -> Result<Value> {
        if path.depth == MAX_DEPTH {
            return Ok(id_map(e));
        }
        path.depth += 1;
        let pulled = self.pull_members(moment, e, path);
        path.depth -= 1;
        let members = pulled?;
        Ok(if members.is_empty() {
            Value::Nil
        } else {
            Value::Map(members)
        })
    }

    fn pull_members(
        &self,
        moment: &Snapshot<'_>,
        e: Entity,
        path: &mut PullPath<'_>,
    ) -> Result<Map> {
        let mut members = Map::new();
        if self.has_wildcard {
            let mut own: Vec<u32> = Vec::new();
            for fact in moment.entity_facts(e, None)? {
                let (_, a, _) = fact?;
                if own.last() != Some(&a) {
                    own.push(a);
                }
            }
            if !own.is_empty() {
                members.insert(Value::keyword("db/id"), entity_value(e));
            }
            for a in own {
                let Some(attribute) = moment.schema().by_id(a) else {
                    continue;
                };
                let said = self
                    .specs
                    .iter()
                    .any(|spec| spec.attribute == attribute.name && !spec.reverse);
                if !said {
                    let spec = AttributeSpec::plain(attribute.name.clone());
                    spec.insert_into(self, moment, e, path, &mut members)?;
                }
            }
        }
        for spec in &self.specs {
            spec.insert_into(self, moment, e, path, &mut members)?;
        }
        Ok(members)
    }
}

/// Returns the bytes of a value's content, if it has a variable size.
fn content_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Vector(items) | Value::List(items) => items
            .iter()
            .map(|item| MEMBER_BYTES + content_bytes(item))
            .sum(),
        Value::Set(items) => items
            .iter()
            .map(|item| MEMBER_BYTES + content_bytes(item))
            .sum(),
        Value::Map(members) => {
            let each = members.iter();
            each.map(|(key, value)| MEMBER_BYTES + content_bytes(key) + content_bytes(value))
                .sum()
        }
        _ => 0,
    }
}

/// Returns a map with only the `:db/id` of an entity.
fn id_map(e: Entity) -> Value {
    Value::Map(std::iter::once((Value::keyword("db/id"), entity_value(e))).collect())
}

impl AttributeSpec {
    fn plain(attribute: Name) -> Self {
        Self {
            key: Value::Keyword(attribute.clone()),
            attribute,
            reverse: false,
            limit: Some(DEFAULT_LIMIT),
            default: None,
            function: None,
            nested: NestedPull::Plain,
        }
    }

    fn read(moment: &Snapshot<'_>, value: &Value) -> Result<Self> {
        match value {
            Value::Keyword(name) => Self::from_name(moment, name),
            Value::String(text) => {
                Self::from_name(moment, &Name::new(text.strip_prefix(':').unwrap_or(text)))
            }
            Value::Vector(items) | Value::List(items) => match &items[..] {
                [form, attribute, value]
                    if is_symbol(form, "limit") || is_symbol(form, "default") =>
                {
                    let mut spec = Self::read(moment, attribute)?;
                    let (Value::Keyword(form) | Value::Symbol(form)) = form else {
                        return invalid_query(format!("{form} is not an option of a pull pattern"));
                    };
                    spec.set_option(form.as_str(), value)?;
                    Ok(spec)
                }
                [attribute, options @ ..] if options.len().is_multiple_of(2) => {
                    let mut spec = Self::read(moment, attribute)?;
                    for pair in options.chunks(2) {
                        let name = match &pair[0] {
                            Value::Keyword(name) => name.as_str().to_owned(),
                            Value::String(text) => text.trim_start_matches(':').to_owned(),
                            other => {
                                return invalid_query(format!(
                                    "{other} is not an option of a pull pattern"
                                ));
                            }
                        };
                        spec.set_option(&name, &pair[1])?;
                    }
                    Ok(spec)
                }
                _ => invalid_query(format!("{value} is not a part of a pull pattern")),
            },
            other => invalid_query(format!(
                "{other} is not a part of a pull pattern; a part is an attribute, a map or *"
            )),
        }
    }

    fn from_name(moment: &Snapshot<'_>, name: &Name) -> Result<Self> {
        let mut spec = Self::plain(name.clone());
        if let Some(forward) = forward_name(name) {
            let leads = moment
                .attribute(&forward)
                .is_none_or(|attribute| attribute.is_ref());
            if !leads {
                return invalid_query(format!(
                    ":{name} reverses :{forward}, which is not a reference"
                ));
            }
            spec.attribute = forward;
            spec.reverse = true;
        }
        Ok(spec)
    }

    fn set_option(&mut self, option: &str, value: &Value) -> Result<()> {
        match option {
            "as" => self.key = value.clone(),
            "default" => self.default = Some(value.clone()).filter(|value| !value.is_nil()),
            "limit" => {
                self.limit = match value {
                    Value::Nil => None,
                    Value::Long(limit) if *limit > 0 => usize::try_from(*limit).ok(),
                    other => {
                        return invalid_query(format!(
                            ":limit must be a positive number or nil, not {other}"
                        ));
                    }
                };
            }
            "xform" => match value {
                Value::Symbol(name) => self.function = Some(name.clone()),
                Value::String(name) => self.function = Some(Name::new(&**name)),
                other => {
                    return invalid_query(format!(
                        ":xform must be the name of a function, not {other}"
                    ));
                }
            },
            other => {
                return invalid_query(format!(
                    ":{other} is not an option of a pull pattern; options are :as, :limit, :default and :xform"
                ));
            }
        }
        Ok(())
    }

    /// Inserts the values of the attribute into the map of the entity.
    fn insert_into(
        &self,
        puller: &Puller,
        moment: &Snapshot<'_>,
        e: Entity,
        path: &mut PullPath<'_>,
        members: &mut Map,
    ) -> Result<()> {
        let value = self
            .value(puller, moment, e, path)?
            .or_else(|| self.default.clone());
        let value = match (&self.function, value) {
            (Some(function), value) => {
                Some(call_function(function, &[value.unwrap_or(Value::Nil)])?)
            }
            (None, value) => value,
        };
        if let Some(value) = value {
            members.insert(self.key.clone(), value);
        }
        Ok(())
    }

    fn value(
        &self,
        puller: &Puller,
        moment: &Snapshot<'_>,
        e: Entity,
        path: &mut PullPath<'_>,
    ) -> Result<Option<Value>> {
        if self.attribute.as_str() == "db/id" && !self.reverse {
            return Ok(Some(entity_value(e)));
        }
        let Some(attribute) = moment.attribute(&self.attribute).cloned() else {
            return Ok(None);
        };
        let most = self.limit.unwrap_or(usize::MAX);
        if self.reverse {
            let target = encode_value(&entity_value(e));
            let mut found = Vec::new();
            for holder in moment.holders(attribute.id, &target)?.take(most) {
                path.memory.reserve(MEMBER_BYTES, path.watch)?;
                found.extend(self.entity(puller, moment, holder?, &attribute, path)?);
            }
            // A component belongs to one entity.
            return Ok(if attribute.component {
                found.into_iter().next()
            } else {
                Some(found)
                    .filter(|found| !found.is_empty())
                    .map(Value::Vector)
            });
        }
        let mut values = Vec::new();
        for fact in moment.entity_facts(e, Some(attribute.id))?.take(most) {
            let value = moment.decode_value(attribute.id, fact?.2)?;
            path.memory
                .reserve(MEMBER_BYTES + content_bytes(&value), path.watch)?;
            match value
                .as_i64()
                .and_then(|e| Entity::try_from(e).ok())
                .filter(|_| attribute.is_ref())
            {
                Some(e) => values.extend(self.entity(puller, moment, e, &attribute, path)?),
                None => values.push(value),
            }
        }
        if values.is_empty() {
            return Ok(None);
        }
        Ok(Some(if attribute.many {
            Value::Vector(values)
        } else {
            values.swap_remove(0)
        }))
    }

    /// Pulls an entity that the attribute refers to.
    fn entity(
        &self,
        puller: &Puller,
        moment: &Snapshot<'_>,
        e: Entity,
        attribute: &Attribute,
        path: &mut PullPath<'_>,
    ) -> Result<Option<Value>> {
        let something = |value: Value| (!value.is_nil()).then_some(value);
        match &self.nested {
            NestedPull::Pattern(within) => {
                // The nested pattern starts with its own cycle check and recursion limits.
                let through = std::mem::take(&mut path.visited);
                let left = std::mem::take(&mut path.remaining);
                let found = within.pull_entity(moment, e, path);
                (path.visited, path.remaining) = (through, left);
                Ok(something(found?))
            }
            NestedPull::Recursion(times) => {
                if path.visited.contains(&e) {
                    return Ok(Some(id_map(e)));
                }
                if let Some(times) = times {
                    let left = path.remaining.entry(self.key.clone()).or_insert(*times);
                    if *left == 0 {
                        return Ok(None);
                    }
                    *left -= 1;
                }
                path.visited.push(e);
                let found = puller.pull_entity(moment, e, path);
                path.visited.pop();
                if let (Some(_), Some(left)) = (times, path.remaining.get_mut(&self.key)) {
                    *left += 1;
                }
                Ok(something(found?))
            }
            NestedPull::Plain if attribute.component && !self.reverse => {
                if path.visited.contains(&e) {
                    return Ok(Some(id_map(e)));
                }
                let all = Puller {
                    has_wildcard: true,
                    specs: Vec::new(),
                };
                let left = std::mem::take(&mut path.remaining);
                path.visited.push(e);
                let found = all.pull_entity(moment, e, path);
                path.visited.pop();
                path.remaining = left;
                Ok(Some(something(found?).unwrap_or_else(|| id_map(e))))
            }
            NestedPull::Plain => Ok(Some(id_map(e))),
        }
    }
}

//! Pull: an entity as a map, as far as a pattern goes.

use std::collections::BTreeMap;

use rung_edn::{Map, Name, Value};

use crate::datom::{Entity, encoded};
use crate::db::{Db, Moment, entity_value};
use crate::query::{Bounds, Held, Watch, call_function};
use crate::schema::Attribute;
use crate::transact::forward;
use crate::{Error, Result};

/// Values of an attribute where nothing is said.
const LIMIT: usize = 1_000;
/// Entities within entities.
const MAX_DEPTH: usize = 200;
/// Bytes of memory that a value takes beside what it says, with the key that it is under.
const MEMBER_BYTES: usize = 100;

fn wrong<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

impl Db {
    /// An entity as a map, as far as the pattern goes.
    pub fn pull(&self, pattern: &Value, entity: &Value) -> Result<Value> {
        self.pull_within(pattern, entity, &Bounds::default())
    }

    /// An entity as a map, as far as the pattern goes and the bounds allow. Entities that lead to each other in many ways are told
    /// once for every way, so there is no telling beforehand how much that is.
    pub fn pull_within(&self, pattern: &Value, entity: &Value, bounds: &Bounds) -> Result<Value> {
        let watch = bounds.watch();
        self.read(|moment| {
            let puller = Puller::read(moment, pattern)?;
            match moment.entity_id(entity)? {
                Some(e) => puller.pull(moment, e, &watch),
                None => Ok(Value::Nil),
            }
        })
    }
}

/// A pattern that was understood.
#[derive(Debug, Clone)]
pub(crate) struct Puller {
    /// Whether everything is wanted.
    all: bool,
    specs: Vec<Spec>,
}

#[derive(Debug, Clone)]
struct Spec {
    attribute: Name,
    reverse: bool,
    /// Under which key.
    key: Value,
    limit: Option<usize>,
    default: Option<Value>,
    function: Option<Name>,
    within: Within,
}

/// What is wanted of the entities that an attribute leads to.
#[derive(Debug, Clone)]
enum Within {
    /// What is usual.
    Nothing,
    Pattern(Puller),
    /// The same, so many times.
    Again(Option<usize>),
}

/// Where a pull is.
struct Path<'w> {
    /// Entities within entities.
    depth: usize,
    /// The entities that it came to by going on with the same pattern.
    through: Vec<Entity>,
    /// How often each recursion with a limit may still go on, by its key.
    left: BTreeMap<Value, usize>,
    /// What was found so far.
    held: Held,
    watch: &'w Watch,
}

fn is_symbol(value: &Value, name: &str) -> bool {
    match value {
        Value::Symbol(own) | Value::Keyword(own) => own.as_str() == name,
        Value::String(own) => &**own == name,
        _ => false,
    }
}

impl Puller {
    pub(crate) fn read(moment: &Moment<'_>, pattern: &Value) -> Result<Self> {
        let read;
        let pattern = match pattern {
            Value::String(text) if text.trim_start().starts_with('[') => {
                read = rung_edn::read(text)?;
                &read
            }
            other => other,
        };
        let Some(items) = pattern.as_sequence() else {
            return wrong(format!(
                "a pattern is a vector of attributes, and {pattern} is none"
            ));
        };
        let mut puller = Self {
            all: false,
            specs: Vec::new(),
        };
        for item in items {
            if is_symbol(item, "*") {
                puller.all = true;
            } else if let Value::Map(members) = item {
                for (key, within) in members {
                    let mut spec = Spec::read(moment, key)?;
                    spec.within = match within {
                        Value::Long(count) => match usize::try_from(*count) {
                            Ok(count) if count > 0 => Within::Again(Some(count)),
                            _ => {
                                return wrong(format!(
                                    "a pattern goes on a positive number of times, not {count}"
                                ));
                            }
                        },
                        within if is_symbol(within, "...") => Within::Again(None),
                        within => Within::Pattern(Self::read(moment, within)?),
                    };
                    if !moment
                        .attribute(&spec.attribute)
                        .is_none_or(|attribute| attribute.is_ref())
                    {
                        return wrong(format!(
                            ":{} leads to no entity that could be pulled",
                            spec.attribute
                        ));
                    }
                    puller.specs.push(spec);
                }
            } else {
                puller.specs.push(Spec::read(moment, item)?);
            }
        }
        Ok(puller)
    }

    /// The entity as a map, or nothing where there is nothing of it.
    pub(crate) fn pull(&self, moment: &Moment<'_>, e: Entity, watch: &Watch) -> Result<Value> {
        let mut path = Path {
            depth: 0,
            through: Vec::new(),
            left: BTreeMap::new(),
            held: Held::default(),
            watch,
        };
        self.entity(moment, e, &mut path)
    }

    fn entity(&self, moment: &Moment<'_>, e: Entity, path: &mut Path<'_>) -> Result<Value> {
        if path.depth == MAX_DEPTH {
            return Ok(id_alone(e));
        }
        path.depth += 1;
        let pulled = self.members(moment, e, path);
        path.depth -= 1;
        let members = pulled?;
        Ok(if members.is_empty() {
            Value::Nil
        } else {
            Value::Map(members)
        })
    }

    fn members(&self, moment: &Moment<'_>, e: Entity, path: &mut Path<'_>) -> Result<Map> {
        let mut members = Map::new();
        if self.all {
            let mut own: Vec<u32> = Vec::new();
            for fact in moment.of_entity(e, None)? {
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
                    let spec = Spec::plain(attribute.name.clone());
                    spec.put(self, moment, e, path, &mut members)?;
                }
            }
        }
        for spec in &self.specs {
            spec.put(self, moment, e, path, &mut members)?;
        }
        Ok(members)
    }
}

/// Bytes of what a value says, where that can be long.
fn said_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Vector(items) | Value::List(items) => items
            .iter()
            .map(|item| MEMBER_BYTES + said_bytes(item))
            .sum(),
        Value::Set(items) => items
            .iter()
            .map(|item| MEMBER_BYTES + said_bytes(item))
            .sum(),
        Value::Map(members) => {
            let each = members.iter();
            each.map(|(key, value)| MEMBER_BYTES + said_bytes(key) + said_bytes(value))
                .sum()
        }
        _ => 0,
    }
}

/// An entity of which nothing more is told.
fn id_alone(e: Entity) -> Value {
    Value::Map(std::iter::once((Value::keyword("db/id"), entity_value(e))).collect())
}

impl Spec {
    fn plain(attribute: Name) -> Self {
        Self {
            key: Value::Keyword(attribute.clone()),
            attribute,
            reverse: false,
            limit: Some(LIMIT),
            default: None,
            function: None,
            within: Within::Nothing,
        }
    }

    fn read(moment: &Moment<'_>, value: &Value) -> Result<Self> {
        match value {
            Value::Keyword(name) => Self::named(moment, name),
            Value::String(text) => {
                Self::named(moment, &Name::new(text.strip_prefix(':').unwrap_or(text)))
            }
            Value::Vector(items) | Value::List(items) => match &items[..] {
                [form, attribute, value]
                    if is_symbol(form, "limit") || is_symbol(form, "default") =>
                {
                    let mut spec = Self::read(moment, attribute)?;
                    let (Value::Keyword(form) | Value::Symbol(form)) = form else {
                        return wrong(format!("{form} is no option of a pattern"));
                    };
                    spec.set(form.as_str(), value)?;
                    Ok(spec)
                }
                [attribute, options @ ..] if options.len().is_multiple_of(2) => {
                    let mut spec = Self::read(moment, attribute)?;
                    for pair in options.chunks(2) {
                        let name = match &pair[0] {
                            Value::Keyword(name) => name.as_str().to_owned(),
                            Value::String(text) => text.trim_start_matches(':').to_owned(),
                            other => return wrong(format!("{other} is no option of a pattern")),
                        };
                        spec.set(&name, &pair[1])?;
                    }
                    Ok(spec)
                }
                _ => wrong(format!("{value} is no part of a pattern")),
            },
            other => wrong(format!(
                "{other} is no part of a pattern: it is an attribute, a map or *"
            )),
        }
    }

    fn named(moment: &Moment<'_>, name: &Name) -> Result<Self> {
        let mut spec = Self::plain(name.clone());
        if let Some(forward) = forward(name) {
            let leads = moment
                .attribute(&forward)
                .is_none_or(|attribute| attribute.is_ref());
            if !leads {
                return wrong(format!(
                    ":{name} goes back by :{forward}, which leads to no entity"
                ));
            }
            spec.attribute = forward;
            spec.reverse = true;
        }
        Ok(spec)
    }

    fn set(&mut self, option: &str, value: &Value) -> Result<()> {
        match option {
            "as" => self.key = value.clone(),
            "default" => self.default = Some(value.clone()).filter(|value| !value.is_nil()),
            "limit" => {
                self.limit = match value {
                    Value::Nil => None,
                    Value::Long(limit) if *limit > 0 => usize::try_from(*limit).ok(),
                    other => {
                        return wrong(format!(":limit is a positive number or nil, not {other}"));
                    }
                };
            }
            "xform" => match value {
                Value::Symbol(name) => self.function = Some(name.clone()),
                Value::String(name) => self.function = Some(Name::new(&**name)),
                other => return wrong(format!(":xform is a function's name, not {other}")),
            },
            other => {
                return wrong(format!(
                    ":{other} is no option of a pattern: there are :as, :limit, :default and :xform"
                ));
            }
        }
        Ok(())
    }

    /// Puts what the entity has of the attribute among its members.
    fn put(
        &self,
        puller: &Puller,
        moment: &Moment<'_>,
        e: Entity,
        path: &mut Path<'_>,
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
        moment: &Moment<'_>,
        e: Entity,
        path: &mut Path<'_>,
    ) -> Result<Option<Value>> {
        if self.attribute.as_str() == "db/id" && !self.reverse {
            return Ok(Some(entity_value(e)));
        }
        let Some(attribute) = moment.attribute(&self.attribute).cloned() else {
            return Ok(None);
        };
        let most = self.limit.unwrap_or(usize::MAX);
        if self.reverse {
            let target = encoded(&entity_value(e));
            let mut found = Vec::new();
            for holder in moment.holders(attribute.id, &target)?.take(most) {
                path.held.take(MEMBER_BYTES, path.watch)?;
                found.extend(self.entity(puller, moment, holder?, &attribute, path)?);
            }
            // A part belongs to one whole.
            return Ok(if attribute.component {
                found.into_iter().next()
            } else {
                Some(found)
                    .filter(|found| !found.is_empty())
                    .map(Value::Vector)
            });
        }
        let mut values = Vec::new();
        for fact in moment.of_entity(e, Some(attribute.id))?.take(most) {
            let value = moment.value(attribute.id, fact?.2)?;
            path.held
                .take(MEMBER_BYTES + said_bytes(&value), path.watch)?;
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

    /// An entity that the attribute leads to.
    fn entity(
        &self,
        puller: &Puller,
        moment: &Moment<'_>,
        e: Entity,
        attribute: &Attribute,
        path: &mut Path<'_>,
    ) -> Result<Option<Value>> {
        let something = |value: Value| (!value.is_nil()).then_some(value);
        match &self.within {
            Within::Pattern(within) => {
                // It goes on with another pattern, which has come to nothing yet.
                let through = std::mem::take(&mut path.through);
                let left = std::mem::take(&mut path.left);
                let found = within.entity(moment, e, path);
                (path.through, path.left) = (through, left);
                Ok(something(found?))
            }
            Within::Again(times) => {
                if path.through.contains(&e) {
                    return Ok(Some(id_alone(e)));
                }
                if let Some(times) = times {
                    let left = path.left.entry(self.key.clone()).or_insert(*times);
                    if *left == 0 {
                        return Ok(None);
                    }
                    *left -= 1;
                }
                path.through.push(e);
                let found = puller.entity(moment, e, path);
                path.through.pop();
                if let (Some(_), Some(left)) = (times, path.left.get_mut(&self.key)) {
                    *left += 1;
                }
                Ok(something(found?))
            }
            Within::Nothing if attribute.component && !self.reverse => {
                if path.through.contains(&e) {
                    return Ok(Some(id_alone(e)));
                }
                let all = Puller {
                    all: true,
                    specs: Vec::new(),
                };
                let left = std::mem::take(&mut path.left);
                path.through.push(e);
                let found = all.entity(moment, e, path);
                path.through.pop();
                path.left = left;
                Ok(Some(something(found?).unwrap_or_else(|| id_alone(e))))
            }
            Within::Nothing => Ok(Some(id_alone(e))),
        }
    }
}

//! The indexes themselves: datoms in their order, from one on, back from one, or between two.

use std::ops::Bound;

use rung_edn::{Map, Name, Value};

use crate::coerce::coerce;
use crate::datom::{Datom, Entity, ave_prefix, eav_prefix, encoded, in_key};
use crate::db::{Db, Fact, Moment, entity_value};
use crate::schema::Attribute;
use crate::{Error, Result};

/// An order of datoms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By entity, attribute and value.
    Eav,
    /// By attribute, value and entity.
    Ave,
}

/// Where datoms are looked for: everything that agrees, or everything from there on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// What has these first parts.
    Within,
    /// What has them, and everything after.
    From,
    /// What has them, and everything before, the last first.
    Back,
}

fn wrong<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

impl Db {
    /// Datoms in an order, by their first parts, as many as `limit` says.
    pub fn datoms(
        &self,
        order: Order,
        reach: Reach,
        parts: &[Value],
        limit: usize,
    ) -> Result<Vec<Datom>> {
        self.read(|moment| moment.datoms(order, reach, parts, limit))
    }

    /// Datoms of an attribute whose values lie between two, both included; `nil` is no bound.
    pub fn index_range(
        &self,
        attribute: &Name,
        from: &Value,
        to: &Value,
        limit: usize,
    ) -> Result<Vec<Datom>> {
        let mut found = Vec::new();
        self.read(|moment| {
            found.clear();
            moment.each_between(attribute, from, to, |datom| {
                if found.len() < limit {
                    found.push(datom);
                }
                Ok(found.len() < limit)
            })
        })?;
        Ok(found)
    }

    /// Everything of an entity as a map with its `:db/id`; other entities are there by theirs.
    pub fn entity(&self, called: &Value) -> Result<Option<Map>> {
        self.read(|moment| {
            let Some(e) = moment.entity_id(called)? else {
                return Ok(None);
            };
            let mut members = Map::new();
            for fact in moment.of_entity(e, None)? {
                let datom = moment.datom(fact?)?;
                let Some(attribute) = moment.schema().by_id(datom.a) else {
                    continue;
                };
                let value = match datom.v {
                    Value::Long(_) if attribute.is_ref() => {
                        Value::Map(std::iter::once((Value::keyword("db/id"), datom.v)).collect())
                    }
                    value => value,
                };
                let name = Value::Keyword(attribute.name.clone());
                if !attribute.many {
                    members.insert(name, value);
                } else if let Value::Set(values) = members
                    .entry(name)
                    .or_insert_with(|| Value::Set(rung_edn::Set::new()))
                {
                    values.insert(value);
                }
            }
            if members.is_empty() {
                return Ok(None);
            }
            members.insert(Value::keyword("db/id"), entity_value(e));
            Ok(Some(members))
        })
    }
}

impl Moment<'_> {
    /// Datoms in an order, by their first parts.
    pub fn datoms(
        &self,
        order: Order,
        reach: Reach,
        parts: &[Value],
        limit: usize,
    ) -> Result<Vec<Datom>> {
        let Some(key) = self.key(order, parts)? else {
            return Ok(Vec::new());
        };
        let facts = self.walk(order, reach, &key)?.take(limit);
        facts.map(|fact| self.datom(fact?)).collect()
    }

    /// Datoms in an order, by their first parts, shown to `visit` one after the other while it wants more.
    pub fn each(
        &self,
        order: Order,
        reach: Reach,
        parts: &[Value],
        visit: impl FnMut(Datom) -> Result<bool>,
    ) -> Result<()> {
        let Some(key) = self.key(order, parts)? else {
            return Ok(());
        };
        self.show(self.walk(order, reach, &key)?, visit)
    }

    /// Datoms of an attribute whose values lie between two, both included, shown to `visit` one after the other while it wants more.
    pub fn each_between(
        &self,
        attribute: &Name,
        from: &Value,
        to: &Value,
        visit: impl FnMut(Datom) -> Result<bool>,
    ) -> Result<()> {
        let Some(attribute) = self.attribute(attribute) else {
            return Ok(());
        };
        let bound = |value: &Value| -> Result<Bound<Vec<u8>>> {
            if value.is_nil() {
                return Ok(Bound::Unbounded);
            }
            let value = self.part_value(attribute, value)?;
            Ok(Bound::Included(encoded(&value)))
        };
        let (from, to) = (bound(from)?, bound(to)?);
        let facts = self.of_attribute(
            attribute.id,
            from.as_ref().map(Vec::as_slice),
            to.as_ref().map(Vec::as_slice),
        )?;
        self.show(facts, visit)
    }

    fn show<'t>(
        &self,
        facts: impl Iterator<Item = Result<Fact<'t>>>,
        mut visit: impl FnMut(Datom) -> Result<bool>,
    ) -> Result<()> {
        for fact in facts {
            if !visit(self.datom(fact?)?)? {
                break;
            }
        }
        Ok(())
    }

    /// The beginning of a key that parts of a datom make; `None` where nothing can have them.
    fn key(&self, order: Order, parts: &[Value]) -> Result<Option<Vec<u8>>> {
        let (e, a, v) = match (order, parts) {
            (Order::Eav, parts) => (parts.first(), parts.get(1), parts.get(2)),
            (Order::Ave, parts) => (parts.get(2), parts.first(), parts.get(1)),
        };
        if parts.len() > 3 {
            return wrong("a datom has an entity, an attribute and a value");
        }
        let e: Option<Entity> = match e {
            Some(called) => match self.entity_id(called)? {
                Some(e) => Some(e),
                None => return Ok(None),
            },
            None => None,
        };
        let attribute = match a {
            Some(Value::Keyword(name)) => match self.attribute(name) {
                Some(attribute) => Some(attribute),
                None => return Ok(None),
            },
            Some(other) => return wrong(format!("{other} is no attribute: it is a keyword")),
            None => None,
        };
        let value = match (attribute, v) {
            (Some(attribute), Some(value)) => Some(encoded(&self.part_value(attribute, value)?)),
            _ => None,
        };
        Ok(Some(match order {
            Order::Eav => match (e, attribute) {
                (Some(e), Some(attribute)) => {
                    let mut key = eav_prefix(e, attribute.id).to_vec();
                    key.extend_from_slice(&in_key(&value.unwrap_or_default()));
                    key
                }
                (Some(e), None) => e.to_be_bytes().to_vec(),
                (None, _) => Vec::new(),
            },
            Order::Ave => match attribute {
                Some(attribute) => {
                    let mut key = ave_prefix(attribute.id, &in_key(&value.unwrap_or_default()));
                    key.extend(e.iter().flat_map(|e| e.to_be_bytes()));
                    key
                }
                None => Vec::new(),
            },
        }))
    }

    fn part_value(&self, attribute: &Attribute, value: &Value) -> Result<Value> {
        if attribute.is_ref() {
            let e = self.entity_id(value)?;
            return e
                .map(entity_value)
                .ok_or_else(|| Error::Query(format!("nothing is called {value}")));
        }
        coerce(attribute, value.clone()).map_err(|error| Error::Query(error.to_string()))
    }
}

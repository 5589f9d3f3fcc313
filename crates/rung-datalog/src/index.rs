//! Direct index access: datoms by prefix, forward or backward from a key, or in a range of values.

use std::ops::Bound;

use rung_edn::{Map, Name, Value};

use crate::coerce::coerce;
use crate::datom::{Datom, Entity, ave_prefix, eav_prefix, encode_value, to_key_bytes};
use crate::db::{Db, Fact, Snapshot, entity_value};
use crate::schema::Attribute;
use crate::{Error, Result};

/// The sort order of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexOrder {
    /// By entity, attribute and value.
    Eav,
    /// By attribute, value and entity.
    Ave,
}

/// The datoms of an index to return, relative to their first components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexScan {
    /// The datoms that have these components.
    Prefix,
    /// The datoms that have these components, and all later ones.
    Forward,
    /// The datoms that have these components, and all earlier ones, in descending order.
    Backward,
}

fn invalid_query<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

impl Db {
    /// Returns at most `limit` datoms of an index, by their first components.
    pub fn datoms(
        &self,
        order: IndexOrder,
        reach: IndexScan,
        parts: &[Value],
        limit: usize,
    ) -> Result<Vec<Datom>> {
        self.read(|moment| moment.datoms(order, reach, parts, limit))
    }

    /// Returns at most `limit` datoms of an attribute with values in the inclusive range; `nil` is no bound.
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
            moment.visit_range(attribute, from, to, |datom| {
                if found.len() < limit {
                    found.push(datom);
                }
                Ok(found.len() < limit)
            })
        })?;
        Ok(found)
    }

    /// Returns an entity as a map with its `:db/id`. Referenced entities are maps with only their `:db/id`.
    pub fn entity(&self, called: &Value) -> Result<Option<Map>> {
        self.read(|moment| {
            let Some(e) = moment.entity_id(called)? else {
                return Ok(None);
            };
            let mut members = Map::new();
            for fact in moment.entity_facts(e, None)? {
                let datom = moment.to_datom(fact?)?;
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

impl Snapshot<'_> {
    /// Returns at most `limit` datoms of an index, by their first components.
    pub fn datoms(
        &self,
        order: IndexOrder,
        reach: IndexScan,
        parts: &[Value],
        limit: usize,
    ) -> Result<Vec<Datom>> {
        let Some(key) = self.prefix_key(order, parts)? else {
            return Ok(Vec::new());
        };
        let facts = self.scan(order, reach, &key)?.take(limit);
        facts.map(|fact| self.to_datom(fact?)).collect()
    }

    /// Calls `visit` with the datoms of an index, by their first components, until it returns false.
    pub fn visit_datoms(
        &self,
        order: IndexOrder,
        reach: IndexScan,
        parts: &[Value],
        visit: impl FnMut(Datom) -> Result<bool>,
    ) -> Result<()> {
        let Some(key) = self.prefix_key(order, parts)? else {
            return Ok(());
        };
        self.visit_facts(self.scan(order, reach, &key)?, visit)
    }

    /// Calls `visit` with the datoms of an attribute with values in the inclusive range, until it returns false.
    pub fn visit_range(
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
            let value = self.component_value(attribute, value)?;
            Ok(Bound::Included(encode_value(&value)))
        };
        let (from, to) = (bound(from)?, bound(to)?);
        let facts = self.attribute_facts(
            attribute.id,
            from.as_ref().map(Vec::as_slice),
            to.as_ref().map(Vec::as_slice),
        )?;
        self.visit_facts(facts, visit)
    }

    fn visit_facts<'t>(
        &self,
        facts: impl Iterator<Item = Result<Fact<'t>>>,
        mut visit: impl FnMut(Datom) -> Result<bool>,
    ) -> Result<()> {
        for fact in facts {
            if !visit(self.to_datom(fact?)?)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns the key prefix of the first components of a datom. `None` if no datom can have them.
    fn prefix_key(&self, order: IndexOrder, parts: &[Value]) -> Result<Option<Vec<u8>>> {
        let (e, a, v) = match (order, parts) {
            (IndexOrder::Eav, parts) => (parts.first(), parts.get(1), parts.get(2)),
            (IndexOrder::Ave, parts) => (parts.get(2), parts.first(), parts.get(1)),
        };
        if parts.len() > 3 {
            return invalid_query("a datom has an entity, an attribute and a value");
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
            Some(other) => {
                return invalid_query(format!(
                    "{other} is not an attribute; an attribute is a keyword"
                ));
            }
            None => None,
        };
        let value = match (attribute, v) {
            (Some(attribute), Some(value)) => {
                Some(encode_value(&self.component_value(attribute, value)?))
            }
            _ => None,
        };
        Ok(Some(match order {
            IndexOrder::Eav => match (e, attribute) {
                (Some(e), Some(attribute)) => {
                    let mut key = eav_prefix(e, attribute.id).to_vec();
                    key.extend_from_slice(&to_key_bytes(&value.unwrap_or_default()));
                    key
                }
                (Some(e), None) => e.to_be_bytes().to_vec(),
                (None, _) => Vec::new(),
            },
            IndexOrder::Ave => match attribute {
                Some(attribute) => {
                    let mut key =
                        ave_prefix(attribute.id, &to_key_bytes(&value.unwrap_or_default()));
                    key.extend(e.iter().flat_map(|e| e.to_be_bytes()));
                    key
                }
                None => Vec::new(),
            },
        }))
    }

    fn component_value(&self, attribute: &Attribute, value: &Value) -> Result<Value> {
        if attribute.is_ref() {
            let e = self.entity_id(value)?;
            return e
                .map(entity_value)
                .ok_or_else(|| Error::Query(format!("no entity has the ident {value}")));
        }
        coerce(attribute, value.clone()).map_err(|error| Error::Query(error.to_string()))
    }
}

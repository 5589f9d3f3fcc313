//! What a transaction makes of facts: in every table, and in everything that follows from them.

use std::collections::BTreeSet;
use std::sync::Arc;

use rung_edn::{Map, Value};

use super::{Step, Transaction, conflict, is_tempid, wrong};
use crate::datom::{Datom, Entity, ave_key, eav_key, encoded, in_key, is_cut, whole_key};
use crate::db::entity_value;
use crate::document::{has_documents, patched, paths};
use crate::schema::{Attribute, Type};

/// When an entity came, and when it changed.
const CREATED: &str = "db/created-at";
const UPDATED: &str = "db/updated-at";

impl Transaction<'_, '_, '_> {
    pub(super) fn add(&mut self, e: Entity, attribute: &Arc<Attribute>, value: &Value) -> Step<()> {
        let value = self.value(attribute, value)?;
        if !attribute.sources().is_empty() {
            // It is said by what it is made of; whoever repeats it may.
            let said = self.moment().values(e, attribute.id)?;
            if said.first() == Some(&value) {
                return Ok(());
            }
            return Err(wrong(format!(
                ":{} is made of other attributes: say those",
                attribute.name
            )));
        }
        self.set(e, attribute, &value)
    }

    /// Makes a fact of it, in place of what was there where there can be one value alone.
    pub(super) fn set(&mut self, e: Entity, attribute: &Arc<Attribute>, value: &Value) -> Step<()> {
        let bytes = encoded(value);
        let short = in_key(&bytes);
        let key = eav_key(e, attribute.id, &short);
        if self.batch.view().get(self.tables.eav, &key)?.is_some() {
            return Ok(());
        }
        if attribute.unique.is_some() {
            let holder = self
                .moment()
                .holders(attribute.id, &bytes)?
                .next()
                .transpose()?;
            if let Some(holder) = holder
                && holder != e
            {
                let why = format!(
                    "entity {holder} has :{} {value}, which one entity alone can have",
                    attribute.name
                );
                return Err(conflict(why).into());
            }
        }
        if !attribute.many {
            let before = self.moment().values(e, attribute.id)?;
            for before in before {
                self.remove(e, attribute, &before)?;
            }
        }
        self.batch.put(self.tables.eav, &key, &[])?;
        let by_value = ave_key(attribute.id, &short, e);
        self.batch.put(self.tables.ave, &by_value, &[])?;
        self.samples
            .add(self.batch, self.tables.sample, attribute.id, &by_value)?;
        if is_cut(&short) {
            self.batch.put(
                self.tables.long,
                &whole_key(e, attribute.id, &short),
                &bytes,
            )?;
        }
        if has_documents(attribute) {
            let own = (e, attribute.id);
            paths::add(self.batch, self.tables.paths, own, paths::entries(value))?;
        }
        if let Some(domains) = self.indexes.domains(attribute.id) {
            self.alike.note(domains, &key, value, true);
        }
        self.changed(e, attribute, value, true);
        Ok(())
    }

    /// Takes a fact away. Whether it was one.
    pub(super) fn remove(
        &mut self,
        e: Entity,
        attribute: &Arc<Attribute>,
        value: &Value,
    ) -> Step<bool> {
        let bytes = encoded(value);
        let short = in_key(&bytes);
        if !self
            .batch
            .delete(self.tables.eav, &eav_key(e, attribute.id, &short))?
        {
            return Ok(false);
        }
        let by_value = ave_key(attribute.id, &short, e);
        self.batch.delete(self.tables.ave, &by_value)?;
        self.samples
            .remove(self.batch, self.tables.sample, attribute.id, &by_value)?;
        if is_cut(&short) {
            self.batch
                .delete(self.tables.long, &whole_key(e, attribute.id, &short))?;
        }
        if has_documents(attribute) {
            let mut entries = paths::entries(value);
            // What another document of the entity says as well stays.
            for other in self.moment().values(e, attribute.id)? {
                let others = paths::entries(&other);
                entries.retain(|entry| !others.contains(entry));
            }
            paths::remove(self.batch, self.tables.paths, (e, attribute.id), entries)?;
        }
        if let Some(domains) = self.indexes.domains(attribute.id) {
            let key = eav_key(e, attribute.id, &short);
            self.alike.note(domains, &key, value, false);
        }
        self.changed(e, attribute, value, false);
        Ok(true)
    }

    fn changed(&mut self, e: Entity, attribute: &Attribute, value: &Value, added: bool) {
        *self.counts.entry(attribute.id).or_default() += if added { 1 } else { -1 };
        self.datoms.push(Datom {
            e,
            a: attribute.id,
            v: value.clone(),
            added,
        });
        for tuple in self.made_of.get(&attribute.name).into_iter().flatten() {
            self.tuples.insert((e, *tuple));
        }
    }

    /// Makes tuples what their parts are now.
    pub(super) fn settle_tuples(&mut self) -> Step<()> {
        // More is to be said of the same entity, perhaps.
        let next = self
            .queue
            .front()
            .and_then(Value::as_sequence)
            .and_then(|items| items.get(1));
        let next = next
            .and_then(Value::as_i64)
            .and_then(|e| Entity::try_from(e).ok());
        let ready: Vec<(Entity, u32)> = self
            .tuples
            .iter()
            .copied()
            .filter(|(e, _)| Some(*e) != next)
            .collect();
        for (e, a) in ready {
            self.tuples.remove(&(e, a));
            let Some(tuple) = self.schema.by_id(a).cloned() else {
                continue;
            };
            let mut parts = Vec::new();
            for name in tuple.sources() {
                let value = match self.schema.get(name) {
                    Some(source) => self.moment().values(e, source.id)?.into_iter().next(),
                    None => None,
                };
                parts.push(value.unwrap_or(Value::Nil));
            }
            if parts.iter().all(Value::is_nil) {
                self.remove_all(e, &tuple)?;
            } else {
                self.set(e, &tuple, &Value::Vector(parts))?;
            }
        }
        Ok(())
    }

    /// Says of entities that changed when they did, and when they came.
    pub(super) fn settle_times(&mut self) -> Step<()> {
        let Some(now) = self.now else {
            return Ok(());
        };
        let mut times = Vec::new();
        for name in [CREATED, UPDATED] {
            let attribute = self.schema.get(&name.into()).cloned();
            times.push(attribute.unwrap_or_else(|| {
                self.schema_grew = true;
                Arc::make_mut(&mut self.schema).add_typed(name.into(), Type::Long)
            }));
        }
        let changed: BTreeSet<Entity> = self.datoms.iter().map(|datom| datom.e).collect();
        for e in changed.into_iter().collect::<Vec<_>>() {
            let moment = self.moment();
            if !moment.exists(e)? {
                continue;
            }
            let is_new = moment.values(e, times[0].id)?.is_empty();
            for time in if is_new { &times[..] } else { &times[1..] } {
                self.set(e, &time.clone(), &Value::Long(now))?;
            }
        }
        Ok(())
    }

    /// Takes away what an entity has of an attribute, and the parts that this leads to.
    pub(super) fn remove_all(&mut self, e: Entity, attribute: &Arc<Attribute>) -> Step<()> {
        let parts = self.remove_values(e, attribute)?;
        self.remove_entities(parts)
    }

    /// Takes away everything of an entity, its parts, and what leads to it.
    pub(super) fn remove_entity(&mut self, e: Entity) -> Step<()> {
        self.remove_entities(vec![e])
    }

    /// Parts have parts, and there is no end to how deep: what is left to do waits here, and not on the stack.
    fn remove_entities(&mut self, mut left: Vec<Entity>) -> Step<()> {
        while let Some(e) = left.pop() {
            left.extend(self.remove_own(e)?);
        }
        Ok(())
    }

    /// Takes away what an entity has of an attribute, and gives its parts.
    fn remove_values(&mut self, e: Entity, attribute: &Arc<Attribute>) -> Step<Vec<Entity>> {
        let values = self.moment().values(e, attribute.id)?;
        for value in &values {
            self.remove(e, attribute, value)?;
        }
        let part = |value: &Value| value.as_i64().and_then(|part| Entity::try_from(part).ok());
        let parts = values.iter().filter(|_| attribute.component);
        Ok(parts.filter_map(part).collect())
    }

    /// Takes away everything of an entity and what leads to it, and gives its parts.
    fn remove_own(&mut self, e: Entity) -> Step<Vec<Entity>> {
        let moment = self.moment();
        let mut own: Vec<u32> = Vec::new();
        for fact in moment.of_entity(e, None)? {
            let (_, a, _) = fact?;
            if own.last() != Some(&a) {
                own.push(a);
            }
        }
        let target = encoded(&entity_value(e));
        let mut leading = Vec::new();
        for attribute in self
            .schema
            .attributes()
            .filter(|attribute| attribute.is_ref())
        {
            for holder in moment.holders(attribute.id, &target)? {
                leading.push((holder?, attribute.clone()));
            }
        }
        let mut parts = Vec::new();
        for a in own {
            if let Some(attribute) = self.schema.by_id(a).cloned() {
                parts.extend(self.remove_values(e, &attribute)?);
            }
        }
        for (holder, attribute) in leading {
            self.remove(holder, &attribute, &entity_value(e))?;
        }
        Ok(parts)
    }

    /// Changes a document of an entity: the one that it has, or the one of several that is named by what it is.
    pub(super) fn patch(
        &mut self,
        e: &Value,
        a: &Value,
        old: Option<&Value>,
        changes: &Value,
    ) -> Step<()> {
        if is_tempid(e) {
            return Err(wrong(format!("{e} is temporary: it has no document yet")));
        }
        let e = self.called(e)?;
        let attribute = self.attribute(a)?;
        if !has_documents(&attribute) {
            return Err(wrong(format!(":{} has no documents", attribute.name)));
        }
        let before = self.moment().values(e, attribute.id)?;
        let before = match (old, attribute.many) {
            (None, false) => before.into_iter().next(),
            (Some(old), true) => {
                let old = self.value(&attribute, old)?;
                let there = before.into_iter().find(|document| *document == old);
                let missing = || wrong(format!("entity {e} has no document {old}"));
                Some(there.ok_or_else(missing)?)
            }
            (Some(_), false) => {
                let why = format!(
                    ":{} has one document: say the changes alone",
                    attribute.name
                );
                return Err(wrong(why));
            }
            (None, true) => {
                let why = format!(
                    ":{} has several documents: say which one first",
                    attribute.name
                );
                return Err(wrong(why));
            }
        };
        if changes
            .as_sequence()
            .map_or(changes.is_nil(), <[Value]>::is_empty)
        {
            return Ok(());
        }
        let start = before.clone().unwrap_or_else(|| Value::Map(Map::new()));
        let after = patched(start, changes)?;
        if let Some(before) = before.filter(|before| attribute.many && *before != after) {
            self.remove(e, &attribute, &before)?;
        }
        self.set(e, &attribute, &after)
    }

    pub(super) fn compare_and_set(
        &mut self,
        e: Entity,
        attribute: &Arc<Attribute>,
        old: &Value,
        new: &Value,
    ) -> Step<()> {
        let there = self.moment().values(e, attribute.id)?;
        let shown = |values: &[Value]| match values {
            [] => "nothing".to_owned(),
            values => values
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        };
        let matches = if old.is_nil() {
            there.is_empty()
        } else {
            let old = self.value(attribute, old)?;
            there.contains(&old)
        };
        if !matches {
            let why = format!(
                "entity {e} has :{} {}, not {old}",
                attribute.name,
                shown(&there)
            );
            return Err(conflict(why).into());
        }
        self.add(e, attribute, new)
    }
}

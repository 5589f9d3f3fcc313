//! Writing the facts of a transaction to every table, and updating everything that is derived from them.

use std::collections::BTreeSet;
use std::sync::Arc;

use rung_edn::{Map, Value};

use super::{StepResult, Transaction, conflict, invalid_transaction, is_tempid};
use crate::datom::{
    Datom, Entity, ave_key, eav_key, encode_value, is_truncated, long_value_key, to_key_bytes,
};
use crate::db::entity_value;
use crate::document::{apply_patch, has_documents, paths};
use crate::schema::{Attribute, Type};

/// The attributes of the times when an entity was created and last changed.
const CREATED_AT: &str = "db/created-at";
const UPDATED_AT: &str = "db/updated-at";

impl Transaction<'_, '_, '_> {
    pub(super) fn add(
        &mut self,
        e: Entity,
        attribute: &Arc<Attribute>,
        value: &Value,
    ) -> StepResult<()> {
        let value = self.convert_value(attribute, value)?;
        if !attribute.sources().is_empty() {
            // A tuple follows from its source attributes. Asserting its current value is allowed.
            let said = self.snapshot().values(e, attribute.id)?;
            if said.first() == Some(&value) {
                return Ok(());
            }
            return Err(invalid_transaction(format!(
                ":{} is a tuple of other attributes; set those instead",
                attribute.name
            )));
        }
        self.set(e, attribute, &value)
    }

    /// Adds a fact. Replaces the current value of an attribute of cardinality one.
    pub(super) fn set(
        &mut self,
        e: Entity,
        attribute: &Arc<Attribute>,
        value: &Value,
    ) -> StepResult<()> {
        let bytes = encode_value(value);
        let short = to_key_bytes(&bytes);
        let key = eav_key(e, attribute.id, &short);
        if self.batch.view().get(self.tables.eav, &key)?.is_some() {
            return Ok(());
        }
        if attribute.unique.is_some() {
            let holder = self
                .snapshot()
                .holders(attribute.id, &bytes)?
                .next()
                .transpose()?;
            if let Some(holder) = holder
                && holder != e
            {
                let why = format!(
                    "entity {holder} has :{} {value} already, which must be unique",
                    attribute.name
                );
                return Err(conflict(why).into());
            }
        }
        if !attribute.many {
            let before = self.snapshot().values(e, attribute.id)?;
            for before in before {
                self.remove(e, attribute, &before)?;
            }
        }
        self.batch.put(self.tables.eav, &key, &[])?;
        let by_value = ave_key(attribute.id, &short, e);
        self.batch.put(self.tables.ave, &by_value, &[])?;
        self.samples
            .add(self.batch, self.tables.sample, attribute.id, &by_value)?;
        if is_truncated(&short) {
            self.batch.put(
                self.tables.long,
                &long_value_key(e, attribute.id, &short),
                &bytes,
            )?;
        }
        if has_documents(attribute) {
            let own = (e, attribute.id);
            paths::add(self.batch, self.tables.paths, own, paths::entries(value))?;
        }
        if let Some(domains) = self.indexes.domains(attribute.id) {
            self.index_changes.record(domains, &key, value, true);
        }
        self.record_change(e, attribute, value, true);
        Ok(())
    }

    /// Removes a fact. Returns false if it does not exist.
    pub(super) fn remove(
        &mut self,
        e: Entity,
        attribute: &Arc<Attribute>,
        value: &Value,
    ) -> StepResult<bool> {
        let bytes = encode_value(value);
        let short = to_key_bytes(&bytes);
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
        if is_truncated(&short) {
            self.batch
                .delete(self.tables.long, &long_value_key(e, attribute.id, &short))?;
        }
        if has_documents(attribute) {
            let mut entries = paths::entries(value);
            // Keep the entries that another document of the entity also has.
            for other in self.snapshot().values(e, attribute.id)? {
                let others = paths::entries(&other);
                entries.retain(|entry| !others.contains(entry));
            }
            paths::remove(self.batch, self.tables.paths, (e, attribute.id), entries)?;
        }
        if let Some(domains) = self.indexes.domains(attribute.id) {
            let key = eav_key(e, attribute.id, &short);
            self.index_changes.record(domains, &key, value, false);
        }
        self.record_change(e, attribute, value, false);
        Ok(true)
    }

    fn record_change(&mut self, e: Entity, attribute: &Attribute, value: &Value, added: bool) {
        *self.counts.entry(attribute.id).or_default() += if added { 1 } else { -1 };
        self.datoms.push(Datom {
            e,
            a: attribute.id,
            v: value.clone(),
            added,
        });
        for tuple in self
            .tuples_by_source
            .get(&attribute.name)
            .into_iter()
            .flatten()
        {
            self.stale_tuples.insert((e, *tuple));
        }
    }

    /// Updates tuples to the current values of their parts.
    pub(super) fn update_tuples(&mut self) -> StepResult<()> {
        // Wait if the next operation is about the same entity: it may change more parts.
        let next = self
            .queue
            .front()
            .and_then(Value::as_sequence)
            .and_then(|items| items.get(1));
        let next = next
            .and_then(Value::as_i64)
            .and_then(|e| Entity::try_from(e).ok());
        let ready: Vec<(Entity, u32)> = self
            .stale_tuples
            .iter()
            .copied()
            .filter(|(e, _)| Some(*e) != next)
            .collect();
        for (e, a) in ready {
            self.stale_tuples.remove(&(e, a));
            let Some(tuple) = self.schema.by_id(a).cloned() else {
                continue;
            };
            let mut parts = Vec::new();
            for name in tuple.sources() {
                let value = match self.schema.get(name) {
                    Some(source) => self.snapshot().values(e, source.id)?.into_iter().next(),
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

    /// Sets the update time of changed entities, and the creation time of new ones.
    pub(super) fn update_timestamps(&mut self) -> StepResult<()> {
        let Some(now) = self.now else {
            return Ok(());
        };
        let mut times = Vec::new();
        for name in [CREATED_AT, UPDATED_AT] {
            let attribute = self.schema.get(&name.into()).cloned();
            times.push(attribute.unwrap_or_else(|| {
                self.schema_grew = true;
                Arc::make_mut(&mut self.schema).add_typed(name.into(), Type::Long)
            }));
        }
        let changed: BTreeSet<Entity> = self.datoms.iter().map(|datom| datom.e).collect();
        for e in changed.into_iter().collect::<Vec<_>>() {
            let moment = self.snapshot();
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

    /// Removes all values of an attribute of an entity, and their components.
    pub(super) fn remove_all(&mut self, e: Entity, attribute: &Arc<Attribute>) -> StepResult<()> {
        let parts = self.remove_values(e, attribute)?;
        self.remove_entities(parts)
    }

    /// Removes all facts of an entity, its components, and all references to it.
    pub(super) fn remove_entity(&mut self, e: Entity) -> StepResult<()> {
        self.remove_entities(vec![e])
    }

    /// Removes entities and their components. Iterative, because components can be nested arbitrarily deep.
    fn remove_entities(&mut self, mut left: Vec<Entity>) -> StepResult<()> {
        while let Some(e) = left.pop() {
            left.extend(self.remove_entity_facts(e)?);
        }
        Ok(())
    }

    /// Removes all values of an attribute of an entity. Returns its components.
    fn remove_values(&mut self, e: Entity, attribute: &Arc<Attribute>) -> StepResult<Vec<Entity>> {
        let values = self.snapshot().values(e, attribute.id)?;
        for value in &values {
            self.remove(e, attribute, value)?;
        }
        let part = |value: &Value| value.as_i64().and_then(|part| Entity::try_from(part).ok());
        let parts = values.iter().filter(|_| attribute.component);
        Ok(parts.filter_map(part).collect())
    }

    /// Removes all facts of an entity and all references to it. Returns its components.
    fn remove_entity_facts(&mut self, e: Entity) -> StepResult<Vec<Entity>> {
        let moment = self.snapshot();
        let mut own: Vec<u32> = Vec::new();
        for fact in moment.entity_facts(e, None)? {
            let (_, a, _) = fact?;
            if own.last() != Some(&a) {
                own.push(a);
            }
        }
        let target = encode_value(&entity_value(e));
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

    /// Patches a document of an entity. If the attribute can have several documents, `old` says which one.
    pub(super) fn patch(
        &mut self,
        e: &Value,
        a: &Value,
        old: Option<&Value>,
        changes: &Value,
    ) -> StepResult<()> {
        if is_tempid(e) {
            return Err(invalid_transaction(format!(
                "{e} is a temporary id and has no document"
            )));
        }
        let e = self.resolve_entity(e)?;
        let attribute = self.attribute(a)?;
        if !has_documents(&attribute) {
            return Err(invalid_transaction(format!(
                ":{} is not a document attribute",
                attribute.name
            )));
        }
        let before = self.snapshot().values(e, attribute.id)?;
        let before = match (old, attribute.many) {
            (None, false) => before.into_iter().next(),
            (Some(old), true) => {
                let old = self.convert_value(&attribute, old)?;
                let there = before.into_iter().find(|document| *document == old);
                let missing = || invalid_transaction(format!("entity {e} has no document {old}"));
                Some(there.ok_or_else(missing)?)
            }
            (Some(_), false) => {
                let why = format!(
                    ":{} has one document; pass only the changes",
                    attribute.name
                );
                return Err(invalid_transaction(why));
            }
            (None, true) => {
                let why = format!(
                    ":{} has several documents; pass the one to change first",
                    attribute.name
                );
                return Err(invalid_transaction(why));
            }
        };
        if changes
            .as_sequence()
            .map_or(changes.is_nil(), <[Value]>::is_empty)
        {
            return Ok(());
        }
        let start = before.clone().unwrap_or_else(|| Value::Map(Map::new()));
        let after = apply_patch(start, changes)?;
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
    ) -> StepResult<()> {
        let there = self.snapshot().values(e, attribute.id)?;
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
            let old = self.convert_value(attribute, old)?;
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

//! How a schema is changed: as far as the data allows, and with what moves between indexes.

use std::collections::HashSet;
use std::sync::Arc;

use rung_edn::{Name, Value};

use crate::coerce::coerce;
use crate::datom::{Entity, eav_key, in_key};
use crate::db::{Db, Moment, store_schema};
use crate::embedding::{Prepared, Texts};
use crate::likeness::{Changes, Domains};
use crate::schema::{Attribute, Changed, Schema};
use crate::{Error, Result};

impl Db {
    /// Takes in a schema, beside what there is.
    pub fn update_schema(&self, given: &Value) -> Result<Arc<Schema>> {
        self.alter(|schema| schema.apply(given))
    }

    /// Gives an attribute another name.
    pub fn rename_attribute(&self, from: &Name, to: &Name) -> Result<()> {
        self.alter(|schema| Ok(vec![schema.rename(from, to.clone())?]))?;
        Ok(())
    }

    /// Makes a change that tells which attributes it concerns.
    fn alter(&self, change: impl Fn(&mut Schema) -> Result<Vec<Changed>>) -> Result<Arc<Schema>> {
        // Vectors of texts, which are made while nothing is held.
        let mut prepared = Prepared::default();
        loop {
            // What no index can be made for is refused before it is kept; and they are there before the facts that go into them.
            let mut wanted = self.read(|moment| Ok((*moment.schema).clone()))?;
            let changed = change(&mut wanted)?.into_iter();
            let gained = changed.flat_map(|(known, attribute)| {
                let old = known.map(|known| Domains::of(&known)).unwrap_or_default();
                Domains::of(&attribute).beyond(&old).embeddings
            });
            let (_, before) = self.open_indexes()?;
            let after = self.indexes_of(&wanted, &gained.collect())?;
            let (mut is_stale, mut texts) = (false, Texts::new());
            let schema = self.write(|batch, schema| {
                let mut schema = (*schema).clone();
                let changed = change(&mut schema)?;
                is_stale = schema != wanted;
                if is_stale {
                    return Ok(Arc::new(schema));
                }
                let moment = Moment {
                    view: batch.view(),
                    tables: self.tables(),
                    schema: Arc::new(schema.clone()),
                    indexes: before.clone(),
                };
                let (mut added, mut gone) = (Changes::default(), Changes::default());
                for (known, attribute) in &changed {
                    let old = known.as_ref().map(|known| Domains::of(known));
                    let (old, new) = (old.unwrap_or_default(), Domains::of(attribute));
                    if let Some(known) = known {
                        check_change(&moment, known, attribute)?;
                    }
                    note_all(&moment, attribute.id, &new.beyond(&old), true, &mut added)?;
                    let mut left = old.beyond(&new);
                    left.embeddings
                        .retain(|domain| after.embeddings.contains_key(domain));
                    note_all(&moment, attribute.id, &left, false, &mut gone)?;
                }
                texts = added.wanting(&after, &prepared)?;
                if !texts.is_empty() {
                    return Ok(Arc::new(schema));
                }
                let meta = self.tables().meta;
                added.apply(batch, meta, &after, &prepared)?;
                gone.apply(batch, meta, &before, &prepared)?;
                for (domain, embeddings) in &before.embeddings {
                    if !after.embeddings.contains_key(domain) {
                        embeddings.index.clear(batch)?;
                    }
                }
                store_schema(batch, self.tables(), &schema)?;
                Ok(Arc::new(schema))
            })?;
            if !texts.is_empty() {
                after.prepare(&texts, &mut prepared)?;
            } else if !is_stale {
                self.open_indexes()?;
                return Ok(schema);
            }
        }
    }
}

/// Notes what an attribute has, for indexes that it comes into or leaves.
fn note_all(
    moment: &Moment<'_>,
    a: u32,
    domains: &Domains,
    added: bool,
    changes: &mut Changes,
) -> Result<()> {
    if *domains == Domains::default() {
        return Ok(());
    }
    let unbounded = std::ops::Bound::Unbounded;
    for fact in moment.of_attribute(a, unbounded, unbounded)? {
        let (e, _, bytes) = fact?;
        let key = eav_key(e, a, &in_key(bytes));
        changes.note(domains, &key, &moment.value(a, bytes)?, added);
    }
    Ok(())
}

/// Refuses a change of an attribute that its datoms do not allow.
fn check_change(moment: &Moment<'_>, before: &Attribute, after: &Attribute) -> Result<()> {
    let a = before.id;
    if moment.count_of(a)? == 0 {
        return Ok(());
    }
    let refuse = |why: String| {
        Err(Error::Schema(format!(
            "attribute :{} has data: {why}",
            after.name
        )))
    };
    if before.kind != after.kind {
        if before.kind.is_some() {
            return refuse("its type cannot be changed".to_owned());
        }
        for fact in
            moment.of_attribute(a, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)?
        {
            let (e, _, v) = fact?;
            let value = rung_kv::encode::take(v)?;
            if coerce(after, value.clone()).ok().as_ref() != Some(&value) {
                return refuse(format!("{value} of entity {e} is not of the type"));
            }
        }
    }
    if before.tuple != after.tuple {
        return refuse("what its tuples are made of cannot be changed".to_owned());
    }
    if (before.many && !after.many) || (after.unique.is_some() && before.unique.is_none()) {
        let mut holders = HashSet::new();
        let mut last: Option<(Vec<u8>, Entity)> = None;
        for fact in
            moment.of_attribute(a, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)?
        {
            let (e, _, v) = fact?;
            if !after.many && before.many && !holders.insert(e) {
                return refuse(format!("entity {e} has several values"));
            }
            if after.unique.is_some()
                && let Some((value, other)) = &last
                && value == v
            {
                return refuse(format!("entities {other} and {e} have the same value"));
            }
            last = Some((v.to_vec(), e));
        }
    }
    Ok(())
}

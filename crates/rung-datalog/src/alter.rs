//! Schema changes: which ones the stored data allows, and how they move values between search indexes.

use std::collections::HashSet;
use std::sync::Arc;

use rung_edn::{Name, Value};

use crate::coerce::coerce;
use crate::datom::{Entity, eav_key, to_key_bytes};
use crate::db::{Db, Snapshot, store_schema};
use crate::embedding::{PreparedVectors, Texts};
use crate::schema::{Attribute, AttributeChange, Schema};
use crate::search_indexes::{IndexChanges, IndexDomains};
use crate::{Error, Result};

impl Db {
    /// Adds a schema to the existing one.
    pub fn update_schema(&self, given: &Value) -> Result<Arc<Schema>> {
        self.alter(|schema| schema.apply(given))
    }

    /// Renames an attribute.
    pub fn rename_attribute(&self, from: &Name, to: &Name) -> Result<()> {
        self.alter(|schema| Ok(vec![schema.rename(from, to.clone())?]))?;
        Ok(())
    }

    /// Changes the schema by `change`, which returns the attributes that it changed.
    fn alter(
        &self,
        change: impl Fn(&mut Schema) -> Result<Vec<AttributeChange>>,
    ) -> Result<Arc<Schema>> {
        // Vectors of texts are computed outside of any transaction.
        let mut prepared = PreparedVectors::default();
        loop {
            // The indexes are opened before the facts are added to them. A schema whose indexes cannot be opened is not stored.
            let mut wanted = self.read(|moment| Ok((*moment.schema).clone()))?;
            let changed = change(&mut wanted)?.into_iter();
            let gained = changed.flat_map(|(known, attribute)| {
                let old = known
                    .map(|known| IndexDomains::from_attribute(&known))
                    .unwrap_or_default();
                IndexDomains::from_attribute(&attribute)
                    .difference(&old)
                    .embeddings
            });
            let (_, before) = self.open_indexes()?;
            let after = self.build_indexes(&wanted, &gained.collect())?;
            let (mut is_stale, mut texts) = (false, Texts::new());
            let schema = self.write(|batch, schema| {
                let mut schema = (*schema).clone();
                let changed = change(&mut schema)?;
                is_stale = schema != wanted;
                if is_stale {
                    return Ok(Arc::new(schema));
                }
                let moment = Snapshot {
                    view: batch.view(),
                    tables: self.tables(),
                    schema: Arc::new(schema.clone()),
                    indexes: before.clone(),
                };
                let (mut added, mut gone) = (IndexChanges::default(), IndexChanges::default());
                for (known, attribute) in &changed {
                    let old = known
                        .as_ref()
                        .map(|known| IndexDomains::from_attribute(known));
                    let (old, new) = (
                        old.unwrap_or_default(),
                        IndexDomains::from_attribute(attribute),
                    );
                    if let Some(known) = known {
                        check_change(&moment, known, attribute)?;
                    }
                    record_attribute(
                        &moment,
                        attribute.id,
                        &new.difference(&old),
                        true,
                        &mut added,
                    )?;
                    let mut left = old.difference(&new);
                    left.embeddings
                        .retain(|domain| after.embeddings.contains_key(domain));
                    record_attribute(&moment, attribute.id, &left, false, &mut gone)?;
                }
                texts = added.missing_texts(&after, &prepared)?;
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

/// Records all values of an attribute as added to or removed from the indexes of `domains`.
fn record_attribute(
    moment: &Snapshot<'_>,
    a: u32,
    domains: &IndexDomains,
    added: bool,
    changes: &mut IndexChanges,
) -> Result<()> {
    if *domains == IndexDomains::default() {
        return Ok(());
    }
    let unbounded = std::ops::Bound::Unbounded;
    for fact in moment.attribute_facts(a, unbounded, unbounded)? {
        let (e, _, bytes) = fact?;
        let key = eav_key(e, a, &to_key_bytes(bytes));
        changes.record(domains, &key, &moment.decode_value(a, bytes)?, added);
    }
    Ok(())
}

/// Returns an error if the datoms of an attribute do not allow its change.
fn check_change(moment: &Snapshot<'_>, before: &Attribute, after: &Attribute) -> Result<()> {
    let a = before.id;
    if moment.count_of(a)? == 0 {
        return Ok(());
    }
    let refuse = |why: String| {
        Err(Error::Schema(format!(
            "attribute :{} has data and cannot be changed: {why}",
            after.name
        )))
    };
    if before.kind != after.kind {
        if before.kind.is_some() {
            return refuse("the type of stored values is fixed".to_owned());
        }
        for fact in
            moment.attribute_facts(a, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)?
        {
            let (e, _, v) = fact?;
            let value = rung_kv::encode::decode_part(v)?;
            if coerce(after, value.clone()).ok().as_ref() != Some(&value) {
                return refuse(format!(
                    "value {value} of entity {e} is not of the new type"
                ));
            }
        }
    }
    if before.tuple != after.tuple {
        return refuse("the parts of stored tuples are fixed".to_owned());
    }
    if (before.many && !after.many) || (after.unique.is_some() && before.unique.is_none()) {
        let mut holders = HashSet::new();
        let mut last: Option<(Vec<u8>, Entity)> = None;
        for fact in
            moment.attribute_facts(a, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)?
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

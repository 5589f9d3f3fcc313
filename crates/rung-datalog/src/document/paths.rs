//! The index of document contents: by the keys that lead to a scalar value, and the value.
//!
//! The index returns candidates, and the document decides whether they match. So entries leave out positions in vectors, and are
//! cut if they are too long for a key.

use std::collections::BTreeSet;
use std::ops::Bound;

use rung_edn::Value;
use rung_kv::{Batch, MAX_KEY_BYTES, Table, View, encode};

use crate::datom::{ATTRIBUTE_BYTES, ENTITY_BYTES, Entity};
use crate::{Error, Result};

/// Bytes of an entry, at most.
const MAX_ENTRY_BYTES: usize = MAX_KEY_BYTES - ATTRIBUTE_BYTES - ENTITY_BYTES;
/// Separates the keys from the value. No encoded value begins with it.
const PATH_END: u8 = 0x00;

/// The encoded keys that lead into a document.
#[derive(Debug, Clone, Default)]
pub(crate) struct DocumentPath(Vec<u8>);

impl DocumentPath {
    pub(crate) fn join(&self, key: &Value) -> Self {
        let mut path = self.0.clone();
        encode::encode_part(key, &mut path);
        Self(path)
    }

    /// Returns the index entry of a value at the end of the path.
    pub(crate) fn entry(&self, value: &Value) -> Vec<u8> {
        let mut entry = self.0.clone();
        entry.push(PATH_END);
        encode::encode_part(&comparable(value), &mut entry);
        entry.truncate(MAX_ENTRY_BYTES);
        entry
    }

    /// Returns bounds before and after every entry at the end of the path.
    pub(crate) fn entry_bounds(&self) -> (Vec<u8>, Vec<u8>) {
        let ends = [PATH_END, PATH_END + 1].map(|end| {
            let mut entry = self.0.clone();
            entry.push(end);
            entry.truncate(MAX_ENTRY_BYTES);
            entry
        });
        let [before, after] = ends;
        (before, after)
    }
}

/// Converts a value for comparison: decimal numbers become floating-point numbers.
pub(crate) fn comparable(value: &Value) -> Value {
    match value {
        Value::BigDec(_) => value.as_f64().map_or_else(|| value.clone(), Value::Double),
        other => other.clone(),
    }
}

/// Returns the index entries of a document.
pub(crate) fn entries(document: &Value) -> BTreeSet<Vec<u8>> {
    let mut entries = BTreeSet::new();
    collect_entries(document, &DocumentPath::default(), &mut entries);
    entries
}

fn collect_entries(value: &Value, path: &DocumentPath, into: &mut BTreeSet<Vec<u8>>) {
    match value {
        Value::Map(members) => {
            for (key, value) in members {
                collect_entries(value, &path.join(key), into);
            }
        }
        Value::Vector(items) => {
            for item in items {
                collect_entries(item, path, into);
            }
        }
        scalar => {
            into.insert(path.entry(scalar));
        }
    }
}

fn entry_key(a: u32, entry: &[u8], e: Option<Entity>) -> Vec<u8> {
    let mut key = Vec::with_capacity(ATTRIBUTE_BYTES + entry.len() + ENTITY_BYTES);
    key.extend_from_slice(&a.to_be_bytes());
    key.extend_from_slice(entry);
    if let Some(e) = e {
        key.extend_from_slice(&e.to_be_bytes());
    }
    key
}

/// Adds the entries of an entity's document.
pub(crate) fn add(
    batch: &mut Batch<'_>,
    table: Table,
    (e, a): (Entity, u32),
    entries: impl IntoIterator<Item = Vec<u8>>,
) -> Result<()> {
    for entry in entries {
        batch.put(table, &entry_key(a, &entry, Some(e)), &[])?;
    }
    Ok(())
}

/// Removes the entries of an entity's document.
pub(crate) fn remove(
    batch: &mut Batch<'_>,
    table: Table,
    (e, a): (Entity, u32),
    entries: impl IntoIterator<Item = Vec<u8>>,
) -> Result<()> {
    for entry in entries {
        batch.delete(table, &entry_key(a, &entry, Some(e)))?;
    }
    Ok(())
}

/// An index lookup for documents that may match a condition.
#[derive(Debug, Clone)]
pub(crate) enum IndexProbe {
    /// The entries between two bounds, both included.
    Between(Vec<u8>, Vec<u8>),
    /// The documents that all of these find.
    All(Vec<IndexProbe>),
    /// The documents that at least one of these finds.
    Any(Vec<IndexProbe>),
}

/// Entities that are few enough to test their documents without further probes.
const FEW_ENTITIES: usize = 64;

impl IndexProbe {
    pub(crate) fn exact(entry: Vec<u8>) -> Self {
        Self::Between(entry.clone(), entry)
    }

    /// Returns the entities that have an entry of an attribute in the range of the probe.
    pub(crate) fn entities(
        &self,
        view: View<'_>,
        table: Table,
        a: u32,
        step: &mut impl FnMut() -> Result<()>,
    ) -> Result<BTreeSet<Entity>> {
        match self {
            Self::Between(from, to) => {
                let first = entry_key(a, from, None);
                // Truncated and full entries are both followed by an entity.
                let mut last = entry_key(a, to, Some(Entity::MAX));
                last.push(u8::MAX);
                let mut found = BTreeSet::new();
                let bounds = (Bound::Included(&first[..]), Bound::Included(&last[..]));
                for pair in view.range(table, bounds)? {
                    step()?;
                    let (key, _) = pair?;
                    let e = key
                        .last_chunk::<ENTITY_BYTES>()
                        .map(|e| Entity::from_be_bytes(*e));
                    found.insert(e.ok_or(Error::Store(rung_kv::Error::Corrupt("path")))?);
                }
                Ok(found)
            }
            Self::All(probes) => {
                let mut probes = probes.iter();
                let Some(first) = probes.next() else {
                    return Ok(BTreeSet::new());
                };
                let mut found = first.entities(view, table, a, step)?;
                for probe in probes {
                    if found.len() <= FEW_ENTITIES {
                        break;
                    }
                    let others = probe.entities(view, table, a, step)?;
                    found.retain(|e| others.contains(e));
                }
                Ok(found)
            }
            Self::Any(probes) => {
                let mut found = BTreeSet::new();
                for probe in probes {
                    found.append(&mut probe.entities(view, table, a, step)?);
                }
                Ok(found)
            }
        }
    }
}

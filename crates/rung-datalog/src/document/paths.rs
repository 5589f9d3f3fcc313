//! The index of what is in documents: by the keys that lead to a value, and the value.
//!
//! An entry is found where it may be; whether it is is for the document to say. So positions in vectors are left out, and an entry
//! that is too long for a key is cut.

use std::collections::BTreeSet;
use std::ops::Bound;

use rung_edn::Value;
use rung_kv::{Batch, MAX_KEY_BYTES, Table, View, encode};

use crate::datom::{A, E, Entity};
use crate::{Error, Result};

/// Bytes of an entry, at most.
const ROOM: usize = MAX_KEY_BYTES - A - E;
/// Stands between the keys and the value; nothing begins with it.
const END: u8 = 0x00;

/// Keys that lead into a document, as bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Path(Vec<u8>);

impl Path {
    pub(crate) fn and(&self, key: &Value) -> Self {
        let mut path = self.0.clone();
        encode::put(key, &mut path);
        Self(path)
    }

    /// The entry of a value at the end of the path.
    pub(crate) fn entry(&self, value: &Value) -> Vec<u8> {
        let mut entry = self.0.clone();
        entry.push(END);
        encode::put(&comparable(value), &mut entry);
        entry.truncate(ROOM);
        entry
    }

    /// What lies before and after every entry at the end of the path.
    pub(crate) fn ends(&self) -> (Vec<u8>, Vec<u8>) {
        let ends = [END, END + 1].map(|end| {
            let mut entry = self.0.clone();
            entry.push(end);
            entry.truncate(ROOM);
            entry
        });
        let [before, after] = ends;
        (before, after)
    }
}

/// A value as those that it is compared with: a decimal number among the binary ones.
pub(crate) fn comparable(value: &Value) -> Value {
    match value {
        Value::BigDec(_) => value.as_f64().map_or_else(|| value.clone(), Value::Double),
        other => other.clone(),
    }
}

/// The entries of a document.
pub(crate) fn entries(document: &Value) -> BTreeSet<Vec<u8>> {
    let mut entries = BTreeSet::new();
    gather(document, &Path::default(), &mut entries);
    entries
}

fn gather(value: &Value, path: &Path, into: &mut BTreeSet<Vec<u8>>) {
    match value {
        Value::Map(members) => {
            for (key, value) in members {
                gather(value, &path.and(key), into);
            }
        }
        Value::Vector(items) => {
            for item in items {
                gather(item, path, into);
            }
        }
        scalar => {
            into.insert(path.entry(scalar));
        }
    }
}

fn key(a: u32, entry: &[u8], e: Option<Entity>) -> Vec<u8> {
    let mut key = Vec::with_capacity(A + entry.len() + E);
    key.extend_from_slice(&a.to_be_bytes());
    key.extend_from_slice(entry);
    if let Some(e) = e {
        key.extend_from_slice(&e.to_be_bytes());
    }
    key
}

/// Takes the entries of an entity's document in.
pub(crate) fn add(
    batch: &mut Batch<'_>,
    table: Table,
    (e, a): (Entity, u32),
    entries: impl IntoIterator<Item = Vec<u8>>,
) -> Result<()> {
    for entry in entries {
        batch.put(table, &key(a, &entry, Some(e)), &[])?;
    }
    Ok(())
}

/// Takes them out.
pub(crate) fn remove(
    batch: &mut Batch<'_>,
    table: Table,
    (e, a): (Entity, u32),
    entries: impl IntoIterator<Item = Vec<u8>>,
) -> Result<()> {
    for entry in entries {
        batch.delete(table, &key(a, &entry, Some(e)))?;
    }
    Ok(())
}

/// Where documents are looked for that may fulfil a condition.
#[derive(Debug, Clone)]
pub(crate) enum Probe {
    /// Among the entries from one to another.
    Between(Vec<u8>, Vec<u8>),
    /// Where all of these find them.
    All(Vec<Probe>),
    /// Where one of these does.
    Any(Vec<Probe>),
}

/// Entities that are few enough to be looked at one by one.
const FEW: usize = 64;

impl Probe {
    pub(crate) fn at(entry: Vec<u8>) -> Self {
        Self::Between(entry.clone(), entry)
    }

    /// The entities that have something of an attribute there.
    pub(crate) fn entities(
        &self,
        view: View<'_>,
        table: Table,
        a: u32,
        step: &mut impl FnMut() -> Result<()>,
    ) -> Result<BTreeSet<Entity>> {
        match self {
            Self::Between(from, to) => {
                let first = key(a, from, None);
                // What is cut is followed by entities, and so is what is whole.
                let mut last = key(a, to, Some(Entity::MAX));
                last.push(u8::MAX);
                let mut found = BTreeSet::new();
                let bounds = (Bound::Included(&first[..]), Bound::Included(&last[..]));
                for pair in view.range(table, bounds)? {
                    step()?;
                    let (key, _) = pair?;
                    let e = key.last_chunk::<E>().map(|e| Entity::from_be_bytes(*e));
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
                    if found.len() <= FEW {
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

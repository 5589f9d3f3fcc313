//! A sample of each attribute's datoms, from which the query planner estimates how values are distributed.
//!
//! A datom is in the sample if its digest is below a bound, and the bound is halved whenever the sample grows too large. So the
//! sample is a function of the datoms alone: each has the same chance, in whatever order they were added, and a retracted datom
//! leaves it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hasher as _;

use rung_kv::{Batch, Table, View};
use rustc_hash::FxHasher;

use crate::datom::ATTRIBUTE_BYTES;
use crate::{Error, Result};

/// Sampled datoms of one attribute, at most.
const MAX_SAMPLE_DATOMS: u32 = 256;

/// The size of a sample, and how many times its bound was halved.
#[derive(Debug, Clone, Copy, Default)]
struct SampleExtent {
    halved: u32,
    size: u32,
}

impl SampleExtent {
    fn load(view: View<'_>, table: Table, a: u32) -> Result<Self> {
        let Some(row) = view.get(table, &a.to_be_bytes())? else {
            return Ok(Self::default());
        };
        let number = |at: usize| Some(u32::from_be_bytes(*row.get(at..)?.first_chunk()?));
        let (Some(halved), Some(size)) = (number(0), number(4)) else {
            return Err(Error::Store(rung_kv::Error::Corrupt("sample")));
        };
        Ok(Self { halved, size })
    }

    fn includes(self, key: &[u8]) -> bool {
        digest(key).leading_zeros() >= self.halved
    }
}

/// Returns a pseudo-random number that depends only on the key.
fn digest(key: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(key);
    let mixed = hasher.finish();
    (mixed ^ (mixed >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The samples that a transaction changes.
#[derive(Debug, Default)]
pub(crate) struct DatomSamples(HashMap<u32, SampleExtent>);

impl DatomSamples {
    fn extent(&mut self, view: View<'_>, table: Table, a: u32) -> Result<&mut SampleExtent> {
        Ok(match self.0.entry(a) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(SampleExtent::load(view, table, a)?),
        })
    }

    /// Adds a new datom, by its `ave` key.
    pub(crate) fn add(
        &mut self,
        batch: &mut Batch<'_>,
        table: Table,
        a: u32,
        key: &[u8],
    ) -> Result<()> {
        let extent = self.extent(batch.view(), table, a)?;
        if !extent.includes(key) {
            return Ok(());
        }
        batch.put(table, key, &[])?;
        extent.size += 1;
        while extent.size > MAX_SAMPLE_DATOMS {
            extent.halved += 1;
            let mut left = Vec::new();
            for pair in batch.view().prefix(table, &a.to_be_bytes())? {
                let (key, _) = pair?;
                if key.len() > ATTRIBUTE_BYTES && !extent.includes(key) {
                    left.push(key.to_vec());
                }
            }
            for key in left {
                batch.delete(table, &key)?;
                extent.size -= 1;
            }
        }
        Ok(())
    }

    /// Removes a datom, by its `ave` key.
    pub(crate) fn remove(
        &mut self,
        batch: &mut Batch<'_>,
        table: Table,
        a: u32,
        key: &[u8],
    ) -> Result<()> {
        let extent = self.extent(batch.view(), table, a)?;
        if extent.includes(key) && batch.delete(table, key)? {
            extent.size -= 1;
        }
        Ok(())
    }

    /// Stores the changed sizes and bounds.
    pub(crate) fn store(&mut self, batch: &mut Batch<'_>, table: Table) -> Result<()> {
        for (a, extent) in self.0.drain() {
            let mut row = extent.halved.to_be_bytes().to_vec();
            row.extend_from_slice(&extent.size.to_be_bytes());
            batch.put(table, &a.to_be_bytes(), &row)?;
        }
        Ok(())
    }
}

/// Returns the `ave` keys of an attribute's sample, in the order of values.
pub(crate) fn sample_keys(view: View<'_>, table: Table, a: u32) -> Result<Vec<&[u8]>> {
    let mut keys = Vec::new();
    for pair in view.prefix(table, &a.to_be_bytes())? {
        let (key, _) = pair?;
        if key.len() > ATTRIBUTE_BYTES {
            keys.push(key);
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fmt::Write as _;

    use rung_edn::read;

    use super::{MAX_SAMPLE_DATOMS, SampleExtent, sample_keys};
    use crate::{Db, DbOptions};

    /// Checks that the sample is exactly the stored datoms below its bound.
    fn check(db: &Db) {
        db.read(|moment| {
            let a = moment.attribute(&"n".into()).unwrap().id;
            let extent = SampleExtent::load(moment.view, moment.tables.sample, a)?;
            let sample = sample_keys(moment.view, moment.tables.sample, a)?;
            let mut there = Vec::new();
            for pair in moment.view.prefix(moment.tables.ave, &a.to_be_bytes())? {
                let (key, _) = pair?;
                if extent.includes(key) {
                    there.push(key);
                }
            }
            assert_eq!(sample, there);
            assert_eq!(sample.len(), usize::try_from(extent.size).unwrap());
            assert!(extent.size <= MAX_SAMPLE_DATOMS);
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn a_sample_follows_from_the_datoms() {
        let folder = tempfile::tempdir().unwrap();
        let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
        let transact = |numbers: std::ops::Range<u32>, form: &dyn Fn(u32) -> String| {
            let mut text = "[".to_owned();
            numbers.for_each(|n| write!(text, "{}", form(n)).unwrap());
            text.push(']');
            db.transact(&read(&text).unwrap()).unwrap();
            check(&db);
        };
        transact(1..100, &|n| format!("[:db/add {n} :n {}]", n % 7));
        transact(50..5_000, &|n| format!("[:db/add {n} :n {}]", n % 9));
        transact(1..2_000, &|n| format!("[:db/retractEntity {n}]"));
        transact(1_000..4_000, &|n| format!("[:db/add {n} :n {n}]"));
        let size = db
            .read(|moment| {
                Ok(moment
                    .sample(moment.attribute(&"n".into()).unwrap().id)?
                    .len())
            })
            .unwrap();
        assert!(size > 60, "a few of four thousand: {size}");
    }
}

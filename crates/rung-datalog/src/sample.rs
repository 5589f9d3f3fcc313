//! A sample of each attribute's datoms, which tells a planner how values are spread without a look at all of them.
//!
//! A datom is in the sample where its digest is below a bound, and the bound is halved whenever the sample has grown too large. So
//! which datoms are in it follows from the datoms alone: each has the same chance, whatever the order in which they came, and one
//! that is retracted leaves it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hasher as _;

use rung_kv::{Batch, Table, View};
use rustc_hash::FxHasher;

use crate::datom::A;
use crate::{Error, Result};

/// Datoms of one attribute, at most.
const MOST: u32 = 256;

/// How large a sample is, and how many times its bound was halved.
#[derive(Debug, Clone, Copy, Default)]
struct Extent {
    halved: u32,
    size: u32,
}

impl Extent {
    fn read(view: View<'_>, table: Table, a: u32) -> Result<Self> {
        let Some(row) = view.get(table, &a.to_be_bytes())? else {
            return Ok(Self::default());
        };
        let number = |at: usize| Some(u32::from_be_bytes(*row.get(at..)?.first_chunk()?));
        let (Some(halved), Some(size)) = (number(0), number(4)) else {
            return Err(Error::Store(rung_kv::Error::Corrupt("sample")));
        };
        Ok(Self { halved, size })
    }

    fn takes(self, key: &[u8]) -> bool {
        digest(key).leading_zeros() >= self.halved
    }
}

/// A number that looks like chance, and is the same for the same key.
fn digest(key: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(key);
    let mixed = hasher.finish();
    (mixed ^ (mixed >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The samples that a transaction changes.
#[derive(Debug, Default)]
pub(crate) struct Samples(HashMap<u32, Extent>);

impl Samples {
    fn extent(&mut self, view: View<'_>, table: Table, a: u32) -> Result<&mut Extent> {
        Ok(match self.0.entry(a) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(Extent::read(view, table, a)?),
        })
    }

    /// Takes in a datom that was not there, by its key in the order of values.
    pub(crate) fn add(
        &mut self,
        batch: &mut Batch<'_>,
        table: Table,
        a: u32,
        key: &[u8],
    ) -> Result<()> {
        let extent = self.extent(batch.view(), table, a)?;
        if !extent.takes(key) {
            return Ok(());
        }
        batch.put(table, key, &[])?;
        extent.size += 1;
        while extent.size > MOST {
            extent.halved += 1;
            let mut left = Vec::new();
            for pair in batch.view().prefix(table, &a.to_be_bytes())? {
                let (key, _) = pair?;
                if key.len() > A && !extent.takes(key) {
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

    /// Lets go of a datom that was there.
    pub(crate) fn remove(
        &mut self,
        batch: &mut Batch<'_>,
        table: Table,
        a: u32,
        key: &[u8],
    ) -> Result<()> {
        let extent = self.extent(batch.view(), table, a)?;
        if extent.takes(key) && batch.delete(table, key)? {
            extent.size -= 1;
        }
        Ok(())
    }

    /// Keeps what was changed.
    pub(crate) fn store(&mut self, batch: &mut Batch<'_>, table: Table) -> Result<()> {
        for (a, extent) in self.0.drain() {
            let mut row = extent.halved.to_be_bytes().to_vec();
            row.extend_from_slice(&extent.size.to_be_bytes());
            batch.put(table, &a.to_be_bytes(), &row)?;
        }
        Ok(())
    }
}

/// The keys of an attribute's sample, in the order of values.
pub(crate) fn keys(view: View<'_>, table: Table, a: u32) -> Result<Vec<&[u8]>> {
    let mut keys = Vec::new();
    for pair in view.prefix(table, &a.to_be_bytes())? {
        let (key, _) = pair?;
        if key.len() > A {
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

    use super::{Extent, MOST, keys};
    use crate::{Db, Options};

    /// The sample is what its bound takes of the datoms that there are, whatever became of others.
    fn check(db: &Db) {
        db.read(|moment| {
            let a = moment.attribute(&"n".into()).unwrap().id;
            let extent = Extent::read(moment.view, moment.tables.sample, a)?;
            let sample = keys(moment.view, moment.tables.sample, a)?;
            let mut there = Vec::new();
            for pair in moment.view.prefix(moment.tables.ave, &a.to_be_bytes())? {
                let (key, _) = pair?;
                if extent.takes(key) {
                    there.push(key);
                }
            }
            assert_eq!(sample, there);
            assert_eq!(sample.len(), usize::try_from(extent.size).unwrap());
            assert!(extent.size <= MOST);
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn a_sample_follows_from_the_datoms() {
        let folder = tempfile::tempdir().unwrap();
        let db = Db::open(folder.path(), &Options::default()).unwrap();
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

//! The rows of a vector index, all in one table.
//!
//! Vectors are numbered in sequence; no number is used twice. Vectors wait in rows of their own until there are
//! enough to be packed into blocks, which are faster to read than single rows, and rarely written. A block is
//! only appended to; a separate row marks its removed vectors.

use std::collections::hash_map::Entry;
use std::ops::Bound;

use rung_kv::{Batch, Table, View};
use rustc_hash::FxHashMap;
use sha2::{Digest as _, Sha256};

use crate::{Error, Result};

/// The number of a vector.
pub(crate) type VectorId = u32;

/// Approximate bytes of a block.
const BLOCK_BYTES: usize = 64 << 10;

const OPTIONS: u8 = 0;
const STATE: u8 = 1;
const IDS: u8 = 2;
const REFERENCE: u8 = 3;
const WAITING: u8 = 4;
const BLOCK: u8 = 5;
const GONE: u8 = 6;
const LINKS: u8 = 7;

/// The key of the index's configuration.
pub(crate) const OPTIONS_KEY: &[u8] = &[OPTIONS];
const STATE_KEY: &[u8] = &[STATE];

/// Bytes of a reference's digest in a key.
const DIGEST: usize = 16;

fn key(kind: u8, number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_be_bytes();
    [kind, a, b, c, d]
}

/// Returns the key of a vector's links on a level.
pub(crate) fn links_key(level: u8, id: VectorId) -> [u8; 6] {
    let [a, b, c, d] = id.to_be_bytes();
    [LINKS, level, a, b, c, d]
}

/// Returns the prefix of the keys of a reference's vectors.
fn ids_prefix(reference: &[u8]) -> [u8; 1 + DIGEST] {
    let mut prefix = [IDS; 1 + DIGEST];
    prefix[1..].copy_from_slice(&Sha256::digest(reference)[..DIGEST]);
    prefix
}

fn ids_key(reference: &[u8], id: VectorId) -> [u8; 5 + DIGEST] {
    let mut key = [0; 5 + DIGEST];
    key[..=DIGEST].copy_from_slice(&ids_prefix(reference));
    key[1 + DIGEST..].copy_from_slice(&id.to_be_bytes());
    key
}

/// Returns the number at the end of a key.
fn id_of(key: &[u8]) -> Result<VectorId> {
    let id = key.last_chunk().ok_or_else(|| corrupt("vector key"))?;
    Ok(VectorId::from_be_bytes(*id))
}

pub(crate) fn corrupt(what: &'static str) -> Error {
    Error::Store(rung_kv::Error::Corrupt(what))
}

/// Converts a number to `usize`.
pub(crate) fn to_usize(id: VectorId) -> usize {
    usize::try_from(id).unwrap_or(usize::MAX)
}

/// The state of an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct IndexState {
    /// The number of the next vector.
    pub(crate) next: VectorId,
    /// Vectors below this number are in blocks, the others wait.
    pub(crate) packed: VectorId,
    /// Vectors below this number are in the graph.
    pub(crate) linked: VectorId,
    /// The number of vectors.
    pub(crate) live: u32,
    /// The number of removed vectors in blocks.
    pub(crate) removed: u32,
}

impl IndexState {
    pub(crate) fn read(view: View<'_>, table: Table) -> Result<Self> {
        let Some(row) = view.get(table, STATE_KEY)? else {
            return Ok(Self::default());
        };
        let (numbers, []) = row.as_chunks() else {
            return Err(corrupt("state of a vector index"));
        };
        let &[next, packed, linked, live, gone] = numbers else {
            return Err(corrupt("state of a vector index"));
        };
        let state = Self {
            next: VectorId::from_le_bytes(next),
            packed: VectorId::from_le_bytes(packed),
            linked: VectorId::from_le_bytes(linked),
            live: u32::from_le_bytes(live),
            removed: u32::from_le_bytes(gone),
        };
        if state.linked <= state.packed && state.packed <= state.next {
            Ok(state)
        } else {
            Err(corrupt("state of a vector index"))
        }
    }

    pub(crate) fn store(&self, batch: &mut Batch<'_>, table: Table) -> Result<()> {
        let numbers = [self.next, self.packed, self.linked, self.live, self.removed];
        let row: Vec<u8> = numbers.into_iter().flat_map(u32::to_le_bytes).collect();
        Ok(batch.put(table, STATE_KEY, &row)?)
    }

    /// Returns the number of vectors that wait to be packed, including removed ones.
    pub(crate) fn waiting(&self) -> u32 {
        self.next - self.packed
    }
}

/// The table of an index, and the size of its vectors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VectorRows {
    pub(crate) table: Table,
    /// Bytes of a vector.
    bytes: usize,
    /// Vectors per block.
    pub(crate) slots: u32,
}

impl VectorRows {
    pub(crate) fn new(table: Table, bytes: usize) -> Self {
        let slots = (BLOCK_BYTES / bytes.max(1)).clamp(1, 1_024);
        Self {
            table,
            bytes,
            slots: u32::try_from(slots).unwrap_or(1),
        }
    }

    /// Returns true if a reference has a vector.
    pub(crate) fn has_reference(&self, view: View<'_>, reference: &[u8]) -> Result<bool> {
        let mut rows = view.prefix(self.table, &ids_prefix(reference))?;
        Ok(rows.next().transpose()?.is_some())
    }

    /// Returns the vectors of a reference.
    pub(crate) fn ids(&self, view: View<'_>, reference: &[u8]) -> Result<Vec<VectorId>> {
        let rows = view.prefix(self.table, &ids_prefix(reference))?;
        rows.map(|row| id_of(row?.0)).collect()
    }

    /// Returns the reference of a vector.
    pub(crate) fn reference<'t>(&self, view: View<'t>, id: VectorId) -> Result<&'t [u8]> {
        let row = view.get(self.table, &key(REFERENCE, id))?;
        row.ok_or_else(|| corrupt("vector without a reference"))
    }

    /// Adds a waiting vector.
    pub(crate) fn append(
        &self,
        batch: &mut Batch<'_>,
        state: &mut IndexState,
        reference: &[u8],
        kept: &[u8],
    ) -> Result<()> {
        let id = state.next;
        state.next = id.checked_add(1).ok_or(Error::Full)?;
        state.live = state.live.saturating_add(1);
        batch.put(self.table, &key(WAITING, id), kept)?;
        batch.put(self.table, &key(REFERENCE, id), reference)?;
        batch.put(self.table, &ids_key(reference, id), &[])?;
        Ok(())
    }

    /// Deletes a vector. Links to it, and the rest of its block, stay unchanged.
    pub(crate) fn delete_vector(
        &self,
        batch: &mut Batch<'_>,
        state: &mut IndexState,
        reference: &[u8],
        id: VectorId,
    ) -> Result<()> {
        batch.delete(self.table, &ids_key(reference, id))?;
        if !batch.delete(self.table, &key(REFERENCE, id))? {
            return Err(corrupt("vector without a reference"));
        }
        state.live = state.live.saturating_sub(1);
        if id >= state.packed {
            batch.delete(self.table, &key(WAITING, id))?;
            return Ok(());
        }
        let block = id / self.slots;
        let mut gone = self.removed_bitmap(batch.view(), block)?;
        set(&mut gone, id % self.slots);
        batch.put(self.table, &key(GONE, block), &gone)?;
        state.removed = state.removed.saturating_add(1);
        Ok(())
    }

    /// Returns the bitmap of removed vectors of a block.
    fn removed_bitmap(&self, view: View<'_>, block: u32) -> Result<Vec<u8>> {
        let row = view.get(self.table, &key(GONE, block))?;
        Ok(match self.checked_gone(row)? {
            Some(gone) => gone.to_vec(),
            None => vec![0; to_usize(self.slots).div_ceil(8)],
        })
    }

    fn checked_gone<'t>(&self, row: Option<&'t [u8]>) -> Result<Option<&'t [u8]>> {
        match row {
            Some(row) if row.len() != to_usize(self.slots).div_ceil(8) => {
                Err(corrupt("block of vectors"))
            }
            row => Ok(row),
        }
    }

    /// Returns the remaining vectors in the block of a vector, if the block is full and so few remain that moving them is
    /// worthwhile.
    pub(crate) fn remaining_if_sparse(
        &self,
        view: View<'_>,
        state: &IndexState,
        id: VectorId,
    ) -> Result<Option<Vec<VectorId>>> {
        let block = id / self.slots;
        let first = block * self.slots;
        if id >= state.packed || state.packed - first < self.slots {
            return Ok(None);
        }
        let gone = self.removed_bitmap(view, block)?;
        let left = (0..self.slots).filter(|slot| !is_set(&gone, *slot));
        let left: Vec<VectorId> = left.map(|slot| first + slot).collect();
        Ok((left.len() < to_usize(self.slots).div_ceil(4)).then_some(left))
    }

    /// Deletes an empty block.
    pub(crate) fn drop_block(
        &self,
        batch: &mut Batch<'_>,
        state: &mut IndexState,
        id: VectorId,
    ) -> Result<()> {
        let block = id / self.slots;
        batch.delete(self.table, &key(BLOCK, block))?;
        batch.delete(self.table, &key(GONE, block))?;
        state.removed = state.removed.saturating_sub(self.slots);
        Ok(())
    }

    /// Packs the waiting vectors.
    pub(crate) fn pack(&self, batch: &mut Batch<'_>, state: &mut IndexState) -> Result<()> {
        while state.packed < state.next {
            let block = state.packed / self.slots;
            let first = block * self.slots;
            let end = first.saturating_add(self.slots).min(state.next);
            let mut vectors = match batch.view().get(self.table, &key(BLOCK, block))? {
                Some(row) => row.to_vec(),
                None => Vec::new(),
            };
            if vectors.len() != to_usize(state.packed - first) * self.bytes {
                return Err(corrupt("block of vectors"));
            }
            let mut gone = self.removed_bitmap(batch.view(), block)?;
            let before = state.removed;
            for id in state.packed..end {
                if let Some(vector) =
                    self.checked(batch.view().get(self.table, &key(WAITING, id))?)?
                {
                    vectors.extend_from_slice(vector);
                } else {
                    vectors.resize(vectors.len() + self.bytes, 0);
                    set(&mut gone, id - first);
                    state.removed = state.removed.saturating_add(1);
                }
            }
            for id in state.packed..end {
                batch.delete(self.table, &key(WAITING, id))?;
            }
            batch.put(self.table, &key(BLOCK, block), &vectors)?;
            if state.removed > before {
                batch.put(self.table, &key(GONE, block), &gone)?;
            }
            state.packed = end;
        }
        Ok(())
    }

    /// Decodes a block from its row.
    fn block<'t>(
        &self,
        view: View<'t>,
        state: &IndexState,
        block: u32,
        vectors: &'t [u8],
    ) -> Result<VectorBlock<'t>> {
        let first = block.checked_mul(self.slots);
        let all = first.and_then(|first| state.packed.checked_sub(first));
        let all = all.map(|all| to_usize(all.min(self.slots)) * self.bytes);
        if all != Some(vectors.len()) {
            return Err(corrupt("block of vectors"));
        }
        let gone = if state.removed > 0 {
            self.checked_gone(view.get(self.table, &key(GONE, block))?)?
        } else {
            None
        };
        Ok(VectorBlock { vectors, gone })
    }

    /// Calls `each` with the packed vectors, in order.
    pub(crate) fn for_each_packed<'t, E: From<Error>>(
        &self,
        view: View<'t>,
        state: &IndexState,
        mut each: impl FnMut(VectorId, &'t [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for row in view.prefix(self.table, &[BLOCK]).map_err(Error::from)? {
            let (key, vectors) = row.map_err(Error::from)?;
            let number = id_of(key)?;
            let block = self.block(view, state, number, vectors)?;
            for slot in 0..self.slots {
                if let Some(vector) = block.get(self, slot) {
                    each(number * self.slots + slot, vector)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the waiting vectors, in order.
    pub(crate) fn waiting<'t>(
        &self,
        view: View<'t>,
    ) -> Result<impl Iterator<Item = Result<(VectorId, &'t [u8])>> + use<'t>> {
        let rows = *self;
        let waiting = view.prefix(self.table, &[WAITING])?;
        Ok(waiting.map(move |row| {
            let (key, vector) = row?;
            let vector = rows.checked(Some(vector))?;
            Ok((id_of(key)?, vector.unwrap_or_default()))
        }))
    }

    fn checked<'t>(&self, vector: Option<&'t [u8]>) -> Result<Option<&'t [u8]>> {
        match vector {
            Some(vector) if vector.len() != self.bytes => Err(corrupt("vector")),
            vector => Ok(vector),
        }
    }

    /// Returns the entry point of the graph, and its level.
    pub(crate) fn entry_point(&self, view: View<'_>) -> Result<Option<(u8, VectorId)>> {
        let bounds = (
            Bound::Included(&[LINKS][..]),
            Bound::Excluded(&[LINKS + 1][..]),
        );
        let Some(row) = view.range_reverse(self.table, bounds)?.next() else {
            return Ok(None);
        };
        match row?.0 {
            key @ [_, level, ..] => Ok(Some((*level, id_of(key)?))),
            _ => Err(corrupt("vector key")),
        }
    }

    /// Returns the links of a vector on a level; `None` if the vector is not on it.
    pub(crate) fn links(
        &self,
        view: View<'_>,
        level: u8,
        id: VectorId,
    ) -> Result<Option<Vec<VectorId>>> {
        let Some(row) = view.get(self.table, &links_key(level, id))? else {
            return Ok(None);
        };
        let (ids, []) = row.as_chunks() else {
            return Err(corrupt("list of links"));
        };
        Ok(Some(
            ids.iter().map(|id| VectorId::from_le_bytes(*id)).collect(),
        ))
    }
}

fn is_set(bits: &[u8], place: u32) -> bool {
    let byte = bits.get(to_usize(place) / 8).copied().unwrap_or_default();
    byte >> (place % 8) & 1 == 1
}

fn set(bits: &mut [u8], place: u32) {
    if let Some(byte) = bits.get_mut(to_usize(place) / 8) {
        *byte |= 1 << (place % 8);
    }
}

/// The packed vectors of a snapshot. A block is looked up once.
pub(crate) struct PackedVectors<'t> {
    pub(crate) view: View<'t>,
    pub(crate) rows: VectorRows,
    pub(crate) state: IndexState,
    blocks: FxHashMap<u32, VectorBlock<'t>>,
}

/// A block.
#[derive(Clone, Copy, Default)]
struct VectorBlock<'t> {
    vectors: &'t [u8],
    gone: Option<&'t [u8]>,
}

impl<'t> VectorBlock<'t> {
    /// Returns a vector; `None` if it was removed.
    fn get(self, rows: &VectorRows, slot: u32) -> Option<&'t [u8]> {
        if self.gone.is_some_and(|gone| is_set(gone, slot)) {
            return None;
        }
        let from = to_usize(slot) * rows.bytes;
        self.vectors.get(from..from + rows.bytes)
    }
}

impl<'t> PackedVectors<'t> {
    pub(crate) fn new(view: View<'t>, rows: VectorRows, state: IndexState) -> Self {
        Self {
            view,
            rows,
            state,
            blocks: FxHashMap::default(),
        }
    }

    fn block(&mut self, block: u32) -> Result<VectorBlock<'t>> {
        let vacant = match self.blocks.entry(block) {
            Entry::Occupied(known) => return Ok(*known.get()),
            Entry::Vacant(vacant) => vacant,
        };
        let (view, rows) = (self.view, self.rows);
        // A deleted block has no vectors.
        let block = match view.get(rows.table, &key(BLOCK, block))? {
            Some(vectors) => rows.block(view, &self.state, block, vectors)?,
            None => VectorBlock::default(),
        };
        Ok(*vacant.insert(block))
    }

    /// Returns a vector in a block; `None` if it was removed.
    pub(crate) fn get(&mut self, id: VectorId) -> Result<Option<&'t [u8]>> {
        if id >= self.state.packed {
            return Err(corrupt("link to a vector"));
        }
        let block = self.block(id / self.rows.slots)?;
        Ok(block.get(&self.rows, id % self.rows.slots))
    }
}

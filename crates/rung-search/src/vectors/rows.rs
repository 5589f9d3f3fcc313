//! The rows of an index, all of them in one table.
//!
//! A vector has a number, and the next one the next number; none is used twice. Vectors wait in rows of their own until there are
//! enough of them to be packed: side by side in blocks, which are read faster than so many rows, and written seldom. A block is
//! changed by what is appended to it alone; which of its vectors are gone is another row.

use std::collections::hash_map::Entry;
use std::ops::Bound;

use rung_kv::{Batch, Table, View};
use rustc_hash::FxHashMap;
use sha2::{Digest as _, Sha256};

use crate::{Error, Result};

/// The number of a vector.
pub(crate) type Id = u32;

/// Bytes of a block, about.
const BLOCK_BYTES: usize = 64 << 10;

const OPTIONS: u8 = 0;
const STATE: u8 = 1;
const IDS: u8 = 2;
const REFERENCE: u8 = 3;
const WAITING: u8 = 4;
const BLOCK: u8 = 5;
const GONE: u8 = 6;
const LINKS: u8 = 7;

/// The row of what an index was made with.
pub(crate) const OPTIONS_KEY: &[u8] = &[OPTIONS];
const STATE_KEY: &[u8] = &[STATE];

/// Bytes of a reference's digest in a key.
const DIGEST: usize = 16;

fn key(kind: u8, number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_be_bytes();
    [kind, a, b, c, d]
}

/// The row of a vector's links on a level.
pub(crate) fn links_key(level: u8, id: Id) -> [u8; 6] {
    let [a, b, c, d] = id.to_be_bytes();
    [LINKS, level, a, b, c, d]
}

/// What the rows of a reference's vectors begin with.
fn ids_prefix(reference: &[u8]) -> [u8; 1 + DIGEST] {
    let mut prefix = [IDS; 1 + DIGEST];
    prefix[1..].copy_from_slice(&Sha256::digest(reference)[..DIGEST]);
    prefix
}

fn ids_key(reference: &[u8], id: Id) -> [u8; 5 + DIGEST] {
    let mut key = [0; 5 + DIGEST];
    key[..=DIGEST].copy_from_slice(&ids_prefix(reference));
    key[1 + DIGEST..].copy_from_slice(&id.to_be_bytes());
    key
}

/// The number that a key ends with.
fn id_of(key: &[u8]) -> Result<Id> {
    let id = key.last_chunk().ok_or_else(|| corrupt("vector key"))?;
    Ok(Id::from_be_bytes(*id))
}

pub(crate) fn corrupt(what: &'static str) -> Error {
    Error::Store(rung_kv::Error::Corrupt(what))
}

/// A place among so many, where the machine counts further than we do.
pub(crate) fn at(id: Id) -> usize {
    usize::try_from(id).unwrap_or(usize::MAX)
}

/// How far an index has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The number of the next vector.
    pub(crate) next: Id,
    /// Those below it are in blocks, and others wait.
    pub(crate) packed: Id,
    /// Those below it are in the graph.
    pub(crate) linked: Id,
    /// How many vectors there are.
    pub(crate) live: u32,
    /// How many places in blocks are of vectors that are gone.
    pub(crate) gone: u32,
}

impl State {
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
            next: Id::from_le_bytes(next),
            packed: Id::from_le_bytes(packed),
            linked: Id::from_le_bytes(linked),
            live: u32::from_le_bytes(live),
            gone: u32::from_le_bytes(gone),
        };
        if state.linked <= state.packed && state.packed <= state.next {
            Ok(state)
        } else {
            Err(corrupt("state of a vector index"))
        }
    }

    pub(crate) fn store(&self, batch: &mut Batch<'_>, table: Table) -> Result<()> {
        let numbers = [self.next, self.packed, self.linked, self.live, self.gone];
        let row: Vec<u8> = numbers.into_iter().flat_map(u32::to_le_bytes).collect();
        Ok(batch.put(table, STATE_KEY, &row)?)
    }

    /// How many wait to be packed, or are gone since.
    pub(crate) fn waiting(&self) -> u32 {
        self.next - self.packed
    }
}

/// Where an index's rows are, and how large its vectors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) table: Table,
    /// Bytes of a vector.
    bytes: usize,
    /// Vectors of a block.
    pub(crate) slots: u32,
}

impl Rows {
    pub(crate) fn new(table: Table, bytes: usize) -> Self {
        let slots = (BLOCK_BYTES / bytes.max(1)).clamp(1, 1_024);
        Self {
            table,
            bytes,
            slots: u32::try_from(slots).unwrap_or(1),
        }
    }

    /// Whether a reference has a vector.
    pub(crate) fn has(&self, view: View<'_>, reference: &[u8]) -> Result<bool> {
        let mut rows = view.prefix(self.table, &ids_prefix(reference))?;
        Ok(rows.next().transpose()?.is_some())
    }

    /// The vectors of a reference.
    pub(crate) fn ids(&self, view: View<'_>, reference: &[u8]) -> Result<Vec<Id>> {
        let rows = view.prefix(self.table, &ids_prefix(reference))?;
        rows.map(|row| id_of(row?.0)).collect()
    }

    /// The reference of a vector.
    pub(crate) fn reference<'t>(&self, view: View<'t>, id: Id) -> Result<&'t [u8]> {
        let row = view.get(self.table, &key(REFERENCE, id))?;
        row.ok_or_else(|| corrupt("vector without a reference"))
    }

    /// Adds a vector to those that wait.
    pub(crate) fn append(
        &self,
        batch: &mut Batch<'_>,
        state: &mut State,
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

    /// Takes a vector away. What links to it, or is left of its block, is not looked at.
    pub(crate) fn take_away(
        &self,
        batch: &mut Batch<'_>,
        state: &mut State,
        reference: &[u8],
        id: Id,
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
        let mut gone = self.gone(batch.view(), block)?;
        set(&mut gone, id % self.slots);
        batch.put(self.table, &key(GONE, block), &gone)?;
        state.gone = state.gone.saturating_add(1);
        Ok(())
    }

    /// Which vectors of a block are gone.
    fn gone(&self, view: View<'_>, block: u32) -> Result<Vec<u8>> {
        let row = view.get(self.table, &key(GONE, block))?;
        Ok(match self.checked_gone(row)? {
            Some(gone) => gone.to_vec(),
            None => vec![0; at(self.slots).div_ceil(8)],
        })
    }

    fn checked_gone<'t>(&self, row: Option<&'t [u8]>) -> Result<Option<&'t [u8]>> {
        match row {
            Some(row) if row.len() != at(self.slots).div_ceil(8) => {
                Err(corrupt("block of vectors"))
            }
            row => Ok(row),
        }
    }

    /// The vectors that are left in the block of a vector, where nothing more is appended to it and so few are left that they are worth
    /// being moved.
    pub(crate) fn last_of(&self, view: View<'_>, state: &State, id: Id) -> Result<Option<Vec<Id>>> {
        let block = id / self.slots;
        let first = block * self.slots;
        if id >= state.packed || state.packed - first < self.slots {
            return Ok(None);
        }
        let gone = self.gone(view, block)?;
        let left = (0..self.slots).filter(|slot| !is_set(&gone, *slot));
        let left: Vec<Id> = left.map(|slot| first + slot).collect();
        Ok((left.len() < at(self.slots).div_ceil(4)).then_some(left))
    }

    /// Lets go of a block of which nothing is left.
    pub(crate) fn drop_block(
        &self,
        batch: &mut Batch<'_>,
        state: &mut State,
        id: Id,
    ) -> Result<()> {
        let block = id / self.slots;
        batch.delete(self.table, &key(BLOCK, block))?;
        batch.delete(self.table, &key(GONE, block))?;
        state.gone = state.gone.saturating_sub(self.slots);
        Ok(())
    }

    /// Packs what waits.
    pub(crate) fn pack(&self, batch: &mut Batch<'_>, state: &mut State) -> Result<()> {
        while state.packed < state.next {
            let block = state.packed / self.slots;
            let first = block * self.slots;
            let end = first.saturating_add(self.slots).min(state.next);
            let mut vectors = match batch.view().get(self.table, &key(BLOCK, block))? {
                Some(row) => row.to_vec(),
                None => Vec::new(),
            };
            if vectors.len() != at(state.packed - first) * self.bytes {
                return Err(corrupt("block of vectors"));
            }
            let mut gone = self.gone(batch.view(), block)?;
            let before = state.gone;
            for id in state.packed..end {
                if let Some(vector) =
                    self.checked(batch.view().get(self.table, &key(WAITING, id))?)?
                {
                    vectors.extend_from_slice(vector);
                } else {
                    vectors.resize(vectors.len() + self.bytes, 0);
                    set(&mut gone, id - first);
                    state.gone = state.gone.saturating_add(1);
                }
            }
            for id in state.packed..end {
                batch.delete(self.table, &key(WAITING, id))?;
            }
            batch.put(self.table, &key(BLOCK, block), &vectors)?;
            if state.gone > before {
                batch.put(self.table, &key(GONE, block), &gone)?;
            }
            state.packed = end;
        }
        Ok(())
    }

    /// A block, from its row.
    fn block<'t>(
        &self,
        view: View<'t>,
        state: &State,
        block: u32,
        vectors: &'t [u8],
    ) -> Result<Block<'t>> {
        let first = block.checked_mul(self.slots);
        let all = first.and_then(|first| state.packed.checked_sub(first));
        let all = all.map(|all| at(all.min(self.slots)) * self.bytes);
        if all != Some(vectors.len()) {
            return Err(corrupt("block of vectors"));
        }
        let gone = if state.gone > 0 {
            self.checked_gone(view.get(self.table, &key(GONE, block))?)?
        } else {
            None
        };
        Ok(Block { vectors, gone })
    }

    /// The vectors that are packed, in order.
    pub(crate) fn packed<'t, E: From<Error>>(
        &self,
        view: View<'t>,
        state: &State,
        mut each: impl FnMut(Id, &'t [u8]) -> Result<(), E>,
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

    /// The vectors that wait, in order.
    pub(crate) fn waiting<'t>(
        &self,
        view: View<'t>,
    ) -> Result<impl Iterator<Item = Result<(Id, &'t [u8])>> + use<'t>> {
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

    /// A vector from which every other can be reached, and its level.
    pub(crate) fn entry(&self, view: View<'_>) -> Result<Option<(u8, Id)>> {
        let bounds = (
            Bound::Included(&[LINKS][..]),
            Bound::Excluded(&[LINKS + 1][..]),
        );
        let Some(row) = view.range_back(self.table, bounds)?.next() else {
            return Ok(None);
        };
        match row?.0 {
            key @ [_, level, ..] => Ok(Some((*level, id_of(key)?))),
            _ => Err(corrupt("vector key")),
        }
    }

    /// Whom a vector is linked to on a level; `None` where it is not there.
    pub(crate) fn links(&self, view: View<'_>, level: u8, id: Id) -> Result<Option<Vec<Id>>> {
        let Some(row) = view.get(self.table, &links_key(level, id))? else {
            return Ok(None);
        };
        let (ids, []) = row.as_chunks() else {
            return Err(corrupt("list of links"));
        };
        Ok(Some(ids.iter().map(|id| Id::from_le_bytes(*id)).collect()))
    }
}

fn is_set(bits: &[u8], place: u32) -> bool {
    let byte = bits.get(at(place) / 8).copied().unwrap_or_default();
    byte >> (place % 8) & 1 == 1
}

fn set(bits: &mut [u8], place: u32) {
    if let Some(byte) = bits.get_mut(at(place) / 8) {
        *byte |= 1 << (place % 8);
    }
}

/// Vectors at one moment. A block is looked up once.
pub(crate) struct Vectors<'t> {
    pub(crate) view: View<'t>,
    pub(crate) rows: Rows,
    pub(crate) state: State,
    blocks: FxHashMap<u32, Block<'t>>,
}

/// A block that was looked up.
#[derive(Clone, Copy, Default)]
struct Block<'t> {
    vectors: &'t [u8],
    gone: Option<&'t [u8]>,
}

impl<'t> Block<'t> {
    /// A vector; `None` where it is gone.
    fn get(self, rows: &Rows, slot: u32) -> Option<&'t [u8]> {
        if self.gone.is_some_and(|gone| is_set(gone, slot)) {
            return None;
        }
        let from = at(slot) * rows.bytes;
        self.vectors.get(from..from + rows.bytes)
    }
}

impl<'t> Vectors<'t> {
    pub(crate) fn new(view: View<'t>, rows: Rows, state: State) -> Self {
        Self {
            view,
            rows,
            state,
            blocks: FxHashMap::default(),
        }
    }

    fn block(&mut self, block: u32) -> Result<Block<'t>> {
        let vacant = match self.blocks.entry(block) {
            Entry::Occupied(known) => return Ok(*known.get()),
            Entry::Vacant(vacant) => vacant,
        };
        let (view, rows) = (self.view, self.rows);
        // A block that was let go has nothing.
        let block = match view.get(rows.table, &key(BLOCK, block))? {
            Some(vectors) => rows.block(view, &self.state, block, vectors)?,
            None => Block::default(),
        };
        Ok(*vacant.insert(block))
    }

    /// A vector in a block; `None` where it is gone.
    pub(crate) fn get(&mut self, id: Id) -> Result<Option<&'t [u8]>> {
        if id >= self.state.packed {
            return Err(corrupt("link to a vector"));
        }
        let block = self.block(id / self.rows.slots)?;
        Ok(block.get(&self.rows, id % self.rows.slots))
    }
}

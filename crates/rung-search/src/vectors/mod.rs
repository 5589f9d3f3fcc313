//! Nearest-neighbour indexes of vectors.
//!
//! An index is a table of the store. It is changed within a transaction, together with the data that it indexes, and read from a
//! snapshot. A vector is added under a reference, which is opaque bytes of the caller; several vectors may have the same one.
//!
//! A small index is searched exhaustively, and so is an index whose metric does not suit a graph. Otherwise a
//! graph leads to near vectors, and misses some. Recently added vectors are not in the graph yet: they are added in
//! batches, and searched exhaustively until then.

mod distance;
mod encoding;
mod graph;
mod options;
mod rows;
mod search;

use std::sync::Arc;

use rung_edn::{Map, Value};
use rung_kv::{Batch, Kv, View};

use self::encoding::VectorEncoding;
use self::graph::Graph;
use self::options::{IndexConfig, number, wrong};
use self::rows::{IndexState, OPTIONS_KEY, PackedVectors, VectorId, VectorRows, corrupt, to_usize};
use crate::Result;

pub use options::{
    Display, Filter, MAX_DIMENSIONS, Metric, Quantization, SearchOptions, VectorOptions,
};
pub use search::VectorHit;

/// Bytes of a domain's name, at most.
const MAX_DOMAIN_BYTES: usize = 200;

/// Vectors up to which an index is searched exhaustively.
const MAX_EXHAUSTIVE: u32 = 2_000;

/// Waiting vectors after which they are packed.
const PACK_THRESHOLD: u32 = 256;

/// Waiting vectors after which they are packed, if many are added at once.
const BULK_PACK_THRESHOLD: u32 = 4_096;

/// An index of vectors.
#[derive(Debug, Clone)]
pub struct VectorIndex {
    domain: Arc<str>,
    config: IndexConfig,
    encoding: VectorEncoding,
    rows: VectorRows,
}

impl VectorIndex {
    /// Opens the index of a domain. If there is none, creates it if `create` is true, else returns `None`.
    ///
    /// The options must not conflict with those of an existing index.
    pub fn open(
        kv: &Kv,
        domain: &str,
        options: Option<&VectorOptions>,
        create: bool,
    ) -> Result<Option<Self>> {
        if domain.is_empty() || domain.len() > MAX_DOMAIN_BYTES || domain.contains('\0') {
            return wrong(format!(
                "the name of a domain has 1 to {MAX_DOMAIN_BYTES} bytes, none of them zero"
            ));
        }
        let name = format!("vectors/{domain}");
        let known = match kv.table(&name)? {
            Some(table) => kv.read(|view| read_config(view.get(table, OPTIONS_KEY)?))?,
            None => None,
        };
        let made = match (known, options) {
            (Some(made), None) => made,
            (Some(made), Some(options)) => {
                made.check_options(domain, options)?;
                made
            }
            (None, _) if !create => return Ok(None),
            (None, None) => return wrong("a new vector index needs :dimensions"),
            (None, Some(options)) => Self::create(kv, &name, domain, options)?,
        };
        let form = VectorEncoding::new(&made);
        let table = kv.table(&name)?;
        Ok(table.map(|table| Self {
            domain: domain.into(),
            config: made,
            encoding: form,
            rows: VectorRows::new(table, form.bytes()),
        }))
    }

    fn create(kv: &Kv, name: &str, domain: &str, options: &VectorOptions) -> Result<IndexConfig> {
        if !kv.is_writable() {
            return Err(rung_kv::Error::ReadOnly.into());
        }
        let new = IndexConfig::new(options)?;
        let table = kv.create(name)?;
        kv.write(|batch| {
            // Another writer may have created the index first.
            if let Some(known) = read_config(batch.view().get(table, OPTIONS_KEY)?)? {
                known.check_options(domain, options)?;
                return Ok(known);
            }
            let text = Value::Map(new.members()).to_string();
            batch.put(table, OPTIONS_KEY, text.as_bytes())?;
            Ok(new)
        })
    }

    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the length of the vectors.
    pub fn dimensions(&self) -> usize {
        self.config.dimensions
    }

    /// Adds a vector under a reference, in addition to the existing ones.
    pub fn add(&self, batch: &mut Batch<'_>, reference: &[u8], vector: &[f32]) -> Result<()> {
        self.add_all(batch, [(reference, vector)], PACK_THRESHOLD)
    }

    /// Adds vectors, in less time than one by one.
    pub fn add_many<R: AsRef<[u8]>, V: AsRef<[f32]>>(
        &self,
        batch: &mut Batch<'_>,
        vectors: impl IntoIterator<Item = (R, V)>,
    ) -> Result<()> {
        self.add_all(batch, vectors, BULK_PACK_THRESHOLD)
    }

    fn add_all<R: AsRef<[u8]>, V: AsRef<[f32]>>(
        &self,
        batch: &mut Batch<'_>,
        vectors: impl IntoIterator<Item = (R, V)>,
        folded: u32,
    ) -> Result<()> {
        let mut state = IndexState::read(batch.view(), self.rows.table)?;
        for (reference, vector) in vectors {
            let kept = self.encoding.encode(vector.as_ref())?;
            self.rows
                .append(batch, &mut state, reference.as_ref(), &kept)?;
            if state.waiting() >= folded {
                self.pack_and_link(batch, &mut state)?;
            }
        }
        self.pack_and_store_state(batch, &mut state)
    }

    /// Removes all vectors of a reference. Returns their number.
    pub fn remove(&self, batch: &mut Batch<'_>, reference: &[u8]) -> Result<usize> {
        let ids = self.rows.ids(batch.view(), reference)?;
        if ids.is_empty() {
            return Ok(0);
        }
        let mut state = IndexState::read(batch.view(), self.rows.table)?;
        let mut blocks = Vec::new();
        for id in &ids {
            self.remove_vector(batch, &mut state, reference, *id)?;
            if *id < state.packed {
                blocks.push(id / self.rows.slots * self.rows.slots);
            }
        }
        blocks.dedup();
        for first in blocks {
            self.move_remaining(batch, &mut state, first)?;
        }
        self.pack_and_store_state(batch, &mut state)?;
        Ok(ids.len())
    }

    /// Removes all vectors.
    pub fn clear(&self, batch: &mut Batch<'_>) -> Result<()> {
        batch.clear(self.rows.table)?;
        let text = Value::Map(self.config.members()).to_string();
        Ok(batch.put(self.rows.table, OPTIONS_KEY, text.as_bytes())?)
    }

    /// Removes all vectors and the options of the index: the next open creates it anew.
    pub fn reset(&self, batch: &mut Batch<'_>) -> Result<()> {
        Ok(batch.clear(self.rows.table)?)
    }

    /// Returns true if a reference has a vector.
    pub fn contains(&self, view: View<'_>, reference: &[u8]) -> Result<bool> {
        self.rows.has_reference(view, reference)
    }

    /// Returns the number of vectors.
    pub fn len(&self, view: View<'_>) -> Result<usize> {
        Ok(to_usize(IndexState::read(view, self.rows.table)?.live))
    }

    /// Returns true if there are no vectors.
    pub fn is_empty(&self, view: View<'_>) -> Result<bool> {
        Ok(self.len(view)? == 0)
    }

    /// Returns facts about the index, by keyword.
    pub fn info(&self, view: View<'_>) -> Result<Map> {
        let state = IndexState::read(view, self.rows.table)?;
        let links = if state.linked > 0 {
            self.config.connectivity * 2 * size_of::<VectorId>()
        } else {
            0
        };
        let places = to_usize(state.live) + to_usize(state.removed);
        let mut info = self.config.members();
        let waiting = [(Value::keyword("waiting"), number(to_usize(state.waiting())))];
        info.extend(
            [
                ("size", number(to_usize(state.live))),
                // Approximate bytes of the vectors and their links.
                (
                    "memory",
                    number(to_usize(state.live) * (self.encoding.bytes() + links)),
                ),
                (
                    "capacity",
                    number(places.next_multiple_of(to_usize(self.rows.slots))),
                ),
                ("hardware", Value::from(std::env::consts::ARCH)),
                ("domain", Value::from(self.domain())),
                ("checkpoint", Value::Map(waiting.into_iter().collect())),
            ]
            .map(|(name, value)| (Value::keyword(name), value)),
        );
        Ok(info)
    }

    /// Packs the waiting vectors if there are enough, then stores the state.
    fn pack_and_store_state(&self, batch: &mut Batch<'_>, state: &mut IndexState) -> Result<()> {
        if state.waiting() >= PACK_THRESHOLD {
            self.pack_and_link(batch, state)?;
        }
        state.store(batch, self.rows.table)
    }

    /// Packs the waiting vectors, and links them if there is a graph or should be one.
    fn pack_and_link(&self, batch: &mut Batch<'_>, state: &mut IndexState) -> Result<()> {
        self.rows.pack(batch, state)?;
        let due = state.linked > 0 || state.live > MAX_EXHAUSTIVE;
        if !(due && self.config.metric.has_graph()) {
            return Ok(());
        }
        let mut graph = self.graph(batch.view(), *state)?;
        for id in state.linked..state.packed {
            graph.link(id)?;
        }
        self.write_links(batch, graph.into_changed())?;
        state.linked = state.packed;
        Ok(())
    }

    fn graph<'t>(&self, view: View<'t>, state: IndexState) -> Result<Graph<'t>> {
        let vectors = PackedVectors::new(view, self.rows, state);
        Graph::new(self.encoding, self.config, vectors)
    }

    fn write_links(
        &self,
        batch: &mut Batch<'_>,
        changed: Vec<([u8; 6], Option<Vec<u8>>)>,
    ) -> Result<()> {
        for (key, row) in changed {
            match row {
                Some(row) => batch.put(self.rows.table, &key, &row)?,
                None => batch.delete(self.rows.table, &key).map(|_| ())?,
            }
        }
        Ok(())
    }

    /// Removes a vector from the graph and from the rows.
    fn remove_vector(
        &self,
        batch: &mut Batch<'_>,
        state: &mut IndexState,
        reference: &[u8],
        id: VectorId,
    ) -> Result<()> {
        if id < state.linked {
            let mut graph = self.graph(batch.view(), *state)?;
            graph.unlink(id)?;
            self.write_links(batch, graph.into_changed())?;
        }
        self.rows.delete_vector(batch, state, reference, id)
    }

    /// Moves the last few vectors of a block, so that the block can be deleted: removed vectors must not take space forever.
    fn move_remaining(
        &self,
        batch: &mut Batch<'_>,
        state: &mut IndexState,
        first: VectorId,
    ) -> Result<()> {
        let Some(last) = self.rows.remaining_if_sparse(batch.view(), state, first)? else {
            return Ok(());
        };
        for id in last {
            let view = batch.view();
            let reference = self.rows.reference(view, id)?.to_vec();
            let vector = PackedVectors::new(view, self.rows, *state).get(id)?;
            let vector = vector.ok_or_else(|| corrupt("block of vectors"))?.to_vec();
            self.remove_vector(batch, state, &reference, id)?;
            self.rows.append(batch, state, &reference, &vector)?;
        }
        self.rows.drop_block(batch, state, first)
    }
}

/// Decodes the configuration of an index from its row.
fn read_config(row: Option<&[u8]>) -> Result<Option<IndexConfig>> {
    let Some(row) = row else {
        return Ok(None);
    };
    let read = || {
        let value = rung_edn::read(std::str::from_utf8(row).ok()?).ok()?;
        IndexConfig::new(&VectorOptions::read(&value).ok()?).ok()
    };
    match read() {
        Some(made) => Ok(Some(made)),
        None => Err(corrupt("description of a vector index")),
    }
}

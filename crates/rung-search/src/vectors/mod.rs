//! Vectors, and which of them are near to another.
//!
//! An index is a table of the store. It is changed within a transaction, together with what it is about, and read from a moment. A
//! vector is added under a reference, which is bytes that mean something to whoever adds it; several vectors may be under one.
//!
//! Few vectors are measured one after the other, and so are all of them where the metric does not lend itself to a graph. Otherwise a
//! graph leads to what is near, which misses some of it. What was added last is not in the graph yet: it is put there when it has
//! become enough, and measured until then.

mod form;
mod graph;
mod measure;
mod options;
mod rows;
mod search;

use std::sync::Arc;

use rung_edn::{Map, Value};
use rung_kv::{Batch, Kv, View};

use self::form::Form;
use self::graph::Graph;
use self::options::{Made, number, wrong};
use self::rows::{Id, OPTIONS_KEY, Rows, State, Vectors, at, corrupt};
use crate::Result;

pub use options::{
    Display, Filter, MAX_DIMENSIONS, Metric, Quantization, SearchOptions, VectorOptions,
};
pub use search::Found;

/// Bytes of a domain's name, at most.
const MAX_DOMAIN_BYTES: usize = 200;

/// Up to so many vectors are measured, every one of them.
const MEASURED: u32 = 2_000;

/// So many that wait are packed.
const FOLDED: u32 = 256;

/// So many that wait are packed where many come at once.
const FOLDED_OF_MANY: u32 = 4_096;

/// An index of vectors.
#[derive(Debug, Clone)]
pub struct VectorIndex {
    domain: Arc<str>,
    made: Made,
    form: Form,
    rows: Rows,
}

impl VectorIndex {
    /// The index of that name. Where there is none, it is made if `create` says so, and otherwise there is none.
    ///
    /// What the options say must be as the index was made.
    pub fn open(
        kv: &Kv,
        domain: &str,
        options: Option<&VectorOptions>,
        create: bool,
    ) -> Result<Option<Self>> {
        if domain.is_empty() || domain.len() > MAX_DOMAIN_BYTES || domain.contains('\0') {
            return wrong(format!(
                "a domain has a name of 1 to {MAX_DOMAIN_BYTES} bytes, none of them zero"
            ));
        }
        let name = format!("vectors/{domain}");
        let known = match kv.table(&name)? {
            Some(table) => kv.read(|view| made(view.get(table, OPTIONS_KEY)?))?,
            None => None,
        };
        let made = match (known, options) {
            (Some(made), None) => made,
            (Some(made), Some(options)) => {
                made.agree(domain, options)?;
                made
            }
            (None, _) if !create => return Ok(None),
            (None, None) => return wrong("a new vector index needs :dimensions"),
            (None, Some(options)) => Self::make(kv, &name, domain, options)?,
        };
        let form = Form::new(&made);
        let table = kv.table(&name)?;
        Ok(table.map(|table| Self {
            domain: domain.into(),
            made,
            form,
            rows: Rows::new(table, form.bytes()),
        }))
    }

    fn make(kv: &Kv, name: &str, domain: &str, options: &VectorOptions) -> Result<Made> {
        if !kv.is_writable() {
            return Err(rung_kv::Error::ReadOnly.into());
        }
        let new = Made::new(options)?;
        let table = kv.create(name)?;
        kv.write(|batch| {
            // Somebody else may have been faster.
            if let Some(known) = made(batch.view().get(table, OPTIONS_KEY)?)? {
                known.agree(domain, options)?;
                return Ok(known);
            }
            let text = Value::Map(new.members()).to_string();
            batch.put(table, OPTIONS_KEY, text.as_bytes())?;
            Ok(new)
        })
    }

    /// Its name.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Numbers of a vector.
    pub fn dimensions(&self) -> usize {
        self.made.dimensions
    }

    /// Adds a vector under a reference, beside those that are there.
    pub fn add(&self, batch: &mut Batch<'_>, reference: &[u8], vector: &[f32]) -> Result<()> {
        self.add_all(batch, [(reference, vector)], FOLDED)
    }

    /// Adds vectors, in less time than one after the other.
    pub fn add_many<R: AsRef<[u8]>, V: AsRef<[f32]>>(
        &self,
        batch: &mut Batch<'_>,
        vectors: impl IntoIterator<Item = (R, V)>,
    ) -> Result<()> {
        self.add_all(batch, vectors, FOLDED_OF_MANY)
    }

    fn add_all<R: AsRef<[u8]>, V: AsRef<[f32]>>(
        &self,
        batch: &mut Batch<'_>,
        vectors: impl IntoIterator<Item = (R, V)>,
        folded: u32,
    ) -> Result<()> {
        let mut state = State::read(batch.view(), self.rows.table)?;
        for (reference, vector) in vectors {
            let kept = self.form.keep(vector.as_ref())?;
            self.rows
                .append(batch, &mut state, reference.as_ref(), &kept)?;
            if state.waiting() >= folded {
                self.fold(batch, &mut state)?;
            }
        }
        self.settle(batch, &mut state)
    }

    /// Removes all vectors of a reference. How many there were.
    pub fn remove(&self, batch: &mut Batch<'_>, reference: &[u8]) -> Result<usize> {
        let ids = self.rows.ids(batch.view(), reference)?;
        if ids.is_empty() {
            return Ok(0);
        }
        let mut state = State::read(batch.view(), self.rows.table)?;
        let mut blocks = Vec::new();
        for id in &ids {
            self.take_out(batch, &mut state, reference, *id)?;
            if *id < state.packed {
                blocks.push(id / self.rows.slots * self.rows.slots);
            }
        }
        blocks.dedup();
        for first in blocks {
            self.move_last(batch, &mut state, first)?;
        }
        self.settle(batch, &mut state)?;
        Ok(ids.len())
    }

    /// Removes all vectors.
    pub fn clear(&self, batch: &mut Batch<'_>) -> Result<()> {
        batch.clear(self.rows.table)?;
        let text = Value::Map(self.made.members()).to_string();
        Ok(batch.put(self.rows.table, OPTIONS_KEY, text.as_bytes())?)
    }

    /// Removes all vectors, and what the index was made with: whoever opens it next makes it anew.
    pub fn forget(&self, batch: &mut Batch<'_>) -> Result<()> {
        Ok(batch.clear(self.rows.table)?)
    }

    /// Whether a reference has a vector.
    pub fn contains(&self, view: View<'_>, reference: &[u8]) -> Result<bool> {
        self.rows.has(view, reference)
    }

    /// How many vectors there are.
    pub fn len(&self, view: View<'_>) -> Result<usize> {
        Ok(at(State::read(view, self.rows.table)?.live))
    }

    /// Whether there are none.
    pub fn is_empty(&self, view: View<'_>) -> Result<bool> {
        Ok(self.len(view)? == 0)
    }

    /// What is to be known of the index, by keyword.
    pub fn info(&self, view: View<'_>) -> Result<Map> {
        let state = State::read(view, self.rows.table)?;
        let links = if state.linked > 0 {
            self.made.connectivity * 2 * size_of::<Id>()
        } else {
            0
        };
        let places = at(state.live) + at(state.gone);
        let mut info = self.made.members();
        let waiting = [(Value::keyword("waiting"), number(at(state.waiting())))];
        info.extend(
            [
                ("size", number(at(state.live))),
                // About: what the vectors and their links take, wherever they are.
                (
                    "memory",
                    number(at(state.live) * (self.form.bytes() + links)),
                ),
                (
                    "capacity",
                    number(places.next_multiple_of(at(self.rows.slots))),
                ),
                ("hardware", Value::from(std::env::consts::ARCH)),
                ("domain", Value::from(self.domain())),
                ("checkpoint", Value::Map(waiting.into_iter().collect())),
            ]
            .map(|(name, value)| (Value::keyword(name), value)),
        );
        Ok(info)
    }

    /// Keeps how far it has come, after what waits was packed where it is enough.
    fn settle(&self, batch: &mut Batch<'_>, state: &mut State) -> Result<()> {
        if state.waiting() >= FOLDED {
            self.fold(batch, state)?;
        }
        state.store(batch, self.rows.table)
    }

    /// Packs what waits, and links it where there is a graph or should be one.
    fn fold(&self, batch: &mut Batch<'_>, state: &mut State) -> Result<()> {
        self.rows.pack(batch, state)?;
        let due = state.linked > 0 || state.live > MEASURED;
        if !(due && self.made.metric.has_graph()) {
            return Ok(());
        }
        let mut graph = self.graph(batch.view(), *state)?;
        for id in state.linked..state.packed {
            graph.link(id)?;
        }
        self.keep_links(batch, graph.into_changed())?;
        state.linked = state.packed;
        Ok(())
    }

    fn graph<'t>(&self, view: View<'t>, state: State) -> Result<Graph<'t>> {
        let vectors = Vectors::new(view, self.rows, state);
        Graph::new(self.form, self.made, vectors)
    }

    fn keep_links(
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

    /// Takes a vector out of the graph and away.
    fn take_out(
        &self,
        batch: &mut Batch<'_>,
        state: &mut State,
        reference: &[u8],
        id: Id,
    ) -> Result<()> {
        if id < state.linked {
            let mut graph = self.graph(batch.view(), *state)?;
            graph.unlink(id)?;
            self.keep_links(batch, graph.into_changed())?;
        }
        self.rows.take_away(batch, state, reference, id)
    }

    /// Adds those anew that are the last few of a block, so that it can be let go: what is removed does not take room for ever.
    fn move_last(&self, batch: &mut Batch<'_>, state: &mut State, first: Id) -> Result<()> {
        let Some(last) = self.rows.last_of(batch.view(), state, first)? else {
            return Ok(());
        };
        for id in last {
            let view = batch.view();
            let reference = self.rows.reference(view, id)?.to_vec();
            let vector = Vectors::new(view, self.rows, *state).get(id)?;
            let vector = vector.ok_or_else(|| corrupt("block of vectors"))?.to_vec();
            self.take_out(batch, state, &reference, id)?;
            self.rows.append(batch, state, &reference, &vector)?;
        }
        self.rows.drop_block(batch, state, first)
    }
}

/// What an index was made with, from its row.
fn made(row: Option<&[u8]>) -> Result<Option<Made>> {
    let Some(row) = row else {
        return Ok(None);
    };
    let read = || {
        let value = rung_edn::read(std::str::from_utf8(row).ok()?).ok()?;
        Made::new(&VectorOptions::read(&value).ok()?).ok()
    };
    match read() {
        Some(made) => Ok(Some(made)),
        None => Err(corrupt("description of a vector index")),
    }
}

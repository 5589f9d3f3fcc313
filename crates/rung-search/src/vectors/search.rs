//! Nearest-neighbour search.

use std::collections::BinaryHeap;

use rung_kv::View;

use super::distance::DistanceMeasure;
use super::graph::{Neighbor, SearchVisitor};
use super::options::{Filter, SearchOptions};
use super::rows::{IndexState, VectorId, VectorRows, to_usize};
use super::{MAX_EXHAUSTIVE, VectorIndex};
use crate::{Error, Result};

/// Vectors measured between two calls of `step`.
const STEP_INTERVAL: u32 = 256;

/// If more than one in this many vectors is wanted, the search is exhaustive.
const EXHAUSTIVE_SHARE: usize = 8;

/// A found vector.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VectorHit<'t> {
    /// The reference that the vector was added with.
    pub reference: &'t [u8],
    /// The distance from the query.
    pub distance: f32,
}

impl VectorIndex {
    /// Returns the nearest vectors, the nearest first. A reference is found once for each of its vectors.
    ///
    /// `step` is called regularly; the search ends if it fails.
    pub fn search<'t, E: From<Error>>(
        &self,
        view: View<'t>,
        vector: &[f32],
        options: &SearchOptions<'_>,
        step: &dyn Fn() -> Result<(), E>,
    ) -> Result<Vec<VectorHit<'t>>, E> {
        let measure = DistanceMeasure::from_query(self.encoding, vector)?;
        let state = IndexState::read(view, self.rows.table)?;
        let mut search = VectorSearch {
            view,
            rows: self.rows,
            state,
            measure,
            step,
            filter: options.filter,
            asked: 0,
            top: options.top.min(to_usize(state.live)),
            best: BinaryHeap::new(),
        };
        if search.top == 0 {
            return Ok(Vec::new());
        }
        let by_graph = state.linked > 0
            && state.live > MAX_EXHAUSTIVE
            && search.top <= to_usize(state.live) / EXHAUSTIVE_SHARE
            && self.search_graph(&mut search)?;
        if !by_graph {
            search.measure_all()?;
        }
        search.measure_waiting()?;
        let best = search.best.into_sorted_vec().into_iter();
        let found = best.map(|near| {
            Ok(VectorHit {
                reference: self.rows.reference(view, near.id)?,
                distance: near.distance,
            })
        });
        found.collect::<Result<_>>().map_err(E::from)
    }

    /// Searches the graph. Returns true if it found enough.
    fn search_graph<E: From<Error>>(
        &self,
        search: &mut VectorSearch<'_, '_, E>,
    ) -> Result<bool, E> {
        let mut graph = self.graph(search.view, search.state)?;
        let width = self.config.expansion_search.max(search.top);
        let mut sieve = FilteredVisitor {
            view: search.view,
            rows: search.rows,
            filter: search.filter,
            step: search.step,
            asked: 0,
            most: MAX_EXHAUSTIVE.max(search.state.live / 16),
        };
        let found = graph.nearest(&search.measure, width, &mut sieve)?;
        if sieve.should_stop() || found.len() < search.top {
            return Ok(false);
        }
        search.best.extend(found.into_iter().take(search.top));
        Ok(true)
    }
}

/// A running search.
struct VectorSearch<'t, 'f, E> {
    view: View<'t>,
    rows: VectorRows,
    state: IndexState,
    measure: DistanceMeasure,
    step: &'f dyn Fn() -> Result<(), E>,
    filter: Option<Filter<'f>>,
    /// The number of vectors measured.
    asked: u32,
    top: usize,
    /// The nearest so far.
    best: BinaryHeap<Neighbor>,
}

impl<E: From<Error>> VectorSearch<'_, '_, E> {
    /// Measures all vectors in blocks.
    fn measure_all(&mut self) -> Result<(), E> {
        let (view, rows, state) = (self.view, self.rows, self.state);
        rows.for_each_packed(view, &state, |id, vector| self.measure(id, vector))
    }

    /// Measures all waiting vectors.
    fn measure_waiting(&mut self) -> Result<(), E> {
        for row in self.rows.waiting(self.view)? {
            let (id, vector) = row?;
            self.measure(id, vector)?;
        }
        Ok(())
    }

    fn measure(&mut self, id: VectorId, vector: &[u8]) -> Result<(), E> {
        if self.asked.is_multiple_of(STEP_INTERVAL) {
            (self.step)()?;
        }
        self.asked += 1;
        let near = Neighbor {
            distance: self.measure.distance(vector),
            id,
        };
        if self.best.len() == self.top && self.best.peek().is_some_and(|worst| near > *worst) {
            return Ok(());
        }
        if let Some(filter) = self.filter
            && !filter(self.rows.reference(self.view, id)?)
        {
            return Ok(());
        }
        self.best.push(near);
        if self.best.len() > self.top {
            self.best.pop();
        }
        Ok(())
    }
}

/// Applies the filter to the vectors that the graph leads to.
struct FilteredVisitor<'t, 'f, E> {
    view: View<'t>,
    rows: VectorRows,
    filter: Option<Filter<'f>>,
    step: &'f dyn Fn() -> Result<(), E>,
    /// The number of filtered vectors.
    asked: u32,
    /// The number of filtered vectors after which an exhaustive search is better.
    most: u32,
}

impl<E: From<Error>> SearchVisitor<E> for FilteredVisitor<'_, '_, E> {
    fn accepts(&mut self, id: VectorId) -> Result<bool, E> {
        let Some(filter) = self.filter else {
            return Ok(true);
        };
        self.asked += 1;
        Ok(filter(self.rows.reference(self.view, id)?))
    }

    fn step(&mut self) -> Result<(), E> {
        (self.step)()
    }

    fn should_stop(&self) -> bool {
        self.asked > self.most
    }
}

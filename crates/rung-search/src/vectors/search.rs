//! How what is near is found.

use std::collections::BinaryHeap;

use rung_kv::View;

use super::graph::{Look, Near};
use super::measure::Measure;
use super::options::{Filter, SearchOptions};
use super::rows::{Id, Rows, State, at};
use super::{MEASURED, VectorIndex};
use crate::{Error, Result};

/// Vectors that are measured before it is asked again whether to go on.
const STEP: u32 = 256;

/// Where more than one of so many is wanted, all are measured.
const FEW: usize = 8;

/// A vector that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found<'t> {
    /// What it was added under.
    pub reference: &'t [u8],
    /// How far it is.
    pub distance: f32,
}

impl VectorIndex {
    /// The nearest to a vector, the nearest first. A reference is found once for each of its vectors.
    ///
    /// `step` is called now and then, and what it refuses ends the search.
    pub fn search<'t, E: From<Error>>(
        &self,
        view: View<'t>,
        vector: &[f32],
        options: &SearchOptions<'_>,
        step: &dyn Fn() -> Result<(), E>,
    ) -> Result<Vec<Found<'t>>, E> {
        let measure = Measure::given(self.form, vector)?;
        let state = State::read(view, self.rows.table)?;
        let mut search = Search {
            view,
            rows: self.rows,
            state,
            measure,
            step,
            filter: options.filter,
            asked: 0,
            top: options.top.min(at(state.live)),
            best: BinaryHeap::new(),
        };
        if search.top == 0 {
            return Ok(Vec::new());
        }
        let by_graph = state.linked > 0
            && state.live > MEASURED
            && search.top <= at(state.live) / FEW
            && self.follow(&mut search)?;
        if !by_graph {
            search.measure_all()?;
        }
        search.measure_waiting()?;
        let best = search.best.into_sorted_vec().into_iter();
        let found = best.map(|near| {
            Ok(Found {
                reference: self.rows.reference(view, near.id)?,
                distance: near.distance,
            })
        });
        found.collect::<Result<_>>().map_err(E::from)
    }

    /// Searches by the graph. Whether that was enough.
    fn follow<E: From<Error>>(&self, search: &mut Search<'_, '_, E>) -> Result<bool, E> {
        let mut graph = self.graph(search.view, search.state)?;
        let width = self.made.expansion_search.max(search.top);
        let mut sieve = Sieve {
            view: search.view,
            rows: search.rows,
            filter: search.filter,
            step: search.step,
            asked: 0,
            most: MEASURED.max(search.state.live / 16),
        };
        let found = graph.nearest(&search.measure, width, &mut sieve)?;
        if sieve.is_enough() || found.len() < search.top {
            return Ok(false);
        }
        search.best.extend(found.into_iter().take(search.top));
        Ok(true)
    }
}

/// A search under way.
struct Search<'t, 'f, E> {
    view: View<'t>,
    rows: Rows,
    state: State,
    measure: Measure,
    step: &'f dyn Fn() -> Result<(), E>,
    filter: Option<Filter<'f>>,
    /// Vectors that were measured.
    asked: u32,
    top: usize,
    /// The nearest so far.
    best: BinaryHeap<Near>,
}

impl<E: From<Error>> Search<'_, '_, E> {
    /// Measures everything that is in blocks.
    fn measure_all(&mut self) -> Result<(), E> {
        let (view, rows, state) = (self.view, self.rows, self.state);
        rows.packed(view, &state, |id, vector| self.measure(id, vector))
    }

    /// Measures everything that waits.
    fn measure_waiting(&mut self) -> Result<(), E> {
        for row in self.rows.waiting(self.view)? {
            let (id, vector) = row?;
            self.measure(id, vector)?;
        }
        Ok(())
    }

    fn measure(&mut self, id: Id, vector: &[u8]) -> Result<(), E> {
        if self.asked.is_multiple_of(STEP) {
            (self.step)()?;
        }
        self.asked += 1;
        let near = Near {
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

/// What may be found of what the graph leads to.
struct Sieve<'t, 'f, E> {
    view: View<'t>,
    rows: Rows,
    filter: Option<Filter<'f>>,
    step: &'f dyn Fn() -> Result<(), E>,
    /// How many were asked about.
    asked: u32,
    /// After so many it is better to measure all.
    most: u32,
}

impl<E: From<Error>> Look<E> for Sieve<'_, '_, E> {
    fn takes(&mut self, id: Id) -> Result<bool, E> {
        let Some(filter) = self.filter else {
            return Ok(true);
        };
        self.asked += 1;
        Ok(filter(self.rows.reference(self.view, id)?))
    }

    fn step(&mut self) -> Result<(), E> {
        (self.step)()
    }

    fn is_enough(&self) -> bool {
        self.asked > self.most
    }
}

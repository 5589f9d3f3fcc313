//! Queries that were asked before: how they are understood, and the order of their clauses that came true.

use std::sync::Arc;

use indexmap::IndexMap;
use parking_lot::Mutex;
use rung_edn::Value;

use super::ast::{Clause, Query};
use super::parse;
use super::plan::Plan;
use crate::Result;

/// Queries that are remembered. The oldest one is forgotten for the next.
const MOST: usize = 256;
/// Bytes of a query that is remembered, at most.
const MAX_BYTES: usize = 32 << 10;

/// The queries that were asked, by their text: a list and a vector are equal values, and do not mean the same here.
#[derive(Debug, Default)]
pub(crate) struct Asked(Mutex<IndexMap<String, Arc<Prepared>>>);

/// A query as it is understood.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) query: Query,
    /// Places of clauses, and how many rows there were after each.
    order: Mutex<Vec<(usize, usize)>>,
}

impl Prepared {
    pub(crate) fn new(query: &Value) -> Result<Self> {
        Ok(Self {
            query: parse::query(query)?,
            order: Mutex::default(),
        })
    }

    /// The plan that came true the last time, if any did. What a query is given may add clauses to it, for which there is none.
    pub(crate) fn plan<'c>(&self, clauses: &'c [Clause]) -> Plan<'c> {
        Plan::known(clauses, &self.order.lock())
    }

    /// Remembers a plan that came true, and forgets one that did not.
    pub(crate) fn learn(&self, clauses: &[Clause], plan: &Plan<'_>) {
        *self.order.lock() = plan.came_true(clauses);
    }
}

impl Asked {
    pub(crate) fn prepare(&self, query: &Value) -> Result<Arc<Prepared>> {
        let text = query.to_string();
        if let Some(known) = self.0.lock().get(&text) {
            return Ok(known.clone());
        }
        let prepared = Arc::new(Prepared::new(query)?);
        if text.len() <= MAX_BYTES {
            let mut asked = self.0.lock();
            if asked.len() == MOST {
                asked.shift_remove_index(0);
            }
            asked.insert(text, prepared.clone());
        }
        Ok(prepared)
    }
}

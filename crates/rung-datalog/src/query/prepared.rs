//! The cache of parsed queries, with the last order of their clauses whose estimates were right.

use std::sync::Arc;

use indexmap::IndexMap;
use parking_lot::Mutex;
use rung_edn::Value;

use super::ast::{DatalogClause, ParsedQuery};
use super::parse;
use super::plan::QueryPlan;
use crate::Result;

/// Cached queries, at most. The oldest one is evicted first.
const MAX_CACHED_QUERIES: usize = 256;
/// Bytes of the text of a cached query, at most.
const MAX_CACHED_QUERY_BYTES: usize = 32 << 10;

/// The cached queries by their text. The key is the text because a list and a vector are equal values, but different clauses.
#[derive(Debug, Default)]
pub(crate) struct QueryCache(Mutex<IndexMap<String, Arc<PreparedQuery>>>);

/// A parsed query.
#[derive(Debug)]
pub(crate) struct PreparedQuery {
    pub(crate) query: ParsedQuery,
    /// Positions of clauses, and the number of rows after each.
    order: Mutex<Vec<(usize, usize)>>,
}

impl PreparedQuery {
    pub(crate) fn new(query: &Value) -> Result<Self> {
        Ok(Self {
            query: parse::query(query)?,
            order: Mutex::default(),
        })
    }

    /// Returns the plan of the last run if its estimates were right, and an empty plan otherwise. Clauses that inputs add are not
    /// part of it.
    pub(crate) fn plan<'c>(&self, clauses: &'c [DatalogClause]) -> QueryPlan<'c> {
        QueryPlan::from_order(clauses, &self.order.lock())
    }

    /// Stores the order of a plan if its estimates were right, and deletes the stored order otherwise.
    pub(crate) fn store_order(&self, clauses: &[DatalogClause], plan: &QueryPlan<'_>) {
        *self.order.lock() = plan.confirmed_order(clauses);
    }
}

impl QueryCache {
    pub(crate) fn prepare(&self, query: &Value) -> Result<Arc<PreparedQuery>> {
        let text = query.to_string();
        if let Some(known) = self.0.lock().get(&text) {
            return Ok(known.clone());
        }
        let prepared = Arc::new(PreparedQuery::new(query)?);
        if text.len() <= MAX_CACHED_QUERY_BYTES {
            let mut asked = self.0.lock();
            if asked.len() == MAX_CACHED_QUERIES {
                asked.shift_remove_index(0);
            }
            asked.insert(text, prepared.clone());
        }
        Ok(prepared)
    }
}

//! Streaming evaluation: the first clause is scanned in chunks, and each chunk passes all other clauses before the next is read.
//!
//! So a caller that needs few rows causes little work, and a caller that reads all rows does not hold them in memory at once.

use std::time::Instant;

use super::ast::{DatalogClause, Var};
use super::pattern::PatternScan;
use super::plan::QueryPlan;
use super::relation::{DistinctRows, Relation};
use super::solve::{FactSource, QueryContext, ready_clause};
use crate::Result;

/// Rows of the first chunk.
const FIRST_CHUNK_ROWS: usize = 64;
/// Growth factor of the chunks.
const CHUNK_GROWTH: usize = 4;
/// Rows of a chunk, at most, and of its result, as estimated from the chunk before.
const MAX_CHUNK_ROWS: usize = 1 << 16;

/// A callback that receives rows and returns true if it wants more.
pub(crate) type RowVisitor<'s, 't> = dyn FnMut(&Relation<'t>) -> Result<bool> + 's;

impl<'t> QueryContext<'_, 't> {
    /// Calls `taker` with the rows for which the clauses hold, each once, until it returns false.
    pub(crate) fn solve_streaming<'c>(
        &self,
        plan: &mut QueryPlan<'c>,
        clauses: &'c [DatalogClause],
        start: Relation<'t>,
        needed: &[Var],
        taker: &mut RowVisitor<'_, 't>,
    ) -> Result<()> {
        let mut todo: Vec<&DatalogClause> = clauses.iter().collect();
        let streamed = start.len() == 1 && ready_clause(&todo, &start, needed).is_none();
        let first = if streamed && !todo.is_empty() {
            Some(self.next_clause(plan, &todo, &start)?.0)
        } else {
            None
        };
        let scan = match first.map(|at| todo[at]) {
            Some(DatalogClause::Pattern(pattern)) => match self.source(&pattern.source)? {
                FactSource::Db(moment) => PatternScan::new(moment, pattern, &start, &todo)?,
                FactSource::Rows(_) => None,
            },
            _ => None,
        };
        let (Some(at), Some(scan)) = (first, scan) else {
            let mut plan = QueryPlan::default();
            let found = self.solve_by_plan(&mut plan, todo, start, needed)?;
            taker(&found)?;
            return Ok(());
        };
        let clause = todo.remove(at);
        let mut pieces = scan.chunks(&start)?;
        let mut known = DistinctRows::new(needed.to_vec());
        let mut size = FIRST_CHUNK_ROWS;
        loop {
            let began = Instant::now();
            let piece = pieces.next_chunk(size, self.watch)?;
            let is_last = piece.len() < size;
            self.record_step(clause, "scan", None, piece.len(), began);
            // If the rows keep all columns of distinct chunks, different chunks cannot give the same row.
            let apart = piece.is_distinct && piece.vars.iter().all(|var| needed.contains(var));
            let piece = self.drop_unneeded(piece, &todo, needed)?;
            let found =
                self.solve_by_plan(&mut QueryPlan::default(), todo.clone(), piece, needed)?;
            let room = MAX_CHUNK_ROWS / (found.len() / size).max(1);
            size = (size * CHUNK_GROWTH).min(room).max(1);
            let more = if apart {
                taker(&found)?
            } else {
                let before = known.len();
                for row in found.rows() {
                    known.insert(row.iter(), self.watch)?;
                }
                taker(&known.relation.tail(before, self.watch)?)?
            };
            if is_last || !more {
                return Ok(());
            }
        }
    }
}

//! Answers found piece by piece: what is found first is taken through everything else before more is looked for.
//!
//! So whoever wants few rows causes little work, and whoever takes all of them, one after the other, need not have them all at once.

use std::time::Instant;

use super::ast::{Clause, Var};
use super::pattern::Scan;
use super::plan::Plan;
use super::relation::{Distinct, Relation};
use super::solve::{Context, Source, ready};
use crate::Result;

/// Rows of the first piece.
const FIRST: usize = 64;
/// Times that a piece is larger than the one before it.
const GROWTH: usize = 4;
/// Rows that a piece may have, and those that may become of it as far as can be told from the one before.
const LARGEST: usize = 1 << 16;

/// Somebody who takes rows, and says whether they want more.
pub(crate) type Taker<'s, 't> = dyn FnMut(&Relation<'t>) -> Result<bool> + 's;

impl<'t> Context<'_, 't> {
    /// Gives the rows for which the clauses hold to `taker`, each once, until there are no more or they are enough.
    pub(crate) fn in_pieces<'c>(
        &self,
        plan: &mut Plan<'c>,
        clauses: &'c [Clause],
        start: Relation<'t>,
        needed: &[Var],
        taker: &mut Taker<'_, 't>,
    ) -> Result<()> {
        let mut todo: Vec<&Clause> = clauses.iter().collect();
        let streamed = start.len() == 1 && ready(&todo, &start, needed).is_none();
        let first = if streamed && !todo.is_empty() {
            Some(self.next(plan, &todo, &start)?.0)
        } else {
            None
        };
        let scan = match first.map(|at| todo[at]) {
            Some(Clause::Pattern(pattern)) => match self.source(&pattern.source)? {
                Source::Db(moment) => Scan::new(moment, pattern, &start, &todo)?,
                Source::Rows(_) => None,
            },
            _ => None,
        };
        let (Some(at), Some(scan)) = (first, scan) else {
            let mut plan = Plan::default();
            let found = self.by_plan(&mut plan, todo, start, needed)?;
            taker(&found)?;
            return Ok(());
        };
        let clause = todo.remove(at);
        let mut pieces = scan.pieces(&start)?;
        let mut known = Distinct::new(needed.to_vec());
        let mut size = FIRST;
        loop {
            let began = Instant::now();
            let piece = pieces.take(size, self.watch)?;
            let is_last = piece.len() < size;
            self.note(clause, "scan", None, piece.len(), began);
            // Pieces whose rows stay apart from each other have none in common in the end.
            let apart = piece.distinct && piece.vars.iter().all(|var| needed.contains(var));
            let piece = self.needed_later(piece, &todo, needed)?;
            let found = self.by_plan(&mut Plan::default(), todo.clone(), piece, needed)?;
            let room = LARGEST / (found.len() / size).max(1);
            size = (size * GROWTH).min(room).max(1);
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

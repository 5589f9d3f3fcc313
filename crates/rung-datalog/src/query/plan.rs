//! Query planning: finds the order of clauses with the lowest estimated cost.
//!
//! The matches of a clause are counted if they are few and estimated from samples if they are many; the matches for the rows of
//! another clause are estimated from a sample of these rows. Orders are compared by dynamic programming over sets of clauses. A
//! plan is followed as long as the number of rows is close to its estimate.

use std::collections::VecDeque;

use super::ast::{DatalogClause, PatternTerm, Var};
use super::pattern::PatternScan;
use super::relation::Relation;
use super::solve::{FactSource, QueryContext, equality};
use crate::Result;

/// Clauses whose orders are all compared, at most. For more, the cheapest next clause is chosen each time.
const MAX_COMPARED_CLAUSES: usize = 10;
/// Sampled rows of a clause.
const SAMPLE_ROWS: usize = 16;
/// Cost of a lookup in steps of a scan.
const SEEK_COST: f64 = 16.0;
/// Cost of looking up a scanned fact among the rows.
const PROBE_COST: f64 = 2.0;
/// Factor by which the number of rows may differ from the estimate before the plan is dropped.
const MAX_ESTIMATE_ERROR: usize = 8;
/// Rows up to which a plan is never dropped.
const MIN_CHECKED_ROWS: usize = 64;
/// Estimated answers of a rule for a row if some of its arguments are bound, and if none is.
const RULE_ROWS: (f64, f64) = (100.0, 1e6);

/// An order of clauses with estimated rows.
#[derive(Debug, Default)]
pub(crate) struct QueryPlan<'c> {
    steps: VecDeque<PlannedClause<'c>>,
    /// The estimated number of rows after the last clause.
    expected: Option<usize>,
    /// The evaluated clauses, and the number of rows after each.
    done: Vec<(&'c DatalogClause, usize)>,
    /// The number of evaluated clauses whose rows are counted.
    counted: usize,
    /// Whether an estimate was wrong.
    is_wrong: bool,
}

#[derive(Debug)]
struct PlannedClause<'c> {
    clause: &'c DatalogClause,
    /// The estimated number of rows after the clause.
    rows: Option<usize>,
}

impl<'c> QueryPlan<'c> {
    /// Creates a plan from an earlier order: positions of clauses, and the number of rows after each.
    pub(crate) fn from_order(clauses: &'c [DatalogClause], order: &[(usize, usize)]) -> Self {
        let planned = |(at, rows): &(usize, usize)| {
            let clause = clauses.get(*at)?;
            Some(PlannedClause {
                clause,
                rows: Some(*rows),
            })
        };
        Self {
            steps: order.iter().filter_map(planned).collect(),
            ..Self::default()
        }
    }

    fn from_steps(steps: impl IntoIterator<Item = PlannedClause<'c>>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Returns true if the plan has a next clause and the number of rows is close to its estimate.
    pub(crate) fn is_on_track(&mut self, rows: usize) -> bool {
        let known = std::mem::replace(&mut self.counted, self.done.len());
        for (_, after) in &mut self.done[known..] {
            *after = rows;
        }
        if let Some(expected) = self.expected {
            let (less, more) = (rows.min(expected), rows.max(expected));
            if more > MIN_CHECKED_ROWS && more > less.saturating_mul(MAX_ESTIMATE_ERROR) {
                self.is_wrong = true;
                return false;
            }
        }
        !self.steps.is_empty()
    }

    /// Continues with another order.
    pub(crate) fn replace_order(&mut self, other: Self) {
        self.steps = other.steps;
        self.expected = None;
    }

    /// Returns the evaluated order as positions of clauses. Empty if an estimate was wrong.
    pub(crate) fn confirmed_order(&self, clauses: &[DatalogClause]) -> Vec<(usize, usize)> {
        if self.is_wrong {
            return Vec::new();
        }
        let place =
            |clause: &DatalogClause| clauses.iter().position(|own| std::ptr::eq(own, clause));
        let placed = |(clause, rows): &(&DatalogClause, usize)| Some((place(clause)?, *rows));
        self.done.iter().filter_map(placed).collect()
    }

    /// Returns the next clause, and the estimated number of rows after it.
    pub(crate) fn next(&mut self) -> Option<(&'c DatalogClause, Option<usize>)> {
        let next = self.steps.pop_front()?;
        self.expected = next.rows;
        self.done.push((next.clause, 0));
        Some((next.clause, next.rows))
    }

    /// Skips clauses that were evaluated together with the last one. Returns the estimated number of rows after all of them.
    pub(crate) fn skip_done(&mut self, done: &[&DatalogClause]) -> Option<usize> {
        let is_done =
            |planned: &PlannedClause<'_>| done.iter().any(|own| std::ptr::eq(*own, planned.clause));
        let mut together = self.expected;
        let mut is_next = true;
        for planned in &self.steps {
            if is_done(planned) {
                together = planned.rows.filter(|_| is_next);
                self.done.push((planned.clause, 0));
            } else {
                is_next = false;
            }
        }
        self.steps.retain(|planned| !is_done(planned));
        self.expected = together;
        together
    }
}

/// A set of variables, as bits of their positions among the variables of the clauses.
type VarSet = u64;

/// A clause that can add rows.
struct Node<'c, 't> {
    clause: &'c DatalogClause,
    vars: VarSet,
    /// Variables that must be bound before.
    wants: VarSet,
    /// The estimated number of matches of the clause alone.
    size: f64,
    /// Steps of a scan of all facts that may match.
    scan: f64,
    /// A sample of the matches.
    sample: Option<Relation<'t>>,
}

/// The cheapest known order of a set of clauses.
#[derive(Clone, Copy)]
struct PartialPlan {
    steps: f64,
    rows: f64,
    /// The last clause of the order.
    last: usize,
}

/// The input and the intermediate results of planning.
struct Planner<'p, 'q, 'c, 't> {
    context: &'p QueryContext<'q, 't>,
    conditions: &'p [&'c DatalogClause],
    nodes: Vec<Node<'c, 't>>,
    /// `given`: variables with the same value in all rows. `start`: all variables that the rows bind.
    given: VarSet,
    start: VarSet,
    /// A sample of the rows, if there is not exactly one.
    rows: Option<Relation<'t>>,
    /// The variables that functions need, and those that they bind.
    functions: Vec<(VarSet, VarSet)>,
    /// Cached estimates of the matches of a clause for a row of another clause, or for one of the current rows.
    links: Vec<Option<f64>>,
}

impl<'t> QueryContext<'_, 't> {
    /// Plans the order of clauses, beginning with the current rows.
    pub(crate) fn plan<'c>(
        &self,
        todo: &[&'c DatalogClause],
        relation: &Relation<'t>,
    ) -> Result<QueryPlan<'c>> {
        let brings: Vec<&'c DatalogClause> = todo
            .iter()
            .copied()
            .filter(|clause| match clause {
                DatalogClause::Pattern(_) | DatalogClause::Rule(_) | DatalogClause::Or(_) => true,
                DatalogClause::Predicate(_)
                | DatalogClause::Function(..)
                | DatalogClause::Not(_) => false,
            })
            .collect();
        // A single clause needs no comparison.
        if let [clause] = brings[..] {
            let possible = self.is_possible(clause, todo, relation);
            return Ok(QueryPlan::from_steps(
                possible.then_some(PlannedClause { clause, rows: None }),
            ));
        }
        let mut names: Vec<Var> = relation.vars.clone();
        for clause in todo {
            clause.vars(&mut names);
        }
        if names.len().max(brings.len()) > VarSet::BITS as usize {
            // Other clauses may need the variables that input tuples bind.
            let (given, others): (Vec<&'c DatalogClause>, Vec<_>) = brings
                .into_iter()
                .partition(|clause| self.matches_input_tuples(clause));
            let steps = given.into_iter().chain(others);
            return Ok(QueryPlan::from_steps(
                steps.map(|clause| PlannedClause { clause, rows: None }),
            ));
        }
        let mut planner = Planner::new(self, todo, &brings, &names, relation)?;
        let order = planner.order(relation.len())?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of rows, reckoned"
        )]
        let steps = order.into_iter().map(|(at, rows)| PlannedClause {
            clause: planner.nodes[at].clause,
            rows: Some(rows.ceil() as usize),
        });
        Ok(QueryPlan::from_steps(steps))
    }

    /// Returns true if all variables that a clause requires are bound.
    pub(crate) fn is_possible(
        &self,
        clause: &DatalogClause,
        todo: &[&DatalogClause],
        relation: &Relation<'t>,
    ) -> bool {
        let wanted = self.required_vars(clause, todo);
        wanted.iter().all(|var| relation.column(var).is_some())
    }

    /// Returns the variables that must be bound before a clause, given the other remaining clauses.
    fn required_vars(&self, clause: &DatalogClause, todo: &[&DatalogClause]) -> Vec<Var> {
        let mut wanted = self.rules.required_vars(clause);
        self.add_named_entities(clause, todo, &mut wanted);
        wanted
    }

    /// Returns the average number of matches of a clause for one of the sample rows.
    fn fan_out(
        &self,
        clause: &DatalogClause,
        rows: &Relation<'t>,
        conditions: &[&DatalogClause],
    ) -> Result<f64> {
        Ok(match clause {
            DatalogClause::Pattern(pattern) => match self.source(&pattern.source)? {
                FactSource::Db(moment) => {
                    match PatternScan::new(moment, pattern, rows, conditions)? {
                        Some(scan) => scan.fan_out(rows)?,
                        None => 0.0,
                    }
                }
                FactSource::Rows(given) => {
                    let mut vars = Vec::new();
                    clause.vars(&mut vars);
                    let shares = vars.iter().any(|var| rows.column(var).is_some());
                    if shares { 1.0 } else { float(given.rows.len()) }
                }
            },
            DatalogClause::Or(or) => {
                let mut all = 0.0;
                for branch in &or.branches {
                    let mut least = f64::INFINITY;
                    for clause in branch {
                        if matches!(clause, DatalogClause::Pattern(_) | DatalogClause::Or(_)) {
                            least = least.min(self.fan_out(clause, rows, &[])?);
                        }
                    }
                    all += if least.is_finite() { least } else { 1.0 };
                }
                all
            }
            DatalogClause::Rule(call) => {
                let is_known = |term: &&PatternTerm| match term {
                    PatternTerm::Constant(_) => true,
                    PatternTerm::Var(var) => rows.column(var).is_some(),
                    PatternTerm::Blank => false,
                };
                let known = call.arguments.iter().filter(is_known).count();
                match known {
                    0 => RULE_ROWS.1,
                    known if known == call.arguments.len() => 1.0,
                    _ => RULE_ROWS.0,
                }
            }
            DatalogClause::Predicate(_) | DatalogClause::Function(..) | DatalogClause::Not(_) => {
                1.0
            }
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn float(count: usize) -> f64 {
    count as f64
}

impl<'p, 'q, 'c, 't> Planner<'p, 'q, 'c, 't> {
    fn new(
        context: &'p QueryContext<'q, 't>,
        todo: &'p [&'c DatalogClause],
        brings: &[&'c DatalogClause],
        names: &[Var],
        relation: &Relation<'t>,
    ) -> Result<Self> {
        let mask = |vars: &[Var]| -> VarSet {
            let places = vars
                .iter()
                .filter_map(|var| names.iter().position(|own| own == var));
            places.fold(0, |all, at| all | 1 << at)
        };
        let start = mask(&relation.vars);
        // A single row is part of every estimate.
        let (base, rows) = if relation.len() == 1 {
            (relation.clone(), None)
        } else {
            let some = relation.sample(SAMPLE_ROWS, context.watch)?;
            (Relation::unit(), Some(some))
        };
        let mut nodes = Vec::with_capacity(brings.len());
        for &clause in brings {
            let mut vars = Vec::new();
            clause.vars(&mut vars);
            let wants = mask(&context.required_vars(clause, todo));
            let size = context.fan_out(clause, &base, todo)?;
            let (scan, sample) = match clause {
                DatalogClause::Pattern(pattern) => match context.source(&pattern.source)? {
                    FactSource::Db(moment) => match PatternScan::new(moment, pattern, &base, todo)?
                    {
                        Some(scan) => {
                            let sample = scan.sample(&base, SAMPLE_ROWS, context.watch)?;
                            (scan.steps()?, Some(sample))
                        }
                        None => (0.0, None),
                    },
                    FactSource::Rows(given) => {
                        let some = &given.rows[..given.rows.len().min(SAMPLE_ROWS)];
                        let sample = context.match_tuples(pattern, some)?;
                        (float(given.rows.len()), Some(sample))
                    }
                },
                _ => (f64::INFINITY, None),
            };
            nodes.push(Node {
                clause,
                vars: mask(&vars),
                wants,
                size,
                scan,
                sample,
            });
        }
        let functions = todo.iter().flat_map(|clause| match clause {
            DatalogClause::Function(call, binding) => {
                let (mut needs, mut gives) = (Vec::new(), Vec::new());
                call.vars(&mut needs);
                binding.vars(&mut gives);
                vec![(mask(&needs), mask(&gives))]
            }
            DatalogClause::Predicate(call) => match equality(call) {
                Some([one, other]) => {
                    let (one, other) = (
                        mask(std::slice::from_ref(one)),
                        mask(std::slice::from_ref(other)),
                    );
                    vec![(one, other), (other, one)]
                }
                None => Vec::new(),
            },
            _ => Vec::new(),
        });
        // Whatever the start variables suffice for was done before the plan is made. What is left of it cannot be done yet: an
        // equality whose known side is a name.
        let functions = functions.filter(|(needs, _)| needs & !start != 0);
        let count = nodes.len();
        Ok(Self {
            context,
            conditions: todo,
            given: if rows.is_none() { start } else { 0 },
            start,
            rows,
            functions: functions.collect(),
            links: vec![None; (count + 1) * count],
            nodes,
        })
    }

    /// Returns the variables that are bound after a set of clauses.
    fn bound_vars(&self, done: usize) -> VarSet {
        let mut bound = self.start;
        for (at, node) in self.nodes.iter().enumerate() {
            if done & 1 << at != 0 {
                bound |= node.vars;
            }
        }
        loop {
            let before = bound;
            for (needs, gives) in &self.functions {
                if needs & bound == *needs {
                    bound |= gives;
                }
            }
            if bound == before {
                return bound;
            }
        }
    }

    /// Returns the estimated matches of a clause for a row of the clause `from`, or for one of the current rows if it is `None`.
    fn link_fan_out(&mut self, from: Option<usize>, to: usize) -> Result<Option<f64>> {
        let count = self.nodes.len();
        let place = from.unwrap_or(count) * count + to;
        if self.links[place].is_none() {
            let sample = match from {
                Some(from) => self.nodes[from].sample.as_ref(),
                None => self.rows.as_ref(),
            };
            let Some(sample) = sample else {
                return Ok(None);
            };
            let link = if sample.is_empty() {
                0.0
            } else {
                let clause = self.nodes[to].clause;
                self.context.fan_out(clause, sample, self.conditions)?
            };
            self.links[place] = Some(link);
        }
        Ok(self.links[place])
    }

    /// Returns the estimated matches of a clause for a row after a set of clauses, and whether they can be looked up.
    fn estimate_matches(&mut self, done: usize, bound: VarSet, at: usize) -> Result<(f64, bool)> {
        let size = self.nodes[at].size;
        let mut shared = self.nodes[at].vars & bound & !self.given;
        if shared == 0 {
            return Ok((size, self.nodes[at].vars & self.given != 0));
        }
        let others = (0..self.nodes.len()).filter(|other| done & 1 << other != 0);
        let mut sources: Vec<(VarSet, f64)> = Vec::new();
        for from in others.map(Some).chain([None]) {
            let vars = match from {
                Some(other) => self.nodes[other].vars,
                None => self.start & !self.given,
            };
            if vars & shared != 0
                && let Some(link) = self.link_fan_out(from, at)?
            {
                sources.push((vars, link));
            }
        }
        let mut found: Option<f64> = None;
        while shared != 0 {
            let least = sources
                .iter()
                .filter(|(vars, _)| vars & shared != 0)
                .min_by(|one, other| one.1.total_cmp(&other.1));
            let Some((vars, link)) = least else {
                // There is no sample of some bound variable.
                return Ok((found.unwrap_or_else(|| size.sqrt()).min(size), true));
            };
            found = Some(match found {
                None => *link,
                Some(before) => before * (link / size.max(1.0)).min(1.0),
            });
            shared &= !vars;
        }
        Ok((found.unwrap_or(size), true))
    }

    /// Returns the estimate for a set of clauses followed by another clause.
    fn extend_order(
        &mut self,
        best: PartialPlan,
        done: usize,
        bound: VarSet,
        at: usize,
    ) -> Result<PartialPlan> {
        let (found, is_bound) = self.estimate_matches(done, bound, at)?;
        let rows = best.rows * found;
        let node = &self.nodes[at];
        let own = if is_bound {
            (best.rows * SEEK_COST).min(node.scan * PROBE_COST + best.rows)
        } else {
            node.size
        };
        Ok(PartialPlan {
            steps: best.steps + own + rows,
            rows,
            last: at,
        })
    }

    /// Returns the clauses that can be next: those that share a bound variable, or all if none does.
    fn next_candidates(&self, done: usize, bound: VarSet) -> Vec<usize> {
        let possible = |at: &usize| {
            let node = &self.nodes[*at];
            done & 1 << at == 0 && node.wants & bound == node.wants
        };
        let all: Vec<usize> = (0..self.nodes.len()).filter(possible).collect();
        let known = bound & !self.given;
        let near = all.iter().copied();
        let near: Vec<usize> = near
            .filter(|at| self.nodes[*at].vars & known != 0)
            .collect();
        if near.is_empty() { all } else { near }
    }

    /// Returns the clauses in the cheapest order, with the estimated number of rows after each.
    fn order(&mut self, rows: usize) -> Result<Vec<(usize, f64)>> {
        let start = PartialPlan {
            steps: 0.0,
            rows: float(rows),
            last: 0,
        };
        if self.nodes.len() > MAX_COMPARED_CLAUSES {
            return self.greedy_order(start);
        }
        let mut all: Vec<Option<PartialPlan>> = vec![None; 1 << self.nodes.len()];
        all[0] = Some(start);
        let mut furthest = 0;
        for done in 0..all.len() {
            let Some(best) = all[done] else { continue };
            self.context.watch.step()?;
            if done.count_ones() > usize::count_ones(furthest) {
                furthest = done;
            }
            let bound = self.bound_vars(done);
            for at in self.next_candidates(done, bound) {
                let next = self.extend_order(best, done, bound, at)?;
                let known = &mut all[done | 1 << at];
                if known.is_none_or(|known| next.steps < known.steps) {
                    *known = Some(next);
                }
            }
        }
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut done = furthest;
        while let (true, Some(best)) = (done != 0, all[done]) {
            order.push((best.last, best.rows));
            done &= !(1 << best.last);
        }
        order.reverse();
        Ok(order)
    }

    /// Returns the greedy order, in which the cheapest clause is next each time.
    fn greedy_order(&mut self, start: PartialPlan) -> Result<Vec<(usize, f64)>> {
        let (mut best, mut done) = (start, 0);
        let mut order = Vec::with_capacity(self.nodes.len());
        loop {
            let bound = self.bound_vars(done);
            let mut next: Option<PartialPlan> = None;
            for at in self.next_candidates(done, bound) {
                let reached = self.extend_order(best, done, bound, at)?;
                if next.is_none_or(|known| reached.steps < known.steps) {
                    next = Some(reached);
                }
            }
            let Some(next) = next else {
                return Ok(order);
            };
            order.push((next.last, next.rows));
            done |= 1 << next.last;
            best = next;
        }
    }
}

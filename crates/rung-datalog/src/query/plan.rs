//! In which order clauses are made to hold: the one that takes the fewest steps, as far as can be told beforehand.
//!
//! What a clause finds is counted where it is little and reckoned from samples where it is much; what it finds for the rows of
//! another is tried on a few of those. Orders are compared by dynamic programming over sets of clauses. A plan is followed as long
//! as there are about as many rows as it expects.

use std::collections::VecDeque;

use super::ast::{Clause, Term, Var};
use super::pattern::Scan;
use super::relation::Relation;
use super::solve::{Context, Source, equality};
use crate::Result;

/// Clauses whose orders are all compared. Of more, the next best is taken each time.
const COMPARED: usize = 10;
/// Rows of a clause on which others are tried.
const SAMPLE: usize = 16;
/// Steps of a scan that a look-up costs.
const SEEK: f64 = 16.0;
/// Steps that it costs to look up what a scan finds among the rows.
const PROBE: f64 = 2.0;
/// A plan is left when there are so many times more rows, or fewer, than it expects.
const WRONG: usize = 8;
/// Fewer rows than these are not worth a second thought.
const FEW: usize = 64;
/// What a rule is taken to find for a row when some of what it is called with is known, and when nothing is.
const RULE_ROWS: (f64, f64) = (100.0, 1e6);

/// Clauses in their order.
#[derive(Debug, Default)]
pub(crate) struct Plan<'c> {
    steps: VecDeque<Planned<'c>>,
    /// Rows that there should be by now.
    expected: Option<usize>,
    /// The clauses that were taken from it, and how many rows there were after each.
    done: Vec<(&'c Clause, usize)>,
    /// Of how many of them the rows are known.
    counted: usize,
    /// Whether it was found wrong on the way.
    is_wrong: bool,
}

#[derive(Debug)]
struct Planned<'c> {
    clause: &'c Clause,
    /// Rows that there should be after it.
    rows: Option<usize>,
}

impl<'c> Plan<'c> {
    /// A plan that was followed before: places of clauses, and how many rows there were after each.
    pub(crate) fn known(clauses: &'c [Clause], order: &[(usize, usize)]) -> Self {
        let planned = |(at, rows): &(usize, usize)| {
            let clause = clauses.get(*at)?;
            Some(Planned {
                clause,
                rows: Some(*rows),
            })
        };
        Self {
            steps: order.iter().filter_map(planned).collect(),
            ..Self::default()
        }
    }

    fn of(steps: impl IntoIterator<Item = Planned<'c>>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Whether it says what comes next, now that there are so many rows: about as many as it expects.
    pub(crate) fn holds(&mut self, rows: usize) -> bool {
        let known = std::mem::replace(&mut self.counted, self.done.len());
        for (_, after) in &mut self.done[known..] {
            *after = rows;
        }
        if let Some(expected) = self.expected {
            let (less, more) = (rows.min(expected), rows.max(expected));
            if more > FEW && more > less.saturating_mul(WRONG) {
                self.is_wrong = true;
                return false;
            }
        }
        !self.steps.is_empty()
    }

    /// Goes on in another order.
    pub(crate) fn turn_to(&mut self, other: Self) {
        self.steps = other.steps;
        self.expected = None;
    }

    /// The order that was followed, as places among clauses; nothing where it was found wrong on the way.
    pub(crate) fn came_true(&self, clauses: &[Clause]) -> Vec<(usize, usize)> {
        if self.is_wrong {
            return Vec::new();
        }
        let place = |clause: &Clause| clauses.iter().position(|own| std::ptr::eq(own, clause));
        let placed = |(clause, rows): &(&Clause, usize)| Some((place(clause)?, *rows));
        self.done.iter().filter_map(placed).collect()
    }

    /// The next clause, and how many rows there should be after it.
    pub(crate) fn next(&mut self) -> Option<(&'c Clause, Option<usize>)> {
        let next = self.steps.pop_front()?;
        self.expected = next.rows;
        self.done.push((next.clause, 0));
        Some((next.clause, next.rows))
    }

    /// Leaves out clauses that were done together with the last one. How many rows there should be after all of them.
    pub(crate) fn leave_out(&mut self, done: &[&Clause]) -> Option<usize> {
        let is_done =
            |planned: &Planned<'_>| done.iter().any(|own| std::ptr::eq(*own, planned.clause));
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

/// Variables of a query, by their places among those that its clauses have.
type Vars = u64;

/// A clause that brings rows.
struct Node<'c, 't> {
    clause: &'c Clause,
    vars: Vars,
    /// Variables that must have values before.
    wants: Vars,
    /// What it finds by itself.
    size: f64,
    /// Steps that a scan of all that it may match takes.
    scan: f64,
    /// Some of what it finds.
    sample: Option<Relation<'t>>,
}

/// What is known of a set of clauses that were done.
#[derive(Clone, Copy)]
struct Best {
    steps: f64,
    rows: f64,
    /// The clause that was done last.
    last: usize,
}

/// What is compared.
struct Planner<'p, 'q, 'c, 't> {
    context: &'p Context<'q, 't>,
    conditions: &'p [&'c Clause],
    nodes: Vec<Node<'c, 't>>,
    /// Variables that have the same value in all rows, and those that have one in each.
    given: Vars,
    start: Vars,
    /// Some of the rows that there are, where there are several.
    rows: Option<Relation<'t>>,
    /// What functions need, and what they give.
    functions: Vec<(Vars, Vars)>,
    /// What a clause finds for a row of another, or of the rows that there are; as far as it was asked for.
    links: Vec<Option<f64>>,
}

impl<'t> Context<'_, 't> {
    /// The order for clauses, beginning with the rows that there are.
    pub(crate) fn plan<'c>(
        &self,
        todo: &[&'c Clause],
        relation: &Relation<'t>,
    ) -> Result<Plan<'c>> {
        let brings: Vec<&'c Clause> = todo
            .iter()
            .copied()
            .filter(|clause| match clause {
                Clause::Pattern(_) | Clause::Rule(_) | Clause::Or(_) => true,
                Clause::Predicate(_) | Clause::Function(..) | Clause::Not(_) => false,
            })
            .collect();
        // Nothing is to be compared.
        if let [clause] = brings[..] {
            let possible = self.is_possible(clause, todo, relation);
            return Ok(Plan::of(possible.then_some(Planned { clause, rows: None })));
        }
        let mut names: Vec<Var> = relation.vars.clone();
        for clause in todo {
            clause.vars(&mut names);
        }
        if names.len().max(brings.len()) > Vars::BITS as usize {
            // Others may wait for what was given.
            let (given, others): (Vec<&'c Clause>, Vec<_>) =
                brings.into_iter().partition(|clause| self.is_given(clause));
            let steps = given.into_iter().chain(others);
            return Ok(Plan::of(steps.map(|clause| Planned { clause, rows: None })));
        }
        let mut planner = Planner::new(self, todo, &brings, &names, relation)?;
        let order = planner.order(relation.len())?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of rows, reckoned"
        )]
        let steps = order.into_iter().map(|(at, rows)| Planned {
            clause: planner.nodes[at].clause,
            rows: Some(rows.ceil() as usize),
        });
        Ok(Plan::of(steps))
    }

    /// Whether everything has a value that must have one before a clause.
    pub(crate) fn is_possible(
        &self,
        clause: &Clause,
        todo: &[&Clause],
        relation: &Relation<'t>,
    ) -> bool {
        let wanted = self.wanted_by(clause, todo);
        wanted.iter().all(|var| relation.column(var).is_some())
    }

    /// The variables that must have values before a clause, while others are to be done as well.
    fn wanted_by(&self, clause: &Clause, todo: &[&Clause]) -> Vec<Var> {
        let mut wanted = self.rules.wanted_by(clause);
        self.add_named(clause, todo, &mut wanted);
        wanted
    }

    /// What a clause finds for a row, on average over some.
    fn fan_out(&self, clause: &Clause, rows: &Relation<'t>, conditions: &[&Clause]) -> Result<f64> {
        Ok(match clause {
            Clause::Pattern(pattern) => match self.source(&pattern.source)? {
                Source::Db(moment) => match Scan::new(moment, pattern, rows, conditions)? {
                    Some(scan) => scan.fan_out(rows)?,
                    None => 0.0,
                },
                Source::Rows(given) => {
                    let mut vars = Vec::new();
                    clause.vars(&mut vars);
                    let shares = vars.iter().any(|var| rows.column(var).is_some());
                    if shares { 1.0 } else { float(given.rows.len()) }
                }
            },
            Clause::Or(or) => {
                let mut all = 0.0;
                for branch in &or.branches {
                    let mut least = f64::INFINITY;
                    for clause in branch {
                        if matches!(clause, Clause::Pattern(_) | Clause::Or(_)) {
                            least = least.min(self.fan_out(clause, rows, &[])?);
                        }
                    }
                    all += if least.is_finite() { least } else { 1.0 };
                }
                all
            }
            Clause::Rule(call) => {
                let is_known = |term: &&Term| match term {
                    Term::Constant(_) => true,
                    Term::Var(var) => rows.column(var).is_some(),
                    Term::Blank => false,
                };
                let known = call.arguments.iter().filter(is_known).count();
                match known {
                    0 => RULE_ROWS.1,
                    known if known == call.arguments.len() => 1.0,
                    _ => RULE_ROWS.0,
                }
            }
            Clause::Predicate(_) | Clause::Function(..) | Clause::Not(_) => 1.0,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn float(count: usize) -> f64 {
    count as f64
}

impl<'p, 'q, 'c, 't> Planner<'p, 'q, 'c, 't> {
    fn new(
        context: &'p Context<'q, 't>,
        todo: &'p [&'c Clause],
        brings: &[&'c Clause],
        names: &[Var],
        relation: &Relation<'t>,
    ) -> Result<Self> {
        let mask = |vars: &[Var]| -> Vars {
            let places = vars
                .iter()
                .filter_map(|var| names.iter().position(|own| own == var));
            places.fold(0, |all, at| all | 1 << at)
        };
        let start = mask(&relation.vars);
        // What a single row says is taken for granted from the beginning.
        let (base, rows) = if relation.len() == 1 {
            (relation.clone(), None)
        } else {
            let some = relation.spread(SAMPLE, context.watch)?;
            (Relation::unit(), Some(some))
        };
        let mut nodes = Vec::with_capacity(brings.len());
        for &clause in brings {
            let mut vars = Vec::new();
            clause.vars(&mut vars);
            let wants = mask(&context.wanted_by(clause, todo));
            let size = context.fan_out(clause, &base, todo)?;
            let (scan, sample) = match clause {
                Clause::Pattern(pattern) => match context.source(&pattern.source)? {
                    Source::Db(moment) => match Scan::new(moment, pattern, &base, todo)? {
                        Some(scan) => {
                            let sample = scan.sample(&base, SAMPLE, context.watch)?;
                            (scan.steps()?, Some(sample))
                        }
                        None => (0.0, None),
                    },
                    Source::Rows(given) => {
                        let some = &given.rows[..given.rows.len().min(SAMPLE)];
                        let sample = context.given_rows(pattern, some)?;
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
            Clause::Function(call, binding) => {
                let (mut needs, mut gives) = (Vec::new(), Vec::new());
                call.vars(&mut needs);
                binding.vars(&mut gives);
                vec![(mask(&needs), mask(&gives))]
            }
            Clause::Predicate(call) => match equality(call) {
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

    /// The variables that have values once a set of clauses is done.
    fn bound(&self, done: usize) -> Vars {
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

    /// What a clause finds for a row of another; of the rows that there are where none is said.
    fn link(&mut self, from: Option<usize>, to: usize) -> Result<Option<f64>> {
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

    /// What a clause finds for a row once others are done, and whether it can be looked up.
    fn found(&mut self, done: usize, bound: Vars, at: usize) -> Result<(f64, bool)> {
        let size = self.nodes[at].size;
        let mut shared = self.nodes[at].vars & bound & !self.given;
        if shared == 0 {
            return Ok((size, self.nodes[at].vars & self.given != 0));
        }
        let others = (0..self.nodes.len()).filter(|other| done & 1 << other != 0);
        let mut sources: Vec<(Vars, f64)> = Vec::new();
        for from in others.map(Some).chain([None]) {
            let vars = match from {
                Some(other) => self.nodes[other].vars,
                None => self.start & !self.given,
            };
            if vars & shared != 0
                && let Some(link) = self.link(from, at)?
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
                // Something has a value of which there is no sample.
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

    /// What becomes of a set of clauses when another is done after them.
    fn then(&mut self, best: Best, done: usize, bound: Vars, at: usize) -> Result<Best> {
        let (found, is_bound) = self.found(done, bound, at)?;
        let rows = best.rows * found;
        let node = &self.nodes[at];
        let own = if is_bound {
            (best.rows * SEEK).min(node.scan * PROBE + best.rows)
        } else {
            node.size
        };
        Ok(Best {
            steps: best.steps + own + rows,
            rows,
            last: at,
        })
    }

    /// The clauses that may be done next: those that have something to do with what is known, if any.
    fn nexts(&self, done: usize, bound: Vars) -> Vec<usize> {
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

    /// Clauses in the best order, and how many rows there should be after each.
    fn order(&mut self, rows: usize) -> Result<Vec<(usize, f64)>> {
        let start = Best {
            steps: 0.0,
            rows: float(rows),
            last: 0,
        };
        if self.nodes.len() > COMPARED {
            return self.nearest(start);
        }
        let mut all: Vec<Option<Best>> = vec![None; 1 << self.nodes.len()];
        all[0] = Some(start);
        let mut furthest = 0;
        for done in 0..all.len() {
            let Some(best) = all[done] else { continue };
            self.context.watch.step()?;
            if done.count_ones() > usize::count_ones(furthest) {
                furthest = done;
            }
            let bound = self.bound(done);
            for at in self.nexts(done, bound) {
                let next = self.then(best, done, bound, at)?;
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

    /// The order in which the clause that costs least is next each time.
    fn nearest(&mut self, start: Best) -> Result<Vec<(usize, f64)>> {
        let (mut best, mut done) = (start, 0);
        let mut order = Vec::with_capacity(self.nodes.len());
        loop {
            let bound = self.bound(done);
            let mut next: Option<Best> = None;
            for at in self.nexts(done, bound) {
                let reached = self.then(best, done, bound, at)?;
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

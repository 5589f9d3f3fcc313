//! Rules: what holds where something holds that may call them again.
//!
//! A rule is asked for what is known of its arguments: its *demand*. Its *answers* are kept for the whole query. Rules that call each
//! other are worked out together, round after round, from what came to be in the round before: new demand goes through
//! every branch, and new answers through every branch that calls for them.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rung_edn::Name;

use super::ast::{Branch, Call, Clause, Not, Or, Pattern, Rule, RuleCall, Rules, Term, Var};
use super::cell::Cell;
use super::relation::{Distinct, Relation};
use super::solve::Context;
use crate::{Error, Result};

/// What is known of rules so far.
#[derive(Default)]
pub(crate) struct Recursion<'t> {
    tables: HashMap<Key, Table<'t>>,
    /// Rules that are being worked out together, the outermost first.
    active: Vec<(Name, Arc<[Name]>)>,
    /// How many of them were begun outside of the innermost `not`.
    negated: usize,
}

/// The source that a rule is asked of, and its name.
pub(super) type Key = (Name, Name);

struct Table<'t> {
    answers: Distinct<'t>,
    /// Answers that have gone through every branch.
    spread: usize,
    /// What was asked, by which arguments are known.
    demands: Vec<Demand<'t>>,
}

struct Demand<'t> {
    known: Vec<bool>,
    rows: Distinct<'t>,
    /// Rows that have gone through every branch.
    spread: usize,
}

fn wrong<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

/// The variables that stand for the places of a rule's arguments.
fn places(arity: usize) -> Vec<Var> {
    (0..arity).map(|at| Var::new(format!("?#{at}"))).collect()
}

impl<'t> Table<'t> {
    fn new(arity: usize) -> Self {
        Self {
            answers: Distinct::new(places(arity)),
            spread: 0,
            demands: Vec::new(),
        }
    }

    fn demand(&mut self, known: &[bool]) -> &mut Demand<'t> {
        let at = self.demands.iter().position(|demand| demand.known == known);
        let at = at.unwrap_or_else(|| {
            let vars = places(known.len())
                .into_iter()
                .zip(known)
                .filter(|(_, known)| **known);
            self.demands.push(Demand {
                known: known.to_vec(),
                rows: Distinct::new(vars.map(|(var, _)| var).collect()),
                spread: 0,
            });
            self.demands.len() - 1
        });
        &mut self.demands[at]
    }
}

impl Rules {
    /// Takes `or` out of the branches of rules where it calls rules: it becomes a rule of its own.
    pub(crate) fn flattened(self) -> Self {
        let mut flat = HashMap::new();
        for rule in self.0.into_values() {
            let mut rule = (*rule).clone();
            for branch in &mut rule.branches {
                lift(&rule.name, &mut branch.clauses, &mut flat);
            }
            flat.insert(rule.name.clone(), Arc::new(rule));
        }
        let mut rules = Self(flat);
        let names: Vec<Name> = rules.0.keys().cloned().collect();
        for name in names {
            let together = rules.together(&name);
            if let Some(rule) = rules.0.get_mut(&name) {
                Arc::make_mut(rule).together = together;
            }
        }
        rules.find_wants();
        rules
    }

    /// Finds out what rules cannot do without, which depends on what those that they call cannot.
    fn find_wants(&mut self) {
        loop {
            let mut more: Vec<(Name, usize)> = Vec::new();
            for rule in self.0.values() {
                for branch in &rule.branches {
                    let wanted = self.wanted_within(&branch.clauses);
                    let places = branch.head.iter().enumerate();
                    let places =
                        places.filter(|(at, var)| !rule.wants[*at] && wanted.contains(var));
                    more.extend(places.map(|(at, _)| (rule.name.clone(), at)));
                }
            }
            if more.is_empty() {
                return;
            }
            for (name, at) in more {
                if let Some(rule) = self.0.get_mut(&name) {
                    Arc::make_mut(rule).wants[at] = true;
                }
            }
        }
    }

    /// The rules that this one calls and that call it, with itself where it comes back to itself.
    fn together(&self, name: &Name) -> Arc<[Name]> {
        let reached = |from: &Name| {
            let mut reached = Vec::new();
            let mut open = vec![from.clone()];
            while let Some(name) = open.pop() {
                let mut called = Vec::new();
                if let Some(rule) = self.0.get(&name) {
                    let clauses = rule.branches.iter().flat_map(|branch| &branch.clauses);
                    clauses.for_each(|clause| clause.calls(&mut called));
                }
                for name in called {
                    if !reached.contains(&name) {
                        reached.push(name.clone());
                        open.push(name);
                    }
                }
            }
            reached
        };
        let below = reached(name);
        below
            .into_iter()
            .filter(|other| reached(other).contains(name))
            .collect()
    }
}

fn lift(rule: &Name, clauses: &mut [Clause], into: &mut HashMap<Name, Arc<Rule>>) {
    for clause in clauses {
        let mut called = Vec::new();
        clause.calls(&mut called);
        let Clause::Or(or) = clause else { continue };
        if called.is_empty() {
            continue;
        }
        let name = Name::new(format!("{rule}#{}", into.len()));
        let head = or.shared();
        // Taken, so that what is lifted out of it has another name.
        let mut own = Rule {
            name: name.clone(),
            arity: head.len(),
            required: 0,
            branches: Vec::new(),
            wants: vec![false; head.len()],
            together: Arc::default(),
        };
        into.insert(name.clone(), Arc::new(own.clone()));
        for branch in &or.branches {
            let mut clauses = branch.clone();
            lift(&name, &mut clauses, into);
            own.branches.push(Branch {
                head: head.clone(),
                clauses,
            });
        }
        into.insert(name.clone(), Arc::new(own));
        *clause = Clause::Rule(RuleCall {
            source: "$".into(),
            name,
            arguments: head.into_iter().map(Term::Var).collect(),
        });
    }
}

/// Clauses that mean another source where they name none.
pub(super) fn asked_of<'c>(source: &Name, clauses: &'c [Clause]) -> Cow<'c, [Clause]> {
    if source.as_str() == "$" {
        return Cow::Borrowed(clauses);
    }
    let own = |name: &Name| {
        if name.as_str() == "$" {
            source.clone()
        } else {
            name.clone()
        }
    };
    let arguments = |call: &Call| {
        let mut call = call.clone();
        for argument in &mut call.arguments {
            if let super::ast::Argument::Source(name) = argument {
                *name = own(name);
            }
        }
        call
    };
    let each = clauses.iter().map(|clause| match clause {
        Clause::Pattern(pattern) => Clause::Pattern(Pattern {
            source: own(&pattern.source),
            terms: pattern.terms.clone(),
        }),
        Clause::Rule(call) => Clause::Rule(RuleCall {
            source: own(&call.source),
            ..call.clone()
        }),
        Clause::Not(not) => Clause::Not(Not {
            vars: not.vars.clone(),
            clauses: asked_of(source, &not.clauses).into_owned(),
        }),
        Clause::Or(or) => Clause::Or(Or {
            branches: or
                .branches
                .iter()
                .map(|branch| asked_of(source, branch).into_owned())
                .collect(),
            ..or.clone()
        }),
        Clause::Predicate(call) => Clause::Predicate(arguments(call)),
        Clause::Function(call, binding) => Clause::Function(arguments(call), binding.clone()),
    });
    Cow::Owned(each.collect())
}

/// Where an argument has its value from.
enum Given<'t> {
    Column(usize),
    Constant(Cell<'t>),
}

impl<'t> Given<'t> {
    fn cell<'c>(&'c self, row: &'c [Cell<'t>]) -> &'c Cell<'t> {
        match self {
            Self::Column(at) => &row[*at],
            Self::Constant(cell) => cell,
        }
    }
}

/// Times that there must be more rows than values of an argument before it alone is asked by.
const NARROWED: usize = 4;

/// Asks a rule that calls itself by the argument with the fewest values, where it would be asked for many rows otherwise: what it says
/// is found once for each of those values instead of once for each row, and the rows choose from it.
fn narrow<'t>(
    known: &mut [bool],
    columns: &[Option<Given<'t>>],
    required: usize,
    relation: &Relation<'t>,
) {
    let values = |given: &Given<'t>| {
        let seen: HashSet<&Cell<'t>> = relation.rows().map(|row| given.cell(row)).collect();
        seen.len()
    };
    let counted = columns.iter().enumerate().skip(required);
    let counted = counted.filter_map(|(at, given)| Some((values(given.as_ref()?), at)));
    let several = known.iter().filter(|known| **known).count() > required + 1;
    if let Some((fewest, at)) = counted.min().filter(|_| several)
        && relation.len() > fewest.saturating_mul(NARROWED)
    {
        for (own, known) in known.iter_mut().enumerate() {
            *known &= own < required || own == at;
        }
    }
}

impl<'t> Context<'_, 't> {
    /// Extends the rows by what a rule says of them.
    pub(crate) fn rule(&self, call: &RuleCall, relation: &Relation<'t>) -> Result<Relation<'t>> {
        let rule = self.find_rule(call)?;
        if !rule.together.is_empty()
            && let Some((call, rows)) = self.without_names(call, relation)?
        {
            let found = self.asked(&rule, &call, &rows)?;
            let is_own = |var: &&Var| !rows.vars[relation.vars.len()..].contains(var);
            let vars: Vec<Var> = found.vars.iter().filter(is_own).cloned().collect();
            return found.project(&vars, self.watch);
        }
        self.asked(&rule, call, relation)
    }

    /// The same where no argument is called by a name, or its name can stay.
    fn asked(&self, rule: &Rule, call: &RuleCall, relation: &Relation<'t>) -> Result<Relation<'t>> {
        let columns: Vec<Option<Given<'t>>> = call
            .arguments
            .iter()
            .map(|term| match term {
                Term::Var(var) => relation.column(var).map(Given::Column),
                Term::Constant(value) => Some(Given::Constant(Cell::of_value(value))),
                Term::Blank => None,
            })
            .collect();
        let mut known: Vec<bool> = columns.iter().map(Option::is_some).collect();
        if known[..rule.required].contains(&false) {
            return wrong(format!(
                "the rule {} is called before its first {} arguments have values",
                rule.name, rule.required
            ));
        }
        if rule.together.is_empty() {
            return self.unfolded(rule, call, &columns, &known, relation);
        }
        let key = (call.source.clone(), call.name.clone());
        let is_first = {
            let mut recursion = self.recursion.borrow_mut();
            let at = recursion
                .active
                .iter()
                .position(|(source, names)| *source == key.0 && names.contains(&key.1));
            if at.is_some_and(|at| at < recursion.negated) {
                return wrong(format!(
                    "the rule {} holds where it does not: it calls itself within not",
                    rule.name
                ));
            }
            if at.is_none() {
                narrow(&mut known, &columns, rule.required, relation);
            }
            let table = recursion
                .tables
                .entry(key.clone())
                .or_insert_with(|| Table::new(rule.arity));
            let demand = table.demand(&known);
            self.ask(&mut demand.rows, &columns, &known, relation)?;
            at.is_none()
        };
        if is_first {
            self.recursion
                .borrow_mut()
                .active
                .push((call.source.clone(), rule.together.clone()));
            let worked_out = self.work_out(&key.0, rule, &known);
            self.recursion.borrow_mut().active.pop();
            worked_out?;
        }
        let answers = self.said(&key, &call.arguments, 0)?;
        relation.join(&answers, self.watch)
    }

    /// Extends the rows by what a rule says of them that never comes back to itself: its branches are followed from where they are.
    fn unfolded(
        &self,
        rule: &Rule,
        call: &RuleCall,
        columns: &[Option<Given<'t>>],
        known: &[bool],
        relation: &Relation<'t>,
    ) -> Result<Relation<'t>> {
        let vars = places(rule.arity).into_iter().zip(known);
        let vars = vars.filter(|(_, known)| **known).map(|(var, _)| var);
        let mut seeds = Distinct::new(vars.collect());
        self.ask(&mut seeds, columns, known, relation)?;
        let mut answers = Distinct::new(places(rule.arity));
        for branch in &rule.branches {
            let start = named(&seeds.relation, known, &branch.head);
            let clauses = asked_of(&call.source, &branch.clauses);
            let found = self.solve(&clauses, start, &branch.head)?;
            for row in found.rows() {
                answers.insert(row.iter(), self.watch)?;
            }
        }
        let answers = self.as_called(&answers.relation, &call.arguments, 0)?;
        relation.join(&answers, self.watch)
    }

    /// Adds what is known of the arguments in each row.
    fn ask(
        &self,
        rows: &mut Distinct<'t>,
        columns: &[Option<Given<'t>>],
        known: &[bool],
        relation: &Relation<'t>,
    ) -> Result<()> {
        let asked = columns.iter().zip(known).filter(|(_, known)| **known);
        let asked: Vec<&Given<'t>> = asked.filter_map(|(given, _)| given.as_ref()).collect();
        for row in relation.rows() {
            let cells = asked.iter().map(|given| given.cell(row));
            rows.insert(cells, self.watch)?;
        }
        Ok(())
    }

    fn find_rule(&self, call: &RuleCall) -> Result<Arc<Rule>> {
        let Some(rule) = self.rules.0.get(&call.name) else {
            return wrong(format!("there is no rule {}", call.name));
        };
        if rule.arity != call.arguments.len() {
            return wrong(format!(
                "the rule {} has {} arguments, and is called with {}",
                call.name,
                rule.arity,
                call.arguments.len()
            ));
        }
        Ok(rule.clone())
    }

    /// Runs `f` where nothing may call the rules that are being worked out.
    pub(crate) fn negated<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = {
            let mut recursion = self.recursion.borrow_mut();
            let active = recursion.active.len();
            std::mem::replace(&mut recursion.negated, active)
        };
        let done = f();
        self.recursion.borrow_mut().negated = before;
        done
    }

    /// The answers from one on, as rows of the variables that a rule is called with.
    fn said(&self, key: &Key, arguments: &[Term], from: usize) -> Result<Relation<'t>> {
        let recursion = self.recursion.borrow();
        let Some(table) = recursion.tables.get(key) else {
            return Ok(Relation::none(Vec::new()));
        };
        self.as_called(&table.answers.relation, arguments, from)
    }

    /// Answers from one on, as rows of the variables that a rule is called with.
    fn as_called(
        &self,
        answers: &Relation<'t>,
        arguments: &[Term],
        from: usize,
    ) -> Result<Relation<'t>> {
        let mut vars: Vec<Var> = Vec::new();
        let mut columns = Vec::new();
        for (at, term) in arguments.iter().enumerate() {
            if let Term::Var(var) = term
                && !vars.contains(var)
            {
                vars.push(var.clone());
                columns.push(at);
            }
        }
        let constants: Vec<(usize, Cell<'t>)> = arguments
            .iter()
            .enumerate()
            .filter_map(|(at, term)| match term {
                Term::Constant(value) => Some((at, Cell::of_value(value))),
                _ => None,
            })
            .collect();
        let same: Vec<(usize, usize)> = arguments
            .iter()
            .enumerate()
            .filter_map(|(at, term)| match term {
                Term::Var(_) => arguments[..at]
                    .iter()
                    .position(|before| before == term)
                    .map(|before| (before, at)),
                _ => None,
            })
            .collect();
        let mut said = Distinct::new(vars);
        for at in from..answers.len() {
            let row = answers.row(at);
            let agrees = constants.iter().all(|(at, cell)| row[*at] == *cell)
                && same.iter().all(|(one, other)| row[*one] == row[*other]);
            if agrees {
                said.insert(columns.iter().map(|at| &row[*at]), self.watch)?;
            }
        }
        Ok(said.relation)
    }

    fn answer(&self, key: &Key, found: &Relation<'t>) -> Result<()> {
        let mut recursion = self.recursion.borrow_mut();
        if let Some(table) = recursion.tables.get_mut(key) {
            for row in found.rows() {
                table.answers.insert(row.iter(), self.watch)?;
            }
        }
        Ok(())
    }

    /// Works out everything that is asked of rules which call each other.
    fn work_out(&self, source: &Name, rule: &Rule, known: &[bool]) -> Result<()> {
        if let ([_], Some(chain)) = (&rule.together[..], Chain::of(rule, known)) {
            return self.follow(source, rule, known, &chain);
        }
        let rules: Vec<Arc<Rule>> = rule
            .together
            .iter()
            .filter_map(|name| self.rules.0.get(name).cloned())
            .collect();
        loop {
            let mut asked = Vec::new();
            let mut said = Vec::new();
            {
                let mut recursion = self.recursion.borrow_mut();
                for rule in &rules {
                    let key = (source.clone(), rule.name.clone());
                    let table = recursion
                        .tables
                        .entry(key.clone())
                        .or_insert_with(|| Table::new(rule.arity));
                    for demand in &mut table.demands {
                        let from = std::mem::replace(&mut demand.spread, demand.rows.len());
                        if from < demand.rows.len() {
                            asked.push((
                                rule.clone(),
                                demand.known.clone(),
                                demand.rows.relation.tail(from, self.watch)?,
                            ));
                        }
                    }
                    let from = std::mem::replace(&mut table.spread, table.answers.len());
                    if from < table.answers.len() {
                        said.push((rule.name.clone(), from));
                    }
                }
            }
            if asked.is_empty() && said.is_empty() {
                return Ok(());
            }
            for (rule, known, rows) in asked {
                let key = (source.clone(), rule.name.clone());
                for branch in &rule.branches {
                    let start = named(&rows, &known, &branch.head);
                    let clauses = asked_of(source, &branch.clauses);
                    let found = self.solve(&clauses, start, &branch.head)?;
                    self.answer(&key, &found)?;
                }
            }
            for (name, from) in said {
                for rule in &rules {
                    self.spread(source, rule, &name, from)?;
                }
            }
        }
    }

    /// Takes the answers of a rule from one on through the branches of another that call it.
    fn spread(&self, source: &Name, rule: &Rule, name: &Name, from: usize) -> Result<()> {
        let key = (source.clone(), rule.name.clone());
        for branch in &rule.branches {
            let clauses = asked_of(source, &branch.clauses);
            for (at, clause) in clauses.iter().enumerate() {
                let Clause::Rule(call) = clause else { continue };
                if call.name != *name || call.source != *source {
                    continue;
                }
                let resolved = self.without_names(call, &Relation::unit())?;
                let call = resolved.as_ref().map_or(call, |(call, _)| call);
                let said = self.said(&(source.clone(), name.clone()), &call.arguments, from)?;
                let mut rest = clauses.to_vec();
                rest.remove(at);
                let demands: Vec<Relation<'t>> = {
                    let recursion = self.recursion.borrow();
                    let table = recursion.tables.get(&key);
                    let demands = table.map(|table| &table.demands[..]).unwrap_or_default();
                    demands
                        .iter()
                        .filter(|demand| demand.rows.len() > 0)
                        .map(|demand| named(&demand.rows.relation, &demand.known, &branch.head))
                        .collect()
                };
                for demand in demands {
                    let shares = demand.vars.iter().any(|var| said.column(var).is_some());
                    let start = if shares {
                        said.join(&demand, self.watch)?
                    } else {
                        said.clone()
                    };
                    let found = self.solve(&rest, start, &branch.head)?;
                    let found = found.matching(&demand, true, self.watch)?;
                    self.answer(&key, &found)?;
                }
            }
        }
        Ok(())
    }

    /// What was asked since this was called last.
    fn new_demand(&self, key: &Key, arity: usize, known: &[bool]) -> Result<Relation<'t>> {
        let mut recursion = self.recursion.borrow_mut();
        let table = recursion
            .tables
            .entry(key.clone())
            .or_insert_with(|| Table::new(arity));
        table.spread = table.answers.len();
        let demand = table.demand(known);
        let from = std::mem::replace(&mut demand.spread, demand.rows.len());
        demand.rows.relation.tail(from, self.watch)
    }

    /// What a branch says of the places that were reached last.
    fn ask_from(
        &self,
        round: &mut Round<'_, 't>,
        clauses: &[Clause],
        head: &[Var],
        wanted: &[Var],
    ) -> Result<Relation<'t>> {
        let given = head.iter().zip(round.known).filter(|(_, known)| **known);
        let given: Vec<&Var> = given.map(|(var, _)| var).collect();
        let shape = Shape::of(clauses, &given, wanted);
        let same = round
            .asked
            .iter()
            .find(|(other, _)| Some(other) == shape.as_ref());
        if let Some((_, found)) = same {
            return Ok(found.clone());
        }
        let start = renamed(&round.fresh, round.origins, round.known, head);
        let needed: Vec<Var> = round.origins.iter().chain(wanted).cloned().collect();
        let found = self.solve(clauses, start, &needed)?;
        round
            .asked
            .extend(shape.map(|shape| (shape, found.clone())));
        Ok(found)
    }

    /// Works out a rule that goes from what is known to what is known next: where it began is remembered, and what it says is
    /// said once at each place that is reached.
    fn follow(&self, source: &Name, rule: &Rule, known: &[bool], chain: &Chain) -> Result<()> {
        let key = (source.clone(), rule.name.clone());
        let seeds = self.new_demand(&key, rule.arity, known)?;
        let origins: Vec<Var> = (0..seeds.vars.len())
            .map(|at| Var::new(format!("?@{at}")))
            .collect();
        let mut reached = Distinct::new(
            origins
                .iter()
                .cloned()
                .chain(seeds.vars.iter().cloned())
                .collect(),
        );
        for row in seeds.rows() {
            reached.insert(row.iter().chain(row), self.watch)?;
        }
        let mut from = 0;
        while from < reached.len() {
            let fresh = reached.relation.tail(from, self.watch)?;
            from = reached.len();
            let mut round = Round {
                known,
                origins: &origins,
                fresh,
                asked: Vec::new(),
            };
            for (at, branch) in rule.branches.iter().enumerate() {
                let mut clauses = asked_of(source, &branch.clauses).into_owned();
                if let Some(call_at) = chain.calls[at] {
                    let Clause::Rule(call) = clauses.remove(call_at) else {
                        continue;
                    };
                    let terms: Vec<&Term> = call
                        .arguments
                        .iter()
                        .zip(known)
                        .filter(|(_, known)| **known)
                        .map(|(term, _)| term)
                        .collect();
                    let mut wanted = Vec::new();
                    for term in &terms {
                        if let Term::Var(var) = term {
                            super::ast::add(&mut wanted, var);
                        }
                    }
                    let found = self.ask_from(&mut round, &clauses, &branch.head, &wanted)?;
                    let column = |var: &Var| {
                        let place = wanted.iter().position(|own| own == var);
                        origins.len() + place.unwrap_or(0)
                    };
                    let constants: Vec<Option<Cell<'t>>> = terms
                        .iter()
                        .map(|term| match term {
                            Term::Constant(value) => Some(Cell::of_value(value)),
                            _ => None,
                        })
                        .collect();
                    for row in found.rows() {
                        let next = terms.iter().zip(&constants).map(|(term, constant)| {
                            match (term, constant) {
                                (Term::Var(var), _) => &row[column(var)],
                                (_, Some(constant)) => constant,
                                _ => &row[0],
                            }
                        });
                        reached.insert(row[..origins.len()].iter().chain(next), self.watch)?;
                    }
                } else {
                    let free = branch
                        .head
                        .iter()
                        .zip(known)
                        .filter(|(_, known)| !**known)
                        .map(|(var, _)| var.clone());
                    let free: Vec<Var> = free.collect();
                    let found = self.ask_from(&mut round, &clauses, &branch.head, &free)?;
                    let mut answers = Relation::none(places(rule.arity));
                    for row in found.rows() {
                        let (mut origin, mut rest) =
                            (row[..origins.len()].iter(), row[origins.len()..].iter());
                        let cells = known
                            .iter()
                            .filter_map(|known| if *known { origin.next() } else { rest.next() });
                        answers.push(cells.cloned(), self.watch)?;
                    }
                    self.answer(&key, &answers)?;
                }
            }
        }
        let mut recursion = self.recursion.borrow_mut();
        if let Some(table) = recursion.tables.get_mut(&key) {
            table.spread = table.answers.len();
        }
        Ok(())
    }
}

/// A step from the places that were reached last.
struct Round<'r, 't> {
    known: &'r [bool],
    origins: &'r [Var],
    fresh: Relation<'t>,
    /// What was asked: a branch often asks to be called again with what another says right away.
    asked: Vec<(Shape, Relation<'t>)>,
}

/// Patterns and calls, and what is wanted of them, with variables named by what they are for: so it can be told whether two branches
/// ask the same.
#[derive(PartialEq)]
struct Shape {
    clauses: Vec<Clause>,
    wanted: Vec<Term>,
}

impl Shape {
    /// Nothing where a branch asks for more than that.
    fn of(clauses: &[Clause], given: &[&Var], wanted: &[Var]) -> Option<Self> {
        let mut own: Vec<Var> = Vec::new();
        let mut named = |term: &Term| match term {
            Term::Var(var) => {
                let name = if let Some(at) = given.iter().position(|other| *other == var) {
                    format!("?given{at}")
                } else if let Some(at) = wanted.iter().position(|other| other == var) {
                    format!("?wanted{at}")
                } else {
                    super::ast::add(&mut own, var);
                    let at = own.iter().position(|other| other == var);
                    format!("?own{}", at.unwrap_or(0))
                };
                Term::Var(Var::new(name))
            }
            other => other.clone(),
        };
        let each = clauses.iter().map(|clause| match clause {
            Clause::Pattern(pattern) => Some(Clause::Pattern(Pattern {
                source: pattern.source.clone(),
                terms: pattern.terms.iter().map(&mut named).collect(),
            })),
            Clause::Rule(call) => Some(Clause::Rule(RuleCall {
                source: call.source.clone(),
                name: call.name.clone(),
                arguments: call.arguments.iter().map(&mut named).collect(),
            })),
            _ => None,
        });
        let clauses = each.collect::<Option<_>>()?;
        let wanted = wanted.iter().map(|var| named(&Term::Var(var.clone())));
        Some(Self {
            clauses,
            wanted: wanted.collect(),
        })
    }
}

/// Rows of what is known, under the names that a branch has for it.
fn named<'t>(rows: &Relation<'t>, known: &[bool], head: &[Var]) -> Relation<'t> {
    let mut named = rows.clone();
    let vars = head.iter().zip(known).filter(|(_, known)| **known);
    named.vars = vars.map(|(var, _)| var.clone()).collect();
    named
}

fn renamed<'t>(rows: &Relation<'t>, origins: &[Var], known: &[bool], head: &[Var]) -> Relation<'t> {
    let mut renamed = rows.clone();
    let vars = head.iter().zip(known).filter(|(_, known)| **known);
    renamed.vars = origins
        .iter()
        .cloned()
        .chain(vars.map(|(var, _)| var.clone()))
        .collect();
    renamed
}

/// A rule that goes from what is known to what is known next, and passes on what is not known as it is. Then it need not be worked
/// out what it says of every place on the way, which is what makes one way of writing it as good as the other.
struct Chain {
    /// Where each branch calls the rule.
    calls: Vec<Option<usize>>,
}

impl Chain {
    fn of(rule: &Rule, known: &[bool]) -> Option<Self> {
        if !known.contains(&true) || !known.contains(&false) {
            return None;
        }
        let calls: Option<Vec<Option<usize>>> = rule
            .branches
            .iter()
            .map(|branch| Self::call(rule, branch, known))
            .collect();
        let calls = calls?;
        calls.iter().any(Option::is_some).then_some(Self { calls })
    }

    /// Where a branch calls the rule, if it does; `None` where it does so in another way.
    #[expect(
        clippy::option_option,
        reason = "there is no call, or none that will do"
    )]
    fn call(rule: &Rule, branch: &Branch, known: &[bool]) -> Option<Option<usize>> {
        let mut at = None;
        for (own, clause) in branch.clauses.iter().enumerate() {
            let mut called = Vec::new();
            clause.calls(&mut called);
            if !called.contains(&rule.name) {
                continue;
            }
            if at.is_some() || !matches!(clause, Clause::Rule(_)) {
                return None;
            }
            at = Some(own);
        }
        let Some(at) = at else {
            return Some(None);
        };
        let Clause::Rule(call) = &branch.clauses[at] else {
            return None;
        };
        if call.source.as_str() != "$" {
            return None;
        }
        let mut others = Vec::new();
        for (own, clause) in branch.clauses.iter().enumerate() {
            if own != at {
                clause.vars(&mut others);
            }
        }
        let given = branch.head.iter().zip(known).filter(|(_, known)| **known);
        let given: Vec<&Var> = given.map(|(var, _)| var).collect();
        for ((term, head), known) in call.arguments.iter().zip(&branch.head).zip(known) {
            let fits = match (term, known) {
                (Term::Constant(_), true) => true,
                (Term::Var(var), true) => others.contains(var) || given.contains(&var),
                (Term::Var(var), false) => {
                    let once = call
                        .arguments
                        .iter()
                        .filter(|term| **term == Term::Var(var.clone()))
                        .count()
                        == 1;
                    var == head && !others.contains(var) && once
                }
                _ => false,
            };
            if !fits {
                return None;
            }
        }
        Some(Some(at))
    }
}

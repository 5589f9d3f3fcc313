//! Evaluation of rules, including recursive ones.
//!
//! A rule is called with bound values of its arguments: its *demand*. Its *answers* are kept for the whole query. Rules that call
//! each other are evaluated together by semi-naive iteration: in each round, the new demand passes through every branch, and
//! the new answers pass through every branch that calls their rule.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rung_edn::Name;

use super::ast::{
    DatalogClause, DatalogRule, DatomPattern, FunctionCall, NotClause, OrClause, PatternTerm,
    RuleBranch, RuleCall, RuleSet, Var,
};
use super::cell::Cell;
use super::relation::{DistinctRows, Relation};
use super::solve::QueryContext;
use crate::{Error, Result};

/// The demands and answers of recursive rules in a query.
#[derive(Default)]
pub(crate) struct Recursion<'t> {
    tables: HashMap<RuleKey, RuleTable<'t>>,
    /// Groups of rules that are being evaluated together, the outermost first.
    active: Vec<(Name, Arc<[Name]>)>,
    /// The number of active groups outside of the innermost `not`.
    negated: usize,
}

/// The source that a rule is called on, and the rule's name.
pub(super) type RuleKey = (Name, Name);

struct RuleTable<'t> {
    answers: DistinctRows<'t>,
    /// Answers that have passed through every branch.
    spread: usize,
    /// The demands, one for each combination of bound arguments.
    demands: Vec<Demand<'t>>,
}

struct Demand<'t> {
    is_bound: Vec<bool>,
    rows: DistinctRows<'t>,
    /// Rows that have passed through every branch.
    spread: usize,
}

fn invalid_query<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

/// Returns the variables that stand for the arguments of a rule.
fn argument_vars(arity: usize) -> Vec<Var> {
    (0..arity).map(|at| Var::new(format!("?#{at}"))).collect()
}

impl<'t> RuleTable<'t> {
    fn new(arity: usize) -> Self {
        Self {
            answers: DistinctRows::new(argument_vars(arity)),
            spread: 0,
            demands: Vec::new(),
        }
    }

    fn demand(&mut self, known: &[bool]) -> &mut Demand<'t> {
        let at = self
            .demands
            .iter()
            .position(|demand| demand.is_bound == known);
        let at = at.unwrap_or_else(|| {
            let vars = argument_vars(known.len())
                .into_iter()
                .zip(known)
                .filter(|(_, known)| **known);
            self.demands.push(Demand {
                is_bound: known.to_vec(),
                rows: DistinctRows::new(vars.map(|(var, _)| var).collect()),
                spread: 0,
            });
            self.demands.len() - 1
        });
        &mut self.demands[at]
    }
}

impl RuleSet {
    /// Moves each `or` that calls rules out of the branches into a rule of its own.
    pub(crate) fn flatten(self) -> Self {
        let mut flat = HashMap::new();
        for rule in self.0.into_values() {
            let mut rule = (*rule).clone();
            for branch in &mut rule.branches {
                lift_or_clauses(&rule.name, &mut branch.clauses, &mut flat);
            }
            flat.insert(rule.name.clone(), Arc::new(rule));
        }
        let mut rules = Self(flat);
        let names: Vec<Name> = rules.0.keys().cloned().collect();
        for name in names {
            let together = rules.recursion_group(&name);
            if let Some(rule) = rules.0.get_mut(&name) {
                Arc::make_mut(rule).recursion_group = together;
            }
        }
        rules.find_required_arguments();
        rules
    }

    /// Computes the required arguments of all rules. They depend on those of the rules that they call: iterate to a fixpoint.
    fn find_required_arguments(&mut self) {
        loop {
            let mut more: Vec<(Name, usize)> = Vec::new();
            for rule in self.0.values() {
                for branch in &rule.branches {
                    let wanted = self.unbound_vars(&branch.clauses);
                    let places = branch.head.iter().enumerate();
                    let places =
                        places.filter(|(at, var)| !rule.must_be_bound[*at] && wanted.contains(var));
                    more.extend(places.map(|(at, _)| (rule.name.clone(), at)));
                }
            }
            if more.is_empty() {
                return;
            }
            for (name, at) in more {
                if let Some(rule) = self.0.get_mut(&name) {
                    Arc::make_mut(rule).must_be_bound[at] = true;
                }
            }
        }
    }

    /// Returns the rules that a rule calls and that call it, including itself if it is recursive.
    fn recursion_group(&self, name: &Name) -> Arc<[Name]> {
        let reached = |from: &Name| {
            let mut reached = Vec::new();
            let mut open = vec![from.clone()];
            while let Some(name) = open.pop() {
                let mut called = Vec::new();
                if let Some(rule) = self.0.get(&name) {
                    let clauses = rule.branches.iter().flat_map(|branch| &branch.clauses);
                    clauses.for_each(|clause| clause.called_rules(&mut called));
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

fn lift_or_clauses(
    rule: &Name,
    clauses: &mut [DatalogClause],
    into: &mut HashMap<Name, Arc<DatalogRule>>,
) {
    for clause in clauses {
        let mut called = Vec::new();
        clause.called_rules(&mut called);
        let DatalogClause::Or(or) = clause else {
            continue;
        };
        if called.is_empty() {
            continue;
        }
        let name = Name::new(format!("{rule}#{}", into.len()));
        let head = or.shared_vars();
        // Reserve the name, so that nested `or` clauses get another one.
        let mut own = DatalogRule {
            name: name.clone(),
            arity: head.len(),
            required: 0,
            branches: Vec::new(),
            must_be_bound: vec![false; head.len()],
            recursion_group: Arc::default(),
        };
        into.insert(name.clone(), Arc::new(own.clone()));
        for branch in &or.branches {
            let mut clauses = branch.clone();
            lift_or_clauses(&name, &mut clauses, into);
            own.branches.push(RuleBranch {
                head: head.clone(),
                clauses,
            });
        }
        into.insert(name.clone(), Arc::new(own));
        *clause = DatalogClause::Rule(RuleCall {
            source: "$".into(),
            name,
            arguments: head.into_iter().map(PatternTerm::Var).collect(),
        });
    }
}

/// Replaces the default source in clauses by another one.
pub(super) fn with_source<'c>(
    source: &Name,
    clauses: &'c [DatalogClause],
) -> Cow<'c, [DatalogClause]> {
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
    let arguments = |call: &FunctionCall| {
        let mut call = call.clone();
        for argument in &mut call.arguments {
            if let super::ast::CallArgument::Source(name) = argument {
                *name = own(name);
            }
        }
        call
    };
    let each = clauses.iter().map(|clause| match clause {
        DatalogClause::Pattern(pattern) => DatalogClause::Pattern(DatomPattern {
            source: own(&pattern.source),
            terms: pattern.terms.clone(),
        }),
        DatalogClause::Rule(call) => DatalogClause::Rule(RuleCall {
            source: own(&call.source),
            ..call.clone()
        }),
        DatalogClause::Not(not) => DatalogClause::Not(NotClause {
            vars: not.vars.clone(),
            clauses: with_source(source, &not.clauses).into_owned(),
        }),
        DatalogClause::Or(or) => DatalogClause::Or(OrClause {
            branches: or
                .branches
                .iter()
                .map(|branch| with_source(source, branch).into_owned())
                .collect(),
            ..or.clone()
        }),
        DatalogClause::Predicate(call) => DatalogClause::Predicate(arguments(call)),
        DatalogClause::Function(call, binding) => {
            DatalogClause::Function(arguments(call), binding.clone())
        }
    });
    Cow::Owned(each.collect())
}

/// The origin of an argument's value.
enum ArgumentSource<'t> {
    Column(usize),
    Constant(Cell<'t>),
}

impl<'t> ArgumentSource<'t> {
    fn cell<'c>(&'c self, row: &'c [Cell<'t>]) -> &'c Cell<'t> {
        match self {
            Self::Column(at) => &row[*at],
            Self::Constant(cell) => cell,
        }
    }
}

/// Ratio of rows to distinct values of an argument from which on the demand is narrowed to that argument.
const NARROWING_RATIO: usize = 4;

/// Narrows the demand of a recursive rule to the argument with the fewest values, if there are many more rows than values: its
/// answers are computed once for each value instead of once for each row, and then joined with the rows.
fn narrow_demand<'t>(
    known: &mut [bool],
    columns: &[Option<ArgumentSource<'t>>],
    required: usize,
    relation: &Relation<'t>,
) {
    let values = |given: &ArgumentSource<'t>| {
        let seen: HashSet<&Cell<'t>> = relation.rows().map(|row| given.cell(row)).collect();
        seen.len()
    };
    let counted = columns.iter().enumerate().skip(required);
    let counted = counted.filter_map(|(at, given)| Some((values(given.as_ref()?), at)));
    let several = known.iter().filter(|known| **known).count() > required + 1;
    if let Some((fewest, at)) = counted.min().filter(|_| several)
        && relation.len() > fewest.saturating_mul(NARROWING_RATIO)
    {
        for (own, known) in known.iter_mut().enumerate() {
            *known &= own < required || own == at;
        }
    }
}

impl<'t> QueryContext<'_, 't> {
    /// Joins the rows with the answers of a rule.
    pub(crate) fn join_rule(
        &self,
        call: &RuleCall,
        relation: &Relation<'t>,
    ) -> Result<Relation<'t>> {
        let rule = self.find_rule(call)?;
        if !rule.recursion_group.is_empty()
            && let Some((call, rows)) = self.resolve_names(call, relation)?
        {
            let found = self.join_answers(&rule, &call, &rows)?;
            let is_own = |var: &&Var| !rows.vars[relation.vars.len()..].contains(var);
            let vars: Vec<Var> = found.vars.iter().filter(is_own).cloned().collect();
            return found.project(&vars, self.watch);
        }
        self.join_answers(&rule, call, relation)
    }

    /// Joins the rows with the answers of a rule, after names in its arguments are resolved if the rule is recursive.
    fn join_answers(
        &self,
        rule: &DatalogRule,
        call: &RuleCall,
        relation: &Relation<'t>,
    ) -> Result<Relation<'t>> {
        let columns: Vec<Option<ArgumentSource<'t>>> = call
            .arguments
            .iter()
            .map(|term| match term {
                PatternTerm::Var(var) => relation.column(var).map(ArgumentSource::Column),
                PatternTerm::Constant(value) => {
                    Some(ArgumentSource::Constant(Cell::from_value(value)))
                }
                PatternTerm::Blank => None,
            })
            .collect();
        let mut known: Vec<bool> = columns.iter().map(Option::is_some).collect();
        if known[..rule.required].contains(&false) {
            return invalid_query(format!(
                "the rule {} is called before its first {} arguments are bound",
                rule.name, rule.required
            ));
        }
        if rule.recursion_group.is_empty() {
            return self.join_unfolded(rule, call, &columns, &known, relation);
        }
        let key = (call.source.clone(), call.name.clone());
        let is_first = {
            let mut recursion = self.recursion.borrow_mut();
            let at = recursion
                .active
                .iter()
                .position(|(source, names)| *source == key.0 && names.contains(&key.1));
            if at.is_some_and(|at| at < recursion.negated) {
                return invalid_query(format!(
                    "the rule {} calls itself within not, which has no solution",
                    rule.name
                ));
            }
            if at.is_none() {
                narrow_demand(&mut known, &columns, rule.required, relation);
            }
            let table = recursion
                .tables
                .entry(key.clone())
                .or_insert_with(|| RuleTable::new(rule.arity));
            let demand = table.demand(&known);
            self.add_demand(&mut demand.rows, &columns, &known, relation)?;
            at.is_none()
        };
        if is_first {
            self.recursion
                .borrow_mut()
                .active
                .push((call.source.clone(), rule.recursion_group.clone()));
            let worked_out = self.evaluate_group(&key.0, rule, &known);
            self.recursion.borrow_mut().active.pop();
            worked_out?;
        }
        let answers = self.stored_answers(&key, &call.arguments, 0)?;
        relation.join(&answers, self.watch)
    }

    /// Joins the rows with the answers of a rule that is not recursive, by evaluating its branches directly.
    fn join_unfolded(
        &self,
        rule: &DatalogRule,
        call: &RuleCall,
        columns: &[Option<ArgumentSource<'t>>],
        known: &[bool],
        relation: &Relation<'t>,
    ) -> Result<Relation<'t>> {
        let vars = argument_vars(rule.arity).into_iter().zip(known);
        let vars = vars.filter(|(_, known)| **known).map(|(var, _)| var);
        let mut seeds = DistinctRows::new(vars.collect());
        self.add_demand(&mut seeds, columns, known, relation)?;
        let mut answers = DistinctRows::new(argument_vars(rule.arity));
        for branch in &rule.branches {
            let start = rename_columns(&seeds.relation, known, &branch.head);
            let clauses = with_source(&call.source, &branch.clauses);
            let found = self.solve(&clauses, start, &branch.head)?;
            for row in found.rows() {
                answers.insert(row.iter(), self.watch)?;
            }
        }
        let answers = self.answers_as_called(&answers.relation, &call.arguments, 0)?;
        relation.join(&answers, self.watch)
    }

    /// Adds the values of the bound arguments in each row.
    fn add_demand(
        &self,
        rows: &mut DistinctRows<'t>,
        columns: &[Option<ArgumentSource<'t>>],
        known: &[bool],
        relation: &Relation<'t>,
    ) -> Result<()> {
        let asked = columns.iter().zip(known).filter(|(_, known)| **known);
        let asked: Vec<&ArgumentSource<'t>> =
            asked.filter_map(|(given, _)| given.as_ref()).collect();
        for row in relation.rows() {
            let cells = asked.iter().map(|given| given.cell(row));
            rows.insert(cells, self.watch)?;
        }
        Ok(())
    }

    fn find_rule(&self, call: &RuleCall) -> Result<Arc<DatalogRule>> {
        let Some(rule) = self.rules.0.get(&call.name) else {
            return invalid_query(format!("the rule {} does not exist", call.name));
        };
        if rule.arity != call.arguments.len() {
            return invalid_query(format!(
                "the rule {} takes {} arguments and is called with {}",
                call.name,
                rule.arity,
                call.arguments.len()
            ));
        }
        Ok(rule.clone())
    }

    /// Runs `f` inside a `not`, where calls of the rules that are being evaluated fail.
    pub(crate) fn within_negation<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = {
            let mut recursion = self.recursion.borrow_mut();
            let active = recursion.active.len();
            std::mem::replace(&mut recursion.negated, active)
        };
        let done = f();
        self.recursion.borrow_mut().negated = before;
        done
    }

    /// Returns the stored answers from `from` on, as rows of the variables in the call.
    fn stored_answers(
        &self,
        key: &RuleKey,
        arguments: &[PatternTerm],
        from: usize,
    ) -> Result<Relation<'t>> {
        let recursion = self.recursion.borrow();
        let Some(table) = recursion.tables.get(key) else {
            return Ok(Relation::empty(Vec::new()));
        };
        self.answers_as_called(&table.answers.relation, arguments, from)
    }

    /// Converts answers from `from` on to rows of the variables in the call.
    fn answers_as_called(
        &self,
        answers: &Relation<'t>,
        arguments: &[PatternTerm],
        from: usize,
    ) -> Result<Relation<'t>> {
        let mut vars: Vec<Var> = Vec::new();
        let mut columns = Vec::new();
        for (at, term) in arguments.iter().enumerate() {
            if let PatternTerm::Var(var) = term
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
                PatternTerm::Constant(value) => Some((at, Cell::from_value(value))),
                _ => None,
            })
            .collect();
        let same: Vec<(usize, usize)> = arguments
            .iter()
            .enumerate()
            .filter_map(|(at, term)| match term {
                PatternTerm::Var(_) => arguments[..at]
                    .iter()
                    .position(|before| before == term)
                    .map(|before| (before, at)),
                _ => None,
            })
            .collect();
        let mut said = DistinctRows::new(vars);
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

    fn add_answers(&self, key: &RuleKey, found: &Relation<'t>) -> Result<()> {
        let mut recursion = self.recursion.borrow_mut();
        if let Some(table) = recursion.tables.get_mut(key) {
            for row in found.rows() {
                table.answers.insert(row.iter(), self.watch)?;
            }
        }
        Ok(())
    }

    /// Evaluates the demands of a group of recursive rules to a fixpoint.
    fn evaluate_group(&self, source: &Name, rule: &DatalogRule, known: &[bool]) -> Result<()> {
        if let ([_], Some(chain)) = (&rule.recursion_group[..], Chain::from_rule(rule, known)) {
            return self.evaluate_chain(source, rule, known, &chain);
        }
        let rules: Vec<Arc<DatalogRule>> = rule
            .recursion_group
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
                        .or_insert_with(|| RuleTable::new(rule.arity));
                    for demand in &mut table.demands {
                        let from = std::mem::replace(&mut demand.spread, demand.rows.len());
                        if from < demand.rows.len() {
                            asked.push((
                                rule.clone(),
                                demand.is_bound.clone(),
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
                    let start = rename_columns(&rows, &known, &branch.head);
                    let clauses = with_source(source, &branch.clauses);
                    let found = self.solve(&clauses, start, &branch.head)?;
                    self.add_answers(&key, &found)?;
                }
            }
            for (name, from) in said {
                for rule in &rules {
                    self.propagate_answers(source, rule, &name, from)?;
                }
            }
        }
    }

    /// Passes the answers of the rule `name` from `from` on through the branches of `rule` that call it.
    fn propagate_answers(
        &self,
        source: &Name,
        rule: &DatalogRule,
        name: &Name,
        from: usize,
    ) -> Result<()> {
        let key = (source.clone(), rule.name.clone());
        for branch in &rule.branches {
            let clauses = with_source(source, &branch.clauses);
            for (at, clause) in clauses.iter().enumerate() {
                let DatalogClause::Rule(call) = clause else {
                    continue;
                };
                if call.name != *name || call.source != *source {
                    continue;
                }
                let resolved = self.resolve_names(call, &Relation::unit())?;
                let call = resolved.as_ref().map_or(call, |(call, _)| call);
                let said =
                    self.stored_answers(&(source.clone(), name.clone()), &call.arguments, from)?;
                let mut rest = clauses.to_vec();
                rest.remove(at);
                let demands: Vec<Relation<'t>> = {
                    let recursion = self.recursion.borrow();
                    let table = recursion.tables.get(&key);
                    let demands = table.map(|table| &table.demands[..]).unwrap_or_default();
                    demands
                        .iter()
                        .filter(|demand| demand.rows.len() > 0)
                        .map(|demand| {
                            rename_columns(&demand.rows.relation, &demand.is_bound, &branch.head)
                        })
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
                    let found = found.semijoin(&demand, true, self.watch)?;
                    self.add_answers(&key, &found)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the demand since the last call.
    fn take_new_demand(&self, key: &RuleKey, arity: usize, known: &[bool]) -> Result<Relation<'t>> {
        let mut recursion = self.recursion.borrow_mut();
        let table = recursion
            .tables
            .entry(key.clone())
            .or_insert_with(|| RuleTable::new(arity));
        table.spread = table.answers.len();
        let demand = table.demand(known);
        let from = std::mem::replace(&mut demand.spread, demand.rows.len());
        demand.rows.relation.tail(from, self.watch)
    }

    /// Evaluates a branch on the rows that were reached last.
    fn evaluate_branch(
        &self,
        round: &mut ChainRound<'_, 't>,
        clauses: &[DatalogClause],
        head: &[Var],
        wanted: &[Var],
    ) -> Result<Relation<'t>> {
        let given = head.iter().zip(round.known).filter(|(_, known)| **known);
        let given: Vec<&Var> = given.map(|(var, _)| var).collect();
        let shape = ClauseShape::new(clauses, &given, wanted);
        let same = round
            .evaluated
            .iter()
            .find(|(other, _)| Some(other) == shape.as_ref());
        if let Some((_, found)) = same {
            return Ok(found.clone());
        }
        let start = rename_with_origins(&round.fresh, round.origins, round.known, head);
        let needed: Vec<Var> = round.origins.iter().chain(wanted).cloned().collect();
        let found = self.solve(clauses, start, &needed)?;
        round
            .evaluated
            .extend(shape.map(|shape| (shape, found.clone())));
        Ok(found)
    }

    /// Evaluates a chain rule: each reached row keeps its origin, and the answers are found once for each reached row.
    fn evaluate_chain(
        &self,
        source: &Name,
        rule: &DatalogRule,
        known: &[bool],
        chain: &Chain,
    ) -> Result<()> {
        let key = (source.clone(), rule.name.clone());
        let seeds = self.take_new_demand(&key, rule.arity, known)?;
        let origins: Vec<Var> = (0..seeds.vars.len())
            .map(|at| Var::new(format!("?@{at}")))
            .collect();
        let mut reached = DistinctRows::new(
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
            let mut round = ChainRound {
                known,
                origins: &origins,
                fresh,
                evaluated: Vec::new(),
            };
            for (at, branch) in rule.branches.iter().enumerate() {
                let mut clauses = with_source(source, &branch.clauses).into_owned();
                if let Some(call_at) = chain.calls[at] {
                    let DatalogClause::Rule(call) = clauses.remove(call_at) else {
                        continue;
                    };
                    let terms: Vec<&PatternTerm> = call
                        .arguments
                        .iter()
                        .zip(known)
                        .filter(|(_, known)| **known)
                        .map(|(term, _)| term)
                        .collect();
                    let mut wanted = Vec::new();
                    for term in &terms {
                        if let PatternTerm::Var(var) = term {
                            super::ast::push_unique(&mut wanted, var);
                        }
                    }
                    let found =
                        self.evaluate_branch(&mut round, &clauses, &branch.head, &wanted)?;
                    let column = |var: &Var| {
                        let place = wanted.iter().position(|own| own == var);
                        origins.len() + place.unwrap_or(0)
                    };
                    let constants: Vec<Option<Cell<'t>>> = terms
                        .iter()
                        .map(|term| match term {
                            PatternTerm::Constant(value) => Some(Cell::from_value(value)),
                            _ => None,
                        })
                        .collect();
                    for row in found.rows() {
                        let next = terms.iter().zip(&constants).map(|(term, constant)| {
                            match (term, constant) {
                                (PatternTerm::Var(var), _) => &row[column(var)],
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
                    let found = self.evaluate_branch(&mut round, &clauses, &branch.head, &free)?;
                    let mut answers = Relation::empty(argument_vars(rule.arity));
                    for row in found.rows() {
                        let (mut origin, mut rest) =
                            (row[..origins.len()].iter(), row[origins.len()..].iter());
                        let cells = known
                            .iter()
                            .filter_map(|known| if *known { origin.next() } else { rest.next() });
                        answers.push(cells.cloned(), self.watch)?;
                    }
                    self.add_answers(&key, &answers)?;
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

/// A round of a chain, from the rows that were reached last.
struct ChainRound<'r, 't> {
    known: &'r [bool],
    origins: &'r [Var],
    fresh: Relation<'t>,
    /// The evaluated clauses: a recursive branch often evaluates the same clauses as the base branch.
    evaluated: Vec<(ClauseShape, Relation<'t>)>,
}

/// Clauses and their wanted variables, with variables renamed by their roles, to recognize branches with the same clauses.
#[derive(PartialEq)]
struct ClauseShape {
    clauses: Vec<DatalogClause>,
    wanted: Vec<PatternTerm>,
}

impl ClauseShape {
    /// Returns `None` if a branch has other clauses than patterns and rule calls.
    fn new(clauses: &[DatalogClause], given: &[&Var], wanted: &[Var]) -> Option<Self> {
        let mut own: Vec<Var> = Vec::new();
        let mut named = |term: &PatternTerm| match term {
            PatternTerm::Var(var) => {
                let name = if let Some(at) = given.iter().position(|other| *other == var) {
                    format!("?given{at}")
                } else if let Some(at) = wanted.iter().position(|other| other == var) {
                    format!("?wanted{at}")
                } else {
                    super::ast::push_unique(&mut own, var);
                    let at = own.iter().position(|other| other == var);
                    format!("?own{}", at.unwrap_or(0))
                };
                PatternTerm::Var(Var::new(name))
            }
            other => other.clone(),
        };
        let each = clauses.iter().map(|clause| match clause {
            DatalogClause::Pattern(pattern) => Some(DatalogClause::Pattern(DatomPattern {
                source: pattern.source.clone(),
                terms: pattern.terms.iter().map(&mut named).collect(),
            })),
            DatalogClause::Rule(call) => Some(DatalogClause::Rule(RuleCall {
                source: call.source.clone(),
                name: call.name.clone(),
                arguments: call.arguments.iter().map(&mut named).collect(),
            })),
            _ => None,
        });
        let clauses = each.collect::<Option<_>>()?;
        let wanted = wanted
            .iter()
            .map(|var| named(&PatternTerm::Var(var.clone())));
        Some(Self {
            clauses,
            wanted: wanted.collect(),
        })
    }
}

/// Renames the columns of bound arguments to the variables of a branch's head.
fn rename_columns<'t>(rows: &Relation<'t>, known: &[bool], head: &[Var]) -> Relation<'t> {
    let mut named = rows.clone();
    let vars = head.iter().zip(known).filter(|(_, known)| **known);
    named.vars = vars.map(|(var, _)| var.clone()).collect();
    named
}

fn rename_with_origins<'t>(
    rows: &Relation<'t>,
    origins: &[Var],
    known: &[bool],
    head: &[Var],
) -> Relation<'t> {
    let mut renamed = rows.clone();
    let vars = head.iter().zip(known).filter(|(_, known)| **known);
    renamed.vars = origins
        .iter()
        .cloned()
        .chain(vars.map(|(var, _)| var.clone()))
        .collect();
    renamed
}

/// A rule that calls itself with new values of its bound arguments and passes on its unbound arguments unchanged. Then the
/// answers of intermediate rows need not be computed, so left- and right-recursive forms cost the same.
struct Chain {
    /// The position of the recursive call in each branch.
    calls: Vec<Option<usize>>,
}

impl Chain {
    fn from_rule(rule: &DatalogRule, known: &[bool]) -> Option<Self> {
        if !known.contains(&true) || !known.contains(&false) {
            return None;
        }
        let calls: Option<Vec<Option<usize>>> = rule
            .branches
            .iter()
            .map(|branch| Self::find_recursive_call(rule, branch, known))
            .collect();
        let calls = calls?;
        calls.iter().any(Option::is_some).then_some(Self { calls })
    }

    /// Returns the position of the recursive call in a branch, if there is one; `None` if the call does not form a chain.
    #[expect(
        clippy::option_option,
        reason = "there is no call, or none that will do"
    )]
    fn find_recursive_call(
        rule: &DatalogRule,
        branch: &RuleBranch,
        known: &[bool],
    ) -> Option<Option<usize>> {
        let mut at = None;
        for (own, clause) in branch.clauses.iter().enumerate() {
            let mut called = Vec::new();
            clause.called_rules(&mut called);
            if !called.contains(&rule.name) {
                continue;
            }
            if at.is_some() || !matches!(clause, DatalogClause::Rule(_)) {
                return None;
            }
            at = Some(own);
        }
        let Some(at) = at else {
            return Some(None);
        };
        let DatalogClause::Rule(call) = &branch.clauses[at] else {
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
                (PatternTerm::Constant(_), true) => true,
                (PatternTerm::Var(var), true) => others.contains(var) || given.contains(&var),
                (PatternTerm::Var(var), false) => {
                    let once = call
                        .arguments
                        .iter()
                        .filter(|term| **term == PatternTerm::Var(var.clone()))
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

//! Evaluation of clauses: one after the other in the order of the plan.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Instant;

use rung_edn::{Name, Value};

use super::ast::{
    Binding, CallArgument, DatalogClause, DatomPattern, FunctionCall, NotClause, OrClause,
    PatternTerm, RuleSet, Var, push_unique, substitute,
};
use super::cell::Cell;
use super::functions;
use super::names::EntityPositions;
use super::pattern::PatternScan;
use super::plan::QueryPlan;
use super::relation::{DistinctRows, Relation};
use super::rules::Recursion;
use super::star::Star;
use super::watch::QueryWatch;
use crate::db::Snapshot;
use crate::{Error, Result};

/// A source of facts.
pub(crate) enum FactSource<'t> {
    Db(Snapshot<'t>),
    /// Tuples of an input.
    Rows(InputTuples),
}

/// Tuples of a query input.
pub(crate) struct InputTuples {
    pub(crate) rows: Vec<Value>,
    /// For each column, true if it has a value that can be a lookup ref or an ident.
    pub(super) names: Vec<bool>,
}

impl InputTuples {
    pub(crate) fn new(rows: Vec<Value>) -> Self {
        let mut names = Vec::new();
        for items in rows.iter().filter_map(Value::as_sequence) {
            names.resize(names.len().max(items.len()), false);
            for (name, item) in names.iter_mut().zip(items) {
                *name |= is_name(item);
            }
        }
        Self { rows, names }
    }
}

/// Returns true if a value can be a lookup ref or an ident.
fn is_name(value: &Value) -> bool {
    matches!(value, Value::Keyword(_) | Value::Vector(_) | Value::List(_))
}

/// The state of a running query.
pub(crate) struct QueryContext<'q, 't> {
    pub(crate) sources: HashMap<Name, FactSource<'t>>,
    pub(crate) rules: RuleSet,
    pub(crate) watch: &'q QueryWatch,
    pub(crate) recursion: RefCell<Recursion<'t>>,
    pub(crate) entity_places: EntityPositions,
    /// The evaluated steps, if they are recorded.
    pub(crate) steps: Option<RefCell<Vec<PlanStep>>>,
    /// Depth of nested clauses.
    pub(crate) depth: std::cell::Cell<usize>,
}

/// An evaluated step of a plan.
#[derive(Debug, Clone)]
pub struct PlanStep {
    /// The depth of nesting in other steps.
    pub depth: usize,
    /// The clause as query text.
    pub clause: String,
    /// The evaluation method, such as `scan` or `look up`.
    pub method: &'static str,
    /// The number of evaluations.
    pub times: usize,
    /// The estimated number of rows at the first evaluation.
    pub expected: Option<usize>,
    /// The total number of rows after the step.
    pub rows: usize,
    /// The total time in microseconds.
    pub elapsed_us: u64,
}

const MAX_DEPTH: usize = 64;

fn invalid_query<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

impl<'t> QueryContext<'_, 't> {
    pub(crate) fn source(&self, name: &Name) -> Result<&FactSource<'t>> {
        self.sources
            .get(name)
            .ok_or_else(|| Error::Query(format!("the source {name} is not an input")))
    }

    pub(crate) fn snapshot(&self, name: &Name) -> Result<&Snapshot<'t>> {
        match self.source(name)? {
            FactSource::Db(moment) => Ok(moment),
            FactSource::Rows(_) => invalid_query(format!("the source {name} is not a database")),
        }
    }

    pub(crate) fn record_step(
        &self,
        clause: &DatalogClause,
        way: &'static str,
        expected: Option<usize>,
        rows: usize,
        began: Instant,
    ) {
        if let Some(steps) = &self.steps {
            let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            let (depth, clause) = (self.depth.get(), super::show::clause(clause));
            let mut steps = steps.borrow_mut();
            let same = |step: &&mut PlanStep| {
                step.depth == depth && step.clause == clause && step.method == way
            };
            // Repeated steps are summed up.
            if let Some(step) = steps.iter_mut().rev().find(same) {
                step.times += 1;
                step.rows += rows;
                step.elapsed_us += us;
                return;
            }
            steps.push(PlanStep {
                depth,
                clause,
                method: way,
                times: 1,
                expected,
                rows,
                elapsed_us: us,
            });
        }
    }

    fn with_depth<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.depth.get() == MAX_DEPTH {
            return invalid_query(format!("clauses are nested deeper than {MAX_DEPTH} levels"));
        }
        self.depth.set(self.depth.get() + 1);
        let done = f();
        self.depth.set(self.depth.get() - 1);
        done
    }

    /// Returns the rows for which the clauses hold, with the columns `needed`.
    pub(crate) fn solve(
        &self,
        clauses: &[DatalogClause],
        start: Relation<'t>,
        needed: &[Var],
    ) -> Result<Relation<'t>> {
        self.solve_by_plan(
            &mut QueryPlan::default(),
            clauses.iter().collect(),
            start,
            needed,
        )
    }

    /// Evaluates clauses by a plan, and plans again if an estimate is wrong.
    pub(crate) fn solve_by_plan<'c>(
        &self,
        plan: &mut QueryPlan<'c>,
        mut todo: Vec<&'c DatalogClause>,
        mut relation: Relation<'t>,
        needed: &[Var],
    ) -> Result<Relation<'t>> {
        while !todo.is_empty() {
            if relation.is_empty() {
                return Ok(Relation::empty(needed.to_vec()));
            }
            self.watch.check()?;
            let (at, expected) = match ready_clause(&todo, &relation, needed) {
                Some(at) => (at, None),
                None => self.next_clause(plan, &todo, &relation)?,
            };
            let began = Instant::now();
            if let Some((joined, done)) = self.join_star(&todo, at, &relation)? {
                let mut places: Vec<usize> = done;
                places.sort_unstable();
                let clauses: Vec<&DatalogClause> =
                    places.iter().rev().map(|at| todo.remove(*at)).collect();
                relation = self.drop_unneeded(joined, &todo, needed)?;
                let expected = plan.skip_done(&clauses);
                for clause in clauses.into_iter().rev() {
                    self.record_step(clause, "merge", expected, relation.len(), began);
                }
                continue;
            }
            let clause = todo.remove(at);
            let (joined, way) = self.apply_clause(clause, &todo, relation, needed)?;
            relation = self.drop_unneeded(joined, &todo, needed)?;
            self.record_step(clause, way, expected, relation.len(), began);
        }
        for var in needed {
            if relation.column(var).is_none() {
                if relation.is_empty() {
                    return Ok(Relation::empty(needed.to_vec()));
                }
                return invalid_query(format!("no clause or input binds {var}"));
            }
        }
        if relation.is_distinct && relation.vars == needed {
            return Ok(relation);
        }
        relation.project(needed, self.watch)
    }

    /// Returns the next clause, and the estimated number of rows after it.
    pub(crate) fn next_clause<'c>(
        &self,
        plan: &mut QueryPlan<'c>,
        todo: &[&'c DatalogClause],
        relation: &Relation<'t>,
    ) -> Result<(usize, Option<usize>)> {
        if !plan.is_on_track(relation.len()) {
            plan.replace_order(self.plan(todo, relation)?);
        }
        // A clause of a stored order may come too early if clauses that were merged before are now evaluated one by one.
        for is_new in [false, true] {
            let next = plan.next().and_then(|(clause, rows)| {
                let at = todo.iter().position(|own| std::ptr::eq(*own, clause))?;
                Some((at, rows)).filter(|_| self.is_possible(clause, todo, relation))
            });
            if let Some(next) = next {
                return Ok(next);
            }
            if !is_new {
                plan.replace_order(self.plan(todo, relation)?);
            }
        }
        let mut missing = Vec::new();
        for clause in todo {
            clause.vars(&mut missing);
        }
        missing.retain(|var| relation.column(var).is_none());
        let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let clause = super::show::clause(todo[0]);
        invalid_query(format!(
            "{clause} cannot be evaluated: no clause or input binds {}",
            missing.join(", ")
        ))
    }

    /// Joins several patterns of one entity at once, if the next clause is one of them. Returns the rows and these clauses.
    fn join_star(
        &self,
        todo: &[&DatalogClause],
        at: usize,
        relation: &Relation<'t>,
    ) -> Result<Option<(Relation<'t>, Vec<usize>)>> {
        let DatalogClause::Pattern(pattern) = todo[at] else {
            return Ok(None);
        };
        let FactSource::Db(moment) = self.source(&pattern.source)? else {
            return Ok(None);
        };
        let is_possible = |clause: &DatalogClause| self.is_possible(clause, todo, relation);
        let Some(star) = Star::find(moment, todo, at, relation, &is_possible)? else {
            return Ok(None);
        };
        Ok(Some((
            star.join(moment, relation, self.watch)?,
            star.clauses,
        )))
    }

    /// Drops the columns that no remaining clause needs.
    pub(crate) fn drop_unneeded(
        &self,
        relation: Relation<'t>,
        todo: &[&DatalogClause],
        needed: &[Var],
    ) -> Result<Relation<'t>> {
        let mut wanted = needed.to_vec();
        for clause in todo {
            clause.vars(&mut wanted);
        }
        let kept: Vec<Var> = relation
            .vars
            .iter()
            .filter(|var| wanted.contains(var))
            .cloned()
            .collect();
        if kept.len() == relation.vars.len() || todo.is_empty() {
            return Ok(relation);
        }
        relation.project(&kept, self.watch)
    }

    fn apply_clause(
        &self,
        clause: &DatalogClause,
        todo: &[&DatalogClause],
        relation: Relation<'t>,
        needed: &[Var],
    ) -> Result<(Relation<'t>, &'static str)> {
        match clause {
            DatalogClause::Pattern(pattern) => self.join_pattern(pattern, todo, &relation),
            DatalogClause::Predicate(call) if !is_call_bound(call, &relation) => {
                Ok((self.join_equality(call, &relation)?, "equate"))
            }
            DatalogClause::Predicate(call) => {
                let vars = relation.vars.clone();
                let kept = relation.filter(self.watch, |row| {
                    Ok(self.call_function(call, &vars, row)?.is_truthy())
                })?;
                Ok((kept, "filter"))
            }
            DatalogClause::Function(call, binding) => {
                Ok((self.join_function(call, binding, &relation)?, "compute"))
            }
            DatalogClause::Not(not) => {
                let mut all = todo.to_vec();
                all.push(clause);
                let shared = shared_vars(clause, all.len() - 1, &all, &relation, needed);
                let shared: Vec<Var> = shared
                    .into_iter()
                    .filter(|var| relation.column(var).is_some())
                    .collect();
                let mut own = Vec::new();
                clause.vars(&mut own);
                if shared.is_empty() && !own.is_empty() {
                    let clause = super::show::clause(clause);
                    return invalid_query(format!(
                        "{clause} cannot be evaluated: no other clause or input binds its variables"
                    ));
                }
                let seeds = relation.project(&shared, self.watch)?;
                let holds = self.within_negation(|| {
                    self.with_depth(|| self.solve(&not.clauses, seeds, &shared))
                })?;
                Ok((relation.semijoin(&holds, false, self.watch)?, "leave out"))
            }
            DatalogClause::Or(or) => Ok((self.join_or(or, &relation)?, "either")),
            DatalogClause::Rule(call) => {
                Ok((self.with_depth(|| self.join_rule(call, &relation))?, "rule"))
            }
        }
    }

    /// Binds a variable to the value that it must be equal to.
    fn join_equality(&self, call: &FunctionCall, relation: &Relation<'t>) -> Result<Relation<'t>> {
        let Some([one, other]) = equality(call) else {
            return invalid_query(format!("an argument of {} is not bound", call.function));
        };
        let (column, fresh) = match (relation.column(one), relation.column(other)) {
            (Some(column), _) => (column, other),
            (None, Some(column)) => (column, one),
            (None, None) => return invalid_query(format!("no clause or input binds {one}")),
        };
        let mut equated = Relation::empty(relation.vars.iter().chain([fresh]).cloned().collect());
        equated.is_distinct = relation.is_distinct;
        equated.dependencies.clone_from(&relation.dependencies);
        let known = relation.vars[column].clone();
        equated.dependencies.push((known, fresh.clone()));
        for row in relation.rows() {
            equated.push(row.iter().chain([&row[column]]).cloned(), self.watch)?;
        }
        Ok(equated)
    }

    fn join_or(&self, or: &OrClause, relation: &Relation<'t>) -> Result<Relation<'t>> {
        let shared = or.shared_vars();
        let bound: Vec<Var> = shared
            .iter()
            .filter(|var| relation.column(var).is_some())
            .cloned()
            .collect();
        let seeds = relation.project(&bound, self.watch)?;
        let mut all = DistinctRows::new(shared.clone());
        for branch in &or.branches {
            let found = self.with_depth(|| self.solve(branch, seeds.clone(), &shared))?;
            for row in found.rows() {
                all.insert(row.iter(), self.watch)?;
            }
        }
        relation.join(&all.relation, self.watch)
    }

    fn join_pattern(
        &self,
        pattern: &DatomPattern,
        todo: &[&DatalogClause],
        relation: &Relation<'t>,
    ) -> Result<(Relation<'t>, &'static str)> {
        match self.source(&pattern.source)? {
            FactSource::Db(moment) => {
                let Some(scan) = PatternScan::new(moment, pattern, relation, todo)? else {
                    let mut vars = relation.vars.clone();
                    DatalogClause::Pattern(pattern.clone()).vars(&mut vars);
                    return Ok((Relation::empty(vars), "nothing"));
                };
                let (joined, looked_up) = scan.join(relation, self.watch)?;
                Ok((joined, if looked_up { "look up" } else { "scan" }))
            }
            FactSource::Rows(given) => {
                let facts = self.match_tuples(pattern, &given.rows)?;
                Ok((relation.join(&facts, self.watch)?, "join"))
            }
        }
    }

    /// Returns the matches of a pattern in input tuples.
    pub(crate) fn match_tuples(
        &self,
        pattern: &DatomPattern,
        given: &[Value],
    ) -> Result<Relation<'t>> {
        let mut vars = Vec::new();
        DatalogClause::Pattern(pattern.clone()).vars(&mut vars);
        // Duplicate tuples count once.
        let mut facts = DistinctRows::new(vars.clone());
        'rows: for tuple in given {
            let items = functions::items(tuple)?;
            let mut cells: Vec<Option<Cell<'t>>> = vec![None; vars.len()];
            for (at, term) in pattern.terms.iter().enumerate() {
                let item = items.get(at);
                match (term, item) {
                    (PatternTerm::Blank, _) => {}
                    (_, None) => continue 'rows,
                    (PatternTerm::Constant(value), Some(item)) if value != item => continue 'rows,
                    (PatternTerm::Constant(_), _) => {}
                    (PatternTerm::Var(var), Some(item)) => {
                        let cell = Cell::from_value(item);
                        let own = vars.iter().position(|own| own == var).unwrap_or(0);
                        if cells[own].as_ref().is_some_and(|known| *known != cell) {
                            continue 'rows;
                        }
                        cells[own] = Some(cell);
                    }
                }
            }
            let cells: Vec<Cell<'t>> = cells.into_iter().flatten().collect();
            facts.insert(cells.iter(), self.watch)?;
        }
        Ok(facts.relation)
    }

    fn join_function(
        &self,
        call: &FunctionCall,
        binding: &Binding,
        relation: &Relation<'t>,
    ) -> Result<Relation<'t>> {
        let mut given = Vec::new();
        binding.vars(&mut given);
        let fresh: Vec<Var> = given
            .iter()
            .filter(|var| relation.column(var).is_none())
            .cloned()
            .collect();
        let mut vars = relation.vars.clone();
        vars.extend(fresh.iter().cloned());
        let mut extended = Relation::empty(vars);
        extended.dependencies.clone_from(&relation.dependencies);
        extended.is_distinct = relation.is_distinct && matches!(binding, Binding::Var(_));
        for row in relation.rows() {
            self.watch.step()?;
            let value = self.call_function(call, &relation.vars, row)?;
            if value.is_nil() && !matches!(binding, Binding::Ignore) {
                continue;
            }
            for found in bind_value(binding, &value)? {
                let agrees = found.iter().all(|(var, value)| match relation.column(var) {
                    Some(column) => row[column] == Cell::from_value(value),
                    None => true,
                });
                let cells = fresh.iter().map(|var| {
                    found
                        .iter()
                        .find(|(own, _)| own == var)
                        .map(|(_, value)| Cell::from_value(value))
                });
                let cells: Option<Vec<Cell<'t>>> = cells.collect();
                if let (true, Some(cells)) = (agrees && is_consistent(&found), cells) {
                    extended.push(row.iter().cloned().chain(cells), self.watch)?;
                }
            }
        }
        Ok(extended)
    }

    /// Evaluates a function call for a row.
    pub(crate) fn call_function(
        &self,
        call: &FunctionCall,
        vars: &[Var],
        row: &[Cell<'t>],
    ) -> Result<Value> {
        let of = |var: &Var| {
            let column = vars.iter().position(|own| own == var);
            let found = column.map(|column| &row[column]);
            found.ok_or_else(|| Error::Query(format!("no clause or input binds {var}")))
        };
        // Fast path: comparisons with whole numbers need no decoding.
        if let [
            CallArgument::Var(one),
            CallArgument::Constant(Value::Long(other)),
        ] = &call.arguments[..]
            && let Cell::Long(one) = of(one)?
        {
            let holds = match call.function.as_str() {
                "<" => Some(one < other),
                ">" => Some(one > other),
                "<=" => Some(one <= other),
                ">=" => Some(one >= other),
                "=" => Some(one == other),
                "not=" | "!=" => Some(one != other),
                _ => None,
            };
            if let Some(holds) = holds {
                return Ok(Value::Bool(holds));
            }
        }
        let function = if call.function.as_str().starts_with('?') {
            match of(&call.function)?.value()? {
                Value::Symbol(name) => name,
                other => {
                    return invalid_query(format!(
                        "{} is {other}, which is not the name of a function",
                        call.function
                    ));
                }
            }
        } else {
            call.function.clone()
        };
        let value = |argument: &CallArgument| match argument {
            CallArgument::Var(var) => of(var)?.value(),
            CallArgument::Constant(value) => Ok(value.clone()),
            CallArgument::Call(inner) => self.call_function(inner, vars, row),
            CallArgument::Form(form) => substitute(form, &|var| of(var)?.value()),
            CallArgument::Source(name) => {
                invalid_query(format!("{function} does not take a source, such as {name}"))
            }
        };
        match function.as_str() {
            "missing?" | "get-else" | "get-some" | "get-some-else" => {
                self.call_entity_function(&function, &call.arguments, &value)
            }
            "q" => self.call_nested_query(&call.arguments, &value),
            "idoc-match" => self.matching_documents(&call.arguments, &value),
            "fulltext" | "vec-neighbors" | "embedding-neighbors" => {
                self.search_facts(&function, &call.arguments, &value)
            }
            // Short-circuit evaluation.
            "and" | "or" => {
                let wanted = function.as_str() == "or";
                let mut last = if wanted {
                    Value::Nil
                } else {
                    Value::Bool(true)
                };
                for argument in &call.arguments {
                    last = value(argument)?;
                    if last.is_truthy() == wanted {
                        return Ok(last);
                    }
                }
                Ok(last)
            }
            _ => {
                let arguments = call
                    .arguments
                    .iter()
                    .map(value)
                    .collect::<Result<Vec<_>>>()?;
                functions::call(&function, &arguments)
            }
        }
    }

    /// Calls a function that reads an entity.
    fn call_entity_function(
        &self,
        function: &Name,
        arguments: &[CallArgument],
        value: &impl Fn(&CallArgument) -> Result<Value>,
    ) -> Result<Value> {
        let [CallArgument::Source(source), entity, rest @ ..] = arguments else {
            return invalid_query(format!("{function} takes a source and an entity"));
        };
        let moment = self.snapshot(source)?;
        let e = moment.entity_id(&value(entity)?)?;
        let rest = rest.iter().map(value).collect::<Result<Vec<_>>>()?;
        let first = |name: &Value| -> Result<Option<Value>> {
            let Some(name) = name.as_keyword() else {
                return invalid_query(format!(
                    "{name} is not an attribute; an attribute is a keyword"
                ));
            };
            let (Some(e), Some(attribute)) = (e, moment.attribute(name)) else {
                return Ok(None);
            };
            Ok(moment.values(e, attribute.id)?.into_iter().next())
        };
        match (function.as_str(), &rest[..]) {
            ("missing?", [name]) => Ok(Value::Bool(first(name)?.is_none())),
            ("get-else", [_, Value::Nil]) => {
                invalid_query("the default of get-else must not be nil")
            }
            ("get-else", [name, default]) => Ok(first(name)?.unwrap_or_else(|| default.clone())),
            ("get-some" | "get-some-else", names) => {
                let (names, default) = match names {
                    [default, names @ ..] if function.as_str() == "get-some-else" => {
                        (names, default.clone())
                    }
                    names => (names, Value::Nil),
                };
                for name in names {
                    if let Some(value) = first(name)? {
                        return Ok(Value::Vector(vec![name.clone(), value]));
                    }
                }
                Ok(default)
            }
            _ => invalid_query(format!(
                "{function} does not take {} arguments",
                arguments.len()
            )),
        }
    }

    /// Runs a nested query.
    fn call_nested_query(
        &self,
        arguments: &[CallArgument],
        value: &impl Fn(&CallArgument) -> Result<Value>,
    ) -> Result<Value> {
        let Some((first, rest)) = arguments.split_first() else {
            return invalid_query("q takes a query");
        };
        let query = super::PreparedQuery::new(&value(first)?)?;
        let inputs = rest
            .iter()
            .map(|argument| match argument {
                CallArgument::Source(name) => match self.source(name)? {
                    FactSource::Db(moment) => Ok(super::InputValue::Db(moment.clone())),
                    FactSource::Rows(given) => {
                        Ok(super::InputValue::Value(Value::Vector(given.rows.clone())))
                    }
                },
                argument => Ok(super::InputValue::Value(value(argument)?)),
            })
            .collect::<Result<Vec<_>>>()?;
        self.with_depth(|| {
            let (answer, _) = super::run_collected(&query, inputs, self.watch, None)?;
            Ok(answer.into_value())
        })
    }
}

/// Returns a clause that only filters or computes, and whose variables are bound. Such clauses are evaluated first.
pub(crate) fn ready_clause(
    todo: &[&DatalogClause],
    relation: &Relation<'_>,
    needed: &[Var],
) -> Option<usize> {
    todo.iter()
        .enumerate()
        .position(|(at, clause)| match clause {
            DatalogClause::Predicate(call) => {
                is_call_bound(call, relation) || can_equate(call, at, todo, relation)
            }
            DatalogClause::Function(call, _) => is_call_bound(call, relation),
            DatalogClause::Not(_) => shared_vars(clause, at, todo, relation, needed)
                .iter()
                .all(|var| relation.column(var).is_some()),
            _ => false,
        })
}

/// Returns the two variables of an `=` condition.
pub(crate) fn equality(call: &FunctionCall) -> Option<[&Var; 2]> {
    match &call.arguments[..] {
        [CallArgument::Var(one), CallArgument::Var(other)] if call.function.as_str() == "=" => {
            Some([one, other])
        }
        _ => None,
    }
}

/// Returns true if one of two equal variables is bound and a pattern would bind the other: binding it first lets the pattern look
/// up only matching facts.
fn can_equate(
    call: &FunctionCall,
    at: usize,
    todo: &[&DatalogClause],
    relation: &Relation<'_>,
) -> bool {
    let Some(both) = equality(call) else {
        return false;
    };
    let has = |var: &Var| relation.column(var).is_some();
    // A pattern resolves a name to its entity id, which is not equal to the name.
    let named = |column: usize| relation.rows().any(|row| row[column].is_name());
    let columns = both.iter().filter_map(|var| relation.column(var));
    if columns.into_iter().any(named) {
        return false;
    }
    let is_given = |var: &Var| {
        let mut others = todo.iter().enumerate().filter(|(other, _)| *other != at);
        others.any(|(_, clause)| {
            let mut vars = Vec::new();
            if let DatalogClause::Pattern(_) = clause {
                clause.vars(&mut vars);
            }
            vars.contains(var)
        })
    };
    both.iter().any(|var| has(var)) && both.iter().all(|var| has(var) || is_given(var))
}

/// Returns true if all variables of a call are bound.
fn is_call_bound(call: &FunctionCall, relation: &Relation<'_>) -> bool {
    let mut vars = Vec::new();
    call.vars(&mut vars);
    vars.iter().all(|var| relation.column(var).is_some())
}

/// Returns the variables that a `not` shares with the surrounding clauses.
fn shared_vars(
    clause: &DatalogClause,
    at: usize,
    todo: &[&DatalogClause],
    relation: &Relation<'_>,
    needed: &[Var],
) -> Vec<Var> {
    let mut own = Vec::new();
    clause.vars(&mut own);
    if let DatalogClause::Not(NotClause {
        vars: Some(vars), ..
    }) = clause
    {
        return vars.clone();
    }
    let mut around = needed.to_vec();
    relation
        .vars
        .iter()
        .for_each(|var| push_unique(&mut around, var));
    for (other, clause) in todo.iter().enumerate() {
        if other != at && !matches!(clause, DatalogClause::Not(_)) {
            clause.vars(&mut around);
        }
    }
    own.retain(|var| around.contains(var));
    own
}

/// Returns true if variables that occur twice have the same value.
fn is_consistent(found: &[(Var, Value)]) -> bool {
    found.iter().enumerate().all(|(at, (var, value))| {
        let before = found[..at].iter().find(|(own, _)| own == var);
        before.is_none_or(|(_, known)| known == value)
    })
}

/// Binds variables to the parts of a value. Returns one or several rows.
pub(crate) fn bind_value(binding: &Binding, value: &Value) -> Result<Vec<Vec<(Var, Value)>>> {
    match binding {
        Binding::Ignore => Ok(vec![Vec::new()]),
        Binding::Var(var) => Ok(vec![vec![(var.clone(), value.clone())]]),
        Binding::Each(inner) => {
            let mut all = Vec::new();
            for item in functions::items(value)? {
                all.extend(bind_value(inner, &item)?);
            }
            Ok(all)
        }
        Binding::Tuple(parts) => {
            let items = functions::items(value)?;
            if items.len() < parts.len() {
                return invalid_query(format!("{value} has fewer than {} items", parts.len()));
            }
            let mut all = vec![Vec::new()];
            for (part, item) in parts.iter().zip(&items) {
                let found = bind_value(part, item)?;
                let mut next = Vec::with_capacity(all.len() * found.len());
                for before in &all {
                    for one in &found {
                        let mut both: Vec<(Var, Value)> = before.clone();
                        both.extend(one.iter().cloned());
                        next.push(both);
                    }
                }
                all = next;
            }
            Ok(all)
        }
    }
}

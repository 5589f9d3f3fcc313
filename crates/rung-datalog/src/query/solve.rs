//! How clauses are made to hold together: one after the other, each time the one that leaves least.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Instant;

use rung_edn::{Name, Value};

use super::ast::{
    Argument, Binding, Call, Clause, Not, Or, Pattern, Rules, Term, Var, add, filled_in,
};
use super::cell::Cell;
use super::functions;
use super::names::EntityPlaces;
use super::pattern::Scan;
use super::plan::Plan;
use super::relation::{Distinct, Relation};
use super::rules::Recursion;
use super::star::Star;
use super::watch::Watch;
use crate::db::Moment;
use crate::{Error, Result};

/// Where facts come from.
pub(crate) enum Source<'t> {
    Db(Moment<'t>),
    /// Tuples that were given.
    Rows(Tuples),
}

/// Tuples that were given to a query.
pub(crate) struct Tuples {
    pub(crate) rows: Vec<Value>,
    /// The places of tuples where lookup refs or idents stand, or what looks like one.
    pub(super) names: Vec<bool>,
}

impl Tuples {
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

/// Whether a value can name an entity: a lookup ref or an ident.
fn is_name(value: &Value) -> bool {
    matches!(value, Value::Keyword(_) | Value::Vector(_) | Value::List(_))
}

/// Everything that a query works with.
pub(crate) struct Context<'q, 't> {
    pub(crate) sources: HashMap<Name, Source<'t>>,
    pub(crate) rules: Rules,
    pub(crate) watch: &'q Watch,
    pub(crate) recursion: RefCell<Recursion<'t>>,
    pub(crate) entity_places: EntityPlaces,
    /// What was done, where somebody wants to know.
    pub(crate) steps: Option<RefCell<Vec<Step>>>,
    /// Clauses within clauses.
    pub(crate) depth: std::cell::Cell<usize>,
}

/// A step of a plan.
#[derive(Debug, Clone)]
pub struct Step {
    /// How deep within other steps it was done.
    pub depth: usize,
    /// The clause.
    pub clause: String,
    /// In which way it was done.
    pub way: &'static str,
    /// How often it was done.
    pub times: usize,
    /// How many rows were expected, the first time.
    pub expected: Option<usize>,
    /// How many rows there were after it, over all times.
    pub rows: usize,
    /// How long it took, in microseconds, over all times.
    pub us: u64,
}

const MAX_DEPTH: usize = 64;

fn wrong<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

impl<'t> Context<'_, 't> {
    pub(crate) fn source(&self, name: &Name) -> Result<&Source<'t>> {
        self.sources
            .get(name)
            .ok_or_else(|| Error::Query(format!("the source {name} is not among the inputs")))
    }

    pub(crate) fn moment(&self, name: &Name) -> Result<&Moment<'t>> {
        match self.source(name)? {
            Source::Db(moment) => Ok(moment),
            Source::Rows(_) => wrong(format!("the source {name} is no database")),
        }
    }

    pub(crate) fn note(
        &self,
        clause: &Clause,
        way: &'static str,
        expected: Option<usize>,
        rows: usize,
        began: Instant,
    ) {
        if let Some(steps) = &self.steps {
            let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            let (depth, clause) = (self.depth.get(), super::show::clause(clause));
            let mut steps = steps.borrow_mut();
            let same =
                |step: &&mut Step| step.depth == depth && step.clause == clause && step.way == way;
            // What is done over and over is told once.
            if let Some(step) = steps.iter_mut().rev().find(same) {
                step.times += 1;
                step.rows += rows;
                step.us += us;
                return;
            }
            steps.push(Step {
                depth,
                clause,
                way,
                times: 1,
                expected,
                rows,
                us,
            });
        }
    }

    fn deeper<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.depth.get() == MAX_DEPTH {
            return wrong(format!("clauses are nested deeper than {MAX_DEPTH}"));
        }
        self.depth.set(self.depth.get() + 1);
        let done = f();
        self.depth.set(self.depth.get() - 1);
        done
    }

    /// The rows for which the clauses hold, with the variables that are needed.
    pub(crate) fn solve(
        &self,
        clauses: &[Clause],
        start: Relation<'t>,
        needed: &[Var],
    ) -> Result<Relation<'t>> {
        self.by_plan(
            &mut Plan::default(),
            clauses.iter().collect(),
            start,
            needed,
        )
    }

    /// The same by a plan, which is made anew where it does not come true.
    pub(crate) fn by_plan<'c>(
        &self,
        plan: &mut Plan<'c>,
        mut todo: Vec<&'c Clause>,
        mut relation: Relation<'t>,
        needed: &[Var],
    ) -> Result<Relation<'t>> {
        while !todo.is_empty() {
            if relation.is_empty() {
                return Ok(Relation::none(needed.to_vec()));
            }
            self.watch.look()?;
            let (at, expected) = match ready(&todo, &relation, needed) {
                Some(at) => (at, None),
                None => self.next(plan, &todo, &relation)?,
            };
            let began = Instant::now();
            if let Some((joined, done)) = self.star(&todo, at, &relation)? {
                let mut places: Vec<usize> = done;
                places.sort_unstable();
                let clauses: Vec<&Clause> =
                    places.iter().rev().map(|at| todo.remove(*at)).collect();
                relation = self.needed_later(joined, &todo, needed)?;
                let expected = plan.leave_out(&clauses);
                for clause in clauses.into_iter().rev() {
                    self.note(clause, "merge", expected, relation.len(), began);
                }
                continue;
            }
            let clause = todo.remove(at);
            let (joined, way) = self.apply(clause, &todo, relation, needed)?;
            relation = self.needed_later(joined, &todo, needed)?;
            self.note(clause, way, expected, relation.len(), began);
        }
        for var in needed {
            if relation.column(var).is_none() {
                if relation.is_empty() {
                    return Ok(Relation::none(needed.to_vec()));
                }
                return wrong(format!("nothing gives {var} a value"));
            }
        }
        if relation.distinct && relation.vars == needed {
            return Ok(relation);
        }
        relation.project(needed, self.watch)
    }

    /// Which clause is next, and how many rows there should be after it.
    pub(crate) fn next<'c>(
        &self,
        plan: &mut Plan<'c>,
        todo: &[&'c Clause],
        relation: &Relation<'t>,
    ) -> Result<(usize, Option<usize>)> {
        if !plan.holds(relation.len()) {
            plan.turn_to(self.plan(todo, relation)?);
        }
        // One that is remembered may come too early, where others are no longer done at once.
        for is_new in [false, true] {
            let next = plan.next().and_then(|(clause, rows)| {
                let at = todo.iter().position(|own| std::ptr::eq(*own, clause))?;
                Some((at, rows)).filter(|_| self.is_possible(clause, todo, relation))
            });
            if let Some(next) = next {
                return Ok(next);
            }
            if !is_new {
                plan.turn_to(self.plan(todo, relation)?);
            }
        }
        let mut missing = Vec::new();
        for clause in todo {
            clause.vars(&mut missing);
        }
        missing.retain(|var| relation.column(var).is_none());
        let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let clause = super::show::clause(todo[0]);
        wrong(format!(
            "{clause} cannot be decided: nothing gives {} a value",
            missing.join(", ")
        ))
    }

    /// Does several patterns of one entity at once, where the next one is of those. The rows, and which clauses that were.
    fn star(
        &self,
        todo: &[&Clause],
        at: usize,
        relation: &Relation<'t>,
    ) -> Result<Option<(Relation<'t>, Vec<usize>)>> {
        let Clause::Pattern(pattern) = todo[at] else {
            return Ok(None);
        };
        let Source::Db(moment) = self.source(&pattern.source)? else {
            return Ok(None);
        };
        let is_possible = |clause: &Clause| self.is_possible(clause, todo, relation);
        let Some(star) = Star::of(moment, todo, at, relation, &is_possible)? else {
            return Ok(None);
        };
        Ok(Some((
            star.join(moment, relation, self.watch)?,
            star.clauses,
        )))
    }

    /// Lets go of what nobody needs any more.
    pub(crate) fn needed_later(
        &self,
        relation: Relation<'t>,
        todo: &[&Clause],
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

    fn apply(
        &self,
        clause: &Clause,
        todo: &[&Clause],
        relation: Relation<'t>,
        needed: &[Var],
    ) -> Result<(Relation<'t>, &'static str)> {
        match clause {
            Clause::Pattern(pattern) => self.pattern(pattern, todo, &relation),
            Clause::Predicate(call) if !has_all(call, &relation) => {
                Ok((self.equated(call, &relation)?, "equate"))
            }
            Clause::Predicate(call) => {
                let vars = relation.vars.clone();
                let kept = relation.filter(self.watch, |row| {
                    Ok(self.call(call, &vars, row)?.is_truthy())
                })?;
                Ok((kept, "filter"))
            }
            Clause::Function(call, binding) => {
                Ok((self.function(call, binding, &relation)?, "compute"))
            }
            Clause::Not(not) => {
                let mut all = todo.to_vec();
                all.push(clause);
                let shared = shared(clause, all.len() - 1, &all, &relation, needed);
                let shared: Vec<Var> = shared
                    .into_iter()
                    .filter(|var| relation.column(var).is_some())
                    .collect();
                let mut own = Vec::new();
                clause.vars(&mut own);
                if shared.is_empty() && !own.is_empty() {
                    let clause = super::show::clause(clause);
                    return wrong(format!(
                        "{clause} cannot be decided: none of its variables has a value"
                    ));
                }
                let seeds = relation.project(&shared, self.watch)?;
                let holds =
                    self.negated(|| self.deeper(|| self.solve(&not.clauses, seeds, &shared)))?;
                Ok((relation.matching(&holds, false, self.watch)?, "leave out"))
            }
            Clause::Or(or) => Ok((self.or(or, &relation)?, "either")),
            Clause::Rule(call) => Ok((self.deeper(|| self.rule(call, &relation))?, "rule")),
        }
    }

    /// Gives a variable the value that it must be equal to.
    fn equated(&self, call: &Call, relation: &Relation<'t>) -> Result<Relation<'t>> {
        let Some([one, other]) = equality(call) else {
            return wrong(format!("{} is given what has no value", call.function));
        };
        let (column, fresh) = match (relation.column(one), relation.column(other)) {
            (Some(column), _) => (column, other),
            (None, Some(column)) => (column, one),
            (None, None) => return wrong(format!("nothing gives {one} a value")),
        };
        let mut equated = Relation::none(relation.vars.iter().chain([fresh]).cloned().collect());
        equated.distinct = relation.distinct;
        equated.follows.clone_from(&relation.follows);
        let known = relation.vars[column].clone();
        equated.follows.push((known, fresh.clone()));
        for row in relation.rows() {
            equated.push(row.iter().chain([&row[column]]).cloned(), self.watch)?;
        }
        Ok(equated)
    }

    fn or(&self, or: &Or, relation: &Relation<'t>) -> Result<Relation<'t>> {
        let shared = or.shared();
        let bound: Vec<Var> = shared
            .iter()
            .filter(|var| relation.column(var).is_some())
            .cloned()
            .collect();
        let seeds = relation.project(&bound, self.watch)?;
        let mut all = Distinct::new(shared.clone());
        for branch in &or.branches {
            let found = self.deeper(|| self.solve(branch, seeds.clone(), &shared))?;
            for row in found.rows() {
                all.insert(row.iter(), self.watch)?;
            }
        }
        relation.join(&all.relation, self.watch)
    }

    fn pattern(
        &self,
        pattern: &Pattern,
        todo: &[&Clause],
        relation: &Relation<'t>,
    ) -> Result<(Relation<'t>, &'static str)> {
        match self.source(&pattern.source)? {
            Source::Db(moment) => {
                let Some(scan) = Scan::new(moment, pattern, relation, todo)? else {
                    let mut vars = relation.vars.clone();
                    Clause::Pattern(pattern.clone()).vars(&mut vars);
                    return Ok((Relation::none(vars), "nothing"));
                };
                let (joined, looked_up) = scan.join(relation, self.watch)?;
                Ok((joined, if looked_up { "look up" } else { "scan" }))
            }
            Source::Rows(given) => {
                let facts = self.given_rows(pattern, &given.rows)?;
                Ok((relation.join(&facts, self.watch)?, "join"))
            }
        }
    }

    /// What a pattern finds among tuples that were given.
    pub(crate) fn given_rows(&self, pattern: &Pattern, given: &[Value]) -> Result<Relation<'t>> {
        let mut vars = Vec::new();
        Clause::Pattern(pattern.clone()).vars(&mut vars);
        // What is given twice is there once.
        let mut facts = Distinct::new(vars.clone());
        'rows: for tuple in given {
            let items = functions::items(tuple)?;
            let mut cells: Vec<Option<Cell<'t>>> = vec![None; vars.len()];
            for (at, term) in pattern.terms.iter().enumerate() {
                let item = items.get(at);
                match (term, item) {
                    (Term::Blank, _) => {}
                    (_, None) => continue 'rows,
                    (Term::Constant(value), Some(item)) if value != item => continue 'rows,
                    (Term::Constant(_), _) => {}
                    (Term::Var(var), Some(item)) => {
                        let cell = Cell::of_value(item);
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

    fn function(
        &self,
        call: &Call,
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
        let mut extended = Relation::none(vars);
        extended.follows.clone_from(&relation.follows);
        extended.distinct = relation.distinct && matches!(binding, Binding::Var(_));
        for row in relation.rows() {
            self.watch.step()?;
            let value = self.call(call, &relation.vars, row)?;
            if value.is_nil() && !matches!(binding, Binding::Ignore) {
                continue;
            }
            for found in bound(binding, &value)? {
                let agrees = found.iter().all(|(var, value)| match relation.column(var) {
                    Some(column) => row[column] == Cell::of_value(value),
                    None => true,
                });
                let cells = fresh.iter().map(|var| {
                    found
                        .iter()
                        .find(|(own, _)| own == var)
                        .map(|(_, value)| Cell::of_value(value))
                });
                let cells: Option<Vec<Cell<'t>>> = cells.collect();
                if let (true, Some(cells)) = (agrees && consistent(&found), cells) {
                    extended.push(row.iter().cloned().chain(cells), self.watch)?;
                }
            }
        }
        Ok(extended)
    }

    /// What a call gives for a row.
    pub(crate) fn call(&self, call: &Call, vars: &[Var], row: &[Cell<'t>]) -> Result<Value> {
        let of = |var: &Var| {
            let column = vars.iter().position(|own| own == var);
            let found = column.map(|column| &row[column]);
            found.ok_or_else(|| Error::Query(format!("nothing gives {var} a value")))
        };
        // The commonest conditions need nothing to be understood.
        if let [Argument::Var(one), Argument::Constant(Value::Long(other))] = &call.arguments[..]
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
                    return wrong(format!(
                        "{} is {other}, which is no function's name",
                        call.function
                    ));
                }
            }
        } else {
            call.function.clone()
        };
        let value = |argument: &Argument| match argument {
            Argument::Var(var) => of(var)?.value(),
            Argument::Constant(value) => Ok(value.clone()),
            Argument::Call(inner) => self.call(inner, vars, row),
            Argument::Form(form) => filled_in(form, &|var| of(var)?.value()),
            Argument::Source(name) => wrong(format!("{function} is not given a source, as {name}")),
        };
        match function.as_str() {
            "missing?" | "get-else" | "get-some" | "get-some-else" => {
                self.of_entity(&function, &call.arguments, &value)
            }
            "q" => self.nested(&call.arguments, &value),
            "idoc-match" => self.matching_documents(&call.arguments, &value),
            "fulltext" | "vec-neighbors" | "embedding-neighbors" => {
                self.alike(&function, &call.arguments, &value)
            }
            // What comes later is not worked out where what comes before decides.
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

    /// Functions that look at an entity.
    fn of_entity(
        &self,
        function: &Name,
        arguments: &[Argument],
        value: &impl Fn(&Argument) -> Result<Value>,
    ) -> Result<Value> {
        let [Argument::Source(source), entity, rest @ ..] = arguments else {
            return wrong(format!("{function} is given a source and an entity"));
        };
        let moment = self.moment(source)?;
        let e = moment.entity_id(&value(entity)?)?;
        let rest = rest.iter().map(value).collect::<Result<Vec<_>>>()?;
        let first = |name: &Value| -> Result<Option<Value>> {
            let Some(name) = name.as_keyword() else {
                return wrong(format!("{name} is no attribute: it is a keyword"));
            };
            let (Some(e), Some(attribute)) = (e, moment.attribute(name)) else {
                return Ok(None);
            };
            Ok(moment.values(e, attribute.id)?.into_iter().next())
        };
        match (function.as_str(), &rest[..]) {
            ("missing?", [name]) => Ok(Value::Bool(first(name)?.is_none())),
            ("get-else", [_, Value::Nil]) => wrong("get-else has a default that is something"),
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
            _ => wrong(format!(
                "{function} cannot be called with {} arguments",
                arguments.len()
            )),
        }
    }

    /// A query within a query.
    fn nested(
        &self,
        arguments: &[Argument],
        value: &impl Fn(&Argument) -> Result<Value>,
    ) -> Result<Value> {
        let Some((first, rest)) = arguments.split_first() else {
            return wrong("q is given a query");
        };
        let query = super::Prepared::new(&value(first)?)?;
        let inputs = rest
            .iter()
            .map(|argument| match argument {
                Argument::Source(name) => match self.source(name)? {
                    Source::Db(moment) => Ok(super::Given::Db(moment.clone())),
                    Source::Rows(given) => {
                        Ok(super::Given::Value(Value::Vector(given.rows.clone())))
                    }
                },
                argument => Ok(super::Given::Value(value(argument)?)),
            })
            .collect::<Result<Vec<_>>>()?;
        self.deeper(|| {
            let (answer, _) = super::collected(&query, inputs, self.watch, None)?;
            Ok(answer.into_value())
        })
    }
}

/// A clause that only takes away, or works out, and can do so: which is done before anything else.
pub(crate) fn ready(todo: &[&Clause], relation: &Relation<'_>, needed: &[Var]) -> Option<usize> {
    todo.iter()
        .enumerate()
        .position(|(at, clause)| match clause {
            Clause::Predicate(call) => {
                has_all(call, relation) || can_equate(call, at, todo, relation)
            }
            Clause::Function(call, _) => has_all(call, relation),
            Clause::Not(_) => shared(clause, at, todo, relation, needed)
                .iter()
                .all(|var| relation.column(var).is_some()),
            _ => false,
        })
}

/// The two variables that must be equal, where that is what a condition says.
pub(crate) fn equality(call: &Call) -> Option<[&Var; 2]> {
    match &call.arguments[..] {
        [Argument::Var(one), Argument::Var(other)] if call.function.as_str() == "=" => {
            Some([one, other])
        }
        _ => None,
    }
}

/// Whether one of two variables that must be equal has a value, and the other would be given one by something else: then what is equal is
/// found, instead of everything that may be.
fn can_equate(call: &Call, at: usize, todo: &[&Clause], relation: &Relation<'_>) -> bool {
    let Some(both) = equality(call) else {
        return false;
    };
    let has = |var: &Var| relation.column(var).is_some();
    // A pattern takes a name for its entity, which is not equal to the name.
    let named = |column: usize| relation.rows().any(|row| row[column].is_name());
    let columns = both.iter().filter_map(|var| relation.column(var));
    if columns.into_iter().any(named) {
        return false;
    }
    let is_given = |var: &Var| {
        let mut others = todo.iter().enumerate().filter(|(other, _)| *other != at);
        others.any(|(_, clause)| {
            let mut vars = Vec::new();
            if let Clause::Pattern(_) = clause {
                clause.vars(&mut vars);
            }
            vars.contains(var)
        })
    };
    both.iter().any(|var| has(var)) && both.iter().all(|var| has(var) || is_given(var))
}

/// Whether everything that a call is given has a value.
fn has_all(call: &Call, relation: &Relation<'_>) -> bool {
    let mut vars = Vec::new();
    call.vars(&mut vars);
    vars.iter().all(|var| relation.column(var).is_some())
}

/// The variables that a `not` shares with what is around it.
fn shared(
    clause: &Clause,
    at: usize,
    todo: &[&Clause],
    relation: &Relation<'_>,
    needed: &[Var],
) -> Vec<Var> {
    let mut own = Vec::new();
    clause.vars(&mut own);
    if let Clause::Not(Not {
        vars: Some(vars), ..
    }) = clause
    {
        return vars.clone();
    }
    let mut around = needed.to_vec();
    relation.vars.iter().for_each(|var| add(&mut around, var));
    for (other, clause) in todo.iter().enumerate() {
        if other != at && !matches!(clause, Clause::Not(_)) {
            clause.vars(&mut around);
        }
    }
    own.retain(|var| around.contains(var));
    own
}

/// Whether a variable that is given twice is given the same.
fn consistent(found: &[(Var, Value)]) -> bool {
    found.iter().enumerate().all(|(at, (var, value))| {
        let before = found[..at].iter().find(|(own, _)| own == var);
        before.is_none_or(|(_, known)| known == value)
    })
}

/// The values that a value gives to variables, once or several times.
pub(crate) fn bound(binding: &Binding, value: &Value) -> Result<Vec<Vec<(Var, Value)>>> {
    match binding {
        Binding::Ignore => Ok(vec![Vec::new()]),
        Binding::Var(var) => Ok(vec![vec![(var.clone(), value.clone())]]),
        Binding::Each(inner) => {
            let mut all = Vec::new();
            for item in functions::items(value)? {
                all.extend(bound(inner, &item)?);
            }
            Ok(all)
        }
        Binding::Tuple(parts) => {
            let items = functions::items(value)?;
            if items.len() < parts.len() {
                return wrong(format!("{value} has fewer than {} parts", parts.len()));
            }
            let mut all = vec![Vec::new()];
            for (part, item) in parts.iter().zip(&items) {
                let found = bound(part, item)?;
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

//! Queries: from a question as data to its answer.

mod aggregates;
mod ast;
mod cell;
mod documents;
mod find;
mod functions;
mod likeness;
mod names;
mod parse;
mod pattern;
mod pieces;
mod plan;
mod prepared;
mod relation;
mod rules;
mod show;
mod solve;
mod star;
mod watch;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rung_edn::{Name, Value};

use ast::{Binding, Clause, Input, Pattern, Query, Rules, Term, Var};
use cell::Cell;
pub use find::{Answer, Head};
use find::{Finder, Window};
use names::EntityPlaces;
pub(crate) use prepared::Asked;
use prepared::Prepared;
use relation::Relation;
pub use solve::Step;
use solve::{Context, Source, Tuples, bound};
pub(crate) use watch::{Held, Watch};

use crate::db::{Db, Moment};
use crate::{Error, Result};

pub(crate) use functions::call as call_function;

/// The bounds of a query.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// How long it may take, unless it says less itself.
    pub max_ms: Option<u64>,
    /// Bytes of memory that it may have.
    pub max_bytes: usize,
    /// Set by whoever does not wait any longer.
    pub cancelled: Option<Arc<AtomicBool>>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max_ms: None,
            max_bytes: 1 << 30,
            cancelled: None,
        }
    }
}

impl Bounds {
    /// Begins to keep to them.
    pub(crate) fn watch(&self) -> Watch {
        Watch::new(self.max_ms, self.max_bytes, self.cancelled.clone())
    }
}

/// What is given to a query.
pub(crate) enum Given<'t> {
    Db(Moment<'t>),
    Value(Value),
}

impl Db {
    /// Answers a query. `$` is this database; everything else that it takes in is among `inputs`, in their order.
    pub fn query(&self, query: &Value, inputs: &[Value], bounds: &Bounds) -> Result<Answer> {
        let query = self.asked().prepare(query)?;
        self.read(|moment| Ok(run(moment, &query, inputs, bounds, false)?.0))
    }

    /// What the rows of a query's answer are.
    pub fn head(&self, query: &Value) -> Result<Head> {
        Ok(Head::of(&self.asked().prepare(query)?.query))
    }

    /// Facts by the words of their texts, the best first: entity, attribute, value, and what the options ask for beside them.
    pub fn fulltext(
        &self,
        wanted: &Value,
        options: &Value,
        bounds: &Bounds,
    ) -> Result<Vec<Vec<Value>>> {
        let watch = bounds.watch();
        self.read(|moment| likeness::texts(moment, (None, wanted.clone(), options.clone()), &watch))
    }

    /// Answers a query, and says how that was done.
    pub fn explain(
        &self,
        query: &Value,
        inputs: &[Value],
        bounds: &Bounds,
    ) -> Result<(Answer, Vec<Step>)> {
        let query = self.asked().prepare(query)?;
        self.read(|moment| run(moment, &query, inputs, bounds, true))
    }

    /// Answers a query row by row, while the rest is still being found, and all of one moment. `visit` is told what the rows are,
    /// and says whether more of them are wanted.
    ///
    /// Only what must be known as a whole is in memory: groups, what is to be brought into order, and rows that were seen where the
    /// same could be found twice.
    pub fn each_row(
        &self,
        query: &Value,
        inputs: &[Value],
        bounds: &Bounds,
        visit: &mut dyn FnMut(&Head, Vec<Value>) -> Result<bool>,
    ) -> Result<Head> {
        let query = self.asked().prepare(query)?;
        let head = Head::of(&query.query);
        self.read(|moment| {
            let (given, watch) = given(moment, &query.query, inputs, bounds)?;
            answer(&query, given, &watch, None, true, &mut |row| {
                visit(&head, row)
            })?;
            Ok(())
        })?;
        Ok(head)
    }
}

fn run(
    moment: &Moment<'_>,
    query: &Prepared,
    inputs: &[Value],
    bounds: &Bounds,
    explain: bool,
) -> Result<(Answer, Vec<Step>)> {
    let (given, watch) = given(moment, &query.query, inputs, bounds)?;
    let steps = explain.then(|| RefCell::new(Vec::new()));
    collected(query, given, &watch, steps)
}

/// Answers a query from what is given.
pub(crate) fn collected(
    query: &Prepared,
    given: Vec<Given<'_>>,
    watch: &Watch,
    steps: Option<RefCell<Vec<Step>>>,
) -> Result<(Answer, Vec<Step>)> {
    let mut rows = Vec::new();
    let steps = answer(query, given, watch, steps, false, &mut |row| {
        rows.push(row);
        Ok(true)
    })?;
    let head = Head::of(&query.query);
    Ok((Answer { head, rows }, steps))
}

/// What a query is given, and the bounds that it keeps to.
fn given<'t>(
    moment: &Moment<'t>,
    query: &Query,
    inputs: &[Value],
    bounds: &Bounds,
) -> Result<(Vec<Given<'t>>, Watch)> {
    let mut rest = inputs.iter();
    let mut given = Vec::new();
    for input in &query.inputs {
        match input {
            Input::Source(name) if name.as_str() == "$" => given.push(Given::Db(moment.clone())),
            _ => match rest.next() {
                Some(value) => given.push(Given::Value(value.clone())),
                None => break,
            },
        }
    }
    let wanted = query.inputs.len();
    if given.len() < wanted || rest.next().is_some() {
        let others = wanted
            - query
                .inputs
                .iter()
                .filter(|input| matches!(input, Input::Source(name) if name.as_str() == "$"))
                .count();
        return Err(Error::Query(format!(
            "the query takes in {others} values beside the database, and {} were given",
            inputs.len()
        )));
    }
    let max_ms = match (query.timeout_ms, bounds.max_ms) {
        (Some(own), Some(most)) => Some(own.min(most)),
        (own, most) => own.or(most),
    };
    let bounds = Bounds {
        max_ms,
        ..bounds.clone()
    };
    Ok((given, bounds.watch()))
}

/// Finds the rows of an answer, and gives them to `taker`: as they are found where `flows`, or where not all of them are wanted.
fn answer(
    prepared: &Prepared,
    given: Vec<Given<'_>>,
    watch: &Watch,
    steps: Option<RefCell<Vec<Step>>>,
    flows: bool,
    taker: &mut dyn FnMut(Vec<Value>) -> Result<bool>,
) -> Result<Vec<Step>> {
    let query = &prepared.query;
    let mut context = Context {
        sources: HashMap::new(),
        rules: Rules::default(),
        watch,
        recursion: RefCell::default(),
        entity_places: EntityPlaces::default(),
        steps,
        depth: std::cell::Cell::new(0),
    };
    let mut single: Vec<(Var, Value)> = Vec::new();
    let mut clauses = query.clauses.clone();
    let mut nothing = false;
    for (at, (input, given)) in query.inputs.iter().zip(given).enumerate() {
        match (input, given) {
            (Input::Source(name), Given::Db(moment)) => {
                context.sources.insert(name.clone(), Source::Db(moment));
            }
            (Input::Source(name), Given::Value(value)) => {
                context.sources.insert(
                    name.clone(),
                    Source::Rows(Tuples::new(functions::items(&value)?)),
                );
            }
            (Input::Rules, Given::Value(value)) => {
                context.rules = parse::rules(&value)?.flattened();
            }
            (Input::Binding(binding), Given::Value(value)) => {
                let rows = bound(binding, &value)?;
                match (&rows[..], binding) {
                    ([row], _) => single.extend(row.iter().cloned()),
                    ([], _) => nothing = true,
                    (rows, binding) => {
                        let (source, pattern) = as_source(at, binding, rows);
                        context.sources.insert(pattern.source.clone(), source);
                        clauses.push(Clause::Pattern(pattern));
                    }
                }
            }
            (Input::Rules | Input::Binding(_), Given::Db(_)) => {
                return Err(Error::Query(
                    "a database is given where the query takes in a value".to_owned(),
                ));
            }
        }
    }
    let mut start = Relation::unit();
    let is_var = |(name, _): &&(Var, Value)| name.as_str().starts_with('?');
    if single.iter().any(|pair| is_var(&pair)) {
        let mut vars: Vec<Var> = Vec::new();
        let mut cells = Vec::new();
        for (var, value) in single.iter().filter(is_var) {
            if !vars.contains(var) {
                vars.push(var.clone());
                cells.push(Cell::of_value(value));
            }
        }
        start = Relation::none(vars);
        start.push(cells, watch)?;
        start.distinct = true;
    }
    let needed = find::needed(query);
    let mut window = Window::of(query, &single)?;
    let mut finder = Finder::new(&context, query, &needed, &single);
    let mut plan = prepared.plan(&clauses);
    let is_one = Head::of(query).is_one();
    if is_one {
        window.limit = Some(window.limit.unwrap_or(1).min(1));
    }
    if nothing {
        start = Relation::none(Vec::new());
    }
    if finder.is_row_by_row() && (flows || window.limit.is_some()) {
        let (mut left_out, mut wanted) = (window.offset, window.limit.unwrap_or(usize::MAX));
        context.in_pieces(&mut plan, &clauses, start, &needed, &mut |found| {
            for row in found.rows() {
                if left_out > 0 {
                    left_out -= 1;
                    continue;
                }
                if wanted == 0 || !taker(finder.row(row)?)? {
                    return Ok(false);
                }
                wanted -= 1;
            }
            Ok(wanted > 0)
        })?;
    } else {
        let found = context.by_plan(&mut plan, clauses.iter().collect(), start, &needed)?;
        prepared.learn(&clauses, &plan);
        for row in finder.rows(&found, &window)? {
            if !taker(row)? {
                break;
            }
        }
    }
    let steps = context.steps.take();
    Ok(steps.map(RefCell::into_inner).unwrap_or_default())
}

/// Rows that were given, as facts to be found.
fn as_source<'t>(
    at: usize,
    binding: &Binding,
    rows: &[Vec<(Var, Value)>],
) -> (Source<'t>, Pattern) {
    let mut vars = Vec::new();
    binding.vars(&mut vars);
    let tuple = |row: &Vec<(Var, Value)>| {
        let of = |var: &Var| {
            row.iter()
                .find(|(own, _)| own == var)
                .map_or(Value::Nil, |(_, value)| value.clone())
        };
        Value::Vector(vars.iter().map(of).collect())
    };
    let pattern = Pattern {
        source: Name::new(format!("$#{at}")),
        terms: vars.iter().cloned().map(Term::Var).collect(),
    };
    let tuples = Tuples::new(rows.iter().map(tuple).collect());
    (Source::Rows(tuples), pattern)
}

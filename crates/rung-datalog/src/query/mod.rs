//! Queries: from a question as data to its answer.

mod aggregates;
mod ast;
mod cell;
mod find;
mod functions;
mod parse;
mod pattern;
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
pub use find::Answer;
use relation::Relation;
pub use solve::Step;
use solve::{Context, Source, bound};
use watch::Watch;

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

/// What is given to a query.
pub(crate) enum Given<'t> {
    Db(Moment<'t>),
    Value(Value),
}

impl Db {
    /// Answers a query. `$` is this database; everything else that it takes in is among `inputs`, in their order.
    pub fn query(&self, query: &Value, inputs: &[Value], bounds: &Bounds) -> Result<Answer> {
        let query = parse::query(query)?;
        self.read(|moment| Ok(run(moment, &query, inputs, bounds, false)?.0))
    }

    /// Answers a query, and says how that was done.
    pub fn explain(
        &self,
        query: &Value,
        inputs: &[Value],
        bounds: &Bounds,
    ) -> Result<(Answer, Vec<Step>)> {
        let query = parse::query(query)?;
        self.read(|moment| run(moment, &query, inputs, bounds, true))
    }
}

fn run(
    moment: &Moment<'_>,
    query: &Query,
    inputs: &[Value],
    bounds: &Bounds,
    explain: bool,
) -> Result<(Answer, Vec<Step>)> {
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
    let watch = Watch::new(max_ms, bounds.max_bytes, bounds.cancelled.clone());
    let steps = explain.then(|| RefCell::new(Vec::new()));
    answer(query, given, &watch, steps)
}

/// Answers a query from what is given.
pub(crate) fn answer(
    query: &Query,
    given: Vec<Given<'_>>,
    watch: &Watch,
    steps: Option<RefCell<Vec<Step>>>,
) -> Result<(Answer, Vec<Step>)> {
    let mut context = Context {
        sources: HashMap::new(),
        rules: Rules::default(),
        watch,
        recursion: RefCell::default(),
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
                context
                    .sources
                    .insert(name.clone(), Source::Rows(functions::items(&value)?));
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
    let found = if nothing {
        Relation::none(needed.clone())
    } else {
        context.solve(&clauses, start, &needed)?
    };
    let answer = find::answer(&context, query, &found, &single)?;
    let steps = context
        .steps
        .take()
        .map(RefCell::into_inner)
        .unwrap_or_default();
    Ok((answer, steps))
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
    (Source::Rows(rows.iter().map(tuple).collect()), pattern)
}

//! Queries: parsing, planning and evaluation of a Datalog query.

mod aggregates;
mod ast;
mod cell;
mod documents;
mod find;
mod functions;
mod names;
mod parse;
mod pattern;
mod plan;
mod prepared;
mod relation;
mod rules;
mod search_functions;
mod show;
mod solve;
mod star;
mod streaming;
mod watch;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rung_edn::{Name, Value};

use ast::{
    Binding, DatalogClause, DatomPattern, ParsedQuery, PatternTerm, QueryInput, RuleSet, Var,
};
use cell::Cell;
pub use find::{QueryResult, QueryResultHeader};
use find::{ResultBuilder, RowWindow};
use names::EntityPositions;
pub use parse::read_query;
use prepared::PreparedQuery;
pub(crate) use prepared::QueryCache;
use relation::Relation;
pub use solve::PlanStep;
use solve::{FactSource, InputTuples, QueryContext, bind_value};
pub(crate) use watch::{MemoryReservation, QueryWatch};

use crate::db::{Db, Snapshot};
use crate::{Error, Result};

pub(crate) use functions::call as call_function;

/// The limits of a query.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// The time limit in milliseconds. A shorter `:timeout` of the query takes precedence.
    pub max_ms: Option<u64>,
    /// The memory limit in bytes.
    pub max_bytes: usize,
    /// The caller sets this flag to cancel the query.
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
    /// Starts to enforce the limits.
    pub(crate) fn start_watch(&self) -> QueryWatch {
        QueryWatch::new(self.max_ms, self.max_bytes, self.cancelled.clone())
    }
}

/// The value of a query input.
pub(crate) enum InputValue<'t> {
    Db(Snapshot<'t>),
    Value(Value),
}

impl Db {
    /// Runs a query. `$` is this database; `inputs` are the values of all other inputs, in their order.
    pub fn query(&self, query: &Value, inputs: &[Value], bounds: &Bounds) -> Result<QueryResult> {
        let query = self.query_cache().prepare(query)?;
        self.read(|moment| Ok(run(moment, &query, inputs, bounds, false)?.0))
    }

    /// Returns the header of a query's result without running the query.
    pub fn head(&self, query: &Value) -> Result<QueryResultHeader> {
        Ok(QueryResultHeader::from_query(
            &self.query_cache().prepare(query)?.query,
        ))
    }

    /// Returns facts by the words of their texts, the best first: entity, attribute, value, and the columns that the options
    /// request.
    pub fn fulltext(
        &self,
        wanted: &Value,
        options: &Value,
        bounds: &Bounds,
    ) -> Result<Vec<Vec<Value>>> {
        let watch = bounds.start_watch();
        self.read(|moment| {
            search_functions::search_texts(moment, (None, wanted.clone(), options.clone()), &watch)
        })
    }

    /// Runs a query, and returns the steps of its plan.
    pub fn explain(
        &self,
        query: &Value,
        inputs: &[Value],
        bounds: &Bounds,
    ) -> Result<(QueryResult, Vec<PlanStep>)> {
        let query = self.query_cache().prepare(query)?;
        self.read(|moment| run(moment, &query, inputs, bounds, true))
    }

    /// Runs a query on one snapshot, and calls `visit` with each row as soon as it is found, until `visit` returns false.
    ///
    /// Only these rows are held in memory: groups, rows to be sorted, and visited rows if the query can find a row twice.
    pub fn visit_rows(
        &self,
        query: &Value,
        inputs: &[Value],
        bounds: &Bounds,
        visit: &mut dyn FnMut(&QueryResultHeader, Vec<Value>) -> Result<bool>,
    ) -> Result<QueryResultHeader> {
        let query = self.query_cache().prepare(query)?;
        let head = QueryResultHeader::from_query(&query.query);
        self.read(|moment| {
            let (given, watch) = bind_inputs(moment, &query.query, inputs, bounds)?;
            run_visiting(&query, given, &watch, None, true, &mut |row| {
                visit(&head, row)
            })?;
            Ok(())
        })?;
        Ok(head)
    }
}

fn run(
    moment: &Snapshot<'_>,
    query: &PreparedQuery,
    inputs: &[Value],
    bounds: &Bounds,
    explain: bool,
) -> Result<(QueryResult, Vec<PlanStep>)> {
    let (given, watch) = bind_inputs(moment, &query.query, inputs, bounds)?;
    let steps = explain.then(|| RefCell::new(Vec::new()));
    run_collected(query, given, &watch, steps)
}

/// Runs a query on the values of its inputs, and collects all rows.
pub(crate) fn run_collected(
    query: &PreparedQuery,
    given: Vec<InputValue<'_>>,
    watch: &QueryWatch,
    steps: Option<RefCell<Vec<PlanStep>>>,
) -> Result<(QueryResult, Vec<PlanStep>)> {
    let mut rows = Vec::new();
    let steps = run_visiting(query, given, watch, steps, false, &mut |row| {
        rows.push(row);
        Ok(true)
    })?;
    let head = QueryResultHeader::from_query(&query.query);
    Ok((QueryResult { head, rows }, steps))
}

/// Assigns values to the inputs of a query, and starts to enforce its limits.
fn bind_inputs<'t>(
    moment: &Snapshot<'t>,
    query: &ParsedQuery,
    inputs: &[Value],
    bounds: &Bounds,
) -> Result<(Vec<InputValue<'t>>, QueryWatch)> {
    let mut rest = inputs.iter();
    let mut given = Vec::new();
    for input in &query.inputs {
        match input {
            QueryInput::Source(name) if name.as_str() == "$" => {
                given.push(InputValue::Db(moment.clone()));
            }
            _ => match rest.next() {
                Some(value) => given.push(InputValue::Value(value.clone())),
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
                .filter(|input| matches!(input, QueryInput::Source(name) if name.as_str() == "$"))
                .count();
        return Err(Error::Query(format!(
            "the query takes {others} inputs besides the database; {} were passed",
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
    Ok((given, bounds.start_watch()))
}

/// Runs a query and calls `taker` with each row. Streams the rows as they are found if `flows`, or if the query has a limit.
fn run_visiting(
    prepared: &PreparedQuery,
    given: Vec<InputValue<'_>>,
    watch: &QueryWatch,
    steps: Option<RefCell<Vec<PlanStep>>>,
    flows: bool,
    taker: &mut dyn FnMut(Vec<Value>) -> Result<bool>,
) -> Result<Vec<PlanStep>> {
    let query = &prepared.query;
    let mut context = QueryContext {
        sources: HashMap::new(),
        rules: RuleSet::default(),
        watch,
        recursion: RefCell::default(),
        entity_places: EntityPositions::default(),
        steps,
        depth: std::cell::Cell::new(0),
    };
    let mut single: Vec<(Var, Value)> = Vec::new();
    let mut clauses = query.clauses.clone();
    let mut nothing = false;
    for (at, (input, given)) in query.inputs.iter().zip(given).enumerate() {
        match (input, given) {
            (QueryInput::Source(name), InputValue::Db(moment)) => {
                context.sources.insert(name.clone(), FactSource::Db(moment));
            }
            (QueryInput::Source(name), InputValue::Value(value)) => {
                context.sources.insert(
                    name.clone(),
                    FactSource::Rows(InputTuples::new(functions::items(&value)?)),
                );
            }
            (QueryInput::Rules, InputValue::Value(value)) => {
                context.rules = parse::rules(&value)?.flatten();
            }
            (QueryInput::Binding(binding), InputValue::Value(value)) => {
                let rows = bind_value(binding, &value)?;
                match (&rows[..], binding) {
                    ([row], _) => single.extend(row.iter().cloned()),
                    ([], _) => nothing = true,
                    (rows, binding) => {
                        let (source, pattern) = as_source(at, binding, rows);
                        context.sources.insert(pattern.source.clone(), source);
                        clauses.push(DatalogClause::Pattern(pattern));
                    }
                }
            }
            (QueryInput::Rules | QueryInput::Binding(_), InputValue::Db(_)) => {
                return Err(Error::Query(
                    "a database was passed for an input that takes a value".to_owned(),
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
                cells.push(Cell::from_value(value));
            }
        }
        start = Relation::empty(vars);
        start.push(cells, watch)?;
        start.is_distinct = true;
    }
    let needed = find::result_vars(query);
    let mut window = RowWindow::from_query(query, &single)?;
    let mut finder = ResultBuilder::new(&context, query, &needed, &single);
    let mut plan = prepared.plan(&clauses);
    let is_one = QueryResultHeader::from_query(query).is_one();
    if is_one {
        window.limit = Some(window.limit.unwrap_or(1).min(1));
    }
    if nothing {
        start = Relation::empty(Vec::new());
    }
    if finder.is_row_by_row() && (flows || window.limit.is_some()) {
        let (mut left_out, mut wanted) = (window.offset, window.limit.unwrap_or(usize::MAX));
        context.solve_streaming(&mut plan, &clauses, start, &needed, &mut |found| {
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
        let found = context.solve_by_plan(&mut plan, clauses.iter().collect(), start, &needed)?;
        prepared.store_order(&clauses, &plan);
        for row in finder.rows(&found, &window)? {
            if !taker(row)? {
                break;
            }
        }
    }
    let steps = context.steps.take();
    Ok(steps.map(RefCell::into_inner).unwrap_or_default())
}

/// Converts the rows of an input to a source of facts and a pattern that matches them.
fn as_source<'t>(
    at: usize,
    binding: &Binding,
    rows: &[Vec<(Var, Value)>],
) -> (FactSource<'t>, DatomPattern) {
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
    let pattern = DatomPattern {
        source: Name::new(format!("$#{at}")),
        terms: vars.iter().cloned().map(PatternTerm::Var).collect(),
    };
    let tuples = InputTuples::new(rows.iter().map(tuple).collect());
    (FactSource::Rows(tuples), pattern)
}

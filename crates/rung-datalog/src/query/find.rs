//! From rows to the result of a query: groups, order, limits and the form of the result.

use std::cmp::Ordering;
use std::collections::HashMap;

use rung_edn::{Map, Set, Value};

use super::aggregates::aggregate;
use super::ast::{CallArgument, FindElement, FindSpec, ParsedQuery, PullPattern, RowCount, Var};
use super::cell::Cell;
use super::functions;
use super::parse::element_vars;
use super::relation::{Relation, RowGroups};
use super::solve::QueryContext;
use crate::pull::Puller;
use crate::{Error, Result};

/// The result of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryResult {
    pub head: QueryResultHeader,
    /// The rows; in order if the query has one.
    pub rows: Vec<Vec<Value>>,
}

/// The columns and the form of a query result.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryResultHeader {
    /// The columns, as they are written in the query.
    pub columns: Vec<String>,
    /// The keys of the columns, if each row is returned as a map.
    keys: Option<Vec<Value>>,
    form: ResultForm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResultForm {
    Set,
    List,
    Collection,
    Tuple,
    Scalar,
}

impl QueryResult {
    /// Converts the result to the form that the query asks for.
    pub fn into_value(self) -> Value {
        let head = self.head;
        let mut rows = self.rows.into_iter().map(|row| head.row(row));
        match head.form {
            ResultForm::Set => Value::Set(rows.collect::<Set>()),
            ResultForm::List | ResultForm::Collection => Value::Vector(rows.collect()),
            ResultForm::Tuple | ResultForm::Scalar => rows.next().unwrap_or(Value::Nil),
        }
    }
}

impl QueryResultHeader {
    pub(crate) fn from_query(query: &ParsedQuery) -> Self {
        let elements = query.find.elements();
        let pulled = |element: &FindElement| matches!(element, FindElement::Pull { .. });
        let ordered = !query.order.is_empty() || query.limit.is_some() || query.offset.is_some();
        let several = elements.iter().any(is_aggregate)
            || elements.iter().any(pulled)
            || !query.with.is_empty();
        let listed = ordered || (several && query.keys.is_none());
        Self {
            columns: elements.iter().map(column_name).collect(),
            keys: query.keys.clone(),
            form: match query.find {
                FindSpec::Relation(_) if listed => ResultForm::List,
                FindSpec::Relation(_) => ResultForm::Set,
                FindSpec::Collection(_) => ResultForm::Collection,
                FindSpec::Tuple(_) => ResultForm::Tuple,
                FindSpec::Scalar(_) => ResultForm::Scalar,
            },
        }
    }

    /// Converts a row to the form that the query asks for.
    pub fn row(&self, row: Vec<Value>) -> Value {
        match (self.form, &self.keys) {
            (ResultForm::Collection | ResultForm::Scalar, _) => {
                row.into_iter().next().unwrap_or(Value::Nil)
            }
            (_, Some(keys)) => Value::Map(keys.iter().cloned().zip(row).collect::<Map>()),
            _ => Value::Vector(row),
        }
    }

    /// Returns true if the rows are a set without order.
    pub fn is_set(&self) -> bool {
        self.form == ResultForm::Set
    }

    /// Returns true if the query asks for the first row only.
    pub fn is_one(&self) -> bool {
        matches!(self.form, ResultForm::Tuple | ResultForm::Scalar)
    }
}

/// Returns the variables that the result depends on.
pub(crate) fn result_vars(query: &ParsedQuery) -> Vec<Var> {
    let mut vars = Vec::new();
    for element in query.find.elements() {
        element_vars(element, &mut vars);
    }
    for condition in &query.having {
        condition
            .arguments
            .iter()
            .for_each(|element| element_vars(element, &mut vars));
    }
    for var in &query.with {
        super::ast::push_unique(&mut vars, var);
    }
    vars
}

fn is_aggregate(element: &FindElement) -> bool {
    matches!(
        element,
        FindElement::Aggregate(_) | FindElement::Arithmetic(..)
    )
}

/// The number of rows to skip, and the number of rows to return after them.
pub(crate) struct RowWindow {
    pub(crate) offset: usize,
    pub(crate) limit: Option<usize>,
}

impl RowWindow {
    pub(crate) fn from_query(query: &ParsedQuery, given: &[(Var, Value)]) -> Result<Self> {
        let number = |count: &Option<RowCount>| match count {
            None => Ok(None),
            Some(RowCount::Number(number)) => Ok(Some(*number)),
            Some(RowCount::Var(var)) => {
                let value = given
                    .iter()
                    .find(|(own, _)| own == var)
                    .and_then(|(_, value)| value.as_i64());
                value
                    .map(Some)
                    .ok_or_else(|| Error::Query(format!("the input {var} is not a number")))
            }
        };
        let offset = usize::try_from(number(&query.offset)?.unwrap_or(0))
            .map_err(|_| Error::Query(":offset must not be negative".to_owned()))?;
        // A negative limit means no limit.
        let limit = number(&query.limit)?.and_then(|limit| usize::try_from(limit).ok());
        Ok(Self { offset, limit })
    }

    /// Returns the number of rows that must be found.
    fn end(&self) -> usize {
        self.limit
            .map_or(usize::MAX, |limit| self.offset.saturating_add(limit))
    }
}

fn column_name(element: &FindElement) -> String {
    match element {
        FindElement::Var(var) => var.to_string(),
        FindElement::Aggregate(aggregate) => format!("({} {})", aggregate.function, aggregate.var),
        FindElement::Pull { var, .. } => format!("(pull {var})"),
        FindElement::Arithmetic(function, parts) => {
            let parts: Vec<String> = parts.iter().map(column_name).collect();
            format!("({function} {})", parts.join(" "))
        }
        FindElement::Constant(value) => value.to_string(),
    }
}

/// Computes the rows of a result from the rows that the clauses find.
pub(crate) struct ResultBuilder<'c, 'q, 't> {
    context: &'c QueryContext<'q, 't>,
    query: &'c ParsedQuery,
    /// The variables of the rows.
    vars: &'c [Var],
    given: &'c [(Var, Value)],
    pullers: HashMap<String, Puller>,
}

impl<'c, 'q, 't> ResultBuilder<'c, 'q, 't> {
    pub(crate) fn new(
        context: &'c QueryContext<'q, 't>,
        query: &'c ParsedQuery,
        vars: &'c [Var],
        given: &'c [(Var, Value)],
    ) -> Self {
        Self {
            context,
            query,
            vars,
            given,
            pullers: HashMap::new(),
        }
    }

    /// Returns true if each found row is a row of the result, independent of the others.
    pub(crate) fn is_row_by_row(&self) -> bool {
        let elements = self.query.find.elements();
        !elements.iter().any(is_aggregate)
            && self.query.having.is_empty()
            && self.query.order.is_empty()
    }

    /// Returns a row of the result.
    pub(crate) fn row(&mut self, row: &[Cell<'t>]) -> Result<Vec<Value>> {
        self.context.watch.step()?;
        let elements = self.query.find.elements().iter();
        elements
            .map(|element| self.element(element, &[row]))
            .collect()
    }

    /// Returns the rows of the result, given all found rows.
    pub(crate) fn rows(
        &mut self,
        found: &Relation<'t>,
        window: &RowWindow,
    ) -> Result<Vec<Vec<Value>>> {
        let elements = self.query.find.elements();
        if elements.iter().any(is_aggregate) || !self.query.having.is_empty() {
            let groups = self.groups(found)?;
            let keys = groups
                .into_iter()
                .map(|row| (self.sort_key(&row), row))
                .collect();
            return Ok(self.sort_window(keys, window));
        }
        if self.query.order.is_empty() {
            let wanted = found.rows().skip(window.offset);
            let wanted = wanted.take(window.limit.unwrap_or(usize::MAX));
            return wanted.map(|row| self.row(row)).collect();
        }
        // Decode only the sort key of rows that may be outside of the window.
        let query = self.query;
        let mut keys: Vec<(Vec<Value>, usize)> = Vec::with_capacity(found.len());
        for (at, row) in found.rows().enumerate() {
            self.context.watch.step()?;
            let columns = query.order.iter();
            let key = columns.map(|(column, _)| self.element(&elements[*column], &[row]));
            keys.push((key.collect::<Result<_>>()?, at));
        }
        let wanted = self.sort_window(keys, window);
        wanted
            .into_iter()
            .map(|at| self.row(found.row(at)))
            .collect()
    }

    /// Returns the sort key of a row.
    fn sort_key(&self, row: &[Value]) -> Vec<Value> {
        let columns = self.query.order.iter();
        columns.map(|(column, _)| row[*column].clone()).collect()
    }

    /// Sorts by key, and returns the items inside the window.
    fn sort_window<T>(&self, mut keyed: Vec<(Vec<Value>, T)>, window: &RowWindow) -> Vec<T> {
        let order = &self.query.order;
        let compare = |one: &(Vec<Value>, T), other: &(Vec<Value>, T)| {
            let both = one.0.iter().zip(&other.0).zip(order);
            let compared = both.map(|((one, other), (_, up))| {
                let order = one.compare(other);
                if *up { order } else { order.reverse() }
            });
            compared
                .into_iter()
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        };
        if !order.is_empty() {
            let end = window.end();
            // Items behind the window need not be sorted.
            if end < keyed.len() {
                keyed.select_nth_unstable_by(end, compare);
                keyed.truncate(end);
            }
            keyed.sort_by(compare);
        }
        let wanted = keyed.into_iter().map(|(_, value)| value);
        wanted
            .skip(window.offset)
            .take(window.limit.unwrap_or(usize::MAX))
            .collect()
    }

    /// Groups the rows by all elements that are no aggregates, and computes one row for each group.
    fn groups(&mut self, found: &Relation<'t>) -> Result<Vec<Vec<Value>>> {
        let query = self.query;
        let mut vars = Vec::new();
        for element in query
            .find
            .elements()
            .iter()
            .filter(|element| !is_aggregate(element))
        {
            element_vars(element, &mut vars);
        }
        let columns: Vec<usize> = vars.iter().filter_map(|var| found.column(var)).collect();
        let groups = RowGroups::new(found, &columns);
        let mut rows = Vec::with_capacity(groups.len());
        let mut group: Vec<&[Cell<'t>]> = Vec::new();
        'groups: for places in groups.iter() {
            self.context.watch.step()?;
            group.clear();
            group.extend(places.iter().map(|row| found.row(*row)));
            let group = &group[..];
            for condition in &query.having {
                let arguments = condition
                    .arguments
                    .iter()
                    .map(|element| self.element(element, group))
                    .collect::<Result<Vec<_>>>()?;
                if !functions::call(&condition.function, &arguments)?.is_truthy() {
                    continue 'groups;
                }
            }
            let cells = query
                .find
                .elements()
                .iter()
                .map(|element| self.element(element, group));
            rows.push(cells.collect::<Result<Vec<_>>>()?);
        }
        Ok(rows)
    }

    fn column(&self, var: &Var) -> Result<usize> {
        self.vars
            .iter()
            .position(|own| own == var)
            .ok_or_else(|| Error::Query(format!("no clause or input binds {var}")))
    }

    fn element(&mut self, element: &FindElement, group: &[&[Cell<'t>]]) -> Result<Value> {
        match element {
            FindElement::Var(var) => group[0][self.column(var)?].value(),
            FindElement::Constant(value) => Ok(value.clone()),
            // A count does not need to decode the values.
            FindElement::Aggregate(wanted)
                if wanted.function.as_str() == "count" && wanted.arguments.is_empty() =>
            {
                self.column(&wanted.var)?;
                Ok(Value::Long(i64::try_from(group.len()).unwrap_or(i64::MAX)))
            }
            FindElement::Aggregate(wanted) => {
                let column = self.column(&wanted.var)?;
                let values = group
                    .iter()
                    .map(|row| row[column].value())
                    .collect::<Result<Vec<_>>>()?;
                let arguments = wanted.arguments.iter().map(|argument| match argument {
                    CallArgument::Var(var) => group[0][self.column(var)?].value(),
                    CallArgument::Constant(value) => Ok(value.clone()),
                    _ => Err(Error::Query(
                        "an aggregate takes variables and constants".to_owned(),
                    )),
                });
                let arguments = arguments.collect::<Result<Vec<_>>>()?;
                aggregate(&wanted.function, &arguments, &values)
            }
            FindElement::Arithmetic(function, parts) => {
                let parts = parts
                    .iter()
                    .map(|part| self.element(part, group))
                    .collect::<Result<Vec<_>>>()?;
                functions::call(function, &parts)
            }
            FindElement::Pull {
                source,
                var,
                pattern,
            } => {
                let called = group[0][self.column(var)?].value()?;
                let pattern = match pattern {
                    PullPattern::Inline(pattern) => pattern.clone(),
                    PullPattern::Input(name) => {
                        let value = self
                            .given
                            .iter()
                            .find(|(own, _)| own == name)
                            .map(|(_, value)| value.clone());
                        value.ok_or_else(|| {
                            Error::Query(format!("the input {name} must be a pull pattern"))
                        })?
                    }
                };
                let moment = self.context.snapshot(source)?;
                let key = pattern.to_string();
                if !self.pullers.contains_key(&key) {
                    self.pullers
                        .insert(key.clone(), Puller::parse(moment, &pattern)?);
                }
                let Some(e) = moment.entity_id(&called)? else {
                    return Ok(Value::Nil);
                };
                self.pullers[&key].pull(moment, e, self.context.watch)
            }
        }
    }
}

//! From rows to what was to be found: groups, order, limits and the form of the answer.

use std::cmp::Ordering;
use std::collections::HashMap;

use rung_edn::{Map, Set, Value};

use super::aggregates::aggregate;
use super::ast::{Argument, Count, Element, Find, PullPattern, Query, Var};
use super::cell::Cell;
use super::functions;
use super::parse::element_vars;
use super::relation::{Groups, Relation};
use super::solve::Context;
use crate::pull::Puller;
use crate::{Error, Result};

/// What a query finds.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What the rows are.
    pub head: Head,
    /// The rows, in their order where they have one.
    pub rows: Vec<Vec<Value>>,
}

/// What the rows of an answer are.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// The columns, as they were asked for.
    pub columns: Vec<String>,
    /// The names of the columns where every row is to be a map.
    keys: Option<Vec<Value>>,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Set,
    List,
    Collection,
    Tuple,
    Scalar,
}

impl Answer {
    /// The answer in the form that it was asked for.
    pub fn into_value(self) -> Value {
        let head = self.head;
        let mut rows = self.rows.into_iter().map(|row| head.row(row));
        match head.form {
            Form::Set => Value::Set(rows.collect::<Set>()),
            Form::List | Form::Collection => Value::Vector(rows.collect()),
            Form::Tuple | Form::Scalar => rows.next().unwrap_or(Value::Nil),
        }
    }
}

impl Head {
    pub(crate) fn of(query: &Query) -> Self {
        let elements = query.find.elements();
        let pulled = |element: &Element| matches!(element, Element::Pull { .. });
        let ordered = !query.order.is_empty() || query.limit.is_some() || query.offset.is_some();
        let several = elements.iter().any(is_aggregate)
            || elements.iter().any(pulled)
            || !query.with.is_empty();
        let listed = ordered || (several && query.keys.is_none());
        Self {
            columns: elements.iter().map(shown).collect(),
            keys: query.keys.clone(),
            form: match query.find {
                Find::Relation(_) if listed => Form::List,
                Find::Relation(_) => Form::Set,
                Find::Collection(_) => Form::Collection,
                Find::Tuple(_) => Form::Tuple,
                Find::Scalar(_) => Form::Scalar,
            },
        }
    }

    /// A row in the form that it was asked for.
    pub fn row(&self, row: Vec<Value>) -> Value {
        match (self.form, &self.keys) {
            (Form::Collection | Form::Scalar, _) => row.into_iter().next().unwrap_or(Value::Nil),
            (_, Some(keys)) => Value::Map(keys.iter().cloned().zip(row).collect::<Map>()),
            _ => Value::Vector(row),
        }
    }

    /// Whether rows have no order of their own.
    pub fn is_set(&self) -> bool {
        self.form == Form::Set
    }

    /// Whether the first row is all that was asked for.
    pub fn is_one(&self) -> bool {
        matches!(self.form, Form::Tuple | Form::Scalar)
    }
}

/// The variables that an answer is made of.
pub(crate) fn needed(query: &Query) -> Vec<Var> {
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
        super::ast::add(&mut vars, var);
    }
    vars
}

fn is_aggregate(element: &Element) -> bool {
    matches!(element, Element::Aggregate(_) | Element::Arithmetic(..))
}

/// The rows to be passed over, and how many are wanted after them.
pub(crate) struct Window {
    pub(crate) offset: usize,
    pub(crate) limit: Option<usize>,
}

impl Window {
    pub(crate) fn of(query: &Query, given: &[(Var, Value)]) -> Result<Self> {
        let number = |count: &Option<Count>| match count {
            None => Ok(None),
            Some(Count::Number(number)) => Ok(Some(*number)),
            Some(Count::Var(var)) => {
                let value = given
                    .iter()
                    .find(|(own, _)| own == var)
                    .and_then(|(_, value)| value.as_i64());
                value
                    .map(Some)
                    .ok_or_else(|| Error::Query(format!("{var} is given no number")))
            }
        };
        let offset = usize::try_from(number(&query.offset)?.unwrap_or(0))
            .map_err(|_| Error::Query(":offset is not negative".to_owned()))?;
        // A limit below nothing is none.
        let limit = number(&query.limit)?.and_then(|limit| usize::try_from(limit).ok());
        Ok(Self { offset, limit })
    }

    /// How many rows must be found.
    fn end(&self) -> usize {
        self.limit
            .map_or(usize::MAX, |limit| self.offset.saturating_add(limit))
    }
}

fn shown(element: &Element) -> String {
    match element {
        Element::Var(var) => var.to_string(),
        Element::Aggregate(aggregate) => format!("({} {})", aggregate.function, aggregate.var),
        Element::Pull { var, .. } => format!("(pull {var})"),
        Element::Arithmetic(function, parts) => {
            let parts: Vec<String> = parts.iter().map(shown).collect();
            format!("({function} {})", parts.join(" "))
        }
        Element::Constant(value) => value.to_string(),
    }
}

/// Makes answers of rows.
pub(crate) struct Finder<'c, 'q, 't> {
    context: &'c Context<'q, 't>,
    query: &'c Query,
    /// The variables of the rows.
    vars: &'c [Var],
    given: &'c [(Var, Value)],
    pullers: HashMap<String, Puller>,
}

impl<'c, 'q, 't> Finder<'c, 'q, 't> {
    pub(crate) fn new(
        context: &'c Context<'q, 't>,
        query: &'c Query,
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

    /// Whether each row found is one of the answer, whatever the others are.
    pub(crate) fn is_row_by_row(&self) -> bool {
        let elements = self.query.find.elements();
        !elements.iter().any(is_aggregate)
            && self.query.having.is_empty()
            && self.query.order.is_empty()
    }

    /// A row of the answer.
    pub(crate) fn row(&mut self, row: &[Cell<'t>]) -> Result<Vec<Value>> {
        self.context.watch.step()?;
        let elements = self.query.find.elements().iter();
        elements
            .map(|element| self.element(element, &[row]))
            .collect()
    }

    /// The rows of the answer, of all that were found.
    pub(crate) fn rows(
        &mut self,
        found: &Relation<'t>,
        window: &Window,
    ) -> Result<Vec<Vec<Value>>> {
        let elements = self.query.find.elements();
        if elements.iter().any(is_aggregate) || !self.query.having.is_empty() {
            let groups = self.groups(found)?;
            let keys = groups
                .into_iter()
                .map(|row| (self.key(&row), row))
                .collect();
            return Ok(self.ordered(keys, window));
        }
        if self.query.order.is_empty() {
            let wanted = found.rows().skip(window.offset);
            let wanted = wanted.take(window.limit.unwrap_or(usize::MAX));
            return wanted.map(|row| self.row(row)).collect();
        }
        // Only what the order depends on is understood of rows that may not be wanted.
        let query = self.query;
        let mut keys: Vec<(Vec<Value>, usize)> = Vec::with_capacity(found.len());
        for (at, row) in found.rows().enumerate() {
            self.context.watch.step()?;
            let columns = query.order.iter();
            let key = columns.map(|(column, _)| self.element(&elements[*column], &[row]));
            keys.push((key.collect::<Result<_>>()?, at));
        }
        let wanted = self.ordered(keys, window);
        wanted
            .into_iter()
            .map(|at| self.row(found.row(at)))
            .collect()
    }

    /// What the order of a row depends on.
    fn key(&self, row: &[Value]) -> Vec<Value> {
        let columns = self.query.order.iter();
        columns.map(|(column, _)| row[*column].clone()).collect()
    }

    /// What is wanted, in the order of its keys.
    fn ordered<T>(&self, mut keyed: Vec<(Vec<Value>, T)>, window: &Window) -> Vec<T> {
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
            // What is not wanted need not be brought into order.
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

    /// Rows that have the same in everything that is no aggregate are one.
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
        let groups = Groups::of(found, &columns);
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
            .ok_or_else(|| Error::Query(format!("nothing gives {var} a value")))
    }

    fn element(&mut self, element: &Element, group: &[&[Cell<'t>]]) -> Result<Value> {
        match element {
            Element::Var(var) => group[0][self.column(var)?].value(),
            Element::Constant(value) => Ok(value.clone()),
            // How many there are is known without looking at them.
            Element::Aggregate(wanted)
                if wanted.function.as_str() == "count" && wanted.arguments.is_empty() =>
            {
                self.column(&wanted.var)?;
                Ok(Value::Long(i64::try_from(group.len()).unwrap_or(i64::MAX)))
            }
            Element::Aggregate(wanted) => {
                let column = self.column(&wanted.var)?;
                let values = group
                    .iter()
                    .map(|row| row[column].value())
                    .collect::<Result<Vec<_>>>()?;
                let arguments = wanted.arguments.iter().map(|argument| match argument {
                    Argument::Var(var) => group[0][self.column(var)?].value(),
                    Argument::Constant(value) => Ok(value.clone()),
                    _ => Err(Error::Query("an aggregate is given values".to_owned())),
                });
                let arguments = arguments.collect::<Result<Vec<_>>>()?;
                aggregate(&wanted.function, &arguments, &values)
            }
            Element::Arithmetic(function, parts) => {
                let parts = parts
                    .iter()
                    .map(|part| self.element(part, group))
                    .collect::<Result<Vec<_>>>()?;
                functions::call(function, &parts)
            }
            Element::Pull {
                source,
                var,
                pattern,
            } => {
                let called = group[0][self.column(var)?].value()?;
                let pattern = match pattern {
                    PullPattern::Said(pattern) => pattern.clone(),
                    PullPattern::Given(name) => {
                        let value = self
                            .given
                            .iter()
                            .find(|(own, _)| own == name)
                            .map(|(_, value)| value.clone());
                        value.ok_or_else(|| {
                            Error::Query(format!("the pattern {name} is not given"))
                        })?
                    }
                };
                let moment = self.context.moment(source)?;
                let key = pattern.to_string();
                if !self.pullers.contains_key(&key) {
                    self.pullers
                        .insert(key.clone(), Puller::read(moment, &pattern)?);
                }
                let Some(e) = moment.entity_id(&called)? else {
                    return Ok(Value::Nil);
                };
                self.pullers[&key].pull(moment, e, self.context.watch)
            }
        }
    }
}

//! From rows to what was to be found: groups, order, limits and the form of the answer.

use std::cmp::Ordering;
use std::collections::HashMap;

use rung_edn::{Map, Set, Value};

use super::aggregates::aggregate;
use super::ast::{Argument, Count, Element, Find, PullPattern, Query, Var};
use super::cell::Cell;
use super::functions;
use super::parse::element_vars;
use super::relation::{Index, Relation};
use super::solve::Context;
use crate::pull::Puller;
use crate::{Error, Result};

/// What a query finds.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The columns, as they were asked for.
    pub columns: Vec<String>,
    /// The rows, in their order where they have one.
    pub rows: Vec<Vec<Value>>,
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
        let keys = self.keys;
        let row = |row: Vec<Value>| match &keys {
            Some(keys) => Value::Map(keys.iter().cloned().zip(row).collect::<Map>()),
            None => Value::Vector(row),
        };
        let mut rows = self.rows.into_iter();
        match self.form {
            Form::Set => Value::Set(rows.map(row).collect::<Set>()),
            Form::List => Value::Vector(rows.map(row).collect()),
            Form::Collection => {
                Value::Vector(rows.filter_map(|row| row.into_iter().next()).collect())
            }
            Form::Tuple => rows.next().map_or(Value::Nil, row),
            Form::Scalar => rows
                .next()
                .and_then(|row| row.into_iter().next())
                .unwrap_or(Value::Nil),
        }
    }

    /// Whether rows have no order of their own.
    pub fn is_set(&self) -> bool {
        self.form == Form::Set
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

pub(crate) fn answer<'t>(
    context: &Context<'_, 't>,
    query: &Query,
    found: &Relation<'t>,
    given: &[(Var, Value)],
) -> Result<Answer> {
    let elements = query.find.elements();
    let aggregated = elements.iter().any(is_aggregate);
    let pulled = elements
        .iter()
        .any(|element| matches!(element, Element::Pull { .. }));
    let mut finder = Finder {
        context,
        found,
        given,
        pullers: HashMap::new(),
    };
    let mut rows = if aggregated || !query.having.is_empty() {
        finder.groups(query)?
    } else {
        finder.rows(query)?
    };
    if !query.order.is_empty() {
        rows.sort_by(|one, other| {
            let by = |(column, up): &(usize, bool)| {
                let order = one[*column].compare(&other[*column]);
                if *up { order } else { order.reverse() }
            };
            query
                .order
                .iter()
                .map(by)
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        });
    }
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
    rows.drain(..offset.min(rows.len()));
    if let Some(Ok(limit)) = number(&query.limit)?.map(usize::try_from) {
        rows.truncate(limit);
    }
    let ordered = !query.order.is_empty() || query.limit.is_some() || query.offset.is_some();
    let several = aggregated || pulled || !query.with.is_empty();
    let listed = ordered || (several && query.keys.is_none());
    Ok(Answer {
        columns: elements.iter().map(shown).collect(),
        rows,
        keys: query.keys.clone(),
        form: match query.find {
            Find::Relation(_) if listed => Form::List,
            Find::Relation(_) => Form::Set,
            Find::Collection(_) => Form::Collection,
            Find::Tuple(_) => Form::Tuple,
            Find::Scalar(_) => Form::Scalar,
        },
    })
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

struct Finder<'c, 'q, 't> {
    context: &'c Context<'q, 't>,
    found: &'c Relation<'t>,
    given: &'c [(Var, Value)],
    pullers: HashMap<String, Puller>,
}

impl<'t> Finder<'_, '_, 't> {
    fn rows(&mut self, query: &Query) -> Result<Vec<Vec<Value>>> {
        let found = self.found;
        let mut rows = Vec::with_capacity(found.len());
        for row in found.rows() {
            self.context.watch.step()?;
            let cells = query
                .find
                .elements()
                .iter()
                .map(|element| self.element(element, &[row]));
            rows.push(cells.collect::<Result<Vec<_>>>()?);
        }
        Ok(rows)
    }

    /// Rows that have the same in everything that is no aggregate are one.
    fn groups(&mut self, query: &Query) -> Result<Vec<Vec<Value>>> {
        let mut vars = Vec::new();
        for element in query
            .find
            .elements()
            .iter()
            .filter(|element| !is_aggregate(element))
        {
            element_vars(element, &mut vars);
        }
        let columns: Vec<usize> = vars
            .iter()
            .filter_map(|var| self.found.column(var))
            .collect();
        let found = self.found;
        let groups = Index::of(found, columns).groups();
        let mut rows = Vec::with_capacity(groups.len());
        'groups: for group in groups {
            self.context.watch.step()?;
            let group: Vec<&[Cell<'t>]> = group.into_iter().map(|row| found.row(row)).collect();
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
        self.found
            .column(var)
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
                self.pullers[&key].pull(moment, e)
            }
        }
    }
}

//! Conditions on documents, as a query states them.
//!
//! A map states conditions on the values of its keys; `:and`, `:or` and `:not` combine conditions; a comparison or a value tests
//! a scalar. A condition holds for a vector if it holds for an element.

use std::cell::Cell;
use std::cmp::Ordering;

use rung_edn::Value;

use super::paths::{DocumentPath, IndexProbe, comparable};
use super::{abbreviate, heading_keyword, is_null, null};
use crate::{Error, Result};

/// Depth of nested conditions, at most.
const MAX_DEPTH: usize = 64;

/// A condition on a document.
#[derive(Debug, Clone)]
pub(crate) enum Condition {
    /// Each condition holds for the value of its key.
    Members(Vec<(PathKey, Condition)>),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    /// A value at the end of the path passes the test.
    Leaf(Vec<PathKey>, ValueTest),
}

/// A step into a document.
#[derive(Debug, Clone)]
pub(crate) enum PathKey {
    Name(Value),
    Position(i64),
    /// `:?`, any one key or position.
    AnyKey,
    /// `:*`, any number of keys and positions.
    AnyDepth,
}

/// A test of a scalar value.
#[derive(Debug, Clone)]
pub(crate) enum ValueTest {
    IsNull,
    Equals(Value),
    /// The value is in order between the bounds before it and after it.
    Compared {
        order: ComparisonOperator,
        before: Vec<Value>,
        after: Vec<Value>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComparisonOperator {
    Less,
    AtMost,
    More,
    AtLeast,
}

impl ComparisonOperator {
    fn read(name: &str) -> Option<Self> {
        match name {
            "<" => Some(Self::Less),
            "<=" => Some(Self::AtMost),
            ">" => Some(Self::More),
            ">=" => Some(Self::AtLeast),
            _ => None,
        }
    }

    fn holds(self, one: &Value, other: &Value) -> bool {
        let Some(order) = compare_same_kind(one, other) else {
            return false;
        };
        match self {
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::More => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

fn invalid_query<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

/// Compares two values of one kind. Whole numbers are one kind, and so are decimal and floating-point numbers.
fn compare_same_kind(one: &Value, other: &Value) -> Option<Ordering> {
    let (one, other) = (comparable(one), comparable(other));
    let whole = |value: &Value| matches!(value, Value::Long(_) | Value::BigInt(_));
    let same = match (&one, &other) {
        (Value::Map(_) | Value::Set(_) | Value::Vector(_) | Value::Tagged(..), _) => false,
        (one, other) if whole(one) => whole(other),
        (one, other) => one.kind() == other.kind(),
    };
    same.then(|| one.compare(&other))
}

/// Calls `step` during an evaluation, and ends the evaluation when it fails.
struct StepGuard<'s> {
    step: &'s dyn Fn() -> Result<()>,
    /// The error of `step`.
    failed: Cell<Option<Error>>,
}

impl StepGuard<'_> {
    /// Whether to continue.
    fn may_continue(&self) -> bool {
        let failed = self.failed.take().or_else(|| (self.step)().err());
        let on = failed.is_none();
        self.failed.set(failed);
        on
    }
}

impl Condition {
    /// Parses a condition. For documents from Markdown (`headings`), keys are converted like headings.
    pub(crate) fn read(value: &Value, headings: bool) -> Result<Self> {
        ConditionParser { headings }.condition(value, true, 0)
    }

    /// Returns true if the condition holds for a document. Calls `step` regularly, and fails if it fails.
    pub(crate) fn holds(&self, document: &Value, step: &dyn Fn() -> Result<()>) -> Result<bool> {
        let looks = StepGuard {
            step,
            failed: Cell::new(None),
        };
        let holds = self.is_true(Some(document), &looks);
        looks.failed.into_inner().map_or(Ok(holds), Err)
    }

    /// Returns true if the condition holds for a part of a document. `None` is a missing part.
    fn is_true(&self, part: Option<&Value>, looks: &StepGuard<'_>) -> bool {
        match self {
            Self::All(all) => all.iter().all(|condition| condition.is_true(part, looks)),
            Self::Any(any) => any.iter().any(|condition| condition.is_true(part, looks)),
            Self::Not(not) => !not.is_true(part, looks),
            Self::Leaf(path, test) => part.is_some_and(|part| test.matches_any(part, path, looks)),
            Self::Members(members) => match part {
                Some(Value::Map(_)) => members
                    .iter()
                    .all(|member| member_holds(member, part, looks)),
                Some(Value::Vector(items)) => {
                    let named = |(key, _): &(PathKey, _)| matches!(key, PathKey::Name(_));
                    // Without positions, a single element must meet all the conditions.
                    if !members.is_empty() && members.iter().all(named) {
                        items.iter().any(|item| self.is_true(Some(item), looks))
                    } else {
                        members
                            .iter()
                            .all(|member| member_holds(member, part, looks))
                    }
                }
                _ => false,
            },
        }
    }

    /// Returns the index probe for documents that may match. `None` if every document may.
    pub(crate) fn probe(&self) -> Option<IndexProbe> {
        self.probe_below(&DocumentPath::default())
    }

    fn probe_below(&self, path: &DocumentPath) -> Option<IndexProbe> {
        match self {
            Self::Members(members) => {
                let probes = members
                    .iter()
                    .filter_map(|(key, condition)| condition.probe_below(&key.child_path(path)?));
                combine_probes(probes.collect())
            }
            Self::All(conditions) => {
                let probes = conditions
                    .iter()
                    .filter_map(|condition| condition.probe_below(path));
                combine_probes(probes.collect())
            }
            Self::Any(conditions) => {
                let probes = conditions
                    .iter()
                    .map(|condition| condition.probe_below(path));
                Some(IndexProbe::Any(probes.collect::<Option<_>>()?))
            }
            Self::Not(_) => None,
            Self::Leaf(keys, test) => {
                let mut path = path.clone();
                for key in keys {
                    path = key.child_path(&path)?;
                }
                Some(test.probe(&path))
            }
        }
    }
}

/// Combines probes. Those for a single entry come first, because they find least.
fn combine_probes(mut probes: Vec<IndexProbe>) -> Option<IndexProbe> {
    probes.sort_by_key(|probe| !matches!(probe, IndexProbe::Between(from, to) if from == to));
    match probes.len() {
        0 => None,
        1 => probes.pop(),
        _ => Some(IndexProbe::All(probes)),
    }
}

impl PathKey {
    /// Returns the path of the key below a path. `None` for a wildcard.
    fn child_path(&self, path: &DocumentPath) -> Option<DocumentPath> {
        match self {
            Self::Name(name) => Some(path.join(name)),
            Self::Position(_) => Some(path.clone()),
            Self::AnyKey | Self::AnyDepth => None,
        }
    }
}

fn children(part: &Value) -> Vec<&Value> {
    match part {
        Value::Map(members) => members.values().collect(),
        Value::Vector(items) => items.iter().collect(),
        _ => Vec::new(),
    }
}

fn item_at(items: &[Value], at: i64) -> Option<&Value> {
    items.get(usize::try_from(at).ok()?)
}

/// Returns true if a condition holds for the value of its key in a map or vector.
fn member_holds(
    member: &(PathKey, Condition),
    part: Option<&Value>,
    looks: &StepGuard<'_>,
) -> bool {
    let (key, condition) = member;
    let Some(part) = part.filter(|_| looks.may_continue()) else {
        return false;
    };
    match (key, part) {
        (PathKey::Name(name), Value::Map(members)) => condition.is_true(members.get(name), looks),
        (PathKey::Position(at), Value::Vector(items)) => {
            item_at(items, *at).is_some_and(|item| condition.is_true(Some(item), looks))
        }
        (PathKey::Name(_), Value::Vector(items)) => items
            .iter()
            .any(|item| member_holds(member, Some(item), looks)),
        (PathKey::AnyKey, part) => {
            let below = children(part);
            below.iter().any(|child| condition.is_true(Some(child), looks))
                // The position may be left out.
                || matches!(part, Value::Vector(_)) && below.iter().any(|child| member_holds(member, Some(child), looks))
        }
        (PathKey::AnyDepth, part) => {
            condition.is_true(Some(part), looks)
                || children(part)
                    .iter()
                    .any(|child| member_holds(member, Some(child), looks))
        }
        _ => false,
    }
}

impl ValueTest {
    /// Returns true if a value at the end of a path passes the test.
    fn matches_any(&self, part: &Value, path: &[PathKey], looks: &StepGuard<'_>) -> bool {
        if !looks.may_continue() {
            return false;
        }
        let Some((key, rest)) = path.split_first() else {
            return match part {
                Value::Vector(items) => items.iter().any(|item| self.matches_any(item, &[], looks)),
                Value::Map(_) => false,
                scalar => self.passes(scalar),
            };
        };
        match (key, part) {
            (PathKey::Name(name), Value::Map(members)) => members
                .get(name)
                .is_some_and(|value| self.matches_any(value, rest, looks)),
            (PathKey::Position(at), Value::Vector(items)) => {
                item_at(items, *at).is_some_and(|item| self.matches_any(item, rest, looks))
            }
            (PathKey::Name(_), Value::Vector(items)) => {
                items.iter().any(|item| self.matches_any(item, path, looks))
            }
            (PathKey::AnyKey, part) => {
                let below = children(part);
                below
                    .iter()
                    .any(|child| self.matches_any(child, rest, looks))
                    || matches!(part, Value::Vector(_))
                        && below
                            .iter()
                            .any(|child| self.matches_any(child, path, looks))
            }
            (PathKey::AnyDepth, part) => {
                self.matches_any(part, rest, looks)
                    || children(part)
                        .iter()
                        .any(|child| self.matches_any(child, path, looks))
            }
            _ => false,
        }
    }

    fn passes(&self, value: &Value) -> bool {
        match self {
            Self::IsNull => is_null(value),
            Self::Equals(wanted) => comparable(wanted) == comparable(value),
            Self::Compared {
                order,
                before,
                after,
            } => {
                let chain: Vec<&Value> = before.iter().chain([value]).chain(after).collect();
                chain.windows(2).all(|pair| order.holds(pair[0], pair[1]))
            }
        }
    }

    fn probe(&self, path: &DocumentPath) -> IndexProbe {
        match self {
            Self::IsNull => IndexProbe::exact(path.entry(&null())),
            Self::Equals(value) => IndexProbe::exact(path.entry(value)),
            Self::Compared {
                order,
                before,
                after,
            } => {
                let (mut low, mut high) = (before.last(), after.first());
                if matches!(
                    order,
                    ComparisonOperator::More | ComparisonOperator::AtLeast
                ) {
                    std::mem::swap(&mut low, &mut high);
                }
                let (first, last) = path.entry_bounds();
                IndexProbe::Between(
                    low.map_or(first, |value| path.entry(value)),
                    high.map_or(last, |value| path.entry(value)),
                )
            }
        }
    }
}

struct ConditionParser {
    headings: bool,
}

impl ConditionParser {
    /// Parses a condition. `outside` of any key, a comparison names its value by a path.
    fn condition(&self, value: &Value, outside: bool, depth: usize) -> Result<Condition> {
        if depth > MAX_DEPTH {
            return invalid_query(format!(
                "conditions are nested deeper than {MAX_DEPTH} levels"
            ));
        }
        match value {
            Value::Map(members) => {
                let members = members.iter().map(|(key, value)| {
                    Ok((self.key(key)?, self.condition(value, false, depth + 1)?))
                });
                Ok(Condition::Members(members.collect::<Result<_>>()?))
            }
            Value::Vector(items) | Value::List(items) => {
                let name = match items.first() {
                    Some(Value::Keyword(name) | Value::Symbol(name)) => name.as_str(),
                    _ => "",
                };
                let rest = items.get(1..).unwrap_or_default();
                let several = || {
                    let conditions = rest.iter();
                    conditions
                        .map(|value| self.condition(value, outside, depth + 1))
                        .collect::<Result<Vec<_>>>()
                };
                match name {
                    "and" => Ok(Condition::All(several()?)),
                    "or" => Ok(Condition::Any(several()?)),
                    "not" => match &several()?[..] {
                        [one] => Ok(Condition::Not(Box::new(one.clone()))),
                        _ => invalid_query(format!(
                            "{} takes exactly one condition",
                            abbreviate(value)
                        )),
                    },
                    "nil?" => self.is_null(value, rest, outside),
                    name => match ComparisonOperator::read(name) {
                        Some(order) => self.comparison(value, order, rest, outside),
                        None => invalid_query(format!(
                            "{} is not a condition; conditions are :and, :or, :not and the comparisons <, <=, >, >= and nil?",
                            abbreviate(value)
                        )),
                    },
                }
            }
            Value::Nil => invalid_query("null cannot be compared; match it with (nil? :key)"),
            value => Ok(Condition::Leaf(
                Vec::new(),
                ValueTest::Equals(value.clone()),
            )),
        }
    }

    fn key(&self, key: &Value) -> Result<PathKey> {
        Ok(match key {
            Value::Keyword(name) if name.as_str() == "?" => PathKey::AnyKey,
            Value::Keyword(name) if name.as_str() == "*" => PathKey::AnyDepth,
            Value::Keyword(name) if self.headings => PathKey::Name(heading_keyword(name.as_str())?),
            Value::String(text) if self.headings => PathKey::Name(heading_keyword(text)?),
            Value::Keyword(_) | Value::String(_) => PathKey::Name(key.clone()),
            Value::Long(at) => PathKey::Position(*at),
            _ => {
                return invalid_query(format!(
                    "{} is not a key; a key is a keyword, a string or a position",
                    abbreviate(key)
                ));
            }
        })
    }

    fn path(&self, path: &Value) -> Result<Vec<PathKey>> {
        match path {
            Value::Vector(keys) | Value::List(keys) => {
                keys.iter().map(|key| self.key(key)).collect()
            }
            key => Ok(vec![self.key(key)?]),
        }
    }

    fn is_null(&self, form: &Value, arguments: &[Value], outside: bool) -> Result<Condition> {
        match arguments {
            [] if !outside => Ok(Condition::Leaf(Vec::new(), ValueTest::IsNull)),
            [path] if outside => Ok(Condition::Leaf(self.path(path)?, ValueTest::IsNull)),
            _ if outside => invalid_query(format!("{} takes a path", abbreviate(form))),
            _ => invalid_query(format!(
                "{} is under a key and takes no path",
                abbreviate(form)
            )),
        }
    }

    fn comparison(
        &self,
        form: &Value,
        order: ComparisonOperator,
        arguments: &[Value],
        outside: bool,
    ) -> Result<Condition> {
        let vector = |argument: &&Value| argument.as_sequence().is_some();
        let named = |argument: &&Value| matches!(argument, Value::Keyword(_) | Value::String(_));
        let (path, before, after) = if outside {
            let places = |is: &dyn Fn(&&Value) -> bool| -> Vec<usize> {
                (0..arguments.len())
                    .filter(|at| is(&&arguments[*at]))
                    .collect()
            };
            let vectors = places(&vector);
            let places = if vectors.is_empty() {
                places(&named)
            } else {
                vectors
            };
            let [at] = places[..] else {
                return invalid_query(format!(
                    "{} takes one path, such as [:a :b]",
                    abbreviate(form)
                ));
            };
            (
                self.path(&arguments[at])?,
                &arguments[..at],
                &arguments[at + 1..],
            )
        } else {
            if arguments.iter().any(|argument| vector(&argument)) {
                return invalid_query(format!(
                    "{} is under a key and takes no path",
                    abbreviate(form)
                ));
            }
            (Vec::new(), &[][..], arguments)
        };
        let mut bounds = before.iter().chain(after);
        let Some(first) = bounds.next() else {
            return invalid_query(format!("{} has no value to compare with", abbreviate(form)));
        };
        for bound in std::iter::once(first).chain(bounds) {
            if bound.is_nil() || compare_same_kind(first, bound).is_none() {
                return invalid_query(format!(
                    "{} compares only with ordered values of one kind",
                    abbreviate(form)
                ));
            }
        }
        let (before, after) = (before.to_vec(), after.to_vec());
        Ok(Condition::Leaf(
            path,
            ValueTest::Compared {
                order,
                before,
                after,
            },
        ))
    }
}

//! What a query says of a document.
//!
//! A map says something of what is under its keys, a word of logic combines, a comparison or a value speaks of what is there. Of a
//! vector something is true where it is true of an element.

use std::cell::Cell;
use std::cmp::Ordering;

use rung_edn::Value;

use super::paths::{Path, Probe, comparable};
use super::{is_null, key_of_heading, null, shown};
use crate::{Error, Result};

/// Conditions within conditions, at most.
const MAX_DEPTH: usize = 64;

/// Something that is true of a document, or not.
#[derive(Debug, Clone)]
pub(crate) enum Condition {
    /// Each is true of what is under its key.
    Members(Vec<(Key, Condition)>),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    /// The test is passed by something at the end of the path.
    Leaf(Vec<Key>, Test),
}

/// A step into a document.
#[derive(Debug, Clone)]
pub(crate) enum Key {
    Name(Value),
    Position(i64),
    /// `:?`, any one.
    One,
    /// `:*`, any number of them.
    Deep,
}

/// What a value is asked.
#[derive(Debug, Clone)]
pub(crate) enum Test {
    IsNull,
    Is(Value),
    /// It fits between those before it and those after it.
    Compared {
        order: Order,
        before: Vec<Value>,
        after: Vec<Value>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Less,
    AtMost,
    More,
    AtLeast,
}

impl Order {
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
        let Some(order) = compared(one, other) else {
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

fn wrong<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

/// How two values of one kind are ordered. Whole numbers are one kind, and so are decimal and binary fractions.
fn compared(one: &Value, other: &Value) -> Option<Ordering> {
    let (one, other) = (comparable(one), comparable(other));
    let whole = |value: &Value| matches!(value, Value::Long(_) | Value::BigInt(_));
    let same = match (&one, &other) {
        (Value::Map(_) | Value::Set(_) | Value::Vector(_) | Value::Tagged(..), _) => false,
        (one, other) if whole(one) => whole(other),
        (one, other) => one.kind() == other.kind(),
    };
    same.then(|| one.compare(&other))
}

/// Somebody who looks through a document, as long as they may.
struct Looks<'s> {
    step: &'s dyn Fn() -> Result<()>,
    /// Why they no longer may.
    failed: Cell<Option<Error>>,
}

impl Looks<'_> {
    /// Whether to look on.
    fn on(&self) -> bool {
        let failed = self.failed.take().or_else(|| (self.step)().err());
        let on = failed.is_none();
        self.failed.set(failed);
        on
    }
}

impl Condition {
    /// Understands a condition. Where documents were made of Markdown, keys are written as headings are.
    pub(crate) fn read(value: &Value, headings: bool) -> Result<Self> {
        Reader { headings }.condition(value, true, 0)
    }

    /// Whether it is true of a document. `step` is called over and over, and ends it where it fails.
    pub(crate) fn holds(&self, document: &Value, step: &dyn Fn() -> Result<()>) -> Result<bool> {
        let looks = Looks {
            step,
            failed: Cell::new(None),
        };
        let holds = self.is_true(Some(document), &looks);
        looks.failed.into_inner().map_or(Ok(holds), Err)
    }

    /// Whether it is true of a part, which may be missing.
    fn is_true(&self, part: Option<&Value>, looks: &Looks<'_>) -> bool {
        match self {
            Self::All(all) => all.iter().all(|condition| condition.is_true(part, looks)),
            Self::Any(any) => any.iter().any(|condition| condition.is_true(part, looks)),
            Self::Not(not) => !not.is_true(part, looks),
            Self::Leaf(path, test) => part.is_some_and(|part| test.any(part, path, looks)),
            Self::Members(members) => match part {
                Some(Value::Map(_)) => members.iter().all(|member| of_member(member, part, looks)),
                Some(Value::Vector(items)) => {
                    let named = |(key, _): &(Key, _)| matches!(key, Key::Name(_));
                    // One element says all of it, unless it is said of which one.
                    if !members.is_empty() && members.iter().all(named) {
                        items.iter().any(|item| self.is_true(Some(item), looks))
                    } else {
                        members.iter().all(|member| of_member(member, part, looks))
                    }
                }
                _ => false,
            },
        }
    }

    /// Where documents are looked for of which it may be true; nowhere in particular where nothing is said.
    pub(crate) fn probe(&self) -> Option<Probe> {
        self.probe_below(&Path::default())
    }

    fn probe_below(&self, path: &Path) -> Option<Probe> {
        match self {
            Self::Members(members) => {
                let probes = members
                    .iter()
                    .filter_map(|(key, condition)| condition.probe_below(&key.below(path)?));
                all(probes.collect())
            }
            Self::All(conditions) => {
                let probes = conditions
                    .iter()
                    .filter_map(|condition| condition.probe_below(path));
                all(probes.collect())
            }
            Self::Any(conditions) => {
                let probes = conditions
                    .iter()
                    .map(|condition| condition.probe_below(path));
                Some(Probe::Any(probes.collect::<Option<_>>()?))
            }
            Self::Not(_) => None,
            Self::Leaf(keys, test) => {
                let mut path = path.clone();
                for key in keys {
                    path = key.below(&path)?;
                }
                Some(test.probe(&path))
            }
        }
    }
}

/// Those that ask for one entry first: they find least.
fn all(mut probes: Vec<Probe>) -> Option<Probe> {
    probes.sort_by_key(|probe| !matches!(probe, Probe::Between(from, to) if from == to));
    match probes.len() {
        0 => None,
        1 => probes.pop(),
        _ => Some(Probe::All(probes)),
    }
}

impl Key {
    /// The path that it leads to, where that is one.
    fn below(&self, path: &Path) -> Option<Path> {
        match self {
            Self::Name(name) => Some(path.and(name)),
            Self::Position(_) => Some(path.clone()),
            Self::One | Self::Deep => None,
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

fn item(items: &[Value], at: i64) -> Option<&Value> {
    items.get(usize::try_from(at).ok()?)
}

/// Whether something is true of what is under a key of a map or vector.
fn of_member(member: &(Key, Condition), part: Option<&Value>, looks: &Looks<'_>) -> bool {
    let (key, condition) = member;
    let Some(part) = part.filter(|_| looks.on()) else {
        return false;
    };
    match (key, part) {
        (Key::Name(name), Value::Map(members)) => condition.is_true(members.get(name), looks),
        (Key::Position(at), Value::Vector(items)) => {
            item(items, *at).is_some_and(|item| condition.is_true(Some(item), looks))
        }
        (Key::Name(_), Value::Vector(items)) => items
            .iter()
            .any(|item| of_member(member, Some(item), looks)),
        (Key::One, part) => {
            let below = children(part);
            below.iter().any(|child| condition.is_true(Some(child), looks))
                // The position may be left out.
                || matches!(part, Value::Vector(_)) && below.iter().any(|child| of_member(member, Some(child), looks))
        }
        (Key::Deep, part) => {
            condition.is_true(Some(part), looks)
                || children(part)
                    .iter()
                    .any(|child| of_member(member, Some(child), looks))
        }
        _ => false,
    }
}

impl Test {
    /// Whether something at the end of a path passes it.
    fn any(&self, part: &Value, path: &[Key], looks: &Looks<'_>) -> bool {
        if !looks.on() {
            return false;
        }
        let Some((key, rest)) = path.split_first() else {
            return match part {
                Value::Vector(items) => items.iter().any(|item| self.any(item, &[], looks)),
                Value::Map(_) => false,
                scalar => self.passes(scalar),
            };
        };
        match (key, part) {
            (Key::Name(name), Value::Map(members)) => members
                .get(name)
                .is_some_and(|value| self.any(value, rest, looks)),
            (Key::Position(at), Value::Vector(items)) => {
                item(items, *at).is_some_and(|item| self.any(item, rest, looks))
            }
            (Key::Name(_), Value::Vector(items)) => {
                items.iter().any(|item| self.any(item, path, looks))
            }
            (Key::One, part) => {
                let below = children(part);
                below.iter().any(|child| self.any(child, rest, looks))
                    || matches!(part, Value::Vector(_))
                        && below.iter().any(|child| self.any(child, path, looks))
            }
            (Key::Deep, part) => {
                self.any(part, rest, looks)
                    || children(part)
                        .iter()
                        .any(|child| self.any(child, path, looks))
            }
            _ => false,
        }
    }

    fn passes(&self, value: &Value) -> bool {
        match self {
            Self::IsNull => is_null(value),
            Self::Is(wanted) => comparable(wanted) == comparable(value),
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

    fn probe(&self, path: &Path) -> Probe {
        match self {
            Self::IsNull => Probe::at(path.entry(&null())),
            Self::Is(value) => Probe::at(path.entry(value)),
            Self::Compared {
                order,
                before,
                after,
            } => {
                let (mut low, mut high) = (before.last(), after.first());
                if matches!(order, Order::More | Order::AtLeast) {
                    std::mem::swap(&mut low, &mut high);
                }
                let (first, last) = path.ends();
                Probe::Between(
                    low.map_or(first, |value| path.entry(value)),
                    high.map_or(last, |value| path.entry(value)),
                )
            }
        }
    }
}

struct Reader {
    headings: bool,
}

impl Reader {
    /// `outside` of any key, what is compared is named by a path.
    fn condition(&self, value: &Value, outside: bool, depth: usize) -> Result<Condition> {
        if depth > MAX_DEPTH {
            return wrong(format!("conditions are nested deeper than {MAX_DEPTH}"));
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
                        _ => wrong(format!("{} is given one condition", shown(value))),
                    },
                    "nil?" => self.is_null(value, rest, outside),
                    name => match Order::read(name) {
                        Some(order) => self.comparison(value, order, rest, outside),
                        None => wrong(format!(
                            "{} is no condition: there are :and, :or and :not, and comparisons by <, <=, >, >= and nil?",
                            shown(value)
                        )),
                    },
                }
            }
            Value::Nil => wrong("what is null is asked for with (nil? :key)"),
            value => Ok(Condition::Leaf(Vec::new(), Test::Is(value.clone()))),
        }
    }

    fn key(&self, key: &Value) -> Result<Key> {
        Ok(match key {
            Value::Keyword(name) if name.as_str() == "?" => Key::One,
            Value::Keyword(name) if name.as_str() == "*" => Key::Deep,
            Value::Keyword(name) if self.headings => Key::Name(key_of_heading(name.as_str())?),
            Value::String(text) if self.headings => Key::Name(key_of_heading(text)?),
            Value::Keyword(_) | Value::String(_) => Key::Name(key.clone()),
            Value::Long(at) => Key::Position(*at),
            _ => {
                return wrong(format!(
                    "{} is no key: it is a keyword, a string or a position",
                    shown(key)
                ));
            }
        })
    }

    fn path(&self, path: &Value) -> Result<Vec<Key>> {
        match path {
            Value::Vector(keys) | Value::List(keys) => {
                keys.iter().map(|key| self.key(key)).collect()
            }
            key => Ok(vec![self.key(key)?]),
        }
    }

    fn is_null(&self, form: &Value, arguments: &[Value], outside: bool) -> Result<Condition> {
        match arguments {
            [] if !outside => Ok(Condition::Leaf(Vec::new(), Test::IsNull)),
            [path] if outside => Ok(Condition::Leaf(self.path(path)?, Test::IsNull)),
            _ if outside => wrong(format!("{} is given a path", shown(form))),
            _ => wrong(format!("{} stands under a key already", shown(form))),
        }
    }

    fn comparison(
        &self,
        form: &Value,
        order: Order,
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
                return wrong(format!("{} needs one path, as [:a :b]", shown(form)));
            };
            (
                self.path(&arguments[at])?,
                &arguments[..at],
                &arguments[at + 1..],
            )
        } else {
            if arguments.iter().any(|argument| vector(&argument)) {
                return wrong(format!(
                    "{} stands under a key already, and has no path",
                    shown(form)
                ));
            }
            (Vec::new(), &[][..], arguments)
        };
        let mut bounds = before.iter().chain(after);
        let Some(first) = bounds.next() else {
            return wrong(format!("{} has nothing to compare with", shown(form)));
        };
        for bound in std::iter::once(first).chain(bounds) {
            if bound.is_nil() || compared(first, bound).is_none() {
                return wrong(format!(
                    "{} compares with values of one kind that have an order",
                    shown(form)
                ));
            }
        }
        let (before, after) = (before.to_vec(), after.to_vec());
        Ok(Condition::Leaf(
            path,
            Test::Compared {
                order,
                before,
                after,
            },
        ))
    }
}

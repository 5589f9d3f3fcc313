//! Which records are meant: what a request asks for, and what a grant lets through, in one form.

use rung_fault::Code;
use std::fmt::Write as _;

use crate::declaration::{Bound, Fact, Ways};
use crate::document::{self, Lifted, Members};
use crate::scope::{Collection, Sight};
use crate::store::Value;
use crate::write::{equal_key, fact_key, lifted_key};
use crate::{Error, Result, key};

/// Conditions that one request may have.
const MAX_FILTERS: usize = 50;

/// A condition, as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Filter {
    /// On which field.
    pub field: String,
    /// A comparison. `None` for being equal.
    pub bound: Option<String>,
    /// With what.
    pub value: String,
}

/// A condition on one field: from a key on, and before another.
#[derive(Debug, Clone)]
pub(crate) struct Test {
    pub(crate) fact: Fact,
    /// Its number in the shape.
    pub(crate) no: i64,
    pub(crate) from: Option<Vec<u8>>,
    pub(crate) to: Option<Vec<u8>>,
    /// Whether one value alone passes.
    pub(crate) exact: bool,
}

/// Everything that must hold for a record to be meant, and to be seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tests {
    pub(crate) tests: Vec<Test>,
    /// The keys that may be meant. `None` for all.
    pub(crate) keys: Option<Vec<String>>,
}

impl Test {
    pub(crate) fn holds(&self, members: &Members<'_>, lifted: &[Lifted]) -> bool {
        let key = match lifted.iter().find(|long| long.field == self.fact.field) {
            Some(long) => lifted_key(long, &self.fact),
            None => members
                .iter()
                .find(|(name, _)| *name == self.fact.field)
                .and_then(|(_, value)| fact_key(&document::scalar(value)?, &self.fact)),
        };
        key.is_some_and(|key| {
            self.from.as_ref().is_none_or(|from| key >= *from)
                && self.to.as_ref().is_none_or(|to| key < *to)
        })
    }
}

impl Tests {
    /// What a request means for one stream of one connection. Fields that may not be seen may not be asked about.
    pub(crate) fn of(sight: &Sight, filters: &[Filter]) -> Result<Self> {
        check(sight, filters)?;
        let mut tests = Self {
            tests: Vec::new(),
            keys: sight
                .resources
                .as_ref()
                .map(|keys| keys.iter().cloned().collect()),
        };
        let stream = sight.stream();
        let Some(collection) = &sight.collection else {
            return Ok(tests);
        };
        for filter in filters {
            if filter.bound.is_none()
                && stream.primary_key == [filter.field.clone()]
                && collection.shape.fact(&filter.field).is_none()
            {
                let keys = tests.keys.get_or_insert_with(|| vec![filter.value.clone()]);
                keys.retain(|key| *key == filter.value);
                continue;
            }
            let (no, fact) = indexed(collection, &filter.field)?;
            let (from, to) = span(filter, fact)?;
            tests.tests.push(Test {
                fact: fact.clone(),
                no,
                from,
                to,
                exact: filter.bound.is_none(),
            });
        }
        if let Some(keys) = &mut tests.keys {
            // No key has one, and PostgreSQL takes no text that does.
            keys.retain(|key| !key.contains('\0'));
        }
        if let Some(time) = &sight.time {
            let (no, fact) = indexed(collection, &time.field)?;
            tests.tests.push(Test {
                fact: fact.clone(),
                no,
                from: Some(time.from.clone().unwrap_or_else(|| key::TIMES.0.to_vec())),
                to: Some(time.to.clone().unwrap_or_else(|| key::TIMES.1.to_vec())),
                exact: false,
            });
        }
        Ok(tests)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tests.is_empty() && self.keys.is_none()
    }

    /// Whether a record is meant.
    pub(crate) fn hold(&self, key: &str, data: &str, lifted: &[Lifted]) -> Result<bool> {
        if self
            .keys
            .as_ref()
            .is_some_and(|keys| !keys.iter().any(|own| own == key))
        {
            return Ok(false);
        }
        if self.tests.is_empty() {
            return Ok(true);
        }
        let members = document::members(data);
        let members = members.ok_or_else(|| Error::Broken("a record is no object".to_owned()))?;
        Ok(self.tests.iter().all(|test| test.holds(&members, lifted)))
    }

    /// The same as conditions on a row that has an order and a version.
    pub(crate) fn conditions<'a>(
        &'a self,
        sql: &mut Sql<'a>,
        collection: &Collection,
        row: &str,
        skip: Option<usize>,
    ) {
        for (at, test) in self.tests.iter().enumerate() {
            if Some(at) == skip {
                continue;
            }
            let (subject, no) = (collection.subject, collection.no);
            if test.exact && test.fact.ways == Ways::All {
                sql.push(" AND EXISTS (SELECT 1 FROM fact g WHERE g.subject = ")
                    .bind(subject);
                sql.push(" AND g.collection = ")
                    .bind(no)
                    .push(" AND g.field = ")
                    .bind(test.no);
                test.range(sql, "g");
                sql.push(&format!(
                    " AND g.ord = {row}.ord AND g.version = {row}.version)"
                ));
            } else {
                sql.push(&format!(
                    " AND {row}.version IN (SELECT g.version FROM fact g WHERE g.subject = "
                ))
                .bind(subject);
                sql.push(" AND g.collection = ")
                    .bind(no)
                    .push(" AND g.field = ")
                    .bind(test.no);
                test.range(sql, "g");
                sql.push(")");
            }
        }
        if let Some(keys) = &self.keys {
            sql.push(&format!(" AND {row}.version IN ("));
            versions_of_keys(sql, collection, keys);
            sql.push(")");
        }
    }

    /// A question for each condition: which versions that hold does it let through? What all of them let through is what
    /// the conditions do, and no record is looked at for it.
    pub(crate) fn versions<'a>(&'a self, collection: &Collection) -> Vec<Sql<'a>> {
        let of_test = |test: &'a Test| {
            let mut sql = Sql::new("SELECT g.version FROM fact g WHERE g.subject = ");
            sql.bind(collection.subject)
                .push(" AND g.collection = ")
                .bind(collection.no);
            sql.push(" AND g.field = ").bind(test.no);
            test.range(&mut sql, "g");
            sql
        };
        let mut all: Vec<Sql<'a>> = self.tests.iter().map(of_test).collect();
        if let Some(keys) = &self.keys {
            let mut sql = Sql::new("");
            versions_of_keys(&mut sql, collection, keys);
            all.push(sql);
        }
        all
    }
}

fn versions_of_keys<'a>(sql: &mut Sql<'a>, collection: &Collection, keys: &'a [String]) {
    sql.push("SELECT k.version FROM record k WHERE k.subject = ")
        .bind(collection.subject)
        .push(" AND k.collection = ")
        .bind(collection.no);
    sql.push(" AND k.until = 9223372036854775807 AND k.key IN (");
    for (at, key) in keys.iter().enumerate() {
        sql.push(if at == 0 { "" } else { ", " }).bind(key.as_str());
    }
    sql.push(if keys.is_empty() { "NULL)" } else { ")" });
}

impl Test {
    /// The condition on a fact's value.
    pub(crate) fn range<'a>(&'a self, sql: &mut Sql<'a>, row: &str) {
        // One value is asked for as one: then the index gives the rest in order.
        if let (true, Some(from), Some(to)) = (self.exact, &self.from, &self.to)
            && to.split_last() == Some((&0, from))
        {
            sql.push(&format!(" AND {row}.value = "))
                .bind(from.as_slice());
            return;
        }
        if let Some(from) = &self.from {
            sql.push(&format!(" AND {row}.value >= "))
                .bind(from.as_slice());
        }
        if let Some(to) = &self.to {
            sql.push(&format!(" AND {row}.value < "))
                .bind(to.as_slice());
        }
    }
}

/// A statement that grows with its parameters.
pub(crate) struct Sql<'a> {
    pub(crate) text: String,
    pub(crate) params: Vec<Value<'a>>,
}

impl<'a> Sql<'a> {
    pub(crate) fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            params: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    pub(crate) fn bind(&mut self, value: impl Into<Value<'a>>) -> &mut Self {
        self.params.push(value.into());
        let _never_fails = write!(self.text, "?{}", self.params.len());
        self
    }
}

/// The fact that a field is found by, where there is one already.
pub(crate) fn indexed<'c>(collection: &'c Collection, field: &str) -> Result<(i64, &'c Fact)> {
    collection.shape.fact(field).ok_or_else(|| {
        Error::Building(format!(
            "field {field} was declared lately, and is not yet indexed"
        ))
    })
}

/// Whether a request may ask this at all. It is said before anything is read.
pub(crate) fn check(sight: &Sight, filters: &[Filter]) -> Result<()> {
    if filters.len() > MAX_FILTERS {
        return Err(Error::invalid(
            "filter",
            format!("filter: {MAX_FILTERS} conditions at most"),
        ));
    }
    let stream = sight.stream();
    for filter in filters {
        let field = stream.field(&filter.field).ok_or_else(|| {
            let near = rung_fault::nearest(
                &filter.field,
                stream.fields.iter().map(|own| own.name.as_str()),
            );
            let near = near
                .filter(|near| sight.shows(near))
                .map_or_else(String::new, |near| format!("; did you mean {near}?"));
            Error::refused(
                Code::UnknownField,
                "filter",
                format!("{} has no field {}{near}", stream.name, filter.field),
            )
        })?;
        if !sight.shows(&filter.field) {
            return Err(Error::FieldNotGranted {
                field: filter.field.clone(),
                param: "filter",
            });
        }
        let Some(kind) = field.kind else {
            return Err(Error::invalid(
                "filter",
                format!("{} is no scalar, and cannot be filtered by", filter.field),
            ));
        };
        if let Some(bound) = &filter.bound {
            let allowed = stream.query.range_filters.get(&filter.field);
            let known = Bound::named(bound)
                .filter(|bound| allowed.is_some_and(|allowed| allowed.contains(bound)));
            if known.is_none() {
                let allowed: Vec<&str> = allowed
                    .into_iter()
                    .flatten()
                    .map(|bound| bound.name())
                    .collect();
                let allowed = if allowed.is_empty() {
                    "equality alone".to_owned()
                } else {
                    allowed.join(", ")
                };
                return Err(Error::invalid(
                    "filter",
                    format!(
                        "{} is not filtered by {bound}, but by {allowed}",
                        filter.field
                    ),
                ));
            }
        }
        if key::parse(&filter.value, kind).is_none() {
            return Err(Error::invalid(
                "filter",
                format!(
                    "filter[{}]: {:?} is no {}",
                    filter.field,
                    rung_ladder::head(&filter.value, 100),
                    kind.name()
                ),
            ));
        }
    }
    Ok(())
}

type Keys = (Option<Vec<u8>>, Option<Vec<u8>>);

/// The keys that a condition lets through.
fn span(filter: &Filter, fact: &Fact) -> Result<Keys> {
    if fact.ways == Ways::Equal {
        let from = equal_key(&filter.value);
        return Ok((Some(from.clone()), Some(next(from))));
    }
    let refused = || {
        Error::invalid(
            "filter",
            format!("filter[{}]: no {}", filter.field, fact.kind.name()),
        )
    };
    let own = key::parse(&filter.value, fact.kind).ok_or_else(refused)?;
    // A moment is followed by its spelling, every other value by nothing.
    let beyond = match fact.kind {
        key::Kind::Time => key::after(&own),
        _ => next(own.clone()),
    };
    // What is compared is of one kind: a text is not less than a number.
    let (least, most) = (vec![own[0]], vec![own[0] + 1]);
    Ok(match filter.bound.as_deref().and_then(Bound::named) {
        None => (Some(own), Some(beyond)),
        Some(Bound::Gte) => (Some(own), Some(most)),
        Some(Bound::Gt) => (Some(beyond), Some(most)),
        Some(Bound::Lte) => (Some(least), Some(beyond)),
        Some(Bound::Lt) => (Some(least), Some(own)),
    })
}

/// The least key after this one.
fn next(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

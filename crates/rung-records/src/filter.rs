//! Conditions on records: the filters of a request and the limits of a grant, in one form.

use rung_fault::Code;
use std::fmt::Write as _;

use crate::declaration::{IndexKind, IndexedField, RangeOperator};
use crate::document::{self, LiftedText, ObjectMembers};
use crate::scope::{Collection, StreamScope};
use crate::store::Value;
use crate::write::{equal_key, fact_key, lifted_key};
use crate::{Error, Result, key};

/// Maximum number of filters of a request.
const MAX_FILTERS: usize = 50;

/// A filter of a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordFilter {
    pub field: String,
    /// The comparison operator. `None`: equality.
    pub operator: Option<String>,
    pub value: String,
}

/// A condition on one field: a half-open range of keys.
#[derive(Debug, Clone)]
pub(crate) struct FieldCondition {
    pub(crate) fact: IndexedField,
    /// The number of the field in the index shape.
    pub(crate) field_no: i64,
    pub(crate) from: Option<Vec<u8>>,
    pub(crate) to: Option<Vec<u8>>,
    /// True if exactly one value matches.
    pub(crate) exact: bool,
}

/// All conditions that a record must meet to match the request and to be visible.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordConditions {
    pub(crate) conditions: Vec<FieldCondition>,
    /// The record keys that match. `None`: all.
    pub(crate) keys: Option<Vec<String>>,
}

impl FieldCondition {
    pub(crate) fn matches(&self, members: &ObjectMembers<'_>, lifted: &[LiftedText]) -> bool {
        let key = match lifted.iter().find(|long| long.field == self.fact.field) {
            Some(long) => lifted_key(long, &self.fact),
            None => members
                .iter()
                .find(|(name, _)| *name == self.fact.field)
                .and_then(|(_, value)| fact_key(&document::scalar_value(value)?, &self.fact)),
        };
        key.is_some_and(|key| {
            self.from.as_ref().is_none_or(|from| key >= *from)
                && self.to.as_ref().is_none_or(|to| key < *to)
        })
    }
}

impl RecordConditions {
    /// Builds the conditions of a request on one stream of one connection. Rejects filters on fields that are not
    /// visible.
    pub(crate) fn build(scope: &StreamScope, filters: &[RecordFilter]) -> Result<Self> {
        check_filters(scope, filters)?;
        let mut tests = Self {
            conditions: Vec::new(),
            keys: scope
                .resources
                .as_ref()
                .map(|keys| keys.iter().cloned().collect()),
        };
        let stream = scope.stream();
        let Some(collection) = &scope.collection else {
            return Ok(tests);
        };
        for filter in filters {
            if filter.operator.is_none()
                && stream.primary_key == [filter.field.clone()]
                && collection.shape.fact(&filter.field).is_none()
            {
                let keys = tests.keys.get_or_insert_with(|| vec![filter.value.clone()]);
                keys.retain(|key| *key == filter.value);
                continue;
            }
            let (no, fact) = indexed_field(collection, &filter.field)?;
            let (from, to) = key_range(filter, fact)?;
            tests.conditions.push(FieldCondition {
                fact: fact.clone(),
                field_no: no,
                from,
                to,
                exact: filter.operator.is_none(),
            });
        }
        if let Some(keys) = &mut tests.keys {
            // No key contains NUL, and PostgreSQL text cannot.
            keys.retain(|key| !key.contains('\0'));
        }
        if let Some(time) = &scope.time {
            let (no, fact) = indexed_field(collection, &time.field)?;
            tests.conditions.push(FieldCondition {
                fact: fact.clone(),
                field_no: no,
                from: Some(
                    time.from
                        .clone()
                        .unwrap_or_else(|| key::TIME_KEYS.0.to_vec()),
                ),
                to: Some(time.to.clone().unwrap_or_else(|| key::TIME_KEYS.1.to_vec())),
                exact: false,
            });
        }
        Ok(tests)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.conditions.is_empty() && self.keys.is_none()
    }

    /// Returns true if a record meets the conditions.
    pub(crate) fn matches(&self, key: &str, data: &str, lifted: &[LiftedText]) -> Result<bool> {
        if self
            .keys
            .as_ref()
            .is_some_and(|keys| !keys.iter().any(|own| own == key))
        {
            return Ok(false);
        }
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let members = document::members(data);
        let members =
            members.ok_or_else(|| Error::Broken("a record is not an object".to_owned()))?;
        Ok(self
            .conditions
            .iter()
            .all(|test| test.matches(&members, lifted)))
    }

    /// Appends the conditions to SQL over a table with the columns `ord` and `version`.
    pub(crate) fn push_conditions<'a>(
        &'a self,
        sql: &mut SqlBuilder<'a>,
        collection: &Collection,
        row: &str,
        skip: Option<usize>,
    ) {
        for (at, test) in self.conditions.iter().enumerate() {
            if Some(at) == skip {
                continue;
            }
            let (subject, no) = (collection.subject, collection.no);
            if test.exact && test.fact.ways == IndexKind::All {
                sql.push(" AND EXISTS (SELECT 1 FROM fact g WHERE g.subject = ")
                    .bind(subject);
                sql.push(" AND g.collection = ")
                    .bind(no)
                    .push(" AND g.field = ")
                    .bind(test.field_no);
                test.push_range(sql, "g");
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
                    .bind(test.field_no);
                test.push_range(sql, "g");
                sql.push(")");
            }
        }
        if let Some(keys) = &self.keys {
            sql.push(&format!(" AND {row}.version IN ("));
            push_versions_of_keys(sql, collection, keys);
            sql.push(")");
        }
    }

    /// Returns one query per condition, each selecting the current versions that meet it. Their intersection meets all
    /// conditions, found from the indexes alone.
    pub(crate) fn version_queries<'a>(&'a self, collection: &Collection) -> Vec<SqlBuilder<'a>> {
        let of_test = |test: &'a FieldCondition| {
            let mut sql = SqlBuilder::new("SELECT g.version FROM fact g WHERE g.subject = ");
            sql.bind(collection.subject)
                .push(" AND g.collection = ")
                .bind(collection.no);
            sql.push(" AND g.field = ").bind(test.field_no);
            test.push_range(&mut sql, "g");
            sql
        };
        let mut all: Vec<SqlBuilder<'a>> = self.conditions.iter().map(of_test).collect();
        if let Some(keys) = &self.keys {
            let mut sql = SqlBuilder::new("");
            push_versions_of_keys(&mut sql, collection, keys);
            all.push(sql);
        }
        all
    }
}

fn push_versions_of_keys<'a>(
    sql: &mut SqlBuilder<'a>,
    collection: &Collection,
    keys: &'a [String],
) {
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

impl FieldCondition {
    /// Appends the condition on the value of an index row.
    pub(crate) fn push_range<'a>(&'a self, sql: &mut SqlBuilder<'a>, row: &str) {
        // An equality lets the index return the rest of the key in order.
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

/// A SQL statement under construction, with its parameters.
pub(crate) struct SqlBuilder<'a> {
    pub(crate) text: String,
    pub(crate) params: Vec<Value<'a>>,
}

impl<'a> SqlBuilder<'a> {
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

/// Returns the index of a field. Fails if it is not built yet.
pub(crate) fn indexed_field<'c>(
    collection: &'c Collection,
    field: &str,
) -> Result<(i64, &'c IndexedField)> {
    collection.shape.fact(field).ok_or_else(|| {
        Error::IndexBuilding(format!(
            "field {field} was declared recently and is not indexed yet"
        ))
    })
}

/// Checks filters before any record is read.
pub(crate) fn check_filters(scope: &StreamScope, filters: &[RecordFilter]) -> Result<()> {
    if filters.len() > MAX_FILTERS {
        return Err(Error::invalid_request(
            "filter",
            format!("filter: at most {MAX_FILTERS} conditions"),
        ));
    }
    let stream = scope.stream();
    for filter in filters {
        let field = stream.field(&filter.field).ok_or_else(|| {
            let error = Error::invalid_with_code(
                Code::UnknownField,
                "filter",
                format!("{} has no field {}", stream.name, filter.field),
            );
            error.with_similar_names(&filter.field, scope.granted_fields())
        })?;
        if !scope.grants_field(&filter.field) {
            return Err(Error::FieldNotGranted {
                field: filter.field.clone(),
                param: "filter",
            });
        }
        let Some(kind) = field.kind else {
            return Err(Error::invalid_request(
                "filter",
                format!(
                    "{} is not a scalar field and cannot be filtered",
                    filter.field
                ),
            ));
        };
        if let Some(bound) = &filter.operator {
            let allowed = stream.query.range_filters.get(&filter.field);
            let known = RangeOperator::parse(bound)
                .filter(|bound| allowed.is_some_and(|allowed| allowed.contains(bound)));
            if known.is_none() {
                let allowed: Vec<&str> = allowed
                    .into_iter()
                    .flatten()
                    .map(|bound| bound.name())
                    .collect();
                let allowed = if allowed.is_empty() {
                    "equality only".to_owned()
                } else {
                    allowed.join(", ")
                };
                return Err(Error::invalid_request(
                    "filter",
                    format!(
                        "{} cannot be filtered by {bound}; allowed: {allowed}",
                        filter.field
                    ),
                ));
            }
        }
        if key::parse_key(&filter.value, kind).is_none() {
            return Err(Error::invalid_request(
                "filter",
                format!(
                    "filter[{}]: {:?} is not a valid {}",
                    filter.field,
                    rung_ladder::head(&filter.value, 100),
                    kind.name()
                ),
            ));
        }
    }
    Ok(())
}

type KeyRange = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Returns the range of keys that a filter matches.
fn key_range(filter: &RecordFilter, fact: &IndexedField) -> Result<KeyRange> {
    if fact.ways == IndexKind::Equal {
        let from = equal_key(&filter.value);
        return Ok((Some(from.clone()), Some(next_key(from))));
    }
    let refused = || {
        Error::invalid_request(
            "filter",
            format!("filter[{}]: not a valid {}", filter.field, fact.kind.name()),
        )
    };
    let own = key::parse_key(&filter.value, fact.kind).ok_or_else(refused)?;
    // The key of a moment continues with its spelling. Other keys end here.
    let beyond = match fact.kind {
        key::ValueKind::Time => key::prefix_end(&own),
        _ => next_key(own.clone()),
    };
    // Ranges stay within one type: a text is never less than a number.
    let (least, most) = (vec![own[0]], vec![own[0] + 1]);
    Ok(
        match filter.operator.as_deref().and_then(RangeOperator::parse) {
            None => (Some(own), Some(beyond)),
            Some(RangeOperator::Gte) => (Some(own), Some(most)),
            Some(RangeOperator::Gt) => (Some(beyond), Some(most)),
            Some(RangeOperator::Lte) => (Some(least), Some(beyond)),
            Some(RangeOperator::Lt) => (Some(least), Some(own)),
        },
    )
}

/// Returns the least key greater than `key`.
fn next_key(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

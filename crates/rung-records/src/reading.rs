//! Finding rows: by the stream's order or by the one condition that is narrowest, at one moment of the stream.

use std::fmt::Write as _;

use crate::Result;
use crate::declaration::Ways;
use crate::filter::{Sql, Test, Tests};
use crate::key::Kind;
use crate::page::{Order, STORED, Stored};
use crate::scope::Collection;
use crate::store::Tx;

/// Where to go on in one collection.
pub(crate) struct From<'p> {
    pub(crate) ord: &'p [u8],
    pub(crate) key: &'p str,
    /// Whether the place itself is still to come.
    pub(crate) including: bool,
}

/// Rows that are looked at together at most.
const MAX_ROWS: i64 = 2_000;
/// Up to so many matches are sorted; of more, enough are met on the way.
const FEW: i64 = 5_000;

/// One collection's part of a page.
pub(crate) struct Reading<'a> {
    pub(crate) collection: &'a Collection,
    pub(crate) tests: &'a Tests,
    pub(crate) order: Order,
    /// The moment at which it is read.
    pub(crate) version: i64,
    /// Whether something has changed since.
    pub(crate) past: bool,
}

impl Reading<'_> {
    /// The first `limit` rows after a place.
    pub(crate) fn rows(
        &self,
        tx: &mut dyn Tx,
        from: Option<&From<'_>>,
        limit: usize,
    ) -> Result<Vec<Stored>> {
        let mut found = self.current(tx, from, limit)?;
        if self.past {
            let mut before = Vec::new();
            self.superseded(tx, from, &mut |row| {
                before.push(row);
                Ok(before.len() < limit)
            })?;
            found.append(&mut before);
            found.sort_by(|a, b| self.order.of((&a.ord, &a.key).cmp(&(&b.ord, &b.key))));
            found.truncate(limit);
        }
        Ok(found)
    }

    /// Of those that still hold.
    fn current(
        &self,
        tx: &mut dyn Tx,
        from: Option<&From<'_>>,
        limit: usize,
    ) -> Result<Vec<Stored>> {
        let mut found: Vec<Stored> = Vec::new();
        let driver = self.driver(tx)?;
        let mut rows = i64::try_from(limit).unwrap_or(MAX_ROWS).min(MAX_ROWS);
        let mut place: Option<(Vec<u8>, String)> = None;
        loop {
            let next = place.as_ref().map(|(ord, key)| From {
                ord,
                key,
                including: false,
            });
            let mut sql = self.select(driver, next.as_ref().or(from));
            sql.push(" LIMIT ").bind(rows);
            let mut seen = 0;
            let mut last = None;
            let (text, values) = (sql.text, sql.params);
            tx.query(&text, &values, &mut |row| {
                seen += 1;
                let stored = Stored::read(row)?;
                last = Some((stored.ord.clone(), stored.key.clone()));
                if self.tests.hold(&stored.key, &stored.data, &stored.lifted)? {
                    found.push(stored);
                }
                Ok(found.len() < limit)
            })?;
            if found.len() >= limit || seen < rows {
                return Ok(found);
            }
            place = last;
            rows = (rows * 4).min(MAX_ROWS);
        }
    }

    /// The condition by which rows are found, where that is better than to go through all in order.
    fn driver(&self, tx: &mut dyn Tx) -> Result<Option<usize>> {
        let order = self.collection.shape.order.as_ref().map(|(field, _)| field);
        let mut best: Option<(usize, i64)> = None;
        for (at, test) in self.tests.tests.iter().enumerate() {
            if !test.exact && order == Some(&test.fact.field) {
                continue;
            }
            let mut sql = Sql::new("SELECT count(*) FROM (SELECT 1 FROM fact f WHERE f.subject = ");
            sql.bind(self.collection.subject)
                .push(" AND f.collection = ")
                .bind(self.collection.no);
            sql.push(" AND f.field = ").bind(test.no);
            test.range(&mut sql, "f");
            sql.push(" LIMIT ").bind(FEW).push(") few");
            let few = tx
                .one(&sql.text, &sql.params, |row| row.int(0))?
                .unwrap_or(0);
            // A range that lets many through gives them in no useful order.
            if (test.exact || few < FEW) && best.is_none_or(|(_, least)| few < least) {
                best = Some((at, few));
            }
        }
        Ok(best.map(|(at, _)| at))
    }

    fn select<'a>(&'a self, driver: Option<usize>, from: Option<&From<'a>>) -> Sql<'a> {
        let (subject, no) = (self.collection.subject, self.collection.no);
        let (after, direction) = self.order.sql();
        let mut sql = Sql::new(&format!("SELECT {STORED} FROM "));
        let row = if let Some(at) = driver {
            let test = &self.tests.tests[at];
            sql.push("fact f JOIN record r ON r.subject = f.subject AND r.collection = f.collection AND r.version = f.version WHERE f.subject = ");
            sql.bind(subject)
                .push(" AND f.collection = ")
                .bind(no)
                .push(" AND f.field = ")
                .bind(test.no);
            test.range(&mut sql, "f");
            match test.fact.ways {
                Ways::All => "f",
                Ways::Equal => "r",
            }
        } else {
            sql.push("record r WHERE r.subject = ")
                .bind(subject)
                .push(" AND r.collection = ")
                .bind(no);
            sql.push(" AND r.until = 9223372036854775807 AND r.deleted = 0");
            "r"
        };
        // What is asked of the field that orders them is asked of their order.
        let order = self.collection.shape.order.as_ref().map(|(field, _)| field);
        // An empty text is a value, and has no place in the order: what lets it through is left to be checked.
        let bounded = |test: &Test| {
            test.fact.kind != Kind::Text || test.from.as_ref().is_some_and(|from| from.len() > 1)
        };
        let ordering =
            |test: &&Test| !test.exact && order == Some(&test.fact.field) && bounded(test);
        for test in self.tests.tests.iter().filter(ordering) {
            if let Some(from) = &test.from {
                sql.push(&format!(" AND {row}.ord >= "))
                    .bind(from.as_slice());
            }
            if let Some(to) = &test.to {
                sql.push(&format!(" AND {row}.ord < ")).bind(to.as_slice());
            }
        }
        for (at, test) in self.tests.tests.iter().enumerate() {
            if test.exact && Some(at) != driver {
                sql.push(" AND EXISTS (SELECT 1 FROM fact g WHERE g.subject = ")
                    .bind(subject);
                sql.push(" AND g.collection = ")
                    .bind(no)
                    .push(" AND g.field = ")
                    .bind(test.no);
                test.range(&mut sql, "g");
                match test.fact.ways {
                    Ways::All => sql.push(" AND g.ord = r.ord"),
                    Ways::Equal => sql.push(" AND g.ord = ").bind(&[][..]),
                };
                sql.push(" AND g.version = r.version)");
            }
        }
        if let Some(keys) = &self.tests.keys {
            sql.push(" AND r.key IN (");
            for (at, key) in keys.iter().enumerate() {
                sql.push(if at == 0 { "" } else { ", " }).bind(key.as_str());
            }
            sql.push(if keys.is_empty() { "NULL)" } else { ")" });
        }
        if self.past {
            // A sum of one: versions are no way to find these rows, their order is.
            sql.push(" AND +r.version <= ").bind(self.version);
        }
        if let Some(from) = from {
            let equal = if from.including { "=" } else { "" };
            sql.push(&format!(" AND ({row}.ord, r.key) {after}{equal} ("))
                .bind(from.ord);
            sql.push(", ").bind(from.key).push(")");
        }
        let _never_fails = write!(
            sql.text,
            " ORDER BY {row}.ord {direction}, r.key {direction}"
        );
        sql
    }

    /// Of those that held at that moment, and have been followed by others since. What is deleted now is not shown any more.
    pub(crate) fn superseded(
        &self,
        tx: &mut dyn Tx,
        from: Option<&From<'_>>,
        each: &mut dyn FnMut(Stored) -> Result<bool>,
    ) -> Result<()> {
        let (after, direction) = self.order.sql();
        let mut sql = Sql::new(&format!("SELECT {STORED} FROM record r WHERE r.subject = "));
        sql.bind(self.collection.subject)
            .push(" AND r.collection = ")
            .bind(self.collection.no);
        sql.push(" AND r.until < 9223372036854775807 AND r.until > ")
            .bind(self.version);
        sql.push(" AND r.version <= ").bind(self.version);
        sql.push(
            " AND r.deleted = 0 AND NOT EXISTS (SELECT 1 FROM record d WHERE d.subject = r.subject
             AND d.collection = r.collection AND d.key = r.key AND d.until = 9223372036854775807 AND d.deleted = 1)",
        );
        if let Some(from) = from {
            let equal = if from.including { "=" } else { "" };
            sql.push(&format!(" AND (r.ord, r.key) {after}{equal} ("))
                .bind(from.ord);
            sql.push(", ").bind(from.key).push(")");
        }
        sql.push(&format!(" ORDER BY r.ord {direction}, r.key {direction}"));
        tx.query(&sql.text, &sql.params, &mut |row| {
            let stored = Stored::read(row)?;
            Ok(!self.tests.hold(&stored.key, &stored.data, &stored.lifted)? || each(stored)?)
        })
    }

    /// How many there are.
    pub(crate) fn count(&self, tx: &mut dyn Tx) -> Result<i64> {
        let now = if self.tests.is_empty() && !self.past {
            self.collection.records
        } else {
            let mut sql = self.matching("count(*)");
            if self.past {
                sql.push(" AND r.version <= ").bind(self.version);
            }
            tx.one(&sql.text, &sql.params, |row| row.int(0))?
                .unwrap_or(0)
        };
        let mut before = 0;
        if self.past {
            self.superseded(tx, None, &mut |_| {
                before += 1;
                Ok(true)
            })?;
        }
        Ok(now + before)
    }

    /// The records that are meant, by the one index that is narrowest to begin with.
    fn matching(&self, what: &str) -> Sql<'_> {
        let (subject, no) = (self.collection.subject, self.collection.no);
        let mut sql = Sql::new("SELECT ");
        // What is in order says more of a row than what is not.
        let ordered = |test: &Test| test.fact.ways == Ways::All;
        let first = self.tests.tests.iter().position(ordered).unwrap_or(0);
        if let Some(test) = self.tests.tests.get(first) {
            sql.push(what)
                .push(" FROM fact r WHERE r.subject = ")
                .bind(subject);
            sql.push(" AND r.collection = ")
                .bind(no)
                .push(" AND r.field = ")
                .bind(test.no);
            test.range(&mut sql, "r");
            self.tests
                .conditions(&mut sql, self.collection, "r", Some(first));
        } else {
            sql.push(what)
                .push(" FROM record r WHERE r.subject = ")
                .bind(subject);
            sql.push(" AND r.collection = ").bind(no);
            sql.push(" AND r.until = 9223372036854775807 AND r.deleted = 0");
            self.tests.conditions(&mut sql, self.collection, "r", None);
        }
        sql
    }
}

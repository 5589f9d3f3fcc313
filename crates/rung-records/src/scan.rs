//! Scans of a collection, by record order or by the most selective condition, as of one version.

use std::fmt::Write as _;

use crate::Result;
use crate::declaration::IndexKind;
use crate::filter::{FieldCondition, RecordConditions, SqlBuilder};
use crate::key::ValueKind;
use crate::page::{STORED, SortOrder, StoredRecord};
use crate::scope::Collection;
use crate::store::Tx;

/// The position at which a scan starts.
pub(crate) struct ScanStart<'p> {
    pub(crate) ord: &'p [u8],
    pub(crate) key: &'p str,
    /// True if the position itself is included.
    pub(crate) inclusive: bool,
}

/// Maximum number of rows per query.
const MAX_ROWS_PER_QUERY: i64 = 2_000;
/// Largest number of matches that a range condition may have to drive a scan; these are sorted.
const MAX_SORTED_MATCHES: i64 = 5_000;

/// A scan of one collection.
pub(crate) struct CollectionScan<'a> {
    pub(crate) collection: &'a Collection,
    pub(crate) conditions: &'a RecordConditions,
    pub(crate) order: SortOrder,
    /// The version to read.
    pub(crate) version: i64,
    /// True if the collection has changed since that version.
    pub(crate) is_past: bool,
}

impl CollectionScan<'_> {
    /// Returns the first `limit` matching rows from a position on.
    pub(crate) fn rows(
        &self,
        tx: &mut dyn Tx,
        from: Option<&ScanStart<'_>>,
        limit: usize,
    ) -> Result<Vec<StoredRecord>> {
        let mut found = self.current_rows(tx, from, limit)?;
        if self.is_past {
            let mut before = Vec::new();
            self.superseded_rows(tx, from, &mut |row| {
                before.push(row);
                Ok(before.len() < limit)
            })?;
            found.append(&mut before);
            found.sort_by(|a, b| self.order.apply((&a.ord, &a.key).cmp(&(&b.ord, &b.key))));
            found.truncate(limit);
        }
        Ok(found)
    }

    /// Returns rows that are still current.
    fn current_rows(
        &self,
        tx: &mut dyn Tx,
        from: Option<&ScanStart<'_>>,
        limit: usize,
    ) -> Result<Vec<StoredRecord>> {
        let mut found: Vec<StoredRecord> = Vec::new();
        let driver = self.driving_condition(tx)?;
        let mut rows = i64::try_from(limit)
            .unwrap_or(MAX_ROWS_PER_QUERY)
            .min(MAX_ROWS_PER_QUERY);
        let mut place: Option<(Vec<u8>, String)> = None;
        loop {
            let next = place.as_ref().map(|(ord, key)| ScanStart {
                ord,
                key,
                inclusive: false,
            });
            let mut sql = self.driver_query(driver, next.as_ref().or(from));
            sql.push(" LIMIT ").bind(rows);
            let mut seen = 0;
            let mut last = None;
            let (text, values) = (sql.text, sql.params);
            tx.query(&text, &values, &mut |row| {
                seen += 1;
                let stored = StoredRecord::from_row(row)?;
                last = Some((stored.ord.clone(), stored.key.clone()));
                if self
                    .conditions
                    .matches(&stored.key, &stored.data, &stored.lifted)?
                {
                    found.push(stored);
                }
                Ok(found.len() < limit)
            })?;
            if found.len() >= limit || seen < rows {
                return Ok(found);
            }
            place = last;
            rows = (rows * 4).min(MAX_ROWS_PER_QUERY);
        }
    }

    /// Returns the index of the condition to drive the scan, or `None` to scan in record order.
    fn driving_condition(&self, tx: &mut dyn Tx) -> Result<Option<usize>> {
        let order = self.collection.shape.order.as_ref().map(|(field, _)| field);
        let mut best: Option<(usize, i64)> = None;
        for (at, test) in self.conditions.conditions.iter().enumerate() {
            if !test.exact && order == Some(&test.fact.field) {
                continue;
            }
            let mut sql =
                SqlBuilder::new("SELECT count(*) FROM (SELECT 1 FROM fact f WHERE f.subject = ");
            sql.bind(self.collection.subject)
                .push(" AND f.collection = ")
                .bind(self.collection.no);
            sql.push(" AND f.field = ").bind(test.field_no);
            test.push_range(&mut sql, "f");
            sql.push(" LIMIT ").bind(MAX_SORTED_MATCHES).push(") few");
            let few = tx
                .query_one(&sql.text, &sql.params, |row| row.int(0))?
                .unwrap_or(0);
            // A range returns rows in no useful order, so it must match few.
            if (test.exact || few < MAX_SORTED_MATCHES) && best.is_none_or(|(_, least)| few < least)
            {
                best = Some((at, few));
            }
        }
        Ok(best.map(|(at, _)| at))
    }

    fn driver_query<'a>(
        &'a self,
        driver: Option<usize>,
        from: Option<&ScanStart<'a>>,
    ) -> SqlBuilder<'a> {
        let (subject, no) = (self.collection.subject, self.collection.no);
        let (after, direction) = self.order.sql_terms();
        let mut sql = SqlBuilder::new(&format!("SELECT {STORED} FROM "));
        let row = if let Some(at) = driver {
            let test = &self.conditions.conditions[at];
            sql.push("fact f JOIN record r ON r.subject = f.subject AND r.collection = f.collection AND r.version = f.version WHERE f.subject = ");
            sql.bind(subject)
                .push(" AND f.collection = ")
                .bind(no)
                .push(" AND f.field = ")
                .bind(test.field_no);
            test.push_range(&mut sql, "f");
            match test.fact.ways {
                IndexKind::All => "f",
                IndexKind::Equal => "r",
            }
        } else {
            sql.push("record r WHERE r.subject = ")
                .bind(subject)
                .push(" AND r.collection = ")
                .bind(no);
            sql.push(" AND r.until = 9223372036854775807 AND r.deleted = 0");
            "r"
        };
        // Conditions on the order field also apply to `ord`.
        let order = self.collection.shape.order.as_ref().map(|(field, _)| field);
        // An empty text is a value but counts as missing in `ord`, so an unbounded text range is checked per row only.
        let bounded = |test: &FieldCondition| {
            test.fact.kind != ValueKind::Text
                || test.from.as_ref().is_some_and(|from| from.len() > 1)
        };
        let ordering = |test: &&FieldCondition| {
            !test.exact && order == Some(&test.fact.field) && bounded(test)
        };
        for test in self.conditions.conditions.iter().filter(ordering) {
            if let Some(from) = &test.from {
                sql.push(&format!(" AND {row}.ord >= "))
                    .bind(from.as_slice());
            }
            if let Some(to) = &test.to {
                sql.push(&format!(" AND {row}.ord < ")).bind(to.as_slice());
            }
        }
        for (at, test) in self.conditions.conditions.iter().enumerate() {
            if test.exact && Some(at) != driver {
                sql.push(" AND EXISTS (SELECT 1 FROM fact g WHERE g.subject = ")
                    .bind(subject);
                sql.push(" AND g.collection = ")
                    .bind(no)
                    .push(" AND g.field = ")
                    .bind(test.field_no);
                test.push_range(&mut sql, "g");
                match test.fact.ways {
                    IndexKind::All => sql.push(" AND g.ord = r.ord"),
                    IndexKind::Equal => sql.push(" AND g.ord = ").bind(&[][..]),
                };
                sql.push(" AND g.version = r.version)");
            }
        }
        if let Some(keys) = &self.conditions.keys {
            sql.push(" AND r.key IN (");
            for (at, key) in keys.iter().enumerate() {
                sql.push(if at == 0 { "" } else { ", " }).bind(key.as_str());
            }
            sql.push(if keys.is_empty() { "NULL)" } else { ")" });
        }
        if self.is_past {
            // The unary plus keeps SQLite from using the version index instead of the order.
            sql.push(" AND +r.version <= ").bind(self.version);
        }
        if let Some(from) = from {
            let equal = if from.inclusive { "=" } else { "" };
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

    /// Visits matching rows of the version read that were superseded since. Records deleted by now are omitted.
    pub(crate) fn superseded_rows(
        &self,
        tx: &mut dyn Tx,
        from: Option<&ScanStart<'_>>,
        each: &mut dyn FnMut(StoredRecord) -> Result<bool>,
    ) -> Result<()> {
        let (after, direction) = self.order.sql_terms();
        let mut sql = SqlBuilder::new(&format!("SELECT {STORED} FROM record r WHERE r.subject = "));
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
            let equal = if from.inclusive { "=" } else { "" };
            sql.push(&format!(" AND (r.ord, r.key) {after}{equal} ("))
                .bind(from.ord);
            sql.push(", ").bind(from.key).push(")");
        }
        sql.push(&format!(" ORDER BY r.ord {direction}, r.key {direction}"));
        tx.query(&sql.text, &sql.params, &mut |row| {
            let stored = StoredRecord::from_row(row)?;
            Ok(!self
                .conditions
                .matches(&stored.key, &stored.data, &stored.lifted)?
                || each(stored)?)
        })
    }

    /// Returns the number of matching rows.
    pub(crate) fn count(&self, tx: &mut dyn Tx) -> Result<i64> {
        let now = if self.conditions.is_empty() && !self.is_past {
            self.collection.records
        } else {
            let mut sql = self.count_query("count(*)");
            if self.is_past {
                sql.push(" AND r.version <= ").bind(self.version);
            }
            tx.query_one(&sql.text, &sql.params, |row| row.int(0))?
                .unwrap_or(0)
        };
        let mut before = 0;
        if self.is_past {
            self.superseded_rows(tx, None, &mut |_| {
                before += 1;
                Ok(true)
            })?;
        }
        Ok(now + before)
    }

    /// Selects matching rows of the current state, by index.
    fn count_query(&self, what: &str) -> SqlBuilder<'_> {
        let (subject, no) = (self.collection.subject, self.collection.no);
        let mut sql = SqlBuilder::new("SELECT ");
        // Prefer an ordered index, because it narrows the other conditions.
        let ordered = |test: &FieldCondition| test.fact.ways == IndexKind::All;
        let first = self
            .conditions
            .conditions
            .iter()
            .position(ordered)
            .unwrap_or(0);
        if let Some(test) = self.conditions.conditions.get(first) {
            sql.push(what)
                .push(" FROM fact r WHERE r.subject = ")
                .bind(subject);
            sql.push(" AND r.collection = ")
                .bind(no)
                .push(" AND r.field = ")
                .bind(test.field_no);
            test.push_range(&mut sql, "r");
            self.conditions
                .push_conditions(&mut sql, self.collection, "r", Some(first));
        } else {
            sql.push(what)
                .push(" FROM record r WHERE r.subject = ")
                .bind(subject);
            sql.push(" AND r.collection = ").bind(no);
            sql.push(" AND r.until = 9223372036854775807 AND r.deleted = 0");
            self.conditions
                .push_conditions(&mut sql, self.collection, "r", None);
        }
        sql
    }
}

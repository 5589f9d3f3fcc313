//! Star joins: several patterns of one entity, each with at most one match, evaluated in one pass over its facts.

use std::ops::RangeBounds as _;

use rung_edn::Value;

use super::ast::{DatalogClause, DatomPattern, PatternTerm, Var};
use super::cell::Cell;
use super::pattern::{
    PARALLEL_ROWS, ValueBounds, as_slice_bound, convert_constant, is_compound, value_bounds,
};
use super::relation::Relation;
use super::watch::QueryWatch;
use crate::datom::encode_value;
use crate::db::{Fact, Snapshot};
use crate::{Entity, Result};

/// Cost of a lookup in steps of a scan.
const SEEK_STEPS: u64 = 10;
/// Cost of looking up a scanned fact among the rows.
const PROBE_STEPS: u64 = 2;
/// Facts that are skipped one by one before the next wanted fact is looked up.
const MAX_PASSED: usize = 3;

/// Patterns of one entity.
pub(crate) struct Star {
    /// The column of the entity.
    column: usize,
    /// The wanted values, by attribute.
    terms: Vec<(u32, StarTerm)>,
    free: Vec<Var>,
    /// The positions of the patterns among the clauses.
    pub(crate) clauses: Vec<usize>,
}

enum StarTerm {
    /// A value within bounds, for the free variable of that position.
    Value(usize, ValueBounds),
    /// The value of a column.
    Column(usize),
    /// A constant value.
    Fixed(Vec<u8>),
    /// Any value.
    Any,
}

impl Star {
    /// Returns the star join of the next pattern, if there are several patterns and it costs less than separate joins.
    pub(crate) fn find(
        moment: &Snapshot<'_>,
        todo: &[&DatalogClause],
        at: usize,
        relation: &Relation<'_>,
        is_possible: &dyn Fn(&DatalogClause) -> bool,
    ) -> Result<Option<Self>> {
        let DatalogClause::Pattern(first) = todo[at] else {
            return Ok(None);
        };
        let column = match first.terms.first() {
            Some(PatternTerm::Var(entity)) => relation.column(entity),
            _ => None,
        };
        let Some(column) = column else {
            return Ok(None);
        };
        let mut star = Self {
            column,
            terms: Vec::new(),
            free: Vec::new(),
            clauses: Vec::new(),
        };
        let others = (0..todo.len()).filter(|other| *other != at);
        for at in std::iter::once(at).chain(others) {
            let DatalogClause::Pattern(pattern) = todo[at] else {
                continue;
            };
            let same = pattern.source == first.source && pattern.terms[0] == first.terms[0];
            let same = same && is_possible(todo[at]);
            if same && star.add_pattern(moment, pattern, relation, todo)? {
                star.clauses.push(at);
            } else if star.clauses.is_empty() {
                return Ok(None);
            }
        }
        let by_number = relation.rows().all(|row| row[column].entity().is_some());
        star.terms.sort_by_key(|(a, _)| *a);
        let worth_it =
            star.clauses.len() > 1 && by_number && star.is_less_work(moment, relation.len())?;
        Ok(worth_it.then_some(star))
    }

    /// Returns true if one pass over the facts of the entities takes fewer steps than a join for each attribute.
    fn is_less_work(&self, moment: &Snapshot<'_>, rows: usize) -> Result<bool> {
        let rows = rows.max(1) as u64;
        let mut apart: u64 = 0;
        for (a, _) in &self.terms {
            let scan = moment.count_of(*a)?.saturating_mul(PROBE_STEPS);
            apart = apart.saturating_add(scan.min(rows.saturating_mul(SEEK_STEPS)));
        }
        // The next entity is reached by steps or by a lookup, whichever costs less.
        let between = (moment.count()? / rows).min(SEEK_STEPS);
        let together = rows.saturating_mul(between + self.terms.len() as u64);
        Ok(together <= apart)
    }

    /// Adds a pattern if it has at most one match. Returns true if it was added.
    fn add_pattern(
        &mut self,
        moment: &Snapshot<'_>,
        pattern: &DatomPattern,
        relation: &Relation<'_>,
        conditions: &[&DatalogClause],
    ) -> Result<bool> {
        let [_, PatternTerm::Constant(Value::Keyword(name)), rest @ ..] = &pattern.terms[..] else {
            return Ok(false);
        };
        let Some(attribute) = moment.attribute(name) else {
            return Ok(false);
        };
        let want = match rest {
            [] | [PatternTerm::Blank] => StarTerm::Any,
            [PatternTerm::Constant(value)] => match convert_constant(moment, attribute, value)? {
                Some(value) => StarTerm::Fixed(encode_value(&value)),
                None => return Ok(false),
            },
            [PatternTerm::Var(var)] => match relation.column(var) {
                // The column may have a lookup ref or an ident, or a compound value with equal parts and other bytes.
                Some(_) if attribute.is_ref() || is_compound(attribute) => return Ok(false),
                Some(column) => StarTerm::Column(column),
                None if attribute.many || self.free.contains(var) => return Ok(false),
                None => {
                    self.free.push(var.clone());
                    StarTerm::Value(
                        self.free.len() - 1,
                        value_bounds(var, attribute, conditions),
                    )
                }
            },
            _ => return Ok(false),
        };
        self.terms.push((attribute.id, want));
        Ok(true)
    }

    /// Joins the rows with matching facts.
    pub(crate) fn join<'t>(
        &self,
        moment: &Snapshot<'t>,
        relation: &Relation<'t>,
        watch: &QueryWatch,
    ) -> Result<Relation<'t>> {
        let entities = relation.rows().enumerate();
        let entities = entities.filter_map(|(at, row)| Some((row[self.column].entity()?, at)));
        let mut rows: Vec<(Entity, usize)> = entities.collect();
        rows.sort_unstable();
        let width = moment.view.max_threads();
        if rows.len() < PARALLEL_ROWS || width == 1 {
            return self.join_in_order(moment, relation, &rows, watch);
        }
        let (tables, schema, limits) = (moment.tables, &moment.schema, watch.limits());
        let indexes = &moment.indexes;
        let part = rows.len().div_ceil(width);
        let parts = moment.view.run_parallel(width, |at, view| {
            let moment = Snapshot {
                view,
                tables,
                schema: schema.clone(),
                indexes: indexes.clone(),
            };
            let rows = rows.chunks(part).nth(at).unwrap_or_default();
            self.join_in_order(&moment, relation, rows, &limits.new_watch())
        });
        let mut parts = parts.into_iter().collect::<Result<Vec<_>>>()?.into_iter();
        let mut joined = parts.next().unwrap_or_else(|| self.empty_output(relation));
        joined.append(parts);
        Ok(joined)
    }

    /// Returns the relation that a join fills, without rows.
    fn empty_output<'t>(&self, relation: &Relation<'t>) -> Relation<'t> {
        let mut none = Relation::empty(relation.vars.iter().chain(&self.free).cloned().collect());
        none.is_distinct = relation.is_distinct;
        none.dependencies.clone_from(&relation.dependencies);
        let entity = &relation.vars[self.column];
        let free = self.free.iter().map(|var| (entity.clone(), var.clone()));
        none.dependencies.extend(free);
        none
    }

    /// Joins some of the rows, sorted by entity.
    fn join_in_order<'t>(
        &self,
        moment: &Snapshot<'t>,
        relation: &Relation<'t>,
        rows: &[(Entity, usize)],
        watch: &QueryWatch,
    ) -> Result<Relation<'t>> {
        let mut joined = self.empty_output(relation);
        let mut found: Vec<Vec<&'t [u8]>> = vec![Vec::new(); self.terms.len()];
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(joined);
        };
        let attribute = self.terms.first().map_or(0, |(a, _)| *a);
        let mut facts = moment.facts_between((first.0, attribute), last.0)?;
        let mut fact = facts.next().transpose()?;
        let mut at = 0;
        while at < rows.len() {
            let e = rows[at].0;
            let mut passed = 0;
            while let Some(seen @ (own, a, _)) = fact {
                watch.step()?;
                if own > e {
                    break;
                }
                if own == e && self.record_fact(moment, seen, &mut found)? {
                    fact = facts.next().transpose()?;
                    continue;
                }
                // Skip other facts one by one, or look up the next wanted one if they are many.
                let next = if own < e {
                    Some(attribute)
                } else {
                    self.next_attribute(a)
                };
                passed += 1;
                match next {
                    None => break,
                    Some(next) if passed > MAX_PASSED => {
                        facts = moment.facts_between((e, next), last.0)?;
                        passed = 0;
                    }
                    Some(_) => {}
                }
                fact = facts.next().transpose()?;
            }
            at += self.finish_entity(relation, &rows[at..], e, &mut found, &mut joined, watch)?;
        }
        Ok(joined)
    }

    /// Returns the next wanted attribute after one.
    fn next_attribute(&self, a: u32) -> Option<u32> {
        let at = self.terms.partition_point(|(own, _)| *own <= a);
        self.terms.get(at).map(|(a, _)| *a)
    }

    /// Finishes an entity: joins its rows with the found values. Returns the number of rows up to and including this entity.
    fn finish_entity<'t>(
        &self,
        relation: &Relation<'t>,
        rows: &[(Entity, usize)],
        e: Entity,
        found: &mut [Vec<&'t [u8]>],
        joined: &mut Relation<'t>,
        watch: &QueryWatch,
    ) -> Result<usize> {
        let before = rows.partition_point(|(own, _)| *own < e);
        let end = before + rows[before..].partition_point(|(own, _)| *own == e);
        self.emit(relation, &rows[before..end], found, joined, watch)?;
        for found in found {
            found.clear();
        }
        Ok(end)
    }

    /// Records the value of a fact if it is wanted. Returns true if it is.
    fn record_fact<'t>(
        &self,
        moment: &Snapshot<'t>,
        (e, a, in_key): Fact<'t>,
        found: &mut [Vec<&'t [u8]>],
    ) -> Result<bool> {
        let start = self.terms.partition_point(|(own, _)| *own < a);
        let wanted = self.terms[start..].iter().take_while(|(own, _)| *own == a);
        let count = wanted.count();
        if count == 0 {
            return Ok(false);
        }
        let value = moment.full_value(e, a, in_key)?;
        for found in &mut found[start..start + count] {
            found.push(value);
        }
        Ok(true)
    }

    fn emit<'t>(
        &self,
        relation: &Relation<'t>,
        rows: &[(Entity, usize)],
        found: &[Vec<&'t [u8]>],
        joined: &mut Relation<'t>,
        watch: &QueryWatch,
    ) -> Result<()> {
        let fixed = self
            .terms
            .iter()
            .zip(found)
            .all(|((_, want), found)| match want {
                StarTerm::Fixed(value) => found.iter().any(|own| own == value),
                StarTerm::Value(_, (from, to)) => found
                    .first()
                    .is_some_and(|own| (as_slice_bound(from), as_slice_bound(to)).contains(*own)),
                _ => !found.is_empty(),
            });
        if !fixed {
            return Ok(());
        }
        let mut cells: Vec<Cell<'t>> = Vec::with_capacity(self.free.len());
        for free in 0..self.free.len() {
            let own = self
                .terms
                .iter()
                .zip(found)
                .find(|((_, want), _)| matches!(want, StarTerm::Value(at, _) if *at == free));
            cells.extend(
                own.and_then(|(_, found)| found.first())
                    .map(|value| Cell::from_bytes(value)),
            );
        }
        for (_, row) in rows {
            let row = relation.row(*row);
            let agrees = self
                .terms
                .iter()
                .zip(found)
                .all(|((_, want), found)| match want {
                    StarTerm::Column(column) => found
                        .iter()
                        .any(|own| row[*column] == Cell::from_bytes(own)),
                    _ => true,
                });
            if agrees {
                joined.push(row.iter().chain(&cells).cloned(), watch)?;
            }
        }
        Ok(())
    }
}

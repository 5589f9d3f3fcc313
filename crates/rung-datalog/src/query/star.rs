//! Stars: several patterns of one entity, each of which has at most one match, found in one pass over its facts.

use std::ops::RangeBounds as _;

use rung_edn::Value;

use super::ast::{Clause, Pattern, Term, Var};
use super::cell::Cell;
use super::pattern::{MANY, Within, bound, bounds, has_parts, wanted};
use super::relation::Relation;
use super::watch::Watch;
use crate::datom::encoded;
use crate::db::{Fact, Moment};
use crate::{Entity, Result};

/// A look-up costs about as much as so many steps of a scan.
const SEEK_STEPS: u64 = 10;
/// So does a fact that is looked up among the rows.
const PROBE_STEPS: u64 = 2;
/// Facts of an entity that are passed over before what is wanted next is looked up.
const MAX_PASSED: usize = 3;

/// Patterns of one entity.
pub(crate) struct Star {
    /// The column of the entity.
    column: usize,
    /// What is wanted, by attribute.
    wanted: Vec<(u32, Want)>,
    free: Vec<Var>,
    /// The places of its patterns among the clauses.
    pub(crate) clauses: Vec<usize>,
}

enum Want {
    /// Its value within bounds, for the variable of that place among the free ones.
    Value(usize, Within),
    /// That it has the value of a column.
    Column(usize),
    /// That it has this value.
    Fixed(Vec<u8>),
    /// That it has one.
    Any,
}

impl Star {
    /// The star that a pattern is of, where several patterns make one.
    pub(crate) fn of(
        moment: &Moment<'_>,
        todo: &[&Clause],
        at: usize,
        relation: &Relation<'_>,
        is_possible: &dyn Fn(&Clause) -> bool,
    ) -> Result<Option<Self>> {
        let Clause::Pattern(first) = todo[at] else {
            return Ok(None);
        };
        let column = match first.terms.first() {
            Some(Term::Var(entity)) => relation.column(entity),
            _ => None,
        };
        let Some(column) = column else {
            return Ok(None);
        };
        let mut star = Self {
            column,
            wanted: Vec::new(),
            free: Vec::new(),
            clauses: Vec::new(),
        };
        let others = (0..todo.len()).filter(|other| *other != at);
        for at in std::iter::once(at).chain(others) {
            let Clause::Pattern(pattern) = todo[at] else {
                continue;
            };
            let same = pattern.source == first.source && pattern.terms[0] == first.terms[0];
            let same = same && is_possible(todo[at]);
            if same && star.takes_in(moment, pattern, relation, todo)? {
                star.clauses.push(at);
            } else if star.clauses.is_empty() {
                return Ok(None);
            }
        }
        let by_number = relation.rows().all(|row| row[column].entity().is_some());
        star.wanted.sort_by_key(|(a, _)| *a);
        let worth_it =
            star.clauses.len() > 1 && by_number && star.is_less_work(moment, relation.len())?;
        Ok(worth_it.then_some(star))
    }

    /// Whether one pass over the facts of entities takes fewer steps than one for each attribute.
    fn is_less_work(&self, moment: &Moment<'_>, rows: usize) -> Result<bool> {
        let rows = rows.max(1) as u64;
        let mut apart: u64 = 0;
        for (a, _) in &self.wanted {
            let scan = moment.count_of(*a)?.saturating_mul(PROBE_STEPS);
            apart = apart.saturating_add(scan.min(rows.saturating_mul(SEEK_STEPS)));
        }
        // From one to the next it is stepped or jumped, whichever is shorter.
        let between = (moment.count()? / rows).min(SEEK_STEPS);
        let together = rows.saturating_mul(between + self.wanted.len() as u64);
        Ok(together <= apart)
    }

    /// Takes a pattern in, where it has at most one match. Whether it does.
    fn takes_in(
        &mut self,
        moment: &Moment<'_>,
        pattern: &Pattern,
        relation: &Relation<'_>,
        conditions: &[&Clause],
    ) -> Result<bool> {
        let [_, Term::Constant(Value::Keyword(name)), rest @ ..] = &pattern.terms[..] else {
            return Ok(false);
        };
        let Some(attribute) = moment.attribute(name) else {
            return Ok(false);
        };
        let want = match rest {
            [] | [Term::Blank] => Want::Any,
            [Term::Constant(value)] => match wanted(moment, attribute, value)? {
                Some(value) => Want::Fixed(encoded(&value)),
                None => return Ok(false),
            },
            [Term::Var(var)] => match relation.column(var) {
                // It may be called by a name there, or have parts that are kept with other bytes.
                Some(_) if attribute.is_ref() || has_parts(attribute) => return Ok(false),
                Some(column) => Want::Column(column),
                None if attribute.many || self.free.contains(var) => return Ok(false),
                None => {
                    self.free.push(var.clone());
                    Want::Value(self.free.len() - 1, bounds(var, attribute, conditions))
                }
            },
            _ => return Ok(false),
        };
        self.wanted.push((attribute.id, want));
        Ok(true)
    }

    /// Extends the rows by what matches.
    pub(crate) fn join<'t>(
        &self,
        moment: &Moment<'t>,
        relation: &Relation<'t>,
        watch: &Watch,
    ) -> Result<Relation<'t>> {
        let entities = relation.rows().enumerate();
        let entities = entities.filter_map(|(at, row)| Some((row[self.column].entity()?, at)));
        let mut rows: Vec<(Entity, usize)> = entities.collect();
        rows.sort_unstable();
        let width = moment.view.width();
        if rows.len() < MANY || width == 1 {
            return self.join_some(moment, relation, &rows, watch);
        }
        let (tables, schema, limits) = (moment.tables, &moment.schema, watch.limits());
        let indexes = &moment.indexes;
        let part = rows.len().div_ceil(width);
        let parts = moment.view.spread(width, |at, view| {
            let moment = Moment {
                view,
                tables,
                schema: schema.clone(),
                indexes: indexes.clone(),
            };
            let rows = rows.chunks(part).nth(at).unwrap_or_default();
            self.join_some(&moment, relation, rows, &limits.watch())
        });
        let mut parts = parts.into_iter().collect::<Result<Vec<_>>>()?.into_iter();
        let mut joined = parts.next().unwrap_or_else(|| self.none_of(relation));
        joined.append(parts);
        Ok(joined)
    }

    /// What it makes of rows, as long as there are none.
    fn none_of<'t>(&self, relation: &Relation<'t>) -> Relation<'t> {
        let mut none = Relation::none(relation.vars.iter().chain(&self.free).cloned().collect());
        none.distinct = relation.distinct;
        none.follows.clone_from(&relation.follows);
        let entity = &relation.vars[self.column];
        let free = self.free.iter().map(|var| (entity.clone(), var.clone()));
        none.follows.extend(free);
        none
    }

    /// The same for some of the rows, by their entities in order.
    fn join_some<'t>(
        &self,
        moment: &Moment<'t>,
        relation: &Relation<'t>,
        rows: &[(Entity, usize)],
        watch: &Watch,
    ) -> Result<Relation<'t>> {
        let mut joined = self.none_of(relation);
        let mut found: Vec<Vec<&'t [u8]>> = vec![Vec::new(); self.wanted.len()];
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(joined);
        };
        let attribute = self.wanted.first().map_or(0, |(a, _)| *a);
        let mut facts = moment.keys((first.0, attribute), last.0)?;
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
                if own == e && self.see(moment, seen, &mut found)? {
                    fact = facts.next().transpose()?;
                    continue;
                }
                // What lies between is passed over, or jumped over where it is much.
                let next = if own < e {
                    Some(attribute)
                } else {
                    self.wanted_after(a)
                };
                passed += 1;
                match next {
                    None => break,
                    Some(next) if passed > MAX_PASSED => {
                        facts = moment.keys((e, next), last.0)?;
                        passed = 0;
                    }
                    Some(_) => {}
                }
                fact = facts.next().transpose()?;
            }
            at += self.finished(relation, &rows[at..], e, &mut found, &mut joined, watch)?;
        }
        Ok(joined)
    }

    /// The attribute that is wanted next after one.
    fn wanted_after(&self, a: u32) -> Option<u32> {
        let at = self.wanted.partition_point(|(own, _)| *own <= a);
        self.wanted.get(at).map(|(a, _)| *a)
    }

    /// Ends with an entity: the rows that are of it are extended, and passed over as are those before it.
    fn finished<'t>(
        &self,
        relation: &Relation<'t>,
        rows: &[(Entity, usize)],
        e: Entity,
        found: &mut [Vec<&'t [u8]>],
        joined: &mut Relation<'t>,
        watch: &Watch,
    ) -> Result<usize> {
        let before = rows.partition_point(|(own, _)| *own < e);
        let end = before + rows[before..].partition_point(|(own, _)| *own == e);
        self.emit(relation, &rows[before..end], found, joined, watch)?;
        for found in found {
            found.clear();
        }
        Ok(end)
    }

    /// Notes a fact where it is wanted. Whether it is.
    fn see<'t>(
        &self,
        moment: &Moment<'t>,
        (e, a, in_key): Fact<'t>,
        found: &mut [Vec<&'t [u8]>],
    ) -> Result<bool> {
        let start = self.wanted.partition_point(|(own, _)| *own < a);
        let wanted = self.wanted[start..].iter().take_while(|(own, _)| *own == a);
        let count = wanted.count();
        if count == 0 {
            return Ok(false);
        }
        let value = moment.whole(e, a, in_key)?;
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
        watch: &Watch,
    ) -> Result<()> {
        let fixed = self
            .wanted
            .iter()
            .zip(found)
            .all(|((_, want), found)| match want {
                Want::Fixed(value) => found.iter().any(|own| own == value),
                Want::Value(_, (from, to)) => found
                    .first()
                    .is_some_and(|own| (bound(from), bound(to)).contains(*own)),
                _ => !found.is_empty(),
            });
        if !fixed {
            return Ok(());
        }
        let mut cells: Vec<Cell<'t>> = Vec::with_capacity(self.free.len());
        for free in 0..self.free.len() {
            let own = self
                .wanted
                .iter()
                .zip(found)
                .find(|((_, want), _)| matches!(want, Want::Value(at, _) if *at == free));
            cells.extend(
                own.and_then(|(_, found)| found.first())
                    .map(|value| Cell::of_bytes(value)),
            );
        }
        for (_, row) in rows {
            let row = relation.row(*row);
            let agrees = self
                .wanted
                .iter()
                .zip(found)
                .all(|((_, want), found)| match want {
                    Want::Column(column) => {
                        found.iter().any(|own| row[*column] == Cell::of_bytes(own))
                    }
                    _ => true,
                });
            if agrees {
                joined.push(row.iter().chain(&cells).cloned(), watch)?;
            }
        }
        Ok(())
    }
}

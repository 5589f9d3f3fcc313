//! Patterns: finding facts by the components that are known.

use std::borrow::Cow;
use std::ops::{Bound, RangeBounds as _};
use std::sync::Arc;

use rung_edn::Value;

use super::ast::{CallArgument, DatalogClause, DatomPattern, FunctionCall, PatternTerm, Var};
use super::cell::Cell;
use super::relation::{Relation, RowIndex};
use super::watch::QueryWatch;
use crate::coerce::{coerce, to_type};
use crate::datom::{encode_value, is_truncated, to_key_bytes};
use crate::db::Snapshot;
use crate::document::{has_documents, parse_document};
use crate::schema::{Attribute, Type};
use crate::{Entity, Error, Result};

/// Facts that are counted before the count is estimated, at most.
const MAX_COUNTED_FACTS: usize = 200;
/// Cost of a lookup in steps of a scan: of the only value of an entity, and of anything else.
const SEEK_STEPS: (u64, u64) = (3, 8);

/// Rows from which on several threads are used.
pub(super) const PARALLEL_ROWS: usize = 20_000;

/// The state of a pattern component before any row is read.
#[derive(Debug, Clone)]
enum Component {
    Ignored,
    /// An unbound variable.
    Free(Var),
    /// A bound variable, by its column.
    Bound(usize),
    Fixed(FixedComponent),
}

#[derive(Debug, Clone)]
enum FixedComponent {
    Entity(Entity),
    Attribute(Arc<Attribute>),
    Value(Arc<[u8]>),
    /// A value whose encoding depends on the attribute, which is not fixed.
    UntypedValue(Arc<Value>),
}

/// Bounds of an encoded value.
pub(super) type ValueBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A pattern on a database, joined with rows.
pub(crate) struct PatternScan<'p, 't> {
    moment: &'p Snapshot<'t>,
    e: Component,
    a: Component,
    v: Component,
    /// The bounds of the value that conditions set.
    bounds: ValueBounds,
    /// The variables that the pattern binds.
    free: Vec<Var>,
    /// The first position of each of these variables in the pattern.
    outputs: Vec<usize>,
    /// Pairs of positions that must be equal, because a variable occurs twice.
    same: Vec<(usize, usize)>,
}

/// The facts that a lookup finds.
type Facts<'s, 't> = Box<dyn Iterator<Item = Result<(Entity, u32, &'t [u8])>> + 's>;

/// The rest of the rows that a pattern finds for one row.
pub(crate) struct PatternChunks<'s, 'p, 't> {
    scan: &'s PatternScan<'p, 't>,
    relation: &'s Relation<'t>,
    facts: Facts<'s, 't>,
}

impl<'t> PatternChunks<'_, '_, 't> {
    /// Returns the next `most` rows, or all that are left.
    pub(crate) fn next_chunk(&mut self, most: usize, watch: &QueryWatch) -> Result<Relation<'t>> {
        let row = self.relation.rows().next().unwrap_or_default();
        let mut piece = self.scan.empty_output(self.relation);
        self.scan
            .join_row(row, &mut self.facts, most, &mut piece, watch)?;
        Ok(piece)
    }
}

impl<'p, 't> PatternScan<'p, 't> {
    /// Creates a scan. `None` if no fact can match.
    pub(crate) fn new(
        moment: &'p Snapshot<'t>,
        pattern: &DatomPattern,
        relation: &Relation<'t>,
        conditions: &[&DatalogClause],
    ) -> Result<Option<Self>> {
        if pattern.terms.len() > 3 {
            return Err(Error::Query(
                "a pattern has an entity, an attribute and a value".to_owned(),
            ));
        }
        let term = |at: usize| pattern.terms.get(at).unwrap_or(&PatternTerm::Blank);
        let var = |var: &Var| match relation.column(var) {
            Some(column) => Component::Bound(column),
            None => Component::Free(var.clone()),
        };
        let a = match term(1) {
            PatternTerm::Blank => Component::Ignored,
            PatternTerm::Var(name) => var(name),
            PatternTerm::Constant(value) => {
                let Some(attribute) = attribute_by_name(moment, value)? else {
                    return Ok(None);
                };
                Component::Fixed(FixedComponent::Attribute(attribute))
            }
        };
        let e = match term(0) {
            PatternTerm::Blank => Component::Ignored,
            PatternTerm::Var(name) => var(name),
            PatternTerm::Constant(value) => match moment.entity_id(value)? {
                Some(e) => Component::Fixed(FixedComponent::Entity(e)),
                None => return Ok(None),
            },
        };
        let attribute = match &a {
            Component::Fixed(FixedComponent::Attribute(attribute)) => Some(attribute.clone()),
            _ => None,
        };
        let v = match term(2) {
            PatternTerm::Blank => Component::Ignored,
            PatternTerm::Var(name) => var(name),
            PatternTerm::Constant(value) => match attribute.as_deref() {
                Some(attribute) => match convert_constant(moment, attribute, value)? {
                    Some(value) => {
                        Component::Fixed(FixedComponent::Value(encode_value(&value).into()))
                    }
                    None => return Ok(None),
                },
                None => Component::Fixed(FixedComponent::UntypedValue(Arc::new(value.clone()))),
            },
        };
        let bounds = match (&v, &attribute) {
            (Component::Free(var), Some(attribute)) => value_bounds(var, attribute, conditions),
            _ => (Bound::Unbounded, Bound::Unbounded),
        };
        Ok(Some(Self::from_components(moment, [e, a, v], bounds)))
    }

    fn from_components(
        moment: &'p Snapshot<'t>,
        [e, a, v]: [Component; 3],
        bounds: ValueBounds,
    ) -> Self {
        let (mut free, mut outputs, mut same) = (Vec::new(), Vec::new(), Vec::new());
        for (at, place) in [&e, &a, &v].into_iter().enumerate() {
            let Component::Free(var) = place else {
                continue;
            };
            if let Some(known) = free.iter().position(|known| known == var) {
                same.push((outputs[known], at));
            } else {
                free.push(var.clone());
                outputs.push(at);
            }
        }
        Self {
            moment,
            e,
            a,
            v,
            bounds,
            free,
            outputs,
            same,
        }
    }

    fn attribute(&self) -> Option<&Arc<Attribute>> {
        match &self.a {
            Component::Fixed(FixedComponent::Attribute(attribute)) => Some(attribute),
            _ => None,
        }
    }

    fn is_bounded(&self) -> bool {
        self.bounds != (Bound::Unbounded, Bound::Unbounded)
    }

    /// Returns true if facts can be looked up by a column of the rows.
    fn is_bound(&self) -> bool {
        [&self.e, &self.a, &self.v]
            .iter()
            .any(|place| matches!(place, Component::Bound(_)))
    }

    /// Returns the average number of facts that match one of the sample rows.
    pub(crate) fn fan_out(&self, rows: &Relation<'t>) -> Result<f64> {
        let known = |place: &Component| !matches!(place, Component::Ignored | Component::Free(_));
        if let Some(attribute) = self.attribute() {
            if attribute.unique.is_some() && known(&self.v) && !known(&self.e) {
                return Ok(1.0);
            }
            let whole = self.moment.count_of(attribute.id)?;
            if !known(&self.e) && !known(&self.v) && !self.is_bounded() {
                return Ok(float(whole));
            }
            // Every entity has a matching value with the same probability.
            let by_entity = matches!(self.e, Component::Bound(_)) && !attribute.many;
            if by_entity && !matches!(self.v, Component::Bound(_)) {
                let free = !known(&self.v) && !self.is_bounded();
                let chance =
                    || Ok(self.with_any_entity().estimate_matches(None)? / float(whole.max(1)));
                return if free { Ok(1.0) } else { chance() };
            }
        } else if !known(&self.e) && !known(&self.v) {
            return Ok(float(self.moment.count()?));
        }
        let mut found = 0.0;
        for row in rows.rows() {
            found += self.estimate_matches(Some(row))?;
        }
        Ok(found / float(rows.len().max(1) as u64))
    }

    /// Returns the scan with any entity.
    fn with_any_entity(&self) -> Self {
        let places = [Component::Ignored, self.a.clone(), self.v.clone()];
        Self::from_components(self.moment, places, self.bounds.clone())
    }

    /// Returns the number of facts that match a row: counted if there are few, and estimated from the sample otherwise.
    fn estimate_matches(&self, row: Option<&[Cell<'t>]>) -> Result<f64> {
        let counted = self.facts(row)?.take(MAX_COUNTED_FACTS).count() as u64;
        let Some(attribute) = self
            .attribute()
            .filter(|_| counted == MAX_COUNTED_FACTS as u64)
        else {
            return Ok(float(counted));
        };
        let sample = self.moment.sample(attribute.id)?;
        let (within, all) = (
            sample
                .iter()
                .filter(|fact| self.is_match(**fact, row))
                .count() as u64,
            sample.len() as u64,
        );
        let whole = float(self.moment.count_of(attribute.id)?);
        Ok((whole * float(within) / float(all.max(1))).max(float(counted)))
    }

    /// Returns true if a fact of the attribute matches a row.
    fn is_match(&self, (e, _, v): (Entity, u32, &'t [u8]), row: Option<&[Cell<'t>]>) -> bool {
        let same = |place: &Component, cell: &dyn Fn() -> Cell<'t>| match (place, row) {
            (Component::Fixed(FixedComponent::Entity(own)), _) => *own == e,
            (Component::Fixed(FixedComponent::Value(bytes)), _) => **bytes == *v,
            (Component::Bound(column), Some(row)) => row[*column] == cell(),
            _ => true,
        };
        let within = (
            as_slice_bound(&self.bounds.0),
            as_slice_bound(&self.bounds.1),
        )
            .contains(v);
        within && same(&self.e, &|| Cell::from_entity(e)) && same(&self.v, &|| Cell::from_bytes(v))
    }

    /// Returns a sample of the rows that the pattern finds for the first row. If there are many, each has the same chance.
    pub(crate) fn sample(
        &self,
        relation: &Relation<'t>,
        most: usize,
        watch: &QueryWatch,
    ) -> Result<Relation<'t>> {
        let row = relation.rows().next();
        let mut facts: Vec<(Entity, u32, &'t [u8])> = Vec::new();
        let looked_up = matches!(self.e, Component::Fixed(_) | Component::Bound(_));
        if let Some(attribute) = self.attribute().filter(|_| !looked_up) {
            facts = self.moment.sample(attribute.id)?;
            facts.retain(|fact| self.is_match(*fact, row));
        }
        if facts.len() < most {
            let first = self.facts(row)?.take(most);
            facts = first.collect::<Result<Vec<_>>>()?;
        }
        let mut rows = self.empty_output(relation);
        let mut cells = Vec::with_capacity(3);
        for fact in facts.iter().step_by(facts.len().div_ceil(most).max(1)) {
            cells.clear();
            if self.read_free_values(*fact, &mut cells) {
                rows.push(row.unwrap_or_default().iter().chain(&cells).cloned(), watch)?;
            }
        }
        Ok(rows)
    }

    /// Returns the steps of a scan of all facts that may match.
    pub(crate) fn steps(&self) -> Result<f64> {
        Ok(float(self.scan_size()?))
    }

    /// Joins the rows with matching facts. Returns true if the facts were looked up row by row.
    pub(crate) fn join(
        &self,
        relation: &Relation<'t>,
        watch: &QueryWatch,
    ) -> Result<(Relation<'t>, bool)> {
        if self.is_bound() {
            let single = relation
                .rows()
                .next()
                .is_some_and(|row| self.single_value_key(row).is_some());
            let steps = if single { SEEK_STEPS.0 } else { SEEK_STEPS.1 };
            let rows = relation.len() as u64;
            let by_lookup = rows.saturating_mul(steps) / self.thread_count(relation.len()) as u64;
            // A row may have a lookup ref or an ident instead of an entity id.
            let by_name = |place: &Component| match place {
                Component::Bound(column) => {
                    relation.rows().any(|row| row[*column].entity().is_none())
                }
                _ => false,
            };
            let named = by_name(&self.e)
                || self.attribute().is_some_and(|attribute| {
                    is_compound(attribute) || (attribute.is_ref() && by_name(&self.v))
                });
            if self.attribute().is_none() || named || by_lookup <= self.scan_size()? {
                return Ok((self.join_by_lookup(relation, watch)?, true));
            }
            return Ok((self.join_by_scan(relation, watch)?, false));
        }
        let alone = self.without_rows(&relation.vars);
        let facts = alone
            .chunks(&Relation::unit())?
            .next_chunk(usize::MAX, watch)?;
        if relation.len() == 1 && relation.vars.is_empty() {
            return Ok((facts, false));
        }
        Ok((relation.join(&facts, watch)?, false))
    }

    /// Joins the rows with matching facts by one scan of the facts, each of which is looked up among the rows.
    fn join_by_scan(&self, relation: &Relation<'t>, watch: &QueryWatch) -> Result<Relation<'t>> {
        let places = [&self.e, &self.a, &self.v];
        let bound = places
            .iter()
            .enumerate()
            .filter_map(|(at, place)| match place {
                Component::Bound(column) => Some((at, *column)),
                _ => None,
            });
        let (at, columns): (Vec<usize>, Vec<usize>) = bound.unzip();
        let index = RowIndex::new(relation, columns);
        let mut joined = self.empty_output(relation);
        let mut there = vec![false; relation.len()];
        let (mut key, mut cells) = (Vec::with_capacity(3), Vec::with_capacity(3));
        for fact in self.without_rows(&relation.vars).facts(None)? {
            watch.step()?;
            let fact = fact?;
            cells.clear();
            if !self.read_free_values(fact, &mut cells) {
                continue;
            }
            key.clear();
            key.extend(at.iter().map(|at| self.component_cell(*at, fact)));
            for row in index.find(relation, &key.iter()) {
                // If the pattern adds no column, each row is kept at most once.
                if !(self.free.is_empty() && std::mem::replace(&mut there[row], true)) {
                    joined.push(relation.row(row).iter().chain(&cells).cloned(), watch)?;
                }
            }
        }
        Ok(joined)
    }

    /// Returns true if the pattern ignores a component of the facts, so that several facts can give the same row.
    fn has_blank(&self) -> bool {
        let places = [&self.e, &self.a, &self.v];
        let blank = places
            .iter()
            .any(|place| matches!(place, Component::Ignored));
        blank && !self.free.is_empty()
    }

    /// Returns a component of a fact by its position.
    fn component_cell(&self, at: usize, (e, a, v): (Entity, u32, &'t [u8])) -> Cell<'t> {
        match at {
            0 => Cell::from_entity(e),
            1 => {
                let attribute = self.moment.schema.by_id(a);
                let name = attribute.map_or(Value::Nil, |attribute| {
                    Value::Keyword(attribute.name.clone())
                });
                Cell::from_value(&name)
            }
            _ => Cell::from_bytes(v),
        }
    }

    /// Returns the steps of a scan of all facts that may match.
    fn scan_size(&self) -> Result<u64> {
        match self.attribute() {
            Some(attribute) => self.moment.count_of(attribute.id),
            None => self.moment.count(),
        }
    }

    /// Returns the scan without rows: their bound variables become free.
    fn without_rows(&self, vars: &[Var]) -> PatternScan<'p, 't> {
        let freed = |place: &Component| match place {
            Component::Bound(column) => Component::Free(vars[*column].clone()),
            other => other.clone(),
        };
        let places = [freed(&self.e), freed(&self.a), freed(&self.v)];
        PatternScan::from_components(self.moment, places, self.bounds.clone())
    }

    /// Joins the rows with matching facts by looking up each row. Rows are sorted by key, so that equal keys are looked up once
    /// and lookups are local.
    fn join_by_lookup(&self, relation: &Relation<'t>, watch: &QueryWatch) -> Result<Relation<'t>> {
        let columns: Vec<usize> = [&self.e, &self.a, &self.v]
            .into_iter()
            .filter_map(|place| match place {
                Component::Bound(column) => Some(*column),
                _ => None,
            })
            .collect();
        let order = relation.sorted_positions(&columns);
        let width = self.thread_count(order.len());
        if width == 1 {
            return self.join_by_lookup_in_order(relation, &columns, &order, watch);
        }
        let (tables, schema) = (self.moment.tables, &self.moment.schema);
        let indexes = &self.moment.indexes;
        let (places, bounds) = ([&self.e, &self.a, &self.v], &self.bounds);
        let limits = watch.limits();
        let part = order.len().div_ceil(width);
        let parts = self.moment.view.run_parallel(width, |at, view| {
            let moment = Snapshot {
                view,
                tables,
                schema: schema.clone(),
                indexes: indexes.clone(),
            };
            let scan =
                PatternScan::from_components(&moment, places.map(Component::clone), bounds.clone());
            let order = order.chunks(part).nth(at).unwrap_or_default();
            scan.join_by_lookup_in_order(relation, &columns, order, &limits.new_watch())
        });
        let mut parts = parts.into_iter().collect::<Result<Vec<_>>>()?.into_iter();
        let mut joined = parts.next().unwrap_or_else(|| self.empty_output(relation));
        joined.append(parts);
        Ok(joined)
    }

    /// Returns the number of threads to use for a number of rows.
    fn thread_count(&self, rows: usize) -> usize {
        if rows < PARALLEL_ROWS {
            return 1;
        }
        self.moment.view.max_threads()
    }

    /// Looks up some of the rows, in the given order.
    fn join_by_lookup_in_order(
        &self,
        relation: &Relation<'t>,
        columns: &[usize],
        order: &[usize],
        watch: &QueryWatch,
    ) -> Result<Relation<'t>> {
        let mut joined = self.empty_output(relation);
        let width = self.free.len();
        let mut found: Vec<Cell<'t>> = Vec::new();
        let mut matches = 0;
        let mut last: Option<usize> = None;
        for &at in order {
            watch.step()?;
            let row = relation.row(at);
            let is_last = last.is_some_and(|last| {
                let last = relation.row(last);
                columns.iter().all(|column| last[*column] == row[*column])
            });
            if !is_last {
                found.clear();
                matches = self.collect_matches(row, &mut found, watch)?;
                last = Some(at);
            }
            for at in 0..matches {
                let cells = &found[at * width..(at + 1) * width];
                joined.push(row.iter().chain(cells).cloned(), watch)?;
            }
        }
        Ok(joined)
    }

    /// Appends the values of the free variables in the facts that match a row. Returns the number of facts.
    fn collect_matches(
        &self,
        row: &[Cell<'t>],
        found: &mut Vec<Cell<'t>>,
        watch: &QueryWatch,
    ) -> Result<usize> {
        if let Some((e, attribute)) = self.single_value_key(row) {
            let fact = match self.moment.first_value(e, attribute.id)? {
                Some(value) => (e, attribute.id, value),
                None => return Ok(0),
            };
            let value_fits = match &self.v {
                Component::Fixed(FixedComponent::Value(bytes)) => **bytes == *fact.2,
                Component::Bound(column) => row[*column] == Cell::from_bytes(fact.2),
                _ => true,
            };
            return Ok(usize::from(
                value_fits && self.read_free_values(fact, found),
            ));
        }
        let (blank, width) = (self.has_blank(), self.free.len());
        let mut matches = 0;
        for fact in self.facts(Some(row))? {
            watch.step()?;
            if !self.read_free_values(fact?, found) {
                continue;
            }
            // Facts that differ only in an ignored component give one row, if they are adjacent.
            let end = found.len() - width;
            if blank && matches > 0 && found[end - width..end] == found[end..] {
                found.truncate(end);
                continue;
            }
            matches += 1;
            if self.free.is_empty() {
                break;
            }
        }
        Ok(matches)
    }

    /// Returns the entity of a row and the attribute, if there is at most one value and it can be looked up directly.
    fn single_value_key(&self, row: &[Cell<'t>]) -> Option<(Entity, &Attribute)> {
        let attribute = self.attribute().filter(|attribute| !attribute.many)?;
        let Component::Bound(column) = self.e else {
            return None;
        };
        // The column may have a lookup ref or an ident, or a compound value with equal parts and other bytes.
        let is_converted = match self.v {
            Component::Bound(column) => {
                is_compound(attribute) || (attribute.is_ref() && row[column].entity().is_none())
            }
            _ => false,
        };
        let e = row[column].entity().filter(|_| !is_converted)?;
        Some((e, attribute))
    }

    /// Returns the relation that a join fills, without rows.
    fn empty_output(&self, relation: &Relation<'t>) -> Relation<'t> {
        let mut none = Relation::empty(relation.vars.iter().chain(&self.free).cloned().collect());
        none.is_distinct = relation.is_distinct && !self.has_blank();
        none.dependencies.clone_from(&relation.dependencies);
        let var = |place: &Component| match place {
            Component::Free(var) => Some((var.clone(), true)),
            Component::Bound(column) => Some((relation.vars[*column].clone(), false)),
            _ => None,
        };
        if let (Some((e, e_is_new)), Some((v, v_is_new)), Some(attribute)) =
            (var(&self.e), var(&self.v), self.attribute())
        {
            // A column bound before may have several names of the same entity.
            if attribute.unique.is_some() && e_is_new {
                none.dependencies.push((v.clone(), e.clone()));
            }
            if !attribute.many && (v_is_new || !attribute.is_ref()) {
                none.dependencies.push((e, v));
            }
        }
        none
    }

    /// Joins a row with facts that match it, until there are `most` rows.
    fn join_row(
        &self,
        row: &[Cell<'t>],
        facts: &mut Facts<'_, 't>,
        most: usize,
        joined: &mut Relation<'t>,
        watch: &QueryWatch,
    ) -> Result<()> {
        let blank = self.has_blank();
        let mut cells: Vec<Cell<'t>> = Vec::with_capacity(3);
        let mut last: Option<Vec<Cell<'t>>> = None;
        while joined.len() < most {
            let Some(fact) = facts.next() else { break };
            watch.step()?;
            cells.clear();
            // Facts that differ only in an ignored component give one row, if they are adjacent.
            if !self.read_free_values(fact?, &mut cells) || (blank && last.as_ref() == Some(&cells))
            {
                continue;
            }
            joined.push(row.iter().chain(&cells).cloned(), watch)?;
            if self.free.is_empty() {
                break;
            }
            if blank {
                last = Some(cells.clone());
            }
        }
        Ok(())
    }

    /// Joins the only row with matching facts, chunk by chunk.
    pub(crate) fn chunks<'s>(
        &'s self,
        relation: &'s Relation<'t>,
    ) -> Result<PatternChunks<'s, 'p, 't>> {
        let row = relation.rows().next().unwrap_or_default();
        Ok(PatternChunks {
            scan: self,
            relation,
            facts: self.facts(Some(row))?,
        })
    }

    /// Appends the values of the free variables in a fact. Returns false if a variable that occurs twice has different values.
    fn read_free_values(&self, fact: (Entity, u32, &'t [u8]), cells: &mut Vec<Cell<'t>>) -> bool {
        let agrees = |(one, other): &(usize, usize)| {
            self.component_cell(*one, fact) == self.component_cell(*other, fact)
        };
        if !self.same.iter().all(agrees) {
            return false;
        }
        cells.extend(self.outputs.iter().map(|at| self.component_cell(*at, fact)));
        true
    }

    /// Returns the facts that match a row.
    fn facts<'s>(&'s self, row: Option<&[Cell<'t>]>) -> Result<Facts<'s, 't>> {
        let moment = self.moment;
        let none = || Ok(Box::new(std::iter::empty()) as Facts<'s, 't>);
        let attribute = match (&self.a, row) {
            (Component::Fixed(FixedComponent::Attribute(attribute)), _) => Some(attribute.clone()),
            (Component::Bound(column), Some(row)) => {
                match attribute_by_name(moment, &row[*column].value()?)? {
                    Some(attribute) => Some(attribute),
                    None => return none(),
                }
            }
            _ => None,
        };
        let e = match (&self.e, row) {
            (Component::Fixed(FixedComponent::Entity(e)), _) => Some(*e),
            (Component::Bound(column), Some(row)) => {
                let found = match &row[*column] {
                    cell @ Cell::Long(_) => cell.entity(),
                    cell => resolve_name(moment, &cell.value()?)?,
                };
                match found {
                    Some(e) => Some(e),
                    None => return none(),
                }
            }
            _ => None,
        };
        let v = match (&self.v, row) {
            (Component::Fixed(FixedComponent::Value(bytes)), _) => {
                Some(ExpectedValue::Bytes(bytes.clone()))
            }
            (Component::Fixed(FixedComponent::UntypedValue(value)), _) => {
                Some(ExpectedValue::Constant(value.clone()))
            }
            (Component::Bound(column), Some(row)) => {
                Some(ExpectedValue::Cell(row[*column].clone()))
            }
            _ => None,
        };
        match (e, attribute, v) {
            (e, Some(attribute), Some(v)) => {
                let Some(v) = v.bytes(moment, &attribute)? else {
                    return none();
                };
                match e {
                    Some(e) => {
                        let facts = moment.entity_value_fact(e, attribute.id, &v)?;
                        Ok(Box::new(facts.into_iter().map(Ok)))
                    }
                    None => Ok(Box::new(moment.value_facts(attribute.id, &v)?)),
                }
            }
            (Some(e), attribute, None) => {
                let facts = moment.entity_facts(e, attribute.map(|attribute| attribute.id))?;
                Ok(Box::new(facts))
            }
            (None, Some(attribute), None) => Ok(Box::new(moment.attribute_facts(
                attribute.id,
                as_slice_bound(&self.bounds.0),
                as_slice_bound(&self.bounds.1),
            )?)),
            (e, None, Some(v)) => {
                let mut all = Vec::new();
                for attribute in moment.schema.attributes() {
                    // Idents and lookup refs stand for entities only if the attribute is known.
                    if attribute.is_ref() && !v.is_entity() {
                        continue;
                    }
                    let Some(v) = v.bytes(moment, attribute)? else {
                        continue;
                    };
                    match e {
                        Some(e) => {
                            let facts = moment.entity_value_fact(e, attribute.id, &v)?;
                            all.extend(facts.into_iter().map(Ok));
                        }
                        None => all.extend(moment.value_facts(attribute.id, &v)?),
                    }
                }
                Ok(Box::new(all.into_iter()))
            }
            (None, None, None) => Ok(Box::new(moment.all_facts()?)),
        }
    }
}

/// The value that facts must have.
enum ExpectedValue<'t> {
    /// Encoded in the type of the attribute.
    Bytes(Arc<[u8]>),
    Constant(Arc<Value>),
    Cell(Cell<'t>),
}

impl ExpectedValue<'_> {
    fn is_entity(&self) -> bool {
        match self {
            Self::Bytes(bytes) => Cell::from_bytes(bytes).entity().is_some(),
            Self::Constant(value) => Cell::from_value(value).entity().is_some(),
            Self::Cell(cell) => cell.entity().is_some(),
        }
    }

    /// Encodes the value in the type of an attribute. `None` if the attribute cannot have it.
    fn bytes(&self, moment: &Snapshot<'_>, attribute: &Attribute) -> Result<Option<Cow<'_, [u8]>>> {
        let cell = match self {
            Self::Bytes(bytes) => return Ok(Some(Cow::Borrowed(bytes))),
            Self::Constant(value) => {
                let value = convert_constant(moment, attribute, value)?;
                return Ok(value.map(|value| Cow::Owned(encode_value(&value))));
            }
            Self::Cell(cell) => cell,
        };
        if attribute.is_ref() && cell.entity().is_none() {
            let e = resolve_name(moment, &cell.value()?)?;
            return Ok(e.map(|e| Cow::Owned(encode_value(&crate::db::entity_value(e)))));
        }
        if is_compound(attribute) || attribute.kind == Some(Type::Float) {
            let value = cell.value()?;
            // A whole number is not equal to a floating-point number, as in joins of rows.
            if !matches!(value, Value::Long(_))
                && let Some(value) = convert_exactly(attribute, &value)
            {
                return Ok(Some(Cow::Owned(encode_value(&value))));
            }
        }
        Ok(Some(cell.bytes()))
    }
}

/// Returns true if values of an attribute are compound: equal values may then have different bytes.
pub(super) fn is_compound(attribute: &Attribute) -> bool {
    matches!(attribute.kind, Some(Type::Tuple | Type::Vec))
}

pub(super) fn as_slice_bound(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn float(count: u64) -> f64 {
    count as f64
}

/// Returns the attribute of a name. `None` if it does not exist.
fn attribute_by_name(moment: &Snapshot<'_>, value: &Value) -> Result<Option<Arc<Attribute>>> {
    match value {
        Value::Keyword(name) => Ok(moment.attribute(name).cloned()),
        other => Err(Error::Query(format!(
            "{other} is not an attribute; an attribute is a keyword"
        ))),
    }
}

/// Resolves an ident or a lookup ref. `None` for other values, and if there is no such entity.
pub(super) fn resolve_name(moment: &Snapshot<'_>, value: &Value) -> Result<Option<Entity>> {
    match value {
        Value::Keyword(_) | Value::Vector(_) | Value::List(_) => moment.entity_id(value),
        _ => Ok(None),
    }
}

/// Converts a constant to the type of an attribute. `None` if the attribute cannot have it.
pub(super) fn convert_constant(
    moment: &Snapshot<'_>,
    attribute: &Attribute,
    value: &Value,
) -> Result<Option<Value>> {
    if attribute.is_ref() && !matches!(value, Value::Long(_)) {
        return Ok(resolve_name(moment, value)?.map(crate::db::entity_value));
    }
    if has_documents(attribute) {
        return Ok(parse_document(attribute, value).ok());
    }
    Ok(Some(
        convert_exactly(attribute, value).unwrap_or_else(|| value.clone()),
    ))
}

/// Converts a number or a compound value to the type of an attribute, if the result is equal.
fn convert_exactly(attribute: &Attribute, value: &Value) -> Option<Value> {
    let kind = attribute.kind?;
    let wider = matches!(
        kind,
        Type::Long | Type::Double | Type::Float | Type::BigInt | Type::BigDec
    );
    let typed = if wider && value.is_number() {
        to_type(kind, value)
    } else if is_compound(attribute) {
        coerce(attribute, value.clone()).ok()
    } else {
        None
    };
    typed.filter(|typed| typed.compare(value).is_eq())
}

/// Returns the bounds that conditions set for a variable with the values of an attribute.
pub(super) fn value_bounds(
    var: &Var,
    attribute: &Attribute,
    conditions: &[&DatalogClause],
) -> ValueBounds {
    let (mut from, mut to) = (Bound::Unbounded, Bound::Unbounded);
    let Some(kind) = attribute.kind else {
        return (from, to);
    };
    for clause in conditions {
        let DatalogClause::Predicate(FunctionCall {
            function,
            arguments,
        }) = clause
        else {
            continue;
        };
        let (value, turned) = match &arguments[..] {
            [CallArgument::Var(own), CallArgument::Constant(value)] if own == var => (value, false),
            [CallArgument::Constant(value), CallArgument::Var(own)] if own == var => (value, true),
            _ => continue,
        };
        // The order of bytes is the order of values only within one type.
        let Some(value) = to_type(kind, value).filter(|typed| typed.compare(value).is_eq()) else {
            continue;
        };
        let bytes = encode_value(&value);
        if is_truncated(&to_key_bytes(&bytes)) {
            continue;
        }
        match (function.as_str(), turned) {
            (">", false) | ("<", true) => from = Bound::Excluded(bytes),
            (">=", false) | ("<=", true) => from = Bound::Included(bytes),
            ("<", false) | (">", true) => to = Bound::Excluded(bytes),
            ("<=", false) | (">=", true) => to = Bound::Included(bytes),
            ("=", _) => {
                from = Bound::Included(bytes.clone());
                to = Bound::Included(bytes);
            }
            _ => {}
        }
    }
    (from, to)
}

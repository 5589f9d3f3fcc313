//! Patterns: how facts are found, from whichever side something is known.

use std::borrow::Cow;
use std::ops::{Bound, RangeBounds as _};
use std::sync::Arc;

use rung_edn::Value;

use super::ast::{Argument, Call, Clause, Pattern, Term, Var};
use super::cell::Cell;
use super::relation::{Index, Relation};
use super::watch::Watch;
use crate::coerce::{coerce, to_type};
use crate::datom::{encoded, in_key, is_cut};
use crate::db::Moment;
use crate::document::{has_documents, taken};
use crate::schema::{Attribute, Type};
use crate::{Entity, Error, Result};

/// Facts that are counted before it is reckoned.
const COUNTED: usize = 200;
/// A look-up costs about as much as so many steps of a scan: one of the only value of an entity, and any other.
const SEEK_STEPS: (u64, u64) = (3, 8);

/// Rows that are worth more than one thread.
pub(super) const MANY: usize = 20_000;

/// What is known of a place before any row is looked at.
#[derive(Debug, Clone)]
enum Place {
    /// Anything.
    Any,
    /// A variable that has no value yet.
    Free(Var),
    /// A variable that has one, and its column.
    Bound(usize),
    /// This.
    Fixed(Fixed),
}

#[derive(Debug, Clone)]
enum Fixed {
    Entity(Entity),
    Attribute(Arc<Attribute>),
    Value(Arc<[u8]>),
    /// A value whose bytes depend on the attribute, which is not the same for all facts.
    OfAny(Arc<Value>),
}

/// Bounds of a value, by its bytes.
pub(super) type Within = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A pattern against a database, for the rows that there are.
pub(crate) struct Scan<'p, 't> {
    moment: &'p Moment<'t>,
    e: Place,
    a: Place,
    v: Place,
    /// The bounds of the value, where conditions say so.
    bounds: Within,
    /// The variables that it gives values to.
    free: Vec<Var>,
    /// The places where these stand first.
    outputs: Vec<usize>,
    /// Places that must have the same, where a variable stands twice.
    same: Vec<(usize, usize)>,
}

/// The facts that a look-up finds.
type Facts<'s, 't> = Box<dyn Iterator<Item = Result<(Entity, u32, &'t [u8])>> + 's>;

/// What a pattern makes of one row, as far as it was not taken yet.
pub(crate) struct Pieces<'s, 'p, 't> {
    scan: &'s Scan<'p, 't>,
    relation: &'s Relation<'t>,
    facts: Facts<'s, 't>,
}

impl<'t> Pieces<'_, '_, 't> {
    /// So many rows, or as many as are left.
    pub(crate) fn take(&mut self, most: usize, watch: &Watch) -> Result<Relation<'t>> {
        let row = self.relation.rows().next().unwrap_or_default();
        let mut piece = self.scan.none_of(self.relation);
        self.scan
            .extend(row, &mut self.facts, most, &mut piece, watch)?;
        Ok(piece)
    }
}

impl<'p, 't> Scan<'p, 't> {
    /// `None` where nothing can match.
    pub(crate) fn new(
        moment: &'p Moment<'t>,
        pattern: &Pattern,
        relation: &Relation<'t>,
        conditions: &[&Clause],
    ) -> Result<Option<Self>> {
        if pattern.terms.len() > 3 {
            return Err(Error::Query(
                "a pattern has an entity, an attribute and a value".to_owned(),
            ));
        }
        let term = |at: usize| pattern.terms.get(at).unwrap_or(&Term::Blank);
        let var = |var: &Var| match relation.column(var) {
            Some(column) => Place::Bound(column),
            None => Place::Free(var.clone()),
        };
        let a = match term(1) {
            Term::Blank => Place::Any,
            Term::Var(name) => var(name),
            Term::Constant(value) => {
                let Some(attribute) = named(moment, value)? else {
                    return Ok(None);
                };
                Place::Fixed(Fixed::Attribute(attribute))
            }
        };
        let e = match term(0) {
            Term::Blank => Place::Any,
            Term::Var(name) => var(name),
            Term::Constant(value) => match moment.entity_id(value)? {
                Some(e) => Place::Fixed(Fixed::Entity(e)),
                None => return Ok(None),
            },
        };
        let attribute = match &a {
            Place::Fixed(Fixed::Attribute(attribute)) => Some(attribute.clone()),
            _ => None,
        };
        let v = match term(2) {
            Term::Blank => Place::Any,
            Term::Var(name) => var(name),
            Term::Constant(value) => match attribute.as_deref() {
                Some(attribute) => match wanted(moment, attribute, value)? {
                    Some(value) => Place::Fixed(Fixed::Value(encoded(&value).into())),
                    None => return Ok(None),
                },
                None => Place::Fixed(Fixed::OfAny(Arc::new(value.clone()))),
            },
        };
        let bounds = match (&v, &attribute) {
            (Place::Free(var), Some(attribute)) => bounds(var, attribute, conditions),
            _ => (Bound::Unbounded, Bound::Unbounded),
        };
        Ok(Some(Self::of(moment, [e, a, v], bounds)))
    }

    fn of(moment: &'p Moment<'t>, [e, a, v]: [Place; 3], bounds: Within) -> Self {
        let (mut free, mut outputs, mut same) = (Vec::new(), Vec::new(), Vec::new());
        for (at, place) in [&e, &a, &v].into_iter().enumerate() {
            let Place::Free(var) = place else { continue };
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
            Place::Fixed(Fixed::Attribute(attribute)) => Some(attribute),
            _ => None,
        }
    }

    fn is_bounded(&self) -> bool {
        self.bounds != (Bound::Unbounded, Bound::Unbounded)
    }

    /// Whether rows have something that it can be looked up by.
    fn is_bound(&self) -> bool {
        [&self.e, &self.a, &self.v]
            .iter()
            .any(|place| matches!(place, Place::Bound(_)))
    }

    /// How many facts match a row, on average over some.
    pub(crate) fn fan_out(&self, rows: &Relation<'t>) -> Result<f64> {
        let known = |place: &Place| !matches!(place, Place::Any | Place::Free(_));
        if let Some(attribute) = self.attribute() {
            if attribute.unique.is_some() && known(&self.v) && !known(&self.e) {
                return Ok(1.0);
            }
            let whole = self.moment.count_of(attribute.id)?;
            if !known(&self.e) && !known(&self.v) && !self.is_bounded() {
                return Ok(float(whole));
            }
            // An entity has it with as good a chance as any other.
            let by_entity = matches!(self.e, Place::Bound(_)) && !attribute.many;
            if by_entity && !matches!(self.v, Place::Bound(_)) {
                let free = !known(&self.v) && !self.is_bounded();
                let chance = || Ok(self.freed().matching(None)? / float(whole.max(1)));
                return if free { Ok(1.0) } else { chance() };
            }
        } else if !known(&self.e) && !known(&self.v) {
            return Ok(float(self.moment.count()?));
        }
        let mut found = 0.0;
        for row in rows.rows() {
            found += self.matching(Some(row))?;
        }
        Ok(found / float(rows.len().max(1) as u64))
    }

    /// The same of any entity.
    fn freed(&self) -> Self {
        let places = [Place::Any, self.a.clone(), self.v.clone()];
        Self::of(self.moment, places, self.bounds.clone())
    }

    /// How many facts match a row: counted where they are few, and reckoned from a sample where they are many.
    fn matching(&self, row: Option<&[Cell<'t>]>) -> Result<f64> {
        let counted = self.facts(row)?.take(COUNTED).count() as u64;
        let Some(attribute) = self.attribute().filter(|_| counted == COUNTED as u64) else {
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

    /// Whether a fact of the attribute matches a row.
    fn is_match(&self, (e, _, v): (Entity, u32, &'t [u8]), row: Option<&[Cell<'t>]>) -> bool {
        let same = |place: &Place, cell: &dyn Fn() -> Cell<'t>| match (place, row) {
            (Place::Fixed(Fixed::Entity(own)), _) => *own == e,
            (Place::Fixed(Fixed::Value(bytes)), _) => **bytes == *v,
            (Place::Bound(column), Some(row)) => row[*column] == cell(),
            _ => true,
        };
        let within = (bound(&self.bounds.0), bound(&self.bounds.1)).contains(v);
        within && same(&self.e, &|| Cell::of_entity(e)) && same(&self.v, &|| Cell::of_bytes(v))
    }

    /// Some of the rows that it makes of one: of all of them with the same chance, where they are many.
    pub(crate) fn sample(
        &self,
        relation: &Relation<'t>,
        most: usize,
        watch: &Watch,
    ) -> Result<Relation<'t>> {
        let row = relation.rows().next();
        let mut facts: Vec<(Entity, u32, &'t [u8])> = Vec::new();
        let looked_up = matches!(self.e, Place::Fixed(_) | Place::Bound(_));
        if let Some(attribute) = self.attribute().filter(|_| !looked_up) {
            facts = self.moment.sample(attribute.id)?;
            facts.retain(|fact| self.is_match(*fact, row));
        }
        if facts.len() < most {
            let first = self.facts(row)?.take(most);
            facts = first.collect::<Result<Vec<_>>>()?;
        }
        let mut rows = self.none_of(relation);
        let mut cells = Vec::with_capacity(3);
        for fact in facts.iter().step_by(facts.len().div_ceil(most).max(1)) {
            cells.clear();
            if self.read(*fact, &mut cells) {
                rows.push(row.unwrap_or_default().iter().chain(&cells).cloned(), watch)?;
            }
        }
        Ok(rows)
    }

    /// Steps that a scan of all of it takes.
    pub(crate) fn steps(&self) -> Result<f64> {
        Ok(float(self.scanned()?))
    }

    /// Extends the rows by what matches. Whether it was looked up row by row.
    pub(crate) fn join(
        &self,
        relation: &Relation<'t>,
        watch: &Watch,
    ) -> Result<(Relation<'t>, bool)> {
        if self.is_bound() {
            let single = relation
                .rows()
                .next()
                .is_some_and(|row| self.single(row).is_some());
            let steps = if single { SEEK_STEPS.0 } else { SEEK_STEPS.1 };
            let rows = relation.len() as u64;
            let by_lookup = rows.saturating_mul(steps) / self.width(relation.len()) as u64;
            // An entity may be called by a name, which is no number.
            let by_name = |place: &Place| match place {
                Place::Bound(column) => relation.rows().any(|row| row[*column].entity().is_none()),
                _ => false,
            };
            let named = by_name(&self.e)
                || self.attribute().is_some_and(|attribute| {
                    has_parts(attribute) || (attribute.is_ref() && by_name(&self.v))
                });
            if self.attribute().is_none() || named || by_lookup <= self.scanned()? {
                return Ok((self.looked_up(relation, watch)?, true));
            }
            return Ok((self.scanned_for(relation, watch)?, false));
        }
        let alone = self.alone(&relation.vars);
        let facts = alone.pieces(&Relation::unit())?.take(usize::MAX, watch)?;
        if relation.len() == 1 && relation.vars.is_empty() {
            return Ok((facts, false));
        }
        Ok((relation.join(&facts, watch)?, false))
    }

    /// Extends the rows by what matches: every fact is looked at once, and looked up among the rows.
    fn scanned_for(&self, relation: &Relation<'t>, watch: &Watch) -> Result<Relation<'t>> {
        let places = [&self.e, &self.a, &self.v];
        let bound = places
            .iter()
            .enumerate()
            .filter_map(|(at, place)| match place {
                Place::Bound(column) => Some((at, *column)),
                _ => None,
            });
        let (at, columns): (Vec<usize>, Vec<usize>) = bound.unzip();
        let index = Index::of(relation, columns);
        let mut joined = self.none_of(relation);
        let mut there = vec![false; relation.len()];
        let (mut key, mut cells) = (Vec::with_capacity(3), Vec::with_capacity(3));
        for fact in self.alone(&relation.vars).facts(None)? {
            watch.step()?;
            let fact = fact?;
            cells.clear();
            if !self.read(fact, &mut cells) {
                continue;
            }
            key.clear();
            key.extend(at.iter().map(|at| self.cell(*at, fact)));
            for row in index.find(relation, &key.iter()) {
                // Where nothing is added to a row, it is there or not.
                if !(self.free.is_empty() && std::mem::replace(&mut there[row], true)) {
                    joined.push(relation.row(row).iter().chain(&cells).cloned(), watch)?;
                }
            }
        }
        Ok(joined)
    }

    /// Whether something of a fact is not looked at, so that several may look alike.
    fn has_blank(&self) -> bool {
        let places = [&self.e, &self.a, &self.v];
        let blank = places.iter().any(|place| matches!(place, Place::Any));
        blank && !self.free.is_empty()
    }

    /// What stands at a place of a fact.
    fn cell(&self, at: usize, (e, a, v): (Entity, u32, &'t [u8])) -> Cell<'t> {
        match at {
            0 => Cell::of_entity(e),
            1 => {
                let attribute = self.moment.schema.by_id(a);
                let name = attribute.map_or(Value::Nil, |attribute| {
                    Value::Keyword(attribute.name.clone())
                });
                Cell::of_value(&name)
            }
            _ => Cell::of_bytes(v),
        }
    }

    /// Steps that a scan of all of it takes.
    fn scanned(&self) -> Result<u64> {
        match self.attribute() {
            Some(attribute) => self.moment.count_of(attribute.id),
            None => self.moment.count(),
        }
    }

    /// The same without rows: what they have is free here.
    fn alone(&self, vars: &[Var]) -> Scan<'p, 't> {
        let freed = |place: &Place| match place {
            Place::Bound(column) => Place::Free(vars[*column].clone()),
            other => other.clone(),
        };
        let places = [freed(&self.e), freed(&self.a), freed(&self.v)];
        Scan::of(self.moment, places, self.bounds.clone())
    }

    /// Extends the rows by what matches: each is looked up. Rows that are looked up by the same come together, and neighbours are near.
    fn looked_up(&self, relation: &Relation<'t>, watch: &Watch) -> Result<Relation<'t>> {
        let columns: Vec<usize> = [&self.e, &self.a, &self.v]
            .into_iter()
            .filter_map(|place| match place {
                Place::Bound(column) => Some(*column),
                _ => None,
            })
            .collect();
        let order = relation.ordered_by(&columns);
        let width = self.width(order.len());
        if width == 1 {
            return self.looked_up_some(relation, &columns, &order, watch);
        }
        let (tables, schema) = (self.moment.tables, &self.moment.schema);
        let indexes = &self.moment.indexes;
        let (places, bounds) = ([&self.e, &self.a, &self.v], &self.bounds);
        let limits = watch.limits();
        let part = order.len().div_ceil(width);
        let parts = self.moment.view.spread(width, |at, view| {
            let moment = Moment {
                view,
                tables,
                schema: schema.clone(),
                indexes: indexes.clone(),
            };
            let scan = Scan::of(&moment, places.map(Place::clone), bounds.clone());
            let order = order.chunks(part).nth(at).unwrap_or_default();
            scan.looked_up_some(relation, &columns, order, &limits.watch())
        });
        let mut parts = parts.into_iter().collect::<Result<Vec<_>>>()?.into_iter();
        let mut joined = parts.next().unwrap_or_else(|| self.none_of(relation));
        joined.append(parts);
        Ok(joined)
    }

    /// How many threads so many rows are worth.
    fn width(&self, rows: usize) -> usize {
        if rows < MANY {
            return 1;
        }
        self.moment.view.width()
    }

    /// The same for some of the rows, in an order.
    fn looked_up_some(
        &self,
        relation: &Relation<'t>,
        columns: &[usize],
        order: &[usize],
        watch: &Watch,
    ) -> Result<Relation<'t>> {
        let mut joined = self.none_of(relation);
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
                matches = self.gather(row, &mut found, watch)?;
                last = Some(at);
            }
            for at in 0..matches {
                let cells = &found[at * width..(at + 1) * width];
                joined.push(row.iter().chain(cells).cloned(), watch)?;
            }
        }
        Ok(joined)
    }

    /// The values of the free variables in the facts that match a row. How many facts that are.
    fn gather(&self, row: &[Cell<'t>], found: &mut Vec<Cell<'t>>, watch: &Watch) -> Result<usize> {
        if let Some((e, attribute)) = self.single(row) {
            let fact = match self.moment.first_value(e, attribute.id)? {
                Some(value) => (e, attribute.id, value),
                None => return Ok(0),
            };
            let value_fits = match &self.v {
                Place::Fixed(Fixed::Value(bytes)) => **bytes == *fact.2,
                Place::Bound(column) => row[*column] == Cell::of_bytes(fact.2),
                _ => true,
            };
            return Ok(usize::from(value_fits && self.read(fact, found)));
        }
        let (blank, width) = (self.has_blank(), self.free.len());
        let mut matches = 0;
        for fact in self.facts(Some(row))? {
            watch.step()?;
            if !self.read(fact?, found) {
                continue;
            }
            // What a blank hides is said once, where it follows itself.
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

    /// The entity of a row and the attribute, where there is one value at most.
    fn single(&self, row: &[Cell<'t>]) -> Option<(Entity, &Attribute)> {
        let attribute = self.attribute().filter(|attribute| !attribute.many)?;
        let Place::Bound(column) = self.e else {
            return None;
        };
        // It may be called by a name there, or have parts that are kept with other bytes.
        let is_converted = match self.v {
            Place::Bound(column) => {
                has_parts(attribute) || (attribute.is_ref() && row[column].entity().is_none())
            }
            _ => false,
        };
        let e = row[column].entity().filter(|_| !is_converted)?;
        Some((e, attribute))
    }

    /// What it makes of rows, as long as there are none.
    fn none_of(&self, relation: &Relation<'t>) -> Relation<'t> {
        let mut none = Relation::none(relation.vars.iter().chain(&self.free).cloned().collect());
        none.distinct = relation.distinct && !self.has_blank();
        none.follows.clone_from(&relation.follows);
        let var = |place: &Place| match place {
            Place::Free(var) => Some((var.clone(), true)),
            Place::Bound(column) => Some((relation.vars[*column].clone(), false)),
            _ => None,
        };
        if let (Some((e, e_is_new)), Some((v, v_is_new)), Some(attribute)) =
            (var(&self.e), var(&self.v), self.attribute())
        {
            // What was there before may be an entity by several names.
            if attribute.unique.is_some() && e_is_new {
                none.follows.push((v.clone(), e.clone()));
            }
            if !attribute.many && (v_is_new || !attribute.is_ref()) {
                none.follows.push((e, v));
            }
        }
        none
    }

    /// Extends a row by facts that match it, until there are so many rows.
    fn extend(
        &self,
        row: &[Cell<'t>],
        facts: &mut Facts<'_, 't>,
        most: usize,
        joined: &mut Relation<'t>,
        watch: &Watch,
    ) -> Result<()> {
        let blank = self.has_blank();
        let mut cells: Vec<Cell<'t>> = Vec::with_capacity(3);
        let mut last: Option<Vec<Cell<'t>>> = None;
        while joined.len() < most {
            let Some(fact) = facts.next() else { break };
            watch.step()?;
            cells.clear();
            // What a blank hides is said once, where it follows itself.
            if !self.read(fact?, &mut cells) || (blank && last.as_ref() == Some(&cells)) {
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

    /// Extends the only row by what matches, piece by piece.
    pub(crate) fn pieces<'s>(&'s self, relation: &'s Relation<'t>) -> Result<Pieces<'s, 'p, 't>> {
        let row = relation.rows().next().unwrap_or_default();
        Ok(Pieces {
            scan: self,
            relation,
            facts: self.facts(Some(row))?,
        })
    }

    /// Adds the values of the free variables in a fact. Whether it agrees with itself where one stands twice.
    fn read(&self, fact: (Entity, u32, &'t [u8]), cells: &mut Vec<Cell<'t>>) -> bool {
        let agrees =
            |(one, other): &(usize, usize)| self.cell(*one, fact) == self.cell(*other, fact);
        if !self.same.iter().all(agrees) {
            return false;
        }
        cells.extend(self.outputs.iter().map(|at| self.cell(*at, fact)));
        true
    }

    /// The facts that match a row.
    fn facts<'s>(&'s self, row: Option<&[Cell<'t>]>) -> Result<Facts<'s, 't>> {
        let moment = self.moment;
        let none = || Ok(Box::new(std::iter::empty()) as Facts<'s, 't>);
        let attribute = match (&self.a, row) {
            (Place::Fixed(Fixed::Attribute(attribute)), _) => Some(attribute.clone()),
            (Place::Bound(column), Some(row)) => match named(moment, &row[*column].value()?)? {
                Some(attribute) => Some(attribute),
                None => return none(),
            },
            _ => None,
        };
        let e = match (&self.e, row) {
            (Place::Fixed(Fixed::Entity(e)), _) => Some(*e),
            (Place::Bound(column), Some(row)) => {
                let found = match &row[*column] {
                    cell @ Cell::Long(_) => cell.entity(),
                    cell => called(moment, &cell.value()?)?,
                };
                match found {
                    Some(e) => Some(e),
                    None => return none(),
                }
            }
            _ => None,
        };
        let v = match (&self.v, row) {
            (Place::Fixed(Fixed::Value(bytes)), _) => Some(ExpectedValue::Bytes(bytes.clone())),
            (Place::Fixed(Fixed::OfAny(value)), _) => Some(ExpectedValue::Constant(value.clone())),
            (Place::Bound(column), Some(row)) => Some(ExpectedValue::Cell(row[*column].clone())),
            _ => None,
        };
        match (e, attribute, v) {
            (e, Some(attribute), Some(v)) => {
                let Some(v) = v.bytes(moment, &attribute)? else {
                    return none();
                };
                match e {
                    Some(e) => {
                        let facts = moment.of_entity_value(e, attribute.id, &v)?;
                        Ok(Box::new(facts.into_iter().map(Ok)))
                    }
                    None => Ok(Box::new(moment.of_value(attribute.id, &v)?)),
                }
            }
            (Some(e), attribute, None) => {
                let facts = moment.of_entity(e, attribute.map(|attribute| attribute.id))?;
                Ok(Box::new(facts))
            }
            (None, Some(attribute), None) => Ok(Box::new(moment.of_attribute(
                attribute.id,
                bound(&self.bounds.0),
                bound(&self.bounds.1),
            )?)),
            (e, None, Some(v)) => {
                let mut all = Vec::new();
                for attribute in moment.schema.attributes() {
                    // Names stand for entities only where the attribute is known.
                    if attribute.is_ref() && !v.is_entity() {
                        continue;
                    }
                    let Some(v) = v.bytes(moment, attribute)? else {
                        continue;
                    };
                    match e {
                        Some(e) => {
                            let facts = moment.of_entity_value(e, attribute.id, &v)?;
                            all.extend(facts.into_iter().map(Ok));
                        }
                        None => all.extend(moment.of_value(attribute.id, &v)?),
                    }
                }
                Ok(Box::new(all.into_iter()))
            }
            (None, None, None) => Ok(Box::new(moment.all()?)),
        }
    }
}

/// The value that facts must have.
enum ExpectedValue<'t> {
    /// As its attribute has it.
    Bytes(Arc<[u8]>),
    Constant(Arc<Value>),
    Cell(Cell<'t>),
}

impl ExpectedValue<'_> {
    fn is_entity(&self) -> bool {
        match self {
            Self::Bytes(bytes) => Cell::of_bytes(bytes).entity().is_some(),
            Self::Constant(value) => Cell::of_value(value).entity().is_some(),
            Self::Cell(cell) => cell.entity().is_some(),
        }
    }

    /// The bytes with which an attribute has the value; `None` where it can have no such value.
    fn bytes(&self, moment: &Moment<'_>, attribute: &Attribute) -> Result<Option<Cow<'_, [u8]>>> {
        let cell = match self {
            Self::Bytes(bytes) => return Ok(Some(Cow::Borrowed(bytes))),
            Self::Constant(value) => {
                let value = wanted(moment, attribute, value)?;
                return Ok(value.map(|value| Cow::Owned(encoded(&value))));
            }
            Self::Cell(cell) => cell,
        };
        if attribute.is_ref() && cell.entity().is_none() {
            let e = called(moment, &cell.value()?)?;
            return Ok(e.map(|e| Cow::Owned(encoded(&crate::db::entity_value(e)))));
        }
        if has_parts(attribute) || attribute.kind == Some(Type::Float) {
            let value = cell.value()?;
            // A whole number equals no fraction here, as it does not among the rows.
            if !matches!(value, Value::Long(_))
                && let Some(value) = exact(attribute, &value)
            {
                return Ok(Some(Cow::Owned(encoded(&value))));
            }
        }
        Ok(Some(cell.bytes()))
    }
}

/// Whether values of an attribute have parts, which may be equal to those of another value and have other bytes.
pub(super) fn has_parts(attribute: &Attribute) -> bool {
    matches!(attribute.kind, Some(Type::Tuple | Type::Vec))
}

pub(super) fn bound(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn float(count: u64) -> f64 {
    count as f64
}

/// An attribute, by its name or by the entity that is called so.
fn named(moment: &Moment<'_>, value: &Value) -> Result<Option<Arc<Attribute>>> {
    match value {
        Value::Keyword(name) => Ok(moment.attribute(name).cloned()),
        other => Err(Error::Query(format!(
            "{other} is no attribute: it is a keyword"
        ))),
    }
}

/// The entity that is called so; what calls nobody matches nothing.
pub(super) fn called(moment: &Moment<'_>, value: &Value) -> Result<Option<Entity>> {
    match value {
        Value::Keyword(_) | Value::Vector(_) | Value::List(_) => moment.entity_id(value),
        _ => Ok(None),
    }
}

/// A constant as the attribute has it; `None` where it can have no such value.
pub(super) fn wanted(
    moment: &Moment<'_>,
    attribute: &Attribute,
    value: &Value,
) -> Result<Option<Value>> {
    if attribute.is_ref() && !matches!(value, Value::Long(_)) {
        return Ok(called(moment, value)?.map(crate::db::entity_value));
    }
    if has_documents(attribute) {
        return Ok(taken(attribute, value).ok());
    }
    Ok(Some(
        exact(attribute, value).unwrap_or_else(|| value.clone()),
    ))
}

/// A number, or a value of several, as the attribute has it, where nothing of it is lost.
fn exact(attribute: &Attribute, value: &Value) -> Option<Value> {
    let kind = attribute.kind?;
    let wider = matches!(
        kind,
        Type::Long | Type::Double | Type::Float | Type::BigInt | Type::BigDec
    );
    let typed = if wider && value.is_number() {
        to_type(kind, value)
    } else if has_parts(attribute) {
        coerce(attribute, value.clone()).ok()
    } else {
        None
    };
    typed.filter(|typed| typed.compare(value).is_eq())
}

/// The bounds that conditions set to a variable which has the values of an attribute.
pub(super) fn bounds(var: &Var, attribute: &Attribute, conditions: &[&Clause]) -> Within {
    let (mut from, mut to) = (Bound::Unbounded, Bound::Unbounded);
    let Some(kind) = attribute.kind else {
        return (from, to);
    };
    for clause in conditions {
        let Clause::Predicate(Call {
            function,
            arguments,
        }) = clause
        else {
            continue;
        };
        let (value, turned) = match &arguments[..] {
            [Argument::Var(own), Argument::Constant(value)] if own == var => (value, false),
            [Argument::Constant(value), Argument::Var(own)] if own == var => (value, true),
            _ => continue,
        };
        // Bytes are in the order of values within one kind alone.
        let Some(value) = to_type(kind, value).filter(|typed| typed.compare(value).is_eq()) else {
            continue;
        };
        let bytes = encoded(&value);
        if is_cut(&in_key(&bytes)) {
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

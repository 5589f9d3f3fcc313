//! Rows of values, each variable a column.

use std::cmp::Ordering;
use std::hash::{BuildHasher as _, Hasher as _};

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use super::ast::Var;
use super::cell::Cell;
use super::watch::{Held, Watch};
use crate::Result;

/// Rows, in no order.
#[derive(Debug, Clone)]
pub(crate) struct Relation<'t> {
    pub(crate) vars: Vec<Var>,
    cells: Vec<Cell<'t>>,
    rows: usize,
    /// Whether it is known that each row is there once.
    pub(crate) distinct: bool,
    /// Variables of which the second has one value for each of the first.
    pub(crate) follows: Vec<(Var, Var)>,
    held: Held,
}

/// Bytes by which a row is known to be there.
const KNOWN_BYTES: usize = 8;
/// Bytes of a cell by itself.
const CELL_BYTES: usize = size_of::<Cell<'static>>();

impl<'t> Relation<'t> {
    /// No rows of what is known of these in the same way.
    fn none_like(&self, vars: Vec<Var>) -> Self {
        let mut none = Self::none(vars);
        none.distinct = self.distinct;
        none.follows.clone_from(&self.follows);
        none
    }

    /// No rows.
    pub(crate) fn none(vars: Vec<Var>) -> Self {
        Self {
            vars,
            cells: Vec::new(),
            rows: 0,
            distinct: false,
            follows: Vec::new(),
            held: Held::default(),
        }
    }

    /// One row that says nothing.
    pub(crate) fn unit() -> Self {
        Self {
            vars: Vec::new(),
            cells: Vec::new(),
            rows: 1,
            distinct: true,
            follows: Vec::new(),
            held: Held::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub(crate) fn column(&self, var: &Var) -> Option<usize> {
        self.vars.iter().position(|own| own == var)
    }

    pub(crate) fn row(&self, at: usize) -> &[Cell<'t>] {
        let width = self.vars.len();
        &self.cells[at * width..(at + 1) * width]
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &[Cell<'t>]> {
        (0..self.rows).map(|at| self.row(at))
    }

    /// Adds a row. What it takes is counted.
    pub(crate) fn push(
        &mut self,
        row: impl IntoIterator<Item = Cell<'t>>,
        watch: &Watch,
    ) -> Result<()> {
        let before = self.cells.len();
        self.cells.extend(row);
        debug_assert_eq!(
            self.cells.len() - before,
            self.vars.len(),
            "a row has a cell for each variable"
        );
        self.rows += 1;
        let own: usize = self.cells[before..].iter().map(Cell::weight).sum();
        let bytes = (self.cells.len() - before) * CELL_BYTES + own;
        self.held.take(bytes, watch)
    }

    /// Adds the rows of others, which have the same columns.
    pub(crate) fn append(&mut self, others: impl IntoIterator<Item = Self>) {
        for other in others {
            debug_assert_eq!(self.vars, other.vars, "they have the same columns");
            self.cells.extend(other.cells);
            self.rows += other.rows;
            self.held.take_over(other.held);
        }
    }

    /// The places of rows, in an order in which those that have nearly the same in the columns are near to each other.
    pub(crate) fn ordered_by(&self, columns: &[usize]) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.rows).collect();
        let long = |at: usize| match &self.row(at)[columns[0]] {
            Cell::Long(number) => Some(*number),
            _ => None,
        };
        match columns {
            [] => {}
            [_] if (0..self.rows).all(|at| long(at).is_some()) => {
                let mut keyed: Vec<(i64, usize)> = (0..self.rows)
                    .map(|at| (long(at).unwrap_or(0), at))
                    .collect();
                keyed.sort_unstable();
                places = keyed.into_iter().map(|(_, at)| at).collect();
            }
            columns => places.sort_unstable_by(|one, other| {
                let (one, other) = (self.row(*one), self.row(*other));
                let mut orders = columns.iter().map(|at| one[*at].order(&other[*at]));
                orders
                    .find(|order| order.is_ne())
                    .unwrap_or(Ordering::Equal)
            }),
        }
        places
    }

    /// Whether rows that have the same of these variables have the same of all.
    fn is_told_by(&self, vars: &[Var]) -> bool {
        let mut told = vars.to_vec();
        loop {
            let before = told.len();
            for (one, other) in &self.follows {
                if told.contains(one) {
                    super::ast::add(&mut told, other);
                }
            }
            if told.len() == before {
                return self.vars.iter().all(|var| told.contains(var));
            }
        }
    }

    /// Some of the columns, or all of them in another order.
    fn turned(&self, vars: &[Var], watch: &Watch) -> Result<Self> {
        let columns: Vec<usize> = vars.iter().filter_map(|var| self.column(var)).collect();
        let mut turned = self.none_like(vars.to_vec());
        for row in self.rows() {
            turned.push(columns.iter().map(|at| row[*at].clone()), watch)?;
        }
        Ok(turned)
    }

    /// The rows from one on.
    pub(crate) fn tail(&self, from: usize, watch: &Watch) -> Result<Self> {
        let mut rows = self.none_like(self.vars.clone());
        for at in from..self.rows {
            rows.push(self.row(at).iter().cloned(), watch)?;
        }
        Ok(rows)
    }

    /// Some of the rows, from all over.
    pub(crate) fn spread(&self, most: usize, watch: &Watch) -> Result<Self> {
        let mut some = Self::none(self.vars.clone());
        for at in (0..self.rows).step_by(self.rows.div_ceil(most).max(1)) {
            some.push(self.row(at).iter().cloned(), watch)?;
        }
        Ok(some)
    }

    /// The rows with these variables alone, each once.
    pub(crate) fn project(&self, vars: &[Var], watch: &Watch) -> Result<Self> {
        if self.distinct && self.is_told_by(vars) {
            return self.turned(vars, watch);
        }
        let columns: Vec<usize> = vars.iter().filter_map(|var| self.column(var)).collect();
        debug_assert_eq!(columns.len(), vars.len(), "what is kept is there");
        let mut distinct = Distinct::new(vars.to_vec());
        for row in self.rows() {
            distinct.insert(columns.iter().map(|at| &row[*at]), watch)?;
        }
        Ok(distinct.relation)
    }

    /// The rows for which `keep` says so.
    pub(crate) fn filter(
        self,
        watch: &Watch,
        mut keep: impl FnMut(&[Cell<'t>]) -> Result<bool>,
    ) -> Result<Self> {
        let mut kept = self.none_like(self.vars.clone());
        for row in self.rows() {
            watch.step()?;
            if keep(row)? {
                kept.push(row.iter().cloned(), watch)?;
            }
        }
        Ok(kept)
    }

    /// The rows that agree with those of another relation in what both have, with what both say.
    pub(crate) fn join(&self, other: &Self, watch: &Watch) -> Result<Self> {
        // The smaller one is looked up in.
        let (small, large) = if self.len() <= other.len() {
            (self, other)
        } else {
            (other, self)
        };
        let shared: Vec<(usize, usize)> = small
            .vars
            .iter()
            .enumerate()
            .filter_map(|(at, var)| Some((at, large.column(var)?)))
            .collect();
        let added: Vec<usize> = (0..small.vars.len())
            .filter(|at| large.column(&small.vars[*at]).is_none())
            .collect();
        let mut vars = large.vars.clone();
        vars.extend(added.iter().map(|at| small.vars[*at].clone()));
        let mut joined = Self::none(vars);
        joined.distinct = self.distinct && other.distinct;
        joined.follows = [&self.follows[..], &other.follows[..]].concat();
        let index = Index::of(small, shared.iter().map(|(at, _)| *at).collect());
        let probe: Vec<usize> = shared.iter().map(|(_, at)| *at).collect();
        for row in large.rows() {
            watch.step()?;
            for at in index.find(small, &probe.iter().map(|at| &row[*at])) {
                let other = small.row(at);
                let cells = row
                    .iter()
                    .chain(added.iter().map(|at| &other[*at]))
                    .cloned();
                joined.push(cells, watch)?;
            }
        }
        Ok(joined)
    }

    /// The rows for which another relation has one that agrees with them, or those for which it has none.
    pub(crate) fn matching(self, other: &Self, has: bool, watch: &Watch) -> Result<Self> {
        let shared: Vec<(usize, usize)> = other
            .vars
            .iter()
            .enumerate()
            .filter_map(|(at, var)| Some((at, self.column(var)?)))
            .collect();
        let index = Index::of(other, shared.iter().map(|(at, _)| *at).collect());
        let probe: Vec<usize> = shared.iter().map(|(_, at)| *at).collect();
        self.filter(watch, |row| {
            let found = index
                .find(other, &probe.iter().map(|at| &row[*at]))
                .next()
                .is_some();
            Ok(found == has)
        })
    }
}

fn hash<'c, 't: 'c>(cells: impl Iterator<Item = &'c Cell<'t>>) -> u64 {
    use std::hash::Hash as _;
    let mut hasher = FxBuildHasher.build_hasher();
    for cell in cells {
        cell.hash(&mut hasher);
    }
    hasher.finish()
}

/// Rows by some of their columns.
pub(crate) struct Index {
    columns: Vec<usize>,
    /// The first row of each, by what it has in the columns.
    first: HashTable<u32>,
    /// The row after each that has the same there.
    next: Vec<u32>,
}

const LAST: u32 = u32::MAX;

impl Index {
    pub(crate) fn of(relation: &Relation<'_>, columns: Vec<usize>) -> Self {
        let mut first: HashTable<u32> = HashTable::with_capacity(relation.len());
        let mut next = vec![LAST; relation.len()];
        let key = |row: u32| {
            let row = relation.row(row as usize);
            hash(columns.iter().map(|at| &row[*at]))
        };
        for row in 0..u32::try_from(relation.len()).expect("memory ends before") {
            let own = key(row);
            let cells = relation.row(row as usize);
            let same = |other: &u32| {
                let other = relation.row(*other as usize);
                columns.iter().all(|at| other[*at] == cells[*at])
            };
            match first.entry(own, same, |row| key(*row)) {
                hashbrown::hash_table::Entry::Occupied(mut head) => {
                    next[row as usize] = *head.get();
                    *head.get_mut() = row;
                }
                hashbrown::hash_table::Entry::Vacant(vacant) => {
                    vacant.insert(row);
                }
            }
        }
        Self {
            columns,
            first,
            next,
        }
    }

    /// A row, and those before it that have the same in the columns.
    fn chain(&self, row: u32) -> impl Iterator<Item = usize> {
        let next = |row: &u32| Some(self.next[*row as usize]).filter(|next| *next != LAST);
        std::iter::successors(Some(row), next).map(|row| row as usize)
    }

    /// The rows that have these cells in the columns.
    pub(crate) fn find<'c, 't: 'c>(
        &'c self,
        relation: &'c Relation<'t>,
        cells: &(impl Iterator<Item = &'c Cell<'t>> + Clone),
    ) -> impl Iterator<Item = usize> + 'c {
        let own = hash(cells.clone());
        let same = |row: &u32| {
            let row = relation.row(*row as usize);
            self.columns
                .iter()
                .zip(cells.clone())
                .all(|(at, cell)| row[*at] == *cell)
        };
        let first = self.first.find(own, same).copied();
        first.into_iter().flat_map(|row| self.chain(row))
    }
}

/// Rows that have the same in some of their columns, together; in the order in which they came.
pub(crate) struct Groups {
    rows: Vec<usize>,
    /// Where each group ends among the rows.
    ends: Vec<usize>,
}

impl Groups {
    pub(crate) fn of(relation: &Relation<'_>, columns: &[usize]) -> Self {
        let mut known: HashTable<usize> = HashTable::new();
        // The group of each row, and the first row and the size of each group.
        let mut groups: Vec<usize> = Vec::with_capacity(relation.len());
        let mut firsts: Vec<usize> = Vec::new();
        let mut sizes: Vec<usize> = Vec::new();
        let key = |row: usize| {
            let row = relation.row(row);
            hash(columns.iter().map(|at| &row[*at]))
        };
        let same = |one: usize, other: usize| {
            let (one, other) = (relation.row(one), relation.row(other));
            columns.iter().all(|at| one[*at] == other[*at])
        };
        for row in 0..relation.len() {
            // What comes from an index comes in runs.
            let group = match groups.last() {
                Some(last) if same(row, row - 1) => *last,
                _ => {
                    let entry = known.entry(
                        key(row),
                        |group| same(row, firsts[*group]),
                        |group| key(firsts[*group]),
                    );
                    match entry {
                        hashbrown::hash_table::Entry::Occupied(known) => *known.get(),
                        hashbrown::hash_table::Entry::Vacant(vacant) => {
                            vacant.insert(sizes.len());
                            sizes.push(0);
                            sizes.len() - 1
                        }
                    }
                }
            };
            if group == firsts.len() {
                firsts.push(row);
            }
            sizes[group] += 1;
            groups.push(group);
        }
        let mut end = 0;
        let mut places: Vec<usize> = Vec::with_capacity(sizes.len());
        for size in &mut sizes {
            places.push(end);
            end += *size;
            *size = end;
        }
        let mut rows = vec![0; relation.len()];
        for (row, group) in groups.into_iter().enumerate() {
            rows[places[group]] = row;
            places[group] += 1;
        }
        Self { rows, ends: sizes }
    }

    /// The rows of each group.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[usize]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| &self.rows[start..*end])
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }
}

/// Rows that are there once each, and grow.
#[derive(Debug)]
pub(crate) struct Distinct<'t> {
    pub(crate) relation: Relation<'t>,
    known: HashTable<u32>,
}

impl<'t> Distinct<'t> {
    pub(crate) fn new(vars: Vec<Var>) -> Self {
        let mut relation = Relation::none(vars);
        relation.distinct = true;
        Self {
            relation,
            known: HashTable::new(),
        }
    }

    /// Adds a row. Whether it is new.
    pub(crate) fn insert<'c>(
        &mut self,
        cells: impl Iterator<Item = &'c Cell<'t>> + Clone,
        watch: &Watch,
    ) -> Result<bool>
    where
        't: 'c,
    {
        let relation = &self.relation;
        let own = hash(cells.clone());
        let same = |row: &u32| relation.row(*row as usize).iter().eq(cells.clone());
        let row = u32::try_from(relation.len()).expect("memory ends before");
        let rehash = |row: &u32| hash(relation.row(*row as usize).iter());
        let hashbrown::hash_table::Entry::Vacant(vacant) = self.known.entry(own, same, rehash)
        else {
            return Ok(false);
        };
        vacant.insert(row);
        self.relation.push(cells.cloned(), watch)?;
        self.relation.held.take(KNOWN_BYTES, watch)?;
        Ok(true)
    }

    pub(crate) fn len(&self) -> usize {
        self.relation.len()
    }
}

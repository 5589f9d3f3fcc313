//! Relations: rows of values with a column for each variable.

use std::cmp::Ordering;
use std::hash::{BuildHasher as _, Hasher as _};

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use super::ast::Var;
use super::cell::Cell;
use super::watch::{MemoryReservation, QueryWatch};
use crate::Result;

/// Unordered rows.
#[derive(Debug, Clone)]
pub(crate) struct Relation<'t> {
    pub(crate) vars: Vec<Var>,
    cells: Vec<Cell<'t>>,
    rows: usize,
    /// Whether the rows are known to be distinct.
    pub(crate) is_distinct: bool,
    /// Functional dependencies: the second variable has one value for each value of the first.
    pub(crate) dependencies: Vec<(Var, Var)>,
    memory: MemoryReservation,
}

/// Bytes of a row in the hash table of distinct rows.
const DISTINCT_ROW_BYTES: usize = 8;
/// Bytes of a cell without its heap memory.
const CELL_BYTES: usize = size_of::<Cell<'static>>();

impl<'t> Relation<'t> {
    /// Creates an empty relation with the same dependencies and distinctness.
    fn empty_like(&self, vars: Vec<Var>) -> Self {
        let mut none = Self::empty(vars);
        none.is_distinct = self.is_distinct;
        none.dependencies.clone_from(&self.dependencies);
        none
    }

    /// Creates an empty relation.
    pub(crate) fn empty(vars: Vec<Var>) -> Self {
        Self {
            vars,
            cells: Vec::new(),
            rows: 0,
            is_distinct: false,
            dependencies: Vec::new(),
            memory: MemoryReservation::default(),
        }
    }

    /// Creates a relation with one row and no columns.
    pub(crate) fn unit() -> Self {
        Self {
            vars: Vec::new(),
            cells: Vec::new(),
            rows: 1,
            is_distinct: true,
            dependencies: Vec::new(),
            memory: MemoryReservation::default(),
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

    /// Adds a row, and counts its memory.
    pub(crate) fn push(
        &mut self,
        row: impl IntoIterator<Item = Cell<'t>>,
        watch: &QueryWatch,
    ) -> Result<()> {
        let before = self.cells.len();
        self.cells.extend(row);
        debug_assert_eq!(
            self.cells.len() - before,
            self.vars.len(),
            "a row has a cell for each variable"
        );
        self.rows += 1;
        let own: usize = self.cells[before..].iter().map(Cell::heap_bytes).sum();
        let bytes = (self.cells.len() - before) * CELL_BYTES + own;
        self.memory.reserve(bytes, watch)
    }

    /// Adds the rows of other relations with the same columns.
    pub(crate) fn append(&mut self, others: impl IntoIterator<Item = Self>) {
        for other in others {
            debug_assert_eq!(self.vars, other.vars, "they have the same columns");
            self.cells.extend(other.cells);
            self.rows += other.rows;
            self.memory.merge(other.memory);
        }
    }

    /// Returns the positions of the rows, sorted by the cells in the columns.
    pub(crate) fn sorted_positions(&self, columns: &[usize]) -> Vec<usize> {
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

    /// Returns true if these variables determine all others.
    fn is_determined_by(&self, vars: &[Var]) -> bool {
        let mut told = vars.to_vec();
        loop {
            let before = told.len();
            for (one, other) in &self.dependencies {
                if told.contains(one) {
                    super::ast::push_unique(&mut told, other);
                }
            }
            if told.len() == before {
                return self.vars.iter().all(|var| told.contains(var));
            }
        }
    }

    /// Selects columns, in the order of `vars`.
    fn select_columns(&self, vars: &[Var], watch: &QueryWatch) -> Result<Self> {
        let columns: Vec<usize> = vars.iter().filter_map(|var| self.column(var)).collect();
        let mut turned = self.empty_like(vars.to_vec());
        for row in self.rows() {
            turned.push(columns.iter().map(|at| row[*at].clone()), watch)?;
        }
        Ok(turned)
    }

    /// Returns the rows from `from` on.
    pub(crate) fn tail(&self, from: usize, watch: &QueryWatch) -> Result<Self> {
        let mut rows = self.empty_like(self.vars.clone());
        for at in from..self.rows {
            rows.push(self.row(at).iter().cloned(), watch)?;
        }
        Ok(rows)
    }

    /// Returns at most `most` rows, evenly spaced.
    pub(crate) fn sample(&self, most: usize, watch: &QueryWatch) -> Result<Self> {
        let mut some = Self::empty(self.vars.clone());
        for at in (0..self.rows).step_by(self.rows.div_ceil(most).max(1)) {
            some.push(self.row(at).iter().cloned(), watch)?;
        }
        Ok(some)
    }

    /// Returns the distinct rows of some columns.
    pub(crate) fn project(&self, vars: &[Var], watch: &QueryWatch) -> Result<Self> {
        if self.is_distinct && self.is_determined_by(vars) {
            return self.select_columns(vars, watch);
        }
        let columns: Vec<usize> = vars.iter().filter_map(|var| self.column(var)).collect();
        debug_assert_eq!(columns.len(), vars.len(), "what is kept is there");
        let mut distinct = DistinctRows::new(vars.to_vec());
        for row in self.rows() {
            distinct.insert(columns.iter().map(|at| &row[*at]), watch)?;
        }
        Ok(distinct.relation)
    }

    /// Returns the rows for which `keep` returns true.
    pub(crate) fn filter(
        self,
        watch: &QueryWatch,
        mut keep: impl FnMut(&[Cell<'t>]) -> Result<bool>,
    ) -> Result<Self> {
        let mut kept = self.empty_like(self.vars.clone());
        for row in self.rows() {
            watch.step()?;
            if keep(row)? {
                kept.push(row.iter().cloned(), watch)?;
            }
        }
        Ok(kept)
    }

    /// Joins two relations on their common variables.
    pub(crate) fn join(&self, other: &Self, watch: &QueryWatch) -> Result<Self> {
        // Index the smaller relation, and probe it with the larger one.
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
        let mut joined = Self::empty(vars);
        joined.is_distinct = self.is_distinct && other.is_distinct;
        joined.dependencies = [&self.dependencies[..], &other.dependencies[..]].concat();
        let index = RowIndex::new(small, shared.iter().map(|(at, _)| *at).collect());
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

    /// Returns the rows for which another relation has a matching row (`has`), or has none: a semijoin or an antijoin.
    pub(crate) fn semijoin(self, other: &Self, has: bool, watch: &QueryWatch) -> Result<Self> {
        let shared: Vec<(usize, usize)> = other
            .vars
            .iter()
            .enumerate()
            .filter_map(|(at, var)| Some((at, self.column(var)?)))
            .collect();
        let index = RowIndex::new(other, shared.iter().map(|(at, _)| *at).collect());
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

/// A hash index of rows by some of their columns.
pub(crate) struct RowIndex {
    columns: Vec<usize>,
    /// One row of each group of equal cells in the columns.
    first: HashTable<u32>,
    /// For each row, the next one of its group, or `LAST`.
    next: Vec<u32>,
}

const LAST: u32 = u32::MAX;

impl RowIndex {
    pub(crate) fn new(relation: &Relation<'_>, columns: Vec<usize>) -> Self {
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

    /// Returns a row and the following ones of its group.
    fn chain(&self, row: u32) -> impl Iterator<Item = usize> {
        let next = |row: &u32| Some(self.next[*row as usize]).filter(|next| *next != LAST);
        std::iter::successors(Some(row), next).map(|row| row as usize)
    }

    /// Returns the rows that have these cells in the columns.
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

/// Groups of rows with equal cells in some of their columns, in order of first appearance.
pub(crate) struct RowGroups {
    rows: Vec<usize>,
    /// The end of each group in `rows`.
    ends: Vec<usize>,
}

impl RowGroups {
    pub(crate) fn new(relation: &Relation<'_>, columns: &[usize]) -> Self {
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
            // Rows from an index scan come in runs of equal cells.
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

    /// Returns the rows of each group.
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

/// A growing set of distinct rows.
#[derive(Debug)]
pub(crate) struct DistinctRows<'t> {
    pub(crate) relation: Relation<'t>,
    known: HashTable<u32>,
}

impl<'t> DistinctRows<'t> {
    pub(crate) fn new(vars: Vec<Var>) -> Self {
        let mut relation = Relation::empty(vars);
        relation.is_distinct = true;
        Self {
            relation,
            known: HashTable::new(),
        }
    }

    /// Adds a row. Returns true if it is new.
    pub(crate) fn insert<'c>(
        &mut self,
        cells: impl Iterator<Item = &'c Cell<'t>> + Clone,
        watch: &QueryWatch,
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
        self.relation.memory.reserve(DISTINCT_ROW_BYTES, watch)?;
        Ok(true)
    }

    pub(crate) fn len(&self) -> usize {
        self.relation.len()
    }
}

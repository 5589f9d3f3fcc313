//! Which tables there are, what is read of them, and what is done to them.
//!
//! A table of the engine is never removed: another process may have it open. A table of ours is an entry in the catalogue, which
//! says of which kind it is and which table of the engine holds it; when it is dropped, that one is emptied and waits for the next.
//! So a table is made and dropped within a transaction, like everything else.

use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;

use super::apply::apply;
use super::op::at;
use super::{Act, List, Op, Plain, invalid};
use crate::{Error, Failure, Kv, MAX_KEY_BYTES, Result, Table, View};

/// What a key of a table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One value.
    Plain,
    /// Values, in order.
    List,
}

/// The tables of a folder.
#[derive(Debug)]
pub struct Tables {
    kv: Arc<Kv>,
    /// The engine's tables that are open: first the catalogue, then those that hold tables of ours. A transaction can use those that
    /// were open before it began.
    open: RwLock<Vec<Table>>,
}

/// The catalogue's place among the engine's tables that are open.
pub(super) const CATALOGUE: usize = 0;

/// The catalogue's row that says how many tables of the engine there are. No name has this byte.
pub(super) const MADE: &[u8] = &[0xFF];

impl Tables {
    /// The tables in a folder that is open.
    pub fn new(kv: Arc<Kv>) -> Self {
        Self {
            kv,
            open: RwLock::default(),
        }
    }

    /// The folder.
    pub fn kv(&self) -> &Arc<Kv> {
        &self.kv
    }

    /// Runs `f` on a snapshot.
    pub fn read<T, E: Failure>(
        &self,
        mut f: impl FnMut(Snapshot<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.with_open(|open| {
            self.kv.read(|view| {
                let snapshot = Snapshot::new(view, open)?;
                f(snapshot).map_err(Halt::Failed)
            })
        })
    }

    /// Does all of it, in one transaction that is on disk when this returns, or nothing of it.
    pub fn transact(&self, ops: &[Op]) -> Result<()> {
        if !self.kv.is_writable() {
            return Err(Error::ReadOnly);
        }
        self.with_open(|open| {
            if open.is_empty() {
                return Err(Halt::Closed(CATALOGUE));
            }
            self.kv.write(|batch| {
                // Another process may have made tables since.
                Snapshot::new(batch.view(), open)?;
                for (index, op) in ops.iter().enumerate() {
                    apply(batch, open, op).map_err(|halt| match halt {
                        Halt::Failed(error) => Halt::Failed(at(index, error)),
                        closed @ Halt::Closed(_) => closed,
                    })?;
                }
                Ok(())
            })
        })
    }

    /// Makes a table, where it is not there.
    pub fn create(&self, table: &str, kind: Kind) -> Result<()> {
        self.alone(table, Act::Create(kind))
    }

    /// Removes everything from a table.
    pub fn clear(&self, table: &str) -> Result<()> {
        self.alone(table, Act::Clear)
    }

    /// Removes a table.
    pub fn drop(&self, table: &str) -> Result<()> {
        self.alone(table, Act::Drop)
    }

    fn alone(&self, table: &str, act: Act) -> Result<()> {
        let table = table.to_owned();
        self.transact(&[Op { table, act }])
    }

    /// Runs `f` with the engine's tables that are open, and again when it needs one that is not.
    fn with_open<T, E: Failure>(
        &self,
        mut f: impl FnMut(&[Table]) -> Result<T, Halt<E>>,
    ) -> Result<T, E> {
        if self.open.read().is_empty() {
            // To read makes no catalogue.
            if let Some(catalogue) = self.kv.table(&engine_name(CATALOGUE))? {
                let mut open = self.open.write();
                if open.is_empty() {
                    open.push(catalogue);
                }
            }
        }
        loop {
            let open = self.open.read().clone();
            match f(&open) {
                Ok(value) => return Ok(value),
                Err(Halt::Failed(error)) => return Err(error),
                Err(Halt::Closed(place)) => self.open_up_to(place)?,
            }
        }
    }

    fn open_up_to(&self, place: usize) -> Result<()> {
        let mut open = self.open.write();
        while open.len() <= place {
            let name = engine_name(open.len());
            let table = if self.kv.is_writable() {
                self.kv.create(&name)?
            } else {
                self.kv.table(&name)?.ok_or(Error::Corrupt("catalogue"))?
            };
            open.push(table);
        }
        Ok(())
    }
}

fn engine_name(place: usize) -> String {
    format!("kv/{place}")
}

/// Why something was not done.
pub(super) enum Halt<E> {
    /// It failed.
    Failed(E),
    /// The engine's table at this place has to be opened first, or made.
    Closed(usize),
}

impl<E: Failure> From<Error> for Halt<E> {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

impl<E: Failure> Failure for Halt<E> {
    fn of_store(self) -> Result<Error, Self> {
        match self {
            Self::Failed(error) => error.of_store().map_err(Self::Failed),
            closed @ Self::Closed(_) => Err(closed),
        }
    }
}

/// The tables as they are at one moment.
#[derive(Clone, Copy)]
pub struct Snapshot<'t> {
    pub(super) view: View<'t>,
    pub(super) open: &'t [Table],
}

impl<'t> Snapshot<'t> {
    fn new<E: Failure>(view: View<'t>, open: &'t [Table]) -> Result<Self, Halt<E>> {
        let snapshot = Self { view, open };
        match snapshot.made()? {
            made if made > open.len() => Err(Halt::Closed(made - 1)),
            _ => Ok(snapshot),
        }
    }

    /// How many tables of the engine there are.
    pub(super) fn made(self) -> Result<usize> {
        let Some(catalogue) = self.open.get(CATALOGUE) else {
            return Ok(0);
        };
        let made = self.view.get(*catalogue, MADE)?;
        // The catalogue is there in any case.
        Ok(made.map_or(Ok(0), number)?.max(1))
    }

    /// The names of the tables, in order, and of which kind each is.
    pub fn names(self) -> Result<impl Iterator<Item = Result<(String, Kind)>> + use<'t>> {
        Ok(self.catalogue()?.map(|row| {
            let (name, kind, _) = row?;
            Ok((name.to_owned(), kind))
        }))
    }

    /// A table with one value for each key, where there is one of that name.
    pub fn plain(self, name: &str) -> Result<Option<Plain<'t>>> {
        let view = self.view;
        let found = self.find_kind(name, Kind::Plain)?;
        Ok(found.map(|table| Plain { view, table }))
    }

    /// A table of lists, where there is one of that name.
    pub fn list(self, name: &str) -> Result<Option<List<'t>>> {
        let view = self.view;
        let found = self.find_kind(name, Kind::List)?;
        Ok(found.map(|table| List { view, table }))
    }

    fn find_kind(self, name: &str, wanted: Kind) -> Result<Option<Table>> {
        let found = self.find(name)?;
        let checked = found.map(|(table, kind)| of_kind(name, table, kind, wanted));
        checked.transpose()
    }

    pub(super) fn find(self, name: &str) -> Result<Option<(Table, Kind)>> {
        if name.is_empty() || name.len() > MAX_KEY_BYTES {
            let length_bytes = name.len();
            return invalid(format!(
                "the name of a table has 1 to {MAX_KEY_BYTES} bytes, and this one has {length_bytes}"
            ));
        }
        let Some(catalogue) = self.open.get(CATALOGUE) else {
            return Ok(None);
        };
        let row = self.view.get(*catalogue, name.as_bytes())?;
        let Some((kind, place)) = row.map(read_row).transpose()? else {
            return Ok(None);
        };
        let table = self.open.get(place).ok_or(Error::Corrupt("catalogue"))?;
        Ok(Some((*table, kind)))
    }

    /// Names, kinds, and places among the engine's tables.
    pub(super) fn catalogue(
        self,
    ) -> Result<impl Iterator<Item = Result<(&'t str, Kind, usize)>> + use<'t>> {
        let names = (Bound::Unbounded, Bound::Excluded(MADE));
        let rows = match self.open.get(CATALOGUE) {
            Some(catalogue) => Some(self.view.range(*catalogue, names)?),
            None => None,
        };
        Ok(rows.into_iter().flatten().map(|row| {
            let (name, row) = row?;
            let name = str::from_utf8(name).map_err(|_| Error::Corrupt("catalogue"))?;
            let (kind, place) = read_row(row)?;
            Ok((name, kind, place))
        }))
    }
}

/// The table, where it is of the kind that is wanted.
pub(super) fn of_kind(name: &str, table: Table, kind: Kind, wanted: Kind) -> Result<Table> {
    if kind == wanted {
        return Ok(table);
    }
    invalid(match kind {
        Kind::Plain => format!(
            "the table {name:?} is a plain one, with one value for each key; it cannot be used as one of lists"
        ),
        Kind::List => format!(
            "the table {name:?} is one of lists, with values for each key; it cannot be used as a plain one"
        ),
    })
}

/// A row of the catalogue: the kind, then the place.
pub(super) fn row(kind: Kind, place: usize) -> Result<Vec<u8>> {
    let mut row = vec![match kind {
        Kind::Plain => 0,
        Kind::List => 1,
    }];
    row.extend(number_bytes(place)?);
    Ok(row)
}

fn read_row(row: &[u8]) -> Result<(Kind, usize)> {
    match row {
        [0, place @ ..] => Ok((Kind::Plain, number(place)?)),
        [1, place @ ..] => Ok((Kind::List, number(place)?)),
        _ => Err(Error::Corrupt("catalogue")),
    }
}

pub(super) fn number_bytes(number: usize) -> Result<[u8; 4]> {
    let number = u32::try_from(number).map_err(|_| Error::TablesFull)?;
    Ok(number.to_be_bytes())
}

fn number(bytes: &[u8]) -> Result<usize> {
    let number = bytes.try_into().map(u32::from_be_bytes).ok();
    let number = number.and_then(|number| usize::try_from(number).ok());
    number.ok_or(Error::Corrupt("catalogue"))
}

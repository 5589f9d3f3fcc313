//! The tables of a folder: their catalog, snapshots and transactions.
//!
//! An engine table is never removed: another process may have it open. A typed table is an entry in the catalog, which
//! names its kind and the engine table that holds it; when the typed table is dropped, its engine table is emptied and reused.
//! So a table is created and dropped within a transaction, like any other write.

use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;

use super::apply::apply;
use super::op::with_op_index;
use super::{ListTable, PlainTable, TableAction, TableOp, invalid};
use crate::{Error, Failure, Kv, MAX_KEY_BYTES, Result, Table, View};

/// The kind of a table: what a key has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// One value.
    Plain,
    /// A sorted list of values.
    List,
}

/// The tables of a folder.
#[derive(Debug)]
pub struct TypedTables {
    kv: Arc<Kv>,
    /// The open engine tables: first the catalog, then those that hold typed tables. A transaction can only use tables that
    /// were open before it began.
    open: RwLock<Vec<Table>>,
}

/// The index of the catalog among the open engine tables.
pub(super) const CATALOG: usize = 0;

/// The catalog's key for the number of engine tables. No name contains this byte.
pub(super) const TABLE_COUNT_KEY: &[u8] = &[0xFF];

impl TypedTables {
    /// Creates the typed tables of an open folder.
    pub fn new(kv: Arc<Kv>) -> Self {
        Self {
            kv,
            open: RwLock::default(),
        }
    }

    /// Returns the folder.
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
                f(snapshot).map_err(StopReason::Failed)
            })
        })
    }

    /// Applies all operations in one transaction that is on disk when this returns, or none of them.
    pub fn transact(&self, ops: &[TableOp]) -> Result<()> {
        if !self.kv.is_writable() {
            return Err(Error::ReadOnly);
        }
        self.with_open(|open| {
            if open.is_empty() {
                return Err(StopReason::TableNotOpen(CATALOG));
            }
            self.kv.write(|batch| {
                // Another process may have created tables since.
                Snapshot::new(batch.view(), open)?;
                for (index, op) in ops.iter().enumerate() {
                    apply(batch, open, op).map_err(|halt| match halt {
                        StopReason::Failed(error) => {
                            StopReason::Failed(with_op_index(index, error))
                        }
                        closed @ StopReason::TableNotOpen(_) => closed,
                    })?;
                }
                Ok(())
            })
        })
    }

    /// Creates a table if it is missing.
    pub fn create(&self, table: &str, kind: TableKind) -> Result<()> {
        self.transact_one(table, TableAction::Create(kind))
    }

    /// Removes all entries of a table.
    pub fn clear(&self, table: &str) -> Result<()> {
        self.transact_one(table, TableAction::Clear)
    }

    /// Removes a table.
    pub fn drop(&self, table: &str) -> Result<()> {
        self.transact_one(table, TableAction::Drop)
    }

    fn transact_one(&self, table: &str, act: TableAction) -> Result<()> {
        let table = table.to_owned();
        self.transact(&[TableOp { table, action: act }])
    }

    /// Runs `f` with the open engine tables, and again after opening a table that it needs.
    fn with_open<T, E: Failure>(
        &self,
        mut f: impl FnMut(&[Table]) -> Result<T, StopReason<E>>,
    ) -> Result<T, E> {
        if self.open.read().is_empty() {
            // Reading does not create the catalog.
            if let Some(catalogue) = self.kv.table(&engine_name(CATALOG))? {
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
                Err(StopReason::Failed(error)) => return Err(error),
                Err(StopReason::TableNotOpen(place)) => self.open_up_to(place)?,
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

/// The reason why a read or a transaction stopped.
pub(super) enum StopReason<E> {
    /// An error.
    Failed(E),
    /// The engine table at this index has to be opened or created first.
    TableNotOpen(usize),
}

impl<E: Failure> From<Error> for StopReason<E> {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

impl<E: Failure> Failure for StopReason<E> {
    fn into_store_error(self) -> Result<Error, Self> {
        match self {
            Self::Failed(error) => error.into_store_error().map_err(Self::Failed),
            closed @ Self::TableNotOpen(_) => Err(closed),
        }
    }
}

/// A snapshot of the tables.
#[derive(Clone, Copy)]
pub struct Snapshot<'t> {
    pub(super) view: View<'t>,
    pub(super) open: &'t [Table],
}

impl<'t> Snapshot<'t> {
    fn new<E: Failure>(view: View<'t>, open: &'t [Table]) -> Result<Self, StopReason<E>> {
        let snapshot = Self { view, open };
        match snapshot.engine_table_count()? {
            made if made > open.len() => Err(StopReason::TableNotOpen(made - 1)),
            _ => Ok(snapshot),
        }
    }

    /// Returns the number of engine tables.
    pub(super) fn engine_table_count(self) -> Result<usize> {
        let Some(catalogue) = self.open.get(CATALOG) else {
            return Ok(0);
        };
        let made = self.view.get(*catalogue, TABLE_COUNT_KEY)?;
        // The catalog itself exists.
        Ok(made.map_or(Ok(0), decode_number)?.max(1))
    }

    /// Returns the names and kinds of the tables, in order.
    pub fn names(self) -> Result<impl Iterator<Item = Result<(String, TableKind)>> + use<'t>> {
        Ok(self.catalog()?.map(|row| {
            let (name, kind, _) = row?;
            Ok((name.to_owned(), kind))
        }))
    }

    /// Returns the plain table of that name, if there is one.
    pub fn plain(self, name: &str) -> Result<Option<PlainTable<'t>>> {
        let view = self.view;
        let found = self.find_kind(name, TableKind::Plain)?;
        Ok(found.map(|table| PlainTable { view, table }))
    }

    /// Returns the list table of that name, if there is one.
    pub fn list(self, name: &str) -> Result<Option<ListTable<'t>>> {
        let view = self.view;
        let found = self.find_kind(name, TableKind::List)?;
        Ok(found.map(|table| ListTable { view, table }))
    }

    fn find_kind(self, name: &str, wanted: TableKind) -> Result<Option<Table>> {
        let found = self.find(name)?;
        let checked = found.map(|(table, kind)| check_kind(name, table, kind, wanted));
        checked.transpose()
    }

    pub(super) fn find(self, name: &str) -> Result<Option<(Table, TableKind)>> {
        if name.is_empty() || name.len() > MAX_KEY_BYTES {
            let length_bytes = name.len();
            return invalid(format!(
                "the name of a table must have 1 to {MAX_KEY_BYTES} bytes; this one has {length_bytes}"
            ));
        }
        let Some(catalogue) = self.open.get(CATALOG) else {
            return Ok(None);
        };
        let row = self.view.get(*catalogue, name.as_bytes())?;
        let Some((kind, place)) = row.map(read_row).transpose()? else {
            return Ok(None);
        };
        let table = self.open.get(place).ok_or(Error::Corrupt("catalogue"))?;
        Ok(Some((*table, kind)))
    }

    /// Returns the names, kinds, and indexes of the engine tables.
    pub(super) fn catalog(
        self,
    ) -> Result<impl Iterator<Item = Result<(&'t str, TableKind, usize)>> + use<'t>> {
        let names = (Bound::Unbounded, Bound::Excluded(TABLE_COUNT_KEY));
        let rows = match self.open.get(CATALOG) {
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

/// Returns the table, or an error if it is not of the wanted kind.
pub(super) fn check_kind(
    name: &str,
    table: Table,
    kind: TableKind,
    wanted: TableKind,
) -> Result<Table> {
    if kind == wanted {
        return Ok(table);
    }
    invalid(match kind {
        TableKind::Plain => format!(
            "the table {name:?} is a plain table, with one value for each key, and cannot be used as a list table"
        ),
        TableKind::List => format!(
            "the table {name:?} is a list table, with several values for each key, and cannot be used as a plain table"
        ),
    })
}

/// Encodes a row of the catalog: the kind, then the index of the engine table.
pub(super) fn encode_row(kind: TableKind, place: usize) -> Result<Vec<u8>> {
    let mut row = vec![match kind {
        TableKind::Plain => 0,
        TableKind::List => 1,
    }];
    row.extend(encode_number(place)?);
    Ok(row)
}

fn read_row(row: &[u8]) -> Result<(TableKind, usize)> {
    match row {
        [0, place @ ..] => Ok((TableKind::Plain, decode_number(place)?)),
        [1, place @ ..] => Ok((TableKind::List, decode_number(place)?)),
        _ => Err(Error::Corrupt("catalogue")),
    }
}

pub(super) fn encode_number(number: usize) -> Result<[u8; 4]> {
    let number = u32::try_from(number).map_err(|_| Error::TablesFull)?;
    Ok(number.to_be_bytes())
}

fn decode_number(bytes: &[u8]) -> Result<usize> {
    let number = bytes.try_into().map(u32::from_be_bytes).ok();
    let number = number.and_then(|number| usize::try_from(number).ok());
    number.ok_or(Error::Corrupt("catalogue"))
}

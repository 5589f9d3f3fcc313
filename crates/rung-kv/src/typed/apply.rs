//! Applies an operation within a transaction.

use super::lookup::{bounds_of_list, key_bytes, list_entry, list_key, pairs_between, value_bytes};
use super::tables::{CATALOG, StopReason, TABLE_COUNT_KEY, check_kind, encode_number, encode_row};
use super::{Snapshot, TableAction, TableKind, TableOp};
use crate::{Batch, Error, Result, Table};

/// Applies an operation.
pub(super) fn apply(
    batch: &mut Batch<'_>,
    open: &[Table],
    op: &TableOp,
) -> Result<(), StopReason<Error>> {
    let name = op.table.as_str();
    let snapshot = Snapshot {
        view: batch.view(),
        open,
    };
    let found = snapshot.find(name)?;
    match &op.action {
        TableAction::Create(kind) => {
            let (table, found) = find_or_create(batch, open, name, found, *kind)?;
            check_kind(name, table, found, *kind)?;
        }
        TableAction::Put(key, value) => {
            match find_or_create(batch, open, name, found, TableKind::Plain)? {
                (table, TableKind::Plain) => {
                    batch.put(table, &key_bytes(key)?, &value_bytes(value)?)?;
                }
                (table, TableKind::List) => batch.put(table, &list_entry(key, value)?, &[])?,
            }
        }
        TableAction::PutList(key, values) => {
            let (table, kind) = find_or_create(batch, open, name, found, TableKind::List)?;
            let table = check_kind(name, table, kind, TableKind::List)?;
            for value in values {
                batch.put(table, &list_entry(key, value)?, &[])?;
            }
        }
        TableAction::Delete(key) => match found {
            Some((table, TableKind::Plain)) => {
                batch.delete(table, &key_bytes(key)?)?;
            }
            Some((table, TableKind::List)) => delete_list(batch, table, &list_key(key)?)?,
            None => {}
        },
        TableAction::DeleteList(key, values) => {
            let Some((table, kind)) = found else {
                return Ok(());
            };
            let table = check_kind(name, table, kind, TableKind::List)?;
            for value in values {
                batch.delete(table, &list_entry(key, value)?)?;
            }
        }
        TableAction::Clear => {
            if let Some((table, _)) = found {
                batch.clear(table)?;
            }
        }
        TableAction::Drop => {
            if let Some((table, _)) = found {
                batch.clear(table)?;
                batch.delete(open[CATALOG], name.as_bytes())?;
            }
        }
    }
    Ok(())
}

/// Returns the table that was found, or creates one in the first free engine table.
fn find_or_create(
    batch: &mut Batch<'_>,
    open: &[Table],
    name: &str,
    found: Option<(Table, TableKind)>,
    kind: TableKind,
) -> Result<(Table, TableKind), StopReason<Error>> {
    if let Some(found) = found {
        return Ok(found);
    }
    let snapshot = Snapshot {
        view: batch.view(),
        open,
    };
    let made = snapshot.engine_table_count()?;
    let mut is_free = vec![true; made];
    is_free[CATALOG] = false;
    for row in snapshot.catalog()? {
        let (_, _, place) = row?;
        *is_free.get_mut(place).ok_or(Error::Corrupt("catalogue"))? = false;
    }
    let place = is_free.iter().position(|is_free| *is_free).unwrap_or(made);
    let Some(table) = open.get(place) else {
        return Err(StopReason::TableNotOpen(place));
    };
    batch.put(open[CATALOG], name.as_bytes(), &encode_row(kind, place)?)?;
    batch.put(
        open[CATALOG],
        TABLE_COUNT_KEY,
        &encode_number(made.max(place + 1))?,
    )?;
    Ok((*table, kind))
}

/// Removes all entries of an encoded key, one after the other: a list may be larger than memory.
fn delete_list(batch: &mut Batch<'_>, table: Table, key: &[u8]) -> Result<()> {
    let bounds = bounds_of_list(key);
    loop {
        let next = pairs_between(batch.view(), table, &bounds, false)?.next();
        let Some(entry) = next.transpose()?.map(|(entry, _)| entry.to_vec()) else {
            return Ok(());
        };
        batch.delete(table, &entry)?;
    }
}

//! What an operation does, within a transaction.

use super::reading::{bounds_of_list, key_bytes, list_entry, list_key, value_bytes, walk};
use super::tables::{CATALOGUE, Halt, MADE, number_bytes, of_kind, row};
use super::{Act, Kind, Op, Snapshot};
use crate::{Batch, Error, Result, Table};

/// Does what an operation says.
pub(super) fn apply(batch: &mut Batch<'_>, open: &[Table], op: &Op) -> Result<(), Halt<Error>> {
    let name = op.table.as_str();
    let snapshot = Snapshot {
        view: batch.view(),
        open,
    };
    let found = snapshot.find(name)?;
    match &op.act {
        Act::Create(kind) => {
            let (table, found) = found_or_made(batch, open, name, found, *kind)?;
            of_kind(name, table, found, *kind)?;
        }
        Act::Put(key, value) => match found_or_made(batch, open, name, found, Kind::Plain)? {
            (table, Kind::Plain) => batch.put(table, &key_bytes(key)?, &value_bytes(value)?)?,
            (table, Kind::List) => batch.put(table, &list_entry(key, value)?, &[])?,
        },
        Act::PutList(key, values) => {
            let (table, kind) = found_or_made(batch, open, name, found, Kind::List)?;
            let table = of_kind(name, table, kind, Kind::List)?;
            for value in values {
                batch.put(table, &list_entry(key, value)?, &[])?;
            }
        }
        Act::Delete(key) => match found {
            Some((table, Kind::Plain)) => {
                batch.delete(table, &key_bytes(key)?)?;
            }
            Some((table, Kind::List)) => delete_list(batch, table, &list_key(key)?)?,
            None => {}
        },
        Act::DeleteList(key, values) => {
            let Some((table, kind)) = found else {
                return Ok(());
            };
            let table = of_kind(name, table, kind, Kind::List)?;
            for value in values {
                batch.delete(table, &list_entry(key, value)?)?;
            }
        }
        Act::Clear => {
            if let Some((table, _)) = found {
                batch.clear(table)?;
            }
        }
        Act::Drop => {
            if let Some((table, _)) = found {
                batch.clear(table)?;
                batch.delete(open[CATALOGUE], name.as_bytes())?;
            }
        }
    }
    Ok(())
}

/// The table that was found, or a new one in the first of the engine's tables that holds none.
fn found_or_made(
    batch: &mut Batch<'_>,
    open: &[Table],
    name: &str,
    found: Option<(Table, Kind)>,
    kind: Kind,
) -> Result<(Table, Kind), Halt<Error>> {
    if let Some(found) = found {
        return Ok(found);
    }
    let snapshot = Snapshot {
        view: batch.view(),
        open,
    };
    let made = snapshot.made()?;
    let mut is_free = vec![true; made];
    is_free[CATALOGUE] = false;
    for row in snapshot.catalogue()? {
        let (_, _, place) = row?;
        *is_free.get_mut(place).ok_or(Error::Corrupt("catalogue"))? = false;
    }
    let place = is_free.iter().position(|is_free| *is_free).unwrap_or(made);
    let Some(table) = open.get(place) else {
        return Err(Halt::Closed(place));
    };
    batch.put(open[CATALOGUE], name.as_bytes(), &row(kind, place)?)?;
    batch.put(open[CATALOGUE], MADE, &number_bytes(made.max(place + 1))?)?;
    Ok((*table, kind))
}

/// Removes all entries that begin with the bytes of a key, one after the other: a list may be longer than memory.
fn delete_list(batch: &mut Batch<'_>, table: Table, key: &[u8]) -> Result<()> {
    let bounds = bounds_of_list(key);
    loop {
        let next = walk(batch.view(), table, &bounds, false)?.next();
        let Some(entry) = next.transpose()?.map(|(entry, _)| entry.to_vec()) else {
            return Ok(());
        };
        batch.delete(table, &entry)?;
    }
}

//! The forward index: the terms of a document and their positions, in parts, in the order of their numbers.
//!
//! The key of a part is its last term, so that a term is looked up in one part. The terms are needed to remove the
//! document; the positions for phrases, offsets and proximity.

use rung_kv::{Batch, Table, View};

use super::analyze::TermPlace;
use super::rows::{DocId, TermId, last_number, part_key, parts_key, put_number, take_number};
use crate::{Error, Result};

/// Bytes after which a part is closed: several parts share a page of the store.
const PART_BYTES: usize = 1024;

/// Writes the terms of a document, given in order of term and position. Positions are stored if `positions` is true.
pub(super) fn put(
    batch: &mut Batch<'_>,
    table: Table,
    doc: DocId,
    terms: &[(TermId, TermPlace)],
    positions: bool,
) -> Result<()> {
    let (mut row, mut places) = (Vec::new(), Vec::new());
    let mut before = 0;
    let mut groups = terms.chunk_by(|one, other| one.0 == other.0).peekable();
    while let Some(group) = groups.next() {
        let term = group[0].0;
        put_number(term - before, &mut row);
        before = term;
        if positions {
            places.clear();
            let mut last = TermPlace::default();
            for &(_, place) in group {
                put_number(place.position - last.position, &mut places);
                put_number(place.offset - last.offset, &mut places);
                last = place;
            }
            let bytes = u32::try_from(places.len()).map_err(|_| Error::Full)?;
            put_number(bytes, &mut row);
            row.extend_from_slice(&places);
        }
        if row.len() >= PART_BYTES || groups.peek().is_none() {
            batch.put(table, &part_key(doc, term), &row)?;
            row.clear();
            before = 0;
        }
    }
    Ok(())
}

/// Returns the next term of a part, and the bytes of its positions.
fn next_term<'r>(
    row: &mut &'r [u8],
    before: TermId,
    positions: bool,
) -> Result<(TermId, &'r [u8])> {
    let corrupt = || Error::corrupt("term of a document");
    let term = before.checked_add(take_number(row)?).ok_or_else(corrupt)?;
    if !positions {
        return Ok((term, &[]));
    }
    let bytes = take_number(row)? as usize;
    let (places, rest) = row.split_at_checked(bytes).ok_or_else(corrupt)?;
    *row = rest;
    Ok((term, places))
}

/// Removes the terms of a document, and returns them.
pub(super) fn remove(
    batch: &mut Batch<'_>,
    table: Table,
    doc: DocId,
    positions: bool,
) -> Result<Vec<TermId>> {
    let (mut terms, mut parts) = (Vec::new(), Vec::new());
    for pair in batch.view().prefix(table, &parts_key(doc))? {
        let (key, mut row) = pair?;
        parts.push(last_number(key)?);
        let mut before = 0;
        while !row.is_empty() {
            (before, _) = next_term(&mut row, before, positions)?;
            terms.push(before);
        }
    }
    for last in parts {
        batch.delete(table, &part_key(doc, last))?;
    }
    Ok(terms)
}

/// Reads the positions of a term in a document into `places`, in order.
pub(super) fn read_places(
    view: View<'_>,
    table: Table,
    doc: DocId,
    term: TermId,
    places: &mut Vec<TermPlace>,
) -> Result<()> {
    places.clear();
    let mut row = match view.first_from(table, &part_key(doc, term))? {
        Some((key, row)) if key.starts_with(&parts_key(doc)) => row,
        _ => return Ok(()),
    };
    let mut before = 0;
    while !row.is_empty() && before < term {
        let (here, mut bytes) = next_term(&mut row, before, true)?;
        before = here;
        if here != term {
            continue;
        }
        let mut last = TermPlace::default();
        while !bytes.is_empty() {
            last.position = last.position.saturating_add(take_number(&mut bytes)?);
            last.offset = last.offset.saturating_add(take_number(&mut bytes)?);
            places.push(last);
        }
    }
    Ok(())
}

//! The terms of a document and where they stand, in the order of their numbers, in parts.
//!
//! A part lies under the last of its terms, so that a term is looked for in one part. Of a document's terms it tells which there are,
//! for when the document goes; of a term's places it tells all, for phrases, offsets and nearness.

use rung_kv::{Batch, Table, View};

use super::analyze::Place;
use super::rows::{DocId, TermId, last_number, part_key, parts_key, put_number, take_number};
use crate::{Error, Result};

/// A part is closed when it has this many bytes: several share a page of the store.
const PART_BYTES: usize = 1024;

/// Keeps the terms of a document, which are given by term and place, in order. Places are kept where `positions` says so.
pub(super) fn put(
    batch: &mut Batch<'_>,
    table: Table,
    doc: DocId,
    terms: &[(TermId, Place)],
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
            let mut last = Place::default();
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

/// A term of a part, and the bytes of its places.
fn next<'r>(row: &mut &'r [u8], before: TermId, positions: bool) -> Result<(TermId, &'r [u8])> {
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

/// Removes the terms of a document, and gives them.
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
            (before, _) = next(&mut row, before, positions)?;
            terms.push(before);
        }
    }
    for last in parts {
        batch.delete(table, &part_key(doc, last))?;
    }
    Ok(terms)
}

/// Reads where a term stands in a document into `places`, in order.
pub(super) fn places(
    view: View<'_>,
    table: Table,
    doc: DocId,
    term: TermId,
    places: &mut Vec<Place>,
) -> Result<()> {
    places.clear();
    let mut row = match view.first_from(table, &part_key(doc, term))? {
        Some((key, row)) if key.starts_with(&parts_key(doc)) => row,
        _ => return Ok(()),
    };
    let mut before = 0;
    while !row.is_empty() && before < term {
        let (here, mut bytes) = next(&mut row, before, true)?;
        before = here;
        if here != term {
            continue;
        }
        let mut last = Place::default();
        while !bytes.is_empty() {
            last.position = last.position.saturating_add(take_number(&mut bytes)?);
            last.offset = last.offset.saturating_add(take_number(&mut bytes)?);
            places.push(last);
        }
    }
    Ok(())
}

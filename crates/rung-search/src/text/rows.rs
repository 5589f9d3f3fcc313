//! The rows of a text index. All rows are in one table; the first byte of a key is the kind of the row.
//!
//! | key | row |
//! | --- | --- |
//! | `o` | the options, as EDN |
//! | `c` | the [`Counters`] |
//! | `r` reference, or `R` its digest if it is long | the document's number |
//! | `d` document | its reference |
//! | `x` document | its text |
//! | `f` document, the last term of a part | terms of the document, and their positions |
//! | `t` text of a term | its number, and how many documents have it |
//! | `i` term | the text of the term |
//! | `p` term, a bound of document numbers | documents that have the term |

use rung_kv::{Batch, MAX_KEY_BYTES, Table, View};
use sha2::{Digest as _, Sha256};

use super::options::TextOptions;
use crate::{Error, Result};

/// The number of a document. A document that is added again gets a new one, and no number is used twice.
pub(super) type DocId = u32;
/// The number of a term.
pub(super) type TermId = u32;

/// The bound of the last block of a term, which can grow; no document has this number.
pub(super) const NO_DOC: DocId = DocId::MAX;

pub(super) const OPTIONS: &[u8] = b"o";
const COUNTERS: &[u8] = b"c";

/// Returns a key of a kind of rows and numbers.
fn numbered<const N: usize>(kind: u8, numbers: &[u32]) -> [u8; N] {
    let mut key = [kind; N];
    for (place, number) in key[1..].as_chunks_mut().0.iter_mut().zip(numbers) {
        *place = number.to_be_bytes();
    }
    key
}

pub(super) fn doc_key(doc: DocId) -> [u8; 5] {
    numbered(b'd', &[doc])
}

/// The prefix of the keys of documents.
pub(super) const DOCS: &[u8] = b"d";

pub(super) fn text_key(doc: DocId) -> [u8; 5] {
    numbered(b'x', &[doc])
}

/// Returns the prefix of the keys of a document's parts.
pub(super) fn parts_key(doc: DocId) -> [u8; 5] {
    numbered(b'f', &[doc])
}

pub(super) fn part_key(doc: DocId, last: TermId) -> [u8; 9] {
    numbered(b'f', &[doc, last])
}

pub(super) fn term_text_key(term: TermId) -> [u8; 5] {
    numbered(b'i', &[term])
}

pub(super) fn block_key(term: TermId, bound: DocId) -> [u8; 9] {
    numbered(b'p', &[term, bound])
}

/// Returns the last number of a key.
pub(super) fn last_number(key: &[u8]) -> Result<u32> {
    let bytes = key.last_chunk().ok_or_else(|| Error::corrupt("key"))?;
    Ok(u32::from_be_bytes(*bytes))
}

pub(super) fn term_key(term: &str) -> Vec<u8> {
    [b"t", term.as_bytes()].concat()
}

pub(super) fn reference_key(reference: &[u8]) -> Vec<u8> {
    if reference.len() < MAX_KEY_BYTES {
        [b"r", reference].concat()
    } else {
        [b"R".as_slice(), &Sha256::digest(reference)].concat()
    }
}

/// Appends a number as LEB128.
pub(super) fn put_number(mut number: u32, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Takes a LEB128 number from the front of `bytes`.
#[inline]
pub(super) fn take_number(bytes: &mut &[u8]) -> Result<u32> {
    // Most are small.
    if let [byte @ 0..0x80, rest @ ..] = *bytes {
        *bytes = rest;
        return Ok(u32::from(*byte));
    }
    take_long_number(bytes)
}

fn take_long_number(bytes: &mut &[u8]) -> Result<u32> {
    let mut number = 0;
    for shift in (0..u32::BITS).step_by(7) {
        let Some((&byte, rest)) = bytes.split_first() else {
            break;
        };
        *bytes = rest;
        number |= u32::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Error::corrupt("number"))
}

/// The counters of an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// The number of documents.
    pub(super) docs: u32,
    /// The last document number that was assigned.
    pub(super) doc_ids: DocId,
    /// The last term number that was assigned.
    pub(super) term_ids: TermId,
}

impl Counters {
    pub(super) fn read(view: View<'_>, table: Table) -> Result<Self> {
        let Some(mut row) = view.get(table, COUNTERS)? else {
            return Ok(Self::default());
        };
        Ok(Self {
            docs: take_number(&mut row)?,
            doc_ids: take_number(&mut row)?,
            term_ids: take_number(&mut row)?,
        })
    }

    /// Assigns the number of a new document.
    pub(super) fn new_doc(&mut self) -> Result<DocId> {
        let doc = self.doc_ids.checked_add(1).filter(|doc| *doc < NO_DOC);
        self.doc_ids = doc.ok_or(Error::Full)?;
        self.docs += 1;
        Ok(self.doc_ids)
    }

    /// Assigns the number of a new term.
    pub(super) fn new_term(&mut self) -> Result<TermId> {
        self.term_ids = self.term_ids.checked_add(1).ok_or(Error::Full)?;
        Ok(self.term_ids)
    }

    pub(super) fn write(self, batch: &mut Batch<'_>, table: Table) -> Result<()> {
        let mut row = Vec::new();
        for number in [self.docs, self.doc_ids, self.term_ids] {
            put_number(number, &mut row);
        }
        Ok(batch.put(table, COUNTERS, &row)?)
    }
}

pub(super) fn read_options(row: &[u8]) -> Result<TextOptions> {
    let text = std::str::from_utf8(row).ok();
    let value = text.and_then(|text| rung_edn::read(text).ok());
    let options = value.and_then(|value| TextOptions::from_edn(&value).ok());
    options.ok_or_else(|| Error::corrupt("description of an index"))
}

/// The entry of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TermEntry {
    pub(super) id: TermId,
    /// The number of documents that have it.
    pub(super) docs: u32,
}

impl TermEntry {
    pub(super) fn read(view: View<'_>, table: Table, term: &str) -> Result<Option<Self>> {
        let Some(mut row) = view.get(table, &term_key(term))? else {
            return Ok(None);
        };
        Ok(Some(Self {
            id: take_number(&mut row)?,
            docs: take_number(&mut row)?,
        }))
    }

    pub(super) fn write(self, batch: &mut Batch<'_>, table: Table, term: &str) -> Result<()> {
        let mut row = Vec::with_capacity(8);
        put_number(self.id, &mut row);
        put_number(self.docs, &mut row);
        Ok(batch.put(table, &term_key(term), &row)?)
    }
}

/// Returns the number of the document of a reference.
pub(super) fn doc_of(view: View<'_>, table: Table, reference: &[u8]) -> Result<Option<DocId>> {
    let row = view.get(table, &reference_key(reference))?;
    row.map(last_number).transpose()
}

/// Returns the reference of a document.
pub(super) fn reference_of(view: View<'_>, table: Table, doc: DocId) -> Result<&[u8]> {
    let row = view.get(table, &doc_key(doc))?;
    row.ok_or_else(|| Error::corrupt("document"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u32::MAX - 1, u32::MAX] {
            let mut bytes = Vec::new();
            put_number(number, &mut bytes);
            let mut rest = bytes.as_slice();
            assert_eq!(take_number(&mut rest).unwrap(), number);
            assert!(rest.is_empty());
            let mut cut = &bytes[..bytes.len() - 1];
            assert!(take_number(&mut cut).is_err());
        }
        assert!(take_number(&mut [0xFF; 9].as_slice()).is_err());
    }

    #[test]
    fn keys_are_as_long_as_they_may_be() {
        assert!(term_key(&"𝔸".repeat(127)).len() <= MAX_KEY_BYTES);
        for bytes in [0, 1, 510, 511, 5000] {
            let key = reference_key(&vec![7; bytes]);
            assert!((1..=MAX_KEY_BYTES).contains(&key.len()));
        }
        assert_eq!(last_number(&block_key(1, 258)).unwrap(), 258);
    }
}

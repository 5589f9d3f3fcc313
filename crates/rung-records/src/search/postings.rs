//! Posting blocks: the versions that contain a word, delta-encoded and append-only.

use crate::{Error, Result};

/// Size at which a block is closed. Small enough to stay inline in its row.
const FULL_BYTES: usize = 1_200;

/// An occurrence of a word in a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Posting {
    pub version: i64,
    /// Number of occurrences in the text.
    pub times: u32,
    /// The text length in words, as a [`length_step`].
    pub length: u8,
}

/// Returns a logarithmic step for a text length.
pub(super) fn length_step(words: usize) -> u8 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )]
    let step = (8.0 * ((words + 1) as f32).log2()) as u8;
    step
}

/// Returns the approximate number of words of a length step.
pub(crate) fn words_of_step(step: u8) -> f32 {
    (f32::from(step) / 8.0).exp2() - 1.0
}

/// A block of postings.
#[derive(Debug, Clone, Default)]
pub(super) struct PostingBlock {
    pub first: i64,
    last: i64,
    body: Vec<u8>,
}

impl PostingBlock {
    /// Decodes a stored block.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut at = bytes;
        let first = read_varint(&mut at)?;
        let last = first.wrapping_add(read_varint(&mut at)?);
        Ok(Self {
            first,
            last,
            body: at.to_vec(),
        })
    }

    /// Encodes the block for the store.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        write_varint(out, self.first);
        write_varint(out, self.last.wrapping_sub(self.first));
        out.extend_from_slice(&self.body);
    }

    /// Appends a posting. Its version must be later than all others.
    pub(super) fn push(&mut self, posting: Posting) {
        if self.body.is_empty() {
            self.first = posting.version;
            self.last = posting.version;
        }
        write_varint(&mut self.body, posting.version - self.last);
        write_varint(&mut self.body, i64::from(posting.times));
        self.body.push(posting.length);
        self.last = posting.version;
    }

    pub(super) fn is_full(&self) -> bool {
        self.body.len() >= FULL_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// Encodes the block for the store.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.body.len() + 12);
        self.encode(&mut bytes);
        bytes
    }

    /// Appends a later block. Calls `full` with each block that becomes full on the way.
    pub(crate) fn append(&mut self, later: &Self, mut full: impl FnMut(&Self)) -> Result<()> {
        if self.body.is_empty() && !later.is_full() {
            self.clone_from(later);
            return Ok(());
        }
        if self.body.len() + later.body.len() < FULL_BYTES {
            // The first delta of `later` is 0, relative to itself; here it is relative to the last version of this
            // block.
            let mut rest = later.body.as_slice();
            let _nothing = read_varint(&mut rest)?;
            write_varint(&mut self.body, later.first.wrapping_sub(self.last));
            self.body.extend_from_slice(rest);
            self.last = later.last;
            return Ok(());
        }
        let mut all = Vec::new();
        later.decode_into(&mut all)?;
        for posting in all {
            if self.is_full() {
                full(self);
                *self = Self::default();
            }
            self.push(posting);
        }
        Ok(())
    }

    /// Decodes all postings into `out`.
    pub(super) fn decode_into(&self, out: &mut Vec<Posting>) -> Result<()> {
        let mut at = self.body.as_slice();
        let mut version = self.first;
        while !at.is_empty() {
            version = version.wrapping_add(read_varint(&mut at)?);
            let times = u32::try_from(read_varint(&mut at)?).unwrap_or(u32::MAX);
            let (length, rest) = at.split_first().ok_or_else(corrupt_block)?;
            at = rest;
            out.push(Posting {
                version,
                times,
                length: *length,
            });
        }
        Ok(())
    }
}

fn corrupt_block() -> Error {
    Error::Broken("a block of the word index is damaged".to_owned())
}

/// Writes a LEB128 variable-length integer.
fn write_varint(out: &mut Vec<u8>, number: i64) {
    let mut rest = number.cast_unsigned();
    while rest >= 0x80 {
        #[allow(clippy::cast_possible_truncation)]
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    #[allow(clippy::cast_possible_truncation)]
    out.push(rest as u8);
}

fn read_varint(at: &mut &[u8]) -> Result<i64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = at.split_first().ok_or_else(corrupt_block)?;
        *at = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number.cast_signed());
        }
    }
    Err(corrupt_block())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_in_comes_out(gaps in prop::collection::vec((1i64..1_000_000_000, 1u32..100_000, 0u8..=255), 0..200)) {
            let mut block = PostingBlock::default();
            let mut version = 0;
            let mut all = Vec::new();
            for (gap, times, length) in gaps {
                version += gap;
                let posting = Posting { version, times, length };
                block.push(posting);
                all.push(posting);
                let mut bytes = Vec::new();
                block.encode(&mut bytes);
                block = PostingBlock::decode(&bytes).unwrap();
            }
            let mut out = Vec::new();
            block.decode_into(&mut out).unwrap();
            prop_assert_eq!(out, all);
        }

        #[test]
        fn blocks_that_are_joined_hold_what_they_held(gaps in prop::collection::vec((1i64..1_000_000, 1u32..300), 0..2_000), cuts in prop::collection::vec(1usize..400, 1..20)) {
            let mut version = 0;
            let all: Vec<Posting> = gaps.iter().map(|(gap, times)| { version += gap; Posting { version, times: *times, length: 9 } }).collect();
            let (mut rest, mut tail, mut found) = (all.as_slice(), PostingBlock::default(), Vec::new());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                rest = later;
                let mut block = PostingBlock::default();
                for posting in now {
                    block.push(*posting);
                }
                tail.append(&block, |full| full.decode_into(&mut found).unwrap()).unwrap();
                tail = PostingBlock::decode(&tail.to_bytes()).unwrap();
            }
            tail.decode_into(&mut found).unwrap();
            prop_assert_eq!(found, all);
        }

        #[test]
        fn corrupt_blocks_are_errors(bytes: Vec<u8>) {
            if let Ok(block) = PostingBlock::decode(&bytes) {
                let _ = block.decode_into(&mut Vec::new());
            }
        }
    }

    #[test]
    fn steps_grow_with_lengths() {
        assert!((0..5_000).all(|words| length_step(words) <= length_step(words + 1)));
        for length in [1u16, 20, 300, 50_000] {
            let about = words_of_step(length_step(usize::from(length)));
            assert!(
                (about / f32::from(length) - 1.0).abs() < 0.6,
                "{length} {about}"
            );
        }
    }
}

//! In which versions a word occurs: blocks of numbers that only grow at their end.

use crate::{Error, Result};

/// Bytes of a block from which on it is closed. Small enough to lie in its row, and not beside it.
const FULL_BYTES: usize = 1_200;

/// An occurrence: in which version, how often, and in how long a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Posting {
    /// The version.
    pub version: i64,
    /// How often.
    pub times: u32,
    /// How many words the text has, in steps.
    pub length: u8,
}

/// The length of a text in steps that grow with it.
pub(super) fn step(words: usize) -> u8 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )]
    let step = (8.0 * ((words + 1) as f32).log2()) as u8;
    step
}

/// About how many words a step stands for.
pub(crate) fn words(step: u8) -> f32 {
    (f32::from(step) / 8.0).exp2() - 1.0
}

/// A block that is being filled.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    /// The first version in it.
    pub first: i64,
    last: i64,
    body: Vec<u8>,
}

impl Block {
    /// A block as it was stored.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let mut at = bytes;
        let first = number(&mut at)?;
        let last = first.wrapping_add(number(&mut at)?);
        Ok(Self {
            first,
            last,
            body: at.to_vec(),
        })
    }

    /// As it is stored.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        push(out, self.first);
        push(out, self.last.wrapping_sub(self.first));
        out.extend_from_slice(&self.body);
    }

    /// Adds an occurrence, later than all that are there.
    pub(super) fn push(&mut self, posting: Posting) {
        if self.body.is_empty() {
            self.first = posting.version;
            self.last = posting.version;
        }
        push(&mut self.body, posting.version - self.last);
        push(&mut self.body, i64::from(posting.times));
        self.body.push(posting.length);
        self.last = posting.version;
    }

    /// Whether another one should be begun.
    pub(super) fn is_full(&self) -> bool {
        self.body.len() >= FULL_BYTES
    }

    /// Whether nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// As it is stored.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.body.len() + 12);
        self.write(&mut bytes);
        bytes
    }

    /// Adds all of a later block. What is full on the way is handed over, and another one begun.
    pub(crate) fn append(&mut self, later: &Self, mut full: impl FnMut(&Self)) -> Result<()> {
        if self.body.is_empty() && !later.is_full() {
            self.clone_from(later);
            return Ok(());
        }
        if self.body.len() + later.body.len() < FULL_BYTES {
            // Its first one is as far from itself as nothing; here it is as far from our last one as it is.
            let mut rest = later.body.as_slice();
            let _nothing = number(&mut rest)?;
            push(&mut self.body, later.first.wrapping_sub(self.last));
            self.body.extend_from_slice(rest);
            self.last = later.last;
            return Ok(());
        }
        let mut all = Vec::new();
        later.postings(&mut all)?;
        for posting in all {
            if self.is_full() {
                full(self);
                *self = Self::default();
            }
            self.push(posting);
        }
        Ok(())
    }

    /// Everything in it, added to `out`.
    pub(super) fn postings(&self, out: &mut Vec<Posting>) -> Result<()> {
        let mut at = self.body.as_slice();
        let mut version = self.first;
        while !at.is_empty() {
            version = version.wrapping_add(number(&mut at)?);
            let times = u32::try_from(number(&mut at)?).unwrap_or(u32::MAX);
            let (length, rest) = at.split_first().ok_or_else(torn)?;
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

fn torn() -> Error {
    Error::Broken("a block of words is torn".to_owned())
}

/// Seven bits at a time, the low ones first.
fn push(out: &mut Vec<u8>, number: i64) {
    let mut rest = number.cast_unsigned();
    while rest >= 0x80 {
        #[allow(clippy::cast_possible_truncation)]
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    #[allow(clippy::cast_possible_truncation)]
    out.push(rest as u8);
}

fn number(at: &mut &[u8]) -> Result<i64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = at.split_first().ok_or_else(torn)?;
        *at = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number.cast_signed());
        }
    }
    Err(torn())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_in_comes_out(gaps in prop::collection::vec((1i64..1_000_000_000, 1u32..100_000, 0u8..=255), 0..200)) {
            let mut block = Block::default();
            let mut version = 0;
            let mut all = Vec::new();
            for (gap, times, length) in gaps {
                version += gap;
                let posting = Posting { version, times, length };
                block.push(posting);
                all.push(posting);
                let mut bytes = Vec::new();
                block.write(&mut bytes);
                block = Block::read(&bytes).unwrap();
            }
            let mut out = Vec::new();
            block.postings(&mut out).unwrap();
            prop_assert_eq!(out, all);
        }

        #[test]
        fn blocks_that_are_joined_hold_what_they_held(gaps in prop::collection::vec((1i64..1_000_000, 1u32..300), 0..2_000), cuts in prop::collection::vec(1usize..400, 1..20)) {
            let mut version = 0;
            let all: Vec<Posting> = gaps.iter().map(|(gap, times)| { version += gap; Posting { version, times: *times, length: 9 } }).collect();
            let (mut rest, mut tail, mut found) = (all.as_slice(), Block::default(), Vec::new());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                rest = later;
                let mut block = Block::default();
                for posting in now {
                    block.push(*posting);
                }
                tail.append(&block, |full| full.postings(&mut found).unwrap()).unwrap();
                tail = Block::read(&tail.bytes()).unwrap();
            }
            tail.postings(&mut found).unwrap();
            prop_assert_eq!(found, all);
        }

        #[test]
        fn junk_is_told(bytes: Vec<u8>) {
            if let Ok(block) = Block::read(&bytes) {
                let _ = block.postings(&mut Vec::new());
            }
        }
    }

    #[test]
    fn steps_grow_with_lengths() {
        assert!((0..5_000).all(|words| step(words) <= step(words + 1)));
        for length in [1u16, 20, 300, 50_000] {
            let about = words(step(usize::from(length)));
            assert!(
                (about / f32::from(length) - 1.0).abs() < 0.6,
                "{length} {about}"
            );
        }
    }
}

//! The number of tokens of one piece.
//!
//! Byte pair encoding begins with the bytes of a piece, and merges two adjacent tokens again and again: always the pair whose
//! merged token has the lowest rank, and of several the leftmost.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::layout::TOKEN_BITS;
use crate::vocabulary::{NO_TOKEN, byte_token, merged_token};

/// The longest piece that is merged without an allocation. Nearly all words are shorter.
pub(crate) const SHORT_BYTES: usize = 64;
/// The longest piece for which all pairs fit few lines of the processor's cache. Most words are.
const WORD_BYTES: usize = 16;
/// How much of a long piece is merged at a time, in bytes. The buffer takes up to fifty bytes for each.
const WINDOW_BYTES: usize = 2048;
/// How much of a window is merged again with the next, in bytes: twice the longest token.
const OVERLAP_BYTES: usize = 256;
/// Bits of a place in a piece, in a number that has a token above it. No piece has so many bytes.
const AT_BITS: u32 = u64::BITS - TOKEN_BITS;

/// The number of tokens of a piece.
pub(crate) fn count(piece: &[u8]) -> usize {
    match piece.len() {
        0 | 1 => piece.len(),
        2..=WORD_BYTES => count_short::<WORD_BYTES>(piece),
        ..=SHORT_BYTES => count_short::<SHORT_BYTES>(piece),
        _ => count_long(piece, WINDOW_BYTES, OVERLAP_BYTES),
    }
}

/// Looks for the best pair among all, which is quadratic, and the fastest for a few bytes. The piece has at most `CAPACITY`.
fn count_short<const CAPACITY: usize>(piece: &[u8]) -> usize {
    let mut tokens = [NO_TOKEN; CAPACITY];
    // The merge of each token with the next.
    let mut merges = [NO_TOKEN; CAPACITY];
    for (token, byte) in tokens.iter_mut().zip(piece) {
        *token = byte_token(*byte);
    }
    let mut count = piece.len().min(CAPACITY);
    for at in 1..count {
        merges[at - 1] = merged_token(tokens[at - 1], tokens[at]);
    }
    while count > 1 {
        let mut best = 0;
        for at in 1..count - 1 {
            if merges[at] < merges[best] {
                best = at;
            }
        }
        if merges[best] == NO_TOKEN {
            break;
        }
        tokens[best] = merges[best];
        tokens.copy_within(best + 2..count, best + 1);
        merges.copy_within(best + 1..count, best);
        count -= 1;
        if best > 0 {
            merges[best - 1] = merged_token(tokens[best - 1], tokens[best]);
        }
        if best + 1 < count {
            merges[best] = merged_token(tokens[best], tokens[best + 1]);
        }
    }
    count
}

/// Merges window by window, so that the memory does not grow with the piece.
///
/// A sequence of tokens is the encoding of its text if each two adjacent tokens are the encoding of theirs. So a window is cut
/// between two of its tokens, and the next window starts there. If its first token is the one that the earlier window has in
/// this place, the tokens on both sides of the cut belong together. Otherwise the piece is merged as a whole.
fn count_long(piece: &[u8], window_bytes: usize, overlap_bytes: usize) -> usize {
    let mut buffer = Buffer::default();
    let mut count = 0;
    let mut start = 0;
    let mut expected_token = None;
    while let Some(rest) = piece.get(start..) {
        let window = rest.get(..window_bytes).unwrap_or(rest);
        buffer.merge(window);
        if expected_token.is_some_and(|expected| buffer.first_token() != Some(expected)) {
            break;
        }
        if window.len() == rest.len() {
            return count + buffer.count();
        }
        let Some(cut) = buffer.cut(window.len().saturating_sub(overlap_bytes)) else {
            break;
        };
        count += cut.tokens_before;
        start += cut.at;
        expected_token = Some(cut.token);
    }
    buffer.merge(piece);
    buffer.count()
}

/// A place between two tokens of a window.
struct Cut {
    at: usize,
    tokens_before: usize,
    /// The token that begins here.
    token: u32,
}

/// Merges in a time that grows little more than the number of bytes.
#[derive(Default)]
struct Buffer {
    /// A span for each byte. Those that begin at the first byte of a token are current; the others were merged into them.
    spans: Vec<Span>,
    /// Pairs by the token that they merge into, and by the start of the left one below [`AT_BITS`]. In one number they are
    /// compared at once. A pair may have changed since it was added.
    queue: BinaryHeap<Reverse<u64>>,
}

#[derive(Clone, Copy)]
struct Span {
    token: u32,
    /// The merge of this token with the next.
    merge: u32,
    /// The start of the token before. The first token has its own start here.
    previous: usize,
    /// The start of the token after, or the number of bytes.
    next: usize,
}

impl Buffer {
    /// Replaces the content by the tokens of `bytes`.
    fn merge(&mut self, bytes: &[u8]) {
        self.spans.clear();
        self.queue.clear();
        self.spans
            .extend(bytes.iter().enumerate().map(|(at, byte)| Span {
                token: byte_token(*byte),
                merge: NO_TOKEN,
                previous: at.saturating_sub(1),
                next: at + 1,
            }));
        for at in 0..self.spans.len() {
            self.update_merge(at);
        }
        while let Some(Reverse(pair)) = self.queue.pop() {
            let at = (pair & ((1 << AT_BITS) - 1)) as usize;
            if u64::from(self.spans[at].merge) == pair >> AT_BITS {
                self.apply_merge(at);
            }
        }
    }

    /// Merges the token at `at` with the next.
    fn apply_merge(&mut self, at: usize) {
        let absorbed = self.spans[at].next;
        let next = self.spans[absorbed].next;
        self.spans[absorbed].merge = NO_TOKEN;
        if let Some(span) = self.spans.get_mut(next) {
            span.previous = at;
        }
        let span = &mut self.spans[at];
        span.token = span.merge;
        span.next = next;
        let previous = span.previous;
        self.update_merge(at);
        if previous < at {
            self.update_merge(previous);
        }
    }

    /// Looks up the merge of the token at `at` with the next.
    fn update_merge(&mut self, at: usize) {
        let span = self.spans[at];
        let next = self.spans.get(span.next);
        let merge = next.map_or(NO_TOKEN, |next| merged_token(span.token, next.token));
        self.spans[at].merge = merge;
        if merge != NO_TOKEN {
            self.queue
                .push(Reverse((u64::from(merge) << AT_BITS) | at as u64));
        }
    }

    /// The tokens in order, with their starts.
    fn tokens(&self) -> impl Iterator<Item = (usize, u32)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let span = self.spans.get(at)?;
            let start = std::mem::replace(&mut at, span.next);
            Some((start, span.token))
        })
    }

    fn count(&self) -> usize {
        self.tokens().count()
    }

    fn first_token(&self) -> Option<u32> {
        self.spans.first().map(|span| span.token)
    }

    /// The cut before the first token that begins at byte `earliest` or later, but not at the start.
    fn cut(&self, earliest: usize) -> Option<Cut> {
        let mut tokens = self.tokens().enumerate().skip(1);
        let (tokens_before, (at, token)) = tokens.find(|(_, (at, _))| *at >= earliest)?;
        Some(Cut {
            at,
            tokens_before,
            token,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count_whole(piece: &[u8]) -> usize {
        let mut buffer = Buffer::default();
        buffer.merge(piece);
        buffer.count()
    }

    #[test]
    fn every_token_is_one_token() {
        let vocabulary = &bpe_openai::o200k_base().bpe;
        for id in 0..u32::try_from(vocabulary.num_tokens()).unwrap() {
            let bytes = vocabulary.token_bytes(id);
            assert_eq!(count(bytes), 1, "{bytes:?}");
            assert_eq!(count_whole(bytes), 1, "{bytes:?}");
            let mut buffer = Buffer::default();
            buffer.merge(bytes);
            assert_eq!(buffer.first_token(), Some(id));
        }
    }

    #[test]
    fn the_longest_token_fits_the_overlap_twice() {
        let vocabulary = &bpe_openai::o200k_base().bpe;
        let ids = 0..u32::try_from(vocabulary.num_tokens()).unwrap();
        let longest = ids.map(|id| vocabulary.token_len(id)).max().unwrap();
        assert!(2 * longest <= OVERLAP_BYTES, "{longest}");
    }

    fn repetitive_bytes() -> impl Strategy<Value = Vec<u8>> {
        let unit = prop_oneof![
            prop::collection::vec(b'a'..=b'c', 1..6),
            prop::collection::vec(b'a'..=b'z', 1..12),
            prop::collection::vec(any::<u8>(), 1..6),
            Just(vec![b' ']),
            Just(vec![b'=']),
        ];
        prop::collection::vec((unit, 1..60_usize), 1..12).prop_map(|runs| {
            let runs = runs.into_iter().map(|(unit, times)| unit.repeat(times));
            runs.collect::<Vec<_>>().concat()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn all_ways_of_merging_agree(bytes in repetitive_bytes(), window in 1..200_usize, overlap in 0..100_usize) {
            let expected = bpe_openai::o200k_base().bpe.count(&bytes);
            prop_assert_eq!(count(&bytes), expected);
            prop_assert_eq!(count_whole(&bytes), expected);
            prop_assert_eq!(count_long(&bytes, window, overlap), expected);
            let short = &bytes[..bytes.len().min(SHORT_BYTES)];
            prop_assert_eq!(count_short::<SHORT_BYTES>(short), count_whole(short));
        }
    }
}

//! Counts the tokens of a text with `o200k_base`, the vocabulary of current models.
//!
//! Owns: the split of a text into pieces, and the merges of their bytes. Refuses to know: what a token means, what a count is
//! for. The law it keeps: the count is the one of the reference, for every text.
//!
//! The vocabulary is two megabytes of read-only data in the binary, and is never copied: only its pages that were read count
//! as memory. A count allocates nothing, except for a piece longer than 64 bytes, which takes a buffer of about 100 kB. The time
//! is proportional to the length of the text, and at most logarithmically more for a piece that cannot be merged in parts.

mod classes;
mod layout;
mod merge;
mod pieces;
mod vocabulary;

/// The number of `o200k_base` tokens of `text`. Names of special tokens count as the text that they are.
///
/// ```
/// assert_eq!(rung_tokens::count_tokens("Hello, world!"), 4);
/// ```
pub fn count_tokens(text: &str) -> usize {
    counts(text).sum()
}

/// Returns true if a text has at most so many `o200k_base` tokens. Counts no further than that.
///
/// ```
/// assert!(rung_tokens::has_at_most("Hello, world!", 4));
/// assert!(!rung_tokens::has_at_most("Hello, world!", 3));
/// ```
pub fn has_at_most(text: &str, max_tokens: usize) -> bool {
    let mut left = max_tokens;
    counts(text).all(|tokens| {
        let rest = left.checked_sub(tokens);
        left = rest.unwrap_or_default();
        rest.is_some()
    })
}

/// Returns the number of tokens of each piece of a text.
fn counts(text: &str) -> impl Iterator<Item = usize> {
    pieces::Pieces::new(text).map(|piece| merge::count(piece.as_bytes()))
}

//! The merges of the vocabulary, in a table that is read where the binary is mapped.

use crate::layout::{group, hash, pair_key, slot, token_of};

/// Keeps a slot, and a line of the processor's cache, from being split.
#[repr(C, align(64))]
struct Aligned<const BYTES: usize>([u8; BYTES]);

macro_rules! table {
    ($name:ident, $file:literal) => {
        static $name: Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/", $file)).len() }> =
            Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $file)));
    };
}

table!(BYTE_TOKENS, "byte_tokens.bin");
table!(PILOTS, "pilots.bin");
table!(SLOTS, "slots.bin");

/// No token: larger than all tokens.
pub(crate) const NO_TOKEN: u32 = u32::MAX;

/// The token of one byte.
pub(crate) fn byte_token(byte: u8) -> u32 {
    let tokens = BYTE_TOKENS.0.as_chunks().0;
    tokens
        .get(usize::from(byte))
        .map_or(NO_TOKEN, |token| u32::from_le_bytes(*token))
}

/// The token that two adjacent tokens merge into, or [`NO_TOKEN`]. The number of a token is also its rank.
pub(crate) fn merged_token(left: u32, right: u32) -> u32 {
    let key = pair_key(left, right);
    let hash = hash(key);
    let slots = SLOTS.0.as_chunks().0;
    let pilots = PILOTS.0.as_chunks().0;
    let pilot = pilots
        .get(group(hash))
        .map(|pilot| u16::from_le_bytes(*pilot));
    let entry = pilot.and_then(|pilot| slots.get(slot(hash, pilot, slots.len())));
    entry
        .and_then(|entry| token_of(u64::from_le_bytes(*entry), key))
        .unwrap_or(NO_TOKEN)
}

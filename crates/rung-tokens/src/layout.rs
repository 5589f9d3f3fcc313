//! The layout of the tables, as the build script writes them and the crate reads them.

/// Bits of a token. Three tokens fit a slot.
pub(crate) const TOKEN_BITS: u32 = 18;
/// Groups of pairs that share a pilot. With six pairs each, a pilot of two bytes suffices.
#[allow(dead_code, reason = "only the build script counts groups")]
pub(crate) const GROUPS: usize = 1 << GROUP_BITS;
const GROUP_BITS: u32 = 15;
/// Characters whose classes are stored together. Equal blocks are stored once.
pub(crate) const BLOCK_CHARS: usize = 128;

/// Classes of a character, as bits. A character of none is a symbol or unassigned.
pub(crate) mod class {
    /// `\p{L}`
    pub(crate) const LETTER: u8 = 1;
    /// What may come first in a word: `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
    pub(crate) const HEAD: u8 = 2;
    /// What may come last in a word: `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
    pub(crate) const TAIL: u8 = 4;
    /// `\p{N}`
    pub(crate) const NUMBER: u8 = 8;
    /// `\s`
    pub(crate) const SPACE: u8 = 16;
    /// `[\r\n]`
    pub(crate) const NEWLINE: u8 = 32;
}

/// Both tokens of a pair in one number.
pub(crate) fn pair_key(left: u32, right: u32) -> u64 {
    u64::from(left) << TOKEN_BITS | u64::from(right)
}

/// The content of a slot. It is not zero, because the tokens that are merged from others are not.
#[allow(dead_code, reason = "only the build script writes entries")]
pub(crate) fn entry(key: u64, token: u32) -> u64 {
    key << TOKEN_BITS | u64::from(token)
}

/// The token of a slot, if its pair is the one of `key`.
#[allow(dead_code, reason = "the build script reads no entries")]
pub(crate) fn token_of(entry: u64, key: u64) -> Option<u32> {
    const TOKEN_MASK: u64 = (1 << TOKEN_BITS) - 1;
    let token = (entry & TOKEN_MASK) as u32;
    (entry >> TOKEN_BITS == key && token != 0).then_some(token)
}

/// Mixes all bits of a key into all bits of the result.
pub(crate) fn hash(key: u64) -> u64 {
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The group of a pair by its hash, below [`GROUPS`].
pub(crate) fn group(hash: u64) -> usize {
    (hash >> (u64::BITS - GROUP_BITS)) as usize
}

/// The slot of a pair by its hash and the pilot of its group, below `slots`.
pub(crate) fn slot(hash: u64, pilot: u16, slots: usize) -> usize {
    let moved = (hash ^ u64::from(pilot).wrapping_mul(0xa076_1d64_78bd_642f))
        .wrapping_mul(0x9fb2_1c65_1e98_df25);
    (((moved >> 32) * slots as u64) >> 32) as usize
}

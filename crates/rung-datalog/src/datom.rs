//! Datoms, and the keys under which they are stored.
//!
//! Each datom is stored twice, as a key without a value: by entity (`eav`: entity, attribute, value) and by value (`ave`:
//! attribute, value, entity). Of a value that is too long for a key, the key has a prefix and a digest; the full value is in
//! a table of its own.

use std::borrow::Cow;

use rung_edn::Value;
use rung_kv::encode;
use sha2::{Digest as _, Sha256};

/// An entity id.
pub type Entity = u64;

/// An asserted or retracted fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datom {
    pub e: Entity,
    /// The id of the attribute.
    pub a: u32,
    pub v: Value,
    /// True if the fact was asserted, false if it was retracted.
    pub added: bool,
}

/// Bytes of an entity id and of an attribute id in a key.
pub(crate) const ENTITY_BYTES: usize = 8;
pub(crate) const ATTRIBUTE_BYTES: usize = 4;
/// Bytes of a value that fits in a key untruncated, at most.
const MAX_VALUE_BYTES: usize = 456;
const DIGEST_BYTES: usize = 16;

/// Encodes a value.
pub(crate) fn encode_value(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24);
    encode::encode_part(value, &mut bytes);
    bytes
}

/// Returns the bytes that stand for an encoded value in a key. Long values are cut to a prefix and a digest.
pub(crate) fn to_key_bytes(encoded: &[u8]) -> Cow<'_, [u8]> {
    if encoded.len() <= MAX_VALUE_BYTES {
        return encoded.into();
    }
    // One byte longer than any full value, so that truncated values can be recognized.
    let mut short = encoded[..=MAX_VALUE_BYTES - DIGEST_BYTES].to_vec();
    short.extend_from_slice(&Sha256::digest(encoded)[..DIGEST_BYTES]);
    short.into()
}

/// Whether the value in a key is truncated, so that the full value is in the `long` table.
pub(crate) fn is_truncated(in_key: &[u8]) -> bool {
    in_key.len() > MAX_VALUE_BYTES
}

/// Returns the key of a truncated value in the `long` table.
pub(crate) fn long_value_key(e: Entity, a: u32, in_key: &[u8]) -> Vec<u8> {
    let mut key = eav_prefix(e, a).to_vec();
    key.extend_from_slice(&in_key[in_key.len() - DIGEST_BYTES..]);
    key
}

pub(crate) fn eav_prefix(e: Entity, a: u32) -> [u8; ENTITY_BYTES + ATTRIBUTE_BYTES] {
    let mut key = [0; ENTITY_BYTES + ATTRIBUTE_BYTES];
    key[..ENTITY_BYTES].copy_from_slice(&e.to_be_bytes());
    key[ENTITY_BYTES..].copy_from_slice(&a.to_be_bytes());
    key
}

pub(crate) fn eav_key(e: Entity, a: u32, in_key: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(ENTITY_BYTES + ATTRIBUTE_BYTES + in_key.len());
    key.extend_from_slice(&eav_prefix(e, a));
    key.extend_from_slice(in_key);
    key
}

pub(crate) fn ave_prefix(a: u32, in_key: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(ENTITY_BYTES + ATTRIBUTE_BYTES + in_key.len());
    key.extend_from_slice(&a.to_be_bytes());
    key.extend_from_slice(in_key);
    key
}

pub(crate) fn ave_key(a: u32, in_key: &[u8], e: Entity) -> Vec<u8> {
    let mut key = ave_prefix(a, in_key);
    key.extend_from_slice(&e.to_be_bytes());
    key
}

/// Splits an `eav` key into entity, attribute and value.
pub(crate) fn parse_eav_key(key: &[u8]) -> Option<(Entity, u32, &[u8])> {
    let (e, rest) = key.split_first_chunk::<ENTITY_BYTES>()?;
    let (a, v) = rest.split_first_chunk::<ATTRIBUTE_BYTES>()?;
    Some((u64::from_be_bytes(*e), u32::from_be_bytes(*a), v))
}

/// Splits an `ave` key into entity, attribute and value.
pub(crate) fn parse_ave_key(key: &[u8]) -> Option<(Entity, u32, &[u8])> {
    let (a, rest) = key.split_first_chunk::<ATTRIBUTE_BYTES>()?;
    let (v, e) = rest.split_last_chunk::<ENTITY_BYTES>()?;
    Some((u64::from_be_bytes(*e), u32::from_be_bytes(*a), v))
}

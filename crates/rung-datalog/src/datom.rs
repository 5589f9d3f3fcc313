//! Datoms, and the keys under which they are kept.
//!
//! Each is kept twice, as nothing but a key: by entity (`eav`: entity, attribute, value) and by value (`ave`: attribute, value,
//! entity). A value that is too long for a key is there with its beginning and its digest, and stands whole in a table of
//! its own.

use std::borrow::Cow;

use rung_edn::Value;
use rung_kv::encode;
use sha2::{Digest as _, Sha256};

/// An entity.
pub type Entity = u64;

/// A fact, or that it is one no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datom {
    /// Of which entity.
    pub e: Entity,
    /// Of which attribute, by its number.
    pub a: u32,
    /// Which value it has.
    pub v: Value,
    /// Whether it has it now.
    pub added: bool,
}

/// Bytes of an entity and of an attribute.
pub(crate) const E: usize = 8;
pub(crate) const A: usize = 4;
/// Bytes of a value that stands in a key whole.
const WHOLE: usize = 456;
/// Bytes of a digest.
const DIGEST: usize = 16;

/// The bytes of a value.
pub(crate) fn encoded(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24);
    encode::put(value, &mut bytes);
    bytes
}

/// A value's bytes as they stand in a key.
pub(crate) fn in_key(encoded: &[u8]) -> Cow<'_, [u8]> {
    if encoded.len() <= WHOLE {
        return encoded.into();
    }
    // One more than any that is whole, so that it can be told from those.
    let mut short = encoded[..=WHOLE - DIGEST].to_vec();
    short.extend_from_slice(&Sha256::digest(encoded)[..DIGEST]);
    short.into()
}

/// Whether a value that stands so in a key stands elsewhere whole.
pub(crate) fn is_cut(in_key: &[u8]) -> bool {
    in_key.len() > WHOLE
}

/// Where a value that was cut stands whole.
pub(crate) fn whole_key(e: Entity, a: u32, in_key: &[u8]) -> Vec<u8> {
    let mut key = eav_prefix(e, a).to_vec();
    key.extend_from_slice(&in_key[in_key.len() - DIGEST..]);
    key
}

pub(crate) fn eav_prefix(e: Entity, a: u32) -> [u8; E + A] {
    let mut key = [0; E + A];
    key[..E].copy_from_slice(&e.to_be_bytes());
    key[E..].copy_from_slice(&a.to_be_bytes());
    key
}

pub(crate) fn eav_key(e: Entity, a: u32, in_key: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(E + A + in_key.len());
    key.extend_from_slice(&eav_prefix(e, a));
    key.extend_from_slice(in_key);
    key
}

pub(crate) fn ave_prefix(a: u32, in_key: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(E + A + in_key.len());
    key.extend_from_slice(&a.to_be_bytes());
    key.extend_from_slice(in_key);
    key
}

pub(crate) fn ave_key(a: u32, in_key: &[u8], e: Entity) -> Vec<u8> {
    let mut key = ave_prefix(a, in_key);
    key.extend_from_slice(&e.to_be_bytes());
    key
}

/// The entity, the attribute and the value of a key by entity.
pub(crate) fn of_eav(key: &[u8]) -> Option<(Entity, u32, &[u8])> {
    let (e, rest) = key.split_first_chunk::<E>()?;
    let (a, v) = rest.split_first_chunk::<A>()?;
    Some((u64::from_be_bytes(*e), u32::from_be_bytes(*a), v))
}

/// The entity, the attribute and the value of a key by value.
pub(crate) fn of_ave(key: &[u8]) -> Option<(Entity, u32, &[u8])> {
    let (a, rest) = key.split_first_chunk::<A>()?;
    let (v, e) = rest.split_last_chunk::<E>()?;
    Some((u64::from_be_bytes(*e), u32::from_be_bytes(*a), v))
}

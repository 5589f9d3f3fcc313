//! Reads tables of one snapshot. Iteration is lazy.

use std::iter;
use std::ops::Bound;

use rung_edn::Value;

use super::{KeySpan, TableKind, invalid};
use crate::{MAX_KEY_BYTES, Pair, Result, Table, View, encode};

/// Bytes of a value, at most.
const MAX_VALUE_BYTES: usize = 1 << 31;

/// Two encoded bounds.
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A key with its value, or with one of its values. Both are decoded on demand.
#[derive(Debug, Clone, Copy)]
pub struct TableEntry<'t> {
    kind: TableKind,
    key: &'t [u8],
    value: &'t [u8],
}

impl TableEntry<'_> {
    /// Decodes the key.
    pub fn key(&self) -> Result<Value> {
        match self.kind {
            TableKind::Plain => encode::decode(self.key),
            TableKind::List => encode::decode_part(self.key),
        }
    }

    /// Decodes the value.
    pub fn value(&self) -> Result<Value> {
        encode::decode(self.value)
    }
}

/// A table with one value for each key.
#[derive(Clone, Copy)]
pub struct PlainTable<'t> {
    pub(super) view: View<'t>,
    pub(super) table: Table,
}

impl<'t> PlainTable<'t> {
    /// Returns the value of a key.
    pub fn get(self, key: &Value) -> Result<Option<Value>> {
        let value = self.view.get(self.table, &key_bytes(key)?)?;
        value.map(encode::decode).transpose()
    }

    /// Returns the entries of a range, in its direction. Entries are read lazily, and skipped ones are not decoded.
    pub fn range(
        self,
        span: &KeySpan,
    ) -> Result<impl Iterator<Item = Result<TableEntry<'t>>> + use<'t>> {
        let bounds = (
            encode_bound(&span.from, key_bytes)?,
            encode_bound(&span.to, key_bytes)?,
        );
        let pairs = pairs_between(self.view, self.table, &bounds, span.reverse)?;
        let kind = TableKind::Plain;
        Ok(pairs.map(move |pair| pair.map(|(key, value)| TableEntry { kind, key, value })))
    }

    /// Counts the keys of a range by iteration. The count of all keys is stored.
    pub fn count(self, span: &KeySpan) -> Result<u64> {
        match (&span.from, &span.to) {
            (Bound::Unbounded, Bound::Unbounded) => self.view.count(self.table),
            _ => count_entries(self.range(span)?),
        }
    }

    /// Counts the keys before `key` by iteration; `None` if the table does not have it.
    pub fn rank(self, key: &Value) -> Result<Option<u64>> {
        let key = key_bytes(key)?;
        if self.view.get(self.table, &key)?.is_none() {
            return Ok(None);
        }
        let before = (Bound::Unbounded, Bound::Excluded(key));
        count_entries(pairs_between(self.view, self.table, &before, false)?).map(Some)
    }

    /// Returns the entry that `rank` keys come before, by iteration.
    pub fn by_rank(self, rank: u64) -> Result<Option<TableEntry<'t>>> {
        let Ok(rank) = usize::try_from(rank) else {
            return Ok(None);
        };
        self.range(&KeySpan::all())?.nth(rank).transpose()
    }
}

/// A table with a sorted list of distinct values for each key.
///
/// An engine key is the self-delimiting key followed by the value.
#[derive(Clone, Copy)]
pub struct ListTable<'t> {
    pub(super) view: View<'t>,
    pub(super) table: Table,
}

impl<'t> ListTable<'t> {
    /// Returns the values of a key that lie in a range, in its direction.
    pub fn values(
        self,
        key: &Value,
        span: &KeySpan,
    ) -> Result<impl Iterator<Item = Result<Value>> + use<'t>> {
        let key = list_key(key)?;
        let values = self.entries_of_key(&key, &bounds_within(&key, span)?, span.reverse)?;
        Ok(values.map(|entry| entry?.value()))
    }

    /// Returns true if the list of a key has a value.
    pub fn contains(self, key: &Value, value: &Value) -> Result<bool> {
        let entry = self.view.get(self.table, &list_entry(key, value)?)?;
        Ok(entry.is_some())
    }

    /// Counts the values of a key by iteration.
    pub fn count_values(self, key: &Value) -> Result<u64> {
        let key = list_key(key)?;
        let bounds = bounds_within(&key, &KeySpan::all())?;
        count_entries(pairs_between(self.view, self.table, &bounds, false)?)
    }

    /// Returns the keys of a range, in its direction. The values of a key are skipped by a single seek.
    pub fn keys(self, span: &KeySpan) -> Result<impl Iterator<Item = Result<Value>> + use<'t>> {
        Ok(self.key_parts(span)?.map(|key| encode::decode_part(key?)))
    }

    /// Returns the values in one range of the keys in another, each in the direction of its range.
    pub fn range(
        self,
        keys: &KeySpan,
        values: &KeySpan,
    ) -> Result<impl Iterator<Item = Result<TableEntry<'t>>> + use<'t>> {
        let values = values.clone();
        let of_key = move |key: Result<&'t [u8]>| {
            let key = key?;
            self.entries_of_key(key, &bounds_within(key, &values)?, values.reverse)
        };
        Ok(self.key_parts(keys)?.flat_map(move |key| {
            let (entries, error) = match of_key(key) {
                Ok(entries) => (Some(entries), None),
                Err(error) => (None, Some(Err(error))),
            };
            entries.into_iter().flatten().chain(error)
        }))
    }

    /// Counts the values of the keys in a range by iteration. The count of all values is stored.
    pub fn count(self, keys: &KeySpan) -> Result<u64> {
        match (&keys.from, &keys.to) {
            (Bound::Unbounded, Bound::Unbounded) => self.view.count(self.table),
            _ => count_entries(pairs_between(
                self.view,
                self.table,
                &bounds_of_lists(keys)?,
                false,
            )?),
        }
    }

    /// Returns the entries of a key within `bounds`, which lie within the bounds of the key.
    fn entries_of_key(
        self,
        key: &[u8],
        bounds: &Bounds,
        back: bool,
    ) -> Result<impl Iterator<Item = Result<TableEntry<'t>>> + use<'t>> {
        let key_length = key.len();
        let entries = pairs_between(self.view, self.table, bounds, back)?;
        Ok(entries.map(move |pair| {
            let (key, value) = pair?.0.split_at(key_length);
            let kind = TableKind::List;
            Ok(TableEntry { kind, key, value })
        }))
    }

    /// Returns the encoded distinct keys of a range.
    fn key_parts(self, span: &KeySpan) -> Result<impl Iterator<Item = Result<&'t [u8]>> + use<'t>> {
        let mut left = Some(bounds_of_lists(span)?);
        let back = span.reverse;
        let mut next = move || -> Result<Option<&'t [u8]>> {
            // After an error there is nothing left.
            let Some(bounds) = left.take() else {
                return Ok(None);
            };
            let Some(pair) = pairs_between(self.view, self.table, &bounds, back)?.next() else {
                return Ok(None);
            };
            let (key, _) = encode::split_part(pair?.0)?;
            left = Some(if back {
                (bounds.0, Bound::Excluded(key.to_vec()))
            } else {
                (Bound::Included(prefix_successor(key.to_vec())), bounds.1)
            });
            Ok(Some(key))
        };
        Ok(iter::from_fn(move || next().transpose()))
    }
}

/// Encodes the key of a plain table.
pub(super) fn key_bytes(key: &Value) -> Result<Vec<u8>> {
    check_key_bytes(encode::encode(not_nil(key, "key")?), "key")
}

/// Encodes the value of a plain table.
pub(super) fn value_bytes(value: &Value) -> Result<Vec<u8>> {
    let bytes = encode::encode(not_nil(value, "value")?);
    if bytes.len() > MAX_VALUE_BYTES {
        let length_bytes = bytes.len();
        return invalid(format!(
            "the value has {length_bytes} bytes; the maximum is {MAX_VALUE_BYTES}"
        ));
    }
    Ok(bytes)
}

/// Encodes a key of a list table: the prefix of its entries.
pub(super) fn list_key(key: &Value) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    encode::encode_part(not_nil(key, "key")?, &mut bytes);
    check_key_bytes(bytes, "key")
}

/// Encodes an entry of a list table.
pub(super) fn list_entry(key: &Value, value: &Value) -> Result<Vec<u8>> {
    let mut bytes = list_key(key)?;
    encode::encode_into(not_nil(value, "value")?, &mut bytes);
    check_key_bytes(bytes, "key with a value of its list")
}

fn not_nil<'v>(value: &'v Value, what: &str) -> Result<&'v Value> {
    match value {
        Value::Nil => invalid(format!("the {what} must not be nil")),
        value => Ok(value),
    }
}

fn check_key_bytes(bytes: Vec<u8>, what: &str) -> Result<Vec<u8>> {
    if bytes.len() > MAX_KEY_BYTES {
        let length_bytes = bytes.len();
        return invalid(format!(
            "the {what} has {length_bytes} bytes when encoded; the maximum is {MAX_KEY_BYTES}"
        ));
    }
    Ok(bytes)
}

/// Returns bounds around all entries of an encoded key.
pub(super) fn bounds_of_list(key: &[u8]) -> Bounds {
    let (from, to) = (key.to_vec(), prefix_successor(key.to_vec()));
    (Bound::Included(from), Bound::Excluded(to))
}

/// Returns bounds around the entries of a key whose values lie in a range.
fn bounds_within(key: &[u8], span: &KeySpan) -> Result<Bounds> {
    let entry = |value: &Value| {
        let mut bytes = key.to_vec();
        encode::encode_into(not_nil(value, "value")?, &mut bytes);
        Ok(bytes)
    };
    let or = |bound, otherwise| match bound {
        Bound::Unbounded => otherwise,
        bound => bound,
    };
    let (first, last) = bounds_of_list(key);
    let from = or(encode_bound(&span.from, entry)?, first);
    Ok((from, or(encode_bound(&span.to, entry)?, last)))
}

/// Returns bounds around the entries of all keys that lie in a range.
fn bounds_of_lists(span: &KeySpan) -> Result<Bounds> {
    let from = match encode_bound(&span.from, list_key)? {
        Bound::Excluded(key) => Bound::Included(prefix_successor(key)),
        from => from,
    };
    let to = match encode_bound(&span.to, list_key)? {
        Bound::Included(key) => Bound::Excluded(prefix_successor(key)),
        to => to,
    };
    Ok((from, to))
}

fn encode_bound(
    of: &Bound<Value>,
    bytes: impl Fn(&Value) -> Result<Vec<u8>>,
) -> Result<Bound<Vec<u8>>> {
    Ok(match of {
        Bound::Included(value) => Bound::Included(bytes(value)?),
        Bound::Excluded(value) => Bound::Excluded(bytes(value)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

/// Returns the smallest bytes after all that begin with `bytes`. They exist, since `bytes` begins with the byte of a kind.
fn prefix_successor(mut bytes: Vec<u8>) -> Vec<u8> {
    while bytes.pop_if(|byte| *byte == u8::MAX).is_some() {}
    if let Some(last) = bytes.last_mut() {
        *last += 1;
    }
    bytes
}

/// Returns the pairs between bounds, in either direction.
pub(super) fn pairs_between<'t>(
    view: View<'t>,
    table: Table,
    (from, to): &Bounds,
    back: bool,
) -> Result<impl Iterator<Item = Result<Pair<'t>>> + use<'t>> {
    let bounds = (
        from.as_ref().map(Vec::as_slice),
        to.as_ref().map(Vec::as_slice),
    );
    let (forth, back) = if back {
        (None, Some(view.range_reverse(table, bounds)?))
    } else {
        (Some(view.range(table, bounds)?), None)
    };
    let forth = forth.into_iter().flatten();
    Ok(forth.chain(back.into_iter().flatten()))
}

fn count_entries<T>(mut entries: impl Iterator<Item = Result<T>>) -> Result<u64> {
    entries.try_fold(0, |count, entry| entry.map(|_| count + 1))
}

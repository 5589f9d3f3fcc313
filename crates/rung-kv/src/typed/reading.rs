//! Tables as they are at one moment. Whatever is gone through is read as it is asked for.

use std::iter;
use std::ops::Bound;

use rung_edn::Value;

use super::{Kind, Span, invalid};
use crate::{MAX_KEY_BYTES, Pair, Result, Table, View, encode};

/// Bytes of a value, at most.
const MAX_VALUE_BYTES: usize = 1 << 31;

/// Two bounds, in bytes.
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A key with its value, or with one of its values. Neither is decoded before it is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'t> {
    kind: Kind,
    key: &'t [u8],
    value: &'t [u8],
}

impl Entry<'_> {
    /// The key.
    pub fn key(&self) -> Result<Value> {
        match self.kind {
            Kind::Plain => encode::decode(self.key),
            Kind::List => encode::take(self.key),
        }
    }

    /// The value.
    pub fn value(&self) -> Result<Value> {
        encode::decode(self.value)
    }
}

/// A table with one value for each key.
#[derive(Clone, Copy)]
pub struct Plain<'t> {
    pub(super) view: View<'t>,
    pub(super) table: Table,
}

impl<'t> Plain<'t> {
    /// The value of a key.
    pub fn get(self, key: &Value) -> Result<Option<Value>> {
        let value = self.view.get(self.table, &key_bytes(key)?)?;
        value.map(encode::decode).transpose()
    }

    /// What lies in a range, in its direction. What is not taken from it is not read, and what is skipped is not decoded.
    pub fn range(self, span: &Span) -> Result<impl Iterator<Item = Result<Entry<'t>>> + use<'t>> {
        let bounds = (bound(&span.from, key_bytes)?, bound(&span.to, key_bytes)?);
        let pairs = walk(self.view, self.table, &bounds, span.back)?;
        let kind = Kind::Plain;
        Ok(pairs.map(move |pair| pair.map(|(key, value)| Entry { kind, key, value })))
    }

    /// How many keys lie in a range. They are gone through, unless it is all: these are counted already.
    pub fn count(self, span: &Span) -> Result<u64> {
        match (&span.from, &span.to) {
            (Bound::Unbounded, Bound::Unbounded) => self.view.count(self.table),
            _ => tally(self.range(span)?),
        }
    }

    /// How many keys come before one that is there. They are gone through.
    pub fn rank(self, key: &Value) -> Result<Option<u64>> {
        let key = key_bytes(key)?;
        if self.view.get(self.table, &key)?.is_none() {
            return Ok(None);
        }
        let before = (Bound::Unbounded, Bound::Excluded(key));
        tally(walk(self.view, self.table, &before, false)?).map(Some)
    }

    /// The entry before which so many come. They are gone through.
    pub fn by_rank(self, rank: u64) -> Result<Option<Entry<'t>>> {
        let Ok(rank) = usize::try_from(rank) else {
            return Ok(None);
        };
        self.range(&Span::all())?.nth(rank).transpose()
    }
}

/// A table with values for each key, in order and each of them once.
///
/// An entry of the engine has for its key the key, so that its end can be told, and then the value.
#[derive(Clone, Copy)]
pub struct List<'t> {
    pub(super) view: View<'t>,
    pub(super) table: Table,
}

impl<'t> List<'t> {
    /// The values of a key that lie in a range, in its direction.
    pub fn values(
        self,
        key: &Value,
        span: &Span,
    ) -> Result<impl Iterator<Item = Result<Value>> + use<'t>> {
        let key = list_key(key)?;
        let values = self.of_key(&key, &bounds_within(&key, span)?, span.back)?;
        Ok(values.map(|entry| entry?.value()))
    }

    /// Whether a value is in the list of a key.
    pub fn contains(self, key: &Value, value: &Value) -> Result<bool> {
        let entry = self.view.get(self.table, &list_entry(key, value)?)?;
        Ok(entry.is_some())
    }

    /// How many values a key has. They are gone through.
    pub fn count_values(self, key: &Value) -> Result<u64> {
        let key = list_key(key)?;
        let bounds = bounds_within(&key, &Span::all())?;
        tally(walk(self.view, self.table, &bounds, false)?)
    }

    /// The keys that lie in a range, in its direction. However many values a key has, they are passed over at once.
    pub fn keys(self, span: &Span) -> Result<impl Iterator<Item = Result<Value>> + use<'t>> {
        Ok(self.key_parts(span)?.map(|key| encode::take(key?)))
    }

    /// The values that lie in one range, of the keys that lie in another; each in the direction of its range.
    pub fn range(
        self,
        keys: &Span,
        values: &Span,
    ) -> Result<impl Iterator<Item = Result<Entry<'t>>> + use<'t>> {
        let values = values.clone();
        let of_key = move |key: Result<&'t [u8]>| {
            let key = key?;
            self.of_key(key, &bounds_within(key, &values)?, values.back)
        };
        Ok(self.key_parts(keys)?.flat_map(move |key| {
            let (entries, error) = match of_key(key) {
                Ok(entries) => (Some(entries), None),
                Err(error) => (None, Some(Err(error))),
            };
            entries.into_iter().flatten().chain(error)
        }))
    }

    /// How many values the keys have that lie in a range. They are gone through, unless it is all: these are counted already.
    pub fn count(self, keys: &Span) -> Result<u64> {
        match (&keys.from, &keys.to) {
            (Bound::Unbounded, Bound::Unbounded) => self.view.count(self.table),
            _ => tally(walk(self.view, self.table, &bounds_of_lists(keys)?, false)?),
        }
    }

    /// The entries of a key within bounds that lie within those of the key.
    fn of_key(
        self,
        key: &[u8],
        bounds: &Bounds,
        back: bool,
    ) -> Result<impl Iterator<Item = Result<Entry<'t>>> + use<'t>> {
        let key_length = key.len();
        let entries = walk(self.view, self.table, bounds, back)?;
        Ok(entries.map(move |pair| {
            let (key, value) = pair?.0.split_at(key_length);
            let kind = Kind::List;
            Ok(Entry { kind, key, value })
        }))
    }

    /// The keys as they stand in entries, each of them once.
    fn key_parts(self, span: &Span) -> Result<impl Iterator<Item = Result<&'t [u8]>> + use<'t>> {
        let mut left = Some(bounds_of_lists(span)?);
        let back = span.back;
        let mut next = move || -> Result<Option<&'t [u8]>> {
            // After an error there is nothing left.
            let Some(bounds) = left.take() else {
                return Ok(None);
            };
            let Some(pair) = walk(self.view, self.table, &bounds, back)?.next() else {
                return Ok(None);
            };
            let (key, _) = encode::split(pair?.0)?;
            left = Some(if back {
                (bounds.0, Bound::Excluded(key.to_vec()))
            } else {
                (Bound::Included(after(key.to_vec())), bounds.1)
            });
            Ok(Some(key))
        };
        Ok(iter::from_fn(move || next().transpose()))
    }
}

/// The bytes of a plain table's key.
pub(super) fn key_bytes(key: &Value) -> Result<Vec<u8>> {
    within_key(encode::encode(not_nil(key, "key")?), "key")
}

/// The bytes of a plain table's value.
pub(super) fn value_bytes(value: &Value) -> Result<Vec<u8>> {
    let bytes = encode::encode(not_nil(value, "value")?);
    if bytes.len() > MAX_VALUE_BYTES {
        let length_bytes = bytes.len();
        return invalid(format!(
            "the value has {length_bytes} bytes, and may have {MAX_VALUE_BYTES}"
        ));
    }
    Ok(bytes)
}

/// The bytes of a key with which the entries of its list begin.
pub(super) fn list_key(key: &Value) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    encode::put(not_nil(key, "key")?, &mut bytes);
    within_key(bytes, "key")
}

/// The bytes of a value in the list of a key.
pub(super) fn list_entry(key: &Value, value: &Value) -> Result<Vec<u8>> {
    let mut bytes = list_key(key)?;
    encode::encode_into(not_nil(value, "value")?, &mut bytes);
    within_key(bytes, "key and the value in its list together")
}

fn not_nil<'v>(value: &'v Value, what: &str) -> Result<&'v Value> {
    match value {
        Value::Nil => invalid(format!("nil is no {what}")),
        value => Ok(value),
    }
}

fn within_key(bytes: Vec<u8>, what: &str) -> Result<Vec<u8>> {
    if bytes.len() > MAX_KEY_BYTES {
        let length_bytes = bytes.len();
        return invalid(format!(
            "the {what} has {length_bytes} bytes when encoded, and may have {MAX_KEY_BYTES}; shorten it"
        ));
    }
    Ok(bytes)
}

/// Bounds around all entries that begin with the bytes of a key.
pub(super) fn bounds_of_list(key: &[u8]) -> Bounds {
    let (from, to) = (key.to_vec(), after(key.to_vec()));
    (Bound::Included(from), Bound::Excluded(to))
}

/// Bounds around the entries of a key whose values lie in a range.
fn bounds_within(key: &[u8], span: &Span) -> Result<Bounds> {
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
    let from = or(bound(&span.from, entry)?, first);
    Ok((from, or(bound(&span.to, entry)?, last)))
}

/// Bounds around the entries of all keys that lie in a range.
fn bounds_of_lists(span: &Span) -> Result<Bounds> {
    let from = match bound(&span.from, list_key)? {
        Bound::Excluded(key) => Bound::Included(after(key)),
        from => from,
    };
    let to = match bound(&span.to, list_key)? {
        Bound::Included(key) => Bound::Excluded(after(key)),
        to => to,
    };
    Ok((from, to))
}

fn bound(of: &Bound<Value>, bytes: impl Fn(&Value) -> Result<Vec<u8>>) -> Result<Bound<Vec<u8>>> {
    Ok(match of {
        Bound::Included(value) => Bound::Included(bytes(value)?),
        Bound::Excluded(value) => Bound::Excluded(bytes(value)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

/// The first bytes that come after all that begin with these, which begin with the byte of a kind: there are some.
fn after(mut bytes: Vec<u8>) -> Vec<u8> {
    while bytes.pop_if(|byte| *byte == u8::MAX).is_some() {}
    if let Some(last) = bytes.last_mut() {
        *last += 1;
    }
    bytes
}

/// What lies between bounds, in either direction.
pub(super) fn walk<'t>(
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
        (None, Some(view.range_back(table, bounds)?))
    } else {
        (Some(view.range(table, bounds)?), None)
    };
    let forth = forth.into_iter().flatten();
    Ok(forth.chain(back.into_iter().flatten()))
}

fn tally<T>(mut entries: impl Iterator<Item = Result<T>>) -> Result<u64> {
    entries.try_fold(0, |count, entry| entry.map(|_| count + 1))
}

//! Folders of tables: order, ranges, transactions, growth, and read-only access.

#![allow(clippy::unwrap_used)]

use std::ops::Bound;

use proptest::prelude::*;
use rung_kv::{Error, Kv, KvOptions, Result, View};

type Keys = std::collections::BTreeMap<Vec<u8>, Vec<u8>>;

fn all(kv: &Kv, name: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let table = kv.table(name).unwrap().unwrap();
    let read = |view: View<'_>| -> Result<_> {
        let pairs = view.prefix(table, &[])?;
        pairs
            .map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())))
            .collect()
    };
    kv.read(read).unwrap()
}

#[test]
fn a_transaction_is_done_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let kv = Kv::open(folder.path(), KvOptions::default()).unwrap();
    let (one, other) = (kv.create("one").unwrap(), kv.create("other").unwrap());
    kv.write(|batch| -> Result<()> {
        batch.put(one, b"a", b"1")?;
        batch.put(other, b"b", b"2")
    })
    .unwrap();
    let refused = kv.write(|batch| -> Result<()> {
        batch.put(one, b"a", b"9")?;
        assert!(batch.delete(other, b"b")?);
        assert!(
            batch.view().get(other, b"b")?.is_none(),
            "within, it is gone"
        );
        Err(Error::Corrupt("thought"))
    });
    assert!(refused.is_err());
    assert_eq!(all(&kv, "one"), [(b"a".to_vec(), b"1".to_vec())]);
    assert_eq!(all(&kv, "other"), [(b"b".to_vec(), b"2".to_vec())]);
    assert_eq!(kv.names().unwrap(), ["one", "other"]);
    assert!(kv.table("third").unwrap().is_none());
}

#[test]
fn the_map_grows_as_it_must() {
    let folder = tempfile::tempdir().unwrap();
    let options = KvOptions {
        map_bytes: 256 << 10,
        ..KvOptions::default()
    };
    let kv = Kv::open(folder.path(), options).unwrap();
    let table = kv.create("t").unwrap();
    let value = vec![7; 1_000];
    kv.write(|batch| -> Result<()> {
        (0..5_000_u32).try_for_each(|n| batch.put(table, &n.to_be_bytes(), &value))
    })
    .unwrap();
    assert_eq!(kv.read(|view| view.count(table)).unwrap(), 5_000);
}

#[test]
fn what_is_opened_for_reading_is_not_made_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let reading = KvOptions {
        create: false,
        writable: false,
        ..KvOptions::default()
    };
    let absent = folder.path().join("absent");
    assert!(matches!(
        Kv::open(&absent, reading),
        Err(Error::File { .. })
    ));
    assert!(!absent.exists());
    let there = folder.path().join("there");
    Kv::open(&there, KvOptions::default())
        .unwrap()
        .create("t")
        .unwrap();
    let kv = Kv::open(&there, reading).unwrap();
    let table = kv.table("t").unwrap().unwrap();
    assert!(
        kv.write(|batch| -> Result<()> { batch.put(table, b"k", b"v") })
            .is_err()
    );
    assert!(kv.create("another").is_err());
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    let key = prop::collection::vec(0_u8..4, 1..4);
    prop_oneof![
        Just(Bound::Unbounded),
        key.clone().prop_map(Bound::Included),
        key.prop_map(Bound::Excluded)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn ranges_are_those_of_sorted_keys(keys in prop::collection::vec(prop::collection::vec(0_u8..4, 1..4), 0..40), ranges in prop::collection::vec((bound(), bound()), 1..20), prefix in prop::collection::vec(0_u8..4, 0..3)) {
        let folder = tempfile::tempdir().unwrap();
        let kv = Kv::open(folder.path(), KvOptions::default()).unwrap();
        let table = kv.create("t").unwrap();
        let model: Keys = keys.iter().map(|key| (key.clone(), key.iter().rev().copied().collect())).collect();
        kv.write(|batch| -> Result<()> { model.iter().try_for_each(|(key, value)| batch.put(table, key, value)) }).unwrap();
        for (from, to) in ranges {
            let within = |key: &Vec<u8>| {
                let after = match &from { Bound::Unbounded => true, Bound::Included(from) => key >= from, Bound::Excluded(from) => key > from };
                let before = match &to { Bound::Unbounded => true, Bound::Included(to) => key <= to, Bound::Excluded(to) => key < to };
                after && before
            };
            let expected: Vec<Vec<u8>> = model.keys().filter(|key| within(key)).cloned().collect();
            let bounds = || (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
            let forth = kv.read(|view| -> Result<Vec<Vec<u8>>> { view.range(table, bounds())?.map(|pair| Ok(pair?.0.to_vec())).collect() }).unwrap();
            let mut back = kv.read(|view| -> Result<Vec<Vec<u8>>> { view.range_reverse(table, bounds())?.map(|pair| Ok(pair?.0.to_vec())).collect() }).unwrap();
            prop_assert_eq!(&forth, &expected);
            back.reverse();
            prop_assert_eq!(&back, &expected);
        }
        let expected: Vec<Vec<u8>> = model.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
        let found = kv.read(|view| -> Result<Vec<Vec<u8>>> { view.prefix(table, &prefix)?.map(|pair| Ok(pair?.0.to_vec())).collect() }).unwrap();
        prop_assert_eq!(found, expected);
    }
}

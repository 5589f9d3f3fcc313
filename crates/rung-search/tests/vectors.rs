//! The public behaviour of a vector index.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use rung_edn::{Value, read};
use rung_fault::{Code, Coded as _};
use rung_kv::{Batch, Kv, KvOptions, View};
use rung_search::Error;
use rung_search::vectors::{Display, SearchOptions, VectorIndex, VectorOptions};
use tempfile::TempDir;

/// A pseudo-random generator of numbers between -1 and 1.
struct TestRng(u64);

impl TestRng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 20) % bound
    }

    #[allow(clippy::cast_precision_loss)]
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn vector(&mut self, dimensions: usize) -> Vec<f32> {
        (0..dimensions).map(|_| self.unit()).collect()
    }
}

struct VectorStore {
    folder: TempDir,
    kv: Kv,
}

impl VectorStore {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kv = Kv::open(folder.path(), KvOptions::default()).unwrap();
        Self { folder, kv }
    }

    fn reopen(self) -> Self {
        let Self { folder, kv } = self;
        drop(kv);
        let kv = Kv::open(folder.path(), KvOptions::default()).unwrap();
        Self { folder, kv }
    }

    fn index(&self, options: &str) -> VectorIndex {
        self.open("test", options).unwrap()
    }

    fn open(&self, domain: &str, options: &str) -> Result<VectorIndex, Error> {
        let options = VectorOptions::read(&read(options).unwrap())?;
        Ok(VectorIndex::open(&self.kv, domain, Some(&options), true)?.unwrap())
    }

    fn write<T>(&self, f: impl FnMut(&mut Batch<'_>) -> Result<T, Error>) -> T {
        self.kv.write(f).unwrap()
    }
}

fn search(
    view: View<'_>,
    index: &VectorIndex,
    query: &[f32],
    top: usize,
) -> Result<Vec<(Vec<u8>, f32)>, Error> {
    let options = SearchOptions {
        top,
        ..SearchOptions::default()
    };
    let found = index.search(view, query, &options, &|| Ok::<_, Error>(()))?;
    let found = found.iter();
    Ok(found
        .map(|found| (found.reference.to_vec(), found.distance))
        .collect())
}

fn texts(found: &[(Vec<u8>, f32)]) -> Vec<&str> {
    let found = found.iter();
    found
        .map(|(reference, _)| std::str::from_utf8(reference).unwrap())
        .collect()
}

impl VectorStore {
    fn search(&self, index: &VectorIndex, query: &[f32], top: usize) -> Vec<(Vec<u8>, f32)> {
        self.kv
            .read(|view| search(view, index, query, top))
            .unwrap()
    }
}

fn square(one: &[f32], other: &[f32]) -> f32 {
    let pairs = one.iter().zip(other);
    pairs.map(|(one, other)| (one - other).powi(2)).sum()
}

#[test]
fn a_reference_is_found_once_for_each_of_its_vectors() {
    let store = VectorStore::new();
    let index = store.index("{:dimensions 2}");
    store.write(|batch| {
        index.add(batch, b"a", &[0.0, 0.0])?;
        index.add(batch, b"b", &[1.0, 0.0])?;
        index.add(batch, b"a", &[3.0, 0.0])
    });
    let found = store.search(&index, &[0.0, 0.0], 10);
    assert_eq!(texts(&found), ["a", "b", "a"]);
    let distances: Vec<f32> = found.iter().map(|(_, distance)| *distance).collect();
    assert_eq!(distances, [0.0, 1.0, 9.0]);
    assert_eq!(store.write(|batch| index.remove(batch, b"a")), 2);
    assert_eq!(store.write(|batch| index.remove(batch, b"a")), 0);
    let found = store.search(&index, &[0.0, 0.0], 10);
    assert_eq!(texts(&found), ["b"]);
}

#[test]
fn what_is_there_stays_there_when_the_store_is_opened_again() {
    let store = VectorStore::new();
    let index = store.index("{:dimensions 3 :metric-type :cosine}");
    let mut chance = TestRng(3);
    let vectors: Vec<Vec<f32>> = (0..2_500).map(|_| chance.vector(3)).collect();
    let referred = (0_u32..).map(u32::to_be_bytes).zip(&vectors);
    store.write(|batch| index.add_many(batch, referred.clone()));
    let before = store.search(&index, &vectors[17], 5);
    assert_eq!(before[0].0, 17_u32.to_be_bytes());
    let store = store.reopen();
    let none = VectorIndex::open(&store.kv, "other", None, false).unwrap();
    assert!(none.is_none());
    assert_eq!(store.kv.names().unwrap(), ["vectors/test"]);
    let index = VectorIndex::open(&store.kv, "test", None, false).unwrap();
    let index = index.unwrap();
    assert_eq!(store.search(&index, &vectors[17], 5), before);
    let info = store.kv.read(|view| index.info(view)).unwrap();
    for (name, expected) in [
        ("size", "2500"),
        ("dimensions", "3"),
        ("metric-type", ":cosine"),
        ("quantization", ":float"),
        ("connectivity", "16"),
        ("expansion-add", "128"),
        ("expansion-search", "64"),
        ("domain", "\"test\""),
        ("checkpoint", "{:waiting 0}"),
    ] {
        assert_eq!(info[&Value::keyword(name)].to_string(), expected, "{name}");
    }
}

#[test]
fn an_index_is_opened_as_it_was_made() {
    let store = VectorStore::new();
    store.index("{:dimensions 3 :metric-type :cosine}");
    store.index("{:dimensions 3}");
    let error = store.open("test", "{:dimensions 4}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the index test was created with {:dimensions 3}, not with {:dimensions 4}"
    );
    let error = store.open("test", "{:dimensions 3 :metric-type :hamming}");
    assert_eq!(error.unwrap_err().code(), Code::InvalidRequest);
    for wrong in [
        "{}",
        "[]",
        "{:dimensions 0}",
        "{:dimensions -3}",
        "{:dimensions 3.0}",
        "{:dimensions 65537}",
        "{:dimensions 3 :metric-type :near}",
        "{:dimensions 3 :metric-type \"cosine\"}",
        "{:dimensions 3 :quantization :int4}",
        "{:dimensions 3 :connectivity 1}",
        "{:dimensions 3 :expansion-add 0}",
        "{:dimensions 3 :metric-type :haversine}",
        "{:dimensions 3 :domain :x}",
        "{:dimensions 3 :dimension 3}",
    ] {
        let error = store.open("wrong", wrong).unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest, "{wrong}");
    }
    store.open("", "{:dimensions 3}").unwrap_err();
    assert_eq!(store.kv.names().unwrap(), ["vectors/test"]);
}

#[test]
fn a_search_is_read_from_its_options() {
    let options = SearchOptions::read(&Value::Nil).unwrap();
    assert_eq!((options.top, options.display), (10, Display::Refs));
    let form = read("{:top 3 :display :refs+dists :domains [\"a\"]}").unwrap();
    let options = SearchOptions::read(&form).unwrap();
    assert_eq!(
        (options.top, options.display),
        (3, Display::RefsAndDistances)
    );
    assert_eq!(options.domains.unwrap(), ["a"]);
    for wrong in [
        "{:top 0}",
        "{:display :all}",
        "{:limit 3}",
        "[]",
        "{:domains 1}",
    ] {
        SearchOptions::read(&read(wrong).unwrap()).unwrap_err();
    }
}

#[test]
fn what_is_no_vector_is_refused_and_says_why() {
    let store = VectorStore::new();
    let index = store.index("{:dimensions 2}");
    for (vector, why) in [
        (
            &[1.0][..],
            "the vector has 1 numbers; those of this index have 2",
        ),
        (
            &[1.0, 2.0, 3.0],
            "the vector has 3 numbers; those of this index have 2",
        ),
        (&[], "the vector has 0 numbers; those of this index have 2"),
        (
            &[1.0, f32::NAN],
            "number 1 of the vector (counted from 0) is NaN, which is not finite",
        ),
        (
            &[f32::INFINITY, 1.0],
            "number 0 of the vector (counted from 0) is inf, which is not finite",
        ),
    ] {
        let error = store.kv.write(|batch| index.add(batch, b"a", vector));
        assert_eq!(error.unwrap_err().to_string(), why);
        let error = store.kv.read(|view| search(view, &index, vector, 1));
        assert_eq!(error.unwrap_err().to_string(), why);
    }
    assert!(store.kv.read(|view| index.is_empty(view)).unwrap());
    let divergence = store
        .open("divergence", "{:dimensions 2 :metric-type :divergence}")
        .unwrap();
    let below = store
        .kv
        .write(|batch| divergence.add(batch, b"a", &[0.5, -0.5]));
    below.unwrap_err();
    let bytes = store
        .open(
            "bytes",
            "{:dimensions 2 :metric-type :hamming :quantization :byte}",
        )
        .unwrap();
    store.write(|batch| bytes.add(batch, b"a", &[255.0, -128.0]));
    let part = store.kv.write(|batch| bytes.add(batch, b"a", &[0.5, 1.0]));
    part.unwrap_err();
}

#[test]
fn a_vector_without_a_direction_is_as_far_from_all_others() {
    let store = VectorStore::new();
    for quantization in ["float", "float16", "int8"] {
        let options =
            format!("{{:dimensions 2 :metric-type :cosine :quantization :{quantization}}}");
        let index = store.open(quantization, &options).unwrap();
        store.write(|batch| {
            index.add(batch, b"none", &[0.0, -0.0])?;
            index.add(batch, b"right", &[2.0, 0.0])?;
            index.add(batch, b"left", &[-3.0, 0.0])
        });
        let found = store.search(&index, &[0.0, 0.0], 10);
        let distances: Vec<f32> = found.iter().map(|(_, distance)| *distance).collect();
        assert_eq!(distances, [0.0, 1.0, 1.0]);
        assert_eq!(texts(&found)[0], "none");
        let found = store.search(&index, &[1.0, 0.0], 10);
        assert_eq!(texts(&found), ["right", "none", "left"]);
    }
}

#[test]
fn a_transaction_that_is_refused_leaves_nothing() {
    let store = VectorStore::new();
    let index = store.index("{:dimensions 2}");
    store.write(|batch| index.add(batch, b"a", &[1.0, 1.0]));
    let refused = store.kv.write(|batch| {
        let many = (0_u16..3_000).map(|at| (at.to_be_bytes(), [f32::from(at), 0.0]));
        index.add_many(batch, many)?;
        index.remove(batch, b"a")?;
        index.add(batch, b"b", &[1.0])
    });
    refused.unwrap_err();
    let found = store.search(&index, &[0.0, 0.0], 10);
    assert_eq!(texts(&found), ["a"]);
    assert!(store.kv.read(|view| index.contains(view, b"a")).unwrap());
    assert!(!store.kv.read(|view| index.contains(view, b"b")).unwrap());
}

#[test]
fn whoever_reads_sees_one_moment() {
    let store = VectorStore::new();
    let index = store.index("{:dimensions 2}");
    store.write(|batch| index.add(batch, b"a", &[1.0, 1.0]));
    store
        .kv
        .read(|view| {
            store.write(|batch| {
                index.add(batch, b"b", &[0.0, 0.0])?;
                index.remove(batch, b"a")
            });
            let found = search(view, &index, &[0.0, 0.0], 10)?;
            assert_eq!(texts(&found), ["a"]);
            assert!(!index.contains(view, b"b")?);
            Ok::<_, Error>(())
        })
        .unwrap();
    store.write(|batch| {
        // A transaction sees its own writes.
        index.add(batch, b"c", &[0.1, 0.0])?;
        let found = search(batch.view(), &index, &[0.0, 0.0], 10)?;
        assert_eq!(texts(&found), ["b", "c"]);
        Ok(())
    });
}

#[test]
fn domains_do_not_mix() {
    let store = VectorStore::new();
    let one = store.open("one", "{:dimensions 2}").unwrap();
    let other = store.open("other", "{:dimensions 3}").unwrap();
    store.write(|batch| {
        one.add(batch, b"a", &[1.0, 1.0])?;
        other.add(batch, b"b", &[1.0, 1.0, 1.0])
    });
    assert_eq!(texts(&store.search(&one, &[0.0; 2], 10)), ["a"]);
    assert_eq!(texts(&store.search(&other, &[0.0; 3], 10)), ["b"]);
    store.write(|batch| one.clear(batch));
    assert!(store.search(&one, &[0.0; 2], 10).is_empty());
    assert_eq!(texts(&store.search(&other, &[0.0; 3], 10)), ["b"]);
    store.write(|batch| one.add(batch, b"c", &[1.0, 1.0]));
    assert_eq!(texts(&store.search(&one, &[0.0; 2], 10)), ["c"]);
}

/// Creates an index of `count` vectors with a graph. Returns it with the vectors.
fn large_index(
    store: &VectorStore,
    options: &str,
    count: u32,
    dimensions: usize,
) -> (VectorIndex, Vec<Vec<f32>>) {
    let index = store.index(options);
    let mut chance = TestRng(29);
    let vectors: Vec<Vec<f32>> = (0..count).map(|_| chance.vector(dimensions)).collect();
    let referred = (0_u32..).map(u32::to_be_bytes).zip(&vectors);
    store.write(|batch| index.add_many(batch, referred.clone()));
    (index, vectors)
}

/// The share of the true nearest ten that are found.
#[allow(clippy::cast_precision_loss)]
fn recall(
    store: &VectorStore,
    index: &VectorIndex,
    vectors: &[Vec<f32>],
    is_there: impl Fn(u32) -> bool,
    distance: impl Fn(&[f32], &[f32]) -> f32,
) -> f32 {
    let mut chance = TestRng(31);
    let mut share = 0.0;
    for _ in 0..50 {
        let query = chance.vector(vectors[0].len());
        let there = (0_u32..).zip(vectors).filter(|(id, _)| is_there(*id));
        let mut truth: Vec<(f32, u32)> = there
            .map(|(id, vector)| (distance(vector, &query), id))
            .collect();
        truth.sort_by(|one, other| one.0.total_cmp(&other.0));
        let truth: Vec<u32> = truth.iter().take(10).map(|(_, id)| *id).collect();
        let found = store.search(index, &query, 10);
        assert_eq!(found.len(), 10);
        let found = found.iter();
        let found = found.map(|(id, _)| u32::from_be_bytes(id[..].try_into().unwrap()));
        let found: Vec<u32> = found.inspect(|id| assert!(is_there(*id))).collect();
        share += found.iter().filter(|id| truth.contains(id)).count() as f32 / 500.0;
    }
    share
}

type Distance<'d> = &'d dyn Fn(&[f32], &[f32]) -> f32;

#[test]
fn a_graph_finds_most_of_what_is_near() {
    let cosine = |one: &[f32], other: &[f32]| {
        let product = |one: &[f32], other: &[f32]| -> f32 {
            one.iter().zip(other).map(|(one, other)| one * other).sum()
        };
        1.0 - product(one, other) / (product(one, one) * product(other, other)).sqrt()
    };
    let dot = |one: &[f32], other: &[f32]| -> f32 {
        one.iter().zip(other).map(|(one, other)| -one * other).sum()
    };
    let cases: [(&str, Distance<'_>, f32); 6] = [
        ("{:dimensions 16}", &square, 0.97),
        ("{:dimensions 16 :quantization :float16}", &square, 0.97),
        ("{:dimensions 16 :quantization :int8}", &square, 0.95),
        ("{:dimensions 16 :metric-type :cosine}", &cosine, 0.97),
        (
            "{:dimensions 16 :metric-type :cosine :quantization :int8}",
            &cosine,
            0.95,
        ),
        ("{:dimensions 16 :metric-type :dot-product}", &dot, 0.9),
    ];
    for (options, distance, least) in cases {
        let store = VectorStore::new();
        let (index, vectors) = large_index(&store, options, 3_000, 16);
        let share = recall(&store, &index, &vectors, |_| true, distance);
        assert!(share >= least, "{options}: {share}");
    }
}

#[test]
fn a_graph_still_leads_everywhere_when_much_was_removed() {
    let store = VectorStore::new();
    let (index, mut vectors) = large_index(&store, "{:dimensions 16}", 5_000, 16);
    store.write(|batch| {
        for id in 0..2_500_u32 {
            assert_eq!(index.remove(batch, &(2 * id).to_be_bytes())?, 1);
        }
        Ok(())
    });
    let share = recall(&store, &index, &vectors, |id| id % 2 == 1, square);
    assert!(share >= 0.95, "{share}");
    // Nearly empty blocks are deleted, and their remaining vectors are added again.
    store.write(|batch| {
        for id in (0..5_000_u32).filter(|id| id % 16 != 3 && id % 2 == 1) {
            index.remove(batch, &id.to_be_bytes())?;
        }
        Ok(())
    });
    let mut chance = TestRng(37);
    vectors.extend((0..3_000).map(|_| chance.vector(16)));
    let new = (5_000_u32..).map(u32::to_be_bytes).zip(&vectors[5_000..]);
    store.write(|batch| {
        for (id, vector) in new.clone() {
            index.add(batch, &id, vector)?;
        }
        Ok(())
    });
    let is_there = |id| id >= 5_000 || id % 16 == 3;
    let share = recall(&store, &index, &vectors, is_there, square);
    assert!(share >= 0.95, "{share}");
    let all = store.search(&index, &vectors[0], 10_000);
    assert_eq!(all.len(), (0..8_000).filter(|id| is_there(*id)).count());
}

#[test]
fn many_vectors_that_are_the_same_hide_no_others() {
    let store = VectorStore::new();
    let index = store.index("{:dimensions 4}");
    let mut chance = TestRng(41);
    let others: Vec<Vec<f32>> = (0..1_000).map(|_| chance.vector(4)).collect();
    store.write(|batch| {
        index.add_many(batch, (0_u32..3_000).map(|id| (id.to_be_bytes(), [0.0; 4])))?;
        index.add_many(batch, (3_000_u32..).map(u32::to_be_bytes).zip(&others))
    });
    let mut found = 0;
    for (id, vector) in (3_000_u32..).zip(&others) {
        let nearest = store.search(&index, vector, 1);
        found += u32::from(nearest[0].0 == id.to_be_bytes());
    }
    assert!(found >= 980, "{found}");
}

#[test]
fn a_filter_is_asked_until_enough_has_passed() {
    let store = VectorStore::new();
    let (index, vectors) = large_index(&store, "{:dimensions 8}", 6_000, 8);
    for (every, asked_at_most) in [(2_u32, 1_000), (50, 7_000), (1_000, 9_000)] {
        let asked = Cell::new(0);
        let filter = |reference: &[u8]| {
            asked.set(asked.get() + 1);
            u32::from_be_bytes(reference.try_into().unwrap()) % every == 0
        };
        let options = SearchOptions {
            top: 10,
            filter: Some(&filter),
            ..SearchOptions::default()
        };
        let query = &vectors[7];
        let found = store.kv.read(|view| {
            let found = index.search(view, query, &options, &|| Ok::<_, Error>(()))?;
            let found = found.iter();
            let found = found.map(|found| u32::from_be_bytes(found.reference.try_into().unwrap()));
            Ok::<_, Error>(found.collect::<Vec<u32>>())
        });
        let there = (0_u32..).zip(&vectors).filter(|(id, _)| id % every == 0);
        let mut truth: Vec<(f32, u32)> = there
            .map(|(id, vector)| (square(vector, query), id))
            .collect();
        truth.sort_by(|one, other| one.0.total_cmp(&other.0));
        let truth: Vec<u32> = truth.iter().take(10).map(|(_, id)| *id).collect();
        let found = found.unwrap();
        let missed = truth.iter().filter(|id| !found.contains(id)).count();
        assert!(missed <= 1, "every {every}: {found:?}, {truth:?}");
        assert_eq!(found.len(), truth.len());
        assert!(
            asked.get() < asked_at_most,
            "every {every}: {}",
            asked.get()
        );
    }
}

#[test]
fn a_search_ends_when_nobody_waits_for_it() {
    let store = VectorStore::new();
    let (index, vectors) = large_index(&store, "{:dimensions 8}", 3_000, 8);
    for top in [10, 3_000] {
        let steps = Cell::new(0);
        let step = || {
            steps.set(steps.get() + 1);
            if steps.get() == 5 {
                return Err(Error::Invalid("enough".to_owned()));
            }
            Ok(())
        };
        let options = SearchOptions {
            top,
            ..SearchOptions::default()
        };
        let ended = store.kv.read(|view| {
            index
                .search(view, &vectors[0], &options, &step)
                .map(|found| found.len())
        });
        assert_eq!(ended.unwrap_err().to_string(), "enough");
    }
}

#[test]
fn rows_that_are_not_ours_are_an_error_and_no_panic() {
    let (count, dimensions) = (2_600, 8);
    let clean = VectorStore::new();
    let (index, vectors) = large_index(&clean, "{:dimensions 8}", count, dimensions);
    clean.write(|batch| {
        index.add(batch, b"last", &vectors[0])?;
        index.remove(batch, &0_u32.to_be_bytes())
    });
    let mut rows: Vec<(Vec<u8>, Vec<u8>)> = clean
        .kv
        .read(|view| {
            let table = clean.kv.table("vectors/test")?.unwrap();
            let rows = view.prefix(table, &[])?;
            rows.map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())))
                .collect::<Result<_, rung_kv::Error>>()
        })
        .unwrap();
    // A few of each kind are enough.
    let mut seen = [0; 256];
    rows.retain(|(key, _)| {
        seen[usize::from(key[0])] += 1;
        seen[usize::from(key[0])] <= 2
    });
    let mut chance = TestRng(43);
    let mut errors = 0;
    for (key, value) in &rows {
        for change in 0..4 {
            let mut changed = value.clone();
            match change {
                0 => changed.clear(),
                1 => changed.push(0xFF),
                2 => changed.iter_mut().for_each(|byte| *byte = 0xFF),
                _ => {
                    let bits = u64::try_from(changed.len() * 8).unwrap();
                    if bits > 0 {
                        let bit = usize::try_from(chance.below(bits)).unwrap();
                        changed[bit / 8] ^= 1 << (bit % 8);
                    }
                }
            }
            let table = clean.kv.table("vectors/test").unwrap().unwrap();
            clean
                .kv
                .write(|batch| batch.put(table, key, &changed))
                .unwrap();
            let mut failed = VectorIndex::open(&clean.kv, "test", None, false).is_err();
            for top in [10, 3_000] {
                let searched = clean.kv.read(|view| search(view, &index, &vectors[1], top));
                failed |= searched.is_err();
            }
            let worked = clean.kv.write(|batch| {
                let referred = (10_000_u32..).map(u32::to_be_bytes).zip(&vectors[..260]);
                index.add_many(batch, referred)?;
                for id in 0..20_u32 {
                    index.remove(batch, &id.to_be_bytes())?;
                }
                // Nothing of the transaction is stored.
                Err::<(), _>(Error::Full)
            });
            failed |= !matches!(worked, Err(Error::Full));
            errors += u32::from(failed);
            clean
                .kv
                .write(|batch| batch.put(table, key, value))
                .unwrap();
        }
    }
    assert!(errors > 15, "{errors} of {}", rows.len() * 4);
}

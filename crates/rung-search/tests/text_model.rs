//! Compares a text index with a naive one: a list of documents that is searched exhaustively.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use rung_edn::Value;
use rung_kv::{Kv, KvOptions};
use rung_search::Error;
use rung_search::text::{DocumentChange, Query, SearchOptions, TextIndex, TextOptions};

/// Words of documents: few, so that they coincide; the last two are stop words.
const WORDS: [&str; 10] = [
    "ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "the", "of",
];

/// A query as a tree.
#[derive(Debug, Clone)]
enum Tree {
    Words(Vec<usize>),
    Phrase(Vec<usize>),
    All(Vec<Tree>),
    Any(Vec<Tree>),
    Not(Box<Tree>),
}

impl Tree {
    fn value(&self) -> Value {
        let text = |words: &[usize]| Value::text(text(words));
        let many = |name: &str, trees: &[Tree]| {
            let items = trees.iter().map(Tree::value);
            Value::Vector([Value::keyword(name)].into_iter().chain(items).collect())
        };
        match self {
            Self::Words(words) => text(words),
            Self::Phrase(words) => Value::Map(
                [(Value::keyword("phrase"), text(words))]
                    .into_iter()
                    .collect(),
            ),
            Self::All(trees) => many("and", trees),
            Self::Any(trees) => many("or", trees),
            Self::Not(tree) => Value::Vector(vec![Value::keyword("not"), tree.value()]),
        }
    }

    /// True if a document matches; `None` if no term is left.
    fn holds(&self, words: &[usize]) -> Option<bool> {
        match self {
            Self::Words(any) => {
                let mut any = any.iter().filter(|word| is_term(**word)).peekable();
                any.peek()?;
                Some(any.any(|word| words.contains(word)))
            }
            Self::Phrase(phrase) => {
                let first = phrase.iter().position(|word| is_term(*word))?;
                let phrase = &phrase[first..];
                let last = phrase.iter().rposition(|word| is_term(*word))?;
                let phrase = &phrase[..=last];
                // A stop word keeps its position, and any word matches there.
                Some(words.windows(phrase.len()).any(|window| {
                    let mut pairs = window.iter().zip(phrase);
                    pairs.all(|(here, word)| here == word || !is_term(*word))
                }))
            }
            Self::All(trees) => {
                let all: Vec<bool> = trees.iter().filter_map(|tree| tree.holds(words)).collect();
                (!all.is_empty()).then(|| all.iter().all(|holds| *holds))
            }
            Self::Any(trees) => {
                let all: Vec<bool> = trees.iter().filter_map(|tree| tree.holds(words)).collect();
                (!all.is_empty()).then(|| all.iter().any(|holds| *holds))
            }
            Self::Not(tree) => tree.holds(words).map(|holds| !holds),
        }
    }

    /// Collects how often each term occurs, and which are wanted.
    fn terms(&self, wanted: bool, times: &mut BTreeMap<usize, u32>, all: &mut BTreeSet<usize>) {
        match self {
            Self::Words(words) | Self::Phrase(words) => {
                for &word in words.iter().filter(|word| is_term(**word)) {
                    *times.entry(word).or_default() += 1;
                    if wanted {
                        all.insert(word);
                    }
                }
            }
            Self::All(trees) | Self::Any(trees) => {
                for tree in trees {
                    tree.terms(wanted, times, all);
                }
            }
            Self::Not(tree) => tree.terms(!wanted, times, all),
        }
    }
}

fn is_term(word: usize) -> bool {
    word < 8
}

fn text(words: &[usize]) -> String {
    let words: Vec<&str> = words.iter().map(|word| WORDS[*word]).collect();
    words.join(" ")
}

fn weight_of_times(times: usize) -> f64 {
    1.0 + f64::from(u32::try_from(times).unwrap()).log10()
}

/// Documents in the order in which they were added, each with its words.
#[derive(Debug, Default)]
struct NaiveIndex(Vec<(u8, Vec<usize>)>);

impl NaiveIndex {
    fn change(&mut self, change: &DocumentChange<u8, Vec<usize>>) {
        let (DocumentChange::Add(reference, _) | DocumentChange::Remove(reference)) = change;
        self.0.retain(|(other, _)| other != reference);
        if let DocumentChange::Add(reference, words) = change
            && !words.is_empty()
        {
            self.0.push((*reference, words.clone()));
        }
    }

    /// All matching documents: the number of their terms, score, and reference; the best first.
    fn search(&self, tree: &Tree) -> Vec<(usize, f64, u8)> {
        let (mut times, mut wanted) = (BTreeMap::new(), BTreeSet::new());
        tree.terms(true, &mut times, &mut wanted);
        let mut found = Vec::new();
        for (reference, words) in &self.0 {
            if tree.holds(words) != Some(true) {
                continue;
            }
            let unique = words.iter().filter(|word| is_term(**word));
            let unique = unique.collect::<BTreeSet<_>>().len();
            let (mut hits, mut score) = (0, 0.0);
            for term in &wanted {
                let here = words.iter().filter(|word| *word == term).count();
                if here == 0 {
                    continue;
                }
                hits += 1;
                let docs = self
                    .0
                    .iter()
                    .filter(|(_, words)| words.contains(term))
                    .count();
                let number = |n: usize| f64::from(u32::try_from(n).unwrap());
                let idf = (number(self.0.len()) / number(docs)).log10();
                let asked = weight_of_times(times[term].try_into().unwrap());
                score += asked * idf * weight_of_times(here) / number(unique);
            }
            found.push((hits, if hits == 0 { 0.1 } else { score }, *reference));
        }
        found.sort_by(|one, other| (other.0, other.1).partial_cmp(&(one.0, one.1)).unwrap());
        found
    }
}

fn words(most: usize) -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![0..3_usize, 0..WORDS.len()], 0..most)
}

fn change() -> impl Strategy<Value = DocumentChange<u8, Vec<usize>>> {
    prop_oneof![
        4 => (0..24_u8, words(12)).prop_map(|(reference, words)| DocumentChange::Add(reference, words)),
        1 => (0..24_u8).prop_map(DocumentChange::Remove),
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        3 => words(4).prop_map(Tree::Words),
        1 => words(4).prop_map(Tree::Phrase),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 1..4).prop_map(Tree::All),
            vec(inner.clone(), 1..4).prop_map(Tree::Any),
            inner.prop_map(|tree| Tree::Not(Box::new(tree))),
        ]
    })
}

fn plain(tree: &Tree) -> bool {
    match tree {
        Tree::Words(_) => true,
        Tree::Phrase(_) => false,
        Tree::All(trees) | Tree::Any(trees) => trees.iter().all(plain),
        Tree::Not(tree) => plain(tree),
    }
}

fn search(kv: &Kv, index: &TextIndex, tree: &Tree, top: usize, expansion: usize) -> Vec<(f64, u8)> {
    let query = Query::from_edn(&tree.value()).unwrap();
    let options = SearchOptions {
        top,
        proximity_expansion: expansion,
        ..SearchOptions::default()
    };
    let step = || Ok::<_, Error>(());
    let found = kv
        .read(|view| index.search(view, &query, &options, None, &step))
        .unwrap();
    found
        .iter()
        .map(|hit| (hit.score, hit.reference[0]))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn it_finds_what_its_twin_finds(
        batches in vec(vec(change(), 0..20), 1..5),
        trees in vec(tree(), 1..12),
        top in 1..12_usize,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let kv = Kv::open(folder.path(), KvOptions { map_bytes: 1 << 22, ..KvOptions::default() }).unwrap();
        let index = TextIndex::create(&kv, "plain", TextOptions::default()).unwrap();
        let options = TextOptions { index_position: true, ..TextOptions::default() };
        let placed = TextIndex::create(&kv, "placed", options).unwrap();
        let mut twin = NaiveIndex::default();
        for batch in &batches {
            let changes = || batch.iter().map(|change| match change {
                DocumentChange::Add(reference, words) => DocumentChange::Add([*reference], text(words)),
                DocumentChange::Remove(reference) => DocumentChange::Remove([*reference]),
            });
            kv.write(|batch| {
                index.apply(batch, changes())?;
                // Adding several at once or one by one has the same effect.
                for change in changes() {
                    placed.apply(batch, [change])?;
                }
                Ok::<_, Error>(())
            }).unwrap();
            for change in batch {
                twin.change(change);
            }
        }
        let count = kv.read(|view| index.count(view)).unwrap();
        prop_assert_eq!(count, twin.0.len() as u64);
        for tree in &trees {
            let expected = twin.search(tree);
            let all = expected.len();
            if plain(tree) {
                let found = search(&kv, &index, tree, top, 1);
                prop_assert_eq!(found.len(), all.min(top));
                for (at, ((score, reference), (hits, wanted, _))) in found.iter().zip(&expected).enumerate() {
                    prop_assert!((score - wanted).abs() < 1e-9, "{at} of {tree:?}: {found:?} {expected:?}");
                    let same = expected.iter().find(|(.., other)| other == reference).unwrap();
                    prop_assert!(same.0 == *hits && (same.1 - wanted).abs() < 1e-9);
                }
            }
            // By proximity: the same documents, and the same tiers.
            let found = search(&kv, &placed, tree, 100, 1);
            prop_assert_eq!(found.len(), all, "{:?}: {:?} {:?}", tree, found, expected);
            let tiers: Vec<usize> = found.iter().map(|(_, reference)| {
                expected.iter().find(|(.., other)| other == reference).unwrap().0
            }).collect();
            prop_assert!(tiers.is_sorted_by(|one, other| one >= other), "{tiers:?}");
            let few = search(&kv, &placed, tree, top, 100);
            prop_assert_eq!(&few[..], &found[..top.min(all)]);
        }
    }
}

/// Long posting lists have many blocks, which are skipped and split.
#[test]
fn long_lists_are_as_short_ones() {
    let folder = tempfile::tempdir().unwrap();
    let kv = Kv::open(folder.path(), KvOptions::default()).unwrap();
    let index = TextIndex::create(&kv, "plain", TextOptions::default()).unwrap();
    let mut seed = 1_u32;
    let mut number = |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) % below
    };
    let mut documents: Vec<(u32, Vec<usize>)> = Vec::new();
    for round in 0..6 {
        let mut changes = Vec::new();
        for _ in 0..700 {
            let reference = number(2000);
            let before = documents.iter().position(|(other, _)| *other == reference);
            before.map(|at| documents.remove(at));
            if number(5) == 0 {
                changes.push(DocumentChange::Remove(reference.to_be_bytes()));
                continue;
            }
            let words: Vec<usize> = (0..=number(6)).map(|_| number(8) as usize).collect();
            changes.push(DocumentChange::Add(reference.to_be_bytes(), text(&words)));
            documents.push((reference, words));
        }
        kv.write(|batch| index.apply(batch, changes.iter().cloned()))
            .unwrap();
        for tree in [
            Tree::Words(vec![0]),
            Tree::Words(vec![0, 1, 2]),
            Tree::Words(vec![3, 3, 4, 5, 6, 7]),
            Tree::All(vec![Tree::Words(vec![1]), Tree::Words(vec![2])]),
            Tree::All(vec![
                Tree::Words(vec![1]),
                Tree::Not(Box::new(Tree::Words(vec![2]))),
            ]),
            Tree::Not(Box::new(Tree::Words(vec![0, 1]))),
        ] {
            let short = documents.iter().map(|(_, words)| (0, words.clone()));
            let expected = NaiveIndex(short.collect()).search(&tree);
            for top in [1, 10, 100, 5000] {
                let query = Query::from_edn(&tree.value()).unwrap();
                let options = SearchOptions {
                    top,
                    ..SearchOptions::default()
                };
                let step = || Ok::<_, Error>(());
                let found = kv
                    .read(|view| index.search(view, &query, &options, None, &step))
                    .unwrap();
                assert_eq!(
                    found.len(),
                    expected.len().min(top),
                    "round {round}: {tree:?}"
                );
                for (hit, (_, score, _)) in found.iter().zip(&expected) {
                    assert!((hit.score - score).abs() < 1e-9, "round {round}: {tree:?}");
                }
            }
        }
    }
}

//! Compares an index with a list of all that was added to it.

#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;
use rung_edn::read;
use rung_kv::{Kv, KvOptions};
use rung_search::Error;
use rung_search::vectors::{SearchOptions, VectorIndex, VectorOptions};

const DIMENSIONS: usize = 5;

#[derive(Debug, Clone)]
enum RandomAction {
    Add(u8, Vec<f32>),
    /// Adds several vectors at once, each a little further than the one before.
    AddMany(u16, Vec<f32>),
    Remove(u8),
    /// Removes the vectors of a bulk addition whose number has this remainder.
    RemoveMany(u8),
    Clear,
    /// Runs all other actions in a transaction that is rolled back.
    Refuse(u8, Vec<f32>),
    Search(Vec<f32>, usize),
}

fn vector() -> impl Strategy<Value = Vec<f32>> {
    vec(
        (-40_i8..40).prop_map(|number| f32::from(number) / 4.0),
        DIMENSIONS,
    )
}

fn act() -> impl Strategy<Value = RandomAction> {
    prop_oneof![
        6 => (0..12_u8, vector()).prop_map(|(of, vector)| RandomAction::Add(of, vector)),
        2 => (1..1_500_u16, vector()).prop_map(|(count, vector)| RandomAction::AddMany(count, vector)),
        4 => (0..12_u8).prop_map(RandomAction::Remove),
        2 => (0..4_u8).prop_map(RandomAction::RemoveMany),
        1 => Just(RandomAction::Clear),
        1 => (0..12_u8, vector()).prop_map(|(of, vector)| RandomAction::Refuse(of, vector)),
        5 => (vector(), 1..30_usize).prop_map(|(vector, top)| RandomAction::Search(vector, top)),
    ]
}

/// All vectors with their references.
type Model = Vec<(Vec<u8>, Vec<f32>)>;

fn distance(metric: &str, one: &[f32], other: &[f32]) -> f32 {
    let sum = |of: &dyn Fn(f32, f32) -> f32| -> f32 {
        one.iter()
            .zip(other)
            .map(|(one, other)| of(*one, *other))
            .sum()
    };
    match metric {
        "euclidean" => sum(&|one, other| (one - other).powi(2)),
        "dot-product" => 1.0 - sum(&|one, other| one * other),
        "hamming" => sum(&|one, other| f32::from(u8::from((one == 0.0) != (other == 0.0)))),
        _ => unreachable!("{metric}"),
    }
}

fn found(kv: &Kv, index: &VectorIndex, query: &[f32], top: usize) -> Vec<(Vec<u8>, f32)> {
    let options = SearchOptions {
        top,
        ..SearchOptions::default()
    };
    kv.read(|view| {
        let found = index.search(view, query, &options, &|| Ok::<_, Error>(()))?;
        let found = found.iter();
        Ok::<_, Error>(
            found
                .map(|found| (found.reference.to_vec(), found.distance))
                .collect(),
        )
    })
    .unwrap()
}

fn bulk_vectors(count: u16, vector: &[f32]) -> impl Iterator<Item = (Vec<u8>, Vec<f32>)> {
    (0..count).map(move |at| {
        let numbers = vector.iter().enumerate();
        let moved = numbers.map(|(place, number)| {
            let further = if usize::from(at) % DIMENSIONS == place {
                f32::from(at)
            } else {
                0.0
            };
            number + further / 8.0
        });
        (at.to_be_bytes().to_vec(), moved.collect())
    })
}

fn check(metric: &str, kv: &Kv, index: &VectorIndex, model: &Model, query: &[f32], top: usize) {
    let found = found(kv, index, query, top);
    assert_eq!(found.len(), top.min(model.len()));
    let mut truth: Vec<f32> = model
        .iter()
        .map(|(_, vector)| distance(metric, vector, query))
        .collect();
    truth.sort_by(f32::total_cmp);
    for ((reference, far), truth) in found.iter().zip(&truth) {
        // Vectors at the same distance are in any order.
        assert_eq!(far.to_bits(), truth.to_bits());
        let is_there = |(of, vector): &(Vec<u8>, Vec<f32>)| {
            of == reference && distance(metric, vector, query).to_bits() == far.to_bits()
        };
        assert!(model.iter().any(is_there), "{reference:?} at {far}");
    }
}

fn run(metric: &str, acts: &[RandomAction]) {
    let folder = tempfile::tempdir().unwrap();
    let kv = Kv::open(folder.path(), KvOptions::default()).unwrap();
    let options = format!("{{:dimensions {DIMENSIONS} :metric-type :{metric}}}");
    let options = VectorOptions::read(&read(&options).unwrap()).unwrap();
    let index = VectorIndex::open(&kv, "model", Some(&options), true)
        .unwrap()
        .unwrap();
    let mut model = Model::new();
    for act in acts {
        match act {
            RandomAction::Add(of, vector) => {
                kv.write(|batch| index.add(batch, &[*of], vector)).unwrap();
                model.push((vec![*of], vector.clone()));
            }
            RandomAction::AddMany(count, vector) => {
                kv.write(|batch| index.add_many(batch, bulk_vectors(*count, vector)))
                    .unwrap();
                model.extend(bulk_vectors(*count, vector));
            }
            RandomAction::Remove(of) => {
                let removed = kv.write(|batch| index.remove(batch, &[*of])).unwrap();
                let before = model.len();
                model.retain(|(reference, _)| reference != &[*of]);
                assert_eq!(removed, before - model.len());
            }
            RandomAction::RemoveMany(rest) => {
                kv.write(|batch| {
                    for at in (0..1_500_u16).filter(|at| at % 4 == u16::from(*rest)) {
                        index.remove(batch, &at.to_be_bytes())?;
                    }
                    Ok::<_, Error>(())
                })
                .unwrap();
                let rest = u16::from(*rest);
                model.retain(|(reference, _)| match reference[..] {
                    [high, low] => u16::from_be_bytes([high, low]) % 4 != rest,
                    _ => true,
                });
            }
            RandomAction::Clear => {
                kv.write(|batch| index.clear(batch)).unwrap();
                model.clear();
            }
            RandomAction::Refuse(of, vector) => {
                let refused = kv.write(|batch| {
                    index.add(batch, &[*of], vector)?;
                    index.add_many(batch, bulk_vectors(300, vector))?;
                    index.remove(batch, &[0])?;
                    index.clear(batch)?;
                    index.add(batch, &[*of], &[])
                });
                refused.unwrap_err();
            }
            RandomAction::Search(query, top) => {
                // With a graph some are missed, but every found vector exists.
                if model.len() <= 2_000 || metric == "hamming" {
                    check(metric, &kv, &index, &model, query, *top);
                } else {
                    for (reference, _) in found(&kv, &index, query, *top) {
                        assert!(model.iter().any(|(of, _)| *of == reference));
                    }
                }
            }
        }
        for of in 0..12 {
            let there = kv.read(|view| index.contains(view, &[of])).unwrap();
            assert_eq!(there, model.iter().any(|(reference, _)| reference == &[of]));
        }
        // A search for all vectors finds all.
        check(
            metric,
            &kv,
            &index,
            &model,
            &[0.25; DIMENSIONS],
            model.len() + 1,
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn an_index_is_what_was_added_and_not_removed(acts in vec(act(), 1..40)) {
        run("euclidean", &acts);
    }

    #[test]
    fn so_it_is_by_other_metrics(
        metric in prop_oneof![Just("dot-product"), Just("hamming")],
        acts in vec(act(), 1..20),
    ) {
        run(metric, &acts);
    }
}

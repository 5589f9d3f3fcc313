//! Compares Rung's distances with those of the published Datalevin, recorded by `scripts/vector_oracle.py`.
//!
//! Every difference is intended, with a reason given here; a listed difference that no longer exists fails the test.

#![allow(clippy::unwrap_used)]

use rung_edn::{Map, Value, read};
use rung_kv::{Kv, KvOptions};
use rung_search::Error;
use rung_search::vectors::{SearchOptions, VectorIndex, VectorOptions};

/// Prefixes of the names of cases that differ, with the reason.
const DIFFERENCES: &[(&str, &str)] = &[
    ("euclidean byte", NOT_REFUSED),
    ("cosine byte", NOT_REFUSED),
    ("dot-product byte", NOT_REFUSED),
    ("pearson byte", NOT_REFUSED),
    ("haversine float16", NOT_REFUSED),
    ("haversine int8", NOT_REFUSED),
    ("haversine byte", NOT_REFUSED),
    ("jaccard byte", ALL_BYTES),
    ("hamming byte", ALL_BYTES),
    ("tanimoto byte", ALL_BYTES),
    ("sorensen byte", ALL_BYTES),
    ("jaccard float", OF_NUMBERS),
    ("jaccard double", OF_NUMBERS),
    ("hamming float", OF_NUMBERS),
    ("hamming double", OF_NUMBERS),
    ("tanimoto float", OF_NUMBERS),
    ("tanimoto double", OF_NUMBERS),
    ("sorensen float", OF_NUMBERS),
    ("sorensen double", OF_NUMBERS),
];

/// A quantization decides the stored format, and is no reason to reject a metric.
const NOT_REFUSED: &str = "there it is refused";

/// In Datalevin `:dimensions` is the number of bytes of a vector and also the number of bits compared: an eighth of it.
const ALL_BYTES: &str = "there only the first eighth of the bytes is compared";

/// Datalevin compares as many bytes as there are numbers, whatever their width. In Rung a number is a bit.
const OF_NUMBERS: &str = "there the bytes of the first numbers are compared";

fn get<'v>(case: &'v Map, name: &str) -> &'v Value {
    case.get(&Value::keyword(name)).unwrap_or(&Value::Nil)
}

#[allow(clippy::cast_possible_truncation)]
fn vectors(value: &Value) -> Vec<Vec<f32>> {
    let vectors = value.as_sequence().unwrap().iter();
    let vectors = vectors.map(|vector| vector.as_sequence().unwrap().iter());
    vectors
        .map(|numbers| {
            numbers
                .map(|number| number.as_f64().unwrap() as f32)
                .collect()
        })
        .collect()
}

/// Distances from a query, by the index of the vector.
type Distances = Vec<(i64, f64)>;

fn rung_distances(case: &Map) -> Result<Vec<Distances>, Error> {
    let folder = tempfile::tempdir().unwrap();
    let kv = Kv::open(folder.path(), KvOptions::default()).unwrap();
    let options = VectorOptions::read(get(case, "options"))?;
    let index = VectorIndex::open(&kv, "answers", Some(&options), true)?.unwrap();
    let kept = vectors(get(case, "vectors"));
    let kept = (0_i64..).map(i64::to_be_bytes).zip(kept);
    kv.write(|batch| index.add_many(batch, kept.clone()))?;
    let search = SearchOptions {
        top: 100,
        ..SearchOptions::default()
    };
    let queries = vectors(get(case, "queries")).into_iter();
    let answers = queries.map(|query| {
        kv.read(|view| {
            let found = index.search(view, &query, &search, &|| Ok::<_, Error>(()))?;
            let ordered = found.is_sorted_by(|one, next| one.distance <= next.distance);
            assert!(ordered, "{found:?}");
            let mut found: Distances = found
                .iter()
                .map(|found| {
                    let reference = i64::from_be_bytes(found.reference.try_into().unwrap());
                    (reference, f64::from(found.distance))
                })
                .collect();
            found.sort_by_key(|(reference, _)| *reference);
            Ok(found)
        })
    });
    answers.collect()
}

fn datalevin_distances(case: &Map) -> Option<Vec<Distances>> {
    let answers = get(case, "answers").as_sequence()?.iter();
    let answers = answers.map(|answer| {
        let pairs = answer.as_sequence().unwrap().iter();
        let pairs = pairs.map(|pair| pair.as_sequence().unwrap());
        let mut distances: Distances = pairs
            .map(|pair| (pair[0].as_i64().unwrap(), pair[1].as_f64().unwrap()))
            .collect();
        distances.sort_by_key(|(reference, _)| *reference);
        distances
    });
    Some(answers.collect())
}

/// The first distance that differs.
fn difference(ours: &[Distances], theirs: &[Distances]) -> Option<String> {
    let pairs = ours.iter().zip(theirs).enumerate();
    for (query, (ours, theirs)) in pairs {
        if ours.len() != theirs.len() {
            return Some(format!(
                "query {query}: {} instead of {}",
                ours.len(),
                theirs.len()
            ));
        }
        for ((reference, ours), (theirs_of, theirs)) in ours.iter().zip(theirs) {
            let within = 1e-4 * ours.abs().max(theirs.abs()) + 1e-6;
            // NaN is within no tolerance.
            let same = (ours - theirs).abs() <= within;
            if reference != theirs_of || !same {
                return Some(format!(
                    "query {query}, vector {reference}: {ours} instead of {theirs}"
                ));
            }
        }
    }
    None
}

#[test]
fn distances_are_those_of_datalevin() {
    let cases = read(include_str!("answers/vectors.edn")).unwrap();
    let mut failures = Vec::new();
    for case in cases.as_sequence().unwrap() {
        let case = case.as_map().unwrap();
        let name = get(case, "name").as_str().unwrap();
        let intended = DIFFERENCES
            .iter()
            .find(|(begin, _)| name.starts_with(begin));
        let differs = match (rung_distances(case), datalevin_distances(case)) {
            (Ok(ours), Some(theirs)) => difference(&ours, &theirs),
            (Ok(_), None) => Some("an answer instead of an error".to_owned()),
            (Err(error), Some(_)) => Some(format!("an error instead of an answer: {error}")),
            (Err(_), None) => None,
        };
        match (differs, intended) {
            (Some(how), None) => failures.push(format!("{name}: {how}")),
            (None, Some((_, why))) => failures.push(format!("{name}: the same, although {why}")),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

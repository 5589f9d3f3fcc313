//! Measures how fast vectors are added and found, and the recall of the true nearest ten.
//!
//! ```text
//! cargo run --release -p rung-search --example recall -- [FOLDER]
//! ```
//!
//! With a FOLDER, the vectors are left there for `scripts/vector_oracle.py --recall FOLDER`, which asks Datalevin the same.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "it measures"
)]

use std::path::PathBuf;
use std::time::Instant;

use rung_kv::{Kv, KvOptions};
use rung_search::Error;
use rung_search::vectors::{SearchOptions, VectorIndex, VectorOptions};

const COUNT: usize = 10_000;
const QUERIES: usize = 200;

struct TestRng(u64);

impl TestRng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a normally distributed number.
    fn normal(&mut self) -> f32 {
        let mut unit = || (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let (one, other) = (unit().max(1e-300), unit());
        ((-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()) as f32
    }

    fn normals(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.normal()).collect()
    }
}

fn random(dimensions: usize) -> Vec<Vec<f32>> {
    let mut chance = TestRng(7);
    (0..COUNT + QUERIES)
        .map(|_| chance.normals(dimensions))
        .collect()
}

fn clustered(dimensions: usize) -> Vec<Vec<f32>> {
    let mut chance = TestRng(11);
    let middles: Vec<Vec<f32>> = (0..100).map(|_| chance.normals(dimensions)).collect();
    (0..COUNT + QUERIES)
        .map(|_| {
            let middle = &middles[(chance.next() >> 33) as usize % middles.len()];
            let apart = chance.normals(dimensions);
            let numbers = middle.iter().zip(apart);
            numbers
                .map(|(middle, apart)| middle + 0.3 * apart)
                .collect()
        })
        .collect()
}

fn nearest(vectors: &[Vec<f32>], query: &[f32]) -> Vec<u32> {
    let distance = |vector: &[f32]| -> f32 {
        let pairs = vector.iter().zip(query);
        pairs
            .map(|(one, other)| (one - other) * (one - other))
            .sum()
    };
    let mut all: Vec<(f32, u32)> = (0..)
        .zip(vectors)
        .map(|(at, vector)| (distance(vector), at))
        .collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    all.iter().take(10).map(|(_, at)| *at).collect()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Returns the milliseconds of a transaction that writes a single row: the disk's share.
fn bare_ms(kv: &Kv) -> f64 {
    let table = kv.create("bare").unwrap();
    let began = Instant::now();
    for row in 0..500_u32 {
        kv.write(|batch| batch.put(table, &row.to_be_bytes(), &[]))
            .unwrap();
    }
    began.elapsed().as_secs_f64() * 1e3 / 500.0
}

fn query(kv: &Kv, index: &VectorIndex, queries: &[Vec<f32>], truth: &[Vec<u32>]) -> String {
    let mut found = 0;
    let mut took: Vec<f64> = Vec::new();
    for (query, truth) in queries.iter().zip(truth) {
        let began = Instant::now();
        let answer: Vec<u32> = kv
            .read(|view| {
                let answer = index.search(view, query, &SearchOptions::default(), &|| {
                    Ok::<_, Error>(())
                })?;
                let ids = answer.iter();
                Ok::<_, Error>(
                    ids.map(|found| u32::from_be_bytes(found.reference.try_into().unwrap()))
                        .collect(),
                )
            })
            .unwrap();
        took.push(began.elapsed().as_secs_f64() * 1e3);
        found += answer.iter().filter(|id| truth.contains(id)).count();
    }
    took.sort_by(f64::total_cmp);
    let share = found as f64 / (queries.len() * 10) as f64;
    format!(
        "recall@10 {share:.3}, query p50 {:.3} ms, p95 {:.3} ms",
        took[took.len() / 2],
        took[took.len() * 95 / 100]
    )
}

fn main() {
    let left = std::env::args().nth(1).map(PathBuf::from);
    for (name, vectors) in [("random-64", random(64)), ("clustered-384", clustered(384))] {
        let dimensions = vectors[0].len();
        let (vectors, queries) = vectors.split_at(COUNT);
        let truth: Vec<Vec<u32>> = queries
            .iter()
            .map(|query| nearest(vectors, query))
            .collect();
        if let Some(left) = &left {
            let header = [dimensions, COUNT, QUERIES].map(|number| number as u32);
            let mut bytes: Vec<u8> = header.into_iter().flat_map(u32::to_le_bytes).collect();
            let numbers = vectors.iter().chain(queries).flatten();
            bytes.extend(numbers.flat_map(|number| number.to_le_bytes()));
            std::fs::write(left.join(format!("{name}.vectors")), bytes).unwrap();
            let ids = truth.iter().flatten().flat_map(|id| id.to_le_bytes());
            std::fs::write(
                left.join(format!("{name}.nearest")),
                ids.collect::<Vec<u8>>(),
            )
            .unwrap();
        }
        for quantization in [":float", ":float16", ":int8"] {
            let options = format!("{{:dimensions {dimensions} :quantization {quantization}}}");
            let options = VectorOptions::read(&rung_edn::read(&options).unwrap()).unwrap();
            let place = folder();
            let kv = Kv::open(place.path(), KvOptions::default()).unwrap();
            let index = VectorIndex::open(&kv, "all", Some(&options), true)
                .unwrap()
                .unwrap();
            let began = Instant::now();
            kv.write(|batch| index.add_many(batch, (0_u32..).map(u32::to_be_bytes).zip(vectors)))
                .unwrap();
            let took = began.elapsed().as_secs_f64();
            println!(
                "{name} {quantization}: added together in {took:.1} s, {}",
                query(&kv, &index, queries, &truth)
            );
            if quantization != ":float" {
                continue;
            }
            let began = Instant::now();
            for id in 0..1_000_u32 {
                kv.write(|batch| index.remove(batch, &id.to_be_bytes()))
                    .unwrap();
            }
            println!(
                "{name} {quantization}: 1000 removed one by one in {:.1} s",
                began.elapsed().as_secs_f64()
            );
            let place = folder();
            let kv = Kv::open(place.path(), KvOptions::default()).unwrap();
            let index = VectorIndex::open(&kv, "all", Some(&options), true)
                .unwrap()
                .unwrap();
            let bare = bare_ms(&kv);
            let began = Instant::now();
            let mut slowest = 0_f64;
            for (id, vector) in (0_u32..).zip(vectors) {
                let began = Instant::now();
                kv.write(|batch| index.add(batch, &id.to_be_bytes(), vector))
                    .unwrap();
                slowest = slowest.max(began.elapsed().as_secs_f64());
            }
            let took = began.elapsed().as_secs_f64();
            println!(
                "{name} {quantization}: added one by one in {took:.1} s, the slowest in {slowest:.2} s, \
                 where a transaction of one row takes {bare:.2} ms, {}",
                query(&kv, &index, queries, &truth)
            );
        }
    }
}

//! Measures the cost of a text index: `cargo run --release -p rung-search --example text [documents]`.

#![allow(clippy::unwrap_used)]

use std::time::Instant;

use rung_kv::{Kv, KvOptions};
use rung_search::Error;
use rung_search::text::{Query, SearchOptions, TextIndex, TextOptions};

/// A generator of words of which a few are common and most are rare.
struct WordGenerator(u64);

impl WordGenerator {
    fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn word(&mut self) -> String {
        let range = [10, 100, 1_000, 20_000][usize::try_from(self.number() % 4).unwrap()];
        format!("w{}", self.number() % range)
    }

    fn text(&mut self, words: usize) -> String {
        let words: Vec<String> = (0..words).map(|_| self.word()).collect();
        words.join(" ")
    }
}

fn main() {
    let documents: usize = std::env::args()
        .nth(1)
        .map_or(10_000, |n| n.parse().unwrap());
    for index_position in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let kv = Kv::open(folder.path(), KvOptions::default()).unwrap();
        let options = TextOptions {
            index_position,
            ..TextOptions::default()
        };
        let index = TextIndex::create(&kv, "bench", options).unwrap();
        let mut words = WordGenerator(0x9E37_79B9_7F4A_7C15);
        let texts: Vec<String> = (0..documents).map(|_| words.text(100)).collect();
        println!("{documents} documents of 100 words, positions {index_position}");

        let begin = Instant::now();
        let all = || texts.iter().enumerate();
        kv.write(|batch| index.add_many(batch, all().map(|(n, text)| (n.to_be_bytes(), text))))
            .unwrap();
        let mib = f64::from(u32::try_from(kv.disk_bytes().unwrap() >> 10).unwrap()) / 1024.0;
        println!(
            "  added in one batch    {:?}, {mib:.1} MiB",
            begin.elapsed()
        );

        let begin = Instant::now();
        kv.write(|batch| {
            for (n, text) in all().take(1_000) {
                index.add(batch, &n.to_be_bytes(), text)?;
            }
            Ok::<_, Error>(())
        })
        .unwrap();
        println!("  replaced one by one   {:?} each", begin.elapsed() / 1_000);

        let hundred = words.text(100);
        for (name, query) in [
            ("100 words", hundred.as_str()),
            ("1 common word", "w3"),
            ("3 words", "w3 w77 w512"),
            ("3 common words", "w1 w2 w3"),
            (
                "10 words",
                "w1 w20 w30 w400 w500 w600 w7000 w8000 w9000 w10000",
            ),
        ] {
            let query = Query::text(query);
            let ask = || {
                kv.read(|view| {
                    let step = || Ok::<_, Error>(());
                    index.search(view, &query, &SearchOptions::default(), None, &step)
                })
                .unwrap()
            };
            assert_eq!(ask().len(), 10);
            let begin = Instant::now();
            for _ in 0..200 {
                ask();
            }
            println!("  {name:21} {:?}", begin.elapsed() / 200);
        }
    }
}

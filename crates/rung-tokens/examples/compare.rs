//! Compares speed and memory with `bpe-openai`: `cargo run --release -p rung-tokens --example compare [file…]`.
//!
//! Memory is the growth of the resident memory of the process, in kilobytes. It is known on Linux alone.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

use std::hint::black_box;
use std::time::Instant;

/// The resident memory in kilobytes: of the process itself, and of files that it maps.
fn resident_kb() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    (value("RssAnon:"), value("RssFile:"))
}

/// The growth of memory while `action` runs.
fn print_growth(name: &str, action: impl FnOnce() -> usize) {
    let before = resident_kb();
    let started = Instant::now();
    black_box(action());
    let elapsed = started.elapsed();
    let after = resident_kb();
    println!(
        "{name}: first count of all texts {:.1} ms, memory +{} kB own, +{} kB mapped",
        elapsed.as_secs_f64() * 1e3,
        after.0.saturating_sub(before.0),
        after.1.saturating_sub(before.1),
    );
}

/// Megabytes a second: the best of seven runs.
fn speed(text: &str, count: impl Fn(&str) -> usize) -> f64 {
    let runs = (0..7).map(|_| {
        let started = Instant::now();
        black_box(count(black_box(text)));
        started.elapsed().as_secs_f64()
    });
    text.len() as f64 / 1e6 / runs.fold(f64::INFINITY, f64::min)
}

fn main() {
    let mut texts = vec![
        ("code", include_str!("../src/pieces.rs").repeat(100)),
        ("lock file", include_str!("../../../Cargo.lock").to_owned()),
        ("prose", include_str!("../../../ARCHITECTURE.md").repeat(20)),
        (
            "Chinese",
            "敏捷的棕色狐狸跳过了懒狗。中文没有空格，所以一个片段可以很长。".repeat(5_000),
        ),
        (
            "Russian",
            "Съешь же ещё этих мягких французских булок, да выпей чаю. ".repeat(5_000),
        ),
        (
            "hex",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 ".repeat(5_000),
        ),
        (
            "rules of a hundred dashes",
            format!("{}\n", "-".repeat(100)).repeat(2_000),
        ),
        ("one letter", "a".repeat(1 << 20)),
        ("spaces", " ".repeat(1 << 20)),
    ];
    let files: Vec<String> = std::env::args().skip(1).collect();
    for file in &files {
        texts.push((file, std::fs::read_to_string(file).unwrap()));
    }

    let sum = |count: &dyn Fn(&str) -> usize| texts.iter().map(|(_, text)| count(text)).sum();
    print_growth("rung-tokens", || sum(&rung_tokens::count_tokens));
    print_growth("bpe-openai", || {
        sum(&|text| bpe_openai::o200k_base().count(text))
    });
    for (name, text) in &texts {
        assert_eq!(
            rung_tokens::count_tokens(text),
            bpe_openai::o200k_base().count(text)
        );
        let ours = speed(text, rung_tokens::count_tokens);
        let theirs = speed(text, |text| bpe_openai::o200k_base().count(text));
        println!(
            "{name}: {ours:.1} MB/s, bpe-openai {theirs:.1} MB/s, ratio {:.2}",
            ours / theirs
        );
    }
}

//! Generated data, the same in each run.

use std::fmt::Write as _;

/// A seeded pseudo-random number generator (SplitMix64).
pub struct SeededRng(u64);

impl SeededRng {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// Returns a number in 0..1.
    pub fn unit_interval(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// People with five facts each.
pub fn people_edn(count: usize) -> String {
    let mut text = String::from("[");
    for at in 1..=count {
        let _infallible = write!(text, "{{:db/id {at} :name \"person {at}\" :age {} :town \"town {}\" :score {} :active {}}} ", at % 90, at % 500, at * 7 % 1_000, at % 2 == 0);
    }
    text + "]"
}

/// Texts of a hundred words, with skewed word frequencies.
pub fn texts(count: usize) -> Vec<String> {
    let mut chance = SeededRng::new(7);
    let mut word = || {
        let rank = (20_000_f64).powf(chance.unit_interval());
        format!("word{}", rank as u64)
    };
    let mut text = || (0..100).map(|_| word()).collect::<Vec<_>>().join(" ");
    (0..count).map(|_| text()).collect()
}

/// Vectors clustered around a hundred centers, like real embeddings.
pub fn vectors(count: usize, dimensions: usize) -> Vec<Vec<f64>> {
    let mut chance = SeededRng::new(11);
    let mut point = |spread: f64| -> Vec<f64> { (0..dimensions).map(|_| (chance.unit_interval() - 0.5) * spread).collect() };
    let middles: Vec<Vec<f64>> = (0..100).map(|_| point(2.0)).collect();
    let near = |(at, noise): (usize, Vec<f64>)| -> Vec<f64> {
        let middle = &middles[at % middles.len()];
        // About as many digits as a 32-bit float carries.
        middle.iter().zip(noise).map(|(middle, noise)| ((middle + noise) * 1e5).round() / 1e5).collect()
    };
    let noise: Vec<Vec<f64>> = (0..count).map(|_| point(0.5)).collect();
    noise.into_iter().enumerate().map(near).collect()
}

//! Data that is the same in each run.

use std::fmt::Write as _;

/// Numbers that look like chance.
pub struct Chance(u64);

impl Chance {
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

    /// From nothing to one.
    pub fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// People with five facts each, as EDN.
pub fn people(count: usize) -> String {
    let mut text = String::from("[");
    for at in 1..=count {
        let _infallible = write!(text, "{{:db/id {at} :name \"person {at}\" :age {} :town \"town {}\" :score {} :active {}}} ", at % 90, at % 500, at * 7 % 1_000, at % 2 == 0);
    }
    text + "]"
}

/// Texts of a hundred words, the common ones often and the rare ones seldom.
pub fn texts(count: usize) -> Vec<String> {
    let mut chance = Chance::new(7);
    let mut word = || {
        let rank = (20_000_f64).powf(chance.part());
        format!("word{}", rank as u64)
    };
    let mut text = || (0..100).map(|_| word()).collect::<Vec<_>>().join(" ");
    (0..count).map(|_| text()).collect()
}

/// Vectors around some middles, as real ones are.
pub fn vectors(count: usize, dimensions: usize) -> Vec<Vec<f64>> {
    let mut chance = Chance::new(11);
    let mut point = |spread: f64| -> Vec<f64> { (0..dimensions).map(|_| (chance.part() - 0.5) * spread).collect() };
    let middles: Vec<Vec<f64>> = (0..100).map(|_| point(2.0)).collect();
    let near = |(at, noise): (usize, Vec<f64>)| -> Vec<f64> {
        let middle = &middles[at % middles.len()];
        // As many digits as a number of 32 bits has in use.
        middle.iter().zip(noise).map(|(middle, noise)| ((middle + noise) * 1e5).round() / 1e5).collect()
    };
    let noise: Vec<Vec<f64>> = (0..count).map(|_| point(0.5)).collect();
    noise.into_iter().enumerate().map(near).collect()
}

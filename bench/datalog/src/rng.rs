//! A deterministic pseudo-random number generator.

pub struct FixedRng(u64);

impl FixedRng {
    /// Always starts from the same seed.
    pub fn new() -> Self {
        Self(0x2545_F491_4F6C_DD1D)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, most: i64) -> i64 {
        (self.next() % most as u64) as i64
    }

    pub fn choose<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as i64) as usize]
    }

    /// Returns a number in 0..1.
    fn unit_interval(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number in 0..`most`; small numbers are more frequent: the first tenth gets a third of all.
    pub fn skewed_low(&mut self, most: i64) -> i64 {
        (most as f64 * self.unit_interval().powi(2)) as i64
    }

    /// Returns a number in 0..`most` by Zipf's law: the n-th is n times as rare as the first.
    pub fn zipf(&mut self, most: i64) -> i64 {
        let number = (most as f64).powf(self.unit_interval()) as i64 - 1;
        number.clamp(0, most - 1)
    }
}

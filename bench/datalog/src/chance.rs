//! Numbers that look like chance and are none.

pub struct Chance(u64);

impl Chance {
    /// Always the same numbers.
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

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as i64) as usize]
    }

    /// From nought to one.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The small ones more often: the first tenth has a third of them all.
    pub fn leaning(&mut self, most: i64) -> i64 {
        (most as f64 * self.part().powi(2)) as i64
    }

    /// The n-th is n times as rare as the first, as with words and companies (Zipf's law).
    pub fn skewed(&mut self, most: i64) -> i64 {
        let number = (most as f64).powf(self.part()) as i64 - 1;
        number.clamp(0, most - 1)
    }
}

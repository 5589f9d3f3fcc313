//! Distances between vectors.

use super::encoding::{NumberEncoding, VectorEncoding, from_half, from_small, split_scale};
use super::options::Metric;
use crate::Result;

/// Parallel sums, so that the compiler vectorises the loop.
const LANES: usize = 16;

/// A vector to measure distances from.
#[derive(Debug)]
pub(crate) struct DistanceMeasure {
    form: VectorEncoding,
    /// The numbers; none if the metric compares bits.
    numbers: Vec<f32>,
    /// The bits, if the metric compares bits.
    bits: Vec<u8>,
    /// True if all numbers are zero.
    zero: bool,
}

impl DistanceMeasure {
    /// Creates a measure from a caller's vector, at full precision.
    pub(crate) fn from_query(form: VectorEncoding, vector: &[f32]) -> Result<Self> {
        let exact = form.for_query();
        let kept = exact.encode(vector)?;
        let mut measure = Self::from_stored(exact, &kept);
        measure.form = form;
        Ok(measure)
    }

    /// Creates a measure from a stored vector.
    pub(crate) fn from_stored(form: VectorEncoding, kept: &[u8]) -> Self {
        let numbers = form.decode(kept);
        Self {
            form,
            zero: numbers.iter().all(|number| *number == 0.0),
            numbers,
            bits: match form.kind {
                NumberEncoding::Bits | NumberEncoding::Bytes => kept.to_vec(),
                NumberEncoding::Single | NumberEncoding::Half | NumberEncoding::Small => Vec::new(),
            },
        }
    }

    /// Returns the distance to a stored vector.
    pub(crate) fn distance(&self, kept: &[u8]) -> f32 {
        match self.form.metric {
            Metric::Euclidean => match self.form.kind {
                NumberEncoding::Single => sum(&self.numbers, kept, f32::from_le_bytes, square),
                NumberEncoding::Half => {
                    let (measure, kept) = split_scale(kept);
                    let number = |half| measure * from_half(half);
                    sum(&self.numbers, kept, number, square)
                }
                NumberEncoding::Small => {
                    let (measure, kept) = split_scale(kept);
                    let number = |byte| measure * from_small(byte);
                    sum(&self.numbers, kept, number, square)
                }
                NumberEncoding::Bits | NumberEncoding::Bytes => 0.0,
            },
            // Two zero vectors count as equal.
            Metric::Cosine if self.zero => f32::from(u8::from(
                self.form.decode(kept).iter().any(|number| *number != 0.0),
            )),
            Metric::Cosine | Metric::DotProduct => {
                1.0 - match self.form.kind {
                    NumberEncoding::Single => sum(&self.numbers, kept, f32::from_le_bytes, product),
                    NumberEncoding::Half => {
                        let (measure, kept) = split_scale(kept);
                        measure * sum(&self.numbers, kept, from_half, product)
                    }
                    NumberEncoding::Small => {
                        let (measure, kept) = split_scale(kept);
                        measure * sum(&self.numbers, kept, from_small, product)
                    }
                    NumberEncoding::Bits | NumberEncoding::Bytes => 0.0,
                }
            }
            Metric::Haversine => haversine(&self.numbers, &self.form.decode(kept)),
            Metric::Divergence => divergence(&self.numbers, &self.form.decode(kept)),
            Metric::Pearson => pearson(&self.numbers, &self.form.decode(kept)),
            Metric::Hamming => count(self.bits.iter().zip(kept).map(|(one, other)| one ^ other)),
            Metric::Jaccard | Metric::Tanimoto => {
                let both = count(self.bits.iter().zip(kept).map(|(one, other)| one & other));
                let either = count(self.bits.iter().zip(kept).map(|(one, other)| one | other));
                one_minus_ratio(both, either)
            }
            Metric::Sorensen => {
                let both = count(self.bits.iter().zip(kept).map(|(one, other)| one & other));
                let each = count(self.bits.iter().copied()) + count(kept.iter().copied());
                one_minus_ratio(2.0 * both, each)
            }
        }
    }
}

fn square(one: f32, other: f32) -> f32 {
    (one - other) * (one - other)
}

fn product(one: f32, other: f32) -> f32 {
    one * other
}

/// Sums a function of each pair of numbers.
fn sum<const BYTES: usize>(
    numbers: &[f32],
    kept: &[u8],
    number: impl Fn([u8; BYTES]) -> f32,
    of: impl Fn(f32, f32) -> f32,
) -> f32 {
    let (kept, _) = kept.as_chunks::<BYTES>();
    let (kept, last_kept) = kept.as_chunks::<LANES>();
    let (numbers, last) = numbers.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (one, other) in numbers.iter().zip(kept) {
        for lane in 0..LANES {
            sums[lane] += of(one[lane], number(other[lane]));
        }
    }
    let last = last.iter().zip(last_kept);
    let last: f32 = last.map(|(one, other)| of(*one, number(*other))).sum();
    sums.iter().sum::<f32>() + last
}

/// Counts the bits that are set.
#[allow(clippy::cast_precision_loss, reason = "no vector has so many bits")]
fn count(bytes: impl Iterator<Item = u8>) -> f32 {
    bytes.map(u8::count_ones).sum::<u32>() as f32
}

/// Returns one minus a ratio. Two empty sets count as equal.
fn one_minus_ratio(part: f32, all: f32) -> f32 {
    if all == 0.0 { 0.0 } else { 1.0 - part / all }
}

#[allow(clippy::cast_possible_truncation, reason = "distances have 32 bits")]
fn haversine(one: &[f32], other: &[f32]) -> f32 {
    let (&[lat, lon], &[other_lat, other_lon]) = (one, other) else {
        return 0.0;
    };
    let radians = |degrees: f32| f64::from(degrees).to_radians();
    let half_sine = |one: f32, other: f32| ((radians(other) - radians(one)) / 2.0).sin().powi(2);
    let across = half_sine(lat, other_lat)
        + radians(lat).cos() * radians(other_lat).cos() * half_sine(lon, other_lon);
    (2.0 * across.sqrt().min(1.0).asin()) as f32
}

#[allow(clippy::cast_possible_truncation, reason = "distances have 32 bits")]
fn divergence(one: &[f32], other: &[f32]) -> f32 {
    let term = |number: f64, middle: f64| {
        if number > 0.0 {
            number * (number / middle).ln()
        } else {
            0.0
        }
    };
    let pairs = one.iter().zip(other);
    let sum: f64 = pairs
        .map(|(one, other)| {
            let (one, other) = (f64::from(*one), f64::from(*other));
            let middle = f64::midpoint(one, other);
            term(one, middle) + term(other, middle)
        })
        .sum();
    (sum / 2.0) as f32
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "distances have 32 bits, and no vector is so long"
)]
fn pearson(one: &[f32], other: &[f32]) -> f32 {
    let mean = |numbers: &[f32]| {
        numbers.iter().copied().map(f64::from).sum::<f64>() / numbers.len() as f64
    };
    let (mean_one, mean_other) = (mean(one), mean(other));
    let (mut together, mut alone, mut other_alone) = (0.0, 0.0, 0.0);
    for (one, other) in one.iter().zip(other) {
        let (one, other) = (f64::from(*one) - mean_one, f64::from(*other) - mean_other);
        together += one * other;
        alone += one * one;
        other_alone += other * other;
    }
    let both = alone * other_alone;
    // The correlation of a constant vector is undefined; the distance is then zero.
    if both > 0.0 {
        (1.0 - together / both.sqrt()) as f32
    } else {
        0.0
    }
}

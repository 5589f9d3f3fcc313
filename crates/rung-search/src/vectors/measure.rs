//! How far a vector is from others.

use super::form::{Form, Kind, from_half, from_small, split_measure};
use super::options::Metric;
use crate::Result;

/// Sums that are made beside each other: as many as let the processor work on several numbers at once.
const LANES: usize = 16;

/// A vector that others are measured from.
#[derive(Debug)]
pub(crate) struct Measure {
    form: Form,
    /// Its numbers; none where the metric is of bits.
    numbers: Vec<f32>,
    /// Its bits, where the metric is of bits.
    bits: Vec<u8>,
    /// Whether all its numbers are zero.
    zero: bool,
}

impl Measure {
    /// From a vector that somebody gave, as exact as they gave it.
    pub(crate) fn given(form: Form, vector: &[f32]) -> Result<Self> {
        let exact = form.exact();
        let kept = exact.keep(vector)?;
        let mut measure = Self::kept(exact, &kept);
        measure.form = form;
        Ok(measure)
    }

    /// From a vector that is kept.
    pub(crate) fn kept(form: Form, kept: &[u8]) -> Self {
        let numbers = form.numbers(kept);
        Self {
            form,
            zero: numbers.iter().all(|number| *number == 0.0),
            numbers,
            bits: match form.kind {
                Kind::Bits | Kind::Bytes => kept.to_vec(),
                Kind::Single | Kind::Half | Kind::Small => Vec::new(),
            },
        }
    }

    /// How far it is to one that is kept.
    pub(crate) fn distance(&self, kept: &[u8]) -> f32 {
        match self.form.metric {
            Metric::Euclidean => match self.form.kind {
                Kind::Single => sum(&self.numbers, kept, f32::from_le_bytes, square),
                Kind::Half => {
                    let (measure, kept) = split_measure(kept);
                    let number = |half| measure * from_half(half);
                    sum(&self.numbers, kept, number, square)
                }
                Kind::Small => {
                    let (measure, kept) = split_measure(kept);
                    let number = |byte| measure * from_small(byte);
                    sum(&self.numbers, kept, number, square)
                }
                Kind::Bits | Kind::Bytes => 0.0,
            },
            // Two vectors without a direction are taken for the same.
            Metric::Cosine if self.zero => f32::from(u8::from(
                self.form.numbers(kept).iter().any(|number| *number != 0.0),
            )),
            Metric::Cosine | Metric::DotProduct => {
                1.0 - match self.form.kind {
                    Kind::Single => sum(&self.numbers, kept, f32::from_le_bytes, product),
                    Kind::Half => {
                        let (measure, kept) = split_measure(kept);
                        measure * sum(&self.numbers, kept, from_half, product)
                    }
                    Kind::Small => {
                        let (measure, kept) = split_measure(kept);
                        measure * sum(&self.numbers, kept, from_small, product)
                    }
                    Kind::Bits | Kind::Bytes => 0.0,
                }
            }
            Metric::Haversine => haversine(&self.numbers, &self.form.numbers(kept)),
            Metric::Divergence => divergence(&self.numbers, &self.form.numbers(kept)),
            Metric::Pearson => pearson(&self.numbers, &self.form.numbers(kept)),
            Metric::Hamming => count(self.bits.iter().zip(kept).map(|(one, other)| one ^ other)),
            Metric::Jaccard | Metric::Tanimoto => {
                let both = count(self.bits.iter().zip(kept).map(|(one, other)| one & other));
                let either = count(self.bits.iter().zip(kept).map(|(one, other)| one | other));
                one_less(both, either)
            }
            Metric::Sorensen => {
                let both = count(self.bits.iter().zip(kept).map(|(one, other)| one & other));
                let each = count(self.bits.iter().copied()) + count(kept.iter().copied());
                one_less(2.0 * both, each)
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

/// The sum of what is made of each pair of numbers.
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

/// How many bits are set.
#[allow(clippy::cast_precision_loss, reason = "no vector has so many bits")]
fn count(bytes: impl Iterator<Item = u8>) -> f32 {
    bytes.map(u8::count_ones).sum::<u32>() as f32
}

/// One less a share. Where there is nothing, two nothings are the same.
fn one_less(part: f32, all: f32) -> f32 {
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
    // Where one does not vary there is nothing to tell, and that is no distance.
    if both > 0.0 {
        (1.0 - together / both.sqrt()) as f32
    } else {
        0.0
    }
}

//! What a vector is kept as.
//!
//! All vectors of an index take the same bytes. For the cosine a vector is kept at length one, so that its distance is a product alone.

use super::options::{Made, Metric, Quantization, wrong};
use crate::Result;

/// How the numbers of a vector are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Four bytes each.
    Single,
    /// Two bytes each, after four bytes that say what each is to be multiplied by.
    Half,
    /// A byte each, after four bytes that say what each is to be multiplied by.
    Small,
    /// A bit each: whether it is anything but zero.
    Bits,
    /// A byte each, whose bits count.
    Bytes,
}

/// Bytes of what numbers are to be multiplied by.
const MEASURE: usize = 4;

/// The largest number that 16 bits hold.
const LARGEST_HALF: f32 = 65_504.0;

/// The form of an index's vectors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) kind: Kind,
    pub(crate) metric: Metric,
    /// Numbers of a vector.
    dimensions: usize,
}

impl Form {
    pub(crate) fn new(made: &Made) -> Self {
        let kind = match made.quantization {
            Quantization::Int8 | Quantization::Byte if made.metric.is_of_bits() => Kind::Bytes,
            Quantization::Int8 | Quantization::Byte => Kind::Small,
            _ if made.metric.is_of_bits() => Kind::Bits,
            Quantization::Float | Quantization::Double => Kind::Single,
            Quantization::Float16 => Kind::Half,
        };
        Self {
            kind,
            metric: made.metric,
            dimensions: made.dimensions,
        }
    }

    /// The form of a vector that is not kept: what is lost by keeping it is not lost by it.
    pub(crate) fn exact(self) -> Self {
        let kind = match self.kind {
            Kind::Bits | Kind::Bytes => self.kind,
            Kind::Single | Kind::Half | Kind::Small => Kind::Single,
        };
        Self { kind, ..self }
    }

    /// Bytes of a vector.
    pub(crate) fn bytes(&self) -> usize {
        match self.kind {
            Kind::Single => 4 * self.dimensions,
            Kind::Half => MEASURE + 2 * self.dimensions,
            Kind::Small => MEASURE + self.dimensions,
            Kind::Bits => self.dimensions.div_ceil(8),
            Kind::Bytes => self.dimensions,
        }
    }

    /// A vector as it is kept, or why it is none.
    pub(crate) fn keep(&self, vector: &[f32]) -> Result<Vec<u8>> {
        if vector.len() != self.dimensions {
            return wrong(format!(
                "the vector has {} numbers; those of this index have {}",
                vector.len(),
                self.dimensions
            ));
        }
        if let Some(at) = vector.iter().position(|number| !number.is_finite()) {
            return wrong(format!(
                "number {at} of the vector, counted from 0, is {}",
                vector[at]
            ));
        }
        if self.metric == Metric::Divergence
            && let Some(at) = vector.iter().position(|number| *number < 0.0)
        {
            return wrong(format!(
                "number {at} of the vector is {}: with :divergence none is below 0",
                vector[at]
            ));
        }
        match self.kind {
            Kind::Single => Ok(self.single(vector)),
            Kind::Half => Ok(self.half(vector)),
            Kind::Small => Ok(self.small(vector)),
            Kind::Bits => {
                let mut bits = vec![0; self.bytes()];
                for (at, number) in vector.iter().enumerate() {
                    bits[at / 8] |= u8::from(*number != 0.0) << (at % 8);
                }
                Ok(bits)
            }
            Kind::Bytes => vector.iter().map(|number| byte(*number)).collect(),
        }
    }

    fn single(&self, vector: &[f32]) -> Vec<u8> {
        let measure = self.measure(1.0, vector.iter().copied());
        #[allow(clippy::cast_possible_truncation, reason = "that is what is kept")]
        let sized = |number: &f32| (f64::from(*number) * measure) as f32;
        vector
            .iter()
            .map(sized)
            .flat_map(f32::to_le_bytes)
            .collect()
    }

    /// As they are, or as shares of the largest where that would be too large.
    fn half(&self, vector: &[f32]) -> Vec<u8> {
        let measure = (largest(vector) / LARGEST_HALF).max(1.0);
        let halves = vector.iter().map(|number| to_half(number / measure));
        let halves: Vec<[u8; 2]> = halves.map(u16::to_le_bytes).collect();
        let measure = self.measure(measure, halves.iter().map(|half| from_half(*half)));
        with_measure(measure, halves.into_iter().flatten())
    }

    /// Whole numbers that are small enough as they are, others as shares of the largest.
    fn small(&self, vector: &[f32]) -> Vec<u8> {
        let is_small = |number: &f32| number.fract() == 0.0 && (-128.0..128.0).contains(number);
        let measure = if vector.iter().all(is_small) {
            1.0
        } else {
            largest(vector) / 127.0
        };
        #[allow(clippy::cast_possible_truncation, reason = "it was made to fit")]
        let small = vector.iter().map(|number| (number / measure).round() as i8);
        let small: Vec<[u8; 1]> = small.map(i8::to_le_bytes).collect();
        let measure = self.measure(measure, small.iter().map(|small| from_small(*small)));
        with_measure(measure, small.into_iter().flatten())
    }

    /// What numbers are to be multiplied by: where the metric is the cosine, by what makes them a vector of length one.
    fn measure(&self, measure: f32, numbers: impl Iterator<Item = f32>) -> f64 {
        if self.metric != Metric::Cosine {
            return f64::from(measure);
        }
        let squares: f64 = numbers.map(|number| f64::from(number).powi(2)).sum();
        // Nothing does where it has no length.
        if squares > 0.0 {
            1.0 / squares.sqrt()
        } else {
            0.0
        }
    }

    /// The numbers of a vector that is kept.
    pub(crate) fn numbers(&self, kept: &[u8]) -> Vec<f32> {
        match self.kind {
            Kind::Single => {
                let (numbers, _) = kept.as_chunks();
                numbers
                    .iter()
                    .map(|number| f32::from_le_bytes(*number))
                    .collect()
            }
            Kind::Half => {
                let (measure, numbers) = split_measure(kept);
                let (numbers, _) = numbers.as_chunks();
                numbers
                    .iter()
                    .map(|number| measure * from_half(*number))
                    .collect()
            }
            Kind::Small => {
                let (measure, numbers) = split_measure(kept);
                let numbers = numbers.iter();
                numbers
                    .map(|number| measure * from_small([*number]))
                    .collect()
            }
            Kind::Bits | Kind::Bytes => Vec::new(),
        }
    }
}

/// What numbers are to be multiplied by, and the numbers.
pub(crate) fn split_measure(kept: &[u8]) -> (f32, &[u8]) {
    let (measure, numbers) = kept.split_first_chunk().unwrap_or((&[0; MEASURE], &[]));
    (f32::from_le_bytes(*measure), numbers)
}

#[allow(clippy::cast_possible_truncation, reason = "that is what is kept")]
fn with_measure(measure: f64, numbers: impl Iterator<Item = u8>) -> Vec<u8> {
    let measure = (measure as f32).to_le_bytes();
    measure.into_iter().chain(numbers).collect()
}

/// The size of the largest number.
fn largest(vector: &[f32]) -> f32 {
    let sizes = vector.iter().map(|number| number.abs());
    sizes.fold(0.0, f32::max)
}

pub(crate) fn from_small([number]: [u8; 1]) -> f32 {
    f32::from(number.cast_signed())
}

/// A number as eight bits, with a sign or without.
fn byte(number: f32) -> Result<u8> {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole and within the bounds"
    )]
    if number.fract() == 0.0 && (-128.0..256.0).contains(&number) {
        Ok((number as i16) as u8)
    } else {
        wrong(format!(
            "{number} is no byte: it is a whole number from -128 to 255"
        ))
    }
}

/// Two to the power of 112: how much the exponents of the two widths differ.
const APART: f32 = f32::from_bits((127 + 112) << 23);

/// A binary fraction of 16 bits. There is neither a branch nor a table, so that many are read at once.
pub(crate) fn from_half(half: [u8; 2]) -> f32 {
    let half = u32::from(u16::from_le_bytes(half));
    let size = f32::from_bits((half & 0x7FFF) << 13) * APART;
    f32::from_bits(size.to_bits() | (half & 0x8000) << 16)
}

/// The nearest binary fraction of 16 bits, of a number that is not too large for it.
fn to_half(number: f32) -> u16 {
    let size = (number.abs() / APART).to_bits();
    let size = (size + 0x0FFF + ((size >> 13) & 1)) >> 13;
    let sign = (number.to_bits() >> 16) & 0x8000;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "neither has more than 16 bits"
    )]
    let half = (size | sign) as u16;
    half
}

#[cfg(test)]
mod tests {
    use super::{from_half, to_half};

    #[test]
    fn every_half_is_read_as_it_was_written() {
        for half in 0..=u16::MAX {
            if half & 0x7C00 == 0x7C00 {
                continue;
            }
            let number = from_half(half.to_le_bytes());
            assert!(number.is_finite());
            assert_eq!(to_half(number), half, "{number}");
        }
        for (number, half) in [
            (1.0, 0x3C00),
            (-2.0, 0xC000),
            (65_504.0, 0x7BFF),
            (65_519.0, 0x7BFF),
            (0.333_333_34, 0x3555),
            (6.0e-8, 0x0001),
            (1.0e-9, 0x0000),
        ] {
            assert_eq!(to_half(number), half, "{number}");
        }
    }
}

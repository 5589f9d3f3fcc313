//! The stored encoding of vectors.
//!
//! All vectors of an index take the same number of bytes. For the cosine metric vectors are stored at length one, so that the
//! distance is a dot product.

use super::options::{IndexConfig, Metric, Quantization, wrong};
use crate::Result;

/// The encoding of the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberEncoding {
    /// Four bytes each.
    Single,
    /// Two bytes each, after a four-byte scale.
    Half,
    /// A byte each, after a four-byte scale.
    Small,
    /// A bit each: set if the number is not zero.
    Bits,
    /// A byte each, whose bits are compared.
    Bytes,
}

/// Bytes of the scale.
const SCALE_BYTES: usize = 4;

/// The largest 16-bit float.
const LARGEST_HALF: f32 = 65_504.0;

/// The encoding of an index's vectors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VectorEncoding {
    pub(crate) kind: NumberEncoding,
    pub(crate) metric: Metric,
    /// Length of the vectors.
    dimensions: usize,
}

impl VectorEncoding {
    pub(crate) fn new(made: &IndexConfig) -> Self {
        let kind = match made.quantization {
            Quantization::Int8 | Quantization::Byte if made.metric.is_of_bits() => {
                NumberEncoding::Bytes
            }
            Quantization::Int8 | Quantization::Byte => NumberEncoding::Small,
            _ if made.metric.is_of_bits() => NumberEncoding::Bits,
            Quantization::Float | Quantization::Double => NumberEncoding::Single,
            Quantization::Float16 => NumberEncoding::Half,
        };
        Self {
            kind,
            metric: made.metric,
            dimensions: made.dimensions,
        }
    }

    /// Returns the encoding of a query vector, which loses no precision.
    pub(crate) fn for_query(self) -> Self {
        let kind = match self.kind {
            NumberEncoding::Bits | NumberEncoding::Bytes => self.kind,
            NumberEncoding::Single | NumberEncoding::Half | NumberEncoding::Small => {
                NumberEncoding::Single
            }
        };
        Self { kind, ..self }
    }

    /// Returns the bytes of a vector.
    pub(crate) fn bytes(&self) -> usize {
        match self.kind {
            NumberEncoding::Single => 4 * self.dimensions,
            NumberEncoding::Half => SCALE_BYTES + 2 * self.dimensions,
            NumberEncoding::Small => SCALE_BYTES + self.dimensions,
            NumberEncoding::Bits => self.dimensions.div_ceil(8),
            NumberEncoding::Bytes => self.dimensions,
        }
    }

    /// Encodes a vector, or says why it is not valid.
    pub(crate) fn encode(&self, vector: &[f32]) -> Result<Vec<u8>> {
        if vector.len() != self.dimensions {
            return wrong(format!(
                "the vector has {} numbers; those of this index have {}",
                vector.len(),
                self.dimensions
            ));
        }
        if let Some(at) = vector.iter().position(|number| !number.is_finite()) {
            return wrong(format!(
                "number {at} of the vector (counted from 0) is {}, which is not finite",
                vector[at]
            ));
        }
        if self.metric == Metric::Divergence
            && let Some(at) = vector.iter().position(|number| *number < 0.0)
        {
            return wrong(format!(
                "number {at} of the vector (counted from 0) is {}; with :divergence no number may be negative",
                vector[at]
            ));
        }
        match self.kind {
            NumberEncoding::Single => Ok(self.encode_single(vector)),
            NumberEncoding::Half => Ok(self.encode_half(vector)),
            NumberEncoding::Small => Ok(self.encode_small(vector)),
            NumberEncoding::Bits => {
                let mut bits = vec![0; self.bytes()];
                for (at, number) in vector.iter().enumerate() {
                    bits[at / 8] |= u8::from(*number != 0.0) << (at % 8);
                }
                Ok(bits)
            }
            NumberEncoding::Bytes => vector.iter().map(|number| to_byte(*number)).collect(),
        }
    }

    fn encode_single(&self, vector: &[f32]) -> Vec<u8> {
        let measure = self.scale(1.0, vector.iter().copied());
        #[allow(clippy::cast_possible_truncation, reason = "that is what is kept")]
        let sized = |number: &f32| (f64::from(*number) * measure) as f32;
        vector
            .iter()
            .map(sized)
            .flat_map(f32::to_le_bytes)
            .collect()
    }

    /// Encodes numbers as they are, or scaled if the largest would overflow.
    fn encode_half(&self, vector: &[f32]) -> Vec<u8> {
        let measure = (largest(vector) / LARGEST_HALF).max(1.0);
        let halves = vector.iter().map(|number| to_half(number / measure));
        let halves: Vec<[u8; 2]> = halves.map(u16::to_le_bytes).collect();
        let measure = self.scale(measure, halves.iter().map(|half| from_half(*half)));
        with_scale(measure, halves.into_iter().flatten())
    }

    /// Encodes small integers as they are, and scales other numbers by the largest.
    fn encode_small(&self, vector: &[f32]) -> Vec<u8> {
        let is_small = |number: &f32| number.fract() == 0.0 && (-128.0..128.0).contains(number);
        let measure = if vector.iter().all(is_small) {
            1.0
        } else {
            largest(vector) / 127.0
        };
        #[allow(clippy::cast_possible_truncation, reason = "it was made to fit")]
        let small = vector.iter().map(|number| (number / measure).round() as i8);
        let small: Vec<[u8; 1]> = small.map(i8::to_le_bytes).collect();
        let measure = self.scale(measure, small.iter().map(|small| from_small(*small)));
        with_scale(measure, small.into_iter().flatten())
    }

    /// Returns the scale of the numbers; for the cosine metric it normalises the vector to length one.
    fn scale(&self, measure: f32, numbers: impl Iterator<Item = f32>) -> f64 {
        if self.metric != Metric::Cosine {
            return f64::from(measure);
        }
        let squares: f64 = numbers.map(|number| f64::from(number).powi(2)).sum();
        // A zero vector cannot be normalised.
        if squares > 0.0 {
            1.0 / squares.sqrt()
        } else {
            0.0
        }
    }

    /// Decodes the numbers of a stored vector.
    pub(crate) fn decode(&self, kept: &[u8]) -> Vec<f32> {
        match self.kind {
            NumberEncoding::Single => {
                let (numbers, _) = kept.as_chunks();
                numbers
                    .iter()
                    .map(|number| f32::from_le_bytes(*number))
                    .collect()
            }
            NumberEncoding::Half => {
                let (measure, numbers) = split_scale(kept);
                let (numbers, _) = numbers.as_chunks();
                numbers
                    .iter()
                    .map(|number| measure * from_half(*number))
                    .collect()
            }
            NumberEncoding::Small => {
                let (measure, numbers) = split_scale(kept);
                let numbers = numbers.iter();
                numbers
                    .map(|number| measure * from_small([*number]))
                    .collect()
            }
            NumberEncoding::Bits | NumberEncoding::Bytes => Vec::new(),
        }
    }
}

/// Splits a stored vector into its scale and its numbers.
pub(crate) fn split_scale(kept: &[u8]) -> (f32, &[u8]) {
    let (measure, numbers) = kept.split_first_chunk().unwrap_or((&[0; SCALE_BYTES], &[]));
    (f32::from_le_bytes(*measure), numbers)
}

#[allow(clippy::cast_possible_truncation, reason = "that is what is kept")]
fn with_scale(measure: f64, numbers: impl Iterator<Item = u8>) -> Vec<u8> {
    let measure = (measure as f32).to_le_bytes();
    measure.into_iter().chain(numbers).collect()
}

/// Returns the largest absolute value.
fn largest(vector: &[f32]) -> f32 {
    let sizes = vector.iter().map(|number| number.abs());
    sizes.fold(0.0, f32::max)
}

pub(crate) fn from_small([number]: [u8; 1]) -> f32 {
    f32::from(number.cast_signed())
}

/// Converts a number to eight bits, signed or unsigned.
fn to_byte(number: f32) -> Result<u8> {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole and within the bounds"
    )]
    if number.fract() == 0.0 && (-128.0..256.0).contains(&number) {
        Ok((number as i16) as u8)
    } else {
        wrong(format!(
            "{number} is not a byte; a byte is an integer from -128 to 255"
        ))
    }
}

/// Two to the power of 112: the difference of the exponent biases of `f32` and 16-bit floats.
const EXPONENT_BIAS_RATIO: f32 = f32::from_bits((127 + 112) << 23);

/// Decodes a 16-bit float without branches or tables, so that the compiler vectorises it.
pub(crate) fn from_half(half: [u8; 2]) -> f32 {
    let half = u32::from(u16::from_le_bytes(half));
    let size = f32::from_bits((half & 0x7FFF) << 13) * EXPONENT_BIAS_RATIO;
    f32::from_bits(size.to_bits() | (half & 0x8000) << 16)
}

/// Returns the nearest 16-bit float of a number that does not overflow it.
fn to_half(number: f32) -> u16 {
    let size = (number.abs() / EXPONENT_BIAS_RATIO).to_bits();
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

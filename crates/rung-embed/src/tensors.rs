//! Reading of `.safetensors` files: a length, a JSON header, and the tensor data. Each tensor is read on request, so nothing is
//! in memory twice.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use ndarray::Array2;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::{Error, Result};

/// Bytes of a header. A model with a thousand tensors has about a hundred thousand.
const MAX_HEADER_BYTES: u64 = 16 << 20;

/// Bytes per read.
const CHUNK_BYTES: usize = 1 << 20;

/// The stored type of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum DType {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    I8,
    #[serde(other)]
    Other,
}

impl DType {
    fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::I8 | Self::Other => 1,
        }
    }

    /// Returns true if the type can be read as `f32`.
    fn is_number(self) -> bool {
        match self {
            Self::F64 | Self::F32 | Self::F16 | Self::BF16 | Self::I8 => true,
            Self::I64 | Self::I32 | Self::Other => false,
        }
    }

    /// Converts the bytes of one number.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "what is known better than that does not count"
    )]
    fn number(self, bytes: &[u8]) -> f32 {
        match self {
            Self::F64 => f64::from_le_bytes(to_array(bytes)) as f32,
            Self::F32 => f32::from_le_bytes(to_array(bytes)),
            Self::F16 => f16_to_f32(u16::from_le_bytes(to_array(bytes))),
            Self::BF16 => f32::from_bits(u32::from(u16::from_le_bytes(to_array(bytes))) << 16),
            Self::I8 => f32::from(i8::from_le_bytes(to_array(bytes))),
            // Callers check `is_number` first.
            Self::I64 | Self::I32 | Self::Other => f32::NAN,
        }
    }
}

/// Converts a slice to an array; zeros if the lengths differ.
fn to_array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().unwrap_or([0; N])
}

/// Converts a half-precision number.
fn f16_to_f32(bits: u16) -> f32 {
    // The difference of the exponent biases, as a factor.
    const APART: f32 = f32::from_bits((254 - 15) << 23);
    let bits = u32::from(bits);
    let size = if bits & 0x7C00 == 0x7C00 {
        f32::from_bits(0x7F80_0000 | (bits & 0x3FF) << 13)
    } else {
        f32::from_bits((bits & 0x7FFF) << 13) * APART
    };
    f32::from_bits(size.to_bits() | (bits & 0x8000) << 16)
}

#[derive(Debug, Deserialize)]
struct TensorInfo {
    dtype: DType,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

#[derive(Debug)]
pub(crate) struct TensorFile {
    path: PathBuf,
    file: File,
    /// The offset of the tensor data.
    start: u64,
    tensors: HashMap<String, TensorInfo>,
}

/// A matrix in its stored type.
#[derive(Debug)]
pub(crate) struct TensorRows {
    kind: DType,
    pub(crate) width: usize,
    bytes: Vec<u8>,
}

impl TensorRows {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / (self.width * self.kind.bytes())
    }

    /// Returns the numbers of a row, if it exists.
    pub(crate) fn row(&self, at: usize) -> Option<impl Iterator<Item = f32> + '_> {
        let each = self.kind.bytes();
        let row = at.checked_mul(self.width * each)?;
        let bytes = self.bytes.get(row..row + self.width * each)?;
        Some(bytes.chunks_exact(each).map(|n| self.kind.number(n)))
    }
}

impl TensorFile {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let wrong = |why: &str| Error::model(path, why);
        let failed = |error: std::io::Error| Error::model(path, error);
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut head = [0; 8];
        file.read_exact(&mut head).map_err(failed)?;
        let head = u64::from_le_bytes(head);
        if head > MAX_HEADER_BYTES || head + 8 > length {
            return Err(wrong("its header is too long"));
        }
        let mut text = vec![0; usize::try_from(head).unwrap_or(0)];
        file.read_exact(&mut text).map_err(failed)?;
        let mut described: HashMap<String, serde_json::Value> = serde_json::from_slice(&text)
            .map_err(|error| Error::model(path, format!("its header is not valid: {error}")))?;
        described.remove("__metadata__");
        let start = head + 8;
        let mut of = HashMap::new();
        for (name, described) in described {
            let described: TensorInfo = serde_json::from_value(described)
                .map_err(|error| Error::model(path, format!("{name}: {error}")))?;
            let [from, to] = described.data_offsets;
            let numbers = described
                .shape
                .iter()
                .try_fold(1_usize, |all, side| all.checked_mul(*side));
            let bytes = numbers.and_then(|numbers| numbers.checked_mul(described.dtype.bytes()));
            let fits = described.dtype == DType::Other
                || bytes.and_then(|bytes| u64::try_from(bytes).ok()) == to.checked_sub(from);
            if from > to || to > length - start || !fits {
                return Err(wrong(&format!(
                    "the offsets of the tensor {name} are not valid"
                )));
            }
            of.insert(name, described);
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            start,
            tensors: of,
        })
    }

    /// Returns the digest of the whole file.
    pub(crate) fn digest(&mut self) -> Result<[u8; 32]> {
        let failed = |error: std::io::Error| Error::model(&self.path, error);
        let mut digest = Sha256::new();
        let mut piece = vec![0; CHUNK_BYTES];
        (&self.file).seek(SeekFrom::Start(0)).map_err(failed)?;
        loop {
            match (&self.file).read(&mut piece).map_err(failed)? {
                0 => return Ok(digest.finalize().into()),
                read => digest.update(&piece[..read]),
            }
        }
    }

    /// Returns true if there is a tensor with this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Returns the shape of a tensor.
    pub(crate) fn shape(&self, name: &str) -> Result<&[usize]> {
        Ok(&self.tensor_info(name)?.shape)
    }

    fn tensor_info(&self, name: &str) -> Result<&TensorInfo> {
        let missing = || Error::model(&self.path, format!("the tensor {name} is missing"));
        self.tensors.get(name).ok_or_else(missing)
    }

    /// Reads the bytes of a tensor in chunks.
    fn read_chunks(&self, name: &str, mut take: impl FnMut(&[u8])) -> Result<()> {
        let failed = |error: std::io::Error| Error::model(&self.path, error);
        let [from, to] = self.tensor_info(name)?.data_offsets;
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.start + from))
            .map_err(failed)?;
        let mut left = usize::try_from(to - from)
            .map_err(|error| Error::model(&self.path, format!("{name} is too large: {error}")))?;
        // No number is split: the chunk size is a multiple of every number's length.
        let mut piece = vec![0; CHUNK_BYTES.min(left)];
        while left > 0 {
            let read = left.min(CHUNK_BYTES);
            file.read_exact(&mut piece[..read]).map_err(failed)?;
            take(&piece[..read]);
            left -= read;
        }
        Ok(())
    }

    /// Reads a two-dimensional tensor in its stored type.
    pub(crate) fn rows(&self, name: &str) -> Result<TensorRows> {
        let described = self.tensor_info(name)?;
        let wrong = |why: &str| Err(Error::model(&self.path, format!("{name} {why}")));
        let (kind, &[_, width]) = (described.dtype, &described.shape[..]) else {
            return wrong("does not have two dimensions");
        };
        if !kind.is_number() || width == 0 {
            return wrong("has an unsupported number type");
        }
        let mut bytes = Vec::new();
        self.read_chunks(name, |piece| bytes.extend_from_slice(piece))?;
        bytes.shrink_to_fit();
        Ok(TensorRows { kind, width, bytes })
    }

    /// Reads a tensor that must have this shape.
    pub(crate) fn numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let described = self.tensor_info(name)?;
        let kind = described.dtype;
        if described.shape != shape || !kind.is_number() {
            let why = format!(
                "{name} is {:?} of {kind:?}, not {shape:?} of a supported number type",
                described.shape
            );
            return Err(Error::model(&self.path, why));
        }
        let mut numbers = Vec::with_capacity(shape.iter().product());
        self.read_chunks(name, |piece| {
            numbers.extend(piece.chunks_exact(kind.bytes()).map(|n| kind.number(n)));
        })?;
        Ok(numbers)
    }

    /// Reads a two-dimensional tensor that must have this shape.
    pub(crate) fn matrix(&self, name: &str, shape: [usize; 2]) -> Result<Array2<f32>> {
        let numbers = self.numbers(name, &shape)?;
        Array2::from_shape_vec(shape, numbers).map_err(|error| Error::model(&self.path, error))
    }

    /// Reads integers that must all lie within a range.
    pub(crate) fn indices(&self, name: &str, within: &Range<usize>) -> Result<Vec<usize>> {
        let described = self.tensor_info(name)?;
        let wrong = |why: &str| Error::model(&self.path, format!("{name} {why}"));
        let kind = described.dtype;
        if !matches!(kind, DType::I32 | DType::I64) {
            return Err(wrong("is not a tensor of integers"));
        }
        let mut places = Vec::new();
        self.read_chunks(name, |piece| {
            places.extend(piece.chunks_exact(kind.bytes()).map(|n| {
                let number = match kind {
                    DType::I32 => i64::from(i32::from_le_bytes(to_array(n))),
                    _ => i64::from_le_bytes(to_array(n)),
                };
                usize::try_from(number).ok()
            }));
        })?;
        let places: Option<Vec<usize>> = places.into_iter().collect();
        places
            .filter(|places| places.iter().all(|place| within.contains(place)))
            .ok_or_else(|| wrong("refers to missing rows"))
    }
}

#[cfg(test)]
mod tests {
    use super::f16_to_f32;

    #[test]
    fn numbers_of_sixteen_bits_are_what_they_say() {
        for (bits, number) in [
            (0x0000, 0.0),
            (0x3C00, 1.0),
            (0xC000, -2.0),
            (0x3555, 0.333_251_95),
            (0x7BFF, 65_504.0),
            (0x0001, 5.960_464_5e-8),
            (0x03FF, 6.097_555e-5),
            (0x0400, 6.103_515_6e-5),
            (0x7C00, f32::INFINITY),
            (0xFC00, f32::NEG_INFINITY),
        ] {
            assert_eq!(
                f16_to_f32(bits).to_bits(),
                f32::to_bits(number),
                "{bits:04x}"
            );
        }
        assert!(f16_to_f32(0x7E00).is_nan());
    }
}

//! Numbers in a file of named tensors (`.safetensors`): a length, a description in JSON, and the numbers themselves. Each is read
//! when it is asked for, so that nothing is in memory twice.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use ndarray::Array2;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::{Error, Result};

/// Bytes of a description, at most. That of a model with a thousand tensors has a hundred thousand.
const MAX_HEAD_BYTES: u64 = 16 << 20;

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// What a number is kept as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Kind {
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

impl Kind {
    fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::I8 | Self::Other => 1,
        }
    }

    /// Whether it is read as numbers to reckon with.
    fn is_number(self) -> bool {
        match self {
            Self::F64 | Self::F32 | Self::F16 | Self::BF16 | Self::I8 => true,
            Self::I64 | Self::I32 | Self::Other => false,
        }
    }

    /// The number that these bytes are.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "what is known better than that does not count"
    )]
    fn number(self, bytes: &[u8]) -> f32 {
        match self {
            Self::F64 => f64::from_le_bytes(sized(bytes)) as f32,
            Self::F32 => f32::from_le_bytes(sized(bytes)),
            Self::F16 => half(u16::from_le_bytes(sized(bytes))),
            Self::BF16 => f32::from_bits(u32::from(u16::from_le_bytes(sized(bytes))) << 16),
            Self::I8 => f32::from(i8::from_le_bytes(sized(bytes))),
            // Refused where it is asked for.
            Self::I64 | Self::I32 | Self::Other => f32::NAN,
        }
    }
}

/// Bytes that are as many as a number has.
fn sized<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().unwrap_or([0; N])
}

/// A number of 16 bits.
fn half(bits: u16) -> f32 {
    // What lies between the exponents of both forms.
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
struct Described {
    dtype: Kind,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

/// A file of tensors.
#[derive(Debug)]
pub(crate) struct Tensors {
    path: PathBuf,
    file: File,
    /// Where the numbers begin.
    start: u64,
    of: HashMap<String, Described>,
}

/// Rows of numbers, as they lie in their file.
#[derive(Debug)]
pub(crate) struct Rows {
    kind: Kind,
    pub(crate) width: usize,
    bytes: Vec<u8>,
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / (self.width * self.kind.bytes())
    }

    /// The numbers of a row, if there is such a row.
    pub(crate) fn row(&self, at: usize) -> Option<impl Iterator<Item = f32> + '_> {
        let each = self.kind.bytes();
        let row = at.checked_mul(self.width * each)?;
        let bytes = self.bytes.get(row..row + self.width * each)?;
        Some(bytes.chunks_exact(each).map(|n| self.kind.number(n)))
    }
}

impl Tensors {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let wrong = |why: &str| Error::model(path, why);
        let failed = |error: std::io::Error| Error::model(path, error);
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut head = [0; 8];
        file.read_exact(&mut head).map_err(failed)?;
        let head = u64::from_le_bytes(head);
        if head > MAX_HEAD_BYTES || head + 8 > length {
            return Err(wrong("its description is longer than it can be"));
        }
        let mut text = vec![0; usize::try_from(head).unwrap_or(0)];
        file.read_exact(&mut text).map_err(failed)?;
        let mut described: HashMap<String, serde_json::Value> = serde_json::from_slice(&text)
            .map_err(|error| Error::model(path, format!("its description: {error}")))?;
        described.remove("__metadata__");
        let start = head + 8;
        let mut of = HashMap::new();
        for (name, described) in described {
            let described: Described = serde_json::from_value(described)
                .map_err(|error| Error::model(path, format!("{name}: {error}")))?;
            let [from, to] = described.data_offsets;
            let numbers = described
                .shape
                .iter()
                .try_fold(1_usize, |all, side| all.checked_mul(*side));
            let bytes = numbers.and_then(|numbers| numbers.checked_mul(described.dtype.bytes()));
            let fits = described.dtype == Kind::Other
                || bytes.and_then(|bytes| u64::try_from(bytes).ok()) == to.checked_sub(from);
            if from > to || to > length - start || !fits {
                return Err(wrong(&format!("{name} does not lie in it as it says")));
            }
            of.insert(name, described);
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            start,
            of,
        })
    }

    /// The digest of the whole file.
    pub(crate) fn digest(&mut self) -> Result<[u8; 32]> {
        let failed = |error: std::io::Error| Error::model(&self.path, error);
        let mut digest = Sha256::new();
        let mut piece = vec![0; PIECE];
        (&self.file).seek(SeekFrom::Start(0)).map_err(failed)?;
        loop {
            match (&self.file).read(&mut piece).map_err(failed)? {
                0 => return Ok(digest.finalize().into()),
                read => digest.update(&piece[..read]),
            }
        }
    }

    /// Whether there is a tensor of that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.of.contains_key(name)
    }

    /// The sides of a tensor.
    pub(crate) fn shape(&self, name: &str) -> Result<&[usize]> {
        Ok(&self.described(name)?.shape)
    }

    fn described(&self, name: &str) -> Result<&Described> {
        let missing = || Error::model(&self.path, format!("it has no tensor {name}"));
        self.of.get(name).ok_or_else(missing)
    }

    /// Reads the bytes of a tensor, piece by piece.
    fn each(&self, name: &str, mut take: impl FnMut(&[u8])) -> Result<()> {
        let failed = |error: std::io::Error| Error::model(&self.path, error);
        let [from, to] = self.described(name)?.data_offsets;
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.start + from))
            .map_err(failed)?;
        let mut left = usize::try_from(to - from)
            .map_err(|error| Error::model(&self.path, format!("{name} is too large: {error}")))?;
        // Whole numbers alone: the piece is a multiple of all their lengths.
        let mut piece = vec![0; PIECE.min(left)];
        while left > 0 {
            let read = left.min(PIECE);
            file.read_exact(&mut piece[..read]).map_err(failed)?;
            take(&piece[..read]);
            left -= read;
        }
        Ok(())
    }

    /// A tensor with two sides, as it lies there.
    pub(crate) fn rows(&self, name: &str) -> Result<Rows> {
        let described = self.described(name)?;
        let wrong = |why: &str| Err(Error::model(&self.path, format!("{name} {why}")));
        let (kind, &[_, width]) = (described.dtype, &described.shape[..]) else {
            return wrong("has not two sides");
        };
        if !kind.is_number() || width == 0 {
            return wrong("is not of numbers that are read here");
        }
        let mut bytes = Vec::new();
        self.each(name, |piece| bytes.extend_from_slice(piece))?;
        bytes.shrink_to_fit();
        Ok(Rows { kind, width, bytes })
    }

    /// The numbers of a tensor, whose sides must be these.
    pub(crate) fn numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let described = self.described(name)?;
        let kind = described.dtype;
        if described.shape != shape || !kind.is_number() {
            let why = format!(
                "{name} is {:?} of {kind:?}, not {shape:?} of numbers that are read here",
                described.shape
            );
            return Err(Error::model(&self.path, why));
        }
        let mut numbers = Vec::with_capacity(shape.iter().product());
        self.each(name, |piece| {
            numbers.extend(piece.chunks_exact(kind.bytes()).map(|n| kind.number(n)));
        })?;
        Ok(numbers)
    }

    /// A tensor with two sides, which must be these.
    pub(crate) fn matrix(&self, name: &str, shape: [usize; 2]) -> Result<Array2<f32>> {
        let numbers = self.numbers(name, &shape)?;
        Array2::from_shape_vec(shape, numbers).map_err(|error| Error::model(&self.path, error))
    }

    /// Whole numbers, each within a range.
    pub(crate) fn places(&self, name: &str, within: &Range<usize>) -> Result<Vec<usize>> {
        let described = self.described(name)?;
        let wrong = |why: &str| Error::model(&self.path, format!("{name} {why}"));
        let kind = described.dtype;
        if !matches!(kind, Kind::I32 | Kind::I64) {
            return Err(wrong("is not of whole numbers"));
        }
        let mut places = Vec::new();
        self.each(name, |piece| {
            places.extend(piece.chunks_exact(kind.bytes()).map(|n| {
                let number = match kind {
                    Kind::I32 => i64::from(i32::from_le_bytes(sized(n))),
                    _ => i64::from_le_bytes(sized(n)),
                };
                usize::try_from(number).ok()
            }));
        })?;
        let places: Option<Vec<usize>> = places.into_iter().collect();
        places
            .filter(|places| places.iter().all(|place| within.contains(place)))
            .ok_or_else(|| wrong("names rows that are not there"))
    }
}

#[cfg(test)]
mod tests {
    use super::half;

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
            assert_eq!(half(bits).to_bits(), f32::to_bits(number), "{bits:04x}");
        }
        assert!(half(0x7E00).is_nan());
    }
}

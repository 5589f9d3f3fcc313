//! A model in a folder. The kind is detected from the files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use data_encoding::HEXLOWER;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use crate::bert::Bert;
use crate::table::EmbeddingTable;
use crate::tensors::TensorFile;
use crate::threads::map_parallel;
use crate::{Error, Result};

/// Texts per work item of a table.
const TABLE_BATCH_TEXTS: usize = 64;

/// Tokens per work item of an encoder. Larger matrices are no faster and need more memory.
const BERT_BATCH_TOKENS: usize = 512;

/// A loaded model.
pub struct EmbeddingModel {
    kind: ModelKind,
    id: String,
}

impl fmt::Debug for EmbeddingModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.id)
    }
}

enum ModelKind {
    Table(Box<EmbeddingTable>),
    Bert(Box<Bert>),
}

impl EmbeddingModel {
    /// Loads the model in a folder: `tokenizer.json`, one safetensors file with a table or an encoder, and configuration files.
    pub fn open(folder: &Path) -> Result<Self> {
        let mut tensors = TensorFile::open(&find_tensor_file(folder)?)?;
        let kind = match EmbeddingTable::tensor_name(&tensors) {
            Some(name) => ModelKind::Table(Box::new(EmbeddingTable::open(folder, &tensors, name)?)),
            None => ModelKind::Bert(Box::new(Bert::open(folder, &tensors)?)),
        };
        let (pieces, manner) = match &kind {
            ModelKind::Table(table) => (table.tokenizer(), "mean".to_owned()),
            ModelKind::Bert(bert) => (bert.tokenizer(), bert.settings()),
        };
        let mut digest = Sha256::new();
        digest.update(tensors.digest()?);
        digest.update(pieces.digest);
        digest.update(manner);
        let id = format!("sha256:{}", HEXLOWER.encode(&digest.finalize()));
        Ok(Self { kind, id })
    }

    /// Returns `table` or `bert`.
    pub fn kind(&self) -> &'static str {
        match &self.kind {
            ModelKind::Table(_) => "table",
            ModelKind::Bert(_) => "bert",
        }
    }

    /// Returns the digest of everything that the vectors depend on.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the length of the vectors.
    pub fn dimensions(&self) -> usize {
        match &self.kind {
            ModelKind::Table(table) => table.dimensions(),
            ModelKind::Bert(bert) => bert.dimensions(),
        }
    }

    /// Embeds texts as vectors of length one, or zeros if a text has no known tokens. Fails after `ends`.
    pub fn embed<T: AsRef<str> + Sync>(
        &self,
        texts: &[T],
        ends: Option<Instant>,
    ) -> Result<Vec<Vec<f32>>> {
        let mut vectors = match &self.kind {
            ModelKind::Table(table) => {
                let pieces: Vec<&[T]> = texts.chunks(TABLE_BATCH_TEXTS).collect();
                let each = |texts: &&[T]| {
                    let vectors = texts.iter().map(|text| table.vector(text.as_ref()));
                    vectors.collect::<Result<Vec<_>>>()
                };
                map_parallel(&pieces, ends, each)?.concat()
            }
            ModelKind::Bert(bert) => embed_with_encoder(bert, texts, ends)?,
        };
        for vector in &mut vectors {
            normalize(vector);
        }
        Ok(vectors)
    }
}

/// Embeds texts of similar length together.
fn embed_with_encoder<T: AsRef<str> + Sync>(
    bert: &Bert,
    texts: &[T],
    ends: Option<Instant>,
) -> Result<Vec<Vec<f32>>> {
    let pieces = map_parallel(texts, ends, |text| bert.tokenizer().tokenize(text.as_ref()))?;
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(pieces[*at].len()));
    let mut work: Vec<Vec<usize>> = Vec::new();
    let mut room = 0;
    for at in order {
        let length = pieces[at].len();
        match work.last_mut() {
            Some(last) if length <= room => {
                last.push(at);
                room -= length;
            }
            _ => {
                work.push(vec![at]);
                room = BERT_BATCH_TOKENS.saturating_sub(length);
            }
        }
    }
    let done = map_parallel(&work, ends, |own| {
        let texts: Vec<&[u32]> = own.iter().map(|at| &pieces[*at][..]).collect();
        bert.vectors(&texts)
    })?;
    let mut vectors = vec![Vec::new(); texts.len()];
    for (own, done) in work.into_iter().zip(done) {
        for (at, vector) in own.into_iter().zip(done) {
            vectors[at] = vector;
        }
    }
    Ok(vectors)
}

/// Normalizes a vector to length one. A vector whose length is zero, subnormal or not finite becomes zeros.
#[expect(clippy::cast_possible_truncation, reason = "it was made to fit")]
pub(crate) fn normalize(vector: &mut [f32]) {
    let square = |number: &f32| f64::from(*number) * f64::from(*number);
    let length = vector.iter().map(square).sum::<f64>().sqrt();
    let is_something = length.is_normal();
    for number in vector {
        *number = if is_something {
            (f64::from(*number) / length) as f32
        } else {
            0.0
        };
    }
}

/// Returns the tensor file in a folder: `model.safetensors`, or the only `.safetensors` file.
fn find_tensor_file(folder: &Path) -> Result<PathBuf> {
    let usual = folder.join("model.safetensors");
    if usual.is_file() {
        return Ok(usual);
    }
    let failed = |error: std::io::Error| Error::model(folder, error);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|name| name == "safetensors") && path.is_file() {
            found.push(path);
        }
    }
    match found.pop() {
        Some(path) if found.is_empty() => Ok(path),
        Some(_) => Err(Error::model(
            folder,
            "it has several safetensors files, none of them model.safetensors",
        )),
        None => Err(Error::model(folder, "model.safetensors is missing")),
    }
}

/// Reads a JSON file. Returns `None` if it does not exist.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| Error::model(path, error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::model(path, error)),
    }
}

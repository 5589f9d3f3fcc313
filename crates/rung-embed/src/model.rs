//! A model in a folder. Which kind it is follows from what is in it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use data_encoding::HEXLOWER;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use crate::bert::Bert;
use crate::table::Table;
use crate::tensors::Tensors;
use crate::threads::on_threads;
use crate::{Error, Result};

/// Texts that one thread embeds by a table at once.
const TABLE_TEXTS: usize = 64;

/// Pieces that one thread embeds by an encoder at once. Matrices are no faster for being larger, and take more memory.
const BERT_PIECES: usize = 512;

/// A model that was loaded.
pub struct Model {
    kind: Kind,
    id: String,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.id)
    }
}

enum Kind {
    Table(Box<Table>),
    Bert(Box<Bert>),
}

impl Model {
    /// Loads the model of a folder: `tokenizer.json` with a table or an encoder in a file of tensors, and what belongs to it.
    pub fn open(folder: &Path) -> Result<Self> {
        let mut tensors = Tensors::open(&numbers(folder)?)?;
        let kind = match Table::name(&tensors) {
            Some(name) => Kind::Table(Box::new(Table::open(folder, &tensors, name)?)),
            None => Kind::Bert(Box::new(Bert::open(folder, &tensors)?)),
        };
        let (pieces, manner) = match &kind {
            Kind::Table(table) => (table.pieces(), "mean".to_owned()),
            Kind::Bert(bert) => (bert.pieces(), bert.manner()),
        };
        let mut digest = Sha256::new();
        digest.update(tensors.digest()?);
        digest.update(pieces.digest);
        digest.update(manner);
        let id = format!("sha256:{}", HEXLOWER.encode(&digest.finalize()));
        Ok(Self { kind, id })
    }

    /// What it is: `table` or `bert`.
    pub fn kind(&self) -> &'static str {
        match &self.kind {
            Kind::Table(_) => "table",
            Kind::Bert(_) => "bert",
        }
    }

    /// The digest of everything that its vectors depend on.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Numbers of a vector.
    pub fn dimensions(&self) -> usize {
        match &self.kind {
            Kind::Table(table) => table.dimensions(),
            Kind::Bert(bert) => bert.dimensions(),
        }
    }

    /// The vectors of texts, each of length one; or zeros, where nothing in a text is known. After `ends` it is given up.
    pub fn embed<T: AsRef<str> + Sync>(
        &self,
        texts: &[T],
        ends: Option<Instant>,
    ) -> Result<Vec<Vec<f32>>> {
        let mut vectors = match &self.kind {
            Kind::Table(table) => {
                let pieces: Vec<&[T]> = texts.chunks(TABLE_TEXTS).collect();
                let each = |texts: &&[T]| {
                    let vectors = texts.iter().map(|text| table.vector(text.as_ref()));
                    vectors.collect::<Result<Vec<_>>>()
                };
                on_threads(&pieces, ends, each)?.concat()
            }
            Kind::Bert(bert) => by_encoder(bert, texts, ends)?,
        };
        for vector in &mut vectors {
            unit(vector);
        }
        Ok(vectors)
    }
}

/// Texts of about the same length are embedded together.
fn by_encoder<T: AsRef<str> + Sync>(
    bert: &Bert,
    texts: &[T],
    ends: Option<Instant>,
) -> Result<Vec<Vec<f32>>> {
    let pieces = on_threads(texts, ends, |text| bert.pieces().of(text.as_ref()))?;
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
                room = BERT_PIECES.saturating_sub(length);
            }
        }
    }
    let done = on_threads(&work, ends, |own| {
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

/// Brings a vector to length one. What has no direction, or none that can be told, becomes zeros.
#[expect(clippy::cast_possible_truncation, reason = "it was made to fit")]
pub(crate) fn unit(vector: &mut [f32]) {
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

/// The file of tensors in a folder: `model.safetensors`, or the only one.
fn numbers(folder: &Path) -> Result<PathBuf> {
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
            "it has several files of tensors, none of which is model.safetensors",
        )),
        None => Err(Error::model(folder, "it has no model.safetensors")),
    }
}

/// A file of JSON, if there is one.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| Error::model(path, error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::model(path, error)),
    }
}

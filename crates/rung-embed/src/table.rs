//! A static table: each piece has a row, and a text is the mean of its rows.

use std::path::Path;

use crate::model::read;
use crate::pieces::Pieces;
use crate::tensors::{Rows, Tensors};
use crate::{Error, Result};

/// Pieces of a text that count. What comes after so many hardly moves the mean.
const MOST: usize = 8_192;

/// The same, where a table is made to be read so and does not say otherwise.
const MOST_DISTILLED: usize = 512;

/// A table.
pub(crate) struct Table {
    pieces: Pieces,
    rows: Rows,
    /// The row of each piece, where it is not the one of its number.
    row_of: Option<Vec<usize>>,
    /// How much each piece counts, where they do not count the same.
    weights: Option<Vec<f32>>,
    /// The piece that stands for what is none, where it does not count.
    unknown: Option<u32>,
    /// Characters of a text that are looked at.
    chars: usize,
}

impl Table {
    /// The name of the table in its file, if there is one: one is by the pieces of a language model, another distilled from an encoder.
    pub(crate) fn name(tensors: &Tensors) -> Option<&'static str> {
        let names = ["embedding.weight", "embeddings"];
        names.into_iter().find(|name| tensors.has(name))
    }

    pub(crate) fn open(folder: &Path, tensors: &Tensors, name: &str) -> Result<Self> {
        let path = folder.join("tokenizer.json");
        let distilled = name == "embeddings";
        let most = if distilled { said(folder)? } else { MOST };
        let pieces = Pieces::open(&path, most, false)?;
        let rows = tensors.rows(name)?;
        let row_of = tensors.has("mapping").then(|| {
            let within = 0..rows.len();
            tensors.places("mapping", &within)
        });
        let row_of = row_of.transpose()?;
        let weights = tensors.has("weights").then(|| {
            let shape = tensors.shape("weights")?.to_vec();
            tensors.numbers("weights", &shape)
        });
        let weights = weights.transpose()?;
        let known = row_of.as_ref().map_or(rows.len(), Vec::len);
        let weighed = weights.as_ref().map_or(known, Vec::len);
        if known < pieces.len() || weighed < pieces.len() {
            let why = format!(
                "it has {} pieces, and the table {} rows",
                pieces.len(),
                known.min(weighed)
            );
            return Err(Error::model(&path, why));
        }
        let (unknown, chars) = if distilled {
            let mut lengths: Vec<usize> = pieces.all().map(|piece| piece.chars().count()).collect();
            lengths.sort_unstable();
            let median = lengths.get(lengths.len() / 2).copied().unwrap_or(1);
            (unknown(&path, &pieces)?, most.saturating_mul(median))
        } else {
            (None, usize::MAX)
        };
        Ok(Self {
            pieces,
            rows,
            row_of,
            weights,
            unknown,
            chars,
        })
    }

    pub(crate) fn dimensions(&self) -> usize {
        self.rows.width
    }

    pub(crate) fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// The direction of a text; zeros where it has no pieces.
    pub(crate) fn vector(&self, text: &str) -> Result<Vec<f32>> {
        let end = text.char_indices().nth(self.chars);
        let text = &text[..end.map_or(text.len(), |(at, _)| at)];
        let mut sum = vec![0.0; self.rows.width];
        for piece in self.pieces.of(text)? {
            if self.unknown == Some(piece) {
                continue;
            }
            let at = usize::try_from(piece).unwrap_or(usize::MAX);
            let of = |places: &Vec<usize>| places.get(at).copied();
            let row = self.row_of.as_ref().map_or(Some(at), of);
            let row = row.and_then(|row| self.rows.row(row));
            let weight = self.weights.as_ref();
            let weight = weight.map_or(Some(1.0), |weights| weights.get(at).copied());
            if let (Some(row), Some(weight)) = (row, weight) {
                for (sum, number) in sum.iter_mut().zip(row) {
                    *sum += weight * number;
                }
            }
        }
        Ok(sum)
    }
}

/// Pieces of a text that count, as `config.json` says.
fn said(folder: &Path) -> Result<usize> {
    let said: Option<serde_json::Value> = read(&folder.join("config.json"))?;
    let most = said.and_then(|said| said["max_length"].as_u64());
    let most = most.and_then(|most| usize::try_from(most).ok());
    Ok(most.unwrap_or(MOST_DISTILLED).clamp(1, MOST))
}

/// The piece that stands for what is none.
fn unknown(path: &Path, pieces: &Pieces) -> Result<Option<u32>> {
    let said: serde_json::Value = read(path)?.unwrap_or_default();
    let model = &said["model"];
    let numbered = model["unk_id"]
        .as_u64()
        .and_then(|id| u32::try_from(id).ok());
    Ok(numbered.or_else(|| pieces.number(model["unk_token"].as_str()?)))
}

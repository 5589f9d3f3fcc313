//! A static embedding table: each token has a row, and the embedding of a text is the mean of its rows.

use std::path::Path;

use crate::model::read_json;
use crate::tensors::{TensorFile, TensorRows};
use crate::tokenizer::TextTokenizer;
use crate::{Error, Result};

/// Tokens of a text that are used. Later tokens hardly change the mean.
const MAX_TOKENS: usize = 8_192;

/// The default token limit of a distilled table.
const DEFAULT_DISTILLED_TOKENS: usize = 512;

pub(crate) struct EmbeddingTable {
    tokenizer: TextTokenizer,
    rows: TensorRows,
    /// The row of each token. `None`: the row with the token's id.
    row_of: Option<Vec<usize>>,
    /// The weight of each token. `None`: all weights are equal.
    weights: Option<Vec<f32>>,
    /// The unknown token, if it is skipped.
    unknown: Option<u32>,
    /// Characters of a text that are tokenized.
    max_chars: usize,
}

impl EmbeddingTable {
    /// Returns the name of the table's tensor, if there is one: `embedding.weight` of a language model, or `embeddings` of a
    /// distilled encoder.
    pub(crate) fn tensor_name(tensors: &TensorFile) -> Option<&'static str> {
        let names = ["embedding.weight", "embeddings"];
        names.into_iter().find(|name| tensors.has(name))
    }

    pub(crate) fn open(folder: &Path, tensors: &TensorFile, name: &str) -> Result<Self> {
        let path = folder.join("tokenizer.json");
        let distilled = name == "embeddings";
        let most = if distilled {
            max_tokens(folder)?
        } else {
            MAX_TOKENS
        };
        let pieces = TextTokenizer::open(&path, most, false)?;
        let rows = tensors.rows(name)?;
        let row_of = tensors.has("mapping").then(|| {
            let within = 0..rows.len();
            tensors.indices("mapping", &within)
        });
        let row_of = row_of.transpose()?;
        let weights = tensors.has("weights").then(|| {
            let shape = tensors.shape("weights")?.to_vec();
            tensors.numbers("weights", &shape)
        });
        let weights = weights.transpose()?;
        let known = row_of.as_ref().map_or(rows.len(), Vec::len);
        let weighed = weights.as_ref().map_or(known, Vec::len);
        if known < pieces.vocabulary_len() || weighed < pieces.vocabulary_len() {
            let why = format!(
                "it has {} tokens, but the table has {} rows",
                pieces.vocabulary_len(),
                known.min(weighed)
            );
            return Err(Error::model(&path, why));
        }
        let (unknown, chars) = if distilled {
            let mut lengths: Vec<usize> = pieces
                .vocabulary()
                .map(|piece| piece.chars().count())
                .collect();
            lengths.sort_unstable();
            let median = lengths.get(lengths.len() / 2).copied().unwrap_or(1);
            (unknown_token(&path, &pieces)?, most.saturating_mul(median))
        } else {
            (None, usize::MAX)
        };
        Ok(Self {
            tokenizer: pieces,
            rows,
            row_of,
            weights,
            unknown,
            max_chars: chars,
        })
    }

    pub(crate) fn dimensions(&self) -> usize {
        self.rows.width
    }

    pub(crate) fn tokenizer(&self) -> &TextTokenizer {
        &self.tokenizer
    }

    /// Returns the sum of the rows of a text: zeros if it has no tokens. The length is not normalized.
    pub(crate) fn vector(&self, text: &str) -> Result<Vec<f32>> {
        let end = text.char_indices().nth(self.max_chars);
        let text = &text[..end.map_or(text.len(), |(at, _)| at)];
        let mut sum = vec![0.0; self.rows.width];
        for piece in self.tokenizer.tokenize(text)? {
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

/// Returns the token limit of a distilled table, from `config.json`.
fn max_tokens(folder: &Path) -> Result<usize> {
    let said: Option<serde_json::Value> = read_json(&folder.join("config.json"))?;
    let most = said.and_then(|said| said["max_length"].as_u64());
    let most = most.and_then(|most| usize::try_from(most).ok());
    Ok(most
        .unwrap_or(DEFAULT_DISTILLED_TOKENS)
        .clamp(1, MAX_TOKENS))
}

/// Returns the unknown token's id, from `tokenizer.json`.
fn unknown_token(path: &Path, pieces: &TextTokenizer) -> Result<Option<u32>> {
    let said: serde_json::Value = read_json(path)?.unwrap_or_default();
    let model = &said["model"];
    let numbered = model["unk_id"]
        .as_u64()
        .and_then(|id| u32::try_from(id).ok());
    Ok(numbered.or_else(|| pieces.token_id(model["unk_token"].as_str()?)))
}

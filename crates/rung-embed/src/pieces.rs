//! Texts as the pieces that a model knows, by their numbers, as the model's own `tokenizer.json` says.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tokenizers::{Tokenizer, TruncationParams};

use crate::{Error, Result};

/// Bytes of a tokenizer, at most.
const MAX_BYTES: u64 = 64 << 20;

/// Characters of a text that are looked at for each piece that there may be: more do not make more of them, unless it is
/// spaces.
const PIECE_CHARS: usize = 32;

/// What takes texts apart.
pub(crate) struct Pieces {
    path: PathBuf,
    tokenizer: Tokenizer,
    /// Pieces of a text, at most.
    pub(crate) most: usize,
    /// Whether the marks are added that say where a text begins and ends.
    marked: bool,
    pub(crate) digest: [u8; 32],
}

impl Pieces {
    /// Texts are taken apart into so many pieces at most, together with their marks where they have some.
    pub(crate) fn open(path: &Path, most: usize, marked: bool) -> Result<Self> {
        let failed = |error: std::io::Error| Error::model(path, error);
        let length = std::fs::metadata(path).map_err(failed)?;
        if length.len() > MAX_BYTES {
            return Err(Error::model(path, "it is longer than it can be"));
        }
        let text = std::fs::read(path).map_err(failed)?;
        let mut tokenizer =
            Tokenizer::from_bytes(&text).map_err(|error| Error::model(path, error))?;
        tokenizer.with_padding(None);
        let truncation = marked.then(|| TruncationParams {
            max_length: most,
            ..TruncationParams::default()
        });
        let cut = tokenizer.with_truncation(truncation);
        cut.map_err(|error| Error::model(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            tokenizer,
            most,
            marked,
            digest: Sha256::digest(&text).into(),
        })
    }

    /// The number of a piece that is named.
    pub(crate) fn number(&self, piece: &str) -> Option<u32> {
        self.tokenizer.token_to_id(piece)
    }

    /// Every piece.
    pub(crate) fn all(&self) -> impl Iterator<Item = String> {
        self.tokenizer.get_vocab(true).into_keys()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }

    /// The pieces of a text.
    pub(crate) fn of(&self, text: &str) -> Result<Vec<u32>> {
        let chars = self.most.saturating_mul(PIECE_CHARS);
        let end = text
            .char_indices()
            .nth(chars)
            .map_or(text.len(), |(at, _)| at);
        let pieces = self.tokenizer.encode_fast(&text[..end], self.marked);
        let pieces = pieces.map_err(|error| Error::model(&self.path, error))?;
        let numbers = pieces.get_ids();
        Ok(numbers[..numbers.len().min(self.most)].to_vec())
    }
}

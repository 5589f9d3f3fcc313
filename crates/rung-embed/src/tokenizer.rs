//! Tokenization of texts by the model's `tokenizer.json`.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tokenizers::{Tokenizer, TruncationParams};

use crate::{Error, Result};

/// Bytes of a `tokenizer.json`.
const MAX_BYTES: u64 = 64 << 20;

/// Characters of a text that are tokenized per allowed token. More characters do not yield more tokens, unless they are
/// spaces.
const TOKEN_CHARS: usize = 32;

/// A tokenizer with a token limit.
pub(crate) struct TextTokenizer {
    path: PathBuf,
    tokenizer: Tokenizer,
    /// The maximum number of tokens of a text.
    pub(crate) max_tokens: usize,
    /// True if the special tokens at the beginning and end of a text are added.
    adds_special_tokens: bool,
    pub(crate) digest: [u8; 32],
}

impl TextTokenizer {
    /// Loads a tokenizer. `most` is the token limit, including special tokens.
    pub(crate) fn open(path: &Path, most: usize, marked: bool) -> Result<Self> {
        let failed = |error: std::io::Error| Error::model(path, error);
        let length = std::fs::metadata(path).map_err(failed)?;
        if length.len() > MAX_BYTES {
            return Err(Error::model(path, "the file is too long"));
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
            max_tokens: most,
            adds_special_tokens: marked,
            digest: Sha256::digest(&text).into(),
        })
    }

    /// Returns the id of a token.
    pub(crate) fn token_id(&self, piece: &str) -> Option<u32> {
        self.tokenizer.token_to_id(piece)
    }

    /// Returns the vocabulary.
    pub(crate) fn vocabulary(&self) -> impl Iterator<Item = String> {
        self.tokenizer.get_vocab(true).into_keys()
    }

    /// Returns the size of the vocabulary.
    pub(crate) fn vocabulary_len(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }

    /// Returns the token ids of a text.
    pub(crate) fn tokenize(&self, text: &str) -> Result<Vec<u32>> {
        let chars = self.max_tokens.saturating_mul(TOKEN_CHARS);
        let end = text
            .char_indices()
            .nth(chars)
            .map_or(text.len(), |(at, _)| at);
        let pieces = self
            .tokenizer
            .encode_fast(&text[..end], self.adds_special_tokens);
        let pieces = pieces.map_err(|error| Error::model(&self.path, error))?;
        let numbers = pieces.get_ids();
        Ok(numbers[..numbers.len().min(self.max_tokens)].to_vec())
    }
}

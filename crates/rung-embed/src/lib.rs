//! Text embeddings.
//!
//! Owns: local models (a static [table](EmbeddingModel) of token vectors, or a BERT encoder), their evaluation, and remote
//! endpoints. Refuses to know: what the texts are, where vectors are stored, and who may choose a folder or an address.
//!
//! The laws it keeps: equal ids mean equal vectors for equal texts; a vector has length one, or is all zeros if the text has no
//! tokens; the key of an endpoint appears in no error, whatever the endpoint responds.

mod bert;
mod endpoint;
mod error;
mod import;
mod model;
mod table;
mod tensors;
mod threads;
mod tokenizer;
mod wheel;

use std::path::PathBuf;
use std::time::Instant;

use endpoint::Endpoint;
pub use endpoint::{EndpointConfig, EndpointKey};
pub use error::{Error, Result};
pub use import::{ImportedModel, import_model};
pub use model::EmbeddingModel;

/// The purpose of an embedding. Some models need a different prefix for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A text to be searched.
    Document,
    /// A search query.
    Query,
}

/// The prefixes that a model expects before a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefixes {
    /// The prefix of documents.
    pub document: String,
    /// The prefix of queries.
    pub query: String,
}

/// The source of embeddings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmbeddingSource {
    Folder(PathBuf),
    Endpoint(EndpointConfig),
}

/// Embeds texts by a local model or an endpoint.
#[derive(Debug)]
pub struct Embedder {
    backend: Backend,
    prefixes: Prefixes,
}

#[derive(Debug)]
enum Backend {
    Model(EmbeddingModel),
    Endpoint(Endpoint),
}

impl Embedder {
    /// Loads a local model; an endpoint is first contacted when there is a text to embed.
    pub fn new(source: &EmbeddingSource, prefixes: Prefixes) -> Result<Self> {
        let by = match source {
            EmbeddingSource::Folder(folder) => Backend::Model(EmbeddingModel::open(folder)?),
            EmbeddingSource::Endpoint(said) => Backend::Endpoint(Endpoint::new(said)?),
        };
        Ok(Self {
            backend: by,
            prefixes,
        })
    }

    /// Returns the id. Only vectors of the same id are comparable.
    pub fn id(&self) -> String {
        let id = match &self.backend {
            Backend::Model(model) => model.id().to_owned(),
            Backend::Endpoint(endpoint) => endpoint.id(),
        };
        match self.prefixes.document.as_str() {
            "" => id,
            prefix => format!("{id} after {prefix:?}"),
        }
    }

    /// Returns the length of the vectors. If unknown, it is requested from the endpoint.
    pub fn dimensions(&self) -> Result<usize> {
        match &self.backend {
            Backend::Model(model) => Ok(model.dimensions()),
            Backend::Endpoint(endpoint) => endpoint.dimensions(),
        }
    }

    /// Embeds texts as vectors of length one, or zeros if a text has no tokens. Fails after `ends`.
    pub fn embed<T: AsRef<str> + Sync>(
        &self,
        texts: &[T],
        purpose: Purpose,
        ends: Option<Instant>,
    ) -> Result<Vec<Vec<f32>>> {
        let prefix = match purpose {
            Purpose::Document => &self.prefixes.document,
            Purpose::Query => &self.prefixes.query,
        };
        if prefix.is_empty() {
            return match &self.backend {
                Backend::Model(model) => model.embed(texts, ends),
                Backend::Endpoint(endpoint) => endpoint.embed(texts, ends),
            };
        }
        let texts: Vec<String> = texts
            .iter()
            .map(|text| match text.as_ref() {
                text if text.trim().is_empty() => String::new(),
                text => format!("{prefix}{text}"),
            })
            .collect();
        match &self.backend {
            Backend::Model(model) => model.embed(&texts, ends),
            Backend::Endpoint(endpoint) => endpoint.embed(&texts, ends),
        }
    }
}

//! Texts as vectors, so that what means the same is near.
//!
//! Owns: models in folders (a static [table](Model) of pieces, or an encoder of the BERT family) and how they are worked out, and
//! endpoints that do it elsewhere. Refuses to know: what the texts are, where their vectors are kept, and who may name a folder or an
//! address.
//!
//! The laws it keeps: equal ids mean equal vectors for equal texts; a vector has length one, or is zeros where a text says nothing; and
//! the key of an endpoint is in no error, whatever the endpoint answers.

mod bert;
mod endpoint;
mod error;
mod model;
mod pieces;
mod table;
mod take;
mod tensors;
mod threads;
mod wheel;

use std::path::PathBuf;
use std::time::Instant;

use endpoint::Endpoint;
pub use endpoint::{Key, Said};
pub use error::{Error, Result};
pub use model::Model;
pub use take::{Taken, take};

/// What a text is embedded for. Some models want to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be found.
    Document,
    /// To find others.
    Query,
}

/// What a model wants to read before a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefixes {
    /// Before what is to be found.
    pub document: String,
    /// Before what finds others.
    pub query: String,
}

/// Where vectors come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The model in a folder.
    Folder(PathBuf),
    /// An endpoint.
    Endpoint(Said),
}

/// Who makes vectors of texts.
#[derive(Debug)]
pub struct Embedder {
    by: By,
    prefixes: Prefixes,
}

#[derive(Debug)]
enum By {
    Model(Model),
    Endpoint(Endpoint),
}

impl Embedder {
    /// A model is loaded now; an endpoint is asked when there is something to embed.
    pub fn new(source: &Source, prefixes: Prefixes) -> Result<Self> {
        let by = match source {
            Source::Folder(folder) => By::Model(Model::open(folder)?),
            Source::Endpoint(said) => By::Endpoint(Endpoint::new(said)?),
        };
        Ok(Self { by, prefixes })
    }

    /// What its vectors can be compared with: those of the same id.
    pub fn id(&self) -> String {
        let id = match &self.by {
            By::Model(model) => model.id().to_owned(),
            By::Endpoint(endpoint) => endpoint.id(),
        };
        match self.prefixes.document.as_str() {
            "" => id,
            prefix => format!("{id} after {prefix:?}"),
        }
    }

    /// Numbers of a vector. An endpoint that was not told to us is asked.
    pub fn dimensions(&self) -> Result<usize> {
        match &self.by {
            By::Model(model) => Ok(model.dimensions()),
            By::Endpoint(endpoint) => endpoint.dimensions(),
        }
    }

    /// The vectors of texts, each of length one; or zeros, where a text says nothing. After `ends` it is given up.
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
            return match &self.by {
                By::Model(model) => model.embed(texts, ends),
                By::Endpoint(endpoint) => endpoint.embed(texts, ends),
            };
        }
        let texts: Vec<String> = texts
            .iter()
            .map(|text| match text.as_ref() {
                text if text.trim().is_empty() => String::new(),
                text => format!("{prefix}{text}"),
            })
            .collect();
        match &self.by {
            By::Model(model) => model.embed(&texts, ends),
            By::Endpoint(endpoint) => endpoint.embed(&texts, ends),
        }
    }
}

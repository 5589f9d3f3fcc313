//! Semantic search of texts, by the embedding vectors that a model computes.
//!
//! The embedder is passed in from outside ([`Embed`]); the options of a database only name a model. The database stores which
//! model computed the vectors of a domain, and refuses vectors of another model.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rung_edn::{Map, Name, Value};
use rung_fault::{Code, Fault};
use rung_kv::{Batch, Kv, Table, View};
use rung_search::vectors::{Metric, VectorIndex, VectorOptions};

use crate::{Error, Result};

/// Computes embedding vectors of texts.
pub trait Embed: fmt::Debug + Send + Sync {
    /// Returns an id of the model of that name. Two models with the same id compute equal vectors for equal texts.
    fn id(&self, model: &str) -> Result<String, Fault>;

    /// Returns the number of dimensions of the model's vectors.
    fn dimensions(&self, model: &str) -> Result<usize, Fault>;

    /// Returns one vector for each text; all zeros for a text without content. `ends` is the deadline.
    fn embed(
        &self,
        model: &str,
        texts: &[&str],
        purpose: Purpose,
        ends: Option<Instant>,
    ) -> Result<Vec<Vec<f32>>, Fault>;
}

/// The purpose of an embedding. Some models embed documents and queries differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A text to be found.
    Document,
    /// A text to search for.
    Query,
}

/// The model to use if the options name none.
const DEFAULT_MODEL: &str = "default";

/// The names of the index options of a domain.
const INDEX_OPTIONS: [&str; 6] = [
    "dimensions",
    "metric-type",
    "quantization",
    "connectivity",
    "expansion-add",
    "expansion-search",
];

/// Query texts whose vectors are cached, at most.
const MAX_RECENT_QUERIES: usize = 64;

/// The embedding vectors of the texts of a domain.
#[derive(Debug, Clone)]
pub(crate) struct Embeddings {
    pub(crate) index: VectorIndex,
    domain: String,
    /// The name of the model in the options.
    model: String,
    /// The id of the model that computed the stored vectors.
    id: String,
    recent: Arc<Mutex<HashMap<String, Arc<[f32]>>>>,
}

/// The store, and the table that records which model computed the vectors of a domain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexStorage<'p> {
    pub(crate) kv: &'p Kv,
    pub(crate) meta: Table,
}

/// The embedder, if there is one.
pub(crate) type EmbedderRef<'b> = Option<&'b Arc<dyn Embed>>;

fn model_key(domain: &str) -> Vec<u8> {
    format!("embeddings/{domain}").into_bytes()
}

fn no_model_error() -> Error {
    let fault = Fault::new(Code::InvalidSetting, "no embedding model is configured")
        .with_hint("the operator adds [embeddings.default] with dir or url to the settings");
    Error::Embedding(Box::new(fault))
}

fn embedding_error(fault: Fault) -> Error {
    Error::Embedding(Box::new(fault))
}

/// The error for a model that did not compute the vectors of a domain.
fn other_model_error(domain: &str, model: &str) -> Error {
    let why = format!(
        "the embeddings of {domain:?} were not computed by the current version of the model {model:?}"
    );
    let hint = "configure the model that computed them; or remove :db/embedding from the attributes of that domain and set it again, which embeds their texts again";
    embedding_error(Fault::new(Code::InvalidSetting, why).with_hint(hint))
}

fn require_embedder(by: EmbedderRef<'_>) -> Result<&Arc<dyn Embed>> {
    by.ok_or_else(no_model_error)
}

/// Returns the name of the model in options. `None` if the provider is not a name.
fn model_name(given: Option<&Value>) -> Option<String> {
    let said = given.and_then(Value::as_map);
    match said.and_then(|said| said.get(&Value::keyword("provider"))) {
        None | Some(Value::Nil) => Some(DEFAULT_MODEL.to_owned()),
        Some(Value::String(name)) => Some(name.to_string()),
        Some(Value::Keyword(name) | Value::Symbol(name)) => Some(name.to_string()),
        Some(_) => None,
    }
}

/// Reads the options of a vector index.
fn index_options(given: Option<&Value>, dimensions: usize) -> Result<VectorOptions> {
    let wrong = |why: String, hint: &'static str| {
        embedding_error(Fault::new(Code::InvalidRequest, why).with_hint(hint))
    };
    let empty = Value::Map(Map::new());
    let given = given.unwrap_or(&empty);
    let said = given.as_map().ok_or_else(|| {
        let why = format!("{given} is not a map of embedding options");
        wrong(
            why,
            "pass {:provider NAME}, where NAME is a model of the settings",
        )
    })?;
    let number = |number: usize| Value::Long(i64::try_from(number).unwrap_or(i64::MAX));
    let mut members = Map::new();
    for (name, value) in said {
        match name.as_keyword().map(Name::as_str) {
            Some("provider" | "domain" | "embedding-metadata") => {}
            Some(known) if INDEX_OPTIONS.contains(&known) => {
                members.insert(name.clone(), value.clone());
            }
            _ => {
                let why = format!("{name} is not an embedding option");
                let hint = "pass {:provider NAME}; folders, addresses and keys of models are in the settings, under [embeddings.NAME]";
                return Err(wrong(why, hint));
            }
        }
    }
    let key = Value::keyword("dimensions");
    if members
        .get(&key)
        .is_some_and(|said| *said != number(dimensions))
    {
        let why = format!("the model computes vectors of {dimensions} numbers");
        return Err(wrong(why, "leave :dimensions out; the model determines it"));
    }
    members.insert(key, number(dimensions));
    let mut options = VectorOptions::read(&Value::Map(members))?;
    options.metric.get_or_insert(Metric::Cosine);
    Ok(options)
}

impl Embeddings {
    /// Opens the stored embeddings of a domain. `None` if there are none.
    pub(crate) fn open(
        place: IndexStorage<'_>,
        domain: &str,
        given: Option<&Value>,
    ) -> Result<Option<Self>> {
        let index = VectorIndex::open(place.kv, &index_name(domain), None, false)?;
        let id = place
            .kv
            .read(|view| stored_model_id(view, place.meta, domain))?;
        let (Some(index), Some(id)) = (index, id) else {
            return Ok(None);
        };
        Ok(Some(Self {
            index,
            domain: domain.to_owned(),
            model: model_name(given).unwrap_or_else(|| DEFAULT_MODEL.to_owned()),
            id,
            recent: Arc::default(),
        }))
    }

    /// Opens or creates the embeddings of a domain for the model that options name. Fails if it has vectors of another model.
    pub(crate) fn create(
        place: IndexStorage<'_>,
        domain: &str,
        given: Option<&Value>,
        by: EmbedderRef<'_>,
    ) -> Result<Self> {
        let Some(model) = model_name(given) else {
            let why = ":provider is a string or a keyword";
            return Err(embedding_error(Fault::new(Code::InvalidRequest, why)));
        };
        let by = require_embedder(by)?;
        let id = by.id(&model).map_err(embedding_error)?;
        let options = index_options(given, by.dimensions(&model).map_err(embedding_error)?)?;
        let known = place
            .kv
            .read(|view| stored_model_id(view, place.meta, domain))?;
        if let Some(index) = VectorIndex::open(place.kv, &index_name(domain), None, false)?
            && known.as_ref() != Some(&id)
        {
            // An index without vectors can change its model.
            place.kv.write(|batch| {
                if !index.is_empty(batch.view())? {
                    return Err(other_model_error(domain, &model));
                }
                index.reset(batch)?;
                batch.delete(place.meta, &model_key(domain))?;
                Ok(())
            })?;
        }
        let index = VectorIndex::open(place.kv, &index_name(domain), Some(&options), true)?;
        let index = index.ok_or(Error::ReadOnly)?;
        let made = Self {
            index,
            domain: domain.to_owned(),
            model,
            id,
            recent: Arc::default(),
        };
        place.kv.write(|batch| {
            // Another writer may have stored its model first.
            match stored_model_id(batch.view(), place.meta, domain)? {
                Some(known) if known != made.id => Err(other_model_error(domain, &made.model)),
                Some(_) => Ok(()),
                None => Ok(batch.put(place.meta, &model_key(domain), made.id.as_bytes())?),
            }
        })?;
        Ok(made)
    }

    /// Returns an error if the current model did not compute the stored vectors.
    fn check_model(&self, by: EmbedderRef<'_>) -> Result<()> {
        if require_embedder(by)?
            .id(&self.model)
            .map_err(embedding_error)?
            == self.id
        {
            Ok(())
        } else {
            Err(other_model_error(&self.domain, &self.model))
        }
    }

    /// Returns an error if the stored vectors have been replaced by those of another model since the embeddings were opened.
    fn check_stored_model(&self, view: View<'_>, meta: Table) -> Result<()> {
        if stored_model_id(view, meta, &self.domain)?.as_deref() == Some(self.id.as_str()) {
            Ok(())
        } else {
            Err(other_model_error(&self.domain, &self.model))
        }
    }

    /// Returns the vector of a query text. `None` if the text has no content.
    pub(crate) fn query_vector(
        &self,
        (view, meta): (View<'_>, Table),
        by: EmbedderRef<'_>,
        text: &str,
        ends: Option<Instant>,
    ) -> Result<Option<Arc<[f32]>>> {
        self.check_stored_model(view, meta)?;
        let known = self.recent.lock().get(text).cloned();
        let vector = if let Some(known) = known {
            known
        } else {
            self.check_model(by)?;
            let vectors = require_embedder(by)?.embed(&self.model, &[text], Purpose::Query, ends);
            let vector = vectors.map_err(embedding_error)?.pop().unwrap_or_default();
            let vector: Arc<[f32]> = vector.into();
            let mut recent = self.recent.lock();
            if recent.len() >= MAX_RECENT_QUERIES {
                recent.clear();
            }
            recent.insert(text.to_owned(), vector.clone());
            vector
        };
        Ok(Some(vector).filter(|vector| is_nonzero(vector)))
    }
}

fn is_nonzero(vector: &[f32]) -> bool {
    vector.iter().any(|number| *number != 0.0)
}

/// Returns the name of the index of a domain. Vectors of the same domain that are values themselves are in another index.
fn index_name(domain: &str) -> String {
    format!("embedding/{domain}")
}

fn stored_model_id(view: View<'_>, meta: Table, domain: &str) -> Result<Option<String>> {
    let kept = view.get(meta, &model_key(domain))?;
    Ok(kept.map(|id| String::from_utf8_lossy(id).into_owned()))
}

/// Texts by domain.
pub(crate) type Texts = HashMap<String, BTreeSet<Arc<str>>>;

/// Vectors that were computed before a transaction began, by model and text.
#[derive(Debug, Default)]
pub(crate) struct PreparedVectors(HashMap<String, HashMap<Arc<str>, Vec<f32>>>);

impl PreparedVectors {
    fn get(&self, model: &str, text: &str) -> Option<&Vec<f32>> {
        self.0.get(model)?.get(text)
    }

    /// Computes the vectors of the texts that have none.
    pub(crate) fn prepare(
        &mut self,
        texts: &Texts,
        of: &HashMap<String, Embeddings>,
        by: EmbedderRef<'_>,
    ) -> Result<()> {
        for (domain, texts) in texts {
            let Some(embeddings) = of.get(domain) else {
                continue;
            };
            embeddings.check_model(by)?;
            let known = self.0.entry(embeddings.model.clone()).or_default();
            let new: Vec<&Arc<str>> = texts
                .iter()
                .filter(|text| !known.contains_key(*text))
                .collect();
            let asked_for: Vec<&str> = new.iter().map(|text| &***text).collect();
            let made =
                require_embedder(by)?.embed(&embeddings.model, &asked_for, Purpose::Document, None);
            let made = made.map_err(embedding_error)?;
            if made.len() != new.len() {
                let why = format!(
                    "{} texts were embedded as {} vectors",
                    new.len(),
                    made.len()
                );
                return Err(embedding_error(Fault::new(Code::SourceFailed, why)));
            }
            known.extend(new.into_iter().cloned().zip(made));
        }
        Ok(())
    }
}

/// The changes of a transaction to the embeddings of a domain: a reference with its new text, or `None` if it is removed.
#[derive(Debug, Default)]
pub(crate) struct EmbeddingChanges(Vec<(Vec<u8>, Option<Arc<str>>)>);

impl EmbeddingChanges {
    pub(crate) fn push(&mut self, reference: &[u8], text: Option<Arc<str>>) {
        self.0.push((reference.to_vec(), text));
    }

    /// The texts whose vectors are not prepared.
    pub(crate) fn missing_texts(
        &self,
        domain: &str,
        of: Option<&Embeddings>,
        prepared: &PreparedVectors,
    ) -> Result<BTreeSet<Arc<str>>> {
        let mut texts = self.0.iter().filter_map(|(_, text)| text.as_ref());
        let Some(of) = of else {
            if texts.next().is_none() {
                return Ok(BTreeSet::new());
            }
            let why = format!("no model is configured for the embeddings of {domain:?}");
            let hint = "configure a model in the settings, then remove :db/embedding from the attributes of that domain and set it again";
            let fault = Fault::new(Code::InvalidSetting, why).with_hint(hint);
            return Err(embedding_error(fault));
        };
        let is_wanting = |text: &&Arc<str>| prepared.get(&of.model, text).is_none();
        Ok(texts.filter(is_wanting).cloned().collect())
    }

    /// Writes the changes to the index.
    pub(crate) fn apply(
        self,
        batch: &mut Batch<'_>,
        meta: Table,
        of: &Embeddings,
        prepared: &PreparedVectors,
    ) -> Result<()> {
        of.check_stored_model(batch.view(), meta)?;
        let mut added: Vec<(Vec<u8>, &Vec<f32>)> = Vec::new();
        for (reference, text) in self.0 {
            if let Some(text) = text {
                let vector = prepared.get(&of.model, &text);
                let vector = vector.filter(|vector| is_nonzero(vector));
                added.extend(vector.map(|vector| (reference, vector)));
                continue;
            }
            // Keep the order of the changes: a transaction may add and remove the same text.
            of.index.add_many(batch, std::mem::take(&mut added))?;
            of.index.remove(batch, &reference)?;
        }
        Ok(of.index.add_many(batch, added)?)
    }
}

/// Returns the domains of an attribute's texts, without duplicates. `usual` is the default domain.
pub(crate) fn domains(names: Vec<String>, own: Option<&Name>, usual: &str) -> Vec<String> {
    let mut domains = names;
    if domains.is_empty() {
        domains.push(usual.to_owned());
    }
    domains.extend(own.map(|name| name.as_str().replace('/', "_")));
    let mut known = HashSet::new();
    domains.retain(|domain| known.insert(domain.clone()));
    domains
}

//! The search indexes of values: full-text indexes, vector indexes, and vector indexes of embedded texts. They change in the same
//! transaction as the facts.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rung_edn::{Map, Value};
use rung_kv::{Batch, Table};
use rung_search::text::{DocumentChange, TextIndex, TextOptions};
use rung_search::vectors::{VectorIndex, VectorOptions};

use crate::embedding::{self, Embed, Embeddings, IndexStorage, PreparedVectors, Texts};
use crate::schema::{Attribute, Schema, Type};
use crate::{Error, Result};

/// The domain of texts if an attribute names none.
const DEFAULT_DOMAIN: &str = "datalevin";

/// The search indexes of a database, by domain.
#[derive(Debug, Clone, Default)]
pub(crate) struct SearchIndexes {
    pub(crate) texts: HashMap<String, TextIndex>,
    pub(crate) vectors: HashMap<String, VectorIndex>,
    pub(crate) embeddings: HashMap<String, Embeddings>,
    embedder: Option<Arc<dyn Embed>>,
    /// The domains of each attribute that has any, by attribute id.
    domains_by_attribute: HashMap<u32, IndexDomains>,
}

/// The domains in which the values of an attribute are indexed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IndexDomains {
    pub(crate) texts: Vec<String>,
    pub(crate) vectors: Vec<String>,
    pub(crate) embeddings: Vec<String>,
}

impl IndexDomains {
    pub(crate) fn from_attribute(attribute: &Attribute) -> Self {
        let said = |name: &str| attribute.extra.get(&Value::keyword(name));
        let is_set = |name: &str| said(name).is_some_and(Value::is_truthy);
        let named = |name: &str| -> Vec<String> {
            let names = said(name).and_then(Value::as_sequence).unwrap_or_default();
            names
                .iter()
                .filter_map(|name| Some(name.as_str()?.to_owned()))
                .collect()
        };
        let mut domains = Self::default();
        if is_set("db/fulltext") {
            domains.texts = named("db.fulltext/domains");
            if domains.texts.is_empty() {
                domains.texts.push(DEFAULT_DOMAIN.to_owned());
            }
            if is_set("db.fulltext/autoDomain") {
                domains.texts.push(attribute.name.to_string());
            }
        }
        if is_set("db/embedding") {
            let own = is_set("db.embedding/autoDomain").then_some(&attribute.name);
            domains.embeddings =
                embedding::domains(named("db.embedding/domains"), own, DEFAULT_DOMAIN);
        }
        if attribute.kind == Some(Type::Vec) {
            domains.vectors = named("db.vec/domains");
            domains
                .vectors
                .push(attribute.name.as_str().replace('/', "_"));
        }
        domains
    }
}

impl SearchIndexes {
    /// Opens the indexes of the attributes of a schema with the options of the database. Creates missing indexes if the store is
    /// writable; embedding indexes only for the domains in `made`, for which the embedder must know the model.
    pub(crate) fn open(
        place: IndexStorage<'_>,
        schema: &Schema,
        options: &Map,
        by: Option<&Arc<dyn Embed>>,
        made: &HashSet<String>,
    ) -> Result<Self> {
        let kv = place.kv;
        let option = |all: &str, each: &str, domain: &str| {
            let each = options.get(&Value::keyword(each)).and_then(Value::as_map);
            let own = each.and_then(|each| each.get(&Value::text(domain)));
            own.or_else(|| options.get(&Value::keyword(all))).cloned()
        };
        let mut indexes = Self {
            embedder: by.cloned(),
            ..Self::default()
        };
        for attribute in schema.attributes() {
            let domains = IndexDomains::from_attribute(attribute);
            for domain in &domains.texts {
                let given = option("search-opts", "search-domains", domain);
                let given = given.unwrap_or_else(|| Value::Map(Map::new()));
                let index = if kv.is_writable() {
                    Some(TextIndex::create(
                        kv,
                        domain,
                        TextOptions::from_edn(&given)?,
                    )?)
                } else {
                    TextIndex::open(kv, domain)?
                };
                indexes
                    .texts
                    .extend(index.map(|index| (domain.clone(), index)));
            }
            for domain in &domains.vectors {
                let given = option("vector-opts", "vector-domains", domain);
                let given = given.as_ref().map(VectorOptions::read).transpose()?;
                let index = VectorIndex::open(
                    kv,
                    domain,
                    given.as_ref(),
                    kv.is_writable() && given.is_some(),
                )?;
                indexes
                    .vectors
                    .extend(index.map(|index| (domain.clone(), index)));
            }
            for domain in &domains.embeddings {
                if indexes.embeddings.contains_key(domain) {
                    continue;
                }
                let given = option("embedding-opts", "embedding-domains", domain);
                let index = if made.contains(domain) {
                    Some(Embeddings::create(place, domain, given.as_ref(), by)?)
                } else {
                    Embeddings::open(place, domain, given.as_ref())?
                };
                indexes
                    .embeddings
                    .extend(index.map(|index| (domain.clone(), index)));
            }
            if domains != IndexDomains::default() {
                indexes.domains_by_attribute.insert(attribute.id, domains);
            }
        }
        Ok(indexes)
    }

    pub(crate) fn embedder(&self) -> Option<&Arc<dyn Embed>> {
        self.embedder.as_ref()
    }

    /// Computes the vectors of texts, so that a transaction does not have to wait for them.
    pub(crate) fn prepare(&self, texts: &Texts, prepared: &mut PreparedVectors) -> Result<()> {
        prepared.prepare(texts, &self.embeddings, self.embedder())
    }

    /// Returns the domains of an attribute. `None` if it has none.
    pub(crate) fn domains(&self, a: u32) -> Option<&IndexDomains> {
        self.domains_by_attribute.get(&a)
    }
}

impl IndexDomains {
    /// Returns the domains that are not in `others`.
    pub(crate) fn difference(&self, others: &Self) -> Self {
        let beyond = |own: &[String], known: &[String]| -> Vec<String> {
            let new = own.iter().filter(|domain| !known.contains(domain));
            new.cloned().collect()
        };
        Self {
            texts: beyond(&self.texts, &others.texts),
            vectors: beyond(&self.vectors, &others.vectors),
            embeddings: beyond(&self.embeddings, &others.embeddings),
        }
    }
}

/// A reference, with its vector if it is added.
type VectorChange = (Vec<u8>, Option<Vec<f32>>);

/// The changes of a transaction to the search indexes.
#[derive(Debug, Default)]
pub(crate) struct IndexChanges {
    texts: HashMap<String, Vec<DocumentChange<Vec<u8>, String>>>,
    vectors: HashMap<String, Vec<VectorChange>>,
    embeddings: HashMap<String, embedding::EmbeddingChanges>,
}

impl IndexChanges {
    /// Records an added or removed fact, by its key.
    pub(crate) fn record(
        &mut self,
        domains: &IndexDomains,
        key: &[u8],
        value: &Value,
        added: bool,
    ) {
        if let Some(text) = indexed_text(domains, value) {
            for domain in &domains.texts {
                let change = if added {
                    DocumentChange::Add(key.to_vec(), text.clone().into_owned())
                } else {
                    DocumentChange::Remove(key.to_vec())
                };
                self.texts.entry(domain.clone()).or_default().push(change);
            }
        }
        if let Value::String(text) = value {
            for domain in &domains.embeddings {
                let own = self.embeddings.entry(domain.clone()).or_default();
                own.push(key, added.then(|| text.clone()));
            }
        }
        if let Some(vector) = vector_numbers(value) {
            for domain in &domains.vectors {
                let own = self.vectors.entry(domain.clone()).or_default();
                own.push((key.to_vec(), added.then(|| vector.clone())));
            }
        }
    }

    /// Returns the texts that need a vector and have none in `prepared`.
    pub(crate) fn missing_texts(
        &self,
        indexes: &SearchIndexes,
        prepared: &PreparedVectors,
    ) -> Result<Texts> {
        let mut all = Texts::new();
        for (domain, changes) in &self.embeddings {
            let of = indexes.embeddings.get(domain);
            let texts = changes.missing_texts(domain, of, prepared)?;
            if !texts.is_empty() {
                all.insert(domain.clone(), texts);
            }
        }
        Ok(all)
    }

    /// Writes the changes to the indexes.
    pub(crate) fn apply(
        &mut self,
        batch: &mut Batch<'_>,
        meta: Table,
        indexes: &SearchIndexes,
        prepared: &PreparedVectors,
    ) -> Result<()> {
        for (domain, changes) in self.embeddings.drain() {
            if let Some(of) = indexes.embeddings.get(&domain) {
                changes.apply(batch, meta, of, prepared)?;
            }
        }
        for (domain, changes) in self.texts.drain() {
            if let Some(index) = indexes.texts.get(&domain) {
                index.apply(batch, changes)?;
            }
        }
        for (domain, changes) in self.vectors.drain() {
            let Some(index) = indexes.vectors.get(&domain) else {
                let why = format!(
                    "the vectors of {domain:?} have no index; set :dimensions in :vector-opts of the database"
                );
                return Err(Error::Transaction(why));
            };
            for (reference, vector) in changes {
                match vector {
                    Some(vector) => index.add(batch, &reference, &vector)?,
                    None => {
                        index.remove(batch, &reference)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the text of a value to index. The text of a document has its keys and values, one a line.
fn indexed_text<'v>(domains: &IndexDomains, value: &'v Value) -> Option<Cow<'v, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Map(_) | Value::Vector(_)
            if !domains.texts.is_empty() && domains.vectors.is_empty() =>
        {
            let mut text = String::new();
            collect_text(value, &mut text);
            Some(Cow::Owned(text))
        }
        _ => None,
    }
}

fn collect_text(value: &Value, into: &mut String) {
    match value {
        Value::Map(members) => {
            for (key, value) in members {
                collect_text(key, into);
                collect_text(value, into);
            }
            return;
        }
        Value::Vector(items) => return items.iter().for_each(|item| collect_text(item, into)),
        Value::String(text) => into.push_str(text),
        Value::Keyword(name) => {
            into.push_str(name.as_str());
            // Also index the words that a name consists of.
            let words = name.as_str().replace(['-', '_', '.', '/'], " ");
            if words != name.as_str() {
                into.push('\n');
                into.push_str(&words);
            }
        }
        other => into.push_str(&other.to_string()),
    }
    into.push('\n');
}

/// Converts a sequence of numbers to a vector.
#[expect(
    clippy::cast_possible_truncation,
    reason = "vectors have numbers of 32 bits"
)]
pub(crate) fn vector_numbers(value: &Value) -> Option<Vec<f32>> {
    let numbers = value.as_sequence()?.iter();
    let number = |number: &Value| match number {
        Value::Float(number) => Some(*number),
        number => Some(number.as_f64()? as f32),
    };
    numbers.map(number).collect()
}

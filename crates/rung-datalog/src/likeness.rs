//! Values that are found by likeness: texts by their words or by what they mean, vectors by what is near. Their indexes change in
//! the transaction of the facts themselves.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rung_edn::{Map, Value};
use rung_kv::{Batch, Table};
use rung_search::text::{Change, TextIndex, TextOptions};
use rung_search::vectors::{VectorIndex, VectorOptions};

use crate::embedding::{self, Embed, Embeddings, Place, Prepared, Texts};
use crate::schema::{Attribute, Schema, Type};
use crate::{Error, Result};

/// The domain of texts, where an attribute names none.
const DOMAIN: &str = "datalevin";

/// The indexes of a database.
#[derive(Debug, Clone, Default)]
pub(crate) struct Indexes {
    pub(crate) texts: HashMap<String, TextIndex>,
    pub(crate) vectors: HashMap<String, VectorIndex>,
    pub(crate) embeddings: HashMap<String, Embeddings>,
    /// Who makes embeddings.
    by: Option<Arc<dyn Embed>>,
    /// The domains of each attribute that has some.
    of: HashMap<u32, Domains>,
}

/// Where the values of an attribute are found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Domains {
    pub(crate) texts: Vec<String>,
    pub(crate) vectors: Vec<String>,
    pub(crate) embeddings: Vec<String>,
}

impl Domains {
    pub(crate) fn of(attribute: &Attribute) -> Self {
        let said = |name: &str| attribute.further.get(&Value::keyword(name));
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
                domains.texts.push(DOMAIN.to_owned());
            }
            if is_set("db.fulltext/autoDomain") {
                domains.texts.push(attribute.name.to_string());
            }
        }
        if is_set("db/embedding") {
            let own = is_set("db.embedding/autoDomain").then_some(&attribute.name);
            domains.embeddings = embedding::domains(named("db.embedding/domains"), own, DOMAIN);
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

impl Indexes {
    /// The indexes of the attributes of a schema, with the options of the database. They are made where they are not there, if they may
    /// be; but embeddings only of the domains in `made`, for which a model is asked what it makes.
    pub(crate) fn open(
        place: Place<'_>,
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
            by: by.cloned(),
            ..Self::default()
        };
        for attribute in schema.attributes() {
            let domains = Domains::of(attribute);
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
                    Some(Embeddings::make(place, domain, given.as_ref(), by)?)
                } else {
                    Embeddings::open(place, domain, given.as_ref())?
                };
                indexes
                    .embeddings
                    .extend(index.map(|index| (domain.clone(), index)));
            }
            if domains != Domains::default() {
                indexes.of.insert(attribute.id, domains);
            }
        }
        Ok(indexes)
    }

    /// Who makes embeddings.
    pub(crate) fn by(&self) -> Option<&Arc<dyn Embed>> {
        self.by.as_ref()
    }

    /// Makes the vectors of texts, so that a transaction need not wait for them.
    pub(crate) fn prepare(&self, texts: &Texts, prepared: &mut Prepared) -> Result<()> {
        prepared.add(texts, &self.embeddings, self.by())
    }

    /// The domains of an attribute, where it has some.
    pub(crate) fn domains(&self, a: u32) -> Option<&Domains> {
        self.of.get(&a)
    }
}

impl Domains {
    /// Those that others do not have.
    pub(crate) fn beyond(&self, others: &Self) -> Self {
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

/// A reference, with its vector where it is added.
type Placed = (Vec<u8>, Option<Vec<f32>>);

/// What a transaction changes in indexes.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    texts: HashMap<String, Vec<Change<Vec<u8>, String>>>,
    vectors: HashMap<String, Vec<Placed>>,
    embeddings: HashMap<String, embedding::Changes>,
}

impl Changes {
    /// Takes in that a fact came to be, or is one no longer; by its key.
    pub(crate) fn note(&mut self, domains: &Domains, key: &[u8], value: &Value, added: bool) {
        if let Some(text) = text(domains, value) {
            for domain in &domains.texts {
                let change = if added {
                    Change::Add(key.to_vec(), text.clone().into_owned())
                } else {
                    Change::Remove(key.to_vec())
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
        if let Some(vector) = numbers(value) {
            for domain in &domains.vectors {
                let own = self.vectors.entry(domain.clone()).or_default();
                own.push((key.to_vec(), added.then(|| vector.clone())));
            }
        }
    }

    /// The texts whose vectors are needed for this, and not prepared.
    pub(crate) fn wanting(&self, indexes: &Indexes, prepared: &Prepared) -> Result<Texts> {
        let mut all = Texts::new();
        for (domain, changes) in &self.embeddings {
            let of = indexes.embeddings.get(domain);
            let texts = changes.wanting(domain, of, prepared)?;
            if !texts.is_empty() {
                all.insert(domain.clone(), texts);
            }
        }
        Ok(all)
    }

    /// Makes them.
    pub(crate) fn apply(
        &mut self,
        batch: &mut Batch<'_>,
        meta: Table,
        indexes: &Indexes,
        prepared: &Prepared,
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
                    "the vectors of {domain:?} have no index: say their :dimensions in :vector-opts of the database"
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

/// The text by whose words a value is found: a document's are its keys and all that it says, one a line.
fn text<'v>(domains: &Domains, value: &'v Value) -> Option<Cow<'v, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Map(_) | Value::Vector(_)
            if !domains.texts.is_empty() && domains.vectors.is_empty() =>
        {
            let mut text = String::new();
            gather(value, &mut text);
            Some(Cow::Owned(text))
        }
        _ => None,
    }
}

fn gather(value: &Value, into: &mut String) {
    match value {
        Value::Map(members) => {
            for (key, value) in members {
                gather(key, into);
                gather(value, into);
            }
            return;
        }
        Value::Vector(items) => return items.iter().for_each(|item| gather(item, into)),
        Value::String(text) => into.push_str(text),
        Value::Keyword(name) => {
            into.push_str(name.as_str());
            // The words that a name is made of are found as well.
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

/// The numbers of a vector.
#[expect(
    clippy::cast_possible_truncation,
    reason = "vectors have numbers of 32 bits"
)]
pub(crate) fn numbers(value: &Value) -> Option<Vec<f32>> {
    let numbers = value.as_sequence()?.iter();
    let number = |number: &Value| match number {
        Value::Float(number) => Some(*number),
        number => Some(number.as_f64()? as f32),
    };
    numbers.map(number).collect()
}

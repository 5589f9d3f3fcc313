//! Texts that are found by what they mean: by the vectors that a model makes of them.
//!
//! Who makes them is given from outside ([`Embed`]); a database says by name alone which model it means. It remembers which
//! one made the vectors of a domain, and takes none of another.

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

/// Makes vectors of texts.
pub trait Embed: fmt::Debug + Send + Sync {
    /// What tells the model of that name from every other: where this is equal, so are its vectors of equal texts.
    fn id(&self, model: &str) -> Result<String, Fault>;

    /// Numbers of the vectors that it makes.
    fn dimensions(&self, model: &str) -> Result<usize, Fault>;

    /// The vectors of texts, one for each; zeros where a text says nothing. After `ends` nobody waits for them.
    fn embed(
        &self,
        model: &str,
        texts: &[&str],
        purpose: Purpose,
        ends: Option<Instant>,
    ) -> Result<Vec<Vec<f32>>, Fault>;
}

/// What a text is embedded for. Some models want to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be found.
    Document,
    /// To find others.
    Query,
}

/// The model that is meant where the options name none.
const MODEL: &str = "default";

/// What options may say of the index of a domain.
const OPTIONS: [&str; 6] = [
    "dimensions",
    "metric-type",
    "quantization",
    "connectivity",
    "expansion-add",
    "expansion-search",
];

/// Texts that were searched for, of which the vectors are remembered.
const RECENT: usize = 64;

/// The vectors of a domain's texts.
#[derive(Debug, Clone)]
pub(crate) struct Embeddings {
    pub(crate) index: VectorIndex,
    domain: String,
    /// The name of the model that makes them.
    model: String,
    /// What tells the model that made them from every other.
    id: String,
    recent: Arc<Mutex<HashMap<String, Arc<[f32]>>>>,
}

/// Where it is kept which model made the vectors of a domain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'p> {
    pub(crate) kv: &'p Kv,
    pub(crate) meta: Table,
}

/// Who is asked for vectors, or nobody.
pub(crate) type By<'b> = Option<&'b Arc<dyn Embed>>;

fn row(domain: &str) -> Vec<u8> {
    format!("embeddings/{domain}").into_bytes()
}

fn nobody() -> Error {
    let fault = Fault::new(Code::InvalidSetting, "no model makes vectors of texts here")
        .with_hint("name one in the settings, as [embeddings.default] with dir or url");
    Error::Embedding(Box::new(fault))
}

fn failed(fault: Fault) -> Error {
    Error::Embedding(Box::new(fault))
}

/// A model that did not make the vectors of a domain.
fn other(domain: &str, model: &str) -> Error {
    let why =
        format!("the embeddings of {domain:?} are not those of the model {model:?} as it is now");
    let hint = "name the model that made them; or take :db/embedding from the attributes of that domain and give it back, and their texts are embedded anew";
    failed(Fault::new(Code::InvalidSetting, why).with_hint(hint))
}

fn asked(by: By<'_>) -> Result<&Arc<dyn Embed>> {
    by.ok_or_else(nobody)
}

/// The name of the model that options mean.
fn model(given: Option<&Value>) -> Option<String> {
    let said = given.and_then(Value::as_map);
    match said.and_then(|said| said.get(&Value::keyword("provider"))) {
        None | Some(Value::Nil) => Some(MODEL.to_owned()),
        Some(Value::String(name)) => Some(name.to_string()),
        Some(Value::Keyword(name) | Value::Symbol(name)) => Some(name.to_string()),
        Some(_) => None,
    }
}

/// What options say of the index.
fn options(given: Option<&Value>, dimensions: usize) -> Result<VectorOptions> {
    let wrong = |why: String, hint: &'static str| {
        failed(Fault::new(Code::InvalidRequest, why).with_hint(hint))
    };
    let empty = Value::Map(Map::new());
    let given = given.unwrap_or(&empty);
    let said = given.as_map().ok_or_else(|| {
        let why = format!("{given} are no options of embeddings: they are a map");
        wrong(why, "say {:provider NAME}, as the settings name a model")
    })?;
    let number = |number: usize| Value::Long(i64::try_from(number).unwrap_or(i64::MAX));
    let mut members = Map::new();
    for (name, value) in said {
        match name.as_keyword().map(Name::as_str) {
            Some("provider" | "domain" | "embedding-metadata") => {}
            Some(known) if OPTIONS.contains(&known) => {
                members.insert(name.clone(), value.clone());
            }
            _ => {
                let why = format!("{name} is no option of embeddings");
                let hint = "folders, addresses and keys of models are in the settings, under [embeddings.NAME]: say {:provider NAME}";
                return Err(wrong(why, hint));
            }
        }
    }
    let key = Value::keyword("dimensions");
    if members
        .get(&key)
        .is_some_and(|said| *said != number(dimensions))
    {
        let why = format!("the model makes vectors of {dimensions} numbers");
        return Err(wrong(why, "leave :dimensions out: they are the model's"));
    }
    members.insert(key, number(dimensions));
    let mut options = VectorOptions::read(&Value::Map(members))?;
    options.metric.get_or_insert(Metric::Cosine);
    Ok(options)
}

impl Embeddings {
    /// Those of a domain, as they are kept; nothing where there are none.
    pub(crate) fn open(
        place: Place<'_>,
        domain: &str,
        given: Option<&Value>,
    ) -> Result<Option<Self>> {
        let index = VectorIndex::open(place.kv, &named(domain), None, false)?;
        let id = place.kv.read(|view| kept(view, place.meta, domain))?;
        let (Some(index), Some(id)) = (index, id) else {
            return Ok(None);
        };
        Ok(Some(Self {
            index,
            domain: domain.to_owned(),
            model: model(given).unwrap_or_else(|| MODEL.to_owned()),
            id,
            recent: Arc::default(),
        }))
    }

    /// Those of a domain, made by the model that options name. Where there are vectors of another, it is refused.
    pub(crate) fn make(
        place: Place<'_>,
        domain: &str,
        given: Option<&Value>,
        by: By<'_>,
    ) -> Result<Self> {
        let Some(model) = model(given) else {
            let why = "a provider of embeddings is named by a text or a keyword";
            return Err(failed(Fault::new(Code::InvalidRequest, why)));
        };
        let by = asked(by)?;
        let id = by.id(&model).map_err(failed)?;
        let options = options(given, by.dimensions(&model).map_err(failed)?)?;
        let known = place.kv.read(|view| kept(view, place.meta, domain))?;
        if let Some(index) = VectorIndex::open(place.kv, &named(domain), None, false)?
            && known.as_ref() != Some(&id)
        {
            // One without vectors is anybody's.
            place.kv.write(|batch| {
                if !index.is_empty(batch.view())? {
                    return Err(other(domain, &model));
                }
                index.forget(batch)?;
                batch.delete(place.meta, &row(domain))?;
                Ok(())
            })?;
        }
        let index = VectorIndex::open(place.kv, &named(domain), Some(&options), true)?;
        let index = index.ok_or(Error::ReadOnly)?;
        let made = Self {
            index,
            domain: domain.to_owned(),
            model,
            id,
            recent: Arc::default(),
        };
        place.kv.write(|batch| {
            // Somebody else may have been faster.
            match kept(batch.view(), place.meta, domain)? {
                Some(known) if known != made.id => Err(other(domain, &made.model)),
                Some(_) => Ok(()),
                None => Ok(batch.put(place.meta, &row(domain), made.id.as_bytes())?),
            }
        })?;
        Ok(made)
    }

    /// Refuses a model that would make other vectors than those that there are.
    fn check(&self, by: By<'_>) -> Result<()> {
        if asked(by)?.id(&self.model).map_err(failed)? == self.id {
            Ok(())
        } else {
            Err(other(&self.domain, &self.model))
        }
    }

    /// Refuses vectors where those that are kept became others meanwhile.
    fn check_kept(&self, view: View<'_>, meta: Table) -> Result<()> {
        if kept(view, meta, &self.domain)?.as_deref() == Some(self.id.as_str()) {
            Ok(())
        } else {
            Err(other(&self.domain, &self.model))
        }
    }

    /// The vector of a text that others are searched for by; nothing where it says nothing.
    pub(crate) fn of_query(
        &self,
        (view, meta): (View<'_>, Table),
        by: By<'_>,
        text: &str,
        ends: Option<Instant>,
    ) -> Result<Option<Arc<[f32]>>> {
        self.check_kept(view, meta)?;
        let known = self.recent.lock().get(text).cloned();
        let vector = if let Some(known) = known {
            known
        } else {
            self.check(by)?;
            let vectors = asked(by)?.embed(&self.model, &[text], Purpose::Query, ends);
            let vector = vectors.map_err(failed)?.pop().unwrap_or_default();
            let vector: Arc<[f32]> = vector.into();
            let mut recent = self.recent.lock();
            if recent.len() >= RECENT {
                recent.clear();
            }
            recent.insert(text.to_owned(), vector.clone());
            vector
        };
        Ok(Some(vector).filter(|vector| says_something(vector)))
    }
}

fn says_something(vector: &[f32]) -> bool {
    vector.iter().any(|number| *number != 0.0)
}

/// The name of the index of a domain: vectors of the same domain that are values themselves are in another.
fn named(domain: &str) -> String {
    format!("embedding/{domain}")
}

fn kept(view: View<'_>, meta: Table, domain: &str) -> Result<Option<String>> {
    let kept = view.get(meta, &row(domain))?;
    Ok(kept.map(|id| String::from_utf8_lossy(id).into_owned()))
}

/// Texts of domains.
pub(crate) type Texts = HashMap<String, BTreeSet<Arc<str>>>;

/// Vectors that were made for a transaction before it began, by model and text.
#[derive(Debug, Default)]
pub(crate) struct Prepared(HashMap<String, HashMap<Arc<str>, Vec<f32>>>);

impl Prepared {
    fn get(&self, model: &str, text: &str) -> Option<&Vec<f32>> {
        self.0.get(model)?.get(text)
    }

    /// Makes those that are not there.
    pub(crate) fn add(
        &mut self,
        texts: &Texts,
        of: &HashMap<String, Embeddings>,
        by: By<'_>,
    ) -> Result<()> {
        for (domain, texts) in texts {
            let Some(embeddings) = of.get(domain) else {
                continue;
            };
            embeddings.check(by)?;
            let known = self.0.entry(embeddings.model.clone()).or_default();
            let new: Vec<&Arc<str>> = texts
                .iter()
                .filter(|text| !known.contains_key(*text))
                .collect();
            let asked_for: Vec<&str> = new.iter().map(|text| &***text).collect();
            let made = asked(by)?.embed(&embeddings.model, &asked_for, Purpose::Document, None);
            let made = made.map_err(failed)?;
            if made.len() != new.len() {
                let why = format!("{} texts have {} vectors", new.len(), made.len());
                return Err(failed(Fault::new(Code::SourceFailed, why)));
            }
            known.extend(new.into_iter().cloned().zip(made));
        }
        Ok(())
    }
}

/// What a transaction changes in the embeddings of a domain: a text under its reference, or none any more.
#[derive(Debug, Default)]
pub(crate) struct Changes(Vec<(Vec<u8>, Option<Arc<str>>)>);

impl Changes {
    pub(crate) fn push(&mut self, reference: &[u8], text: Option<Arc<str>>) {
        self.0.push((reference.to_vec(), text));
    }

    /// The texts whose vectors are not prepared.
    pub(crate) fn wanting(
        &self,
        domain: &str,
        of: Option<&Embeddings>,
        prepared: &Prepared,
    ) -> Result<BTreeSet<Arc<str>>> {
        let mut texts = self.0.iter().filter_map(|(_, text)| text.as_ref());
        let Some(of) = of else {
            if texts.next().is_none() {
                return Ok(BTreeSet::new());
            }
            let why = format!("no model makes the embeddings of {domain:?}");
            let hint = "take :db/embedding from the attributes of that domain and give it back, where the settings have a model";
            let fault = Fault::new(Code::InvalidSetting, why).with_hint(hint);
            return Err(failed(fault));
        };
        let is_wanting = |text: &&Arc<str>| prepared.get(&of.model, text).is_none();
        Ok(texts.filter(is_wanting).cloned().collect())
    }

    /// Makes them.
    pub(crate) fn apply(
        self,
        batch: &mut Batch<'_>,
        meta: Table,
        of: &Embeddings,
        prepared: &Prepared,
    ) -> Result<()> {
        of.check_kept(batch.view(), meta)?;
        let mut added: Vec<(Vec<u8>, &Vec<f32>)> = Vec::new();
        for (reference, text) in self.0 {
            if let Some(text) = text {
                let vector = prepared.get(&of.model, &text);
                let vector = vector.filter(|vector| says_something(vector));
                added.extend(vector.map(|vector| (reference, vector)));
                continue;
            }
            // In the order in which it was said: the same text may come and go.
            of.index.add_many(batch, std::mem::take(&mut added))?;
            of.index.remove(batch, &reference)?;
        }
        Ok(of.index.add_many(batch, added)?)
    }
}

/// The domains of an attribute's texts, by what its schema says.
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

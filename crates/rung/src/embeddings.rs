//! Wires the models of embeddings that the settings name to the databases that name them. A model is loaded when the first text is
//! embedded by it, and once.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use rung_datalog::{Embed, Purpose};
use rung_embed::{Embedder, Prefixes, Source};
use rung_fault::{Code, Fault};

use crate::exit::{Result, Stop};
use crate::settings::Settings;

/// What the settings say of models, by their names.
type Said = BTreeMap<String, (Source, Prefixes)>;

/// The models of the settings.
pub(crate) struct Models {
    said: OnceLock<Said>,
    /// Gives the settings, where they were not looked at yet.
    settings: Box<dyn Fn() -> Result<Settings> + Send + Sync>,
    loaded: Mutex<HashMap<String, Arc<Embedder>>>,
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Models")
    }
}

impl Models {
    /// Those that are said.
    pub(crate) fn new(said: Said) -> Self {
        let models = Self::of(|| unreachable!("it is said which models there are"));
        let _new = models.said.set(said);
        models
    }

    /// Those of settings that are looked at when the first is named.
    pub(crate) fn of(settings: impl Fn() -> Result<Settings> + Send + Sync + 'static) -> Self {
        Self {
            said: OnceLock::new(),
            settings: Box::new(settings),
            loaded: Mutex::default(),
        }
    }

    fn said(&self) -> Result<&Said, Fault> {
        if let Some(said) = self.said.get() {
            return Ok(said);
        }
        let settings = (self.settings)().map_err(|stop| match stop {
            Stop::Fault(fault) => fault,
            other => Fault::new(Code::Internal, format!("{other:?}")),
        })?;
        let said = settings.embeddings()?;
        Ok(self.said.get_or_init(|| said))
    }

    fn get(&self, name: &str) -> Result<Arc<Embedder>, Fault> {
        let mut loaded = self.loaded.lock();
        if let Some(known) = loaded.get(name) {
            return Ok(known.clone());
        }
        let said = self.said()?;
        let Some((source, prefixes)) = said.get(name) else {
            let names: Vec<&str> = said.keys().map(String::as_str).collect();
            let why = format!("no model of embeddings is named {name:?} in the settings");
            let fault = Fault::new(Code::NotFound, why);
            return Err(if names.is_empty() {
                fault.with_hint("name one there, as [embeddings.default] with dir or url")
            } else {
                let hint = format!(
                    "say {{:embedding-opts {{:provider NAME}}}}; there are {}",
                    names.join(", ")
                );
                fault.with_hint(hint)
            });
        };
        let embedder = Embedder::new(source, prefixes.clone());
        let embedder = Arc::new(embedder.map_err(|error| placed(name, error))?);
        loaded.insert(name.to_owned(), embedder.clone());
        Ok(embedder)
    }
}

/// A failure, with the name of the model that it is of.
fn placed(name: &str, error: rung_embed::Error) -> Fault {
    Fault::from(error).at(&format!("embeddings.{name}"))
}

impl Embed for Models {
    fn id(&self, model: &str) -> Result<String, Fault> {
        Ok(self.get(model)?.id())
    }

    fn dimensions(&self, model: &str) -> Result<usize, Fault> {
        let dimensions = self.get(model)?.dimensions();
        dimensions.map_err(|error| placed(model, error))
    }

    fn embed(
        &self,
        model: &str,
        texts: &[&str],
        purpose: Purpose,
        ends: Option<Instant>,
    ) -> Result<Vec<Vec<f32>>, Fault> {
        let purpose = match purpose {
            Purpose::Document => rung_embed::Purpose::Document,
            Purpose::Query => rung_embed::Purpose::Query,
        };
        let vectors = self.get(model)?.embed(texts, purpose, ends);
        vectors.map_err(|error| placed(model, error))
    }
}

//! Wires the embedding models of the settings to the databases that name them. A model is loaded once, when it embeds its
//! first text.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use rung_datalog::{Embed, Purpose};
use rung_embed::{Embedder, EmbeddingSource, Prefixes};
use rung_fault::{Code, Fault};

use crate::exit::{CommandError, Result};
use crate::settings::Settings;

/// Models of the settings, by name.
type ConfiguredModels = BTreeMap<String, (EmbeddingSource, Prefixes)>;

/// Embedding models of the settings, loaded on first use.
pub(crate) struct EmbeddingModels {
    configured: OnceLock<ConfiguredModels>,
    /// Loads the settings when the first model is looked up.
    settings: Box<dyn Fn() -> Result<Settings> + Send + Sync>,
    loaded: Mutex<HashMap<String, Arc<Embedder>>>,
}

impl fmt::Debug for EmbeddingModels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Models")
    }
}

impl EmbeddingModels {
    /// Creates the models from settings that are loaded already.
    pub(crate) fn new(said: ConfiguredModels) -> Self {
        let models = Self::from_settings(|| unreachable!("the models are set already"));
        let _new = models.configured.set(said);
        models
    }

    /// Creates the models from settings that are loaded when the first model is looked up.
    pub(crate) fn from_settings(
        settings: impl Fn() -> Result<Settings> + Send + Sync + 'static,
    ) -> Self {
        Self {
            configured: OnceLock::new(),
            settings: Box::new(settings),
            loaded: Mutex::default(),
        }
    }

    fn configured(&self) -> Result<&ConfiguredModels, Fault> {
        if let Some(said) = self.configured.get() {
            return Ok(said);
        }
        let settings = (self.settings)().map_err(|stop| match stop {
            CommandError::Fault(fault) => fault,
            other => Fault::new(Code::Internal, format!("{other:?}")),
        })?;
        let said = settings.embeddings()?;
        Ok(self.configured.get_or_init(|| said))
    }

    fn get(&self, name: &str) -> Result<Arc<Embedder>, Fault> {
        let mut loaded = self.loaded.lock();
        if let Some(known) = loaded.get(name) {
            return Ok(known.clone());
        }
        let said = self.configured()?;
        let Some((source, prefixes)) = said.get(name) else {
            let names: Vec<&str> = said.keys().map(String::as_str).collect();
            let why = format!("no embedding model is named {name:?} in the settings");
            let fault = Fault::new(Code::NotFound, why);
            return Err(if names.is_empty() {
                fault.with_hint("configure one as [embeddings.default] with dir or url")
            } else {
                let hint = format!(
                    "set {{:embedding-opts {{:provider NAME}}}} with one of: {}",
                    names.join(", ")
                );
                fault.with_hint(hint)
            });
        };
        let embedder = Embedder::new(source, prefixes.clone());
        let embedder = Arc::new(embedder.map_err(|error| with_model_name(name, error))?);
        loaded.insert(name.to_owned(), embedder.clone());
        Ok(embedder)
    }
}

/// Adds the name of the model to an error.
fn with_model_name(name: &str, error: rung_embed::Error) -> Fault {
    Fault::from(error).with_location(&format!("embeddings.{name}"))
}

impl Embed for EmbeddingModels {
    fn id(&self, model: &str) -> Result<String, Fault> {
        Ok(self.get(model)?.id())
    }

    fn dimensions(&self, model: &str) -> Result<usize, Fault> {
        let dimensions = self.get(model)?.dimensions();
        dimensions.map_err(|error| with_model_name(model, error))
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
        vectors.map_err(|error| with_model_name(model, error))
    }
}

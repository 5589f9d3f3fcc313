//! Texts that a server finds by their words.

use rung_edn::{Map, Value};

use crate::database::count;
use crate::{KvStore, Patience, Result};

/// An index of texts beside the tables of a store. A server has one for each store.
#[derive(Debug, Clone)]
pub struct SearchEngine {
    store: KvStore,
}

impl SearchEngine {
    /// Opens the index, and makes it where there is none.
    pub fn open(store: KvStore, options: Option<Map>) -> Result<Self> {
        let options = options.map_or(Value::Nil, Value::Map);
        store.read("new-search-engine", [options.clone()])?;
        store
            .session()
            .remember(|indexes| indexes.search = Some(options));
        Ok(Self { store })
    }

    /// The same index, for somebody who waits no longer than that.
    #[must_use]
    pub fn within(&self, patience: Patience) -> Self {
        Self {
            store: self.store.within(patience),
        }
    }

    /// Adds a text, in place of the one that had this reference.
    pub fn add(&self, reference: &Value, text: &str) -> Result<()> {
        let args = [reference.clone(), text.into()];
        self.store.write("add-doc", args).map(drop)
    }

    /// Takes a text out.
    pub fn remove(&self, reference: &Value) -> Result<()> {
        self.store
            .write("remove-doc", [reference.clone()])
            .map(drop)
    }

    /// Takes all texts out.
    pub fn clear(&self) -> Result<()> {
        self.store.write("clear-docs", []).map(drop)
    }

    /// Whether there is a text with this reference.
    pub fn has(&self, reference: &Value) -> Result<bool> {
        let found = self.store.read("doc-indexed?", [reference.clone()])?;
        Ok(found.is_truthy())
    }

    /// How many texts there are.
    pub fn count(&self) -> Result<u64> {
        count(&self.store.read("doc-count", [])?)
    }

    /// The references of the texts that match best, or as the options say.
    pub fn search(&self, query: &Value, options: Map) -> Result<Value> {
        let args = [query.clone(), Value::Map(options)];
        self.store.read("search", args)
    }
}

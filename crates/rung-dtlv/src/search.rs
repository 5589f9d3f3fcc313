//! Full-text indexes on a server.

use rung_edn::{Map, Value};

use crate::database::parse_count;
use crate::{KvStore, Result, WaitLimit};

/// The full-text index of a store. A server has one per store.
#[derive(Debug, Clone)]
pub struct SearchEngine {
    store: KvStore,
}

impl SearchEngine {
    /// Opens the index, and creates it if it does not exist.
    pub fn open(store: KvStore, options: Option<Map>) -> Result<Self> {
        let options = options.map_or(Value::Nil, Value::Map);
        store.read("new-search-engine", [options.clone()])?;
        store
            .session()
            .update_index_options(|indexes| indexes.search = Some(options));
        Ok(Self { store })
    }

    /// Returns a handle to the same index with this wait limit.
    #[must_use]
    pub fn with_wait_limit(&self, patience: WaitLimit) -> Self {
        Self {
            store: self.store.with_wait_limit(patience),
        }
    }

    /// Adds a text, replacing the one with the same reference.
    pub fn add(&self, reference: &Value, text: &str) -> Result<()> {
        let args = [reference.clone(), text.into()];
        self.store.write("add-doc", args).map(drop)
    }

    /// Removes a text.
    pub fn remove(&self, reference: &Value) -> Result<()> {
        self.store
            .write("remove-doc", [reference.clone()])
            .map(drop)
    }

    /// Removes all texts.
    pub fn clear(&self) -> Result<()> {
        self.store.write("clear-docs", []).map(drop)
    }

    /// Returns true if there is a text with this reference.
    pub fn has(&self, reference: &Value) -> Result<bool> {
        let found = self.store.read("doc-indexed?", [reference.clone()])?;
        Ok(found.is_truthy())
    }

    /// Counts the texts.
    pub fn count(&self) -> Result<u64> {
        parse_count(&self.store.read("doc-count", [])?)
    }

    /// Returns the references of the best matches, or what the options select.
    pub fn search(&self, query: &Value, options: Map) -> Result<Value> {
        let args = [query.clone(), Value::Map(options)];
        self.store.read("search", args)
    }
}

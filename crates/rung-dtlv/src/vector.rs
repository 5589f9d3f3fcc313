//! Vector indexes on a server.

use rung_edn::{Map, Value};

use crate::{KvStore, Result, WaitLimit};

/// The vector index of a store. A server has one per store.
#[derive(Debug, Clone)]
pub struct VectorIndex {
    store: KvStore,
}

impl VectorIndex {
    /// Opens the index, and creates it if it does not exist. The options must contain `:dimensions`.
    pub fn open(store: KvStore, options: Map) -> Result<Self> {
        let options = Value::Map(options);
        store.read("new-vector-index", [options.clone()])?;
        store
            .session()
            .update_index_options(|indexes| indexes.vectors = Some(options));
        Ok(Self { store })
    }

    /// Returns a handle to the same index with this wait limit.
    #[must_use]
    pub fn with_wait_limit(&self, patience: WaitLimit) -> Self {
        Self {
            store: self.store.with_wait_limit(patience),
        }
    }

    /// Adds a vector. Other vectors with the same reference stay.
    pub fn add(&self, reference: &Value, vector: &[f64]) -> Result<()> {
        let args = [reference.clone(), numbers(vector)];
        self.store.write("add-vec", args).map(drop)
    }

    /// Removes the vectors of a reference.
    pub fn remove(&self, reference: &Value) -> Result<()> {
        self.store
            .write("remove-vec", [reference.clone()])
            .map(drop)
    }

    /// Returns true if there is a vector with this reference.
    pub fn has(&self, reference: &Value) -> Result<bool> {
        let found = self.store.read("vec-indexed?", [reference.clone()])?;
        Ok(found.is_truthy())
    }

    /// Returns the server's description of the index, with its size.
    pub fn info(&self) -> Result<Value> {
        self.store.read("vecs-info", [])
    }

    /// Returns the references of the nearest vectors, or what the options select.
    pub fn search(&self, vector: &[f64], options: Map) -> Result<Value> {
        let args = [numbers(vector), Value::Map(options)];
        self.store.read("search-vec", args)
    }

    /// Closes the index on the server.
    pub fn close(self) -> Result<()> {
        self.store.write("close-vecs", []).map(drop)
    }
}

fn numbers(vector: &[f64]) -> Value {
    Value::Vector(vector.iter().map(|number| Value::Double(*number)).collect())
}

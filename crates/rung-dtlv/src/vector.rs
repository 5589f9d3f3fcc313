//! Vectors that a server finds by what is near.

use rung_edn::{Map, Value};

use crate::{KvStore, Patience, Result};

/// An index of vectors beside the tables of a store. A server has one for each store.
#[derive(Debug, Clone)]
pub struct VectorIndex {
    store: KvStore,
}

impl VectorIndex {
    /// Opens the index, and makes it where there is none. The options say `:dimensions`.
    pub fn open(store: KvStore, options: Map) -> Result<Self> {
        let options = Value::Map(options);
        store.read("new-vector-index", [options.clone()])?;
        store
            .session()
            .remember(|indexes| indexes.vectors = Some(options));
        Ok(Self { store })
    }

    /// The same index, for somebody who waits no longer than that.
    #[must_use]
    pub fn within(&self, patience: Patience) -> Self {
        Self {
            store: self.store.within(patience),
        }
    }

    /// Adds a vector, beside those that have this reference.
    pub fn add(&self, reference: &Value, vector: &[f64]) -> Result<()> {
        let args = [reference.clone(), numbers(vector)];
        self.store.write("add-vec", args).map(drop)
    }

    /// Takes the vectors of a reference out.
    pub fn remove(&self, reference: &Value) -> Result<()> {
        self.store
            .write("remove-vec", [reference.clone()])
            .map(drop)
    }

    /// Whether there is a vector with this reference.
    pub fn has(&self, reference: &Value) -> Result<bool> {
        let found = self.store.read("vec-indexed?", [reference.clone()])?;
        Ok(found.is_truthy())
    }

    /// What the index is, and how large.
    pub fn info(&self) -> Result<Value> {
        self.store.read("vecs-info", [])
    }

    /// The references of the nearest vectors, or as the options say.
    pub fn search(&self, vector: &[f64], options: Map) -> Result<Value> {
        let args = [numbers(vector), Value::Map(options)];
        self.store.read("search-vec", args)
    }

    /// Tells the server that it is not needed any more.
    pub fn close(self) -> Result<()> {
        self.store.write("close-vecs", []).map(drop)
    }
}

fn numbers(vector: &[f64]) -> Value {
    Value::Vector(vector.iter().map(|number| Value::Double(*number)).collect())
}

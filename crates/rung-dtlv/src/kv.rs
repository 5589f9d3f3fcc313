//! Key-value stores on a server.

use std::ops::ControlFlow;
use std::sync::Arc;

use rung_edn::{Map, Value};

use crate::database::parse_count;
use crate::message::{DtlvRequest, Effect};
use crate::session::BATCH_ITEMS;
use crate::{DtlvSession, Result, WaitLimit};

/// A key-value store on a server. Key and value types are the server's; its default is `:data`.
#[derive(Debug, Clone)]
pub struct KvStore {
    session: Arc<DtlvSession>,
}

impl KvStore {
    /// Opens a store, and creates it if the session's options allow.
    pub fn open(session: Arc<DtlvSession>, options: Option<Map>) -> Result<Self> {
        session.ensure_database()?;
        let options = options.map_or(Value::Nil, Value::Map);
        let fields = [("db-name", session.database_name()), ("opts", options)];
        session.request(&DtlvRequest::with_fields("open-kv", Effect::Reads, fields))?;
        Ok(Self { session })
    }

    /// Returns the session that sends the requests.
    pub fn session(&self) -> &Arc<DtlvSession> {
        &self.session
    }

    /// Returns a handle to the same store with this wait limit.
    #[must_use]
    pub fn with_wait_limit(&self, patience: WaitLimit) -> Self {
        Self {
            session: self.session.with_wait_limit(patience),
        }
    }

    /// Closes the store on the server.
    pub fn close(self) -> Result<()> {
        self.read("close-kv", []).map(drop)
    }

    /// Opens a table, and creates it if it does not exist.
    pub fn open_table(&self, table: &str, options: Option<Map>) -> Result<()> {
        let options = options.map_or(Value::Nil, Value::Map);
        self.read("open-dbi", [table.into(), options]).map(drop)
    }

    /// Returns the names of the tables.
    pub fn tables(&self) -> Result<Value> {
        self.read("list-dbis", [])
    }

    /// Returns the value of a key, or with `pair` the key and its value.
    pub fn get(
        &self,
        table: &str,
        key: &Value,
        (key_type, value_type): (&Value, &Value),
        pair: bool,
    ) -> Result<Value> {
        let args = [
            table.into(),
            key.clone(),
            key_type.clone(),
            value_type.clone(),
            (!pair).into(),
        ];
        self.read("get-value", args)
    }

    /// Passes each pair whose key is in a range such as `[:closed 1 9]` to `each`, until it breaks.
    pub fn range(
        &self,
        table: &str,
        range: &Value,
        (key_type, value_type): (&Value, &Value),
        mut each: impl FnMut(Value) -> ControlFlow<()>,
    ) -> Result<()> {
        let args = [
            table.into(),
            range.clone(),
            key_type.clone(),
            value_type.clone(),
            false.into(),
        ];
        self.session
            .request_each(&self.request("get-range", Effect::Reads, args), &mut each)
    }

    /// Counts the pairs whose key is in a range.
    pub fn range_count(&self, table: &str, range: &Value, key_type: &Value) -> Result<u64> {
        let args = [table.into(), range.clone(), key_type.clone()];
        parse_count(&self.read("range-count", args)?)
    }

    /// Runs the operations atomically. An operation is `[:put key value]` or, without a table, `[:put table key value]`.
    pub fn transact(
        &self,
        table: Option<&str>,
        operations: &[Value],
        (key_type, value_type): (&Value, &Value),
    ) -> Result<()> {
        let table = table.map_or(Value::Nil, Value::from);
        let few = operations.len() < BATCH_ITEMS;
        let here = if few {
            Value::Vector(operations.to_vec())
        } else {
            Value::Nil
        };
        let args = vec![
            self.session.database_name(),
            table,
            here,
            key_type.clone(),
            value_type.clone(),
        ];
        let following = (!few).then_some(operations);
        self.session
            .request(&DtlvRequest::new_bulk("transact-kv", args, following))
            .map(drop)
    }

    fn request(
        &self,
        operation: &'static str,
        effect: Effect,
        args: impl IntoIterator<Item = Value>,
    ) -> DtlvRequest<'static> {
        let args = std::iter::once(self.session.database_name())
            .chain(args)
            .collect();
        DtlvRequest::new(operation, effect, args)
    }

    pub(crate) fn read(
        &self,
        operation: &'static str,
        args: impl IntoIterator<Item = Value>,
    ) -> Result<Value> {
        self.session
            .request(&self.request(operation, Effect::Reads, args))
    }

    pub(crate) fn write(
        &self,
        operation: &'static str,
        args: impl IntoIterator<Item = Value>,
    ) -> Result<Value> {
        self.session
            .request(&self.request(operation, Effect::Writes, args))
    }
}

//! Tables of keys and values on a server.

use std::ops::ControlFlow;
use std::sync::Arc;

use rung_edn::{Map, Value};

use crate::database::count;
use crate::message::{Effect, Request};
use crate::session::BATCH_ITEMS;
use crate::{Patience, Result, Session};

/// Tables on a server. Types are those of the server, `:data` where nothing else is said.
#[derive(Debug, Clone)]
pub struct KvStore {
    session: Arc<Session>,
}

impl KvStore {
    /// Opens a store, and makes it where there is none.
    pub fn open(session: Arc<Session>, options: Option<Map>) -> Result<Self> {
        session.make_sure()?;
        let options = options.map_or(Value::Nil, Value::Map);
        let fields = [("db-name", session.name()), ("opts", options)];
        session.ask(&Request::of("open-kv", Effect::Reads, fields))?;
        Ok(Self { session })
    }

    /// The session that this is asked through.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The same store, for somebody who waits no longer than that.
    #[must_use]
    pub fn within(&self, patience: Patience) -> Self {
        Self {
            session: self.session.within(patience),
        }
    }

    /// Tells the server that it is not needed any more.
    pub fn close(self) -> Result<()> {
        self.read("close-kv", []).map(drop)
    }

    /// Opens a table, and makes it where there is none.
    pub fn open_table(&self, table: &str, options: Option<Map>) -> Result<()> {
        let options = options.map_or(Value::Nil, Value::Map);
        self.read("open-dbi", [table.into(), options]).map(drop)
    }

    /// The names of the tables.
    pub fn tables(&self) -> Result<Value> {
        self.read("list-dbis", [])
    }

    /// The value of a key; or the key and its value, where both are wanted.
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

    /// The pairs whose keys are in a range such as `[:closed 1 9]`, one after the other until it breaks off.
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
            .ask_each(&self.request("get-range", Effect::Reads, args), &mut each)
    }

    /// How many pairs have a key in a range.
    pub fn range_count(&self, table: &str, range: &Value, key_type: &Value) -> Result<u64> {
        let args = [table.into(), range.clone(), key_type.clone()];
        count(&self.read("range-count", args)?)
    }

    /// Does all of this or nothing, such as `[:put key value]` or, without a table, `[:put table key value]`.
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
            self.session.name(),
            table,
            here,
            key_type.clone(),
            value_type.clone(),
        ];
        let following = (!few).then_some(operations);
        self.session
            .ask(&Request::bulk("transact-kv", args, following))
            .map(drop)
    }

    fn request(
        &self,
        operation: &'static str,
        effect: Effect,
        args: impl IntoIterator<Item = Value>,
    ) -> Request<'static> {
        let args = std::iter::once(self.session.name()).chain(args).collect();
        Request::new(operation, effect, args)
    }

    pub(crate) fn read(
        &self,
        operation: &'static str,
        args: impl IntoIterator<Item = Value>,
    ) -> Result<Value> {
        self.session
            .ask(&self.request(operation, Effect::Reads, args))
    }

    pub(crate) fn write(
        &self,
        operation: &'static str,
        args: impl IntoIterator<Item = Value>,
    ) -> Result<Value> {
        self.session
            .ask(&self.request(operation, Effect::Writes, args))
    }
}

//! Datalog databases on a server.

use std::ops::ControlFlow;
use std::sync::Arc;

use rung_edn::{Map, Name, Value};

use crate::message::{DtlvRequest, Effect, field, map_from_pairs};
use crate::nippy::DATOM;
use crate::session::BATCH_ITEMS;
use crate::{Datom, DatomIndex, DatomPattern, DtlvSession, Error, QueryAnswer, Result, WaitLimit};

/// Represents the database among the inputs of a query.
const DATABASE_PLACEHOLDER: &str = "remote-db-placeholder";

/// A Datalog database on a server.
#[derive(Debug, Clone)]
pub struct DtlvDatabase {
    session: Arc<DtlvSession>,
    info: Arc<DatabaseInfo>,
}

/// The server's description of a database when it is opened.
#[derive(Debug, Clone, Default)]
pub struct DatabaseInfo {
    /// The greatest entity id.
    pub max_entity: Option<i64>,
    /// The last transaction id.
    pub max_tx: Option<i64>,
    pub schema: Option<Value>,
    /// The storage options.
    pub options: Option<Value>,
}

impl DatabaseInfo {
    fn parse(answer: &Value) -> Self {
        let Some(map) = answer.as_map() else {
            return Self::default();
        };
        let number = |name| field(map, name).and_then(Value::as_i64);
        Self {
            max_entity: number("max-eid"),
            max_tx: number("max-tx"),
            schema: field(map, "schema").cloned(),
            options: field(map, "opts").cloned(),
        }
    }
}

/// A transaction report.
#[derive(Debug, Clone, Default)]
pub struct TxReport {
    /// The datoms that were added or retracted.
    pub tx_data: Vec<Datom>,
    /// The entity ids of the temporary ids.
    pub tempids: Map,
    /// The greatest entity id.
    pub max_entity: Option<i64>,
    /// The transaction id, if there are datoms.
    pub tx: Option<i64>,
}

impl DtlvDatabase {
    /// Opens a database, and creates it if the session's options allow. `schema` is merged into the existing schema.
    pub fn open(
        session: Arc<DtlvSession>,
        schema: Option<Value>,
        options: Option<Map>,
    ) -> Result<Self> {
        session.ensure_database()?;
        let mut fields = vec![("db-name", session.database_name())];
        fields.extend(schema.map(|schema| ("schema", schema)));
        fields.extend(options.map(|mut options| {
            options.insert(Value::keyword("db-name"), session.database_name());
            ("opts", Value::Map(options))
        }));
        fields.push(("return-db-info?", true.into()));
        // Opening is idempotent.
        let answer = session.request(&DtlvRequest::with_fields("open", Effect::Reads, fields))?;
        Ok(Self {
            session,
            info: Arc::new(DatabaseInfo::parse(&answer)),
        })
    }

    /// Returns the server's description at the time of opening.
    pub fn info(&self) -> &DatabaseInfo {
        &self.info
    }

    /// Returns the session that sends the requests.
    pub fn session(&self) -> &Arc<DtlvSession> {
        &self.session
    }

    /// Returns a handle to the same database with this wait limit.
    #[must_use]
    pub fn with_wait_limit(&self, patience: WaitLimit) -> Self {
        Self {
            session: self.session.with_wait_limit(patience),
            info: self.info.clone(),
        }
    }

    /// Closes the database on the server.
    pub fn close(self) -> Result<()> {
        self.read("close", []).map(drop)
    }

    /// Runs a query. The database is its first input; `inputs` follow.
    pub fn query(&self, query: &Value, inputs: &[Value]) -> Result<Value> {
        self.session.request(&self.query_request(query, inputs))
    }

    /// Runs a query and passes each row to `each` until it breaks. Returns the kind of collection, or the value if the result is
    /// not a collection.
    pub fn query_each(
        &self,
        query: &Value,
        inputs: &[Value],
        mut each: impl FnMut(Value) -> ControlFlow<()>,
    ) -> Result<QueryAnswer> {
        let request = self.query_request(query, inputs);
        self.session.request_items(&request, &mut each)
    }

    /// Returns the query plan. The query is run if the options contain `:run? true`.
    pub fn explain(&self, options: Map, query: &Value, inputs: &[Value]) -> Result<Value> {
        let options = Value::Map(options);
        self.read("explain", [options, query.clone(), with_database(inputs)])
    }

    /// Pulls an entity.
    pub fn pull(&self, pattern: &Value, entity: &Value) -> Result<Value> {
        let options = Value::Map(Map::new());
        self.read("pull", [pattern.clone(), entity.clone(), options])
    }

    /// Pulls several entities.
    pub fn pull_many(&self, pattern: &Value, entities: &[Value]) -> Result<Value> {
        let options = Value::Map(Map::new());
        let entities = Value::Vector(entities.to_vec());
        self.read("pull-many", [pattern.clone(), entities, options])
    }

    /// Pulls all attributes of an entity. Returns nil if it has none.
    pub fn entity(&self, entity: &Value) -> Result<Value> {
        self.pull(&Value::Vector(vec![Value::symbol("*")]), entity)
    }

    /// Returns the id of an entity, which may be given as an id or a lookup reference.
    pub fn entity_id(&self, entity: &Value) -> Result<Option<i64>> {
        if let Value::Long(id) = entity {
            return Ok(Some(*id));
        }
        let found = self.pull(&Value::Vector(vec![Value::keyword("db/id")]), entity)?;
        let found = found.as_map().and_then(|map| field(map, "db/id"));
        Ok(found.and_then(Value::as_i64))
    }

    /// Passes each matching datom to `each`, in index order, until it breaks.
    ///
    /// Returns an error unless the pattern is one range of the index.
    pub fn datoms(
        &self,
        index: DatomIndex,
        pattern: &DatomPattern,
        each: impl FnMut(Datom) -> ControlFlow<()>,
    ) -> Result<()> {
        if !pattern.is_range_of(index) {
            return Err(Error::InvalidRequest(
                "a part of the index is given without the parts before it",
            ));
        }
        self.slice(index, pattern, each)
    }

    /// Passes each matching datom to `each`, in the order of the best index for the pattern, until it breaks.
    pub fn search_datoms(
        &self,
        pattern: &DatomPattern,
        each: impl FnMut(Datom) -> ControlFlow<()>,
    ) -> Result<()> {
        self.slice(pattern.index(), pattern, each)
    }

    /// Counts the matching datoms.
    pub fn count_datoms(&self, pattern: &DatomPattern) -> Result<u64> {
        let index = pattern.index();
        if pattern.is_countable() {
            return parse_count(&self.read("size", pattern.bounds(index))?);
        }
        let mut found = 0;
        self.slice(index, pattern, |_| {
            found += 1;
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Returns the datoms whose text matches, in the server's order.
    pub fn fulltext_datoms(&self, query: &Value, options: Map) -> Result<Value> {
        self.read("fulltext-datoms", [query.clone(), Value::Map(options)])
    }

    /// Returns the schema.
    pub fn schema(&self) -> Result<Value> {
        self.read("schema", [])
    }

    /// Runs a transaction. Never repeats it: if the response is lost, the error is `OutcomeUnknown`.
    pub fn transact(&self, tx_data: &[Value]) -> Result<TxReport> {
        self.tx_data(tx_data, false)
    }

    /// Returns the report that the transaction would have, without running it.
    pub fn simulate(&self, tx_data: &[Value]) -> Result<TxReport> {
        self.tx_data(tx_data, true)
    }

    fn tx_data(&self, tx_data: &[Value], simulated: bool) -> Result<TxReport> {
        let name = self.session.database_name();
        let answer = if tx_data.len() < BATCH_ITEMS {
            let args = vec![name, Value::Vector(tx_data.to_vec()), simulated.into()];
            self.session
                .request(&DtlvRequest::new_bulk("tx-data", args, None))?
        } else {
            let args = vec![name, simulated.into()];
            self.session
                .request(&DtlvRequest::new_bulk("tx-data", args, Some(tx_data)))?
        };
        // Any other error would suggest that the transaction was not done.
        parse_report(answer).map_err(|error| Error::OutcomeUnknown {
            operation: "tx-data",
            why: error.to_string(),
        })
    }

    fn slice(
        &self,
        index: DatomIndex,
        pattern: &DatomPattern,
        mut each: impl FnMut(Datom) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut args = vec![self.session.database_name()];
        args.extend(pattern.bounds(index));
        let request = DtlvRequest::new("slice", Effect::Reads, args);
        let exact = pattern.is_range_of(index);
        let mut failed = None;
        self.session
            .request_each(&request, &mut |item| match Datom::parse(item) {
                Ok(datom) if exact || pattern.matches(&datom) => each(datom),
                Ok(_) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            })?;
        failed.map_or(Ok(()), Err)
    }

    fn query_request(&self, query: &Value, inputs: &[Value]) -> DtlvRequest<'static> {
        let args = vec![
            self.session.database_name(),
            query.clone(),
            with_database(inputs),
        ];
        DtlvRequest::new("q", Effect::Reads, args)
    }

    fn read(
        &self,
        operation: &'static str,
        args: impl IntoIterator<Item = Value>,
    ) -> Result<Value> {
        let args = std::iter::once(self.session.database_name())
            .chain(args)
            .collect();
        self.session
            .request(&DtlvRequest::new(operation, Effect::Reads, args))
    }
}

fn with_database(inputs: &[Value]) -> Value {
    let database = std::iter::once(Value::keyword(DATABASE_PLACEHOLDER));
    Value::Vector(database.chain(inputs.iter().cloned()).collect())
}

/// Parses a count.
pub(crate) fn parse_count(answer: &Value) -> Result<u64> {
    let number = answer.as_i64().and_then(|number| number.try_into().ok());
    number
        .ok_or_else(|| Error::InvalidResponse(format!("expected a count, got a {}", answer.kind())))
}

/// Parses a transaction report: a map, or a list of datoms followed by pairs of temporary and entity ids.
fn parse_report(answer: Value) -> Result<TxReport> {
    let (facts, mut tempids) = match answer {
        Value::Map(mut map) => {
            let facts = match map.swap_remove(&Value::keyword("tx-data")) {
                Some(Value::Vector(facts) | Value::List(facts)) => facts,
                _ => Vec::new(),
            };
            let tempids = match map.swap_remove(&Value::keyword("tempids")) {
                Some(Value::Map(tempids)) => tempids,
                _ => Map::new(),
            };
            (facts, tempids)
        }
        Value::Vector(items) | Value::List(items) => {
            let is_fact =
                |item: &Value| matches!(item, Value::Tagged(tag, _) if tag.as_str() == DATOM);
            let (facts, pairs) = items.into_iter().partition(is_fact);
            let tempids = map_from_pairs(pairs)?;
            (facts, tempids)
        }
        other => {
            let why = format!("expected a transaction report, got a {}", other.kind());
            return Err(Error::InvalidResponse(why));
        }
    };
    let max_entity = tempids.shift_remove(&Value::Keyword(Name::from("max-eid")));
    let tx_data = facts
        .into_iter()
        .map(Datom::parse)
        .collect::<Result<Vec<_>>>()?;
    Ok(TxReport {
        tx: tx_data.iter().map(|datom| datom.tx).max(),
        tx_data,
        tempids,
        max_entity: max_entity.as_ref().and_then(Value::as_i64),
    })
}

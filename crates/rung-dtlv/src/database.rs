//! Facts on a server.

use std::ops::ControlFlow;
use std::sync::Arc;

use rung_edn::{Map, Name, Value};

use crate::message::{Effect, Request, field, members};
use crate::nippy::DATOM;
use crate::session::BATCH_ITEMS;
use crate::{Answer, Datom, Error, Index, Patience, Pattern, Result, Session};

/// What stands for the database among the inputs of a query.
const PLACEHOLDER: &str = "remote-db-placeholder";

/// A database of facts on a server.
#[derive(Debug, Clone)]
pub struct Database {
    session: Arc<Session>,
    opened: Arc<Info>,
}

/// What a server says of a database when it is opened.
#[derive(Debug, Clone, Default)]
pub struct Info {
    /// The greatest id of an entity.
    pub max_entity: Option<i64>,
    /// The last transaction.
    pub max_tx: Option<i64>,
    /// What is known of its attributes.
    pub schema: Option<Value>,
    /// How it is kept.
    pub options: Option<Value>,
}

impl Info {
    fn read(answer: &Value) -> Self {
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

/// What a transaction did.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The facts that hold since, and those that do not any more.
    pub tx_data: Vec<Datom>,
    /// What the ids became that stood for new entities.
    pub tempids: Map,
    /// The greatest id of an entity.
    pub max_entity: Option<i64>,
    /// The transaction, where it said anything.
    pub tx: Option<i64>,
}

impl Database {
    /// Opens a database, and makes it where there is none. A schema is added to what is there.
    pub fn open(
        session: Arc<Session>,
        schema: Option<Value>,
        options: Option<Map>,
    ) -> Result<Self> {
        session.make_sure()?;
        let mut fields = vec![("db-name", session.name())];
        fields.extend(schema.map(|schema| ("schema", schema)));
        fields.extend(options.map(|mut options| {
            options.insert(Value::keyword("db-name"), session.name());
            ("opts", Value::Map(options))
        }));
        fields.push(("return-db-info?", true.into()));
        // Asked twice it opens once.
        let answer = session.ask(&Request::of("open", Effect::Reads, fields))?;
        Ok(Self {
            session,
            opened: Arc::new(Info::read(&answer)),
        })
    }

    /// What the server said when it was opened.
    pub fn opened(&self) -> &Info {
        &self.opened
    }

    /// The session that this is asked through.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The same database, for somebody who waits no longer than that.
    #[must_use]
    pub fn within(&self, patience: Patience) -> Self {
        Self {
            session: self.session.within(patience),
            opened: self.opened.clone(),
        }
    }

    /// Tells the server that it is not needed any more.
    pub fn close(self) -> Result<()> {
        self.ask("close", []).map(drop)
    }

    /// The answer to a query. The database is its first input, and these come after it.
    pub fn query(&self, query: &Value, inputs: &[Value]) -> Result<Value> {
        self.session.ask(&self.query_request(query, inputs))
    }

    /// The rows of the answer to a query, one after the other until it breaks off, and what they are together. An answer that is a
    /// single value is given as that.
    pub fn query_each(
        &self,
        query: &Value,
        inputs: &[Value],
        mut each: impl FnMut(Value) -> ControlFlow<()>,
    ) -> Result<Answer> {
        let request = self.query_request(query, inputs);
        self.session.ask_items(&request, &mut each)
    }

    /// How a query would be answered, or was where the options say `:run? true`.
    pub fn explain(&self, options: Map, query: &Value, inputs: &[Value]) -> Result<Value> {
        let options = Value::Map(options);
        self.ask("explain", [options, query.clone(), with_database(inputs)])
    }

    /// What is known of an entity, as the pattern says.
    pub fn pull(&self, pattern: &Value, entity: &Value) -> Result<Value> {
        let options = Value::Map(Map::new());
        self.ask("pull", [pattern.clone(), entity.clone(), options])
    }

    /// What is known of several entities, as the pattern says.
    pub fn pull_many(&self, pattern: &Value, entities: &[Value]) -> Result<Value> {
        let options = Value::Map(Map::new());
        let entities = Value::Vector(entities.to_vec());
        self.ask("pull-many", [pattern.clone(), entities, options])
    }

    /// All that is known of an entity, and nothing where nothing is.
    pub fn entity(&self, entity: &Value) -> Result<Value> {
        self.pull(&Value::Vector(vec![Value::symbol("*")]), entity)
    }

    /// The id of an entity that is named in any way, where there is one.
    pub fn entity_id(&self, entity: &Value) -> Result<Option<i64>> {
        if let Value::Long(id) = entity {
            return Ok(Some(*id));
        }
        let found = self.pull(&Value::Vector(vec![Value::keyword("db/id")]), entity)?;
        let found = found.as_map().and_then(|map| field(map, "db/id"));
        Ok(found.and_then(Value::as_i64))
    }

    /// The facts that are meant, in the order of an index, one after the other until it breaks off.
    ///
    /// Only what an index finds at once can be asked in its order.
    pub fn datoms(
        &self,
        index: Index,
        pattern: &Pattern,
        each: impl FnMut(Datom) -> ControlFlow<()>,
    ) -> Result<()> {
        if !pattern.is_range_of(index) {
            return Err(Error::Question(
                "an index finds its parts in its order: say the earlier ones too",
            ));
        }
        self.slice(index, pattern, each)
    }

    /// The facts that are meant, in the order of whichever index finds them best.
    pub fn search_datoms(
        &self,
        pattern: &Pattern,
        each: impl FnMut(Datom) -> ControlFlow<()>,
    ) -> Result<()> {
        self.slice(pattern.index(), pattern, each)
    }

    /// How many facts are meant.
    pub fn count_datoms(&self, pattern: &Pattern) -> Result<u64> {
        let index = pattern.index();
        if pattern.is_counted() {
            return count(&self.ask("size", pattern.bounds(index))?);
        }
        let mut found = 0;
        self.slice(index, pattern, |_| {
            found += 1;
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// The facts whose texts match, as the server orders them.
    pub fn fulltext_datoms(&self, query: &Value, options: Map) -> Result<Value> {
        self.ask("fulltext-datoms", [query.clone(), Value::Map(options)])
    }

    /// What is known of attributes.
    pub fn schema(&self) -> Result<Value> {
        self.ask("schema", [])
    }

    /// Does what the transaction says. It is never repeated: where the answer is lost, the error says so.
    pub fn transact(&self, tx_data: &[Value]) -> Result<Report> {
        self.tx_data(tx_data, false)
    }

    /// What the transaction would do, without doing it.
    pub fn simulate(&self, tx_data: &[Value]) -> Result<Report> {
        self.tx_data(tx_data, true)
    }

    fn tx_data(&self, tx_data: &[Value], simulated: bool) -> Result<Report> {
        let name = self.session.name();
        let answer = if tx_data.len() < BATCH_ITEMS {
            let args = vec![name, Value::Vector(tx_data.to_vec()), simulated.into()];
            self.session.ask(&Request::bulk("tx-data", args, None))?
        } else {
            let args = vec![name, simulated.into()];
            self.session
                .ask(&Request::bulk("tx-data", args, Some(tx_data)))?
        };
        // Whoever gets an error of another kind may think that nothing was done.
        report(answer).map_err(|error| Error::OutcomeUnknown {
            operation: "tx-data",
            why: error.to_string(),
        })
    }

    fn slice(
        &self,
        index: Index,
        pattern: &Pattern,
        mut each: impl FnMut(Datom) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut args = vec![self.session.name()];
        args.extend(pattern.bounds(index));
        let request = Request::new("slice", Effect::Reads, args);
        let exact = pattern.is_range_of(index);
        let mut failed = None;
        self.session
            .ask_each(&request, &mut |item| match Datom::read(item) {
                Ok(datom) if exact || pattern.matches(&datom) => each(datom),
                Ok(_) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            })?;
        failed.map_or(Ok(()), Err)
    }

    fn query_request(&self, query: &Value, inputs: &[Value]) -> Request<'static> {
        let args = vec![self.session.name(), query.clone(), with_database(inputs)];
        Request::new("q", Effect::Reads, args)
    }

    fn ask(&self, operation: &'static str, args: impl IntoIterator<Item = Value>) -> Result<Value> {
        let args = std::iter::once(self.session.name()).chain(args).collect();
        self.session
            .ask(&Request::new(operation, Effect::Reads, args))
    }
}

fn with_database(inputs: &[Value]) -> Value {
    let database = std::iter::once(Value::keyword(PLACEHOLDER));
    Value::Vector(database.chain(inputs.iter().cloned()).collect())
}

/// A number that counts.
pub(crate) fn count(answer: &Value) -> Result<u64> {
    let number = answer.as_i64().and_then(|number| number.try_into().ok());
    number.ok_or_else(|| Error::Answer(format!("a count was to come, and a {}", answer.kind())))
}

/// A map, or facts and after them what ids became.
fn report(answer: Value) -> Result<Report> {
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
            let tempids = members(pairs)?;
            (facts, tempids)
        }
        other => {
            let why = format!("a report was to come, and a {}", other.kind());
            return Err(Error::Answer(why));
        }
    };
    let max_entity = tempids.shift_remove(&Value::Keyword(Name::from("max-eid")));
    let tx_data = facts
        .into_iter()
        .map(Datom::read)
        .collect::<Result<Vec<_>>>()?;
    Ok(Report {
        tx: tx_data.iter().map(|datom| datom.tx).max(),
        tx_data,
        tempids,
        max_entity: max_entity.as_ref().and_then(Value::as_i64),
    })
}

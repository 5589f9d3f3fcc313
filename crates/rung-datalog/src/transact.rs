//! Transactions: changes described as data and applied atomically.

mod facts;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use rung_edn::{Map, Name, Value};
use rung_kv::Batch;

use crate::coerce::coerce;
use crate::datom::{Datom, Entity};
use crate::db::{
    DatomTables, Db, Snapshot, entity_value, meta, put_number, read_number, store_schema,
};
use crate::embedding::{PreparedVectors, Texts};
use crate::sample::DatomSamples;
use crate::schema::{Attribute, Schema, Unique};
use crate::search_indexes::{IndexChanges, SearchIndexes};
use crate::{Error, Result};

/// The greatest entity id that a transaction may give.
const MAX_ENTITY: Entity = 1 << 53;

/// The result of a transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct TransactionResult {
    /// The number of the transaction.
    pub tx: u64,
    /// The added and the retracted facts.
    pub datoms: Vec<Datom>,
    /// The entity of each temporary id, in the order in which the ids first appear.
    pub tempids: Map,
    /// The schema after the transaction.
    pub schema: Arc<Schema>,
}

impl Db {
    /// Applies a transaction: a sequence of entities as maps and of operations as vectors.
    pub fn transact(&self, given: &Value) -> Result<TransactionResult> {
        let forms = given.as_sequence().ok_or_else(|| {
            Error::Transaction("a transaction must be a vector of maps and operations".to_owned())
        })?;
        let closed = self.is_closed()?;
        let now = self.is_option_set("auto-entity-time?")?.then(now_ms);
        // A temporary id may turn out to mean an existing entity after it was bound to a new one. Then the transaction restarts,
        // with the id bound to the existing entity from the beginning.
        let mut known = Map::new();
        // The transaction also restarts if texts need vectors: they are computed outside of it, so that writers do not wait.
        let mut prepared = PreparedVectors::default();
        loop {
            let (version, indexes) = self.open_indexes()?;
            let (mut again, mut is_stale, mut texts) = (None, false, None);
            let done = self.write(|batch, schema| {
                // Another writer may have changed the schema, and with it the set of search indexes.
                is_stale = read_number(batch.view(), self.tables().meta, meta::VERSION)? != version;
                if is_stale {
                    return Err(conflict("the schema has changed"));
                }
                let mut made_of: HashMap<Name, Vec<u32>> = HashMap::new();
                for tuple in schema.attributes() {
                    for source in tuple.sources() {
                        made_of.entry(source.clone()).or_default().push(tuple.id);
                    }
                }
                let mut transaction = Transaction {
                    batch,
                    tables: self.tables(),
                    max_entity: 0,
                    tx: 0,
                    schema,
                    closed,
                    now,
                    schema_grew: false,
                    tempids: Map::new(),
                    bound_tempids: &known,
                    value_only_tempids: BTreeSet::new(),
                    datoms: Vec::new(),
                    counts: HashMap::new(),
                    samples: DatomSamples::default(),
                    indexes: indexes.clone(),
                    index_changes: IndexChanges::default(),
                    prepared: &prepared,
                    tuples_by_source: made_of,
                    stale_tuples: BTreeSet::new(),
                    queue: forms.iter().cloned().collect(),
                };
                let done = transaction.run();
                if let Err(TransactionStop::Restart(tempid, e)) = &done {
                    again = Some((tempid.clone(), *e));
                }
                done.map_err(|stop| match stop {
                    TransactionStop::Failed(error) => error,
                    TransactionStop::NeedsVectors(wanting) => {
                        texts = Some(wanting);
                        conflict("texts have no vectors yet")
                    }
                    TransactionStop::Restart(tempid, _) => conflict(format!(
                        "the temporary id {tempid} resolves to two entities"
                    )),
                })
            });
            if is_stale {
                continue;
            }
            if let Some(texts) = texts.take() {
                indexes.prepare(&texts, &mut prepared)?;
                continue;
            }
            match again.take() {
                Some((tempid, e)) if !known.contains_key(&tempid) => {
                    known.insert(tempid, entity_value(e));
                }
                _ => return done,
            }
        }
    }
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

fn invalid_transaction(why: impl Into<String>) -> TransactionStop {
    TransactionStop::Failed(Error::Transaction(why.into()))
}

fn conflict(why: impl Into<String>) -> Error {
    Error::Conflict(why.into())
}

/// Why a transaction stopped before its end.
enum TransactionStop {
    Failed(Error),
    /// The transaction must restart with the temporary id bound to this entity.
    Restart(Value, Entity),
    /// The transaction must restart with the vectors of these texts.
    NeedsVectors(Texts),
}

impl From<Error> for TransactionStop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<rung_kv::Error> for TransactionStop {
    fn from(error: rung_kv::Error) -> Self {
        Self::Failed(error.into())
    }
}

type StepResult<T> = std::result::Result<T, TransactionStop>;

/// A running transaction.
struct Transaction<'b, 'e, 'k> {
    batch: &'b mut Batch<'e>,
    tables: DatomTables,
    max_entity: Entity,
    tx: u64,
    schema: Arc<Schema>,
    closed: bool,
    /// The time in milliseconds, if the database records when entities are created and changed.
    now: Option<i64>,
    schema_grew: bool,
    tempids: Map,
    /// Temporary ids that are bound to entities from the beginning.
    bound_tempids: &'k Map,
    /// Temporary ids that have been used only as values so far.
    value_only_tempids: BTreeSet<Value>,
    datoms: Vec<Datom>,
    /// The change of the number of datoms, by attribute id.
    counts: HashMap<u32, i64>,
    samples: DatomSamples,
    indexes: Arc<SearchIndexes>,
    /// The changes to the search indexes.
    index_changes: IndexChanges,
    /// Vectors that were computed before the transaction.
    prepared: &'k PreparedVectors,
    /// The tuple attributes that an attribute is part of.
    tuples_by_source: HashMap<Name, Vec<u32>>,
    /// Tuples whose parts have changed, by entity and attribute.
    stale_tuples: BTreeSet<(Entity, u32)>,
    queue: VecDeque<Value>,
}

/// An operation of a transaction.
enum Operation {
    Add,
    Retract,
    RetractAttribute,
    RetractEntity,
    Cas,
    Patch,
}

impl Operation {
    fn parse(name: &Name) -> Option<Self> {
        match name.as_str() {
            "db/add" => Some(Self::Add),
            "db/retract" => Some(Self::Retract),
            "db.fn/retractAttribute" | "db/retractAttribute" => Some(Self::RetractAttribute),
            "db.fn/retractEntity" | "db/retractEntity" => Some(Self::RetractEntity),
            "db.fn/cas" | "db/cas" => Some(Self::Cas),
            "db.fn/patchIdoc" => Some(Self::Patch),
            _ => None,
        }
    }
}

fn is_tempid(value: &Value) -> bool {
    match value {
        Value::Long(number) => *number < 0,
        Value::String(_) => true,
        _ => false,
    }
}

impl Transaction<'_, '_, '_> {
    fn run(&mut self) -> StepResult<TransactionResult> {
        let view = self.batch.view();
        self.max_entity = read_number(view, self.tables.meta, meta::MAX_ENTITY)?;
        self.tx = read_number(view, self.tables.meta, meta::MAX_TX)? + 1;
        while let Some(form) = self.queue.pop_front() {
            match &form {
                Value::Map(members) => self.apply_entity_map(members)?,
                Value::Vector(items) | Value::List(items) => self.apply_operation(&form, items)?,
                Value::Nil => {}
                other => {
                    return Err(invalid_transaction(format!(
                        "a transaction has maps and operations; {other} is neither"
                    )));
                }
            }
            self.update_tuples()?;
        }
        if let Some(tempid) = self.value_only_tempids.first() {
            return Err(invalid_transaction(format!(
                "the temporary id {tempid} is used only as a value; add an attribute to its entity"
            )));
        }
        self.update_timestamps()?;
        for (a, change) in std::mem::take(&mut self.counts) {
            let key = a.to_be_bytes();
            let before = read_number(self.batch.view(), self.tables.counts, &key)?;
            put_number(
                self.batch,
                self.tables.counts,
                &key,
                before.saturating_add_signed(change),
            )?;
        }
        let texts = self
            .index_changes
            .missing_texts(&self.indexes, self.prepared)?;
        if !texts.is_empty() {
            return Err(TransactionStop::NeedsVectors(texts));
        }
        self.index_changes
            .apply(self.batch, self.tables.meta, &self.indexes, self.prepared)?;
        self.samples.store(self.batch, self.tables.sample)?;
        put_number(
            self.batch,
            self.tables.meta,
            meta::MAX_ENTITY,
            self.max_entity,
        )?;
        put_number(self.batch, self.tables.meta, meta::MAX_TX, self.tx)?;
        if self.schema_grew {
            store_schema(self.batch, self.tables, &self.schema)?;
        }
        Ok(TransactionResult {
            tx: self.tx,
            datoms: std::mem::take(&mut self.datoms),
            tempids: std::mem::take(&mut self.tempids),
            schema: self.schema.clone(),
        })
    }

    fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            view: self.batch.view(),
            tables: self.tables,
            schema: self.schema.clone(),
            indexes: self.indexes.clone(),
        }
    }

    /// Returns the attribute of that name. Adds it if it does not exist and the schema is open.
    fn attribute(&mut self, name: &Value) -> StepResult<Arc<Attribute>> {
        let name = match name {
            Value::Keyword(name) => name.clone(),
            other => {
                return Err(invalid_transaction(format!(
                    "an attribute is a keyword; {other} is not"
                )));
            }
        };
        if let Some(attribute) = self.schema.get(&name) {
            return Ok(attribute.clone());
        }
        if !name.is_readable() {
            return Err(invalid_transaction(format!(
                "{:?} is not a valid attribute name: it is not a valid keyword",
                name.as_str()
            )));
        }
        if name.name().starts_with('_') {
            return Err(invalid_transaction(format!(
                "the name of an attribute must not begin with an underscore: :{name}"
            )));
        }
        if self.closed {
            return Err(invalid_transaction(format!(
                "the schema is closed and has no attribute :{name}"
            )));
        }
        self.schema_grew = true;
        Ok(Arc::make_mut(&mut self.schema).add(name))
    }

    /// Returns a new entity id.
    fn new_entity(&mut self) -> Entity {
        self.max_entity += 1;
        self.max_entity
    }

    /// Returns the entity that a temporary id stands for. Binds it to a new entity if it is unbound.
    fn tempid_entity(&mut self, tempid: &Value) -> Entity {
        let known = self.tempids.get(tempid).or(self.bound_tempids.get(tempid));
        if let Some(e) = known
            .and_then(Value::as_i64)
            .and_then(|e| Entity::try_from(e).ok())
        {
            self.tempids.insert(tempid.clone(), entity_value(e));
            return e;
        }
        let e = self.new_entity();
        self.tempids.insert(tempid.clone(), entity_value(e));
        e
    }

    /// Binds a temporary id to an existing entity.
    fn bind_tempid(&mut self, tempid: &Value, e: Entity) -> StepResult<()> {
        match self.tempids.get(tempid) {
            Some(known) if *known == entity_value(e) => Ok(()),
            Some(_) => Err(TransactionStop::Restart(tempid.clone(), e)),
            None => match self.bound_tempids.get(tempid) {
                Some(known) if *known != entity_value(e) => Err(conflict(format!(
                    "the temporary id {tempid} resolves to entity {known} and to entity {e}"
                ))
                .into()),
                _ => {
                    self.tempids.insert(tempid.clone(), entity_value(e));
                    Ok(())
                }
            },
        }
    }

    /// Resolves an entity id, an ident or a lookup ref. An entity id need not exist yet.
    fn resolve_entity(&mut self, called: &Value) -> StepResult<Entity> {
        if let Value::Long(number) = called {
            let e = Entity::try_from(*number).ok().filter(|e| *e <= MAX_ENTITY);
            let e = e.ok_or_else(|| {
                invalid_transaction(format!("{called} is not the number of an entity"))
            })?;
            self.max_entity = self.max_entity.max(e);
            return Ok(e);
        }
        let called = self.resolve_lookup_ref(called);
        match self.snapshot().entity_id(&called) {
            Ok(Some(e)) => Ok(e),
            Ok(None) => Err(invalid_transaction(format!(
                "no entity has the ident {called}"
            ))),
            Err(Error::Query(why)) => Err(invalid_transaction(why)),
            Err(error) => Err(error.into()),
        }
    }

    /// Resolves the value of a lookup ref if it is a temporary id.
    fn resolve_lookup_ref(&mut self, called: &Value) -> Value {
        if let Value::Vector(pair) = called
            && let [Value::Keyword(name), value] = &pair[..]
            && let Some(attribute) = self.schema.get(name).cloned()
            && attribute.is_ref()
            && is_tempid(value)
        {
            let e = self.tempid_entity(value);
            return Value::Vector(vec![Value::Keyword(name.clone()), entity_value(e)]);
        }
        called.clone()
    }

    /// Converts a value to the type of the attribute. References may be ids, temporary ids, idents or lookup refs.
    fn convert_value(&mut self, attribute: &Attribute, value: &Value) -> StepResult<Value> {
        if value.is_nil() {
            return Err(invalid_transaction(format!(
                "the value of :{} is nil; leave the attribute out, or retract it",
                attribute.name
            )));
        }
        if !attribute.is_ref() {
            return Ok(coerce(attribute, value.clone())?);
        }
        if is_tempid(value) {
            if !self.tempids.contains_key(value) {
                self.value_only_tempids.insert(value.clone());
            }
            return Ok(entity_value(self.tempid_entity(value)));
        }
        Ok(entity_value(self.resolve_entity(value)?))
    }

    fn apply_operation(&mut self, form: &Value, items: &[Value]) -> StepResult<()> {
        let Some(Value::Keyword(name)) = items.first() else {
            return Err(invalid_transaction(format!(
                "an operation begins with its name; {form} does not"
            )));
        };
        let name = name.clone();
        let arguments = &items[1..];
        let Some(operation) = Operation::parse(&name) else {
            return Err(invalid_transaction(format!(
                ":{name} is not an operation; operations are :db/add, :db/retract, :db/retractEntity, :db.fn/retractAttribute, :db/cas and :db.fn/patchIdoc"
            )));
        };
        match (operation, arguments) {
            (Operation::Add, [e, a, v]) => {
                let attribute = self.attribute(a)?;
                let e = self.subject(e, &attribute, v)?;
                self.add(e, &attribute, v)
            }
            (Operation::Retract, [e, a, v]) if !v.is_nil() => {
                let Some(e) = self.existing_entity(e)? else {
                    return Ok(());
                };
                let attribute = self.attribute(a)?;
                let value = self.convert_value(&attribute, v)?;
                self.remove(e, &attribute, &value)?;
                Ok(())
            }
            (Operation::Retract | Operation::RetractAttribute, [e, a] | [e, a, Value::Nil]) => {
                let Some(e) = self.existing_entity(e)? else {
                    return Ok(());
                };
                let attribute = self.attribute(a)?;
                self.remove_all(e, &attribute)
            }
            (Operation::RetractEntity, [e]) => {
                let Some(e) = self.existing_entity(e)? else {
                    return Ok(());
                };
                self.remove_entity(e)
            }
            (Operation::Cas, [e, a, old, new]) => {
                let e = self.resolve_entity(e)?;
                let attribute = self.attribute(a)?;
                self.compare_and_set(e, &attribute, old, new)
            }
            (Operation::Patch, [e, a, changes]) => self.patch(e, a, None, changes),
            (Operation::Patch, [e, a, old, changes]) => self.patch(e, a, Some(old), changes),
            _ => Err(invalid_transaction(format!(
                "{form} does not have the arguments that :{name} takes"
            ))),
        }
    }

    /// Returns the entity of an addition. A temporary id with a unique identity value means the entity that has this value.
    fn subject(&mut self, e: &Value, attribute: &Arc<Attribute>, v: &Value) -> StepResult<Entity> {
        if !is_tempid(e) {
            return self.resolve_entity(e);
        }
        self.value_only_tempids.remove(e);
        if attribute.unique == Some(Unique::Identity) && !v.is_nil() {
            let value = self.convert_value(attribute, v)?;
            if let Some(holder) = self.snapshot().holder(attribute.id, &value)? {
                self.bind_tempid(e, holder)?;
                return Ok(holder);
            }
        }
        Ok(self.tempid_entity(e))
    }

    /// Returns the entity of a retraction, if it exists. Temporary ids cannot be retracted.
    fn existing_entity(&mut self, e: &Value) -> StepResult<Option<Entity>> {
        if is_tempid(e) {
            return Err(invalid_transaction(format!(
                "the temporary id {e} is allowed in additions only"
            )));
        }
        match self.snapshot().entity_id(e) {
            Ok(found) => Ok(found),
            Err(Error::Query(why)) => Err(invalid_transaction(why)),
            Err(error) => Err(error.into()),
        }
    }

    /// Applies a map that describes an entity.
    fn apply_entity_map(&mut self, members: &Map) -> StepResult<()> {
        let id_key = Value::keyword("db/id");
        let given = members.get(&id_key).filter(|id| !id.is_nil());
        let found = self.find_by_identity(members)?;
        let e = match given {
            None => match found {
                Some((e, _)) => e,
                None => self.new_entity(),
            },
            Some(id) if is_tempid(id) => {
                self.value_only_tempids.remove(id);
                if let Some((e, _)) = found {
                    self.bind_tempid(id, e)?;
                    e
                } else {
                    self.tempid_entity(id)
                }
            }
            Some(id) => {
                let e = self.resolve_entity(id)?;
                if let Some((found, name)) = found
                    && found != e
                {
                    let why = format!(
                        "the map is of entity {e}, but its :{name} belongs to entity {found}"
                    );
                    return Err(conflict(why).into());
                }
                e
            }
        };
        if given.is_none() && members.is_empty() {
            return Err(invalid_transaction("a map has no attributes"));
        }
        for (key, value) in members.iter().filter(|(key, _)| **key != id_key) {
            self.apply_member(e, key, value)?;
        }
        Ok(())
    }

    /// Returns the existing entity that has a unique identity value of a map, and that attribute.
    fn find_by_identity(&mut self, members: &Map) -> StepResult<Option<(Entity, Name)>> {
        let mut found: Option<(Entity, Name)> = None;
        let mut parts: HashMap<Name, Value> = HashMap::new();
        for (key, value) in members {
            let Some(name) = key.as_keyword() else {
                continue;
            };
            let Some(attribute) = self.schema.get(name).cloned() else {
                continue;
            };
            // A nested map describes another entity, so it identifies nothing yet.
            if value.is_nil() || matches!(value, Value::Map(_)) {
                continue;
            }
            if !(attribute.many || attribute.is_ref() && is_tempid(value)) {
                parts.insert(name.clone(), value.clone());
            }
            if attribute.unique != Some(Unique::Identity) {
                continue;
            }
            let values = self.given_values(&attribute, value);
            for value in values {
                if attribute.is_ref()
                    && is_tempid(&value)
                    && !self.tempids.contains_key(&value)
                    && !self.bound_tempids.contains_key(&value)
                {
                    continue;
                }
                let value = self.convert_value(&attribute, &value)?;
                if let Some(e) = self.snapshot().holder(attribute.id, &value)? {
                    check_same_entity(&mut found, e, name)?;
                }
            }
        }
        let tuples: Vec<Arc<Attribute>> = self
            .schema
            .attributes()
            .filter(|tuple| tuple.unique == Some(Unique::Identity) && !tuple.sources().is_empty())
            .cloned()
            .collect();
        for tuple in tuples {
            let values: Option<Vec<Value>> = tuple
                .sources()
                .iter()
                .map(|name| parts.get(name).cloned())
                .collect();
            let Some(values) = values else { continue };
            let mut items = Vec::new();
            for (name, value) in tuple.sources().iter().zip(&values) {
                let attribute = self.attribute(&Value::Keyword(name.clone()))?;
                items.push(self.convert_value(&attribute, value)?);
            }
            if let Some(e) = self.snapshot().holder(tuple.id, &Value::Vector(items))? {
                check_same_entity(&mut found, e, &tuple.name)?;
            }
        }
        Ok(found)
    }

    /// Returns the values given for an attribute: the items of a collection if the attribute can have several values.
    fn given_values(&self, attribute: &Attribute, value: &Value) -> Vec<Value> {
        let is_lookup = |items: &[Value]| {
            let name = items.first().and_then(Value::as_keyword);
            let unique = name
                .and_then(|name| self.schema.get(name))
                .is_some_and(|named| named.unique.is_some());
            attribute.is_ref() && items.len() == 2 && unique
        };
        match value {
            Value::Vector(items) | Value::List(items) if attribute.many && !is_lookup(items) => {
                items.clone()
            }
            Value::Set(items) if attribute.many => items.iter().cloned().collect(),
            value => vec![value.clone()],
        }
    }

    /// Applies one member of a map.
    fn apply_member(&mut self, e: Entity, key: &Value, value: &Value) -> StepResult<()> {
        let text = match key {
            Value::Keyword(name) => Some(name.clone()),
            _ => None,
        };
        let Some(name) = text else {
            return Err(invalid_transaction(format!(
                "an attribute is a keyword; {key} is not"
            )));
        };
        if let Some(forward) = forward_name(&name) {
            let attribute = self.attribute(&Value::Keyword(forward))?;
            if !attribute.is_ref() {
                return Err(invalid_transaction(format!(
                    "the reverse name :{name} needs :{} to be a reference",
                    attribute.name
                )));
            }
            let others = match value {
                Value::Vector(items) | Value::List(items)
                    if !is_lookup_ref(&self.schema, items) =>
                {
                    items.clone()
                }
                Value::Set(items) => items.iter().cloned().collect(),
                value => vec![value.clone()],
            };
            for other in others {
                let subject = match &other {
                    Value::Map(members) => self.apply_nested_map(members)?,
                    other if is_tempid(other) => {
                        self.value_only_tempids.remove(other);
                        self.tempid_entity(other)
                    }
                    other => self.resolve_entity(other)?,
                };
                self.add(subject, &attribute, &entity_value(e))?;
            }
            return Ok(());
        }
        let attribute = self.attribute(&Value::Keyword(name))?;
        for value in self.given_values(&attribute, value) {
            match &value {
                Value::Map(members) if attribute.is_ref() => {
                    let other = self.apply_nested_map(members)?;
                    self.add(e, &attribute, &entity_value(other))?;
                }
                value => self.add(e, &attribute, value)?,
            }
        }
        Ok(())
    }

    /// Applies a nested map. Its entity is added before the outer entity refers to it.
    fn apply_nested_map(&mut self, members: &Map) -> StepResult<Entity> {
        let id_key = Value::keyword("db/id");
        if let Some(id) = members.get(&id_key).filter(|id| !id.is_nil()) {
            let id = id.clone();
            if members.len() > 1 {
                self.apply_entity_map(members)?;
            }
            return if is_tempid(&id) {
                Ok(self.tempid_entity(&id))
            } else {
                self.resolve_entity(&id)
            };
        }
        // A temporary id of its own tells afterwards which entity the map became.
        let name = Value::Long(i64::MIN + i64::try_from(self.tempids.len()).unwrap_or(0));
        let mut named = members.clone();
        named.insert(id_key, name.clone());
        self.apply_entity_map(&named)?;
        let e = self.tempid_entity(&name);
        self.tempids.shift_remove(&name);
        Ok(e)
    }
}

/// Returns the forward attribute of a reverse name, such as `:boss` for `:_boss`. `None` if the name is not reverse.
pub(crate) fn forward_name(name: &Name) -> Option<Name> {
    let bare = name.name().strip_prefix('_')?;
    Some(match name.namespace() {
        Some(namespace) => Name::with_namespace(namespace, bare),
        None => Name::new(bare),
    })
}

fn is_lookup_ref(schema: &Schema, items: &[Value]) -> bool {
    let [Value::Keyword(name), _] = items else {
        return false;
    };
    schema
        .get(name)
        .is_some_and(|attribute| attribute.unique.is_some())
}

/// Returns an error if a map has unique values of two entities.
fn check_same_entity(found: &mut Option<(Entity, Name)>, e: Entity, name: &Name) -> StepResult<()> {
    match found {
        Some((known, other)) if *known != e => Err(conflict(format!(
            "the :{other} of the map belongs to entity {known}, its :{name} to entity {e}"
        ))
        .into()),
        _ => {
            *found = Some((e, name.clone()));
            Ok(())
        }
    }
}

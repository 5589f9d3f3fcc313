//! Transactions: what is to be, said as data, done whole or not at all.

mod facts;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use rung_edn::{Map, Name, Value};
use rung_kv::Batch;

use crate::coerce::coerce;
use crate::datom::{Datom, Entity};
use crate::db::{Db, Moment, Tables, entity_value, meta, number, put_number, store_schema};
use crate::embedding::{Prepared, Texts};
use crate::likeness::{Changes, Indexes};
use crate::sample::Samples;
use crate::schema::{Attribute, Schema, Unique};
use crate::{Error, Result};

/// The greatest entity that may be named by number.
const MAX_ENTITY: Entity = 1 << 53;

/// What a transaction did.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Which transaction it was.
    pub tx: u64,
    /// Facts that came, and facts that went.
    pub datoms: Vec<Datom>,
    /// Which entities the temporary names stand for, in the order in which they came up.
    pub tempids: Map,
    /// The schema after it.
    pub schema: Arc<Schema>,
}

impl Db {
    /// Does a transaction: a sequence of entities as maps and of operations as vectors.
    pub fn transact(&self, given: &Value) -> Result<Report> {
        let forms = given.as_sequence().ok_or_else(|| {
            Error::Transaction("a transaction is a vector of maps and operations".to_owned())
        })?;
        let closed = self.is_closed()?;
        let now = self.option("auto-entity-time?")?.then(now_ms);
        // A temporary name may turn out to stand for an entity that is there when it was given a new one already.
        // Then everything is done anew, and it stands for that one from the beginning.
        let mut known = Map::new();
        // And so it is where vectors of texts are needed: they are made while nobody is kept from writing.
        let mut prepared = Prepared::default();
        loop {
            let (version, indexes) = self.open_indexes()?;
            let (mut again, mut is_stale, mut texts) = (None, false, None);
            let done = self.write(|batch, schema| {
                // Somebody may have changed the schema meanwhile, and with it what goes into which index.
                is_stale = number(batch.view(), self.tables().meta, meta::VERSION)? != version;
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
                    known: &known,
                    only_values: BTreeSet::new(),
                    datoms: Vec::new(),
                    counts: HashMap::new(),
                    samples: Samples::default(),
                    indexes: indexes.clone(),
                    alike: Changes::default(),
                    prepared: &prepared,
                    made_of,
                    tuples: BTreeSet::new(),
                    queue: forms.iter().cloned().collect(),
                };
                let done = transaction.run();
                if let Err(Stop::Again(tempid, e)) = &done {
                    again = Some((tempid.clone(), *e));
                }
                done.map_err(|stop| match stop {
                    Stop::Failed(error) => error,
                    Stop::Wanting(wanting) => {
                        texts = Some(wanting);
                        conflict("texts have no vectors yet")
                    }
                    Stop::Again(tempid, _) => conflict(format!("{tempid} stands for two entities")),
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

fn wrong(why: impl Into<String>) -> Stop {
    Stop::Failed(Error::Transaction(why.into()))
}

fn conflict(why: impl Into<String>) -> Error {
    Error::Conflict(why.into())
}

/// Why a transaction came to an end early.
enum Stop {
    Failed(Error),
    /// A temporary name stands for this entity.
    Again(Value, Entity),
    /// The vectors of these texts are needed.
    Wanting(Texts),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<rung_kv::Error> for Stop {
    fn from(error: rung_kv::Error) -> Self {
        Self::Failed(error.into())
    }
}

type Step<T> = std::result::Result<T, Stop>;

/// A transaction under way.
struct Transaction<'b, 'e, 'k> {
    batch: &'b mut Batch<'e>,
    tables: Tables,
    max_entity: Entity,
    tx: u64,
    schema: Arc<Schema>,
    closed: bool,
    /// The time, where it is said of entities when they came and changed.
    now: Option<i64>,
    schema_grew: bool,
    tempids: Map,
    /// What temporary names stand for from the beginning.
    known: &'k Map,
    /// Temporary names of which nothing is said yet.
    only_values: BTreeSet<Value>,
    datoms: Vec<Datom>,
    /// By how much the number of datoms of an attribute changes.
    counts: HashMap<u32, i64>,
    samples: Samples,
    indexes: Arc<Indexes>,
    /// What becomes of indexes.
    alike: Changes,
    /// Vectors that were made for it.
    prepared: &'k Prepared,
    /// The tuples that an attribute is part of.
    made_of: HashMap<Name, Vec<u32>>,
    /// Tuples whose parts have changed.
    tuples: BTreeSet<(Entity, u32)>,
    queue: VecDeque<Value>,
}

/// An operation, by its names.
enum Operation {
    Add,
    Retract,
    RetractAttribute,
    RetractEntity,
    Cas,
    Patch,
}

impl Operation {
    fn read(name: &Name) -> Option<Self> {
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
    fn run(&mut self) -> Step<Report> {
        let view = self.batch.view();
        self.max_entity = number(view, self.tables.meta, meta::MAX_ENTITY)?;
        self.tx = number(view, self.tables.meta, meta::MAX_TX)? + 1;
        while let Some(form) = self.queue.pop_front() {
            match &form {
                Value::Map(members) => self.entity(members)?,
                Value::Vector(items) | Value::List(items) => self.operation(&form, items)?,
                Value::Nil => {}
                other => {
                    return Err(wrong(format!(
                        "a transaction has maps and operations, and {other} is neither"
                    )));
                }
            }
            self.settle_tuples()?;
        }
        if let Some(tempid) = self.only_values.first() {
            return Err(wrong(format!(
                "the temporary id {tempid} is used as a value only: nothing is said of it"
            )));
        }
        self.settle_times()?;
        for (a, change) in std::mem::take(&mut self.counts) {
            let key = a.to_be_bytes();
            let before = number(self.batch.view(), self.tables.counts, &key)?;
            put_number(
                self.batch,
                self.tables.counts,
                &key,
                before.saturating_add_signed(change),
            )?;
        }
        let texts = self.alike.wanting(&self.indexes, self.prepared)?;
        if !texts.is_empty() {
            return Err(Stop::Wanting(texts));
        }
        self.alike
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
        Ok(Report {
            tx: self.tx,
            datoms: std::mem::take(&mut self.datoms),
            tempids: std::mem::take(&mut self.tempids),
            schema: self.schema.clone(),
        })
    }

    fn moment(&self) -> Moment<'_> {
        Moment {
            view: self.batch.view(),
            tables: self.tables,
            schema: self.schema.clone(),
            indexes: self.indexes.clone(),
        }
    }

    /// The attribute of that name, which comes to be where it is not there.
    fn attribute(&mut self, name: &Value) -> Step<Arc<Attribute>> {
        let name = match name {
            Value::Keyword(name) => name.clone(),
            other => {
                return Err(wrong(format!(
                    "an attribute is a keyword, and {other} is none"
                )));
            }
        };
        if let Some(attribute) = self.schema.get(&name) {
            return Ok(attribute.clone());
        }
        if !name.is_readable() {
            return Err(wrong(format!(
                "{:?} is no attribute's name: it could not be read back",
                name.as_str()
            )));
        }
        if name.name().starts_with('_') {
            return Err(wrong(format!(
                "an attribute's name does not begin with an underscore, as that of :{name}"
            )));
        }
        if self.closed {
            return Err(wrong(format!(
                "the schema is closed, and has no attribute :{name}"
            )));
        }
        self.schema_grew = true;
        Ok(Arc::make_mut(&mut self.schema).add(name))
    }

    /// A new entity.
    fn fresh(&mut self) -> Entity {
        self.max_entity += 1;
        self.max_entity
    }

    /// The entity that a temporary name stands for.
    fn of_tempid(&mut self, tempid: &Value) -> Entity {
        let known = self.tempids.get(tempid).or(self.known.get(tempid));
        if let Some(e) = known
            .and_then(Value::as_i64)
            .and_then(|e| Entity::try_from(e).ok())
        {
            self.tempids.insert(tempid.clone(), entity_value(e));
            return e;
        }
        let e = self.fresh();
        self.tempids.insert(tempid.clone(), entity_value(e));
        e
    }

    /// A temporary name turns out to stand for an entity.
    fn bind_tempid(&mut self, tempid: &Value, e: Entity) -> Step<()> {
        match self.tempids.get(tempid) {
            Some(known) if *known == entity_value(e) => Ok(()),
            Some(_) => Err(Stop::Again(tempid.clone(), e)),
            None => match self.known.get(tempid) {
                Some(known) if *known != entity_value(e) => Err(conflict(format!(
                    "the temporary id {tempid} stands for entity {known} and for entity {e}"
                ))
                .into()),
                _ => {
                    self.tempids.insert(tempid.clone(), entity_value(e));
                    Ok(())
                }
            },
        }
    }

    /// The entity that is called so, which is there or may be: by number, name or lookup ref.
    fn called(&mut self, called: &Value) -> Step<Entity> {
        if let Value::Long(number) = called {
            let e = Entity::try_from(*number).ok().filter(|e| *e <= MAX_ENTITY);
            let e = e.ok_or_else(|| wrong(format!("{called} is no entity's number")))?;
            self.max_entity = self.max_entity.max(e);
            return Ok(e);
        }
        let called = self.resolved(called);
        match self.moment().entity_id(&called) {
            Ok(Some(e)) => Ok(e),
            Ok(None) => Err(wrong(format!("nothing is called {called}"))),
            Err(Error::Query(why)) => Err(wrong(why)),
            Err(error) => Err(error.into()),
        }
    }

    /// A lookup ref whose value may be a temporary name.
    fn resolved(&mut self, called: &Value) -> Value {
        if let Value::Vector(pair) = called
            && let [Value::Keyword(name), value] = &pair[..]
            && let Some(attribute) = self.schema.get(name).cloned()
            && attribute.is_ref()
            && is_tempid(value)
        {
            let e = self.of_tempid(value);
            return Value::Vector(vec![Value::Keyword(name.clone()), entity_value(e)]);
        }
        called.clone()
    }

    /// The value as the attribute has it. An entity may be called by any of its names.
    fn value(&mut self, attribute: &Attribute, value: &Value) -> Step<Value> {
        if value.is_nil() {
            return Err(wrong(format!(
                "the value of :{} is nil: leave it out, or retract it",
                attribute.name
            )));
        }
        if !attribute.is_ref() {
            return Ok(coerce(attribute, value.clone())?);
        }
        if is_tempid(value) {
            if !self.tempids.contains_key(value) {
                self.only_values.insert(value.clone());
            }
            return Ok(entity_value(self.of_tempid(value)));
        }
        Ok(entity_value(self.called(value)?))
    }

    fn operation(&mut self, form: &Value, items: &[Value]) -> Step<()> {
        let Some(Value::Keyword(name)) = items.first() else {
            return Err(wrong(format!(
                "an operation begins with its name, and {form} does not"
            )));
        };
        let name = name.clone();
        let arguments = &items[1..];
        let Some(operation) = Operation::read(&name) else {
            return Err(wrong(format!(
                "there is no operation :{name}; there are :db/add, :db/retract, :db/retractEntity, :db.fn/retractAttribute, :db/cas and :db.fn/patchIdoc"
            )));
        };
        match (operation, arguments) {
            (Operation::Add, [e, a, v]) => {
                let attribute = self.attribute(a)?;
                let e = self.subject(e, &attribute, v)?;
                self.add(e, &attribute, v)
            }
            (Operation::Retract, [e, a, v]) if !v.is_nil() => {
                let Some(e) = self.existing(e)? else {
                    return Ok(());
                };
                let attribute = self.attribute(a)?;
                let value = self.value(&attribute, v)?;
                self.remove(e, &attribute, &value)?;
                Ok(())
            }
            (Operation::Retract | Operation::RetractAttribute, [e, a] | [e, a, Value::Nil]) => {
                let Some(e) = self.existing(e)? else {
                    return Ok(());
                };
                let attribute = self.attribute(a)?;
                self.remove_all(e, &attribute)
            }
            (Operation::RetractEntity, [e]) => {
                let Some(e) = self.existing(e)? else {
                    return Ok(());
                };
                self.remove_entity(e)
            }
            (Operation::Cas, [e, a, old, new]) => {
                let e = self.called(e)?;
                let attribute = self.attribute(a)?;
                self.compare_and_set(e, &attribute, old, new)
            }
            (Operation::Patch, [e, a, changes]) => self.patch(e, a, None, changes),
            (Operation::Patch, [e, a, old, changes]) => self.patch(e, a, Some(old), changes),
            _ => Err(wrong(format!(
                "{form} does not have the arguments of :{name}"
            ))),
        }
    }

    /// The entity of an addition, which may be a temporary name that the addition itself says something of.
    fn subject(&mut self, e: &Value, attribute: &Arc<Attribute>, v: &Value) -> Step<Entity> {
        if !is_tempid(e) {
            return self.called(e);
        }
        self.only_values.remove(e);
        if attribute.unique == Some(Unique::Identity) && !v.is_nil() {
            let value = self.value(attribute, v)?;
            if let Some(holder) = self.moment().holder(attribute.id, &value)? {
                self.bind_tempid(e, holder)?;
                return Ok(holder);
            }
        }
        Ok(self.of_tempid(e))
    }

    /// The entity of a retraction, where there is one. Temporary names stand for nothing that could be retracted.
    fn existing(&mut self, e: &Value) -> Step<Option<Entity>> {
        if is_tempid(e) {
            return Err(wrong(format!(
                "the temporary id {e} is allowed in additions only"
            )));
        }
        match self.moment().entity_id(e) {
            Ok(found) => Ok(found),
            Err(Error::Query(why)) => Err(wrong(why)),
            Err(error) => Err(error.into()),
        }
    }

    /// An entity as a map.
    fn entity(&mut self, members: &Map) -> Step<()> {
        let id_key = Value::keyword("db/id");
        let given = members.get(&id_key).filter(|id| !id.is_nil());
        let found = self.found_by_identity(members)?;
        let e = match given {
            None => match found {
                Some((e, _)) => e,
                None => self.fresh(),
            },
            Some(id) if is_tempid(id) => {
                self.only_values.remove(id);
                if let Some((e, _)) = found {
                    self.bind_tempid(id, e)?;
                    e
                } else {
                    self.of_tempid(id)
                }
            }
            Some(id) => {
                let e = self.called(id)?;
                if let Some((found, name)) = found
                    && found != e
                {
                    let why = format!(
                        "the map is of entity {e}, and its :{name} is that of entity {found}"
                    );
                    return Err(conflict(why).into());
                }
                e
            }
        };
        if given.is_none() && members.is_empty() {
            return Err(wrong("a map says nothing of its entity"));
        }
        for (key, value) in members.iter().filter(|(key, _)| **key != id_key) {
            self.member(e, key, value)?;
        }
        Ok(())
    }

    /// The entity that a map names by values which are its alone.
    fn found_by_identity(&mut self, members: &Map) -> Step<Option<(Entity, Name)>> {
        let mut found: Option<(Entity, Name)> = None;
        let mut parts: HashMap<Name, Value> = HashMap::new();
        for (key, value) in members {
            let Some(name) = key.as_keyword() else {
                continue;
            };
            let Some(attribute) = self.schema.get(name).cloned() else {
                continue;
            };
            // What is nested comes to be with this, and names nothing yet.
            if value.is_nil() || matches!(value, Value::Map(_)) {
                continue;
            }
            if !(attribute.many || attribute.is_ref() && is_tempid(value)) {
                parts.insert(name.clone(), value.clone());
            }
            if attribute.unique != Some(Unique::Identity) {
                continue;
            }
            let values = self.several(&attribute, value);
            for value in values {
                if attribute.is_ref()
                    && is_tempid(&value)
                    && !self.tempids.contains_key(&value)
                    && !self.known.contains_key(&value)
                {
                    continue;
                }
                let value = self.value(&attribute, &value)?;
                if let Some(e) = self.moment().holder(attribute.id, &value)? {
                    same_entity(&mut found, e, name)?;
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
                items.push(self.value(&attribute, value)?);
            }
            if let Some(e) = self.moment().holder(tuple.id, &Value::Vector(items))? {
                same_entity(&mut found, e, &tuple.name)?;
            }
        }
        Ok(found)
    }

    /// The values that are given for an attribute: several where it has several and they are given as such.
    fn several(&self, attribute: &Attribute, value: &Value) -> Vec<Value> {
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

    /// What a map says of one attribute.
    fn member(&mut self, e: Entity, key: &Value, value: &Value) -> Step<()> {
        let text = match key {
            Value::Keyword(name) => Some(name.clone()),
            _ => None,
        };
        let Some(name) = text else {
            return Err(wrong(format!(
                "an attribute is a keyword, and {key} is none"
            )));
        };
        if let Some(forward) = forward(&name) {
            let attribute = self.attribute(&Value::Keyword(forward))?;
            if !attribute.is_ref() {
                return Err(wrong(format!(
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
                    Value::Map(members) => self.nested(members)?,
                    other if is_tempid(other) => {
                        self.only_values.remove(other);
                        self.of_tempid(other)
                    }
                    other => self.called(other)?,
                };
                self.add(subject, &attribute, &entity_value(e))?;
            }
            return Ok(());
        }
        let attribute = self.attribute(&Value::Keyword(name))?;
        for value in self.several(&attribute, value) {
            match &value {
                Value::Map(members) if attribute.is_ref() => {
                    let other = self.nested(members)?;
                    self.add(e, &attribute, &entity_value(other))?;
                }
                value => self.add(e, &attribute, value)?,
            }
        }
        Ok(())
    }

    /// An entity within another: it is done before what it is part of is linked to it.
    fn nested(&mut self, members: &Map) -> Step<Entity> {
        let id_key = Value::keyword("db/id");
        if let Some(id) = members.get(&id_key).filter(|id| !id.is_nil()) {
            let id = id.clone();
            if members.len() > 1 {
                self.entity(members)?;
            }
            return if is_tempid(&id) {
                Ok(self.of_tempid(&id))
            } else {
                self.called(&id)
            };
        }
        // Named, so that it can be told which one it became.
        let name = Value::Long(i64::MIN + i64::try_from(self.tempids.len()).unwrap_or(0));
        let mut named = members.clone();
        named.insert(id_key, name.clone());
        self.entity(&named)?;
        let e = self.of_tempid(&name);
        self.tempids.shift_remove(&name);
        Ok(e)
    }
}

/// The attribute that a reverse name goes back by.
pub(crate) fn forward(name: &Name) -> Option<Name> {
    let bare = name.name().strip_prefix('_')?;
    Some(match name.namespace() {
        Some(namespace) => Name::within(namespace, bare),
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

/// Refuses a map that has values of two entities which are each one's alone.
fn same_entity(found: &mut Option<(Entity, Name)>, e: Entity, name: &Name) -> Step<()> {
    match found {
        Some((known, other)) if *known != e => Err(conflict(format!(
            "the map has the :{other} of entity {known} and the :{name} of entity {e}"
        ))
        .into()),
        _ => {
            *found = Some((e, name.clone()));
            Ok(())
        }
    }
}

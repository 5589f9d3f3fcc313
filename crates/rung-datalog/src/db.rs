//! A database: where its datoms are, and everything as it is at one moment.

use std::collections::HashSet;
use std::fmt;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use rung_edn::{Map, Name, Value, read};
use rung_kv::{Batch, Kv, KvOptions, Table, View, encode};

use crate::coerce::restored;
use crate::datom::{
    Datom, Entity, ave_prefix, eav_key, eav_prefix, encoded, in_key, is_cut, of_ave, of_eav,
    whole_key,
};
use crate::embedding::{Embed, Place};
use crate::index::{Order, Reach};
use crate::likeness::Indexes;
use crate::query::Asked;
use crate::schema::{Attribute, IDENT, Schema};
use crate::{Error, Result};

/// How a database is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether it is made where it is not there.
    pub create: bool,
    /// Whether it may be changed.
    pub writable: bool,
    /// Who makes vectors of texts that are found by what they mean.
    pub embed: Option<Arc<dyn Embed>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            writable: true,
            embed: None,
        }
    }
}

/// A database, or as much of it as some may see.
#[derive(Debug)]
pub struct Db {
    kv: Arc<Kv>,
    tables: Tables,
    /// The schema of a version.
    schema: RwLock<(u64, Arc<Schema>)>,
    asked: Asked,
    /// The indexes of values that are found by likeness, of a version of the schema.
    indexes: RwLock<(u64, Arc<Indexes>)>,
    sight: Option<Sight>,
    embed: Option<Arc<dyn Embed>>,
}

/// Which attributes there are for whoever reads.
///
/// The others are not hidden by rewriting queries: a scan passes them over, and their names mean nothing.
#[derive(Clone)]
pub struct Sight(Arc<dyn Fn(&Name) -> bool + Send + Sync>);

impl Sight {
    /// Those of which this is true.
    pub fn new(sees: impl Fn(&Name) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(sees))
    }
}

impl fmt::Debug for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sight")
    }
}

/// The tables there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tables {
    /// Entity, attribute, value → nothing.
    pub(crate) eav: Table,
    /// Attribute, value, entity → nothing.
    pub(crate) ave: Table,
    /// Entity, attribute, digest → a value that is too long for a key.
    pub(crate) long: Table,
    /// Number → attribute.
    pub(crate) schema: Table,
    /// Number of an attribute → how many datoms it has.
    pub(crate) counts: Table,
    /// Attribute, value, entity → nothing, for a sample of them.
    pub(crate) sample: Table,
    /// Attribute, keys that lead into a document and the value there, entity → nothing.
    pub(crate) paths: Table,
    /// What concerns the database as a whole.
    pub(crate) meta: Table,
}

/// Rows of `meta`.
pub(crate) mod meta {
    pub(crate) const VERSION: &[u8] = b"schema version";
    pub(crate) const MAX_ENTITY: &[u8] = b"max entity";
    pub(crate) const MAX_TX: &[u8] = b"max transaction";
    pub(crate) const OPTIONS: &[u8] = b"options";
    pub(crate) const FORMAT: &[u8] = b"format";
}

/// The format of a database. It changes with any change of a table's meaning.
const FORMAT: u64 = 2;

impl Db {
    /// Opens the database in a folder.
    pub fn open(folder: &Path, options: &Options) -> Result<Self> {
        let kv = Kv::open(
            folder,
            KvOptions {
                create: options.create,
                writable: options.writable,
                ..KvOptions::default()
            },
        )?;
        let table = |name: &str| {
            if options.writable {
                return kv.create(name);
            }
            kv.table(name)?.ok_or(rung_kv::Error::Corrupt("database"))
        };
        let tables = Tables {
            eav: table("datalog/eav")?,
            ave: table("datalog/ave")?,
            long: table("datalog/long")?,
            schema: table("datalog/schema")?,
            counts: table("datalog/counts")?,
            sample: table("datalog/sample")?,
            paths: table("datalog/paths")?,
            meta: table("datalog/meta")?,
        };
        let db = Self::of(Arc::new(kv), tables, None, options.embed.clone());
        let format = db.kv.read(|view| number(view, tables.meta, meta::FORMAT))?;
        match format {
            FORMAT => {}
            0 if options.writable => db.kv.write(|batch| {
                put_number(batch, tables.meta, meta::FORMAT, FORMAT)?;
                store_schema(batch, tables, &Schema::new())
            })?,
            found => {
                return Err(Error::Store(rung_kv::Error::Format {
                    found: u32::try_from(found).unwrap_or(u32::MAX),
                    supported: u32::try_from(FORMAT).unwrap_or(u32::MAX),
                }));
            }
        }
        db.open_indexes()?;
        Ok(db)
    }

    fn of(
        kv: Arc<Kv>,
        tables: Tables,
        sight: Option<Sight>,
        embed: Option<Arc<dyn Embed>>,
    ) -> Self {
        Self {
            kv,
            tables,
            schema: RwLock::default(),
            asked: Asked::default(),
            indexes: RwLock::default(),
            sight,
            embed,
        }
    }

    /// The same database for readers who see so much of it.
    pub fn seen(&self, sight: Sight) -> Result<Self> {
        let within = match self.sight.clone() {
            Some(own) => Sight::new(move |name| (own.0)(name) && (sight.0)(name)),
            None => sight,
        };
        let db = Self::of(
            self.kv.clone(),
            self.tables,
            Some(within),
            self.embed.clone(),
        );
        db.open_indexes()?;
        Ok(db)
    }

    /// Opens the indexes of values that are found by likeness, as the schema and the options have them now. They are those of the
    /// version that is given.
    pub(crate) fn open_indexes(&self) -> Result<(u64, Arc<Indexes>)> {
        let (version, schema) = self.kv.read(|view| {
            let (version, moment) = self.versioned(view)?;
            Ok::<_, Error>((version, moment.schema))
        })?;
        let known = self.indexes.read().clone();
        if known.0 == version && version > 0 {
            return Ok(known);
        }
        let indexes = Arc::new(self.indexes_of(&schema, &HashSet::new())?);
        *self.indexes.write() = (version, indexes.clone());
        Ok((version, indexes))
    }

    /// The indexes that a schema needs, made where they are not there; embeddings are made of these domains.
    pub(crate) fn indexes_of(&self, schema: &Schema, made: &HashSet<String>) -> Result<Indexes> {
        self.indexes_with(schema, &self.options()?, made)
    }

    fn indexes_with(
        &self,
        schema: &Schema,
        options: &Map,
        made: &HashSet<String>,
    ) -> Result<Indexes> {
        let place = Place {
            kv: &self.kv,
            meta: self.tables.meta,
        };
        Indexes::open(place, schema, options, self.embed.as_ref(), made)
    }

    pub(crate) fn indexes(&self) -> Arc<Indexes> {
        self.indexes.read().1.clone()
    }

    /// Runs `f` on everything as it is now. It may run again from the start.
    pub fn read<T>(&self, mut f: impl FnMut(&Moment<'_>) -> Result<T>) -> Result<T> {
        loop {
            let done = self.kv.read(|view| {
                let (version, moment) = self.versioned(view)?;
                // Another process may have changed what is found by likeness.
                if self.indexes.read().0 < version {
                    return Ok(None);
                }
                f(&moment).map(Some)
            })?;
            match done {
                Some(done) => return Ok(done),
                None => self.open_indexes()?,
            };
        }
    }

    /// Runs `f` in a transaction that is on disk when this returns. `f` may run again from the start.
    pub(crate) fn write<T>(
        &self,
        mut f: impl FnMut(&mut Batch<'_>, Arc<Schema>) -> Result<T>,
    ) -> Result<T> {
        // A change concerns what others see of an entity, so it takes sight of everything.
        if !self.kv.is_writable() || self.sight.is_some() {
            return Err(Error::ReadOnly);
        }
        self.kv.write(|batch| {
            let schema = self.moment(batch.view())?.schema;
            f(batch, schema)
        })
    }

    /// The queries that were asked.
    pub(crate) fn asked(&self) -> &Asked {
        &self.asked
    }

    pub(crate) fn tables(&self) -> Tables {
        self.tables
    }

    pub(crate) fn moment<'t>(&self, view: View<'t>) -> Result<Moment<'t>> {
        Ok(self.versioned(view)?.1)
    }

    /// A moment, and the version of its schema.
    fn versioned<'t>(&self, view: View<'t>) -> Result<(u64, Moment<'t>)> {
        let tables = self.tables;
        let version = number(view, tables.meta, meta::VERSION)?;
        let known = self.schema.read().clone();
        let schema = if known.0 == version && version > 0 {
            known.1
        } else {
            let mut schema = load_schema(view, tables)?;
            if let Some(Sight(sees)) = &self.sight {
                schema.show_only(|name| sees(name));
            }
            let schema = Arc::new(schema);
            let mut cached = self.schema.write();
            if cached.0 < version {
                *cached = (version, schema.clone());
            }
            schema
        };
        let moment = Moment {
            view,
            tables,
            schema,
            indexes: self.indexes(),
        };
        Ok((version, moment))
    }

    /// The options that the database was given.
    pub fn options(&self) -> Result<Map> {
        self.kv.read(|view| {
            let Some(bytes) = view.get(self.tables.meta, meta::OPTIONS)? else {
                return Ok(Map::new());
            };
            match encode::decode(bytes)? {
                Value::Map(options) => Ok(options),
                _ => Err(Error::Store(rung_kv::Error::Corrupt("database"))),
            }
        })
    }

    /// Sets options, beside those that there are.
    pub fn set_options(&self, given: &Map) -> Result<()> {
        let mut options = self.options()?;
        options.extend(given.clone());
        // What no index can be made with is refused before it is kept.
        let schema = self.read(|moment| Ok(moment.schema.clone()))?;
        if self.kv.is_writable() {
            let concerns = ["embedding-opts", "embedding-domains"];
            let concerned = concerns
                .iter()
                .any(|name| given.contains_key(&Value::keyword(name)));
            let known = self.indexes();
            let made = known.embeddings.keys().filter(|_| concerned).cloned();
            self.indexes_with(&schema, &options, &made.collect())?;
        }
        let bytes = encode::encode(&Value::Map(options));
        self.write(|batch, _| Ok(batch.put(self.tables.meta, meta::OPTIONS, &bytes)?))?;
        self.indexes.write().0 = 0;
        self.open_indexes()?;
        Ok(())
    }

    /// Whether attributes must be declared before they are used.
    pub fn is_closed(&self) -> Result<bool> {
        self.option("closed-schema?")
    }

    /// Whether an option is set.
    pub(crate) fn option(&self, name: &str) -> Result<bool> {
        let options = self.options()?;
        Ok(options
            .get(&Value::keyword(name))
            .is_some_and(Value::is_truthy))
    }

    /// Bytes that the database takes on the disk.
    pub fn disk_bytes(&self) -> Result<u64> {
        Ok(self.kv.disk_bytes()?)
    }
}

pub(crate) fn number(view: View<'_>, table: Table, key: &[u8]) -> Result<u64> {
    let bytes = view.get(table, key)?;
    Ok(bytes
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_be_bytes))
}

pub(crate) fn put_number(
    batch: &mut Batch<'_>,
    table: Table,
    key: &[u8],
    number: u64,
) -> Result<()> {
    Ok(batch.put(table, key, &number.to_be_bytes())?)
}

/// Each attribute is kept as its name and its properties.
fn load_schema(view: View<'_>, tables: Tables) -> Result<Schema> {
    let mut schema = Schema::default();
    for pair in view.prefix(tables.schema, &[])? {
        let (_, row) = pair?;
        let text = str::from_utf8(row).map_err(|_| rung_kv::Error::Corrupt("schema"))?;
        schema.apply(&read(text)?)?;
    }
    Ok(schema)
}

/// Keeps a schema, and makes it known to everybody.
pub(crate) fn store_schema(batch: &mut Batch<'_>, tables: Tables, schema: &Schema) -> Result<()> {
    for attribute in schema.attributes() {
        let name = Value::Keyword(attribute.name.clone());
        let mut row = Map::new();
        row.insert(name, Value::Map(attribute.properties()));
        let row = Value::Map(row).to_string();
        batch.put(tables.schema, &attribute.id.to_be_bytes(), row.as_bytes())?;
    }
    let version = number(batch.view(), tables.meta, meta::VERSION)?;
    put_number(batch, tables.meta, meta::VERSION, version + 1)
}

/// Everything as it is at one moment.
#[derive(Clone)]
pub struct Moment<'t> {
    pub(crate) view: View<'t>,
    pub(crate) tables: Tables,
    pub(crate) schema: Arc<Schema>,
    pub(crate) indexes: Arc<Indexes>,
}

#[cold]
fn corrupt() -> Error {
    Error::Store(rung_kv::Error::Corrupt("datom"))
}

/// An entity, an attribute by its number, and the bytes of a value.
pub(crate) type Fact<'t> = (Entity, u32, &'t [u8]);

impl<'t> Moment<'t> {
    /// What is known of attributes.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The attribute of that name.
    pub fn attribute(&self, name: &Name) -> Option<&Arc<Attribute>> {
        self.schema.get(name)
    }

    /// The greatest entity that there ever was.
    pub fn max_entity(&self) -> Result<Entity> {
        number(self.view, self.tables.meta, meta::MAX_ENTITY)
    }

    /// How many transactions there were.
    pub fn max_transaction(&self) -> Result<u64> {
        number(self.view, self.tables.meta, meta::MAX_TX)
    }

    /// Whether an attribute is there for whoever reads.
    pub(crate) fn sees(&self, a: u32) -> bool {
        self.schema.by_id(a).is_some()
    }

    fn shows(&self, fact: &Result<Fact<'_>>) -> bool {
        fact.as_ref().map_or(true, |(_, a, _)| self.sees(*a))
    }

    /// How many datoms an attribute has.
    pub fn count_of(&self, a: u32) -> Result<u64> {
        number(self.view, self.tables.counts, &a.to_be_bytes())
    }

    /// A sample of the facts of an attribute, in the order of their values.
    pub(crate) fn sample(&self, a: u32) -> Result<Vec<Fact<'t>>> {
        let keys = crate::sample::keys(self.view, self.tables.sample, a)?;
        keys.into_iter().map(|key| self.by_value(key)).collect()
    }

    /// A value of an attribute, neither its least nor its greatest where there are more.
    pub fn example(&self, a: u32) -> Result<Option<Value>> {
        let sample = self.sample(a)?;
        let middle = if let Some(fact) = sample.get(sample.len() / 2) {
            Some(*fact)
        } else {
            let mut all = self.of_attribute(a, Bound::Unbounded, Bound::Unbounded)?;
            all.next().transpose()?
        };
        middle.map(|(_, a, v)| self.value(a, v)).transpose()
    }

    /// How many datoms there are.
    pub fn count(&self) -> Result<u64> {
        if self.schema.is_narrow() {
            let counts = self
                .schema
                .attributes()
                .map(|attribute| self.count_of(attribute.id));
            return counts.sum();
        }
        Ok(self.view.count(self.tables.eav)?)
    }

    /// The bytes of a value, of which those in a key may be the beginning.
    pub(crate) fn whole(&self, e: Entity, a: u32, in_key: &'t [u8]) -> Result<&'t [u8]> {
        if !is_cut(in_key) {
            return Ok(in_key);
        }
        let found = self.view.get(self.tables.long, &whole_key(e, a, in_key))?;
        found.ok_or_else(corrupt)
    }

    fn by_entity(&self, key: &'t [u8]) -> Result<Fact<'t>> {
        let (e, a, v) = of_eav(key).ok_or_else(corrupt)?;
        Ok((e, a, self.whole(e, a, v)?))
    }

    fn by_value(&self, key: &'t [u8]) -> Result<Fact<'t>> {
        let (e, a, v) = of_ave(key).ok_or_else(corrupt)?;
        Ok((e, a, self.whole(e, a, v)?))
    }

    /// The facts of an entity, of all attributes or of one.
    pub(crate) fn of_entity(
        &self,
        e: Entity,
        a: Option<u32>,
    ) -> Result<impl Iterator<Item = Result<Fact<'t>>> + use<'_, 't>> {
        let key = eav_prefix(e, a.unwrap_or(0));
        let key = if a.is_some() {
            &key[..]
        } else {
            &key[..crate::datom::E]
        };
        let pairs = self.view.prefix(self.tables.eav, key)?;
        let facts = pairs.map(|pair| self.by_entity(pair?.0));
        Ok(facts.filter(|fact| self.shows(fact)))
    }

    /// The first value that an entity has of an attribute, by its bytes.
    pub(crate) fn first_value(&self, e: Entity, a: u32) -> Result<Option<&'t [u8]>> {
        let prefix = eav_prefix(e, a);
        let found = self.view.first_from(self.tables.eav, &prefix)?;
        let in_key = found.and_then(|(key, _)| key.strip_prefix(&prefix));
        in_key.map(|in_key| self.whole(e, a, in_key)).transpose()
    }

    /// The entities that have a value, by its bytes.
    pub(crate) fn holders(
        &self,
        a: u32,
        encoded: &[u8],
    ) -> Result<impl Iterator<Item = Result<Entity>> + use<'_, 't>> {
        Ok(self.of_value(a, encoded)?.map(|fact| Ok(fact?.0)))
    }

    /// The facts that say of some entity that it has a value, by its bytes.
    pub(crate) fn of_value(
        &self,
        a: u32,
        encoded: &[u8],
    ) -> Result<impl Iterator<Item = Result<Fact<'t>>> + use<'_, 't>> {
        let key = ave_prefix(a, &in_key(encoded));
        let pairs = self.view.prefix(self.tables.ave, &key)?;
        Ok(pairs.map(|pair| self.by_value(pair?.0)))
    }

    /// The fact that an entity has a value, by its bytes, where it is one.
    pub(crate) fn of_entity_value(
        &self,
        e: Entity,
        a: u32,
        encoded: &[u8],
    ) -> Result<Option<Fact<'t>>> {
        let key = eav_key(e, a, &in_key(encoded));
        let found = self
            .view
            .prefix(self.tables.eav, &key)?
            .next()
            .transpose()?;
        found.map(|(key, _)| self.by_entity(key)).transpose()
    }

    /// The facts of an attribute whose values' bytes lie within bounds, in the order of the values.
    pub(crate) fn of_attribute(
        &self,
        a: u32,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<impl Iterator<Item = Result<Fact<'t>>> + use<'_, 't>> {
        let bound = |bound: Bound<&[u8]>, last: u8| match bound {
            Bound::Unbounded => None,
            Bound::Included(value) | Bound::Excluded(value) => {
                let mut key = ave_prefix(a, &in_key(value));
                key.extend_from_slice(&[last; crate::datom::E]);
                Some(key)
            }
        };
        let first = match from {
            Bound::Excluded(_) => bound(from, 0xFF),
            _ => bound(from, 0),
        };
        let first = first.unwrap_or_else(|| a.to_be_bytes().to_vec());
        let last = match to {
            Bound::Excluded(_) => bound(to, 0),
            _ => bound(to, 0xFF),
        };
        let last = last.unwrap_or_else(|| (a + 1).to_be_bytes().to_vec());
        let bounds = (Bound::Included(&first[..]), Bound::Excluded(&last[..]));
        let pairs = self.view.range(self.tables.ave, bounds)?;
        Ok(pairs.map(|pair| self.by_value(pair?.0)))
    }

    /// The facts from an entity's attribute on to the last of another entity, with values as they stand in keys.
    pub(crate) fn keys(
        &self,
        (e, a): (Entity, u32),
        last: Entity,
    ) -> Result<impl Iterator<Item = Result<Fact<'t>>> + use<'t>> {
        let (first, end) = (eav_prefix(e, a), (last + 1).to_be_bytes());
        let bounds = (Bound::Included(&first[..]), Bound::Excluded(&end[..]));
        let pairs = self.view.range(self.tables.eav, bounds)?;
        Ok(pairs.map(|pair| of_eav(pair?.0).ok_or_else(corrupt)))
    }

    /// All facts, by entity.
    pub(crate) fn all(&self) -> Result<impl Iterator<Item = Result<Fact<'t>>> + use<'_, 't>> {
        let pairs = self.view.prefix(self.tables.eav, &[])?;
        let facts = pairs.map(|pair| self.by_entity(pair?.0));
        Ok(facts.filter(|fact| self.shows(fact)))
    }

    /// The facts in an order whose keys begin so; or those and what comes after; or those and what comes before, the last first.
    pub(crate) fn walk(
        &self,
        order: Order,
        reach: Reach,
        key: &[u8],
    ) -> Result<impl Iterator<Item = Result<Fact<'t>>> + use<'_, 't>> {
        let table = self.table(order);
        let pairs: Box<dyn Iterator<Item = _> + 't> = match reach {
            Reach::Within => Box::new(self.view.prefix(table, key)?),
            Reach::From if key.is_empty() => Box::new(self.view.prefix(table, key)?),
            Reach::From => {
                let bounds = (Bound::Included(key), Bound::Unbounded);
                Box::new(self.view.range(table, bounds)?)
            }
            Reach::Back => {
                // No key is longer, so none that begins so comes after.
                let mut end = key.to_vec();
                end.resize(rung_kv::MAX_KEY_BYTES, 0xFF);
                let bounds = (Bound::Unbounded, Bound::Included(&end[..]));
                Box::new(self.view.range_back(table, bounds)?)
            }
        };
        let facts = pairs.map(move |pair| self.fact(order, pair?.0));
        Ok(facts.filter(|fact| self.shows(fact)))
    }

    fn table(&self, order: Order) -> Table {
        match order {
            Order::Eav => self.tables.eav,
            Order::Ave => self.tables.ave,
        }
    }

    fn fact(&self, order: Order, key: &'t [u8]) -> Result<Fact<'t>> {
        match order {
            Order::Eav => self.by_entity(key),
            Order::Ave => self.by_value(key),
        }
    }

    /// The value of a fact, as its attribute has it.
    pub(crate) fn value(&self, a: u32, encoded: &[u8]) -> Result<Value> {
        let value = encode::take(encoded)?;
        Ok(match self.schema.by_id(a) {
            Some(attribute) => restored(attribute, value),
            None => value,
        })
    }

    /// A fact as a datom.
    pub(crate) fn datom(&self, (e, a, v): Fact<'_>) -> Result<Datom> {
        Ok(Datom {
            e,
            a,
            v: self.value(a, v)?,
            added: true,
        })
    }

    /// Every datom, by entity, shown to `visit` one after the other.
    pub fn each_datom(&self, mut visit: impl FnMut(Datom) -> Result<()>) -> Result<()> {
        for fact in self.all()? {
            visit(self.datom(fact?)?)?;
        }
        Ok(())
    }

    /// The values that an entity has of an attribute.
    pub fn values(&self, e: Entity, a: u32) -> Result<Vec<Value>> {
        let facts = self.of_entity(e, Some(a))?;
        facts.map(|fact| self.value(a, fact?.2)).collect()
    }

    /// Whether there is something of an entity.
    pub fn exists(&self, e: Entity) -> Result<bool> {
        Ok(self.of_entity(e, None)?.next().transpose()?.is_some())
    }

    /// The entity that has a value which is one's alone.
    pub(crate) fn holder(&self, a: u32, value: &Value) -> Result<Option<Entity>> {
        self.holders(a, &encoded(value))?.next().transpose()
    }

    /// The entity that is called so: by its number, by its name, or by a value that is its alone.
    pub fn entity_id(&self, called: &Value) -> Result<Option<Entity>> {
        match called {
            Value::Long(number) => Ok(Entity::try_from(*number).ok()),
            Value::Keyword(_) => {
                let ident = self.attribute(&IDENT.into());
                ident.map_or(Ok(None), |ident| self.holder(ident.id, called))
            }
            Value::Vector(pair) | Value::List(pair) => {
                let [Value::Keyword(name), value] = &pair[..] else {
                    return Err(Error::Query(format!(
                        "{called} is no lookup ref: it is [attribute value]"
                    )));
                };
                let Some(attribute) = self
                    .attribute(name)
                    .filter(|attribute| attribute.unique.is_some())
                else {
                    let why =
                        format!("the lookup ref {called} names :{name}, which is not :db/unique");
                    return Err(Error::Query(why));
                };
                if value.is_nil() {
                    return Ok(None);
                }
                let value = if attribute.is_ref() {
                    match self.entity_id(value)? {
                        Some(e) => entity_value(e),
                        None => return Ok(None),
                    }
                } else {
                    match crate::coerce::coerce(attribute, value.clone()) {
                        Ok(value) => value,
                        Err(_) => return Ok(None),
                    }
                };
                self.holder(attribute.id, &value)
            }
            Value::Nil => Ok(None),
            other => Err(Error::Query(format!(
                "{other} names no entity: it is a number, a keyword or a lookup ref"
            ))),
        }
    }
}

/// An entity as a value.
pub(crate) fn entity_value(e: Entity) -> Value {
    Value::Long(i64::try_from(e).expect("entities are numbered from one up"))
}

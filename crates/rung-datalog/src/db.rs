//! A database: its tables, its options, and consistent snapshots of its datoms.

use std::collections::HashSet;
use std::fmt;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use rung_edn::{Map, Name, Value, read};
use rung_kv::{Batch, Kv, KvOptions, Table, View, encode};

use crate::coerce::restore_type;
use crate::datom::{
    Datom, Entity, ave_prefix, eav_key, eav_prefix, encode_value, is_truncated, long_value_key,
    parse_ave_key, parse_eav_key, to_key_bytes,
};
use crate::embedding::{Embed, IndexStorage};
use crate::index::{IndexOrder, IndexScan};
use crate::query::QueryCache;
use crate::schema::{Attribute, IDENT, Schema};
use crate::search_indexes::SearchIndexes;
use crate::{Error, Result};

/// Options for opening a database.
#[derive(Debug, Clone)]
pub struct DbOptions {
    /// Whether to create the database if it does not exist.
    pub create: bool,
    /// Whether to allow writes.
    pub writable: bool,
    /// Embeds the texts of attributes with `:db/embedding`.
    pub embed: Option<Arc<dyn Embed>>,
}

impl Default for DbOptions {
    fn default() -> Self {
        Self {
            create: true,
            writable: true,
            embed: None,
        }
    }
}

/// A database, or the part of it that an attribute filter shows.
#[derive(Debug)]
pub struct Db {
    kv: Arc<Kv>,
    tables: DatomTables,
    /// The cached schema and its version.
    schema: RwLock<(u64, Arc<Schema>)>,
    query_cache: QueryCache,
    /// The search indexes, and the schema version that they belong to.
    indexes: RwLock<(u64, Arc<SearchIndexes>)>,
    filter: Option<AttributeFilter>,
    embed: Option<Arc<dyn Embed>>,
}

/// Selects the attributes that a reader can see.
///
/// Queries are not rewritten: scans skip hidden attributes, and their names are unknown.
#[derive(Clone)]
pub struct AttributeFilter(Arc<dyn Fn(&Name) -> bool + Send + Sync>);

impl AttributeFilter {
    /// Creates a filter that shows the attributes for which `sees` returns true.
    pub fn new(sees: impl Fn(&Name) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(sees))
    }
}

impl fmt::Debug for AttributeFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AttributeFilter")
    }
}

/// The tables of a database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DatomTables {
    /// Entity, attribute, value → nothing.
    pub(crate) eav: Table,
    /// Attribute, value, entity → nothing.
    pub(crate) ave: Table,
    /// Entity, attribute, digest → a value that is too long for a key.
    pub(crate) long: Table,
    /// Number → attribute.
    pub(crate) schema: Table,
    /// Attribute id → number of its datoms.
    pub(crate) counts: Table,
    /// Attribute, value, entity → nothing, for a sample of the datoms.
    pub(crate) sample: Table,
    /// Attribute, keys that lead into a document and the value there, entity → nothing.
    pub(crate) paths: Table,
    /// Values that concern the whole database.
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
    pub fn open(folder: &Path, options: &DbOptions) -> Result<Self> {
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
        let tables = DatomTables {
            eav: table("datalog/eav")?,
            ave: table("datalog/ave")?,
            long: table("datalog/long")?,
            schema: table("datalog/schema")?,
            counts: table("datalog/counts")?,
            sample: table("datalog/sample")?,
            paths: table("datalog/paths")?,
            meta: table("datalog/meta")?,
        };
        let db = Self::new(Arc::new(kv), tables, None, options.embed.clone());
        let format = db
            .kv
            .read(|view| read_number(view, tables.meta, meta::FORMAT))?;
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

    fn new(
        kv: Arc<Kv>,
        tables: DatomTables,
        filter: Option<AttributeFilter>,
        embed: Option<Arc<dyn Embed>>,
    ) -> Self {
        Self {
            kv,
            tables,
            schema: RwLock::default(),
            query_cache: QueryCache::default(),
            indexes: RwLock::default(),
            filter,
            embed,
        }
    }

    /// Returns a read-only view of the database with only the attributes that the filter (and any earlier filter) shows.
    pub fn filtered(&self, filter: AttributeFilter) -> Result<Self> {
        let within = match self.filter.clone() {
            Some(own) => AttributeFilter::new(move |name| (own.0)(name) && (filter.0)(name)),
            None => filter,
        };
        let db = Self::new(
            self.kv.clone(),
            self.tables,
            Some(within),
            self.embed.clone(),
        );
        db.open_indexes()?;
        Ok(db)
    }

    /// Opens the search indexes that the current schema and options require. Returns them with the version of that schema.
    pub(crate) fn open_indexes(&self) -> Result<(u64, Arc<SearchIndexes>)> {
        let (version, schema) = self.kv.read(|view| {
            let (version, moment) = self.versioned_snapshot(view)?;
            Ok::<_, Error>((version, moment.schema))
        })?;
        let known = self.indexes.read().clone();
        if known.0 == version && version > 0 {
            return Ok(known);
        }
        let indexes = Arc::new(self.build_indexes(&schema, &HashSet::new())?);
        *self.indexes.write() = (version, indexes.clone());
        Ok((version, indexes))
    }

    /// Opens the indexes that a schema needs, and creates missing ones; embedding indexes only for the domains in `made`.
    pub(crate) fn build_indexes(
        &self,
        schema: &Schema,
        made: &HashSet<String>,
    ) -> Result<SearchIndexes> {
        self.build_indexes_with(schema, &self.options()?, made)
    }

    fn build_indexes_with(
        &self,
        schema: &Schema,
        options: &Map,
        made: &HashSet<String>,
    ) -> Result<SearchIndexes> {
        let place = IndexStorage {
            kv: &self.kv,
            meta: self.tables.meta,
        };
        SearchIndexes::open(place, schema, options, self.embed.as_ref(), made)
    }

    pub(crate) fn indexes(&self) -> Arc<SearchIndexes> {
        self.indexes.read().1.clone()
    }

    /// Runs `f` on a consistent snapshot. `f` may run again from the start.
    pub fn read<T>(&self, mut f: impl FnMut(&Snapshot<'_>) -> Result<T>) -> Result<T> {
        loop {
            let done = self.kv.read(|view| {
                let (version, moment) = self.versioned_snapshot(view)?;
                // Another process may have changed which search indexes exist.
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
        // A write may touch attributes that a filter hides, so it needs an unfiltered database.
        if !self.kv.is_writable() || self.filter.is_some() {
            return Err(Error::ReadOnly);
        }
        self.kv.write(|batch| {
            let schema = self.snapshot(batch.view())?.schema;
            f(batch, schema)
        })
    }

    pub(crate) fn query_cache(&self) -> &QueryCache {
        &self.query_cache
    }

    pub(crate) fn tables(&self) -> DatomTables {
        self.tables
    }

    pub(crate) fn snapshot<'t>(&self, view: View<'t>) -> Result<Snapshot<'t>> {
        Ok(self.versioned_snapshot(view)?.1)
    }

    /// Returns a snapshot and the version of its schema.
    fn versioned_snapshot<'t>(&self, view: View<'t>) -> Result<(u64, Snapshot<'t>)> {
        let tables = self.tables;
        let version = read_number(view, tables.meta, meta::VERSION)?;
        let known = self.schema.read().clone();
        let schema = if known.0 == version && version > 0 {
            known.1
        } else {
            let mut schema = load_schema(view, tables)?;
            if let Some(AttributeFilter(sees)) = &self.filter {
                schema.hide_except(|name| sees(name));
            }
            let schema = Arc::new(schema);
            let mut cached = self.schema.write();
            if cached.0 < version {
                *cached = (version, schema.clone());
            }
            schema
        };
        let moment = Snapshot {
            view,
            tables,
            schema,
            indexes: self.indexes(),
        };
        Ok((version, moment))
    }

    /// Returns the stored options of the database.
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

    /// Adds options to the stored ones, or replaces those of the same name.
    pub fn set_options(&self, given: &Map) -> Result<()> {
        let mut options = self.options()?;
        options.extend(given.clone());
        // Options that no index can be created with are refused before they are stored.
        let schema = self.read(|moment| Ok(moment.schema.clone()))?;
        if self.kv.is_writable() {
            let concerns = ["embedding-opts", "embedding-domains"];
            let concerned = concerns
                .iter()
                .any(|name| given.contains_key(&Value::keyword(name)));
            let known = self.indexes();
            let made = known.embeddings.keys().filter(|_| concerned).cloned();
            self.build_indexes_with(&schema, &options, &made.collect())?;
        }
        let bytes = encode::encode(&Value::Map(options));
        self.write(|batch, _| Ok(batch.put(self.tables.meta, meta::OPTIONS, &bytes)?))?;
        self.indexes.write().0 = 0;
        self.open_indexes()?;
        Ok(())
    }

    /// Whether attributes must be declared before they are used.
    pub fn is_closed(&self) -> Result<bool> {
        self.is_option_set("closed-schema?")
    }

    /// Whether an option is set.
    pub(crate) fn is_option_set(&self, name: &str) -> Result<bool> {
        let options = self.options()?;
        Ok(options
            .get(&Value::keyword(name))
            .is_some_and(Value::is_truthy))
    }

    /// Returns the size of the database on disk in bytes.
    pub fn disk_bytes(&self) -> Result<u64> {
        Ok(self.kv.disk_bytes()?)
    }
}

pub(crate) fn read_number(view: View<'_>, table: Table, key: &[u8]) -> Result<u64> {
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

/// Loads the schema. Each row is an attribute as EDN: its name and its properties.
fn load_schema(view: View<'_>, tables: DatomTables) -> Result<Schema> {
    let mut schema = Schema::default();
    for pair in view.prefix(tables.schema, &[])? {
        let (_, row) = pair?;
        let text = str::from_utf8(row).map_err(|_| rung_kv::Error::Corrupt("schema"))?;
        schema.apply(&read(text)?)?;
    }
    Ok(schema)
}

/// Stores a schema and increases its version, so that every reader loads it.
pub(crate) fn store_schema(
    batch: &mut Batch<'_>,
    tables: DatomTables,
    schema: &Schema,
) -> Result<()> {
    for attribute in schema.attributes() {
        let name = Value::Keyword(attribute.name.clone());
        let mut row = Map::new();
        row.insert(name, Value::Map(attribute.properties()));
        let row = Value::Map(row).to_string();
        batch.put(tables.schema, &attribute.id.to_be_bytes(), row.as_bytes())?;
    }
    let version = read_number(batch.view(), tables.meta, meta::VERSION)?;
    put_number(batch, tables.meta, meta::VERSION, version + 1)
}

/// A consistent state of the database.
#[derive(Clone)]
pub struct Snapshot<'t> {
    pub(crate) view: View<'t>,
    pub(crate) tables: DatomTables,
    pub(crate) schema: Arc<Schema>,
    pub(crate) indexes: Arc<SearchIndexes>,
}

#[cold]
fn corrupt() -> Error {
    Error::Store(rung_kv::Error::Corrupt("datom"))
}

/// An entity, an attribute id, and the bytes of a value.
pub(crate) type Fact<'t> = (Entity, u32, &'t [u8]);

impl<'t> Snapshot<'t> {
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Returns the attribute of that name.
    pub fn attribute(&self, name: &Name) -> Option<&Arc<Attribute>> {
        self.schema.get(name)
    }

    /// Returns the greatest entity id ever used.
    pub fn max_entity(&self) -> Result<Entity> {
        read_number(self.view, self.tables.meta, meta::MAX_ENTITY)
    }

    /// Returns the number of transactions.
    pub fn max_transaction(&self) -> Result<u64> {
        read_number(self.view, self.tables.meta, meta::MAX_TX)
    }

    /// Whether the attribute filter shows an attribute.
    pub(crate) fn is_visible(&self, a: u32) -> bool {
        self.schema.by_id(a).is_some()
    }

    fn is_visible_fact(&self, fact: &Result<Fact<'_>>) -> bool {
        fact.as_ref().map_or(true, |(_, a, _)| self.is_visible(*a))
    }

    /// Returns the number of datoms of an attribute.
    pub fn count_of(&self, a: u32) -> Result<u64> {
        read_number(self.view, self.tables.counts, &a.to_be_bytes())
    }

    /// Returns the sampled facts of an attribute, in the order of their values.
    pub(crate) fn sample(&self, a: u32) -> Result<Vec<Fact<'t>>> {
        let keys = crate::sample::sample_keys(self.view, self.tables.sample, a)?;
        keys.into_iter()
            .map(|key| self.parse_ave_fact(key))
            .collect()
    }

    /// Returns an example value of an attribute: the middle one of its sample, or the first value if there is no sample.
    pub fn example(&self, a: u32) -> Result<Option<Value>> {
        let sample = self.sample(a)?;
        let middle = if let Some(fact) = sample.get(sample.len() / 2) {
            Some(*fact)
        } else {
            let mut all = self.attribute_facts(a, Bound::Unbounded, Bound::Unbounded)?;
            all.next().transpose()?
        };
        middle.map(|(_, a, v)| self.decode_value(a, v)).transpose()
    }

    /// Returns the number of visible datoms.
    pub fn count(&self) -> Result<u64> {
        if self.schema.is_filtered() {
            let counts = self
                .schema
                .attributes()
                .map(|attribute| self.count_of(attribute.id));
            return counts.sum();
        }
        Ok(self.view.count(self.tables.eav)?)
    }

    /// Returns the full bytes of a value, given its bytes in a key.
    pub(crate) fn full_value(&self, e: Entity, a: u32, in_key: &'t [u8]) -> Result<&'t [u8]> {
        if !is_truncated(in_key) {
            return Ok(in_key);
        }
        let found = self
            .view
            .get(self.tables.long, &long_value_key(e, a, in_key))?;
        found.ok_or_else(corrupt)
    }

    fn parse_eav_fact(&self, key: &'t [u8]) -> Result<Fact<'t>> {
        let (e, a, v) = parse_eav_key(key).ok_or_else(corrupt)?;
        Ok((e, a, self.full_value(e, a, v)?))
    }

    fn parse_ave_fact(&self, key: &'t [u8]) -> Result<Fact<'t>> {
        let (e, a, v) = parse_ave_key(key).ok_or_else(corrupt)?;
        Ok((e, a, self.full_value(e, a, v)?))
    }

    /// The facts of an entity, of all attributes or of one.
    pub(crate) fn entity_facts(
        &self,
        e: Entity,
        a: Option<u32>,
    ) -> Result<impl Iterator<Item = Result<Fact<'t>>> + use<'_, 't>> {
        let key = eav_prefix(e, a.unwrap_or(0));
        let key = if a.is_some() {
            &key[..]
        } else {
            &key[..crate::datom::ENTITY_BYTES]
        };
        let pairs = self.view.prefix(self.tables.eav, key)?;
        let facts = pairs.map(|pair| self.parse_eav_fact(pair?.0));
        Ok(facts.filter(|fact| self.is_visible_fact(fact)))
    }

    /// The first value that an entity has of an attribute, by its bytes.
    pub(crate) fn first_value(&self, e: Entity, a: u32) -> Result<Option<&'t [u8]>> {
        let prefix = eav_prefix(e, a);
        let found = self.view.first_from(self.tables.eav, &prefix)?;
        let in_key = found.and_then(|(key, _)| key.strip_prefix(&prefix));
        in_key
            .map(|in_key| self.full_value(e, a, in_key))
            .transpose()
    }

    /// The entities that have a value, by its bytes.
    pub(crate) fn holders(
        &self,
        a: u32,
        encoded: &[u8],
    ) -> Result<impl Iterator<Item = Result<Entity>> + use<'_, 't>> {
        Ok(self.value_facts(a, encoded)?.map(|fact| Ok(fact?.0)))
    }

    /// The facts of an attribute that have a value, by its bytes.
    pub(crate) fn value_facts(
        &self,
        a: u32,
        encoded: &[u8],
    ) -> Result<impl Iterator<Item = Result<Fact<'t>>> + use<'_, 't>> {
        let key = ave_prefix(a, &to_key_bytes(encoded));
        let pairs = self.view.prefix(self.tables.ave, &key)?;
        Ok(pairs.map(|pair| self.parse_ave_fact(pair?.0)))
    }

    /// The fact that an entity has a value, by its bytes. `None` if there is no such fact.
    pub(crate) fn entity_value_fact(
        &self,
        e: Entity,
        a: u32,
        encoded: &[u8],
    ) -> Result<Option<Fact<'t>>> {
        let key = eav_key(e, a, &to_key_bytes(encoded));
        let found = self
            .view
            .prefix(self.tables.eav, &key)?
            .next()
            .transpose()?;
        found.map(|(key, _)| self.parse_eav_fact(key)).transpose()
    }

    /// The facts of an attribute whose values' bytes lie within bounds, in the order of the values.
    pub(crate) fn attribute_facts(
        &self,
        a: u32,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<impl Iterator<Item = Result<Fact<'t>>> + use<'_, 't>> {
        let bound = |bound: Bound<&[u8]>, last: u8| match bound {
            Bound::Unbounded => None,
            Bound::Included(value) | Bound::Excluded(value) => {
                let mut key = ave_prefix(a, &to_key_bytes(value));
                key.extend_from_slice(&[last; crate::datom::ENTITY_BYTES]);
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
        Ok(pairs.map(|pair| self.parse_ave_fact(pair?.0)))
    }

    /// The facts from an entity's attribute to the end of the entity `last`. Their values are key bytes, which may be truncated.
    pub(crate) fn facts_between(
        &self,
        (e, a): (Entity, u32),
        last: Entity,
    ) -> Result<impl Iterator<Item = Result<Fact<'t>>> + use<'t>> {
        let (first, end) = (eav_prefix(e, a), (last + 1).to_be_bytes());
        let bounds = (Bound::Included(&first[..]), Bound::Excluded(&end[..]));
        let pairs = self.view.range(self.tables.eav, bounds)?;
        Ok(pairs.map(|pair| parse_eav_key(pair?.0).ok_or_else(corrupt)))
    }

    /// All facts, by entity.
    pub(crate) fn all_facts(&self) -> Result<impl Iterator<Item = Result<Fact<'t>>> + use<'_, 't>> {
        let pairs = self.view.prefix(self.tables.eav, &[])?;
        let facts = pairs.map(|pair| self.parse_eav_fact(pair?.0));
        Ok(facts.filter(|fact| self.is_visible_fact(fact)))
    }

    /// The facts of an index whose keys have the prefix `key`; or those and all later ones; or those and all earlier ones, in
    /// descending order.
    pub(crate) fn scan(
        &self,
        order: IndexOrder,
        reach: IndexScan,
        key: &[u8],
    ) -> Result<impl Iterator<Item = Result<Fact<'t>>> + use<'_, 't>> {
        let table = self.table(order);
        let pairs: Box<dyn Iterator<Item = _> + 't> = match reach {
            IndexScan::Prefix => Box::new(self.view.prefix(table, key)?),
            IndexScan::Forward if key.is_empty() => Box::new(self.view.prefix(table, key)?),
            IndexScan::Forward => {
                let bounds = (Bound::Included(key), Bound::Unbounded);
                Box::new(self.view.range(table, bounds)?)
            }
            IndexScan::Backward => {
                // No key is longer than this end, so no key with the prefix sorts after it.
                let mut end = key.to_vec();
                end.resize(rung_kv::MAX_KEY_BYTES, 0xFF);
                let bounds = (Bound::Unbounded, Bound::Included(&end[..]));
                Box::new(self.view.range_reverse(table, bounds)?)
            }
        };
        let facts = pairs.map(move |pair| self.parse_fact(order, pair?.0));
        Ok(facts.filter(|fact| self.is_visible_fact(fact)))
    }

    fn table(&self, order: IndexOrder) -> Table {
        match order {
            IndexOrder::Eav => self.tables.eav,
            IndexOrder::Ave => self.tables.ave,
        }
    }

    fn parse_fact(&self, order: IndexOrder, key: &'t [u8]) -> Result<Fact<'t>> {
        match order {
            IndexOrder::Eav => self.parse_eav_fact(key),
            IndexOrder::Ave => self.parse_ave_fact(key),
        }
    }

    /// Decodes the value of a fact to the type of its attribute.
    pub(crate) fn decode_value(&self, a: u32, encoded: &[u8]) -> Result<Value> {
        let value = encode::decode_part(encoded)?;
        Ok(match self.schema.by_id(a) {
            Some(attribute) => restore_type(attribute, value),
            None => value,
        })
    }

    /// Converts a fact to a datom.
    pub(crate) fn to_datom(&self, (e, a, v): Fact<'_>) -> Result<Datom> {
        Ok(Datom {
            e,
            a,
            v: self.decode_value(a, v)?,
            added: true,
        })
    }

    /// Calls `visit` with every datom, ordered by entity.
    pub fn visit_all(&self, mut visit: impl FnMut(Datom) -> Result<()>) -> Result<()> {
        for fact in self.all_facts()? {
            visit(self.to_datom(fact?)?)?;
        }
        Ok(())
    }

    /// The values that an entity has of an attribute.
    pub fn values(&self, e: Entity, a: u32) -> Result<Vec<Value>> {
        let facts = self.entity_facts(e, Some(a))?;
        facts.map(|fact| self.decode_value(a, fact?.2)).collect()
    }

    /// Whether an entity has at least one visible fact.
    pub fn exists(&self, e: Entity) -> Result<bool> {
        Ok(self.entity_facts(e, None)?.next().transpose()?.is_some())
    }

    /// Returns the entity that has a unique value.
    pub(crate) fn holder(&self, a: u32, value: &Value) -> Result<Option<Entity>> {
        self.holders(a, &encode_value(value))?.next().transpose()
    }

    /// Resolves an entity id, an ident or a lookup ref. `None` if there is no such entity.
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
                        "{called} is not a lookup ref; a lookup ref is [attribute value]"
                    )));
                };
                let Some(attribute) = self
                    .attribute(name)
                    .filter(|attribute| attribute.unique.is_some())
                else {
                    let why =
                        format!("the lookup ref {called} uses :{name}, which is not :db/unique");
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
                "{other} does not name an entity; an entity is named by its number, a keyword or a lookup ref"
            ))),
        }
    }
}

/// Converts an entity id to a value.
pub(crate) fn entity_value(e: Entity) -> Value {
    Value::Long(i64::try_from(e).expect("entities are numbered from one up"))
}
